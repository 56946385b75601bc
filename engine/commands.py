"""What each command of the protocol does. Roles are enforced here, on the engine's side of the websocket.

Handlers run on the event loop, check what can be checked there, and post the rest to the device thread. The answer is
delivered from there, in order with the events that the command caused.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from typing import Any

from engine import protocol
from engine.config import describe_knobs
from engine.connection import Connection, Identity
from engine.errors import BatchscopeError, CommandRefused, RequestRefused
from engine.limits import Limits
from engine.prompts import Submission, read_requests
from engine.room_manager import MAIN, RoomManager
from engine.rooms import Room

log = logging.getLogger("batchscope.server")

#: Prompts longer than this are tokenised in a thread, so that a long one does not hold up the event loop.
SHORT_PROMPT = 4000

#: What a job hands back: the result for the acknowledgement, then messages to send after it, then the room to subscribe to.
Outcome = tuple[Any, list[str], str | None]


class Commands:
    """Executes checked commands. ``reply(connection, number, outcome or error)`` is called on the device thread.

    ``main_open``: whether viewers may submit to the main room; in public mode it is a show.
    """

    def __init__(
        self, manager: RoomManager, limits: Limits, reply: Callable[..., None], *, token: str | None, main_open: bool = True
    ) -> None:
        self.manager, self.limits, self.reply = manager, limits, reply
        self.token, self.main_open = token, main_open
        self.instance = secrets.token_hex(8)  # tells a client whether this is still the process it knew

    async def execute(self, connection: Connection, command: protocol.Command) -> None:
        """Check and start one command. Raises :class:`BatchscopeError` for what is refused at once."""
        if command.on_behalf is not None and not connection.trusted:
            raise CommandRefused("not_trusted", "Only the page process, with its token, may speak on behalf of somebody.")
        if command.name == "hello":
            self._hello(connection, command)
            return
        who = connection.speaks_for(command)
        job = await getattr(self, f"_{command.name}")(command, who)

        def run() -> None:
            try:
                outcome: Outcome | BatchscopeError = job()
            except BatchscopeError as problem:
                outcome = problem
            except Exception as problem:  # a bug must answer the client and harm nobody else
                log.error("command %s failed", command.name, exc_info=problem)
                outcome = CommandRefused(
                    "internal_error",
                    f"{command.name} failed inside the engine ({type(problem).__name__}); the log has the details.",
                )
            self.reply(connection, command.id, outcome)

        self.manager.post(run)

    def _hello(self, connection: Connection, command: protocol.Command) -> None:
        token = command.fields.get("token")
        if token is not None and self.token is not None and not connection.authenticate(token, self.token):
            raise CommandRefused("bad_token", "This token is not the right one; the connection stays a viewer's.")
        who = connection.speaks_for(command)
        manager = self.manager

        def run() -> None:
            self.reply(
                connection,
                command.id,
                (
                    {
                        "role": who.role,
                        "visitor": who.visitor,
                        "version": protocol.VERSION,
                        "instance": self.instance,
                        "model": manager.provider.model_name,
                        "rooms": self._visible(who),
                    },
                    [],
                    None,
                ),
            )

        manager.post(run)

    def _visible(self, who: Identity) -> list[dict[str, Any]]:
        """A viewer sees main, public rooms and their own; other rooms are entered by their code."""
        return [room.describe(who.visitor, who.host) for room in self.manager.rooms.values() if room.public or who.may_host(room)]

    def _host_room(self, command: protocol.Command, who: Identity) -> Room:
        """The command's room, for somebody who may do host-only things there."""
        room = self.manager.room(command.room)
        if not who.may_host(room):
            raise CommandRefused(
                "host_only", f"Only the host may use {command.name} in this room; open a room of your own to try it."
            )
        return room

    # --- watching -------------------------------------------------------------------------------------------------------

    async def _subscribe(self, command: protocol.Command, who: Identity) -> Callable[[], Outcome]:
        def job() -> Outcome:
            room = self.manager.room(command.room)
            room.flush()
            missing = None
            if "from_seq" in command.fields:
                missing = room.history.since(command.fields["from_seq"], command.fields.get("life", ""))
            messages = missing if missing is not None else [protocol.encode(room.snapshot())]
            return {"seq": room.history.last, "life": room.history.life, "resumed": missing is not None}, messages, room.name

        return job

    async def _unsubscribe(self, command: protocol.Command, who: Identity) -> Callable[[], Outcome]:
        return lambda: ({}, [], None)

    async def _snapshot(self, command: protocol.Command, who: Identity) -> Callable[[], Outcome]:
        def job() -> Outcome:
            room = self.manager.room(command.room)
            room.flush()
            return room.snapshot(), [], None

        return job

    async def _rooms(self, command: protocol.Command, who: Identity) -> Callable[[], Outcome]:
        return lambda: ({"rooms": self._visible(who)}, [], None)

    async def _journal(self, command: protocol.Command, who: Identity) -> Callable[[], Outcome]:
        return lambda: (self.manager.room(command.room).journal(), [], None)

    async def _catalog(self, command: protocol.Command, who: Identity) -> Callable[[], Outcome]:
        from engine.executor.catalog import describe_catalog

        return lambda: ({"knobs": describe_knobs(), "presets": _presets(), **describe_catalog()}, [], None)

    # --- requests -------------------------------------------------------------------------------------------------------

    async def _submit(self, command: protocol.Command, who: Identity) -> Callable[[], Outcome]:
        fields = {name: value for name, value in command.fields.items() if name != "room"}
        room = self.manager.rooms.get(command.room)
        if room is None:
            raise CommandRefused(
                "no_such_room", f"There is no room {command.room!r}; it may have been closed after standing idle."
            )
        if room.name == MAIN and not self.main_open and not who.host:
            raise CommandRefused(
                "main_is_a_show", "The main room is a shared show here; open a room of your own to send prompts."
            )
        engine = room.need_engine()
        # A step may be running: the request is here now, although it can only be queued when the step has ended.
        arrival = None if engine.executor.info.simulated else engine.now()
        size = len(
            str(fields.get("prompt") or fields.get("messages") or fields.get("requests") or fields.get("prompt_tokens") or "")
        )
        arguments = (fields, engine.tokenizer, self.limits)
        if size > SHORT_PROMPT:
            read = await asyncio.to_thread(read_requests, *arguments, host=who.host)
        else:
            read = read_requests(*arguments, host=who.host)
        return lambda: self._submit_all(self.manager.room(command.room), read, who, arrival, batch="requests" in fields)

    def _submit_all(
        self, room: Room, read: list[Submission | BatchscopeError], who: Identity, arrival: float | None, batch: bool
    ) -> Outcome:
        ids: list[str] = []
        refused: list[dict[str, Any]] = []
        for index, entry in enumerate(read):
            try:
                if isinstance(entry, BatchscopeError):
                    raise entry
                self._check_caps(room, entry, who)
                # The index keeps prompts sent together with one seed from sharing their noise.
                details = {"prompt_text": entry.text, "visitor": who.visitor, "seed_index": index, "arrival": arrival}
                ids.extend(room.submit(entry.tokens, entry.params, **details))
            except BatchscopeError as problem:
                if not batch:
                    raise
                refused.append({"index": index, "code": problem.code, "message": problem.message})
        return ({"ids": ids, "refused": refused} if batch else {"ids": ids}), [], None

    def _check_caps(self, room: Room, entry: Submission, who: Identity) -> None:
        live, count = len(room.visitor_of), entry.params.n
        if live + count > self.limits.max_queue_length:
            raise RequestRefused(
                "queue_full",
                f"This room has {live} requests already, and at most {self.limits.max_queue_length} may wait; try again later.",
            )
        if who.host:
            return
        mine = len(room.live_requests_of(who.visitor))
        if mine + count > self.limits.max_requests_per_visitor:
            raise RequestRefused(
                "too_many_requests",
                f"You have {mine} unfinished requests in this room, and at most "
                f"{self.limits.max_requests_per_visitor} are allowed; wait for one to end, or cancel it.",
            )

    async def _cancel(self, command: protocol.Command, who: Identity) -> Callable[[], Outcome]:
        def job() -> Outcome:
            room, request = self.manager.room(command.room), command.fields["request"]
            if request not in room.visitor_of:
                raise CommandRefused("not_running", f"There is no unfinished request {request[:40]!r} in this room.")
            if not who.may_host(room) and room.visitor_of[request] != who.visitor:
                raise CommandRefused("not_yours", "You may only cancel requests of your own.")
            return {"cancelled": [request] if room.cancel(request) else []}, [], None

        return job

    async def _cancel_all(self, command: protocol.Command, who: Identity) -> Callable[[], Outcome]:
        def job() -> Outcome:
            room = self.manager.room(command.room)
            mine = list(room.visitor_of) if who.may_host(room) else room.live_requests_of(who.visitor)
            return {"cancelled": [request for request in mine if room.cancel(request)]}, [], None

        return job

    # --- host only ------------------------------------------------------------------------------------------------------

    async def _configure(self, command: protocol.Command, who: Identity) -> Callable[[], Outcome]:
        def job() -> Outcome:
            room, changes = self._host_room(command, who), command.fields["changes"]
            self.manager.check_memory(room, room.need_engine().config.replaced(changes))
            return room.configure(changes), [], None

        return job

    async def _pause(self, command: protocol.Command, who: Identity) -> Callable[[], Outcome]:
        return lambda: (self._host_room(command, who).pause() or {}, [], None)

    async def _resume(self, command: protocol.Command, who: Identity) -> Callable[[], Outcome]:
        return lambda: (self._host_room(command, who).resume() or {}, [], None)

    async def _step(self, command: protocol.Command, who: Identity) -> Callable[[], Outcome]:
        count = command.fields.get("count", 1)
        if not 1 <= count <= self.limits.max_steps_at_once:
            raise CommandRefused("bad_field", f"step: count must lie between 1 and {self.limits.max_steps_at_once}, not {count}.")
        return lambda: (self._host_room(command, who).step(count) or {}, [], None)

    async def _pace(self, command: protocol.Command, who: Identity) -> Callable[[], Outcome]:
        rate = command.fields["steps_per_second"]
        if not (rate == 0 or 0.01 <= rate <= self.limits.max_pace):
            raise CommandRefused(
                "bad_field",
                f"steps_per_second must be 0 (unlimited) or lie between 0.01 and {self.limits.max_pace:g}, not {rate:g}.",
            )
        return lambda: (self._host_room(command, who).set_pace(rate) or {}, [], None)

    async def _reset(self, command: protocol.Command, who: Identity) -> Callable[[], Outcome]:
        return lambda: (self._host_room(command, who).reset() or {}, [], None)

    async def _workload(self, command: protocol.Command, who: Identity) -> Callable[[], Outcome]:
        return lambda: (self._host_room(command, who).start_workload(command.fields["workload"], who.visitor), [], None)

    async def _workload_stop(self, command: protocol.Command, who: Identity) -> Callable[[], Outcome]:
        return lambda: (self._host_room(command, who).stop_workload(), [], None)

    # --- rooms ----------------------------------------------------------------------------------------------------------

    async def _create_room(self, command: protocol.Command, who: Identity) -> Callable[[], Outcome]:
        def job() -> Outcome:
            room = self.manager.create_room(owner=who.visitor, host=who.host, **command.fields)
            return room.describe(who.visitor, who.host), [], None

        return job

    async def _close_room(self, command: protocol.Command, who: Identity) -> Callable[[], Outcome]:
        def job() -> Outcome:
            self.manager.close_room(self._host_room(command, who).name)
            return {}, [], None

        return job

    async def _fork(self, command: protocol.Command, who: Identity) -> Callable[[], Outcome]:
        fields = command.fields

        def job() -> Outcome:
            source = None if "journal" in fields else self.manager.room(command.room)
            room = self.manager.fork(
                source,
                owner=who.visitor,
                host=who.host,
                step=fields.get("step"),
                changes=fields.get("changes", {}),
                journal=fields.get("journal"),
                title=fields.get("title", ""),
            )
            return room.describe(who.visitor, who.host), [], None

        return job


def _presets() -> Any:
    try:
        from engine.presets import describe_presets
    except ImportError:
        return []
    return describe_presets()
