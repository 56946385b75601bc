"""JSON with the line of every value, so that a message about a lesson can name the line a teacher has to look at."""

from __future__ import annotations

import json
import re
from json.decoder import scanstring
from typing import Any

MAX_DEPTH = 12
_SPACE = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_WORDS = {"true": True, "false": False, "null": None}

Path = tuple[Any, ...]


class JsonError(ValueError):
    """Not JSON, or beyond the limits; ``line`` tells where."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


class _Scanner:
    """Reads one document and remembers the line of each path. Duplicate keys are an error: the second would silently win."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines: dict[Path, int] = {}

    def fail(self, at: int, message: str) -> JsonError:
        return JsonError(self.text.count("\n", 0, at) + 1, message)

    def skip(self, at: int) -> int:
        return _SPACE.match(self.text, at).end()

    def read_text(self, at: int) -> tuple[str, int]:
        try:
            return scanstring(self.text, at + 1, True)
        except json.JSONDecodeError as error:
            raise self.fail(at, "a text is not closed or holds a control character") from error

    def value(self, at: int, path: Path) -> tuple[Any, int]:
        if len(path) > MAX_DEPTH:
            raise self.fail(at, f"values are nested more than {MAX_DEPTH} deep")
        at = self.skip(at)
        self.lines[path] = self.text.count("\n", 0, at) + 1
        sign = self.text[at:at + 1]
        if sign == "{":
            return self.record(at + 1, path)
        if sign == "[":
            return self.list(at + 1, path)
        if sign == '"':
            return self.read_text(at)
        for word, value in _WORDS.items():
            if self.text.startswith(word, at):
                return value, at + len(word)
        match = _NUMBER.match(self.text, at)
        if not match:
            raise self.fail(at, "a value is missing here or is not JSON")
        digits = match.group()
        return (float(digits) if any(c in digits for c in ".eE") else int(digits[:400])), match.end()

    def record(self, at: int, path: Path) -> tuple[dict[str, Any], int]:
        found: dict[str, Any] = {}
        at = self.skip(at)
        if self.text[at:at + 1] == "}":
            return found, at + 1
        while True:
            at = self.skip(at)
            if self.text[at:at + 1] != '"':
                raise self.fail(at, "a name in double quotes is expected here")
            start = at
            name, at = self.read_text(at)
            if name in found:
                raise self.fail(start, f"the name \"{name[:40]}\" stands twice in one object")
            at = self.skip(at)
            if self.text[at:at + 1] != ":":
                raise self.fail(at, f"a colon is missing after \"{name[:40]}\"")
            found[name], at = self.value(at + 1, (*path, name))
            at = self.skip(at)
            if self.text[at:at + 1] == "}":
                return found, at + 1
            if self.text[at:at + 1] != ",":
                raise self.fail(at, "a comma or a closing brace is missing")
            at += 1

    def list(self, at: int, path: Path) -> tuple[list[Any], int]:
        found: list[Any] = []
        at = self.skip(at)
        if self.text[at:at + 1] == "]":
            return found, at + 1
        while True:
            entry, at = self.value(at, (*path, len(found)))
            found.append(entry)
            at = self.skip(at)
            if self.text[at:at + 1] == "]":
                return found, at + 1
            if self.text[at:at + 1] != ",":
                raise self.fail(at, "a comma or a closing bracket is missing")
            at += 1


def load_located(text: str) -> tuple[Any, dict[Path, int]]:
    """The document and the line (from 1) of every value by its path. Raises :class:`JsonError`."""
    scanner = _Scanner(text)
    document, at = scanner.value(0, ())
    at = scanner.skip(at)
    if at < len(text):
        raise scanner.fail(at, "something follows after the end of the document")
    return document, scanner.lines
