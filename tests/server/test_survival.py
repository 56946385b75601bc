"""The engine is killed, clients stall, flood and vanish: the page says so, nothing is lost, and nobody else notices."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket

import openai
import pytest
from websockets.exceptions import ConnectionClosed

from engine.state import apply_event, block_counts
from tests.server.helpers import PATIENCE
from tests.server.page import Page, alive, browser, next_event, running


def ended(message: dict, cause: str | None = None) -> bool:
    return any(
        one["to"] in ("finished", "cancelled", "failed") and cause in (None, one["cause"])
        for one in message.get("transitions", ())
    )


async def follow(client, state: dict, done, patience: float = 120.0) -> dict:
    """Reduce the stream until ``done(state)``; every message must fit the one before."""
    while not done(state):
        message = await next_event(client, lambda one: "seq" in one, patience)
        apply_event(state, message)
    return state


def has(state: dict, what: str, count: int) -> bool:
    return sum(request["state"] == what for request in state["requests"].values()) >= count


async def kill_and_recover(page: Page, times: int, requests: int = 6) -> None:
    """Kill the engine in the middle of its work; each time every request must end with its full answer all the same."""
    async with browser(page, host=True) as host:
        state = (await next_event(host, lambda message: message["type"] == "snapshot"))["state"]
        await host.ok("pace", steps_per_second=60)
        await host.ok("configure", changes={"max_batch_tokens": 48})
        for round_number in range(times):
            answer = await host.ok(
                "submit",
                requests=[
                    {"prompt": f"round {round_number} request {n} " * 4, "params": {"max_new_tokens": 30, "ignore_eos": True}}
                    for n in range(requests)
                ],
            )
            ids = set(answer["ids"])
            await follow(
                host,
                state,
                lambda now, ids=ids: sum(now["requests"][name]["outputs"] for name in ids & set(now["requests"])) > 20,
            )
            before = {
                name: request["text"]
                for name, request in state["requests"].items()
                if name in ids and request["state"] != "finished"
            }
            done = {name for name in ids if state["requests"][name]["state"] == "finished"}
            pid = page.engine_pid
            os.kill(pid, signal.SIGKILL)
            restored, said = {}, []
            while not restored:
                message = await next_event(host, lambda one: True, 120)
                if message["type"] == "restored":
                    restored = message
                elif "seq" in message:
                    apply_event(state, message)
                    said.append(state["engine"].get("message", ""))
            assert any("SIGKILL" in sentence for sentence in said)
            assert not restored["lost"] and set(restored["renamed"]) | done >= set(before)
            await follow(host, state, lambda now: not now["queue"] and not now["active"])
            for old, new in restored["renamed"].items():
                request = state["requests"][new]
                assert request["state"] == "finished"
                # What had been generated is part of the prompt now, and only the rest was computed.
                assert request["outputs"] < 30 or not before.get(old)
                assert before.get(old, "") in request["prompt"] + request["text"]
            assert state["config"]["max_batch_tokens"] == 48, "the knobs survive"
            assert not alive(pid)
            counts = block_counts(state)
            assert counts["owned"] == 0 and counts["free"] + counts["cached"] == counts["total"]


async def test_a_killed_engine_is_reported_restarted_and_its_requests_go_on():
    with running() as page:
        await kill_and_recover(page, times=2)
        assert page.health()["engine"]["restarts"] == 2


@pytest.mark.soak
async def test_twenty_kills_under_load():
    with running() as page:
        await kill_and_recover(page, times=20, requests=12)


async def test_an_http_client_gets_its_whole_answer_across_a_kill():
    with running(pace=40.0) as page:
        async with (
            openai.AsyncOpenAI(base_url=f"{page.url}/v1", api_key="none", max_retries=0) as client,
            browser(page) as viewer,
        ):

            async def stream() -> str:
                pieces = []
                async for chunk in await client.completions.create(
                    model="any", prompt="tell", max_tokens=40, stream=True, seed=1, temperature=0
                ):
                    pieces.append(chunk.choices[0].text)
                return "".join(pieces)

            answers = [asyncio.create_task(stream()) for _ in range(3)]
            for _ in range(20):
                await next_event(viewer, lambda message: message.get("tokens"))
            os.kill(page.engine_pid, signal.SIGKILL)
            texts = await asyncio.wait_for(asyncio.gather(*answers), 90)
            undisturbed = await stream()
            assert set(texts) == {undisturbed}


async def test_rooms_come_back_with_their_name_config_and_requests():
    with running() as page:
        async with browser(page, subscribe=None) as owner:
            room = (await owner.ok("create_room", title="mine", config={"num_blocks": 32, "block_size": 8}))["room"]
            await owner.ok("subscribe", room=room)
            state = (await next_event(owner, lambda message: message["type"] == "snapshot"))["state"]
            await owner.ok("pace", room=room, steps_per_second=30)
            # Long enough not to have ended before the kill, however late this process is told of its steps.
            await owner.ok("submit", room=room, prompt="hold on", params={"max_new_tokens": 200, "ignore_eos": True})
            await follow(owner, state, lambda now: any(request["outputs"] > 5 for request in now["requests"].values()))
            os.kill(page.engine_pid, signal.SIGKILL)
            await next_event(owner, lambda message: message["type"] == "restored" and message["room"] == room, 120)
            fresh = await owner.ok("snapshot", room=room)
            assert fresh["state"]["config"]["block_size"] == 8 and len(fresh["state"]["requests"]) == 1
            await owner.ok("pause", room=room)  # and it is still the owner's


async def test_commands_while_the_engine_is_down_are_refused_by_name():
    with running() as page:
        async with browser(page, host=True) as host:
            os.kill(page.engine_pid, signal.SIGKILL)
            await next_event(host, lambda message: message.get("engine", {}).get("status") == "failed")
            answer = await host.answer("pause")
            assert answer["type"] == "ack" or answer["code"] in ("engine_down", "model_loading"), answer


async def test_an_engine_that_dies_at_once_is_tried_again_ever_more_slowly():
    page = Page("--dtype", "float32", device="simulated:no-such-gpu")
    try:
        health = await asyncio.to_thread(
            page.until, lambda one: one["engine"]["status"] == "failed" and "no-such-gpu" in one["engine"]["message"], "the failure"
        )
        assert not health["ready"]
    finally:
        page.stop()


@pytest.fixture
def patient_page():
    """A page that lets one viewer send as fast as it likes."""
    with running("--limits", json.dumps({"messages_per_second": 10_000, "message_burst": 10_000})) as page:
        yield page


async def test_a_command_refused_for_its_speed_is_answered_by_its_id():
    # So strict that a page which takes its time is still asked too fast.
    with running("--limits", json.dumps({"messages_per_second": 0.1, "message_burst": 20})) as page:
        async with browser(page, subscribe=None) as hasty:
            for number in range(60):
                await hasty.send(json.dumps({"id": f"hasty {number}", "cmd": "rooms"}))
            answers = [await hasty.receive() for _ in range(60)]
    assert {answer["id"] for answer in answers} == {f"hasty {number}" for number in range(60)}
    assert {answer["type"] for answer in answers} == {"ack", "error"}
    assert {answer["code"] for answer in answers if answer["type"] == "error"} == {"too_fast"}


async def test_a_stalled_viewer_slows_nobody_and_catches_up_by_snapshot(patient_page):
    page = patient_page
    narrow = socket.socket()
    narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    narrow.connect(("127.0.0.1", int(page.url.rsplit(":", 1)[1])))
    narrow.setblocking(False)
    async with browser(page, host=True, subscribe=None) as fast, browser(page, sock=narrow) as stalled:
        snapshot = await next_event(stalled, lambda message: message["type"] == "snapshot")
        stalled.socket.transport.pause_reading()
        for number in range(300):
            # Long prompts make long events, so that the buffers between the two are full soon; nothing has to be computed.
            await fast.ok("submit", prompt=f"{number} " + "long text " * 2000, params={"max_new_tokens": 0})
        fresh = await fast.ok("snapshot")
        stalled.socket.transport.resume_reading()
        seqs, snapshots = [snapshot["seq"]], 0
        while seqs[-1] < fresh["seq"]:
            message = await next_event(stalled, lambda one: "seq" in one)
            assert message["seq"] == seqs[-1] + 1 or message["type"] == "snapshot"
            snapshots += message["type"] == "snapshot"
            seqs.append(message["seq"])
        assert snapshots and len(seqs) < fresh["seq"] - snapshot["seq"], "frames were dropped, and a snapshot stood for them"


async def test_a_flooding_viewer_is_slowed_down_and_others_are_served(page):
    async with browser(page, subscribe=None) as flood, browser(page, subscribe=None) as other:
        try:
            for number in range(3000):
                await flood.send(json.dumps({"id": f"f{number}", "cmd": "rooms"}))
            while (await flood.receive()).get("code") != "too_fast":
                pass
        except ConnectionClosed as closed:  # it may have been disconnected by now, at any of these, which is right too
            assert closed.rcvd is None or closed.rcvd.code == 1008
        assert await asyncio.wait_for(other.ok("rooms"), PATIENCE)


async def test_a_half_open_connection_harms_nobody(page):
    _, writer = await asyncio.open_connection("127.0.0.1", int(page.url.rsplit(":", 1)[1]))
    writer.write(b"GET /ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\n")
    await writer.drain()
    async with browser(page, subscribe=None) as other:
        await other.ok("rooms")
    writer.close()


async def test_a_closed_tab_cancels_its_requests_once_and_a_quick_return_does_not():
    grace = 6.0
    with running("--tab-grace", str(grace)) as page:
        async with browser(page, host=True) as host:
            state = (await next_event(host, lambda message: message["type"] == "snapshot"))["state"]
            await host.ok("pace", steps_per_second=20)
            async with browser(page, subscribe=None) as tab:
                key = tab.hello["key"]
                (name,) = (await tab.ok("submit", prompt="a long answer", params={"max_new_tokens": 2000, "ignore_eos": True}))[
                    "ids"
                ]
                await follow(host, state, lambda now: name in now["requests"] and now["requests"][name]["outputs"] > 0)
            async with browser(page, subscribe=None) as back:
                await back.ok("hello", key=key)
                await asyncio.sleep(grace + 0.5)
                fresh = await host.ok("snapshot")
                assert fresh["state"]["requests"][name]["state"] == "decoding", "the visitor came back in time"
            ends = []
            while not ends:
                message = await next_event(host, lambda one: "seq" in one)
                apply_event(state, message)
                ends += [one for one in message.get("transitions", ()) if one["id"] == name and one["to"] == "cancelled"]
            await host.ok("pause")
            counts = block_counts((await host.ok("snapshot"))["state"])
            assert len(ends) == 1 and counts["owned"] == 0 and counts["free"] + counts["cached"] == counts["total"]


async def test_the_page_process_restarts_and_browsers_resume_on_the_remote_engine():
    """The engine outlives the page process when it was started apart: a new page process finds the requests running."""
    from tests.server.helpers import serving

    async with serving(token="t", pace=5.0) as (_, url):
        options = {"environment": {"REMOTE": "t"}}
        first = await asyncio.to_thread(Page, "--engine", url, "--engine-token-env", "REMOTE", **options)
        await asyncio.to_thread(first.until_ready)
        async with browser(first, host=True) as host:
            # Three minutes of work: it goes on while a page process starts, however long that takes.
            await host.ok("submit", prompt="outlive", params={"max_new_tokens": 900, "ignore_eos": True})
            await asyncio.to_thread(first.stop, signal.SIGKILL)
        second = await asyncio.to_thread(Page, "--engine", url, "--engine-token-env", "REMOTE", **options)
        try:
            await asyncio.to_thread(second.until_ready)
            async with browser(second) as viewer:
                state = (await next_event(viewer, lambda message: message["type"] == "snapshot"))["state"]
                assert [request["state"] for request in state["requests"].values()] == ["decoding"]
        finally:
            await asyncio.to_thread(second.stop)


@pytest.mark.slow
async def test_the_real_models_answer_is_the_same_across_a_kill():
    with running("--dtype", "float32", device="model", pace=12.0) as page:
        async with (
            openai.AsyncOpenAI(base_url=f"{page.url}/v1", api_key="none", max_retries=0, timeout=200) as client,
            browser(page) as viewer,
        ):
            ask = {
                "model": "any",
                "messages": [{"role": "user", "content": "Name five rivers."}],
                "max_tokens": 32,
                "temperature": 0,
            }
            answer = asyncio.create_task(client.chat.completions.create(**ask))
            for _ in range(8):
                await next_event(viewer, lambda message: message.get("tokens"), 60)
            os.kill(page.engine_pid, signal.SIGKILL)
            disturbed = (await asyncio.wait_for(answer, 180)).choices[0].message.content
            undisturbed = (await client.chat.completions.create(**ask)).choices[0].message.content
            assert len(disturbed) > 40 and disturbed == undisturbed


async def test_an_engine_killed_again_while_it_is_brought_back_loses_nothing():
    with running(pace=40.0) as page:
        async with browser(page, host=True) as host:
            state = (await next_event(host, lambda message: message["type"] == "snapshot"))["state"]
            # Long enough that none has ended before the pause.
            work = [{"prompt": f"request {n}", "params": {"max_new_tokens": 400, "ignore_eos": True}} for n in range(12)]
            ids = (await host.ok("submit", requests=work))["ids"]
            await follow(host, state, lambda now: sum(request["outputs"] for request in now["requests"].values()) > 30)
            await host.ok("pause")
            for _ in range(3):
                pid = page.engine_pid
                os.kill(pid, signal.SIGKILL)
                health = await asyncio.to_thread(
                    page.until,
                    lambda one, pid=pid: one["engine"]["pid"] not in (None, pid) and one["engine"]["connected"],
                    "a new engine",
                )
                assert health["engine"]["restarts"] > 0
            restored = await next_event(host, lambda message: message["type"] == "restored", 120)
            assert not restored["lost"] and sorted(restored["renamed"]) == sorted(ids)
            # A quick page may have brought everything back before the last kill, and does so once more: one request after another.
            async with asyncio.timeout(120):
                while True:
                    fresh = (await host.ok("snapshot"))["state"]
                    if fresh["engine"]["status"] not in ("failed", "loading") and len(fresh["requests"]) >= 12:
                        break
                    await asyncio.sleep(0.1)
            assert fresh["engine"]["status"] == "paused", "a pause survives too"
            assert len(fresh["requests"]) == 12 and {request["state"] for request in fresh["requests"].values()} == {"pending"}
