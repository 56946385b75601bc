"""Whatever is lost on the way, the picture becomes true again, and one slow reader slows nobody."""

from __future__ import annotations

import asyncio
import json
import random

import pytest

from engine import connection
from engine.client import EngineClient
from tests.server.helpers import PATIENCE, raw, serving, until

TRAFFIC = {
    "num_requests": 30,
    "prompt_length": {"kind": "uniform", "low": 5, "high": 60},
    "output_length": {"kind": "uniform", "low": 1, "high": 30},
}


async def engine_state(server) -> dict:
    snapshot = await asyncio.wrap_future(server.manager.call(server.manager.main.engine.snapshot))
    return json.loads(json.dumps(snapshot["state"]))


@pytest.mark.parametrize("loss", [0.0, 0.05, 0.5])
async def test_a_client_that_loses_messages_ends_with_the_engines_state(loss):
    async with serving(config={"num_blocks": 24}) as (server, url):
        dice, heard = random.Random(4), {"snapshots": 0, "events": 0}

        def count(room, event, text):
            heard["snapshots" if event["type"] == "snapshot" else "events"] += 1

        async with EngineClient(url, on_event=count) as client:
            take = client._take
            client._take = lambda text: (
                None if text.startswith('{"v"') and "snapshot" not in text[:60] and dice.random() < loss else take(text)
            )
            await client.subscribe()
            await client.command("workload", workload=TRAFFIC)
            await until(lambda: server.manager.main.engine.recorder.counters["finished"] == 30, "30 requests")
            await client.command("snapshot")  # whatever was on its way has arrived
            dice.random = lambda: 1.0
            await client.command("pause")
            await until(lambda: client.rooms["main"].valid and client.state()["engine"]["status"] == "paused", "the last event")
            assert client.state() == await engine_state(server)
            assert (heard["snapshots"] > 1) == (loss > 0)


async def test_resuming_continues_the_numbering_only_within_one_life():
    async with serving() as (_, url), raw(url) as client:
        first = await client.ok("subscribe")
        await client.receive()
        for _ in range(3):
            await client.ok("pause")
        async with raw(url) as again:
            answer = await again.ok("subscribe", from_seq=first["seq"], life=first["life"])
            assert answer["resumed"] and [(await again.receive())["seq"] for _ in range(3)] == [
                first["seq"] + n for n in (1, 2, 3)
            ]
        await client.ok("reset")
        async with raw(url) as again:
            answer = await again.ok("subscribe", from_seq=first["seq"], life=first["life"])
            assert not answer["resumed"] and (await again.receive())["type"] == "snapshot"


async def test_a_stalled_client_loses_events_gets_a_snapshot_and_slows_nobody(monkeypatch):
    monkeypatch.setattr(connection, "MAX_QUEUED_FRAMES", 40)
    async with (
        serving(config={"num_blocks": 4096, "max_batch_tokens": 4096}) as (server, url),
        raw(url) as fast,
        raw(url) as stalled,
    ):
        await fast.ok("subscribe")
        await stalled.ok("subscribe")
        await stalled.receive()
        main = server.manager.main
        slow = next(one for one in server.connections if one.socket.remote_address[1] == stalled.socket.local_address[1])
        stalled.socket.transport.pause_reading()
        # Long prompts make long events: the buffers between the two are soon full, and then the queue.
        for number in range(1000):
            await fast.ok("submit", prompt=f"{number} " + "long text " * 4000, params={"max_new_tokens": 1})
            fast.events.clear()
            if slow.lost:
                break
        assert slow.lost == {"main"}
        await until(lambda: not main.visitor_of, "the end")
        stalled.socket.transport.resume_reading()
        seqs = []
        while True:
            message = await stalled.receive()
            if message["type"] == "snapshot" and seqs:
                break
            if "seq" in message:
                seqs.append(message["seq"])
        assert message["seq"] > seqs[-1] + 1 and message["state"]["counters"]["finished"] == number + 1


async def test_events_of_the_client_are_without_gaps_for_every_consumer():
    async with serving() as (_, url), EngineClient(url) as client:
        await client.subscribe()

        async def consume() -> list[int]:
            seqs = []
            async for event in client.events():
                seqs.append(event["seq"])
                if event.get("counters", {}).get("finished") == 30:
                    return seqs

        consumers = [asyncio.create_task(consume()) for _ in range(3)]
        await asyncio.sleep(0)
        await client.command("workload", workload=TRAFFIC)
        runs = await asyncio.wait_for(asyncio.gather(*consumers), PATIENCE)
        assert runs[0] == runs[1] == runs[2] == list(range(runs[0][0], runs[0][-1] + 1))
