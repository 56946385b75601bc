"""The recordings that lessons open with: small, whole, and what the engine does today; the browser measures them the same way."""

from __future__ import annotations

import gzip
import json
import math
import shutil
import subprocess
from pathlib import Path

import pytest

from lessons.check import check_claims, check_questions
from lessons.format import LANGUAGES, MAX_RECORDING_BYTES
from lessons.handout import handout_html
from lessons.loader import lesson_names, load_lesson, recording_path
from lessons.record import RecordingBroken, read_recording
from lessons.values import format_value

NAMES = lesson_names()
STATIC = Path(__file__).parents[2] / "viz" / "static"
NODE = shutil.which("node")


def run_node(program: str, data: object) -> object:
    if NODE is None:
        pytest.skip("node is not installed; the browser tests run the same modules")
    read = ("const input = JSON.parse(await new Promise((done) => { let text = ''; process.stdin.on('data', (part) => text += part); "
            "process.stdin.on('end', () => done(text)); }));")
    run = subprocess.run([NODE, "--input-type=module", "-e", f"{read}\n{program}"], input=json.dumps(data), capture_output=True, text=True,
                         timeout=120, check=False)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.mark.parametrize("name", NAMES)
def test_is_small_and_whole(name):
    lesson = load_lesson(name)
    assert recording_path(lesson).stat().st_size <= MAX_RECORDING_BYTES
    recording = read_recording(lesson)
    assert set(recording.metrics) == set(lesson.runs)
    assert set(recording.runs) == {run for run, about in lesson.runs.items() if about.get("record", True)}
    assert all(step["run"] in recording.runs for step in lesson.steps)
    for language in LANGUAGES:
        html = handout_html(name, language)
        assert html.count("<svg") == sum(1 for section in lesson.texts[language].sections for block in section.blocks if block[0] == "figure")
        assert "<script" not in html and "http" not in html.replace("http://www.w3.org/2000/svg", "")


@pytest.mark.parametrize("name", NAMES)
def test_its_numbers_bear_out_the_text(name):
    """What the prose shows before anybody runs anything are the recorded numbers, so they must satisfy the claims too."""
    lesson = load_lesson(name)
    metrics = read_recording(lesson).metrics
    verdicts = check_claims(lesson, metrics) + check_questions(lesson, metrics)
    assert [f"{verdict.name}: {verdict.text}" for verdict in verdicts if not verdict.holds] == []


def test_simulated_recordings_are_what_the_engine_does_today(runner):
    """A simulated run is a function of its scenario, so a recording that differs is stale."""
    for name in NAMES:
        lesson = load_lesson(name)
        recording = read_recording(lesson)
        for run in recording.runs:
            if lesson.device_of(run).startswith("simulated:"):
                today = runner.run(lesson, run)
                kept = recording.runs[run]
                assert [(event["step"], event.get("slices")) for event in today.events] == [(event["step"], event.get("slices")) for event in kept.events], (
                    f"{name}: record it again with python -m lessons.record {name}")


def test_the_browser_measures_every_recorded_run_as_python_does():
    wanted, given = [], []
    for name in NAMES:
        lesson = load_lesson(name)
        recording = read_recording(lesson)
        for run in recording.runs.values():
            given.append({"snapshot": run.snapshot, "events": run.events, "limits": lesson.scenario.get("limits", {})})
            wanted.append((name, run))
    found = run_node(f"""
    const {{ RunWatch }} = await import({json.dumps((STATIC / 'lessons' / 'run_watch.js').as_uri())});
    const answers = input.map(({{ snapshot, events, limits }}) => {{
      const watch = new RunWatch(limits);
      for (const message of [snapshot, ...events]) watch.take(message);
      const {{ requests, ...rest }} = watch.metrics;
      return {{ ...rest, requests: requests.slice(0, 40) }};
    }});
    process.stdout.write(JSON.stringify(answers));""", given)
    for (name, run), answer in zip(wanted, found):
        assert set(answer) == set(run.metrics), name
        for metric, value in run.metrics.items():
            assert same(answer[metric], value), (name, run.name, metric, answer[metric], value)


def same(one, other) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, (int, float)) and isinstance(other, (int, float)) and not isinstance(one, bool):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)
    return one == other


def test_numbers_look_the_same_in_both_places():
    cases = [[value, name] for value in (0, 1, -3, 7, 1234, 1234567, 0.5, 0.0449, 2.345, 12.345, 99.95, 123.456, 1e-5, 0.999, 1999.5, None, True, "x")
             for name in ("", "int", ".1", ".2", "%", "%.1", "%.2", "s", "ms", "us", "x", "KiB", "MB", "GB")]
    found = run_node(f"""
    const {{ formatValue }} = await import({json.dumps((STATIC / 'lessons' / 'values.js').as_uri())});
    process.stdout.write(JSON.stringify(input.map(([value, name]) => formatValue(value, name))));""", cases)
    assert [(case, answer) for case, answer in zip(cases, found) if answer != format_value(*case)] == []


def test_a_damaged_recording_is_refused(tmp_path, lesson):
    from lessons.loader import load_lesson as load
    broken = load("03-a-batch-rebuilt-every-step", lesson.home)
    path = recording_path(broken)
    for content in (b"", b"not gzip", gzip.compress(b'{"format": "something else"}'), path.read_bytes()[:200] if path.exists() else b"x"):
        path.write_bytes(content)
        with pytest.raises(RecordingBroken):
            read_recording(broken)
