"""Bad input over the websocket: one sentence each, nobody else harmed, the engine alive."""

from __future__ import annotations

import pytest

from tests.server.helpers import raw, serving, until

TINY = {"block_size": 4, "num_blocks": 2, "max_batch_tokens": 8, "max_requests_per_batch": 4}


async def still_serves(server, client) -> None:
    before = server.manager.main.engine.recorder.counters["finished"]
    await client.ok("submit", prompt_tokens=[1, 2], params={"max_new_tokens": 2})
    await until(lambda: server.manager.main.engine.recorder.counters["finished"] > before, "a good request")
    await until(lambda: not server.manager.main.visitor_of, "idleness")
    server.manager.main.engine.check_integrity()


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt": ""},
        {"prompt_tokens": []},
        {"messages": []},
        {"messages": [{"role": "user", "content": ""}]},
        {},
        {"prompt": "a", "prompt_tokens": [1]},
        {"prompt": "a", "messages": []},
        {"requests": []},
        {"requests": [{"prompt": "a"}], "prompt": "b"},
        {"prompt": 7},
        {"prompt_tokens": "abc"},
        {"prompt_tokens": [1, "2"]},
        {"prompt_tokens": [True]},
        {"prompt_tokens": [-1]},
        {"prompt_tokens": [10**9]},
        {"prompt_tokens": [1.5]},
        {"messages": [{"role": "wizard", "content": "x"}]},
        {"messages": [{"role": "user"}]},
        {"messages": ["hello"]},
        {"messages": [{"role": "user", "content": "x", "extra": 1}]},
        {"prompt": "a", "chat": "yes"},
        {"prompt": "a", "temperature": 1},
        {"prompt": "a", "params": {"max_new_tokens": -1}},
        {"prompt": "a", "params": {"max_new_tokens": 1.5}},
        {"prompt": "a", "params": {"max_new_tokens": "4"}},
        {"prompt": "a", "params": {"temperature": -0.1}},
        {"prompt": "a", "params": {"top_p": 0}},
        {"prompt": "a", "params": {"n": 0}},
        {"prompt": "a", "params": {"stop": [""]}},
        {"prompt": "a", "params": {"stop": ["x"] * 99}},
        {"prompt": "a", "params": {"beam": 4}},
        {"prompt": "a", "params": []},
        {"prompt": "a", "params": {"seed": -1}},
        {"prompt": "a", "params": {"ignore_eos": 1}},
        {"prompt": "a", "params": {"logprobs": 21}},
        {"prompt": "word " * 200_000},
    ],
)
async def test_a_bad_request_is_refused_with_a_sentence_and_the_engine_serves_on(fields):
    async with serving() as (server, url), raw(url) as client:
        code = await client.refused("submit", **fields)
        assert code != "internal_error", code
        await still_serves(server, client)


async def test_in_a_batch_only_the_bad_ones_are_refused():
    bad = [
        {"prompt": ""},
        {"prompt_tokens": []},
        "text",
        {"prompt": "x", "surprise": 1},
        {"prompt": "x", "params": {"max_new_tokens": 10**6}},
    ]
    async with serving() as (server, url), raw(url) as client:
        good = {"prompt": "good", "params": {"max_new_tokens": 3}}
        answer = await client.ok("submit", requests=[good, *bad, good])
        assert len(answer["ids"]) == 2
        assert [one["index"] for one in answer["refused"]] == [1, 2, 3, 4, 5]
        await until(lambda: server.manager.main.engine.recorder.counters["finished"] == 2, "the good ones")


async def test_zero_new_tokens_is_a_request_that_ends_at_once():
    async with serving() as (server, url), raw(url) as client:
        (name,) = (await client.ok("submit", prompt="nothing please", params={"max_new_tokens": 0}))["ids"]
        request = server.manager.main.engine.requests[name]
        assert request.state.value == "finished" and request.num_output_tokens == 0


async def test_one_seed_for_many_prompts_gives_each_its_own():
    async with serving() as (server, url), raw(url) as client:
        same = {"prompt": "same", "params": {"max_new_tokens": 8, "temperature": 1.0, "seed": 7}}
        ids = (await client.ok("submit", requests=[same] * 4))["ids"]
        await until(lambda: server.manager.main.engine.recorder.counters["finished"] == 4, "the end")
        assert len({server.manager.main.engine.requests[name].seed for name in ids}) == 4


async def test_a_prompt_that_fills_the_cache_leaves_no_room_for_its_output():
    """2 blocks × 4 tokens, an 8-token prompt, 4 new tokens: refused by name; the engine serves on."""
    async with serving(config=TINY) as (server, url), raw(url) as client:
        assert await client.refused("submit", prompt_tokens=[1] * 8, params={"max_new_tokens": 4}) == "never_fits"
        await still_serves(server, client)


async def test_a_prompt_longer_than_the_cache_does_not_block_the_one_behind_it():
    async with serving(config=TINY) as (server, url), raw(url) as client:
        answer = await client.ok(
            "submit",
            requests=[
                {"prompt_tokens": [1] * 12, "params": {"max_new_tokens": 1}},
                {"prompt_tokens": [1, 2], "params": {"max_new_tokens": 2}},
            ],
        )
        assert len(answer["ids"]) == 1 and answer["refused"][0]["code"] == "never_fits"
        await until(lambda: server.manager.main.engine.recorder.counters["finished"] == 1, "the second")


async def test_five_prompts_that_can_never_fit_are_five_refusals():
    async with serving(config={"block_size": 16, "num_blocks": 49}) as (server, url), raw(url) as client:
        answer = await client.ok("submit", requests=[{"prompt_tokens": [1] * 1002, "params": {"max_new_tokens": 1}}] * 5)
        assert answer["ids"] == [] and [one["code"] for one in answer["refused"]] == ["never_fits"] * 5
        await still_serves(server, client)


async def test_prompt_and_output_of_exactly_the_capacity_are_admitted():
    async with serving(config=TINY) as (server, url), raw(url) as client:
        await client.ok("submit", prompt_tokens=[1, 2, 3], params={"max_new_tokens": 6, "ignore_eos": True})
        await until(lambda: server.manager.main.engine.recorder.counters["finished"] == 1, "the end")


@pytest.mark.parametrize("changes", [{"num_blocks": 1}, {"block_size": 5, "num_blocks": 1}, {"max_kv_read_tokens": 1}])
async def test_a_config_that_would_strand_a_request_is_refused_and_nothing_changes(changes):
    async with serving() as (server, url), raw(url) as client:
        await client.ok("pause")
        await client.ok("submit", prompt="a few words here", params={"max_new_tokens": 40})
        before = server.manager.main.engine.config
        assert await client.refused("configure", changes=changes) == "config_strands"
        assert server.manager.main.engine.config == before
        await client.ok("resume")
        await until(lambda: server.manager.main.engine.recorder.counters["finished"] == 1, "the end")


@pytest.mark.parametrize(
    "text",
    [
        "<img src=x onerror=alert(1)>",
        "\x00\x01\x02",
        "🧑‍🚀" * 50,
        "\u202eoverridden",
        "'; DROP TABLE requests; --",
        "\ufeff",
        " ",
    ],
)
async def test_any_text_is_only_text(text):
    async with serving() as (server, url), raw(url) as client:
        answer = await client.answer("submit", prompt=text, params={"max_new_tokens": 2})
        assert answer["type"] == "ack" or answer["code"] in ("empty_prompt",)
        await still_serves(server, client)
