"""Checks of the words: both languages against the scenario and against each other, and the claims against the words."""

from __future__ import annotations

from typing import Any

from lessons import format as f
from lessons.findings import CHECKS, SCENARIO, Findings


class TextChecks(Findings):
    """What may stand in a text is told in ``lessons/README.md``."""

    def texts(self) -> None:
        wanted = [step.get("id") for step in self.lesson.steps]
        questions = {step.get("id"): step.get("question") for step in self.lesson.steps}
        reference = self.lesson.texts[f.LANGUAGES[0]]
        for language in f.LANGUAGES:
            text, file = self.lesson.texts[language], f"lesson.{language}.md"
            for name in ("title", "summary"):
                if name not in text.front:
                    self.say(file, 1, f"the front matter has no {name}.")
            found = [section.id for section in text.sections]
            for section in text.sections:
                if section.id not in wanted:
                    self.say(file, section.line, f"the step \"{section.id}\" does not stand in {SCENARIO}.")
            missing = [step for step in wanted if step not in found]
            if missing:
                self.say(file, 1, f"the step \"{missing[0]}\" of {SCENARIO} has no text in this language.")
            elif found != wanted and set(found) == set(wanted):
                self.say(file, text.sections[0].line, f"the steps stand in another order than in {SCENARIO}.")
            for section in text.sections:
                self.section(file, section, questions.get(section.id))
            self.marks(file, text, reference)

    def section(self, file: str, section: Any, question: Any) -> None:
        if not section.blocks:
            self.say(file, section.line, f"the step \"{section.id}\" has no prose.")
        if isinstance(question, dict):
            if section.question is None:
                self.say(file, section.line, f"{SCENARIO} asks a question in the step \"{section.id}\", but it has no words here.")
                return
            choices = question.get("choices") if question.get("type") == "choice" else []
            if isinstance(choices, list) and len(section.choices) != len(choices):
                self.say(file, section.question_line, f"the question has {len(section.choices)} choices here and {len(choices)} in {SCENARIO}.")
            if not section.reveal:
                self.say(file, section.question_line, "the question has no explanation (a line beginning with >) for after the answer.")
        elif section.question is not None:
            self.say(file, section.question_line, f"the step \"{section.id}\" asks a question that {SCENARIO} does not know.")

    def marks(self, file: str, text: Any, reference: Any) -> None:
        for line, value, format_name in text.values:
            self.expression(file, line, value)
            if format_name not in f.FORMATS:
                self.say(file, line, f"there is no format '{format_name[:20]}'; the formats are {', '.join(f.FORMATS[1:])}.")
        for line, term in text.terms:
            if term not in self.glossary:
                self.say(file, line, f"there is no term '{term}' in glossary.json.")
        figures = self.lesson.scenario.get("figures", {})
        for line, name in text.figures:
            if name not in figures:
                self.say(file, line, f"there is no figure \"{name}\" in {SCENARIO}.")
        if text is not reference:
            for what, mine, theirs in (("numbers {{…}}", [value for _, value, _ in text.values], [value for _, value, _ in reference.values]),
                                       ("figures", [name for _, name in text.figures], [name for _, name in reference.figures])):
                if sorted(mine) != sorted(theirs):
                    odd = sorted(set(mine) ^ set(theirs)) or ["how often one stands"]
                    self.say(file, 1, f"the two languages differ in their {what}: {odd[0]}.")

    # --- claims -----------------------------------------------------------------------------------------------------------------

    def checks(self) -> None:
        seen: set[str] = set()
        if not self.lesson.checks:
            self.say(CHECKS, 1, "a lesson needs at least one claim.")
        for index, check in enumerate(self.lesson.checks):
            path = (index,)
            if not self.fields(CHECKS, path, check, f.CHECK_FIELDS, ("id", "step", "measure", "is", "value", "sentence")):
                continue
            if check["id"] in seen:
                self.say(CHECKS, (*path, "id"), f"the claim \"{check['id']}\" is named twice.")
            seen.add(check["id"])
            self.expression(CHECKS, (*path, "measure"), check["measure"])
            if isinstance(check["value"], str):
                self.expression(CHECKS, (*path, "value"), check["value"])
            elif not isinstance(check["value"], (int, float)):
                self.say(CHECKS, (*path, "value"), "the value of a claim is a number, true, false or an expression.")
            if check["is"] not in f.COMPARISONS:
                self.say(CHECKS, (*path, "is"), f"\"is\" must be one of {', '.join(f.COMPARISONS)}.")
            elif (check["is"] == "~") != ("tolerance" in check):
                self.say(CHECKS, path, "a claim with \"~\", and only such a claim, has a tolerance (a share of the value).")
            if check.get("format", "") not in f.FORMATS:
                self.say(CHECKS, (*path, "format"), f"there is no format '{check['format']}'.")
            self.sentence(path, check)

    def sentence(self, path: tuple[Any, ...], check: dict[str, Any]) -> None:
        if not self.fields(CHECKS, (*path, "sentence"), check["sentence"], set(f.LANGUAGES), f.LANGUAGES):
            return
        for language in f.LANGUAGES:
            section = next((part for part in self.lesson.texts[language].sections if part.id == check["step"]), None)
            if section is None:
                self.say(CHECKS, (*path, "step"), f"there is no step \"{str(check['step'])[:40]}\".")
                return
            words = " ".join(str(check["sentence"][language]).split())
            if not words or words not in " ".join(section.source.replace("\n> ", "\n").split()):
                self.say(CHECKS, (*path, "sentence", language),
                         f"the sentence of the claim \"{check['id']}\" does not stand in the step \"{check['step']}\" of lesson.{language}.md.")
