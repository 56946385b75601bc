"""OpenAI's completion endpoints on the very engine that is on the screen, so that real clients can drive the show.

``model`` is the loaded model's name, or ``<model>@<room>`` to send to another room than main.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from engine import protocol
from engine.errors import BatchscopeError, CommandRefused
from engine.limits import Limits, TokenBucket
from viz.access import Access, visitor_tag
from viz.generation import Generation
from viz.hub import MAIN, Hub
from viz.openai_format import Style, completion_body, read_body, stream_chunks

#: Codes of ours → HTTP status; everything else that is refused is the client's mistake.
STATUS = {
    "engine_down": 503,
    "model_loading": 503,
    "room_failed": 503,
    "queue_full": 429,
    "too_many_requests": 429,
    "too_fast": 429,
    "no_such_room": 404,
    "main_is_a_show": 403,
    "unknown_model": 404,
    "too_large": 413,
    "bad_key": 401,
}
_numbers = itertools.count(1)


class OpenAIRoutes:
    """``/v1/models``, ``/v1/completions`` and ``/v1/chat/completions``."""

    def __init__(self, hub: Hub, access: Access, limits: Limits, api_key: str | None = None) -> None:
        self.hub, self.access, self.limits, self.api_key = hub, access, limits, api_key
        self._buckets: dict[str, TokenBucket] = {}

    def all(self) -> list[Route]:
        return [
            Route("/v1/models", self.models),
            Route("/v1/models/{name:path}", self.model),
            Route("/v1/completions", self.completions, methods=["POST"]),
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
        ]

    # --- models ---------------------------------------------------------------------------------------------------------

    async def models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [self._card(self._model_name())]})

    async def model(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name.rsplit("@", 1)[0] != self._model_name():
            return _error(CommandRefused("unknown_model", f"The model here is {self._model_name()}."))
        return JSONResponse(self._card(name))

    def _model_name(self) -> str:
        return str(self.hub.feeds[MAIN].state["engine"].get("model") or "loading")

    def _card(self, name: str) -> dict[str, Any]:
        """Beside OpenAI's fields those that load generators look for: where the tokenizer is, and how long a request may be."""
        state = self.hub.feeds[MAIN].state
        known = (state["engine"].get("spec") or {}).get("max_position")
        held = state["layout"]["num_blocks"] * state["layout"]["block_size"] if state.get("layout") else None
        longest = min((length for length in (known, held) if length is not None), default=None)
        card = {"id": name, "object": "model", "created": 0, "owned_by": "batchscope", "root": name.rsplit("@", 1)[0], "parent": None}
        return card if longest is None else {**card, "max_model_len": longest}

    # --- completions ------------------------------------------------------------------------------------------------------

    async def completions(self, request: Request) -> Response:
        return await self._answer(request, Style.TEXT)

    async def chat(self, request: Request) -> Response:
        return await self._answer(request, Style.CHAT)

    async def _answer(self, request: Request, style: Style) -> Response:
        try:
            who, role = self._who(request)
            wanted = read_body(await self._body(request), style)
            room = wanted.room or MAIN
            feed = await self.hub.feed(room)
            generation = Generation(self.hub, feed)
            try:
                await generation.submit(wanted.submissions, role=role, visitor=who)
            except BaseException:
                generation.close()
                raise
        except BatchscopeError as problem:
            return _error(problem)
        number = f"{'chatcmpl' if style is Style.CHAT else 'cmpl'}-{next(_numbers)}-{generation.ids[0]}"
        head = {"id": number, "created": int(time.time()), "model": wanted.model or self._model_name()}
        if wanted.stream:
            return StreamingResponse(
                self._stream(generation, style, head, wanted),
                media_type="text/event-stream",
                headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
            )
        return await self._whole(request, generation, style, head, wanted)

    async def _whole(self, request: Request, generation: Generation, style: Style, head: dict[str, Any], wanted: Any) -> Response:
        """Wait for all answers; a client that hangs up cancels them."""
        finishing = asyncio.create_task(generation.wait())
        try:
            while not finishing.done():
                await asyncio.wait({finishing}, timeout=0.5)
                if not finishing.done() and await request.is_disconnected():
                    await generation.cancel()
                    return Response(status_code=499)
            finishing.result()
            return JSONResponse(completion_body(generation, style, head, wanted))
        except BatchscopeError as problem:
            return _error(problem)
        finally:
            finishing.cancel()
            generation.close()

    async def _stream(self, generation: Generation, style: Style, head: dict[str, Any], wanted: Any) -> AsyncIterator[str]:
        try:
            async for chunk in stream_chunks(generation, style, head, wanted):
                yield f"data: {protocol.encode(chunk)}\n\n"
            yield "data: [DONE]\n\n"
        except BatchscopeError as problem:
            yield f"data: {protocol.encode(_error_body(problem))}\n\n"
        finally:
            # Also when the client hangs up in the middle: what is left of its requests ends here.
            with contextlib.suppress(BatchscopeError):
                await asyncio.shield(generation.cancel())
            generation.close()

    # --- who and how much -----------------------------------------------------------------------------------------------

    def _who(self, request: Request) -> tuple[str, str]:
        """Visitor tag and role: a tag for each address (or key), so that the caps on one visitor hold here too."""
        header = request.headers.get("authorization", "")
        key = header[7:] if header.lower().startswith("bearer ") else ""
        role = self.access.role(request.scope, key or None)
        if request.headers.get("origin") and not self.access.origin_allowed(request.scope):
            raise CommandRefused("main_is_a_show", "Web pages of other origins may not use this endpoint.")
        if self.api_key is not None and role != protocol.HOST and not _same(key, self.api_key):
            raise CommandRefused("bad_key", "This server asks for an API key; send it as Authorization: Bearer KEY.")
        address = request.client.host if request.client else "unknown"
        if role != protocol.HOST:  # the host may load their own engine as they like
            self._take_turn(address)
        return visitor_tag(f"api {address}"), role

    def _take_turn(self, address: str) -> None:
        now = time.monotonic()
        if len(self._buckets) > 10_000:
            self._buckets.clear()
        bucket = self._buckets.setdefault(address, TokenBucket(self.limits.messages_per_second, self.limits.message_burst, now))
        if not bucket.take(now):
            raise CommandRefused(
                "too_fast", f"More than {self.limits.messages_per_second:g} requests a second from one address; slow down."
            )

    async def _body(self, request: Request) -> dict[str, Any]:
        size = 0
        parts = []
        async for part in request.stream():
            size += len(part)
            if size > self.limits.max_message_bytes:
                raise CommandRefused("too_large", f"A request may have at most {self.limits.max_message_bytes} bytes.")
            parts.append(part)
        try:
            value = protocol.decode(b"".join(parts))
        except (ValueError, RecursionError):
            raise CommandRefused("bad_json", "The body is not JSON.") from None
        if not isinstance(value, dict):
            raise CommandRefused("not_an_object", "The body must be a JSON object.")
        return value


def _same(given: str, expected: str) -> bool:
    import hmac

    return hmac.compare_digest(given.encode(), expected.encode())


def _error_body(problem: BatchscopeError) -> dict[str, Any]:
    status = STATUS.get(problem.code, 400)
    kind = {429: "rate_limit_error", 503: "server_error", 401: "authentication_error"}.get(status, "invalid_request_error")
    return {"error": {"message": problem.message, "type": kind, "code": problem.code, "param": None}}


def _error(problem: BatchscopeError) -> Response:
    return JSONResponse(_error_body(problem), STATUS.get(problem.code, 400))
