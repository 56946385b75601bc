"""Reading lessons from their folders, within limits.

A lesson is data from whoever wrote it: only the named files are read, none may be a link or large, nothing in them is run,
and every text stays text until it becomes a text node on the page.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from lessons.format import FILES, LANGUAGES, MAX_FILE_BYTES, RECORDING, Lesson, LessonBroken, Problem
from lessons.located_json import JsonError, load_located
from lessons.text import LessonText, TextError, parse_text

HOME = Path(__file__).parent
_FOLDER = re.compile(r"(\d\d)-[a-z0-9]+(?:-[a-z0-9]+)*")


def lesson_names(home: Path = HOME) -> list[str]:
    """Names of the lesson folders, in the order of the course."""
    return sorted(entry.name for entry in home.iterdir() if entry.is_dir() and _FOLDER.fullmatch(entry.name))


def find_lesson(name: str, home: Path = HOME) -> str:
    """The folder's name for a name, a slug or a number as somebody types it. Raises ``KeyError`` with a sentence."""
    names = lesson_names(home)
    for candidate in names:
        number, _, slug = candidate.partition("-")
        if name in (candidate, slug) or (name.isdigit() and int(name) == int(number)):
            return candidate
    raise KeyError(f"There is no lesson {name[:60]!r}; the lessons are {', '.join(names) or 'none'}.")


def load_lesson(name: str, home: Path = HOME) -> Lesson:
    """Read and parse one lesson. Raises :class:`LessonBroken` for what cannot be read; the validator looks deeper."""
    folder = home / name
    if not _FOLDER.fullmatch(name) or not folder.is_dir():
        raise LessonBroken([Problem(str(name)[:60], 1, "a lesson is a folder named like 07-prefill-in-slices")])
    problems: list[Problem] = []
    sources = {file: _read(folder / file, problems) for file in FILES}
    documents: dict[str, Any] = {}
    lines: dict[str, Any] = {}
    texts: dict[str, LessonText] = {}
    for file in FILES[:2]:
        try:
            documents[file], lines[file] = load_located(sources[file] or "null")
        except JsonError as error:
            problems.append(Problem(file, error.line, f"{error}."))
    for language in LANGUAGES:
        file = f"lesson.{language}.md"
        if sources[file] is not None:
            try:
                texts[language] = parse_text(sources[file])
            except TextError as error:
                problems.append(Problem(file, error.line, f"{error}."))
    if not problems:
        for file, kind, noun in ((FILES[0], dict, "an object"), (FILES[1], list, "a list of claims")):
            if not isinstance(documents[file], kind):
                problems.append(Problem(file, 1, f"the file must hold {noun}."))
    if problems:
        raise LessonBroken(problems)
    return Lesson(name, folder, documents[FILES[0]], documents[FILES[1]], texts, lines)


def _read(path: Path, problems: list[Problem]) -> str | None:
    try:
        if path.is_symlink() or not path.is_file():
            problems.append(Problem(path.name, 1, "the file is missing (it must be a plain file in the lesson's folder)."))
        elif path.stat().st_size > MAX_FILE_BYTES:
            problems.append(Problem(path.name, 1, f"the file is larger than {MAX_FILE_BYTES // 1024} KiB."))
        else:
            return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        problems.append(Problem(path.name, 1, f"the file is not UTF-8 text (byte {error.start})."))
    except OSError as error:
        problems.append(Problem(path.name, 1, f"the file cannot be read: {error.strerror}."))
    return None


def load_course(home: Path = HOME) -> list[Lesson]:
    """Every lesson, in order. Raises :class:`LessonBroken` for the first that cannot be read."""
    return [load_lesson(name, home) for name in lesson_names(home)]


def recording_path(lesson: Lesson) -> Path:
    return lesson.folder / RECORDING


def load_glossary(home: Path = HOME) -> dict[str, dict[str, dict[str, str]]]:
    """Term id → language → ``{term, text}``."""
    return json.loads((home / "glossary.json").read_text(encoding="utf-8"))


def lesson_steps(home: Path = HOME) -> dict[str, list[str]]:
    """Step ids of every lesson by its name; a lesson that cannot be read is left out."""
    found: dict[str, list[str]] = {}
    for name in lesson_names(home):
        try:
            found[name] = [step["id"] for step in load_lesson(name, home).steps]
        except LessonBroken:
            continue
    return found
