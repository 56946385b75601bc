"""The class: only the host leads, votes are counted once a visitor, scores are run again and kept."""

from __future__ import annotations

import json
import os
import sqlite3

import pytest

from engine.errors import CommandRefused
from lessons.loader import load_lesson
from lessons.score import ScoreRefused, check_knobs, scored_step
from viz.class_board import Board, check_nickname
from viz.classroom import Classroom

CAPSTONE = "16-capstone"


class Member:
    """What the class sees of a connection: who, in which role, and where answers go."""

    def __init__(self, visitor: str, role: str = "viewer") -> None:
        self.visitor, self.role, self.heard = visitor, role, []

    def answer(self, text: str) -> None:
        self.heard.append(json.loads(text))


@pytest.fixture
def classroom():
    return Classroom(Board(), {CAPSTONE: ["guess", "tune"], "03-a-batch-rebuilt-every-step": ["guess"]})


def run(coroutine):
    import asyncio
    return asyncio.run(coroutine)


def ask(classroom, member, **fields):
    return classroom.obey(member, classroom.parse(json.dumps({"id": 1, **fields})))


def test_only_the_host_leads_reveals_and_cleans(classroom):
    async def go():
        viewer = Member("a")
        for fields in ({"cmd": "class_lead", "lesson": CAPSTONE, "step": "guess"}, {"cmd": "class_reveal", "lesson": CAPSTONE, "step": "guess"},
                       {"cmd": "class_board_remove", "lesson": CAPSTONE}):
            with pytest.raises(CommandRefused, match="Only the host"):
                await ask(classroom, viewer, **fields)
    run(go())


def test_everybody_hears_where_the_class_is_and_a_latecomer_is_told(classroom):
    async def go():
        host, early, late = Member("h", "host"), Member("a"), Member("b")
        await ask(classroom, early, cmd="class_join")
        await ask(classroom, host, cmd="class_lead", lesson=CAPSTONE, step="tune")
        assert early.heard[-1]["state"]["step"] == "tune"
        assert (await ask(classroom, late, cmd="class_join"))["state"]["step"] == "tune"
        await ask(classroom, host, cmd="class_lead", leading=False)
        assert early.heard[-1]["state"]["leading"] is False and late.heard[-1]["state"]["leading"] is False
    run(go())


def test_a_visitor_has_one_vote_and_none_after_the_answer(classroom):
    async def go():
        a, b, host = Member("a"), Member("b"), Member("h", "host")
        place = {"lesson": CAPSTONE, "step": "guess"}
        await ask(classroom, a, cmd="class_vote", vote=0, **place)
        await ask(classroom, a, cmd="class_vote", vote=2, **place)
        assert (await ask(classroom, b, cmd="class_vote", vote=2, **place)) == {"counts": {"2": 2}, "total": 2, "revealed": False}
        await ask(classroom, host, cmd="class_reveal", **place)
        with pytest.raises(CommandRefused, match="closed"):
            await ask(classroom, b, cmd="class_vote", vote=1, **place)
        for vote in (True, "2", None, float("1e300")):
            with pytest.raises(CommandRefused):
                await ask(classroom, b, cmd="class_vote", vote=vote, **place)
        with pytest.raises(CommandRefused, match="no such step"):
            await ask(classroom, b, cmd="class_vote", vote=1, lesson=CAPSTONE, step="elsewhere")
    run(go())


def test_a_frame_that_is_not_for_the_class_is_left_alone(classroom):
    assert classroom.parse('{"cmd": "rooms"}') is None
    assert classroom.parse('{"cmd": "submit", "prompt": "\\"class_\\""}') is None
    assert classroom.parse(b"class_") is None and classroom.parse('"class_join"') is None
    for frame in ('{"cmd": "class_dismissed"}', '{"cmd": "class_join", "as": "host"}', '{"cmd": "class_join", "id": [1]}'):
        with pytest.raises(CommandRefused):
            classroom.parse(frame)


@pytest.mark.parametrize("name", ["<img src=x onerror=alert(1)>", "", "  ", "x" * 21, "a\u202eb", "a\x00b", "{{}}", 7, None, "a/b"])
def test_a_nickname_is_short_and_plain(name):
    with pytest.raises(CommandRefused):
        check_nickname(name)


def test_a_nickname_may_be_korean():
    assert check_nickname("  배치  장인 7 ") == "배치 장인 7"


def test_the_board_survives_a_restart_and_keeps_the_best(tmp_path):
    path = tmp_path / "data" / "board.sqlite3"
    board = Board(path)
    assert board.add(CAPSTONE, "mina", 100.0, {}) and not board.add(CAPSTONE, "mina", 90.0, {}) and board.add(CAPSTONE, "mina", 120.0, {})
    board.add(CAPSTONE, "joon", 110.0, {})
    board.close()
    again = Board(path)
    assert again.kept and again.top(CAPSTONE) == [{"nickname": "mina", "score": 120.0}, {"nickname": "joon", "score": 110.0}]
    again.remove(CAPSTONE, "mina")
    assert [entry["nickname"] for entry in again.top(CAPSTONE)] == ["joon"]
    again.close()
    columns = [row[1] for row in sqlite3.connect(path).execute("PRAGMA table_info(scores)")]
    assert columns == ["lesson", "nickname", "score", "knobs"]


@pytest.mark.skipif(os.geteuid() == 0 and not os.path.exists("/proc"), reason="needs a path that nobody can write")
def test_a_board_that_cannot_be_written_lives_in_memory():
    board = Board(__import__("pathlib").Path("/proc/nowhere/board.sqlite3"))
    assert not board.kept and board.add(CAPSTONE, "mina", 1.0, {})
    board.close()


def test_a_score_is_what_the_server_measures_itself(classroom):
    """The knobs go in, the server's own run comes out; nothing a browser claims is believed."""
    async def go():
        member = Member("a")
        await ask(classroom, member, cmd="class_join")
        solution = scored_step(load_lesson(CAPSTONE))["challenge"]["solution"]
        result = await ask(classroom, member, cmd="class_score", lesson=CAPSTONE, knobs=solution, nickname="mina")
        assert result["reached"] and result["best"] and result["score"] > 1000
        assert classroom.board.top(CAPSTONE) == [{"nickname": "mina", "score": result["score"]}]
        assert member.heard[-1]["type"] == "class_board"
        with pytest.raises(CommandRefused, match="does not offer"):
            await ask(classroom, member, cmd="class_score", lesson=CAPSTONE, knobs={"num_blocks": 10**6}, nickname="mina")
        with pytest.raises(CommandRefused, match="no field 'score'"):
            await ask(classroom, member, cmd="class_score", lesson=CAPSTONE, knobs=solution, nickname="mina", score=10**9)
    run(go())


def test_only_offered_values_are_run():
    challenge = scored_step(load_lesson(CAPSTONE))["challenge"]
    assert check_knobs(challenge, {"block_size": 16}) == {"block_size": 16}
    for knobs in ({"block_size": 17}, {"chunked_prefill": 1}, {"block_size": True}, {"seed": 1}, ["block_size"], {"block_size": None}):
        with pytest.raises(ScoreRefused):
            check_knobs(challenge, knobs)
    with pytest.raises(ScoreRefused, match="keeps no score"):
        scored_step(load_lesson("03-a-batch-rebuilt-every-step"))
