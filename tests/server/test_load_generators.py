"""What public load generators need of the OpenAI endpoint: their requests as they send them, many at once, and streams whose chunks
are the tokens, because their latency figures are the times between chunks."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from tests.server.helpers import assert_sentence
from tests.server.page import Page, browser, running

# As `vllm bench serve` and `guidellm` send them (with their defaults, and nulls where they leave something unset).
VLLM_TEXT = {"model": "any", "prompt": "some random words " * 8, "repetition_penalty": 1.0, "max_tokens": 12, "logprobs": None, "stream": True,
             "stream_options": {"include_usage": True}, "ignore_eos": True, "temperature": 0.0}
VLLM_CHAT = {"model": "any", "messages": [{"role": "user", "content": [{"type": "text", "text": "some random words"}]}],
             "max_completion_tokens": 12, "stream": True, "stream_options": {"include_usage": True}, "ignore_eos": True}
GUIDELLM_TEXT = {"model": "any", "prompt": "some random words " * 8, "stream": True, "max_tokens": 12, "stop": None, "ignore_eos": True,
                 "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
GUIDELLM_CHAT = {"model": "any", "messages": [{"role": "user", "content": "some random words"}], "stream": True, "max_completion_tokens": 12,
                 "stop": None, "ignore_eos": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
SENT = {"vllm text": VLLM_TEXT, "vllm chat": VLLM_CHAT, "guidellm text": GUIDELLM_TEXT, "guidellm chat": GUIDELLM_CHAT}


@dataclass
class Stream:
    """One streamed answer as a generator sees it: each chunk with the time it came."""

    chunks: list[dict[str, Any]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    done: bool = False

    @property
    def with_choices(self) -> list[dict[str, Any]]:
        return [chunk for chunk in self.chunks if chunk["choices"]]

    @property
    def text(self) -> str:
        choices = [chunk["choices"][0] for chunk in self.with_choices]
        return "".join(choice.get("text", choice.get("delta", {}).get("content")) or "" for choice in choices)


async def stream(client: httpx.AsyncClient, body: dict[str, Any]) -> Stream:
    path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
    seen = Stream()
    async with client.stream("POST", path, json=body) as answer:
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["content-type"].startswith("text/event-stream")
        async for line in answer.aiter_lines():
            if not line:
                continue
            assert line.startswith("data: "), line
            if line == "data: [DONE]":
                seen.done = True
                continue
            assert not seen.done, "nothing may follow [DONE]"
            seen.chunks.append(json.loads(line.removeprefix("data: ")))
            seen.times.append(time.monotonic())
    return seen


@pytest.fixture
async def client(page: Page):
    async with httpx.AsyncClient(base_url=page.url, timeout=60, limits=httpx.Limits(max_connections=None)) as made:
        yield made


# --- before the load ------------------------------------------------------------------------------------------------------------

async def test_the_health_route_says_whether_prompts_are_answered(client):
    assert (await client.get("/health")).status_code == 200
    down = Page("--engine", "ws://127.0.0.1:9")                      # nothing listens there
    try:
        down.until(lambda health: True, "the page")
        async with httpx.AsyncClient() as plain:
            assert (await plain.get(f"{down.url}/health")).status_code == 503
    finally:
        down.stop()


async def test_the_model_list_names_the_tokenizer_and_the_longest_request(client):
    (card,) = (await client.get("/v1/models")).json()["data"]
    assert card["root"] == card["id"] and card["parent"] is None
    longest = {"model": card["id"], "prompt": [5] * (card["max_model_len"] - 1), "max_tokens": 1}
    assert (await client.post("/v1/completions", json=longest)).status_code == 200
    refused = await client.post("/v1/completions", json={**longest, "max_tokens": 3})
    assert refused.status_code == 400
    assert_sentence(refused.json()["error"]["message"])


# --- streams --------------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", list(SENT))
async def test_a_generators_request_gets_one_chunk_for_each_token_then_the_usage(client, name):
    seen = await stream(client, SENT[name])
    assert seen.done and len(seen.with_choices) == 12
    choices = [chunk["choices"][0] for chunk in seen.with_choices]
    assert [choice["finish_reason"] for choice in choices] == [None] * 11 + ["length"]
    if "chat" in name:
        assert [("role" in choice["delta"]) for choice in choices] == [True] + [False] * 11
    assert seen.chunks[-1]["choices"] == [] and seen.chunks[-1]["usage"]["completion_tokens"] == 12
    assert len({chunk["id"] for chunk in seen.chunks}) == 1
    if "guidellm" in name:
        assert [chunk["usage"]["completion_tokens"] for chunk in seen.with_choices] == list(range(1, 13))
        assert {chunk["usage"]["prompt_tokens"] for chunk in seen.chunks} == {seen.chunks[-1]["usage"]["prompt_tokens"]}
    else:
        assert [chunk["usage"] for chunk in seen.with_choices] == [None] * 12, "usage stands in every chunk, null before the last"


async def test_the_streams_chunks_are_the_whole_answer(client):
    for body in (VLLM_TEXT, VLLM_CHAT):
        seen = await stream(client, {**body, "seed": 3})
        path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
        plain = {key: value for key, value in body.items() if key not in ("stream", "stream_options")}
        choice = (await client.post(path, json={**plain, "seed": 3})).json()["choices"][0]
        assert seen.text == choice.get("text", choice.get("message", {}).get("content"))


async def test_the_first_chunk_comes_with_the_first_token_and_not_before(page, client):
    """Generators take it for the time to first token, so it must not come while the request only waits."""
    async with browser(page, host=True) as host:
        await host.ok("pause")
        asked = asyncio.create_task(stream(client, VLLM_CHAT))
        await asyncio.sleep(0.5)
        resumed = time.monotonic()
        await host.ok("resume")
        seen = await asked
    assert seen.times[0] > resumed and seen.chunks[0]["choices"][0]["delta"]["content"]


async def test_many_streams_at_once_are_all_served_and_run_together(client):
    """Thirty-two users of one machine, each asking twice, as a generator with a limit on its concurrency does."""
    async def user(number: int) -> list[Stream]:
        return [await stream(client, {**SENT[name], "seed": number}) for name in ("vllm text", "guidellm chat")]
    answers = [seen for pair in await asyncio.gather(*map(user, range(32))) for seen in pair]
    assert len(answers) == 64 and all(seen.done and len(seen.with_choices) == 12 for seen in answers)


async def test_a_load_as_fast_as_it_can_be_sent_is_not_refused_to_the_host(client):
    """More at once than strangers may send: from the machine itself there is no limit on the rate."""
    body = {"model": "any", "prompt": [7, 8], "max_tokens": 1}
    codes = [(await client.post("/v1/completions", json=body)).status_code for _ in range(40)]
    many = await asyncio.gather(*(client.post("/v1/completions", json=body) for _ in range(240)))
    assert {*codes, *(answer.status_code for answer in many)} == {200}


async def test_a_stranger_who_sends_too_fast_is_told_so(page):
    """The same load through a proxy, from a page that strangers visit."""
    with running("--public", limits={"messages_per_second": 2, "message_burst": 5}) as public:
        async with httpx.AsyncClient(base_url=public.url, headers={"X-Forwarded-For": "203.0.113.9"}) as plain:
            answers = [await plain.get("/v1/models") for _ in range(3)]
            codes = {(await plain.post("/v1/completions", json={"prompt": [7], "max_tokens": 1})).status_code for _ in range(12)}
    assert {answer.status_code for answer in answers} == {200} and 429 in codes


# --- fields ---------------------------------------------------------------------------------------------------------------------

async def test_a_field_that_is_null_asks_for_nothing_whatever_its_name(client):
    answer = await client.post("/v1/completions", json={"model": None, "prompt": "x", "max_tokens": 2, "lora_path": None, "stop": None})
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("fields", [{"priority": 0}, {"stop_token_ids": []}, {"use_beam_search": False}, {"request_id": "abc"}, {"best_of": 1}])
async def test_fields_of_other_servers_are_taken_at_their_neutral_values(client, fields):
    assert (await client.post("/v1/completions", json={"prompt": "x", "max_tokens": 2, **fields})).status_code == 200


@pytest.mark.parametrize("fields", [{"priority": 3}, {"use_beam_search": True}, {"stop_token_ids": [4]}, {"lora_path": "x"}, {"min_tokens": 5}])
async def test_what_would_matter_and_cannot_be_done_is_refused(client, fields):
    answer = await client.post("/v1/completions", json={"prompt": "x", "max_tokens": 2, **fields})
    assert answer.status_code == 400
    assert_sentence(answer.json()["error"]["message"])


async def test_min_tokens_keeps_an_answer_from_ending_early(client):
    """The simulated device's answers are made of known texts, so a stop text can be chosen that comes at once."""
    ask = {"prompt": "the same words", "max_tokens": 20, "temperature": 0.0, "seed": 1}
    whole = (await client.post("/v1/completions", json=ask)).json()
    stop = whole["choices"][0]["text"].strip()[:3]
    short = (await client.post("/v1/completions", json={**ask, "stop": [stop]})).json()
    longer = (await client.post("/v1/completions", json={**ask, "stop": [stop], "min_tokens": 15})).json()
    assert short["choices"][0]["finish_reason"] == "stop" and short["usage"]["completion_tokens"] < 15
    assert longer["usage"]["completion_tokens"] >= 15
    assert whole["choices"][0]["text"].startswith(longer["choices"][0]["text"])
