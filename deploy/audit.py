"""Look the pinned packages up among the known vulnerabilities, and say plainly what could not be looked up.

    python deploy/audit.py             report; fails only for a vulnerability that a newer release has fixed
    python deploy/audit.py --strict    also fails when nothing could be looked up

It asks the package index, so it needs a network that reaches one with advisory data. Without one nothing was audited, and
that is what is printed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LISTS = ("requirements.txt", "requirements-model.txt", "requirements-test.txt")
#: Advisory id → why it does not concern this project. Each entry is a decision to be revisited.
ACCEPTED: dict[str, str] = {}


def run_audit() -> list[dict] | None:
    """pip-audit's verdict on each pinned package (the lists alone, nothing installed), or ``None`` when it could not run."""
    command = [sys.executable, "-m", "pip_audit", "--no-deps", "--disable-pip", "--progress-spinner", "off", "--format", "json",
               "--timeout", "10"]
    for name in LISTS:
        command += ["-r", str(ROOT / name)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        return json.loads(done.stdout)["dependencies"]
    except (subprocess.TimeoutExpired, ValueError, KeyError):
        return None


def main(strict: bool) -> int:
    packages = run_audit()
    looked_up = [package for package in packages or () if "vulns" in package]
    skipped = len(packages or ()) - len(looked_up)
    found = [(package, advisory) for package in looked_up for advisory in package["vulns"] if advisory["id"] not in ACCEPTED]
    for package, advisory in found:
        fixed = ", ".join(advisory["fix_versions"]) or "no release yet"
        print(f"audit: {package['name']} {package['version']}: {advisory['id']}, fixed in {fixed}")
    if not looked_up:
        print("audit: not done, because no advisory data could be reached from here.")
        return 1 if strict else 0
    left = f", {skipped} could not be looked up" if skipped else ""
    print(f"audit: {len(looked_up)} packages looked up{left}, {len(found)} known vulnerabilities.")
    return 1 if any(advisory["fix_versions"] for _, advisory in found) else 0


if __name__ == "__main__":
    sys.exit(main("--strict" in sys.argv[1:]))
