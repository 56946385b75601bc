"""What a lesson consists of: the vocabulary of ``scenario.json`` and ``checks.json``, and :class:`Lesson` itself.

The machinery of a step (which run it watches, which panel it points at, when it goes on, what its question's answer is) is
written once, in ``scenario.json``; the words stand in ``lesson.en.md`` and ``lesson.ko.md`` under the same step ids.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

from lessons.located_json import Path
from lessons.text import LessonText

LANGUAGES = ("en", "ko")
FILES = ("scenario.json", "checks.json", "lesson.en.md", "lesson.ko.md")
RECORDING = "run.jsonl.gz"

#: the way every lesson goes, in this order; explanations may also stand in between
KINDS = ("prediction", "run", "explanation", "challenge")
MINUTES = (5, 10)

#: panels a step may point at: names of ``viz/panels``
PANELS = ("lanes", "blocks", "block_table", "composition", "timeline", "cpu_device", "swap_pool", "prefix_tree", "latency", "throughput",
          "roofline", "waiting", "decision_log", "answers", "request_story")

#: names a step's predicate may use beside the metrics of the run it watches
PREDICATE_NAMES = ("answered", "done", "read", "reached")

FIGURE_KINDS = ("timeline", "composition", "memory", "curve", "bars")
FORMATS = ("", "int", ".1", ".2", ".3", "%", "%.1", "%.2", "s", "ms", "us", "x", "KB", "MB", "GB", "TB", "KiB", "MiB", "GiB")
COMPARISONS = ("==", "!=", "<", "<=", ">", ">=", "~")

SCENARIO_FIELDS = {"number", "minutes", "device", "model", "panels", "pace", "limits", "runs", "figures", "steps", "score"}
RUN_FIELDS = {"device", "model", "config", "requests", "workload", "script", "like", "max_steps", "record", "params"}
REQUEST_FIELDS = {"at", "every", "count", "prompt", "prompt_tokens", "new_tokens"}
SCRIPT_FIELDS = {"at", "configure", "cancel"}
STEP_FIELDS = {"id", "kind", "run", "points_at", "advance", "question", "challenge", "from_step", "to_step"}
QUESTION_FIELDS = {"type", "choices", "answer", "tolerance", "unit"}
CHALLENGE_FIELDS = {"run", "knobs", "goal", "solution", "show"}
FIGURE_FIELDS = {"kind", "run", "from_step", "to_step", "x", "y", "points", "unit", "labels", "label"}
CHECK_FIELDS = {"id", "step", "measure", "is", "value", "tolerance", "format", "timing", "sentence"}

MAX_RUNS, MAX_STEPS, MAX_REQUESTS, MAX_ENGINE_STEPS = 12, 24, 2000, 4000
MAX_FILE_BYTES, MAX_RECORDING_BYTES = 64 * 1024, 150 * 1000


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a lesson, where."""

    file: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}"


class LessonBroken(Exception):
    """A lesson that cannot be loaded at all. ``problems`` says why, each with file and line."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = problems


@dataclass(slots=True)
class Lesson:
    """One lesson, loaded. ``scenario`` and ``checks`` are the JSON documents, ``lines`` the line of each of their values by file
    and path, ``texts`` the parsed words by language."""

    name: str
    folder: FilePath
    scenario: dict[str, Any]
    checks: list[dict[str, Any]]
    texts: dict[str, LessonText]
    lines: dict[str, dict[Path, int]] = field(default_factory=dict)

    @property
    def number(self) -> int:
        return self.scenario["number"]

    @property
    def steps(self) -> list[dict[str, Any]]:
        return self.scenario["steps"]

    @property
    def runs(self) -> dict[str, dict[str, Any]]:
        return self.scenario["runs"]

    @property
    def simulated(self) -> bool:
        """Whether every run is on a simulated device."""
        return all(self.device_of(name).startswith("simulated:") for name in self.runs)

    def device_of(self, run: str) -> str:
        return self.runs[run].get("device") or self.scenario["device"]

    def model_of(self, run: str) -> str | None:
        return self.runs[run].get("model") or self.scenario.get("model")

    def line(self, file: str, path: Path) -> int:
        """The line of a value, or of the nearest thing around it that has one."""
        known = self.lines.get(file, {})
        while path and path not in known:
            path = path[:-1]
        return known.get(path, 1)
