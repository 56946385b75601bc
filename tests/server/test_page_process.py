"""The page process: what browsers get over its websocket, and what plain HTTP answers."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import signal
import time
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from websockets.exceptions import InvalidStatus

from engine.state import apply_event, empty_state
from tests.server.helpers import PATIENCE, raw
from tests.server.page import SECRET, Page, alive, browser, next_event, running
from tests.server.test_roles import HOST_COMMANDS


def get(page: Page, path: str, **headers: str):
    return urlopen(Request(page.url + path, headers=headers), timeout=PATIENCE)


def test_the_page_is_alive_before_gradio_and_the_engine_are():
    page = Page()
    try:
        with get(page, "/") as answer:
            assert answer.status == 200 and "text/html" in answer.headers["content-type"]
        assert page.health()["page"]["status"] == "ok"
    finally:
        page.stop()


async def test_a_viewer_sees_exactly_the_engines_state(page):
    async with browser(page) as client:
        state = (await next_event(client, lambda message: message["type"] == "snapshot"))["state"]
        await client.ok("submit", prompt="some words for the engine", params={"max_new_tokens": 12})
        name = None
        while name is None or state["requests"][name]["state"] != "finished":
            message = await next_event(client, lambda message: "seq" in message)
            apply_event(state, message)
            name = name or next((record["id"] for record in message.get("requests", ())), None)
        fresh = await client.ok("snapshot")
        for message in client.events:
            if "seq" in message and message["seq"] > state["seq"]:
                apply_event(state, message)
        if fresh["seq"] == state["seq"]:
            assert fresh["state"] == state
        assert state["requests"][name]["outputs"] == 12


async def test_a_short_loss_of_connection_is_resumed_without_a_snapshot(page):
    async with browser(page) as client:
        snapshot = await next_event(client, lambda message: message["type"] == "snapshot")
    async with browser(page) as other:
        await other.ok("submit", prompt="meanwhile", params={"max_new_tokens": 3})
        await next_event(other, lambda message: any(one["to"] == "finished" for one in message.get("transitions", ())))
    async with browser(page, subscribe=None) as again:
        answer = await again.ok("subscribe", room="main", from_seq=snapshot["seq"], life=snapshot["life"])
        assert answer["resumed"] is True
        seqs = [(await next_event(again, lambda message: "seq" in message))["seq"] for _ in range(4)]
        assert seqs == list(range(snapshot["seq"] + 1, snapshot["seq"] + 5))
        answer = await again.ok("subscribe", room="main", from_seq=snapshot["seq"], life="another life")
        assert answer["resumed"] is False
        assert (await next_event(again, lambda message: "seq" in message and message["type"] == "snapshot"))["life"] == snapshot[
            "life"
        ]


async def test_presence_counts_the_viewers(page):
    async with browser(page) as one, browser(page):
        await next_event(one, lambda message: message["type"] == "presence" and message["viewers"] >= 2)


@pytest.mark.parametrize("name", HOST_COMMANDS)
async def test_no_host_operation_from_a_viewers_browser(page, name):
    async with browser(page, subscribe=None) as viewer:
        assert viewer.hello["role"] == "viewer"
        assert await viewer.refused(name, **HOST_COMMANDS[name]) == "host_only"
        assert await viewer.refused(name, **HOST_COMMANDS[name], on_behalf={"role": "host"}) == "not_trusted"


async def test_the_secret_makes_a_host_by_link_or_by_hello(page):
    async with browser(page, host=True, subscribe=None) as host:
        assert host.hello["role"] == "host"
        await host.ok("configure", changes={"max_batch_tokens": 63})
        await host.ok("configure", changes={"max_batch_tokens": 64})
    async with browser(page, subscribe=None) as client:
        wrong = await client.ok("hello", token=SECRET + "x")
        assert wrong["role"] == "viewer" and wrong["warning"].endswith(".")
        assert (await client.ok("hello", token=SECRET))["role"] == "host"


async def test_whoever_sits_at_the_machine_is_host(page):
    async with raw(page.ws) as client:
        assert (await client.ok("hello"))["role"] == "host"
    # A foreign name that was pointed at 127.0.0.1 comes from this machine too, but with its own name.
    port = int(page.url.rsplit(":", 1)[1])
    async with raw(f"ws://rebound.example:{port}/ws", host="127.0.0.1", port=port) as client:
        assert (await client.ok("hello"))["role"] == "viewer"


@pytest.mark.parametrize(
    "origin, welcome",
    [
        ("own", True),
        (None, True),
        ("https://evil.example", False),
        ("http://127.0.0.1:1", False),
        ("null", False),
        ("file://", False),
    ],
)
async def test_cross_origin_connections_are_refused(page, origin, welcome):
    if welcome:
        async with raw(page.ws, origin=page.url if origin == "own" else None) as client:
            await client.ok("rooms")
    else:
        with pytest.raises(InvalidStatus) as refused:
            async with raw(page.ws, origin=origin):
                pass
        assert refused.value.response.status_code == 403


async def test_the_secret_is_never_told(page):
    async with browser(page, host=True) as host:
        told = [host.hello, await host.ok("journal"), await host.ok("rooms"), await host.ok("snapshot")]
        assert SECRET not in json.dumps(told)
    assert SECRET not in "".join(page.log)
    for path in ("/healthz", "/metrics", "/", "/api/rooms/main/history", "/api/rooms/main/qr.svg"):
        with get(page, path) as answer:
            assert SECRET.encode() not in answer.read()


async def test_visitors_are_tags_from_which_their_keys_do_not_follow(page):
    async with browser(page, subscribe=None) as one:
        key, visitor = one.hello["key"], one.hello["visitor"]
        assert key not in visitor and re.fullmatch(r"v[0-9a-f]{12}", visitor)
    async with browser(page, subscribe=None) as again:
        assert again.hello["visitor"] != visitor
        assert (await again.ok("hello", key=key))["visitor"] == visitor


async def test_the_history_replays_to_the_present(page):
    async with browser(page) as client:
        await client.ok("submit", prompt="history", params={"max_new_tokens": 5})
        await next_event(client, lambda message: any(one["to"] == "finished" for one in message.get("transitions", ())))
        state, fresh = empty_state(), await client.ok("snapshot")
        while state["seq"] != fresh["seq"]:  # asked again when something happened between the two
            with get(page, "/api/rooms/main/history?from=0") as answer:
                lines = gzip.decompress(answer.read()).decode().splitlines()
            state = empty_state()
            for line in lines:
                apply_event(state, json.loads(line))
            fresh, before = await client.ok("snapshot"), fresh
            assert before["seq"] <= state["seq"] <= fresh["seq"]
        assert state == fresh["state"]


@pytest.mark.parametrize(
    "path, status",
    [
        ("/api/rooms/nowhere/history", 404),
        ("/api/rooms/main/history?from=x", 400),
        ("/viz/none.js", 404),
        ("/viz/%2e%2e/page.py", 404),
        ("/viz/../page.py", 404),
        ("/viz/.hidden", 404),
        ("/api/rooms/..%2f..%2f/qr.svg", 404),
        ("/v1/models/none", 404),
    ],
)
def test_what_is_not_there_is_said(page, path, status):
    with pytest.raises(HTTPError) as refused:
        get(page, path)
    assert refused.value.code == status


def test_static_files_are_compressed_and_revalidated(page):
    with get(page, "/viz/main.js", **{"Accept-Encoding": "gzip"}) as answer:
        assert answer.headers["content-encoding"] == "gzip" and answer.headers["content-type"].startswith("text/javascript")
        assert b"import" in gzip.decompress(answer.read())
        tag = answer.headers["etag"]
    with pytest.raises(HTTPError) as unchanged:
        get(page, "/viz/main.js", **{"If-None-Match": tag})
    assert unchanged.value.code == 304
    with get(page, "/viz/vendor/plotly-cartesian.min.js", **{"Accept-Encoding": "gzip"}) as answer:
        assert "max-age=604800" in answer.headers["cache-control"]


@pytest.mark.parametrize("path", ["/", "/healthz", "/viz/main.js", "/metrics"])
def test_every_answer_carries_the_security_headers(page, path):
    with get(page, path) as answer:
        policy = answer.headers["content-security-policy"]
        assert "default-src 'self'" in policy and "frame-ancestors 'self'" in policy and "object-src 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_metrics_speak_of_what_happened(page):
    with urlopen(
        Request(page.url + "/v1/completions", json.dumps({"model": "m", "prompt": "count me", "max_tokens": 4}).encode())
    ):
        pass
    with get(page, "/metrics") as answer:
        text = answer.read().decode()
    for name in (
        "num_requests_running",
        "num_requests_waiting",
        "kv_cache_usage_perc",
        "generation_tokens_total",
        "num_preemptions_total",
        "prefix_cache_hits_total",
        "time_to_first_token_seconds_bucket",
        "inter_token_latency_seconds_bucket",
        "request_success_total",
    ):
        assert re.search(rf'^batchscope:{name}{{.*room="main".*}} \d', text, re.M), name


def test_the_join_code_leads_to_the_room_as_the_browser_sees_it(page):
    with get(page, "/api/rooms/abc23/qr.svg", **{"X-Forwarded-Proto": "https", "X-Forwarded-Host": "class.example"}) as answer:
        assert answer.headers["content-type"] == "image/svg+xml" and b"<path" in answer.read()


def test_the_page_process_never_imports_torch(page):
    maps = Path(f"/proc/{page.process.pid}/maps").read_text()
    assert "libtorch" not in maps
    with get(page, "/") as answer:  # Gradio is in by now, or comes later; neither brings torch
        assert answer.status == 200


def test_a_used_port_is_said_in_a_sentence(page):
    import subprocess
    import sys

    port = page.url.rsplit(":", 1)[1]
    done = subprocess.run([sys.executable, "app.py", "--port", port], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 1 and f"Cannot listen on 127.0.0.1:{port}" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_no_process_is_left_behind(how):
    with running() as page:
        engine = page.engine_pid
        assert alive(engine)
        page.stop(how)
        deadline = time.monotonic() + PATIENCE
        while alive(engine):
            assert time.monotonic() < deadline, "the engine outlived the page process"
            time.sleep(0.05)


async def test_a_public_page_has_no_host_but_by_the_link_and_main_is_a_show():
    with running("--public") as page:
        assert any(SECRET in line for line in page.printed) or "host=" in "".join(page.printed)
        async with raw(page.ws) as client:
            assert (await client.ok("hello"))["role"] == "viewer"
            assert await client.refused("submit", prompt="hello") == "main_is_a_show"
            room = (await client.ok("create_room", config={"num_blocks": 16}))["room"]
            await client.ok("subscribe", room=room)
            await client.ok("submit", room=room, prompt="hello", params={"max_new_tokens": 2})
            await client.ok("pause", room=room)
        async with browser(page, host=True) as host:
            await host.ok("submit", prompt="the show", params={"max_new_tokens": 2})


async def test_attaching_to_a_remote_engine_needs_its_token():
    from tests.server.helpers import serving

    async with serving(token="remote-token") as (_, url):
        page = await asyncio.to_thread(
            Page, "--engine", url, "--engine-token-env", "REMOTE", environment={"REMOTE": "remote-token"}
        )
        try:
            await asyncio.to_thread(page.until_ready)
            assert page.health()["engine"]["kind"] == "remote"
            async with browser(page, host=True) as host:
                await host.ok("pause")
                await host.ok("resume")
        finally:
            await asyncio.to_thread(page.stop)
