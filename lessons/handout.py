"""A lesson on paper: ``python -m lessons.handout NAME --html OUT [--pdf OUT] [--lang ko]``.

The handout holds the whole text with the numbers of the recorded run, its figures, the questions with room for an answer, and
the explanations at the end. It is one HTML file without scripts or outside addresses.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from html import escape
from pathlib import Path
from typing import Any

from lessons.expression import Expression, ExpressionError
from lessons.figures import draw_figure
from lessons.format import LANGUAGES, Lesson
from lessons.loader import find_lesson, load_glossary, load_lesson
from lessons.record import LessonRecording, RecordingBroken, read_recording
from lessons.values import format_value
from viz.browser import find_chromium

STYLE = """
@page { size: A4; margin: 18mm 16mm; }
body { font: 11pt/1.55 Inter, "Noto Sans KR", "Noto Sans CJK KR", system-ui, sans-serif; color: #17212d;
  max-width: 178mm; margin: 0 auto; padding: 8mm; }
h1 { font-size: 20pt; line-height: 1.2; margin: 0 0 2mm; } h2 { font-size: 13pt; margin: 7mm 0 2mm; break-after: avoid; }
.lead { color: #526070; margin: 0 0 4mm; } .source { font-size: 9pt; color: #526070; }
figure { margin: 4mm 0; break-inside: avoid; } figure svg { width: 100%; height: auto; border: 1px solid #dce2e9; border-radius: 2mm; }
figcaption { font-size: 9pt; color: #526070; } code { font-family: ui-monospace, Menlo, Consolas, monospace; font-size: .92em; }
.ask { border-left: 3px solid #0b63bd; padding: 1mm 4mm; margin: 4mm 0; break-inside: avoid; }
.ask ol { list-style: none; padding: 0; margin: 1mm 0; }
.ask li::before { content: "□ "; }
.blank { border-bottom: 1px solid #526070; display: inline-block; width: 40mm; }
table { border-collapse: collapse; font-size: 9.5pt; width: 100%; break-inside: avoid; }
td, th { border: 1px solid #b9c3cf; padding: 1.2mm 2mm; vertical-align: top; text-align: left; }
.answers { break-before: page; }
dt { font-weight: 600; }
dd { margin: 0 0 2mm; }
@media print { body { padding: 0; } }
"""
WORDS = {
    "en": {"lesson": "Lesson", "minutes": "minutes", "predict": "Your prediction", "answers": "Answers and explanations", "terms": "Terms",
           "simulated": "simulated", "runs": "Runs", "challenge": "Challenge"},
    "ko": {"lesson": "레슨", "minutes": "분", "predict": "나의 예측", "answers": "답과 설명", "terms": "용어",
           "simulated": "시뮬레이션", "runs": "실행", "challenge": "도전"},
}


class Handout:
    """Builds the HTML of one lesson in one language."""

    def __init__(self, lesson: Lesson, recording: LessonRecording, language: str, glossary: dict[str, Any]) -> None:
        self.lesson, self.recording, self.language, self.glossary = lesson, recording, language, glossary
        self.words, self.text = WORDS[language], lesson.texts[language]
        self.terms: dict[str, None] = {}

    def html(self) -> str:
        lesson, words = self.lesson, self.words
        body = "".join(self.section(section) for section in self.text.sections)
        answers = "".join(f"<h2>{escape(section.title)}</h2>" + "".join(f"<p>{self.inline(part)}</p>" for part in section.reveal)
                          for section in self.text.sections if section.reveal)
        terms = "".join(f"<dt>{escape(self.term(name)['term'])}</dt><dd>{escape(self.term(name)['text'])}</dd>" for name in self.terms)
        title = escape(self.text.front["title"])
        return (f'<!doctype html><html lang="{self.language}"><head><meta charset="utf-8"><title>{title}</title>'
                f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style></head><body>'
                f'<p class="source">Batchscope · {words["lesson"]} {lesson.number} · {lesson.scenario["minutes"]} {words["minutes"]}</p>'
                f'<h1>{title}</h1><p class="lead">{escape(self.text.front["summary"])}</p>{body}{self.sources()}'
                f'<section class="answers"><h1>{words["answers"]}</h1>{answers}<h2>{words["terms"]}</h2><dl>{terms}</dl></section></body></html>')

    def term(self, name: str) -> dict[str, str]:
        return self.glossary[name][self.language]

    def sources(self) -> str:
        """Which device each number comes from: a claim without its conditions is none."""
        seen: dict[str, list[str]] = {}
        for run, about in self.recording.header["devices"].items():
            where = f"{about['model']}, {about['device']}, {about['dtype']}" + (f" ({self.words['simulated']})" if about["simulated"] else "")
            seen.setdefault(where, []).append(run)
        lines = "; ".join(f"{', '.join(runs)}: {where}" for where, runs in seen.items())
        return f'<p class="source">{self.words["runs"]}: {escape(lines)}</p>'

    def section(self, section: Any) -> str:
        step = next(step for step in self.lesson.steps if step["id"] == section.id)
        mark = f'{self.words["challenge"]}: ' if "challenge" in step and not section.title.startswith((self.words["challenge"], "Challenge")) else ""
        return f"<h2>{escape(mark + section.title)}</h2>" + "".join(self.block(block) for block in section.blocks) + self.question(section, step)

    def block(self, block: list[Any]) -> str:
        kind = block[0]
        if kind == "paragraph":
            return f"<p>{self.inline(block[1])}</p>"
        if kind == "list":
            return "<ul>" + "".join(f"<li>{self.inline(item)}</li>" for item in block[1]) + "</ul>"
        if kind == "table":
            head, *rows = block[1]
            cells = lambda tag, row: "<tr>" + "".join(f"<{tag}>{self.inline(cell)}</{tag}>" for cell in row) + "</tr>"   # noqa: E731
            return f"<table>{cells('th', head)}{''.join(cells('td', row) for row in rows)}</table>"
        return f"<figure>{draw_figure(self.lesson, self.recording, block[1], self.language)}<figcaption>{self.inline(block[2])}</figcaption></figure>"

    def question(self, section: Any, step: dict[str, Any]) -> str:
        if section.question is None:
            return ""
        choices = "<ol>" + "".join(f"<li>{self.inline(choice)}</li>" for choice in section.choices) + "</ol>" if section.choices else \
            f'<p>{self.words["predict"]}: <span class="blank">&nbsp;</span> {escape(step["question"].get("unit", ""))}</p>'
        return f'<div class="ask"><p><strong>{self.inline(section.question)}</strong></p>{choices}</div>'

    def inline(self, spans: list[Any]) -> str:
        parts = []
        for span in spans:
            if isinstance(span, str):
                parts.append(escape(span))
            elif span[0] in ("bold", "stress"):
                tag = "strong" if span[0] == "bold" else "em"
                parts.append(f"<{tag}>{self.inline(span[1])}</{tag}>")
            elif span[0] == "code":
                parts.append(f"<code>{escape(span[1])}</code>")
            elif span[0] == "term":
                self.terms[span[1]] = None
                parts.append(f"<em>{escape(span[2] or self.term(span[1])['term'])}</em>")
            else:
                parts.append(escape(self.value(span[1], span[2])))
        return "".join(parts)

    def value(self, expression: str, format_name: str) -> str:
        try:
            return format_value(Expression(expression).evaluate(self.recording.metrics), format_name)
        except ExpressionError:
            return "–"


def handout_html(name: str, language: str) -> str:
    """The handout of one lesson. Raises :class:`RecordingBroken` without a recording."""
    lesson = load_lesson(name)
    return Handout(lesson, read_recording(lesson), language, load_glossary()).html()


def print_pdf(html: str, target: Path) -> None:
    """Print with a Chromium of this machine. Raises ``RuntimeError`` when there is none or it fails."""
    browser = find_chromium()
    if browser is None:
        raise RuntimeError("Printing needs Chromium or Chrome on this machine; open the HTML file and print it from your browser instead.")
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "handout.html"
        page.write_text(html, encoding="utf-8")
        done = subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
                               f"--user-data-dir={folder}/profile", "--no-pdf-header-footer", f"--print-to-pdf={target.resolve()}", page.as_uri()],
                              capture_output=True, timeout=120, check=False)
    if done.returncode or not target.exists():
        raise RuntimeError("The browser could not print the handout.")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m lessons.handout", description="Write a lesson as a printable page.")
    parser.add_argument("name")
    parser.add_argument("--html", type=Path)
    parser.add_argument("--pdf", type=Path)
    parser.add_argument("--lang", choices=LANGUAGES, default="en")
    options = parser.parse_args(arguments)
    try:
        html = handout_html(find_lesson(options.name), options.lang)
        if options.html:
            options.html.write_text(html, encoding="utf-8")
        if options.pdf:
            print_pdf(html, options.pdf)
        if not options.html and not options.pdf:
            sys.stdout.write(html)
    except (KeyError, RecordingBroken, RuntimeError) as error:
        print(error.args[0], file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
