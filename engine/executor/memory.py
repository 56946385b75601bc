"""How much memory a new cache may be sized from."""

from __future__ import annotations

from pathlib import Path

import torch


def free_bytes(device: torch.device) -> int:
    """Bytes that can still be allocated on ``device``: on CUDA free memory and what the allocator holds unused; on a CPU
    what the machine, or the container's limit if that is tighter, has available."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    room = [value for value in (_available(), _container_room()) if value is not None]
    return min(room) if room else 1 << 30


def _available() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        import os
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (ValueError, OSError):
        return None


def _container_room() -> int | None:
    """Room under the control group's memory limit (version 2, then 1); ``None`` without a limit."""
    for limit, used in (("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes")):
        try:
            most = Path("/sys/fs/cgroup", limit).read_text().strip()
            if most.isdigit() and int(most) < 1 << 60:
                return max(0, int(most) - int(Path("/sys/fs/cgroup", used).read_text()))
        except (OSError, ValueError):
            continue
    return None
