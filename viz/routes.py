"""Plain HTTP beside the page: health, metrics, the history of a room, and the code to join one."""

from __future__ import annotations

import asyncio
import io
import zlib
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from engine.errors import CommandRefused
from engine.history import unpacked
from viz.hub import Hub
from viz.metrics import Metrics

#: Pieces of histories that are compressed at once; each takes some milliseconds of a core.
MAX_PIECES_AT_ONCE = 2
GZIP = 16 + zlib.MAX_WBITS


class Routes:
    """The handlers; :meth:`all` lists them for the app."""

    def __init__(self, hub: Hub, metrics: Metrics) -> None:
        self.hub, self.metrics = hub, metrics
        self._histories = asyncio.Semaphore(MAX_PIECES_AT_ONCE)

    def all(self) -> list[Route]:
        return [
            Route("/healthz", self.healthz),
            Route("/readyz", self.readyz),
            Route("/health", self.readyz),  # where load generators ask before they begin
            Route("/metrics", self.prometheus),
            Route("/api/rooms/{room}/history", self.history),
            Route("/api/rooms/{room}/qr.svg", self.qr),
        ]

    async def healthz(self, request: Request) -> Response:
        """The state of both processes; 200 as long as the page process can say so."""
        return JSONResponse(self.hub.health(), headers={"Cache-Control": "no-store"})

    async def readyz(self, request: Request) -> Response:
        """200 when prompts are answered, 503 while the engine is loading or down."""
        health = self.hub.health()
        return JSONResponse(
            {"ready": health["ready"], "message": health["engine"]["message"]},
            200 if health["ready"] else 503,
            headers={"Cache-Control": "no-store"},
        )

    async def prometheus(self, request: Request) -> Response:
        return Response(self.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def history(self, request: Request) -> Response:
        """The retained past of a room as lines of JSON: the newest checkpoint at or before ``from``, then every event."""
        try:
            start = int(request.query_params.get("from", "0"))
            feed = await self.hub.feed(request.path_params["room"])
        except ValueError:
            return PlainTextResponse("from must be a whole number.\n", 400)
        except CommandRefused as problem:
            return PlainTextResponse(problem.message + "\n", 404)
        self.hub.unwatch(feed.room)
        return StreamingResponse(
            self._pieces(feed.history.held(start)),
            media_type="application/x-ndjson",
            headers={"Content-Encoding": "gzip", "Cache-Control": "no-store", "Vary": "Accept-Encoding"},
        )

    async def _pieces(self, held: list[bytes | list[str]]) -> AsyncIterator[bytes]:
        """A history in gzip, a segment at a time: the whole text of a long one would be many megabytes for every client that asks,
        and as long as a slow client takes."""
        stream = zlib.compressobj(4, zlib.DEFLATED, GZIP)
        for index, segment in enumerate(held):
            async with self._histories:
                piece = await asyncio.to_thread(_lines, stream, segment, min(index, 1))
            if piece:
                yield piece
        yield stream.flush()

    async def qr(self, request: Request) -> Response:
        """A QR code (SVG) of the address that opens a room."""
        import segno

        room = request.path_params["room"]
        if not room.replace("-", "").isalnum() or len(room) > 24:
            return PlainTextResponse("A room's code has letters, digits and dashes.\n", 404)
        image = io.BytesIO()
        segno.make(join_address(request, room), error="m").save(image, kind="svg", scale=8, border=2, xmldecl=False)
        return Response(image.getvalue(), media_type="image/svg+xml", headers={"Cache-Control": "no-store"})


def join_address(request: Request, room: str) -> str:
    """The page's address with the room in it, as the browser that asks sees it. No secret is ever part of it."""
    headers = request.headers
    scheme = headers.get("x-forwarded-proto", request.url.scheme).split(",")[0].strip()
    host = headers.get("x-forwarded-host", headers.get("host", "localhost")).split(",")[0].strip()
    root = request.scope.get("app_root_path", request.scope.get("root_path", "")).rstrip("/")
    return f"{scheme if scheme in ('http', 'https') else 'http'}://{host}{root}/?room={quote(room)}"


def _lines(stream: Any, held: bytes | list[str], skip: int) -> bytes:
    """The texts of a segment but the first ``skip``, each as a line, compressed as far as the stream has got."""
    return stream.compress("".join(f"{text}\n" for text in unpacked(held)[skip:]).encode())


async def not_found(scope: Scope, receive: Receive, send: Send) -> None:
    """For addresses below /api and /v1 that nothing answers; they must not fall through to the page."""
    await PlainTextResponse("There is nothing at this address.\n", 404)(scope, receive, send)
