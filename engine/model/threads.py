"""How the engine's process shares its cores with everything beside it.

Torch's CPU kernels run on OpenMP threads. Out of the box a thread that waits for work spins for milliseconds before it
sleeps; on a machine with two cores that steals the core the page process (or a second engine) needs. The settings here
make waiting threads sleep. They are read once, when torch loads its OpenMP library, so they must be in the environment
before torch is imported: this module imports nothing heavy, and refuses to act too late.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

#: A bare PASSIVE policy sleeps at once, and a decode step has hundreds of tiny parallel regions whose wake-ups then cost
#: more than the arithmetic (measured: 1.1 to 1.4 times the step time). A thousand spins, some ten microseconds, bridge the
#: gap between two regions and keep the step time, while an idle engine uses no core.
WAIT_SETTINGS = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "1000"}


def configure_threads() -> dict[str, str]:
    """Put the OpenMP settings into the environment and return those in force.

    A value that the user has set stays. ``OMP_NUM_THREADS`` is set to the cores this process may really use, because
    torch counts the cores of the host, which in a container with a quota are many more. Raises ``RuntimeError`` when torch
    is already imported, because then the settings would silently do nothing.
    """
    if "torch" in sys.modules:
        raise RuntimeError("configure_threads() must run before torch is imported; afterwards OpenMP ignores its settings.")
    for name, value in {**WAIT_SETTINGS, "OMP_NUM_THREADS": str(available_cores())}.items():
        os.environ.setdefault(name, value)
    return {name: os.environ[name] for name in (*WAIT_SETTINGS, "OMP_NUM_THREADS")}


def available_cores(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Cores this process may use: its CPU affinity, cut to the container's quota (cgroup v2, then v1), at least one."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:
        cores = os.cpu_count() or 1
    quota = _quota(cgroup)
    return max(1, min(cores, int(quota))) if quota is not None else max(1, cores)


def _quota(cgroup: Path) -> float | None:
    """CPUs' worth of time that the control group grants, or ``None`` when it does not limit."""
    try:
        limit, period = (cgroup / "cpu.max").read_text().split()
        return None if limit == "max" else int(limit) / int(period)
    except (OSError, ValueError):
        pass
    try:
        limit = int((cgroup / "cpu/cpu.cfs_quota_us").read_text())
        period = int((cgroup / "cpu/cpu.cfs_period_us").read_text())
        return limit / period if limit > 0 and period > 0 else None
    except (OSError, ValueError):
        return None
