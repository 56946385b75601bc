"""Shared by the tests of the lessons: one runner, so that the model is loaded once, and a lesson that may be broken at will."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.provider import Provider
from lessons.format import LessonBroken, Problem
from lessons.loader import HOME, load_lesson
from lessons.runner import Runner
from lessons.validator import validate

SAMPLE = "03-a-batch-rebuilt-every-step"


@pytest.fixture(scope="session")
def runner(request: pytest.FixtureRequest) -> Runner:
    """Runs scenarios; a lesson on the real model gets the suite's own, in fp32."""
    class Shared(Provider):
        def load(self, progress: Callable[[str], None]) -> None:
            self.loaded = request.getfixturevalue("default_model")
            self.model_name = self.loaded.spec.name
    return Runner(Shared(None))


class Breakable:
    """A copy of a good lesson in a folder of its own."""

    def __init__(self, home: Path) -> None:
        self.home, self.folder = home, home / SAMPLE
        shutil.copytree(HOME / SAMPLE, self.folder)

    def edit(self, file: str, change: Callable[[Any], Any]) -> None:
        """Change a JSON document in place."""
        path = self.folder / file
        value = json.loads(path.read_text(encoding="utf-8"))
        change(value)
        path.write_text(json.dumps(value, indent=1), encoding="utf-8")

    def replace(self, file: str, old: str, new: str) -> None:
        """Change words of a text."""
        path = self.folder / file
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new), encoding="utf-8")

    def problems(self) -> list[Problem]:
        try:
            return validate(load_lesson(SAMPLE, self.home))
        except LessonBroken as broken:
            return broken.problems


@pytest.fixture
def lesson(tmp_path: Path) -> Breakable:
    return Breakable(tmp_path)
