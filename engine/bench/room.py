"""What a measured run stands on: an executor by name, and the run card that says all that is needed to repeat it."""

from __future__ import annotations

import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from engine.executor.base import Executor

PACKAGES = ("torch", "transformers", "tokenizers", "safetensors")


def open_executors(device: str, model: str | None, dtype: str = "auto", seed: int = 0) -> tuple[Any, Any]:
    """(a function that makes a fresh executor, its tokenizer). ``device`` is ``"model"`` or ``"simulated:h100[:8]"``.

    A model is loaded once, here. Raises :class:`CommandRefused` or :class:`ModelUnavailable`.
    """
    if device.startswith("simulated:"):
        from engine.executor.catalog import find_model, parse_device
        from engine.executor.simulated import SimulatedExecutor
        hardware, count = parse_device(device)
        spec = find_model(model or "llama-3.1-8b")
        return lambda: SimulatedExecutor(hardware, spec, count, seed=seed), None
    if device != "model":
        from engine.errors import CommandRefused
        raise CommandRefused("unknown_device", f"A run is on --device model or on simulated:h100 and the like, not on {device[:40]!r}.")
    from engine.model.threads import configure_threads
    configure_threads()
    from engine.executor.model import ModelExecutor
    from engine.model.loading import load_model
    loaded = load_model(model, dtype=dtype, progress=lambda sentence: print(sentence, file=sys.stderr))
    return lambda: ModelExecutor(loaded), loaded.tokenizer


def run_card(executor: Executor, seed: int, **facts: Any) -> dict[str, Any]:
    """Model, device, number format, versions and seed, with ``facts`` such as the workload: JSON-ready."""
    return {
        "model": executor.spec.name, "device": executor.info.device, "dtype": executor.info.dtype, "backend": executor.info.backend,
        "executor": executor.info.kind, "simulated": executor.info.simulated, "notes": list(executor.info.notes), "seed": seed,
        "versions": {"batchscope": _revision(), "python": platform.python_version(), **_package_versions()},
        "machine": {"system": platform.system(), "processor": _processor()}, **facts,
    }


def _package_versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _revision() -> str:
    """The commit that runs, or ``"unknown"`` outside a checkout."""
    try:
        answer = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return answer.stdout.strip() or "unknown"


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
