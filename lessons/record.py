"""``python -m lessons.record [NAME…]``: run each lesson's scenario and keep it beside its text, so that the lesson opens at once.

``run.jsonl.gz`` holds lines of JSON: a header with the metrics of every run, then for each recorded run a line ``{"run": name}``,
the snapshot it began with, and its events as the engine emitted them. At most 150 kB, and the same bytes for the same run.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import sys
from dataclasses import dataclass, field
from typing import Any

from lessons.format import MAX_RECORDING_BYTES, Lesson
from lessons.loader import find_lesson, lesson_names, load_lesson, recording_path
from lessons.runner import Run, Runner

FORMAT = "batchscope-lesson"
VERSION = 1
#: Requests kept one by one in the header; the text of a lesson speaks of the first few at most.
KEPT_REQUESTS = 40
MAX_UNPACKED = 16 * 2**20


class RecordingBroken(ValueError):
    """The recording of a lesson is missing, damaged or of another version."""


@dataclass(slots=True)
class LessonRecording:
    """A read recording: ``metrics`` of every run, and ``runs`` (snapshot and events) of the recorded ones."""

    header: dict[str, Any]
    runs: dict[str, Run] = field(default_factory=dict)

    @property
    def metrics(self) -> dict[str, dict[str, Any]]:
        return self.header["metrics"]


def packed(lesson: Lesson, runs: dict[str, Run]) -> bytes:
    """The recording's bytes. Raises :class:`RecordingBroken` when they are more than a lesson may have."""
    metrics = {name: {**run.metrics, "requests": run.metrics["requests"][:KEPT_REQUESTS]} for name, run in runs.items()}
    devices = {name: {key: run.snapshot["state"]["engine"].get(key) for key in ("model", "device", "dtype", "backend", "simulated")}
               for name, run in runs.items()}
    out = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=out, mtime=0, compresslevel=9) as file:
        def line(value: Any) -> None:
            file.write(json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode() + b"\n")
        line({"format": FORMAT, "version": VERSION, "lesson": lesson.name, "devices": devices, "metrics": metrics})
        for name, run in runs.items():
            if lesson.runs[name].get("record", True):
                line({"run": name})
                line(run.snapshot)
                for event in run.events:
                    line(event)
    if out.tell() > MAX_RECORDING_BYTES:
        raise RecordingBroken(f"The recording of {lesson.name} has {out.tell():,} bytes, at most {MAX_RECORDING_BYTES:,} are kept; make its runs shorter.")
    return out.getvalue()


def read_recording(lesson: Lesson) -> LessonRecording:
    """Read the recording beside a lesson. Raises :class:`RecordingBroken`."""
    path = recording_path(lesson)
    try:
        if path.stat().st_size > MAX_RECORDING_BYTES:
            raise RecordingBroken(f"{path.name} is larger than {MAX_RECORDING_BYTES:,} bytes.")
        with gzip.open(path, "rb") as file:
            data = file.read(MAX_UNPACKED + 1)
        lines = [json.loads(line) for line in data.splitlines()]
    except (OSError, EOFError, ValueError) as error:
        raise RecordingBroken(f"{lesson.name} has no readable recording ({type(error).__name__}); make one with "
                              f"python -m lessons.record {lesson.name}.") from error
    if len(data) > MAX_UNPACKED or not lines or lines[0].get("format") != FORMAT or lines[0].get("version") != VERSION:
        raise RecordingBroken(f"{lesson.name}/{path.name} is not a recording of this version.")
    recording = LessonRecording(lines[0])
    run: Run | None = None
    for value in lines[1:]:
        if "run" in value:
            run = recording.runs[value["run"]] = Run(value["run"], {}, recording.metrics[value["run"]])
        elif value["type"] == "snapshot":
            run.snapshot = value
        else:
            run.events.append(value)
    return recording


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m lessons.record", description="Record the runs of the lessons.")
    parser.add_argument("names", nargs="*", metavar="NAME")
    try:
        names = [find_lesson(name) for name in parser.parse_args(arguments).names] or lesson_names()
    except KeyError as error:
        print(error.args[0])
        return 1
    runner = Runner()
    for name in names:
        lesson = load_lesson(name)
        try:
            data = packed(lesson, runner.run_all(lesson))
        except RecordingBroken as error:
            print(error)
            return 1
        recording_path(lesson).write_bytes(data)
        print(f"{name}: {len(data):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
