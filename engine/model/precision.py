"""Which number format to compute in on this machine."""

from __future__ import annotations

import json
import statistics
import time
from typing import Any

from engine.errors import ModelUnavailable
from engine.model.cache_dir import cache_root

NAMES = {"auto": None, "float32": "float32", "fp32": "float32", "bfloat16": "bfloat16", "bf16": "bfloat16",
         "float16": "float16", "fp16": "float16"}


def choose_device(device: str) -> Any:
    """``torch.device`` for a name; ``"auto"`` takes the first CUDA device, else the CPU. Raises :class:`ModelUnavailable`."""
    import torch

    if device == "auto":
        return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError:
        raise ModelUnavailable("bad_device", f"{device[:40]!r} is not a device; use auto, cpu, cuda or cuda:1.") from None
    if chosen.type == "cuda" and (not torch.cuda.is_available() or (chosen.index or 0) >= torch.cuda.device_count()):
        raise ModelUnavailable("bad_device", f"There is no device {device} here; torch sees {torch.cuda.device_count()} CUDA "
                               "devices.")
    if chosen.type not in ("cpu", "cuda"):
        raise ModelUnavailable("bad_device", f"The engine runs on cpu and cuda devices, not on {device[:40]}.")
    return chosen


def choose_dtype(dtype: str, device: Any) -> Any:
    """``torch.dtype`` for a name; ``"auto"`` takes what is fast on ``device`` and keeps the model's quality.

    CUDA: bfloat16 where the device computes it, else float16. CPU: bfloat16 where the processor has instructions for it
    and it also *measures* faster than float32, else float32. Raises :class:`ModelUnavailable` for another name.
    """
    import torch

    if dtype not in NAMES:
        raise ModelUnavailable("bad_dtype", f"{str(dtype)[:40]!r} is not a number format; use {', '.join(NAMES)}.")
    if NAMES[dtype]:
        return getattr(torch, NAMES[dtype])
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16
    return torch.bfloat16 if has_native_bf16() and bf16_is_faster() else torch.float32


def has_native_bf16() -> bool:
    """Whether the processor multiplies bfloat16 itself (AVX512-BF16, AMX or ARM's BF16)."""
    import torch

    capabilities = torch.cpu.get_capabilities()
    return any(capabilities.get(name) for name in ("avx512_bf16", "amx_bf16", "amx_tile", "bf16", "sve_bf16"))


def bf16_is_faster() -> bool:
    """The measurement, remembered in the cache directory so that a machine always answers the same."""
    import torch

    key = f"{torch.cpu.get_capabilities().get('cpu_name')} torch {torch.__version__} threads {torch.get_num_threads()}"
    record = cache_root() / "bf16.json"
    try:
        known = json.loads(record.read_text())
        if isinstance(known.get(key), bool):
            return known[key]
    except (OSError, ValueError, AttributeError):
        known = {}
    known[key] = _time_linear(torch.bfloat16) < _time_linear(torch.float32)
    try:
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text(json.dumps(known))
    except OSError:
        pass                      # measured again next time, at the cost of a tenth of a second
    return known[key]


def _time_linear(dtype: Any, rows: int = 16, width: int = 1024, depth: int = 8) -> float:
    """Median seconds of ``rows`` tokens through ``depth`` layers of ``width`` × ``width`` weights, too many for the caches."""
    import torch

    with torch.inference_mode():
        weights = [torch.ones(width, width, dtype=dtype) for _ in range(depth)]
        hidden = torch.ones(rows, width, dtype=dtype)
        times = []
        for _ in range(9):
            start = time.perf_counter()
            for weight in weights:
                torch.nn.functional.linear(hidden, weight)
            times.append(time.perf_counter() - start)
    return statistics.median(times[2:])
