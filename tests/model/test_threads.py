"""The engine's waiting threads must not steal cores, and only settings made before torch is imported do anything."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.model.threads import WAIT_SETTINGS, available_cores

ROOT = Path(__file__).resolve().parents[2]


def untouched_environment() -> dict[str, str]:
    """Without the settings that this test process has made for itself."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, env={**untouched_environment(), **environment},
                          capture_output=True, text=True, timeout=120)


def openmp_report(code: str, **environment: str) -> str:
    """What the OpenMP library itself says it runs with, printed by it when torch loads it."""
    done = run_python(code, OMP_DISPLAY_ENV="VERBOSE", **environment)
    assert done.returncode == 0, done.stderr
    return done.stderr


CONFIGURED = "from engine.model.threads import configure_threads; configure_threads(); import torch"


def test_openmp_itself_reports_passive_waiting_after_configure_threads():
    report = openmp_report(CONFIGURED)
    assert "OMP_WAIT_POLICY = 'PASSIVE'" in report
    assert f"GOMP_SPINCOUNT = '{WAIT_SETTINGS['GOMP_SPINCOUNT']}'" in report
    assert f"OMP_NUM_THREADS = '{available_cores()}'" in report


def test_without_configure_threads_openmp_spins_long():
    """The test above would mean nothing if this were the default anyway."""
    report = openmp_report("import torch")
    assert f"GOMP_SPINCOUNT = '{WAIT_SETTINGS['GOMP_SPINCOUNT']}'" not in report


def test_a_value_set_by_the_user_stays():
    assert "OMP_NUM_THREADS = '1'" in openmp_report(CONFIGURED, OMP_NUM_THREADS="1")


def test_configuring_after_torch_is_imported_is_refused():
    done = run_python("import torch; from engine.model.threads import configure_threads; configure_threads()")
    assert done.returncode != 0
    assert "before torch is imported" in done.stderr


@pytest.mark.parametrize(("files", "cores"), [
    ({"cpu.max": "50000 100000"}, 1),              # half a core is still one thread
    ({"cpu.max": "100000 100000"}, 1),
    ({"cpu.max": "max 100000"}, None),
    ({"cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "100000"}, 1),
    ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
    ({}, None),
])
def test_a_container_quota_limits_the_threads(tmp_path, files, cores):
    """A Space with two cores' worth of time on a 64-core host must not start 64 threads."""
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert available_cores(tmp_path) == (cores or len(os.sched_getaffinity(0)))


def test_the_engine_process_itself_waits_passively(tmp_path):
    """``python -m engine`` loads torch in a thread of its own, after the settings: OpenMP's report is on its error output."""
    command = [sys.executable, "-m", "engine", "--port", "0", "--model", str(tmp_path / "none"), "--end-with-parent"]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env={**untouched_environment(), "OMP_DISPLAY_ENV": "VERBOSE"})
    report = ""
    try:
        for line in process.stderr:
            report += line
            if "DISPLAY ENVIRONMENT END" in line:
                break
    finally:
        process.kill()
        process.communicate()
    assert "OMP_WAIT_POLICY = 'PASSIVE'" in report
