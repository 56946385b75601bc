"""The classroom: the host leads, everybody votes, scores go to a board. Messages ride on the page's own websocket.

A viewer sends ``{"id", "cmd": "class_…", …}`` and gets an ``ack`` like for any command; everybody who has joined gets
``class_state``, ``class_poll`` and ``class_board``. Leading is the host's alone. What the class does is kept in memory, except for
the board; a vote belongs to a visitor's tag and is forgotten with the process.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import weakref
from pathlib import Path
from typing import Any

from engine import protocol
from engine.errors import CommandRefused
from viz.class_board import Board, check_nickname

ROOT = Path(__file__).parents[1]
PREFIX = "class_"
POLL_EVERY = 0.3            # seconds between two distributions of one poll
MAX_POLLS, MAX_VOTERS = 200, 5000
MAX_SCORES_WAITING = 24
SCORE_TIMEOUT = 90.0
#: command → (its fields, host only)
COMMANDS = {
    "class_join": ((), False), "class_lead": (("lesson", "step", "leading"), True), "class_vote": (("lesson", "step", "vote"), False),
    "class_reveal": (("lesson", "step"), True), "class_score": (("lesson", "knobs", "nickname"), False), "class_board": (("lesson",), False),
    "class_board_remove": (("lesson", "nickname"), True),
}


class Poll:
    """Votes of one question: choices by number, or numbers as they were typed. One vote a visitor, the last one counts."""

    def __init__(self) -> None:
        self.votes: dict[str, float] = {}
        self.revealed = False

    def distribution(self) -> dict[str, Any]:
        counts: dict[str, int] = {}
        for vote in self.votes.values():
            key = f"{vote:g}"
            counts[key] = counts.get(key, 0) + 1
        return {"counts": counts, "total": len(self.votes), "revealed": self.revealed}


class Classroom:
    """One class for the whole page process. ``board`` keeps the scores; ``lessons`` maps a lesson's name to its step ids."""

    def __init__(self, board: Board, lessons: dict[str, list[str]]) -> None:
        self.board, self.lessons = board, lessons
        self.state: dict[str, Any] = {"leading": False, "lesson": None, "step": None, "version": 0}
        self.polls: dict[tuple[str, str], Poll] = {}
        self.members: weakref.WeakSet[Any] = weakref.WeakSet()
        self._due: set[tuple[str, str]] = set()
        self._scoring: set[str] = set()
        self._turn = asyncio.Semaphore(1)

    # --- commands -----------------------------------------------------------------------------------------------------------------

    @staticmethod
    def parse(frame: str | bytes) -> dict[str, Any] | None:
        """The frame's fields when it is a command for the class, else ``None``. Raises :class:`CommandRefused`."""
        if not isinstance(frame, str) or f'"{PREFIX}' not in frame:
            return None
        try:
            value = protocol.decode(frame)
        except (ValueError, RecursionError):
            return None
        if not isinstance(value, dict) or not isinstance(value.get("cmd"), str) or not value["cmd"].startswith(PREFIX):
            return None
        if value["cmd"] not in COMMANDS:
            raise CommandRefused("unknown_command", f"There is no command named {value['cmd'][:40]!r}; the class knows {', '.join(COMMANDS)}.")
        known = COMMANDS[value["cmd"]][0]
        for name in value:
            if name not in ("id", "cmd", *known):
                raise CommandRefused("unknown_field", f"{value['cmd']} has no field {name[:40]!r}; its fields are: {', '.join(known) or 'none'}.")
        number = value.get("id")
        if isinstance(number, bool) or not isinstance(number, (int, str, type(None))) or len(str(number)) > protocol.MAX_ID_LENGTH:
            raise CommandRefused("bad_id", "id must be a whole number or a short text.")
        return value

    async def obey(self, viewer: Any, value: dict[str, Any]) -> Any:
        """Do what ``viewer`` asks. Raises :class:`CommandRefused`."""
        name = value["cmd"]
        if COMMANDS[name][1] and viewer.role != protocol.HOST:
            raise CommandRefused("host_only", "Only the host leads the class.")
        return await getattr(self, f"_{name.removeprefix(PREFIX)}")(viewer, value)

    async def _join(self, viewer: Any, value: dict[str, Any]) -> dict[str, Any]:
        self.members.add(viewer)
        polls = [{"lesson": lesson, "step": step, **poll.distribution()} for (lesson, step), poll in self.polls.items() if lesson == self.state["lesson"]]
        return {"state": self.state, "polls": polls, "host": viewer.role == protocol.HOST}

    async def _lead(self, viewer: Any, value: dict[str, Any]) -> dict[str, Any]:
        leading = value.get("leading", True)
        if not isinstance(leading, bool):
            raise CommandRefused("bad_field", "leading must be true or false.")
        lesson, step = self._place(value) if leading else (self.state["lesson"], self.state["step"])
        self.state = {"leading": leading, "lesson": lesson, "step": step, "version": self.state["version"] + 1}
        self._tell({"type": "class_state", "state": self.state})
        return self.state

    async def _vote(self, viewer: Any, value: dict[str, Any]) -> dict[str, Any]:
        place, vote = self._place(value), value.get("vote")
        if isinstance(vote, bool) or not isinstance(vote, (int, float)) or not abs(vote) < 1e12:
            raise CommandRefused("bad_field", "vote must be the number of a choice, or a number.")
        poll = self.polls.get(place)
        if poll is None:
            if len(self.polls) >= MAX_POLLS:
                self.polls.pop(next(iter(self.polls)))
            poll = self.polls[place] = Poll()
        if poll.revealed:
            raise CommandRefused("poll_closed", "The answer is already on the screen; this vote is closed.")
        if viewer.visitor not in poll.votes and len(poll.votes) >= MAX_VOTERS:
            raise CommandRefused("poll_full", f"This poll has {MAX_VOTERS} votes, and takes no more.")
        poll.votes[viewer.visitor] = vote
        self._poll_changed(place)
        return poll.distribution()

    async def _reveal(self, viewer: Any, value: dict[str, Any]) -> dict[str, Any]:
        place = self._place(value)
        poll = self.polls.setdefault(place, Poll())
        poll.revealed = True
        self._tell_poll(place)
        return poll.distribution()

    async def _board(self, viewer: Any, value: dict[str, Any]) -> dict[str, Any]:
        lesson = self._lesson(value)
        return {"lesson": lesson, "board": self.board.top(lesson), "kept": self.board.kept}

    async def _board_remove(self, viewer: Any, value: dict[str, Any]) -> dict[str, Any]:
        lesson, nickname = self._lesson(value), value.get("nickname")
        self.board.remove(lesson, None if nickname is None else check_nickname(nickname))
        self._tell_board(lesson)
        return {}

    async def _score(self, viewer: Any, value: dict[str, Any]) -> dict[str, Any]:
        lesson = self._lesson(value)
        nickname = check_nickname(value["nickname"]) if value.get("nickname") is not None else None
        if viewer.visitor in self._scoring:
            raise CommandRefused("too_many_requests", "Your last run is still being scored; wait for it.")
        if len(self._scoring) >= MAX_SCORES_WAITING:
            raise CommandRefused("too_many_requests", "Many runs are being scored right now; try again in a moment.")
        self._scoring.add(viewer.visitor)
        try:
            async with self._turn:
                result = await run_again(lesson, value.get("knobs"))
        finally:
            self._scoring.discard(viewer.visitor)
        if nickname is not None:
            result["best"] = self.board.add(lesson, nickname, result["score"], value["knobs"])
            self._tell_board(lesson)
        return result

    # --- checks and telling -------------------------------------------------------------------------------------------------------

    def _lesson(self, value: dict[str, Any]) -> str:
        lesson = value.get("lesson")
        if not isinstance(lesson, str) or lesson not in self.lessons:
            raise CommandRefused("no_such_lesson", "There is no lesson of that name.")
        return lesson

    def _place(self, value: dict[str, Any]) -> tuple[str, str]:
        lesson, step = self._lesson(value), value.get("step")
        if step not in self.lessons[lesson]:
            raise CommandRefused("no_such_step", f"The lesson {lesson} has no such step.")
        return lesson, step

    def _poll_changed(self, place: tuple[str, str]) -> None:
        """Tell the distribution soon; three hundred votes in a second make a few messages, not ninety thousand."""
        if place not in self._due:
            self._due.add(place)
            asyncio.get_running_loop().call_later(POLL_EVERY, self._tell_poll, place)

    def _tell_poll(self, place: tuple[str, str]) -> None:
        self._due.discard(place)
        if place in self.polls:
            self._tell({"type": "class_poll", "lesson": place[0], "step": place[1], **self.polls[place].distribution()})

    def _tell_board(self, lesson: str) -> None:
        self._tell({"type": "class_board", "lesson": lesson, "board": self.board.top(lesson), "kept": self.board.kept})

    def _tell(self, message: dict[str, Any]) -> None:
        text = protocol.encode(message)
        for member in list(self.members):
            member.answer(text)


async def run_again(lesson: str, knobs: Any) -> dict[str, Any]:
    """Score a challenge in a process of its own, at low priority: a run takes a second, and no viewer should feel it.

    Raises :class:`CommandRefused` with the sentence of the scorer.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "lessons.score", cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL, preexec_fn=lambda: os.nice(10))
    try:
        async with asyncio.timeout(SCORE_TIMEOUT):
            output, _ = await process.communicate(json.dumps({"lesson": lesson, "knobs": knobs}).encode())
    except TimeoutError:
        process.kill()
        await process.wait()
        raise CommandRefused("score_failed", f"The run took longer than {SCORE_TIMEOUT:.0f} seconds and was given up.") from None
    try:
        result = json.loads(output)
    except ValueError:
        raise CommandRefused("score_failed", "The run could not be scored.") from None
    if "error" in result:
        raise CommandRefused("score_refused", str(result["error"])[:300])
    return result
