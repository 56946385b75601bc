"""What this machine can do at best: memory bandwidth and arithmetic peak, measured once in a process.

The two numbers are the roof of the roofline panel (Williams, Waterman and Patterson, CACM 2009). Both are *achievable* rates,
measured with PyTorch's own kernels on the device and threads that the model uses, so a step of the model can come near them:

* bandwidth: bytes of a long vector over the best time to sum it up, or to multiply it by itself (every byte comes from memory once,
  nothing is written; which of the two is faster depends on the machine's cores);
* peak: ``2 n³`` operations over the best time of an ``n × n`` matrix product, in the model's number format or in float32,
  whichever is faster, because kernels may compute in either.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache, partial
from typing import Any

#: Long enough to miss every cache (bytes); large enough to be limited by arithmetic (rows).
VECTOR_BYTES = {"cpu": 128 * 2**20, "cuda": 2**30}
MATRIX = {"cpu": 1024, "cuda": 8192}
TRIES = 6          # other work on the machine makes a try slower, never faster


@cache
def measure_machine(device: str, dtype: str) -> dict[str, Any]:
    """``{"bandwidth": bytes/s, "peak_flops": FLOP/s, "source": "measured"}`` of a torch device. Takes about half a second, once."""
    import torch
    kind = "cuda" if device.startswith("cuda") else "cpu"
    number = getattr(torch, dtype)
    with torch.inference_mode():
        vector = torch.ones(VECTOR_BYTES[kind] // 4, dtype=torch.float32, device=device)
        bandwidth = vector.nbytes / min(_best(vector.sum, torch, kind), _best(partial(vector.dot, vector), torch, kind))
        del vector
        size = MATRIX[kind]
        times = []
        for chosen in {number, torch.float32} if kind == "cpu" else {number}:
            matrix = torch.full((size, size), 0.5, dtype=chosen, device=device)
            times.append(_best(lambda matrix=matrix: matrix @ matrix, torch, kind))
            del matrix
    return {"bandwidth": bandwidth, "peak_flops": 2.0 * size**3 / min(times), "source": "measured"}


def _best(work: Callable[[], Any], torch: Any, kind: str) -> float:
    """Seconds of the fastest of a few runs; the first warms up."""
    work()
    best = float("inf")
    for _ in range(TRIES):
        if kind == "cuda":
            torch.cuda.synchronize()
        started = time.perf_counter()
        work()
        if kind == "cuda":
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - started)
    return best
