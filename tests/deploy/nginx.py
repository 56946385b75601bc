"""nginx on loopback with one of the example files, its ports and names exchanged for the test's."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 60.0


@contextlib.contextmanager
def nginx(example: str, replacements: dict[str, str], port: int) -> Iterator[None]:
    """Run nginx with ``deploy/<example>`` until the block ends. Each key of ``replacements`` must occur in the file."""
    program = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
    if program is None:
        pytest.fail("The deployment tests need nginx: install it (Debian: apt-get install nginx-light).")
    text = (ROOT / "deploy" / example).read_text()
    for old, new in replacements.items():
        assert old in text, f"{example} no longer has {old!r}"
        text = text.replace(old, new)
    with tempfile.TemporaryDirectory(prefix="nginx-") as folder:
        temporary = "".join(f"{kind}_temp_path {folder}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        configuration = Path(folder) / "nginx.conf"
        # Started by root, nginx would hand its work to a user who may not enter the temporary folder.
        user = "user root;\n" if Path(folder).owner() == "root" else ""
        configuration.write_text(f"{user}daemon off;\npid {folder}/pid;\nerror_log {folder}/error.log;\nworker_processes 1;"
                                 f"\nevents {{}}\nhttp {{\naccess_log off;\n{temporary}{text}\n}}\n")
        process = subprocess.Popen([program, "-p", folder, "-c", str(configuration)], stderr=subprocess.PIPE, text=True)
        try:
            _wait_for(port, process)
            yield
        finally:
            process.terminate()
            process.wait(PATIENCE)
            process.stderr.close()


def _wait_for(port: int, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        assert process.poll() is None, process.stderr.read()
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        assert time.monotonic() < deadline, "nginx does not listen"
        time.sleep(0.02)
