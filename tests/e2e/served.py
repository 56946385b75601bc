"""The real thing as processes: ``python app.py`` and, where a test wants to ask it behind the page's back, ``python -m engine``."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from websockets.sync.client import connect

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 240.0
CONFIG = {"block_size": 16, "num_blocks": 96, "max_batch_tokens": 64, "max_requests_per_batch": 16}


class Process:
    """A child whose standard output is read line by line; ``log`` keeps what it said."""

    def __init__(self, *arguments: str) -> None:
        self.child = subprocess.Popen([sys.executable, *arguments], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                      env={**os.environ, "GRADIO_ANALYTICS_ENABLED": "False"})
        self.log: list[str] = []
        threading.Thread(target=self._collect, daemon=True).start()

    def _collect(self) -> None:
        with contextlib.suppress(ValueError):
            for line in self.child.stdout:
                self.log.append(line)

    def until_said(self, beginning: str) -> str:
        """The first line that begins so. Warnings may come before it: both outputs are one here."""
        deadline = time.monotonic() + PATIENCE
        while True:
            for line in list(self.log):
                if line.startswith(beginning):
                    return line
            assert self.child.poll() is None and time.monotonic() < deadline, f"waited in vain for {beginning!r}: {self.log}"
            time.sleep(0.02)

    def stop(self) -> None:
        self.child.terminate()
        try:
            self.child.wait(20)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
        self.child.stdout.close()


class App(Process):
    """A running page process; ``url`` ends with a slash. With ``engine`` it attaches to that address."""

    def __init__(self, *arguments: str, engine: str | None = None, config: dict[str, Any] | None = None, pace: float = 0) -> None:
        source = ["--engine", engine] if engine else ["--config", json.dumps(config or CONFIG), "--pace", str(pace)]
        super().__init__("app.py", "--host", "127.0.0.1", "--port", "0", *source, *arguments)
        self.url = self.until_said("Batchscope: ").split()[1]

    def until_ready(self) -> App:
        """Wait until the engine answers prompts and Gradio's page is up."""
        deadline = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(OSError):
                if self._get("healthz", lambda text: json.loads(text)["ready"]) and self._get("", lambda text: "bs-data" in text):
                    return self
            assert time.monotonic() < deadline, f"the app did not get ready: {''.join(self.log)[-3000:]}"
            time.sleep(0.1)

    def _get(self, path: str, test: Any) -> bool:
        with urlopen(self.url + path, timeout=10) as answer:
            return test(answer.read().decode())


class Engine(Process):
    """A running engine process on a simulated device, without a page."""

    def __init__(self, config: dict[str, Any], device: str = "simulated:h100", model: str = "llama-8b") -> None:
        super().__init__("-m", "engine", "--port", "0", "--announce", "--device", device, "--model", model, "--config", json.dumps(config))
        self.url = f"ws://127.0.0.1:{json.loads(self.until_said('{'))['port']}"


class Commands:
    """A second client of the room, beside the browser: sends a command and returns its result."""

    def __init__(self, url: str) -> None:
        self.opened = contextlib.ExitStack()
        self.socket = self.opened.enter_context(
            connect(url.replace("http", "ws", 1).rstrip("/") + ("/ws" if url.startswith("http") else ""), max_size=None))
        self.number = 0

    def __call__(self, cmd: str, **fields: Any) -> Any:
        self.number += 1
        self.socket.send(json.dumps({"id": self.number, "cmd": cmd, **fields}))
        while True:
            message = json.loads(self.socket.recv(timeout=PATIENCE))
            if message.get("id") == self.number and message["type"] in ("ack", "error"):
                assert message["type"] == "ack", message
                return message["result"]

    def until(self, condition: Callable[[dict[str, Any]], Any], what: str, room: str = "main") -> dict[str, Any]:
        """The room's state, as soon as it satisfies ``condition``. Steps are run after their command has been answered."""
        deadline = time.monotonic() + PATIENCE
        while not condition(state := self("snapshot", room=room)["state"]):
            assert time.monotonic() < deadline, f"waited in vain for {what}"
            time.sleep(0.02)
        return state

    def room_names(self) -> set[str]:
        return {room["room"] for room in self("rooms")["rooms"]}

    def until_gone(self, rooms: set[str]) -> None:
        """Wait until none of these rooms is there any more."""
        deadline = time.monotonic() + PATIENCE
        while left := rooms & self.room_names():
            assert time.monotonic() < deadline, f"the rooms {left} were not given back"
            time.sleep(0.05)

    def close(self) -> None:
        self.opened.close()
