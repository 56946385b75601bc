"""The page process as a user starts it (``python app.py``), with an engine on a simulated device."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from tests.server.helpers import PATIENCE, Raw, raw

ROOT = Path(__file__).resolve().parents[2]
SECRET = "the-host-knows-this-secret"
CONFIG = {"block_size": 16, "num_blocks": 256, "max_batch_tokens": 64, "max_requests_per_batch": 8}


class Page:
    """A running ``app.py``. ``url`` has no slash at the end."""

    def __init__(
        self,
        *arguments: str,
        pace: float = 0.0,
        config: dict[str, Any] | None = None,
        limits: dict[str, Any] | None = None,
        device: str = "simulated:h100",
        environment: dict[str, str] | None = None,
    ) -> None:
        command = [
            sys.executable,
            "app.py",
            "--host",
            "127.0.0.1",
            "--port",
            "0",
            "--pace",
            str(pace),
            "--config",
            json.dumps(config or CONFIG),
            "--limits",
            json.dumps(limits or {}),
            *arguments,
        ]
        if "--engine" not in arguments:
            command += ["--device", device, *(["--model", "llama-8b"] if device != "model" else [])]
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "BATCHSCOPE_HOST_SECRET": SECRET, **(environment or {})},
        )
        self.printed = [self.process.stdout.readline()]
        assert "http" in self.printed[0], self.process.stderr.read()
        self.url = self.printed[0].split()[1].rstrip("/")
        self.ws = self.url.replace("http", "ws", 1) + "/ws"
        self.log: list[str] = []
        for stream, lines in ((self.process.stdout, self.printed), (self.process.stderr, self.log)):
            threading.Thread(target=self._collect, args=(stream, lines), daemon=True).start()

    @staticmethod
    def _collect(stream: Any, lines: list[str]) -> None:
        with contextlib.suppress(ValueError):
            for line in stream:
                lines.append(line)

    def health(self) -> dict[str, Any]:
        with urlopen(f"{self.url}/healthz", timeout=PATIENCE) as answer:
            return json.load(answer)

    def fetch(self, path: str) -> bytes:
        with urlopen(self.url + path, timeout=PATIENCE) as answer:
            return answer.read()

    def until(self, condition: Any, what: str, patience: float = 60.0) -> dict[str, Any]:
        """Wait until the health report satisfies ``condition``."""
        deadline = time.monotonic() + patience
        while True:
            with contextlib.suppress(OSError):
                health = self.health()
                if condition(health):
                    return health
            assert time.monotonic() < deadline, f"waited in vain for {what}: {''.join(self.log)[-3000:]}"
            time.sleep(0.05)

    def until_ready(self) -> Page:
        self.until(lambda health: health["ready"], "the engine", 240.0)
        return self

    @property
    def engine_pid(self) -> int:
        return self.health()["engine"]["pid"]

    def stop(self, how: int = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(how)
        code = self.process.wait(PATIENCE)
        self.process.stdout.close()
        self.process.stderr.close()
        return code


@contextlib.contextmanager
def running(*arguments: str, **options: Any) -> Iterator[Page]:
    page = Page(*arguments, **options)
    try:
        yield page.until_ready()
    finally:
        page.stop()


@contextlib.asynccontextmanager
async def browser(page: Page, *, host: bool = False, subscribe: str | None = "main", **options: Any) -> AsyncIterator[Raw]:
    """A websocket like a browser's: it comes from another machine (a proxy says so), so it is host only with the secret."""
    headers = {"X-Forwarded-For": "203.0.113.9", **options.pop("headers", {})}
    async with raw(page.ws + (f"?host={SECRET}" if host else ""), additional_headers=headers, **options) as client:
        client.hello = await client.ok("hello")
        if subscribe:
            client.subscribed = await client.ok("subscribe", room=subscribe)
        yield client


async def next_event(client: Raw, wanted: Any, patience: float = PATIENCE) -> dict[str, Any]:
    """The next message (kept or new) for which ``wanted`` holds; earlier ones are dropped."""
    deadline = asyncio.get_running_loop().time() + patience
    while True:
        message = (
            client.events.pop(0)
            if client.events
            else json.loads(await asyncio.wait_for(client.socket.recv(), max(0.01, deadline - asyncio.get_running_loop().time())))
        )
        if wanted(message):
            return message


def alive(pid: int) -> bool:
    """Whether a process runs (one that has ended but was not yet waited for does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False
