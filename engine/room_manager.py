"""All rooms of a process, and the one thread on which their steps take turns.

The device thread is the only one that touches rooms and engines. Everybody else posts a job; jobs run between steps, in
order. What comes out (events, answers) goes through one delivery function in exactly the order in which it happened, so a
subscriber's snapshot and the events after it can never overtake each other.
"""

from __future__ import annotations

import logging
import re
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from engine.cache.sizing import plan_layout
from engine.config import EngineConfig
from engine.errors import BatchscopeError, CommandRefused
from engine.journal import Replay, check_journal
from engine.limits import Limits
from engine.provider import SIMULATED, Provider
from engine.rooms import Room

log = logging.getLogger("batchscope.rooms")

MAIN = "main"
#: Without letters and digits that are taken for one another when somebody reads a code off a projector.
CODE_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"
CODE_LENGTH = 5
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,23}")
_EVICT_EVERY = 5.0

Deliver = Callable[[Room, str], None]


class RoomManager:
    """Rooms by name and the device thread.

    ``deliver(room, text)`` gets every message of every room, on the device thread, and must not block. ``closed(room)``
    is told when a room is gone.
    """

    def __init__(
        self,
        provider: Provider,
        limits: Limits,
        deliver: Deliver,
        *,
        closed: Callable[[Room], None] = lambda room: None,
        main_config: EngineConfig | None = None,
        main_device: str = "model",
    ) -> None:
        self.provider, self.limits, self.deliver, self.closed = provider, limits, deliver, closed
        self.main_config = main_config or EngineConfig()
        self.rooms: dict[str, Room] = {}
        self._jobs: deque[Callable[[], None]] = deque()
        self._wake = threading.Event()
        self._stopping = False
        self._next_eviction = 0.0
        self.main = Room(
            MAIN, publish=deliver, limits=limits, title="main", public=True, device=main_device, model=provider.model_name
        )
        self.rooms[MAIN] = self.main
        self.thread = threading.Thread(target=self._run, name="device", daemon=True)

    # --- from any thread ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self.thread.start()

    def post(self, job: Callable[[], None]) -> None:
        """Run ``job`` on the device thread between two steps. It must not raise."""
        self._jobs.append(job)
        self._wake.set()

    def call(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Future:
        """Run ``function`` on the device thread; the future holds its result or error."""
        future: Future = Future()

        def job() -> None:
            try:
                result = function(*arguments, **named)
            except BaseException as problem:  # it belongs to whoever waits for the future
                future.set_exception(problem)
            else:
                future.set_result(result)

        self.post(job)
        return future

    def stop(self, timeout: float = 10.0) -> None:
        """Finish the running step, close every room and end the thread."""
        self._stopping = True
        self._wake.set()
        if self.thread.is_alive():
            self.thread.join(timeout)

    # --- the device thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping:
            self._wake.clear()
            self._run_jobs()
            now = time.monotonic()
            if now >= self._next_eviction:
                self._next_eviction = now + _EVICT_EVERY
                self._evict_idle(now)
            wait = self._turns(now)
            if wait > 0:
                self._wake.wait(min(wait, _EVICT_EVERY))
        for room in list(self.rooms.values()):
            room.close()

    def _run_jobs(self) -> None:
        while self._jobs:
            job = self._jobs.popleft()
            try:
                job()
            except Exception:  # a job that breaks its promise must not end the thread
                log.exception("a job on the device thread failed")

    def _turns(self, now: float) -> float:
        """One step for every room that is due, in turn; jobs are run between steps. Returns how long nothing is due."""
        nearest = _EVICT_EVERY
        for room in list(self.rooms.values()):
            if self._stopping:
                return 0.0
            if self.rooms.get(room.name) is not room:
                continue  # closed by a job in this very round
            due = room.due_at(now)
            if due is None:
                continue
            if due > now:
                nearest = min(nearest, due - now)
                continue
            room.turn(now)
            nearest = 0.0
            self._run_jobs()
            now = time.monotonic()
        return nearest

    def _evict_idle(self, now: float) -> None:
        for room in list(self.rooms.values()):
            if room is self.main:
                continue
            if room.watchers or (room.visitor_of and not room.paused):
                room.last_used = now
            elif now - room.last_used > self.limits.room_idle_seconds:
                log.info("room %s closed after %.0f s without use", room.name, self.limits.room_idle_seconds)
                self.close_room(room.name)

    # --- jobs: called on the device thread ---------------------------------------------------------------------------------

    def room(self, name: str) -> Room:
        """Raises :class:`CommandRefused` when there is none."""
        room = self.rooms.get(name)
        if room is None:
            raise CommandRefused("no_such_room", f"There is no room {name[:64]!r}; it may have been closed after standing idle.")
        room.last_used = time.monotonic()
        return room

    def open_main(self) -> None:
        """Build main's engine; its status tells when that fails."""
        self._open(self.main, self.main_config)

    def create_room(
        self,
        *,
        owner: str | None,
        host: bool,
        name: str | None = None,
        title: str = "",
        public: bool = False,
        config: dict[str, Any] | None = None,
        device: str | None = None,
        model: str | None = None,
        paused: bool = False,
    ) -> Room:
        """A new room with its own cache. Raises :class:`CommandRefused` or :class:`ConfigRefused`."""
        self._check_caps(owner, host)
        if name is not None and (not _NAME.fullmatch(name) or name in self.rooms):
            reason = "is taken" if name in self.rooms else "must be 1 to 24 small letters, digits and dashes"
            raise CommandRefused("bad_room_name", f"The room name {name[:40]!r} {reason}.")
        if len(title) > 80:
            raise CommandRefused("bad_room_name", "A room's title has at most 80 characters.")
        values = dict(config or {})
        device = device or self.main.device
        if device == "model" and values.get("num_blocks") is None:
            # A further real room gets a cache as large as main's, not nine tenths of what memory is left.
            values["num_blocks"] = self._blocks_like_main(values)
            values.setdefault("block_size", self.main_config.block_size)
        chosen = EngineConfig.from_dict(values)
        room = Room(
            name or self._new_code(),
            publish=self.deliver,
            limits=self.limits,
            title=title,
            owner=owner,
            public=public,
            device=device,
            model=model or self.main.model,
        )
        room.last_used = time.monotonic()
        room.paused = paused
        self.check_memory(room, chosen)
        room.open(self._engine_maker(room), chosen)
        self.rooms[room.name] = room
        return room

    def check_memory(self, room: Room, config: EngineConfig) -> None:
        """Before a cache is made: raises :class:`CommandRefused` when ``room`` would take more than rooms are given.

        Main is not bound: it has what ``max_memory_percent`` of the device is, by its host's own choice.
        """
        if room is self.main:
            return
        spec = self.provider.spec(room.device, room.model)
        layout, sizing = plan_layout(spec, config, self.limits.max_room_memory)
        if max(layout.num_blocks, layout.num_swap_slots) > self.limits.max_room_blocks:
            raise CommandRefused(
                "too_many_blocks",
                f"A room's cache may have at most {self.limits.max_room_blocks:,} blocks, and as many on the host.",
            )
        if room.device.startswith(SIMULATED):
            return
        swap = layout.num_swap_slots * layout.block_bytes
        needed = sizing.kv_bytes + sizing.index_bytes + sizing.activation_bytes + sizing.logit_bytes + sizing.row_bytes + swap
        taken = sum(other.cache_bytes() for other in self.rooms.values() if other not in (room, self.main))
        if taken + needed > self.limits.max_room_memory:
            gib = 2**30
            raise CommandRefused(
                "no_memory",
                f"The rooms beside main may take {self.limits.max_room_memory / gib:.1f} GiB together; this one would need "
                f"{needed / gib:.1f} GiB and {taken / gib:.1f} GiB are taken. Ask for fewer blocks, or close a room.",
            )

    def _check_caps(self, owner: str | None, host: bool) -> None:
        if self.main.engine is None and self.provider.failed is None and self.main.device == "model":
            raise CommandRefused("model_loading", "Rooms can be opened as soon as the model has been loaded.")
        if len(self.rooms) >= self.limits.max_rooms:
            raise CommandRefused(
                "too_many_rooms",
                f"There are already {self.limits.max_rooms} rooms; close one, or wait until an idle one is closed.",
            )
        mine = sum(1 for room in self.rooms.values() if room.owner == owner and room is not self.main)
        if not host and mine >= self.limits.max_rooms_per_visitor:
            raise CommandRefused(
                "too_many_rooms", f"You have {mine} rooms already, which is as many as a visitor may have; close one first."
            )

    def _blocks_like_main(self, values: dict[str, Any]) -> int | None:
        if self.main.engine is None:
            return None
        layout = self.main.engine.cache.layout
        tokens = layout.num_blocks * layout.block_size
        size = values.get("block_size") or self.main_config.block_size
        return max(1, tokens // size) if isinstance(size, int) else None

    def _new_code(self) -> str:
        while True:
            code = "".join(secrets.choice(CODE_ALPHABET) for _ in range(CODE_LENGTH))
            if code not in self.rooms:
                return code

    def _engine_maker(self, room: Room) -> Callable[[EngineConfig], Any]:
        def make(config: EngineConfig) -> Any:
            from engine.engine import Engine

            executor, tokenizer = self.provider.executor(room.device, room.model)
            return Engine(executor, config, tokenizer=tokenizer, room=room.name)

        return make

    def _open(self, room: Room, config: EngineConfig) -> None:
        try:
            room.open(self._engine_maker(room), config)
        except BatchscopeError as problem:
            room.announce(status="failed", message=problem.message)
        except Exception as problem:  # reported on every screen instead of ending the process
            log.exception("room %s could not be opened", room.name)
            room.announce(
                status="failed", message=f"The engine could not be built ({type(problem).__name__}: {str(problem)[:200]})."
            )

    def close_room(self, name: str) -> None:
        """Close a room and give its memory back. Raises :class:`CommandRefused` for main, or when there is none."""
        if name == MAIN:
            raise CommandRefused("main_stays", "The main room cannot be closed; reset it instead.")
        room = self.room(name)
        del self.rooms[name]
        room.close()
        self.closed(room)

    def fork(
        self,
        source: Room | None,
        *,
        owner: str | None,
        host: bool,
        step: int | None,
        changes: dict[str, Any],
        journal: dict[str, Any] | None,
        title: str = "",
    ) -> Room:
        """A new room that runs a journal again up to ``step`` steps, then takes on ``changes`` and pauses.

        Raises :class:`CommandRefused` or :class:`ConfigRefused`; the changes are checked before anything runs.
        """
        record = check_journal(journal, self.limits.max_journal_entries) if journal is not None else source.journal()
        if step is not None and step < 0:
            raise CommandRefused("bad_field", "fork: step must not be negative.")
        EngineConfig.from_dict(record.get("config", {})).replaced(changes)
        room = self.create_room(
            owner=owner,
            host=host,
            title=title,
            config=record.get("config"),
            device=record.get("device"),
            model=record.get("model"),
        )
        try:
            config = room.engine.config
            for turned in [*(entry["changes"] for entry in record["entries"] if entry["op"] == "configure"), changes]:
                config = config.replaced(turned)
                self.check_memory(room, config)
        except BatchscopeError:
            self.close_room(room.name)
            raise

        def arrived(copy: Room) -> None:
            copy.paused = True
            copy.announce(status="paused", message="")
            if changes:
                copy.configure(changes)

        until = source.engine.step_index if step is None and source is not None else step
        room.start_replay(Replay(record["entries"], until), arrived)
        return room
