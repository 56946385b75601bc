"""A Hub on loopback: serves one model folder by the Hub's own file protocol, or takes connections and never answers."""

from __future__ import annotations

import hashlib
import json
import socket
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@contextmanager
def serving_hub(folder: Path, repo_id: str):
    """Yield ``(endpoint, paths asked for)`` of a Hub that has the files of ``folder`` as ``repo_id``."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *arguments):
            pass

        def answer(self, status: int, body: bytes, **headers: str) -> None:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def do_GET(self):
            path = self.path.split("?")[0]
            asked.append(path)
            prefix = f"/{repo_id}/resolve/main/"
            name = path.removeprefix(prefix).removeprefix(f"/{repo_id}/resolve/{COMMIT}/")
            if path == "/api/models":
                self.answer(200, b"[]", Content_Type="application/json")
            elif path.startswith(f"/api/models/{repo_id}/tree/"):
                self.answer(200, json.dumps([{"type": "file", "path": file.name, "size": file.stat().st_size, "oid": "0" * 40}
                                             for file in sorted(folder.iterdir())]).encode(), Content_Type="application/json")
            elif path.startswith(f"/api/models/{repo_id}"):
                siblings = [{"rfilename": file.name} for file in sorted(folder.iterdir())]
                self.answer(200, json.dumps({"id": repo_id, "sha": COMMIT, "siblings": siblings}).encode(),
                            Content_Type="application/json")
            elif name != path and (folder / name).is_file():
                body = (folder / name).read_bytes()
                self.answer(200, body, ETag=f'"{hashlib.sha1(body).hexdigest()}"', X_Repo_Commit=COMMIT)
            else:
                self.answer(404, b"", X_Error_Code="EntryNotFound", X_Repo_Commit=COMMIT)

        do_HEAD = do_GET

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def silent_hub():
    """Yield the endpoint of a server that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0), backlog=16) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
