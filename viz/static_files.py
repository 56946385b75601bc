"""The browser's own files: compressed once, revalidated cheaply, vendored ones kept by the browser for a week."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response

TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".html": "text/html; charset=utf-8",
    ".png": "image/png",
    ".woff2": "font/woff2",
    ".gz": "application/gzip",
    ".jsonl": "application/x-ndjson",
    ".txt": "text/plain; charset=utf-8",
    ".webp": "image/webp",
    ".ico": "image/x-icon",
    ".map": "application/json",
    ".md": "text/plain; charset=utf-8",
}
COMPRESSED = {".js", ".mjs", ".css", ".json", ".svg", ".html", ".jsonl", ".txt", ".map", ".md"}
WORTH_COMPRESSING = 1000


class StaticFiles:
    """ASGI app for the files under ``root``. Only known types are served, nothing outside of it, and no hidden file."""

    def __init__(self, root: Path, vendor: str = "vendor") -> None:
        self.root = root.resolve()
        self.vendor = vendor
        self._kept: dict[Path, tuple[tuple[int, int], bytes, bytes | None, str]] = {}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        response = self.answer(scope["method"], _path_below(scope), Headers(scope=scope))
        await response(scope, receive, send)

    def answer(self, method: str, path: str, headers: Headers) -> Response:
        if method not in ("GET", "HEAD"):
            return PlainTextResponse("Only GET works here.\n", 405)
        found = self._find(path)
        if found is None:
            return PlainTextResponse("There is no such file.\n", 404)
        plain, zipped, tag = self._load(found)
        long = found.is_relative_to(self.root / self.vendor)
        common = {
            "ETag": f'"{tag}"',
            "Vary": "Accept-Encoding",
            "Cache-Control": "public, max-age=604800" if long else "no-cache",
        }
        if f'"{tag}"' in headers.get("if-none-match", ""):
            return Response(status_code=304, headers=common)
        body = plain
        if zipped is not None and "gzip" in headers.get("accept-encoding", ""):
            body, common = zipped, {**common, "Content-Encoding": "gzip"}
        common["Content-Length"] = str(len(body))
        return Response(body if method == "GET" else b"", headers=common, media_type=TYPES[found.suffix])

    def _find(self, path: str) -> Path | None:
        parts = path.strip("/").split("/")
        if any(part.startswith(".") or not part or "\\" in part or "\0" in part for part in parts):
            return None
        found = self.root.joinpath(*parts)
        try:
            if found.suffix not in TYPES or not found.is_file() or not found.resolve().is_relative_to(self.root):
                return None
        except OSError:
            return None
        return found

    def _load(self, path: Path) -> tuple[bytes, bytes | None, str]:
        status = path.stat()
        stamp = (status.st_mtime_ns, status.st_size)
        kept = self._kept.get(path)
        if kept is None or kept[0] != stamp:
            plain = path.read_bytes()
            small = path.suffix not in COMPRESSED or len(plain) < WORTH_COMPRESSING
            kept = (stamp, plain, None if small else gzip.compress(plain, 6), hashlib.sha256(plain).hexdigest()[:20])
            self._kept[path] = kept
        return kept[1], kept[2], kept[3]


def _path_below(scope: Any) -> str:
    """The request's path below the mount point."""
    path, root = scope["path"], scope.get("root_path", "")
    return path[len(root) :] if root and path.startswith(root) else path
