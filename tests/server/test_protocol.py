"""Each command of the protocol does its work, and each mistake gets its own named answer."""

from __future__ import annotations

import asyncio
import json

import pytest

from engine import protocol
from engine.client import EngineClient
from engine.state import apply_event
from tests.server.helpers import raw, serving, until

GREEDY = {"max_new_tokens": 4}


async def test_hello_tells_role_version_model_and_rooms():
    async with serving() as (_, url), raw(url) as client:
        hello = await client.ok("hello")
        assert hello["role"] == "host" and hello["version"] == protocol.VERSION and hello["model"] == "llama-8b"
        assert [room["room"] for room in hello["rooms"]] == ["main"]


async def test_a_subscriber_gets_a_snapshot_and_then_every_event():
    async with serving() as (server, url), raw(url) as client:
        answer = await client.ok("subscribe", room="main")
        snapshot = await client.receive()
        assert snapshot["type"] == "snapshot" and snapshot["seq"] == answer["seq"]
        ids = (await client.ok("submit", prompt="a few words", params=GREEDY))["ids"]
        state = snapshot["state"]
        seen = iter(client.events)
        while not state["ended"]:
            apply_event(state, next(seen, None) or await client.receive())
        assert state["requests"][ids[0]]["outputs"] == 4
        engine = await asyncio.wrap_future(server.manager.call(server.manager.main.engine.snapshot))
        assert json.loads(json.dumps(engine["state"])) == state


async def test_an_unsubscribed_client_hears_nothing_more():
    async with serving() as (server, url), raw(url) as client:
        await client.ok("subscribe")
        await client.ok("unsubscribe")
        client.events.clear()
        await client.ok("submit", prompt="words", params=GREEDY)
        await until(lambda: not server.manager.main.visitor_of, "the request's end")
        await client.ok("rooms")  # what was said until then would come before this answer
        assert client.events == []


async def test_pause_step_resume_and_pace_rule_the_steps():
    async with serving() as (server, url), raw(url) as client:
        main = server.manager.main
        await client.ok("pause")
        await client.ok("submit", prompt="words", params={"max_new_tokens": 10})
        await client.turns()
        assert main.engine.step_index == 0
        assert main.engine.recorder.waiting["refused"][0]["reason"] == "room_paused"
        await client.ok("step", count=3)
        await until(lambda: main.engine.step_index == 3, "three steps")
        await client.turns()
        assert main.engine.step_index == 3
        await client.ok("pace", steps_per_second=500)
        assert main.engine.status["pace"] == 500
        await client.ok("resume")
        await until(lambda: not main.visitor_of, "the request's end")


async def test_configure_names_what_changed_and_whether_the_cache_was_rebuilt():
    async with serving() as (server, url), raw(url) as client:
        assert await client.ok("configure", changes={"max_batch_tokens": 8}) == {
            "changed": ["max_batch_tokens"],
            "rebuilt": False,
        }
        assert await client.ok("configure", changes={"block_size": 8}) == {"changed": ["block_size"], "rebuilt": True}
        assert server.manager.main.engine.config.max_batch_tokens == 8


async def test_cancel_and_cancel_all_end_requests_at_once():
    async with serving() as (server, url), raw(url) as client:
        await client.ok("pause")
        ids = (await client.ok("submit", requests=[{"prompt": f"words {n}"} for n in range(5)]))["ids"]
        assert (await client.ok("cancel", request=ids[1]))["cancelled"] == [ids[1]]
        assert await client.refused("cancel", request=ids[1]) == "not_running"
        assert sorted((await client.ok("cancel_all"))["cancelled"]) == sorted(set(ids) - {ids[1]})
        assert server.manager.main.engine.cache.num_free == server.manager.main.engine.cache.layout.num_blocks


async def test_reset_begins_a_new_numbering_with_empty_counters():
    async with serving() as (server, url), raw(url) as client:
        first = await client.ok("subscribe")
        await client.ok("submit", prompt="words", params=GREEDY)
        await until(lambda: not server.manager.main.visitor_of, "the request's end")
        await client.ok("reset")
        snapshots = [event for event in client.events if event["type"] == "snapshot"]
        assert snapshots[-1]["life"] != first["life"]
        state = snapshots[-1]["state"]
        assert state["counters"]["steps"] == 0 and not state["requests"] and state["config"]["num_blocks"] == 64


async def test_a_workload_sends_its_requests_and_can_be_stopped():
    async with serving() as (server, url), raw(url) as client:
        answer = await client.ok("workload", workload={"num_requests": 6, "seed": 1, "prompt_length": 20, "output_length": 5})
        assert answer["requests"] == 6
        await until(lambda: server.manager.main.engine.recorder.counters["finished"] == 6, "six requests")
        await client.ok("pause")
        await client.ok("workload", workload={"num_requests": 50, "arrivals": {"kind": "poisson", "rate": 1.0}})
        assert (await client.ok("workload_stop"))["requests"] < 50
        assert server.manager.main.traffic is None
        assert await client.refused("workload", workload={"num_requests": 0}) != "internal_error"


async def test_rooms_are_created_listed_and_closed():
    async with serving() as (_, url), raw(url) as client:
        room = await client.ok("create_room", title="mine", config={"block_size": 8, "num_blocks": 16})
        assert len(room["room"]) == 5 and room["yours"]
        assert {one["room"] for one in (await client.ok("rooms"))["rooms"]} == {"main", room["room"]}
        await client.ok("subscribe", room=room["room"])
        await client.ok("close_room", room=room["room"])
        assert any(event["type"] == "room_closed" for event in client.events) or (await client.receive())["type"] == "room_closed"
        assert await client.refused("snapshot", room=room["room"]) == "no_such_room"
        assert await client.refused("close_room", room="main") == "main_stays"


async def test_the_catalog_lists_knobs_devices_and_models():
    async with serving() as (_, url), raw(url) as client:
        catalog = await client.ok("catalog")
        assert {"block_size", "max_batch_tokens"} <= {knob["name"] for knob in catalog["knobs"]}
        assert catalog["devices"] and catalog["models"]


@pytest.mark.parametrize(
    "frame, code",
    [
        ("not json", "bad_json"),
        ("", "bad_json"),
        ("[1,2]", "not_an_object"),
        ("null", "not_an_object"),
        ('"hello"', "not_an_object"),
        ("{}", "no_command"),
        ('{"cmd": 7}', "no_command"),
        ('{"cmd": "explode"}', "unknown_command"),
        ('{"id": [1], "cmd": "rooms"}', "bad_id"),
        ('{"id": true, "cmd": "rooms"}', "bad_id"),
        ('{"id": "' + "x" * 99 + '", "cmd": "rooms"}', "bad_id"),
        ('{"cmd": "pause", "force": 1}', "unknown_field"),
        ('{"cmd": "pause", "room": 3}', "bad_field"),
        ('{"cmd": "configure"}', "missing_field"),
        ('{"cmd": "configure", "changes": []}', "bad_field"),
        ('{"cmd": "pace", "steps_per_second": true}', "bad_field"),
        ('{"cmd": "pace", "steps_per_second": NaN}', "bad_json"),
        ('{"cmd": "pace", "steps_per_second": -1}', "bad_field"),
        ('{"cmd": "step", "count": 0}', "bad_field"),
        ('{"cmd": "step", "count": 1.5}', "bad_field"),
        ('{"cmd": "cancel"}', "missing_field"),
        ('{"cmd": "cancel", "request": "r999"}', "not_running"),
        ('{"cmd": "snapshot", "room": "nowhere"}', "no_such_room"),
        ('{"cmd": "snapshot", "room": "' + "x" * 65 + '"}', "no_such_room"),
        ('{"cmd": "rooms", "on_behalf": {"role": "god"}}', "bad_field"),
        ('{"cmd": "configure", "changes": {"warp": 9}}', "unknown_knob"),
        ('{"cmd": "configure", "changes": {"block_size": 1}}', "config_bounds"),
        ('{"cmd": "configure", "changes": {"use_async_batching": true}}', "config_conflict"),
        ('{"cmd": "create_room", "name": "Not Good"}', "bad_room_name"),
        ('{"cmd": "create_room", "name": "main"}', "bad_room_name"),
        ('{"cmd": "create_room", "device": "simulated:abacus"}', "unknown_device"),
        ('{"cmd": "create_room", "device": "toaster"}', "unknown_device"),
        ('{"cmd": "create_room", "model": "gpt-99"}', "unknown_model"),
        ('{"cmd": "fork", "step": -1}', "bad_field"),
        ('{"cmd": "fork", "journal": {"version": 9}}', "bad_journal"),
        ("[" * 100_000, "bad_json"),
        ('{"cmd": "rooms", "id": 1e999}', "bad_json"),
        ('{"cmd": "\\ud800"}', "bad_json"),
        (b"\x00\x01binary", "binary_frame"),
    ],
)
async def test_each_mistake_has_a_name_and_a_sentence(frame, code):
    async with serving() as (_, url), raw(url) as client:
        await client.send(frame)
        answer = await client.receive()
        assert (answer["type"], answer["code"]) == ("error", code), answer
        assert answer["message"].endswith(".") and len(answer["message"]) < 900
        assert (await client.ok("rooms"))["rooms"]  # the connection lives


async def test_the_standard_library_parser_refuses_the_same_frames(monkeypatch):
    """A GPU box may not have the fast JSON package; what is refused must not depend on it."""
    monkeypatch.setattr(protocol, "orjson", None)
    for frame in ("not json", "[" * 100_000, '{"a": NaN}', '{"a": Infinity}', '{"a": "\\ud800"}', '{"a": ' + "9" * 5000 + "}"):
        with pytest.raises(protocol.FrameRefused):
            protocol.parse_command(frame)
    assert protocol.decode(protocol.encode({"a": "한글 é", "b": [1, None, True]})) == {"a": "한글 é", "b": [1, None, True]}


async def test_a_message_over_the_limit_is_closed_politely_and_others_go_on():
    async with serving(limits={"max_message_bytes": 2000}) as (_, url), raw(url) as other:
        async with raw(url) as client:
            await client.send(json.dumps({"cmd": "submit", "prompt": "x" * 5000}))
            with pytest.raises(Exception) as closed:
                await client.receive()
            assert closed.value.rcvd.code == 1009
        assert (await other.ok("rooms"))["rooms"]


async def test_model_loading_is_told_and_commands_are_refused_by_name():
    class Slow:
        model_name, loaded, failed = "slow", None, None

        def load(self, progress):
            progress("Unpacking 1 of 2.")
            self.event.wait(120)
            progress("Unpacking 2 of 2.")

        def executor(self, device, model):
            raise AssertionError("not in this test")

    import threading

    from engine.server import EngineServer

    provider = Slow()
    provider.event = threading.Event()
    server = EngineServer(provider)
    port = await server.start()
    try:
        async with EngineClient(f"ws://127.0.0.1:{port}") as client:
            await client.subscribe()
            await until(lambda: client.state()["engine"].get("message") == "Unpacking 1 of 2.", "the first message")
            assert client.state()["engine"]["status"] == "loading"
            with pytest.raises(Exception, match="Unpacking 1 of 2") as problem:
                await client.command("submit", prompt="hello")
            assert problem.value.code == "model_loading"
    finally:
        provider.event.set()
        await server.stop()
