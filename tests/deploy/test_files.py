"""Files for deployment that no test could run here are at least checked against what they name."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "Dockerfile"


def test_the_dockerfile_passes_hadolint():
    program = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")
    if program is None:
        pytest.fail("hadolint is part of requirements-test.txt; install that first.")
    done = subprocess.run([program, "--no-color", str(DOCKERFILE)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert done.stdout == ""


def test_the_image_gets_every_file_that_the_app_imports():
    copied = set(re.findall(r"^COPY (.+) \S+$", DOCKERFILE.read_text(), re.MULTILINE))
    sources = {name for line in copied for name in line.split()}
    assert {"app.py", "engine", "viz", "lessons", "requirements.txt", "requirements-model.txt"} <= sources
    assert all((ROOT / name).exists() for name in sources)
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert not sources & set(ignored)


def test_the_commands_in_the_documents_are_ones_that_the_programs_take():
    """Every option that a document shows must be in the program's own help."""
    programs = {"python app.py": ["app.py"], "python -m engine": ["-m", "engine"], "python -m engine.tail": ["-m", "engine.tail"]}
    helps = {name: subprocess.run([sys.executable, *command, "--help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
             for name, command in programs.items()}
    shown = 0
    for document in (ROOT / "README.md", ROOT / "docs" / "DEPLOY.md"):
        for line in document.read_text().splitlines():
            for name in sorted(programs, key=len, reverse=True):
                if f"{name} " in line:
                    for option in re.findall(r"(--[a-z][a-z-]+)", line.split(name, 1)[1]):
                        assert option in helps[name], f"{document.name}: {name} has no {option}"
                        shown += 1
                    break
    assert shown > 10


@pytest.mark.parametrize("script", [".ci/run", "deploy/system_packages.sh"])
def test_shell_scripts_parse(script):
    shell = "bash" if script == ".ci/run" else "sh"
    assert subprocess.run([shell, "-n", script], cwd=ROOT).returncode == 0


def test_make_knows_every_documented_target():
    for target in ("run", "test", "soak", "bench", "lint", "audit", "clean"):
        assert subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True).returncode == 0, target
