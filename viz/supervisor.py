"""Starts the engine process, notices when it dies, starts it again, and never leaves it behind.

The page process asks :meth:`endpoint` where the engine listens; with a remote engine (``--engine ws://…``) that is a fixed
address and nothing is started.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import secrets
import signal
import sys
from pathlib import Path
from typing import Any

log = logging.getLogger("batchscope.supervisor")

TOKEN_VARIABLE = "BATCHSCOPE_ENGINE_TOKEN"
FIRST_WAIT, LONGEST_WAIT = 0.5, 30.0  # seconds between a death and the next start
STABLE_AFTER = 60.0  # a process that lived this long has earned a quick restart
START_TIMEOUT = 60.0  # from start to listening; the model loads after that
STOP_TIMEOUT = 8.0
ROOT = Path(__file__).resolve().parent.parent


class RemoteEngine:
    """An engine that somebody else runs."""

    def __init__(self, url: str, token: str | None) -> None:
        self.url, self.token = url, token
        self.last_words = ""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def endpoint(self) -> tuple[str, str | None]:
        return self.url, self.token

    async def ended(self, patience: float) -> None: ...

    def status(self) -> dict[str, Any]:
        return {"kind": "remote", "url": self.url}


class Supervisor:
    """Runs ``python -m engine`` with ``arguments`` as a child process on a free loopback port."""

    def __init__(self, arguments: list[str]) -> None:
        self.arguments = arguments
        self.token = secrets.token_urlsafe(32)
        self.process: asyncio.subprocess.Process | None = None
        self.restarts = 0
        self.last_words = ""  # a sentence about how the last process ended
        self._address: str | None = None
        self._listening = asyncio.Event()
        self._ended = asyncio.Event()
        self._stopping = False
        self._task: asyncio.Task | None = None

    async def start(self) -> None:
        self._task = asyncio.create_task(self._keep_alive())

    async def endpoint(self) -> tuple[str, str | None]:
        """Address and token of the running engine; waits while there is none."""
        await self._listening.wait()
        return self._address, self.token

    async def ended(self, patience: float) -> None:
        """Wait until it is known how the process has ended; no longer than ``patience`` seconds, because it may live on."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), patience)

    def status(self) -> dict[str, Any]:
        """For the health check."""
        running = self.process is not None and self.process.returncode is None
        return {
            "kind": "child",
            "running": running,
            "pid": self.process.pid if running else None,
            "restarts": self.restarts,
            "last_words": self.last_words,
        }

    async def stop(self) -> None:
        """End the engine: closing its standard input asks it to, then the terminate signal, then the kill signal."""
        self._stopping = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        process = self.process
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), STOP_TIMEOUT)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _keep_alive(self) -> None:
        wait = FIRST_WAIT
        while not self._stopping:
            started = asyncio.get_running_loop().time()
            try:
                await self._run_once()
            except OSError as problem:
                self.last_words = f"The engine process could not be started: {problem.strerror or problem}."
            self._listening.clear()
            lived = asyncio.get_running_loop().time() - started
            wait = FIRST_WAIT if lived > STABLE_AFTER else wait
            self.restarts += 1
            log.warning("%s Starting it again in %.1f s.", self.last_words, wait)
            await asyncio.sleep(wait)
            wait = min(LONGEST_WAIT, wait * 2)

    async def _run_once(self) -> None:
        environment = {**os.environ, TOKEN_VARIABLE: self.token}
        environment["PYTHONPATH"] = os.pathsep.join(part for part in (str(ROOT), os.environ.get("PYTHONPATH", "")) if part)
        self.process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "engine",
            "--host",
            "127.0.0.1",
            "--port",
            "0",
            "--token-env",
            TOKEN_VARIABLE,
            "--announce",
            "--end-with-parent",
            *self.arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=environment,
        )
        try:
            line = await asyncio.wait_for(self.process.stdout.readline(), START_TIMEOUT)
            self._address = f"ws://127.0.0.1:{json.loads(line)['port']}"
            self._ended.clear()
            self._listening.set()
            while await self.process.stdout.read(65536):  # an unread pipe would block the child one day
                pass
        except (TimeoutError, ValueError, KeyError):
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
        code = await self.process.wait()
        self.last_words = _ending(code)
        self._ended.set()


def _ending(code: int) -> str:
    if code < 0:
        with contextlib.suppress(ValueError):
            name = signal.Signals(-code).name
            hint = " (often: out of memory)" if name == "SIGKILL" else ""
            return f"The engine process was ended by {name}{hint}."
    return f"The engine process ended with exit code {code}."
