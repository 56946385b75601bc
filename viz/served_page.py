"""A page process of its own, for the tools that look at the page or measure it."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

ROOT = Path(__file__).resolve().parent.parent
WAIT_TRIES, WAIT_SECONDS = 600, 0.2


@contextlib.contextmanager
def serving(config: dict[str, object], pace: float, *arguments: str) -> Iterator[str]:
    """``app.py`` on a free loopback port with ``config`` and ``pace``; yields its address once engine and page are up."""
    process = subprocess.Popen(
        [sys.executable, "app.py", "--port", "0", "--host", "127.0.0.1", "--pace", str(pace), "--config", json.dumps(config), *arguments],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        url = process.stdout.readline().split()[1]
        for _ in range(WAIT_TRIES):
            with contextlib.suppress(OSError), urlopen(f"{url}healthz", timeout=5) as answer:
                if json.load(answer)["ready"] and b"bs-data" in urlopen(url, timeout=5).read():
                    break
            time.sleep(WAIT_SECONDS)
        yield url
    finally:
        process.terminate()
        process.wait(20)
