"""Rooms share one device in turn, fail alone, and are bounded in number, memory and idle time."""

from __future__ import annotations

import asyncio
import time
from typing import ClassVar

import pytest

from engine.config import EngineConfig
from engine.errors import CommandRefused
from engine.executor.catalog import find_model
from engine.executor.simulated import SimulatedExecutor
from engine.limits import Limits
from engine.provider import Provider
from engine.room_manager import RoomManager
from engine.sampling_params import SamplingParams
from tests.server.helpers import SIMULATED, SMALL, raw, serving, until

SHORT = {"prompt": "x", "params": {"max_new_tokens": 5}}


class Fragile(SimulatedExecutor):
    """Fails at chosen launches. ``plan``: launches of this process at which it raises."""

    plan: ClassVar[set[int]] = set()
    launches = 0

    def launch(self, plan):
        type(self).launches += 1
        if type(self).launches in type(self).plan:
            raise RuntimeError("the device fell off the bus\nwith a second line")
        return super().launch(plan)


class FragileProvider(Provider):
    def executor(self, device, model):
        executor, tokenizer = super().executor(device, model)
        executor.__class__ = Fragile
        return executor, tokenizer


@pytest.fixture
def fragile():
    Fragile.plan, Fragile.launches = set(), 0
    yield Fragile
    Fragile.plan = set()


async def finished(server, count: int) -> None:
    await until(lambda: server.manager.main.engine.recorder.counters["finished"] >= count, f"{count} finished requests")


async def test_a_step_that_fails_is_reported_and_its_requests_go_on(fragile):
    """The text before and after the failure is what an undisturbed run says."""

    async def run(plan: set[int]) -> tuple[list[str], list[dict]]:
        Fragile.plan, Fragile.launches = plan, 0
        async with serving(provider=FragileProvider("llama-8b")) as (server, url), raw(url) as client:
            await client.ok("subscribe")
            await client.ok("pause")
            await client.ok(
                "submit", requests=[{"prompt": f"prompt {n}", "params": {"max_new_tokens": 9, "seed": n}} for n in range(3)]
            )
            await client.ok("resume")
            await finished(server, 3)
            await client.ok("rooms")
            state = await asyncio.wrap_future(server.manager.call(server.manager.main.engine.snapshot))
            texts = [(request["prompt"] + request["text"]).split("prompt ")[1] for request in state["state"]["requests"].values()]
            return sorted(texts), client.events

    undisturbed, _ = await run(set())
    disturbed, events = await run({4})
    # A simulated device draws tokens by position and seed; with the generated tokens in the prompt the positions are the same.
    assert [text[:1] for text in disturbed] == [text[:1] for text in undisturbed]
    assert [len(text.split()) > 1 for text in disturbed] == [True] * 3
    messages = [event["engine"]["message"] for event in events if event.get("engine", {}).get("message")]
    assert any("the device fell off the bus" in message and "3 requests were queued again" in message for message in messages)
    assert not any("second line" in message for message in messages)


async def test_a_room_that_fails_again_and_again_stops_with_a_sentence_and_reset_revives_it(fragile):
    async with serving(provider=FragileProvider("llama-8b")) as (server, url), raw(url) as client:
        Fragile.plan = set(range(1, 10))
        await client.ok("submit", prompt="doomed", params={"max_new_tokens": 3})
        await until(lambda: server.manager.main.failed, "the room to give up")
        await client.ok("rooms")  # the turn in which it gave up is over
        assert server.manager.main.engine.status["status"] == "failed"
        assert await client.refused("submit", prompt="more") == "room_failed"
        Fragile.plan = set()
        await client.ok("reset")
        await client.ok("submit", prompt="again", params={"max_new_tokens": 3})
        await finished(server, 1)


async def test_other_rooms_do_not_notice_a_failing_one(fragile):
    async with serving(provider=FragileProvider("llama-8b")) as (server, url), raw(url) as client:
        room = (await client.ok("create_room", config=SMALL))["room"]
        server.manager.rooms[room].engine.executor.__class__ = SimulatedExecutor
        Fragile.plan = set(range(1, 100))
        await client.ok("submit", prompt="doomed", params={"max_new_tokens": 3})
        await client.ok("submit", room=room, prompt="fine", params={"max_new_tokens": 30})
        await until(lambda: server.manager.rooms[room].engine.recorder.counters["finished"] == 1, "the other room")
        assert server.manager.main.failed and not server.manager.rooms[room].failed


def test_rooms_take_fair_turns():
    """While everybody has work, a round is one step for each room; a paused or paced room is passed over."""
    manager = make_manager(max_simulated_pace=1e9)
    manager.open_main()
    rooms = [manager.main, *(manager.create_room(owner="v", host=True, config=SMALL) for _ in range(4))]
    for room in rooms:
        room.submit([1, 2, 3], SamplingParams(max_new_tokens=900, ignore_eos=True))
    rooms[3].pause()
    rooms[4].set_pace(0.01)
    for _ in range(120):
        manager._turns(time.monotonic())
    assert [room.engine.step_index for room in rooms] == [120, 120, 120, 0, 1]


async def test_an_idle_server_does_not_spin():
    async with serving() as (server, url), raw(url) as client:
        await client.ok("submit", prompt="x", params={"max_new_tokens": 2})
        await finished(server, 1)
        # The CPU time of the device thread and of the event loop's, which is this one; no other thread of the tests counts.
        device = time.pthread_getcpuclockid(server.manager.thread.ident)
        before = time.clock_gettime(device), time.thread_time()
        await asyncio.sleep(0.5)
        assert time.clock_gettime(device) - before[0] < 0.1
        assert time.thread_time() - before[1] < 0.1


async def test_a_pace_is_kept_on_average():
    async with serving(pace=50.0) as (server, url), raw(url) as client:
        await client.ok("submit", prompt="x", params={"max_new_tokens": 500, "ignore_eos": True})
        await until(lambda: server.manager.main.engine.step_index > 5, "the first steps")
        started = time.monotonic()  # before the steps are read: who is held up in between must not see too many of them
        steps = server.manager.main.engine.step_index
        await asyncio.sleep(1.0)
        rate = (server.manager.main.engine.step_index - steps) / (time.monotonic() - started)
        assert rate < 56  # an upper bound holds however busy the machine is


async def test_caps_on_rooms_are_refused_by_name():
    async with (
        serving(token="t", limits={"max_rooms": 4, "max_rooms_per_visitor": 2}) as (_, url),
        raw(url) as one,
        raw(url) as other,
    ):
        for _ in range(2):
            await one.ok("create_room", config=SMALL)
        assert await one.refused("create_room", config=SMALL) == "too_many_rooms"
        await other.ok("create_room", config=SMALL)
        assert await other.refused("create_room", config=SMALL) == "too_many_rooms"


async def test_caps_on_requests_are_refused_by_name():
    limits = {
        "max_requests_per_visitor": 3,
        "max_queue_length": 8,
        "max_output_tokens": 50,
        "max_prompt_tokens": 40,
        "max_requests_per_submit": 5,
    }
    async with serving(token="t", limits=limits) as (_, url), raw(url) as host, raw(url) as viewer:
        await host.ok("hello", token="t")
        await host.ok("pause")
        assert await viewer.refused("submit", prompt="x", params={"max_new_tokens": 51}) == "output_too_long"
        assert await viewer.refused("submit", prompt="word " * 60, params={"max_new_tokens": 5}) == "prompt_too_long"
        assert await viewer.refused("submit", requests=[SHORT] * 6) == "bad_field"
        answer = await viewer.ok("submit", requests=[SHORT] * 5)
        assert len(answer["ids"]) == 3 and {one["code"] for one in answer["refused"]} == {"too_many_requests"}
        assert await viewer.refused("submit", **SHORT) == "too_many_requests"
        await host.ok("submit", requests=[SHORT] * 5)
        assert await host.refused("submit", prompt="x") == "queue_full"


def make_manager(**limits) -> RoomManager:
    return RoomManager(
        Provider("llama-8b"),
        Limits().replaced(limits),
        lambda room, text: None,
        main_config=EngineConfig.from_dict(SMALL),
        main_device=SIMULATED,
    )


def test_an_idle_room_is_closed_and_a_used_one_is_not():
    manager = make_manager(room_idle_seconds=10)
    manager.open_main()
    idle, watched, busy = (manager.create_room(owner="v", host=True, config=SMALL) for _ in range(3))
    watched.watchers = 1
    busy.submit([1, 2, 3], SamplingParams())
    now = time.monotonic()
    manager._evict_idle(now + 11)
    assert set(manager.rooms) == {"main", watched.name, busy.name}
    assert idle.engine is None


def test_the_caches_of_all_rooms_together_are_bounded():
    """Counted from the shape before anything is allocated; here for a tiny stand-in of a loaded model."""

    class Loaded:
        spec = find_model("smollm2-135m")

    manager = make_manager(max_room_memory=2**30)
    manager.open_main()
    manager.provider.loaded = Loaded()
    room = manager.create_room(owner="v", host=True, config=SMALL)
    room.device = "model"
    per_block = 16 * Loaded.spec.kv_bytes_per_token
    manager.check_memory(room, EngineConfig(block_size=16, num_blocks=2**29 // per_block))
    for config in (
        {"block_size": 16, "num_blocks": 3 * 2**30 // per_block},
        {"block_size": 16, "num_blocks": 64, "cpu_offload_space": 3.0},
        {"block_size": 16, "num_blocks": 64, "max_batch_tokens": 65536, "max_requests_per_batch": 4096},
    ):
        with pytest.raises(CommandRefused) as refused:
            manager.check_memory(room, EngineConfig.from_dict(config))
        assert refused.value.code == "no_memory"


async def test_a_visitors_room_cannot_be_made_or_turned_huge():
    async with serving(token="t") as (server, url), raw(url) as viewer:
        huge = {"block_size": 4, "num_blocks": 4_000_000}
        assert await viewer.refused("create_room", config=huge) == "too_many_blocks"
        room = (await viewer.ok("create_room", config=SMALL))["room"]
        assert await viewer.refused("configure", room=room, changes=huge) == "too_many_blocks"
        assert await viewer.refused("fork", room=room, changes=huge) == "too_many_blocks"
        assert set(server.manager.rooms) == {"main", room}


async def test_a_fork_is_the_original_up_to_its_step_and_differs_after():
    async with serving(config={"num_blocks": 24}) as (server, url), raw(url) as client:
        await client.ok("pause")
        await client.ok(
            "submit", requests=[{"prompt": f"{n} two three four five " * 5, "params": {"max_new_tokens": 20}} for n in range(6)]
        )
        await client.ok("step", count=12)
        await until(lambda: server.manager.main.engine.step_index == 12, "12 steps")
        await client.ok("configure", changes={"max_batch_tokens": 16})
        await client.ok("step", count=200)
        await until(lambda: not server.manager.main.visitor_of, "the end")
        main = server.manager.main.engine
        room = (await client.ok("fork", step=3, changes={"max_requests_per_batch": 1}))["room"]
        fork = server.manager.rooms[room]
        await until(lambda: fork.replay is None, "the replay")
        await client.ok("rooms")  # the turn in which it ended is over, and the room paused in it
        assert fork.engine.step_index == 3 and fork.paused and fork.engine.config.max_batch_tokens == 32
        await client.ok("resume", room=room)
        await until(lambda: not fork.visitor_of, "the fork's end")
        texts = [{name: request.text for name, request in engine.requests.items()} for engine in (main, fork.engine)]
        assert texts[0] == texts[1]  # what is said does not depend on the schedule …
        assert fork.engine.step_index > main.step_index  # … but how long it takes does


async def test_a_journal_from_a_recording_runs_again_and_a_forged_one_is_refused():
    async with serving() as (server, url), raw(url) as client:
        await client.ok("submit", prompt="once more", params={"max_new_tokens": 6})
        await finished(server, 1)
        journal = await client.ok("journal")
        room = (await client.ok("fork", journal=journal))["room"]
        copy = server.manager.rooms[room]
        await until(lambda: copy.replay is None, "the replay")
        await client.ok("rooms")
        assert [request.text for request in copy.engine.requests.values()] == [
            request.text for request in server.manager.main.engine.requests.values()
        ]
        entry = journal["entries"][0]
        for forged in (
            {**entry, "op": "exec"},
            {**entry, "tokens": "abc"},
            {**entry, "turn": -1},
            {**entry, "surprise": 1},
            {**entry, "params": {"max_new_tokens": "x"}},
            {**entry, "tokens": [10**12]},
            7,
        ):
            before = set(server.manager.rooms)
            answer = await client.answer("fork", journal={**journal, "entries": [forged]})
            if answer["type"] == "ack":  # well formed, but refused by the engine when its turn comes
                await client.ok("close_room", room=answer["result"]["room"])
            else:
                assert answer["code"] == "bad_journal"
            assert set(server.manager.rooms) == before


async def test_a_journal_is_bounded_and_says_when_it_is_incomplete():
    async with serving(limits={"max_journal_entries": 5}) as (server, url), raw(url) as client:
        for _ in range(8):
            await client.ok("submit", prompt="x", params={"max_new_tokens": 1})
        await finished(server, 8)
        assert await client.refused("journal") == "journal_incomplete"
        assert await client.refused("fork") == "journal_incomplete"
        await client.ok("reset")
        assert (await client.ok("journal"))["entries"] == []
