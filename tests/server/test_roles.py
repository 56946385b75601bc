"""Roles are enforced in the engine: a raw websocket without the token can do nothing that only a host may."""

from __future__ import annotations

import json
import logging

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from engine.protocol import COMMANDS
from tests.server.helpers import raw, serving

TOKEN = "correct-horse-battery-staple"
HOST_COMMANDS = {
    "configure": {"changes": {"max_batch_tokens": 8}},
    "pause": {},
    "resume": {},
    "step": {"count": 1},
    "pace": {"steps_per_second": 5},
    "reset": {},
    "workload": {"workload": {"num_requests": 1}},
    "workload_stop": {},
    "close_room": {"room": "main"},
}


def test_the_list_of_host_commands_is_complete():
    assert {name for name, spec in COMMANDS.items() if spec.host} == set(HOST_COMMANDS)


@pytest.mark.parametrize("name", HOST_COMMANDS)
async def test_a_viewer_may_not(name):
    async with serving(token=TOKEN) as (server, url), raw(url) as viewer:
        before = server.manager.main.engine.config
        assert (await viewer.ok("hello"))["role"] == "viewer"
        assert await viewer.refused(name, **HOST_COMMANDS[name]) == "host_only"
        assert server.manager.main.engine.config is before and not server.manager.main.paused


@pytest.mark.parametrize("name", HOST_COMMANDS)
async def test_a_viewer_cannot_claim_to_speak_for_a_host(name):
    async with serving(token=TOKEN) as (_, url), raw(url) as viewer:
        assert await viewer.refused(name, **HOST_COMMANDS[name], on_behalf={"role": "host"}) == "not_trusted"


@pytest.mark.parametrize("name", sorted(set(HOST_COMMANDS) - {"close_room"}))
async def test_the_token_makes_a_host_and_its_viewers_stay_viewers(name):
    async with serving(token=TOKEN) as (_, url), raw(url) as page:
        assert (await page.ok("hello", token=TOKEN))["role"] == "host"
        assert await page.refused(name, **HOST_COMMANDS[name], on_behalf={"role": "viewer", "visitor": "v1"}) == "host_only"
        assert await page.refused(name, **HOST_COMMANDS[name], on_behalf={"visitor": "v1"}) == "host_only"
        await page.ok(name, **HOST_COMMANDS[name], on_behalf={"role": "host", "visitor": "v2"})


async def test_a_wrong_token_stays_a_viewer_and_the_third_one_ends_the_connection():
    async with serving(token=TOKEN) as (_, url), raw(url) as client:
        assert await client.refused("hello", token="wrong") == "bad_token"
        assert await client.refused("pause") == "host_only"
        assert await client.refused("hello", token="wronger") == "bad_token"
        with pytest.raises(ConnectionClosed):
            await client.refused("hello", token="")
            await client.receive()


async def test_the_creator_of_a_room_is_its_host_and_nobody_else():
    async with serving(token=TOKEN) as (_, url), raw(url) as one, raw(url) as other:
        room = (await one.ok("create_room", config={"num_blocks": 16}))["room"]
        await one.ok("pause", room=room)
        await one.ok("configure", room=room, changes={"max_batch_tokens": 8})
        assert await other.refused("resume", room=room) == "host_only"
        assert await other.refused("close_room", room=room) == "host_only"
        # A code is an invitation: who knows it may watch and send, but it is not in the list of others.
        await other.ok("subscribe", room=room)
        await other.ok("submit", room=room, prompt="hello", params={"max_new_tokens": 2})
        assert room not in {entry["room"] for entry in (await other.ok("rooms"))["rooms"]}
        assert room in {entry["room"] for entry in (await one.ok("rooms"))["rooms"]}
        await one.ok("close_room", room=room)


async def test_a_viewer_cancels_only_requests_of_its_own():
    async with serving(token=TOKEN) as (_, url), raw(url) as host, raw(url) as one, raw(url) as other:
        await host.ok("hello", token=TOKEN)
        await host.ok("pause")
        mine = (await one.ok("submit", prompt="mine"))["ids"]
        theirs = (await other.ok("submit", prompt="theirs"))["ids"]
        assert await one.refused("cancel", request=theirs[0]) == "not_yours"
        assert (await one.ok("cancel_all"))["cancelled"] == mine
        assert (await host.ok("cancel_all"))["cancelled"] == theirs


async def test_a_show_takes_prompts_from_the_host_alone():
    async with serving(token=TOKEN, main_open=False) as (_, url), raw(url) as host, raw(url) as viewer:
        await host.ok("hello", token=TOKEN)
        assert await viewer.refused("submit", prompt="hello") == "main_is_a_show"
        await host.ok("submit", prompt="hello", params={"max_new_tokens": 1})


@pytest.mark.parametrize(
    "origin, welcome",
    [
        (None, True),
        ("https://good.example", True),
        ("https://evil.example", False),
        ("http://127.0.0.1:9999", False),
        ("null", False),
    ],
)
async def test_web_pages_of_other_origins_are_kept_out(origin, welcome):
    async with serving(origins=("https://good.example",)) as (_, url):
        if welcome:
            async with raw(url, origin=origin) as client:
                await client.ok("rooms")
        else:
            with pytest.raises(InvalidStatus) as refused:
                async with raw(url, origin=origin):
                    pass
            assert refused.value.response.status_code == 403


async def test_the_token_is_in_no_event_answer_or_log(caplog):
    caplog.set_level(logging.DEBUG)
    async with serving(token=TOKEN) as (_, url), raw(url) as client:
        heard = [
            await client.answer("hello", token=TOKEN),
            await client.answer("subscribe"),
            await client.answer("journal"),
            await client.answer("submit", prompt="x", params={"max_new_tokens": 1}),
            await client.answer("hello", token=TOKEN[:-1]),
        ]
        assert TOKEN not in json.dumps(heard + client.events)
    assert TOKEN not in "".join(record.getMessage() for record in caplog.records if not record.name.startswith("websockets"))
