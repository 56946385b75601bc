"""The text of a lesson: front matter, then one section a step, in a small Markdown.

    ---
    title: Static batching and its holes
    summary: One sentence for the list of lessons.
    ---
    ## guess | Before you run it        step id of scenario.json | title
    Prose with **bold**, *stress*, `code`, [[term]] or [[term|as written]], and {{run.metric | format}}.

    - a list                            | a | table |
    !figure slots | its caption
    ? The question                      - choices follow it, one a line
    > Shown once the question is answered or the challenge is met.

The result is a tree of plain lists, never HTML: the page and the handout both build their output from it as text nodes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

_HEADING = re.compile(r"## +([a-z][a-z0-9_]*) *\| *(\S.*)$")
_FIGURE = re.compile(r"!figure +([a-z][a-z0-9_]*) *\| *(\S.*)$")
_INLINE = re.compile(
    r"\*\*(?P<bold>[^*]+)\*\*|\*(?P<stress>[^*\s][^*]*)\*|`(?P<code>[^`]+)`"
    r"|\[\[(?P<term>[a-z0-9_]+)(?:\|(?P<shown>[^\]]+))?\]\]|\{\{(?P<value>[^}|]+)(?:\|(?P<format>[^}]+))?\}\}")
FRONT_MATTER = ("title", "summary")


class TextError(ValueError):
    """The text does not follow the format; ``line`` tells where."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


@dataclass(slots=True)
class Section:
    """The words of one step. ``blocks`` are ``[kind, …]`` lists; ``question`` and the entries of ``choices`` and ``reveal``
    are inline trees."""

    id: str
    title: str
    line: int
    blocks: list[list[Any]] = field(default_factory=list)
    question: list[Any] | None = None
    question_line: int = 0
    choices: list[list[Any]] = field(default_factory=list)
    reveal: list[list[Any]] = field(default_factory=list)
    source: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {"title": self.title, "blocks": self.blocks, "question": self.question, "choices": self.choices, "reveal": self.reveal}


@dataclass(slots=True)
class LessonText:
    """One language of a lesson. ``values`` lists every ``{{…}}`` as (line, expression, format), ``terms`` every ``[[…]]``."""

    front: dict[str, str]
    sections: list[Section]
    values: list[tuple[int, str, str]]
    terms: list[tuple[int, str]]
    figures: list[tuple[int, str]]
    source: str


def parse_text(source: str) -> LessonText:
    """Parse one language of a lesson. Raises :class:`TextError` with the line."""
    return _TextParser(source).run()


class _TextParser:
    def __init__(self, source: str) -> None:
        self.lines = source.split("\n")
        self.text = LessonText({}, [], [], [], [], source)

    def run(self) -> LessonText:
        at = self.front_matter()
        while at < len(self.lines):
            if self.lines[at].strip():
                at = self.section(at)
            else:
                at += 1
        return self.text

    def front_matter(self) -> int:
        if self.lines[0].strip() != "---":
            raise TextError(1, "the file must begin with front matter between two lines of ---")
        for at in range(1, len(self.lines)):
            line = self.lines[at].strip()
            if line == "---":
                return at + 1
            name, colon, value = line.partition(":")
            if not colon or not value.strip():
                raise TextError(at + 1, "a line of the front matter has the form name: value")
            if name.strip() not in FRONT_MATTER:
                raise TextError(at + 1, f"the front matter knows {' and '.join(FRONT_MATTER)}, not '{name.strip()[:40]}'")
            self.text.front[name.strip()] = value.strip()
        raise TextError(1, "the front matter is not closed by a second line of ---")

    def section(self, at: int) -> int:
        match = _HEADING.match(self.lines[at])
        if not match:
            raise TextError(at + 1, "a step must begin with '## step_id | Title'")
        section = Section(match[1], match[2].strip(), at + 1)
        if any(other.id == section.id for other in self.text.sections):
            raise TextError(at + 1, f"the step '{section.id}' stands here a second time")
        self.text.sections.append(section)
        start = at
        at += 1
        while at < len(self.lines) and not self.lines[at].startswith("## "):
            at = self.block(section, at) if self.lines[at].strip() else at + 1
        section.source = "\n".join(self.lines[start:at])
        return at

    def block(self, section: Section, at: int) -> int:
        line = self.lines[at]
        if line.startswith("!"):
            match = _FIGURE.match(line)
            if not match:
                raise TextError(at + 1, "a figure has the form '!figure figure_id | Caption'")
            self.text.figures.append((at + 1, match[1]))
            section.blocks.append(["figure", match[1], self.inline(match[2], at)])
            return at + 1
        if line.startswith("? "):
            return self.question(section, at)
        end = at
        while end < len(self.lines) and self.lines[end].strip() and not self.lines[end].startswith(("## ", "!figure", "? ")):
            if end > at and _kind(self.lines[end]) != _kind(line) and _kind(self.lines[end]) != "paragraph":
                break
            end += 1
        kind = _kind(line)
        if kind == "reveal":
            section.reveal.append(self.inline(" ".join(part.removeprefix(">").strip() for part in self.lines[at:end]), at))
        elif kind == "list":
            section.blocks.append(["list", [self.inline(text, first) for first, text in self.items(at, end)]])
        elif kind == "table":
            section.blocks.append(["table", self.table(at, end)])
        else:
            section.blocks.append(["paragraph", self.inline(" ".join(part.strip() for part in self.lines[at:end]), at)])
        return end

    def items(self, at: int, end: int) -> list[tuple[int, str]]:
        items: list[tuple[int, str]] = []
        for line in range(at, end):
            if self.lines[line].startswith("- "):
                items.append((line, self.lines[line][2:].strip()))
            else:
                first, text = items[-1]
                items[-1] = (first, f"{text} {self.lines[line].strip()}")
        return items

    def table(self, at: int, end: int) -> list[list[Any]]:
        rows = []
        for line in range(at, end):
            cells = [cell.strip() for cell in _split_cells(self.lines[line].strip().strip("|"))]
            if all(set(cell) <= {"-", ":"} and cell for cell in cells):
                continue
            rows.append([self.inline(cell, line) for cell in cells])
        if len({len(row) for row in rows}) > 1:
            raise TextError(at + 1, "the rows of this table have different numbers of cells")
        return rows

    def question(self, section: Section, at: int) -> int:
        if section.question is not None:
            raise TextError(at + 1, f"the step '{section.id}' has a second question; a step asks one")
        section.question_line = at + 1
        end = at + 1
        while end < len(self.lines) and self.lines[end].strip() and self.lines[end][0] not in "-#!>?|":
            end += 1
        section.question = self.inline(" ".join(part.strip() for part in self.lines[at:end])[2:], at)
        start = end
        while end < len(self.lines) and self.lines[end].strip() and self.lines[end][0] not in "#!>?|":
            end += 1
        if end > start:
            section.choices = [self.inline(text, first) for first, text in self.items(start, end)]
        return end

    def inline(self, text: str, at: int) -> list[Any]:
        spans: list[Any] = []
        done = 0
        for match in _INLINE.finditer(text):
            if match.start() > done:
                spans.append(text[done:match.start()])
            done = match.end()
            if match["bold"]:
                spans.append(["bold", self.inline(match["bold"], at)])
            elif match["stress"]:
                spans.append(["stress", self.inline(match["stress"], at)])
            elif match["code"]:
                spans.append(["code", match["code"]])
            elif match["term"]:
                self.text.terms.append((at + 1, match["term"]))
                spans.append(["term", match["term"], match["shown"]])
            else:
                value, format_name = match["value"].strip(), (match["format"] or "").strip()
                self.text.values.append((at + 1, value, format_name))
                spans.append(["value", value, format_name])
        if done < len(text):
            spans.append(text[done:])
        for span in spans:
            if isinstance(span, str) and any(sign in span for sign in ("{{", "}}", "[[", "]]", "**")):
                raise TextError(at + 1, f"a mark is not closed near '{span.strip()[:50]}'")
        return spans


def _split_cells(row: str) -> list[str]:
    """Cells of a table row; a bar inside ``{{value | format}}`` or ``[[term|shown]]`` is not a border."""
    return re.split(r"\|(?![^{]*\}\})(?![^\[]*\]\])", row)


def _kind(line: str) -> str:
    if line.startswith("- "):
        return "list"
    if line.startswith("|"):
        return "table"
    return "reveal" if line.startswith(">") else "paragraph"
