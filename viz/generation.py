"""Requests sent on behalf of an HTTP client: submitted through the hub, followed in the room's stream, cancelled on hang-up."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from engine import protocol
from engine.errors import BatchscopeError, CommandRefused
from engine.state import ENDED_STATES
from viz.feed import Feed
from viz.hub import Hub


@dataclass(slots=True)
class Answer:
    """One request's answer so far. ``index`` is the choice's number; ``queued`` counts its pieces that nobody has taken yet."""

    index: int
    prompt_tokens: int = 0
    text: str = ""
    outputs: int = 0
    finish: str | None = None
    failed: str | None = None
    tokens: list[dict[str, Any]] = field(default_factory=list)
    request: str = ""
    queued: int = 0


class Generation:
    """Requests followed together. Call :meth:`submit` once, then :meth:`pieces` or :meth:`wait`; always :meth:`close`."""

    def __init__(self, hub: Hub, feed: Feed) -> None:
        self.hub, self.feed = hub, feed
        self.answers: dict[str, Answer] = {}
        self.ids: list[str] = []
        self._early: list[dict[str, Any]] = []  # messages that came before the answer to `submit`
        self._pieces: asyncio.Queue[tuple[Answer, str, dict[str, Any] | None]] = asyncio.Queue()
        self._lost: str | None = None
        self._role = self._visitor = ""
        feed.listeners.add(self._listen)

    async def submit(self, submissions: list[dict[str, Any]], *, role: str, visitor: str) -> None:
        """Queue the requests, all or none. Raises :class:`CommandRefused` with the first refusal."""
        self._role, self._visitor = role, visitor
        result = await self.hub.command("submit", role=role, visitor=visitor, room=self.feed.room, requests=submissions)
        self.ids = result["ids"]
        for number, name in enumerate(self.ids):
            self.answers[name] = Answer(number, request=name)
        early, self._early = self._early, []
        for message in early:
            self._listen(message)
        if result["refused"]:
            await self.cancel()
            refusal = result["refused"][0]
            raise CommandRefused(refusal["code"], refusal["message"])

    def _listen(self, message: dict[str, Any]) -> None:
        if not self.answers:
            self._early.append(message)
            return
        kind = message["type"]
        if kind == "restored":
            self._renamed(message)
        elif self.feed.restoring and kind != "room_closed":
            return
        elif kind == "room_closed":
            self._give_up("The room was closed before the answer was complete.")
        elif kind == "snapshot":
            self._after_gap(message["state"])
        else:
            self._take(message)

    def _take(self, event: dict[str, Any]) -> None:
        for record in event.get("requests", ()):
            answer = self.answers.get(record["id"])
            if answer is not None and not answer.prompt_tokens:
                answer.prompt_tokens = len(record["prompt_tokens"])
        for token in event.get("tokens", ()):
            answer = self.answers.get(token["id"])
            if answer is not None:
                answer.outputs += 1
                answer.text += token["text"]
                answer.tokens.append(token)
                self._put(answer, token["text"], token)
        for transition in event.get("transitions", ()):
            answer = self.answers.get(transition["id"])
            if answer is not None and transition["to"] in ENDED_STATES:
                self._end(answer, transition["to"], transition.get("reason"))

    def _put(self, answer: Answer, text: str, token: dict[str, Any] | None) -> None:
        answer.queued += 1
        self._pieces.put_nowait((answer, text, token))

    def _end(self, answer: Answer, state: str, reason: str | None) -> None:
        if answer.finish is not None:
            return
        answer.finish = reason if state == "finished" and reason in ("stop", "length") else "cancelled"
        if state == "failed":
            answer.failed = reason or "The request failed."
        self._put(answer, "", None)

    def _renamed(self, message: dict[str, Any]) -> None:
        """The engine died and was started again: our requests go on under other names, or were lost.

        A new engine counts from r1 again, so until this message comes a name may mean another's request; that is why
        :meth:`_listen` is deaf while the feed is restoring.
        """
        lost = {entry["id"]: entry["message"] for entry in message["lost"]}
        answers, self.answers = self.answers, {}
        for old, answer in answers.items():
            if answer.finish is not None:
                self.answers[f"ended {old}"] = answer
            elif old in message["renamed"]:
                answer.request = message["renamed"][old]
                self.answers[answer.request] = answer
                self._went_on(answer)
            else:
                self.answers[f"lost {old}"] = answer
                self._end(answer, "failed", lost.get(old, "The engine was restarted and this request was lost."))

    def _went_on(self, answer: Answer) -> None:
        """What the continued request has said before we knew its new name."""
        request = self.feed.state["requests"].get(answer.request)
        if request is None:
            return
        if request["outputs"]:
            answer.text += request["text"]
            answer.outputs += request["outputs"]
            self._put(answer, request["text"], None)
        if request["state"] in ENDED_STATES:
            self._end(answer, request["state"], request["reason"])

    def _after_gap(self, state: dict[str, Any]) -> None:
        """Events were lost: catch up from the state with what was said meanwhile, and with what has ended."""
        for name, answer in self.answers.items():
            request = state["requests"].get(name)
            if request is None:
                self._end(
                    answer, "failed", "The connection to the engine was lost for too long; the end of this answer was missed."
                )
                continue
            if request["outputs"] > answer.outputs:
                self._put(answer, request["text"][len(answer.text) :], None)
                answer.text, answer.outputs = request["text"], request["outputs"]
            if request["state"] in ENDED_STATES:
                self._end(answer, request["state"], request["reason"])

    def _give_up(self, sentence: str) -> None:
        self._lost = sentence
        for answer in self.answers.values():
            self._end(answer, "failed", sentence)

    # --- for the client ---------------------------------------------------------------------------------------------------

    async def pieces(self) -> AsyncIterator[tuple[Answer, str, dict[str, Any] | None]]:
        """(answer, new text, its token event or None) as they come; each answer's last one is empty. Ends when every answer has."""
        while True:
            if self._pieces.empty() and all(answer.finish is not None for answer in self.answers.values()):
                return
            answer, text, token = await self._pieces.get()
            answer.queued -= 1
            yield answer, text, token

    async def wait(self) -> None:
        """Until every answer is complete. Raises :class:`CommandRefused` when one failed."""
        async for answer, _, _ in self.pieces():
            if answer.failed is not None:
                raise CommandRefused("request_failed", answer.failed)

    async def cancel(self) -> None:
        for name, answer in list(self.answers.items()):
            if answer.finish is None:
                with contextlib.suppress(BatchscopeError):  # it has just ended, or the engine is gone
                    await self.hub.command(
                        "cancel", role=protocol.VIEWER, visitor=self._visitor, room=self.feed.room, request=name
                    )

    def close(self) -> None:
        self.feed.listeners.discard(self._listen)
        self.hub.unwatch(self.feed.room)

    def in_order(self) -> list[Answer]:
        return sorted(self.answers.values(), key=lambda answer: answer.index)
