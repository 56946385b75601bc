"""Where files that can be made again are kept: the dequantised default model, compiled kernels, small decisions.

Every caller must go on without it: a cache directory that cannot be written, or a full disk, costs time, never the run.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

#: Written last into a finished entry. An entry without it is the rest of an interrupted write and is made again.
COMPLETE = ".complete"


def cache_root() -> Path:
    """``$BATCHSCOPE_CACHE``, else ``$XDG_CACHE_HOME/batchscope``, else ``~/.cache/batchscope``. Not created."""
    if explicit := os.environ.get("BATCHSCOPE_CACHE"):
        return Path(explicit).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path("~/.cache").expanduser()) / "batchscope"


def writable_reason(directory: Path, bytes_needed: int = 0) -> str | None:
    """``None`` when ``bytes_needed`` bytes can be written below ``directory``, else a sentence that says why not."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
        free = shutil.disk_usage(directory).free
    except OSError as error:
        return f"The cache directory {directory} cannot be written ({error.strerror or error})."
    if free < bytes_needed:
        return (f"The cache directory {directory} has {free / 2**20:.0f} MiB free and {bytes_needed / 2**20:.0f} MiB are "
                f"needed.")
    return None


def find_entry(name: str) -> Path | None:
    """The finished entry ``name``, or ``None`` when it was never made or only half."""
    entry = cache_root() / name
    return entry if (entry / COMPLETE).is_file() else None


def make_entry(name: str, fill: Callable[[Path], None]) -> Path:
    """Make the entry ``name`` by letting ``fill`` write into an empty directory, and return its path.

    The directory gets its name only when it is complete, in one rename, so that nobody ever reads half of it; of two
    processes that make the same entry at once, the first wins and the other throws its copy away. Raises ``OSError`` when
    the disk does not play along; nothing is left behind.
    """
    entry = cache_root() / name
    entry.parent.mkdir(parents=True, exist_ok=True)
    with _scratch(entry) as scratch:
        fill(scratch)
        (scratch / COMPLETE).touch()
        if not (entry / COMPLETE).is_file():
            shutil.rmtree(entry, ignore_errors=True)
        try:
            scratch.rename(entry)
        except OSError:
            if find_entry(name) is None:
                raise
    return entry


@contextmanager
def _scratch(entry: Path):
    scratch = entry.with_name(f".{entry.name}.{uuid.uuid4().hex[:8]}")
    scratch.mkdir()
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
