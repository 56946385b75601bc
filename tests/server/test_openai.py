"""The unchanged ``openai`` package drives the engine that is on the screen."""

from __future__ import annotations

import asyncio

import httpx
import openai
import pytest

from tests.server.helpers import assert_sentence
from tests.server.page import SECRET, browser, next_event


@pytest.fixture
async def client(page):
    async with openai.AsyncOpenAI(base_url=f"{page.url}/v1", api_key="none", max_retries=0) as made:
        yield made


async def test_a_completion_has_text_reason_and_usage(client):
    models = [model.id async for model in client.models.list()]
    answer = await client.completions.create(model=models[0], prompt="Once upon a time", max_tokens=7)
    assert answer.choices[0].finish_reason == "length" and answer.choices[0].text
    assert answer.usage.completion_tokens == 7 and answer.usage.total_tokens == answer.usage.prompt_tokens + 7


async def test_a_streamed_chat_is_the_whole_answer_in_pieces(client):
    ask = {"model": "any", "messages": [{"role": "user", "content": "Tell me something"}], "max_tokens": 12, "seed": 5}
    whole = await client.chat.completions.create(**ask)
    pieces, reasons, usage = [], [], None
    async for chunk in await client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            pieces.append(choice.delta.content or "")
            reasons.append(choice.finish_reason)
    assert "".join(pieces) == whole.choices[0].message.content
    assert [reason for reason in reasons if reason] == ["length"]
    assert usage.completion_tokens == 12


async def test_several_prompts_and_several_samples_are_choices_in_order(client):
    answer = await client.completions.create(
        model="any", prompt=["first prompt", "second prompt"], n=2, max_tokens=4, temperature=1.0
    )
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert answer.usage.completion_tokens == 16


async def test_token_prompts_and_logprobs_have_the_form_of_the_original(client):
    answer = await client.completions.create(model="any", prompt=[5, 6, 7, 8], max_tokens=3)
    assert answer.usage.prompt_tokens == 4
    chat = await client.chat.completions.create(
        model="any",
        messages=[{"role": "user", "content": [{"type": "text", "text": "parts"}]}],
        max_tokens=3,
        logprobs=True,
        top_logprobs=2,
    )
    assert len(chat.choices[0].logprobs.content) == 3


@pytest.mark.parametrize(
    "changes, kind",
    [
        ({"prompt": ""}, openai.BadRequestError),
        ({"prompt": []}, openai.BadRequestError),
        ({"prompt": ["good", ""]}, openai.BadRequestError),
        ({"max_tokens": 100_000}, openai.BadRequestError),
        ({"max_tokens": -1}, openai.BadRequestError),
        ({"temperature": "hot"}, openai.BadRequestError),
        ({"frequency_penalty": 1.0}, openai.BadRequestError),
        ({"model": "any@nowhere"}, openai.NotFoundError),
        ({"extra_body": {"surprise": 1}}, openai.BadRequestError),
        ({"stop": [""]}, openai.BadRequestError),
        ({"prompt": [10**9]}, openai.BadRequestError),
    ],
)
async def test_what_cannot_be_done_is_an_error_of_its_kind_with_a_sentence(client, changes, kind):
    with pytest.raises(kind) as refused:
        await client.completions.create(**{"model": "any", "prompt": "hello", "max_tokens": 4, **changes})
    assert_sentence(refused.value.body["message"])
    assert refused.value.body["code"]


@pytest.mark.parametrize(
    "body", [b"", b"not json", b"[]", b"\xff\xfe", b'{"prompt": NaN}', b"[" * 100_000, b'{"prompt": {"a": 1}}']
)
async def test_a_malformed_body_is_a_clear_400(page, body):
    async with httpx.AsyncClient() as plain:
        answer = await plain.post(f"{page.url}/v1/completions", content=body)
    assert answer.status_code == 400
    assert_sentence(answer.json()["error"]["message"])


async def test_an_endless_body_is_cut_off(page):
    async def endless():
        for _ in range(64):
            yield b" " * 65536

    async with httpx.AsyncClient() as plain:
        answer = await plain.post(f"{page.url}/v1/completions", content=endless())
    assert answer.status_code == 413


async def test_hanging_up_in_the_middle_cancels_the_request(page, client):
    async with browser(page, host=True) as host:
        await host.ok("pace", steps_per_second=50)
        stream = await client.completions.create(model="any", prompt="a long answer please", max_tokens=2000, stream=True)
        async for _ in stream:
            break
        await stream.close()
        await next_event(host, lambda message: any(one["cause"] == "cancelled" for one in message.get("transitions", ())))
        waiting = asyncio.create_task(client.completions.create(model="any", prompt="another long answer", max_tokens=2000))
        await next_event(host, lambda message: message.get("tokens"))
        waiting.cancel()
        await next_event(host, lambda message: any(one["cause"] == "cancelled" for one in message.get("transitions", ())))
        await host.ok("pace", steps_per_second=0)


async def test_a_room_can_be_named_behind_the_model(page, client):
    async with browser(page, subscribe=None) as owner:
        room = (await owner.ok("create_room", config={"num_blocks": 32}))["room"]
        answer = await client.completions.create(model=f"any@{room}", prompt="in the room", max_tokens=3)
        assert answer.usage.completion_tokens == 3
        await owner.ok("close_room", room=room)


async def test_the_show_can_be_driven_by_many_clients_at_once(client):
    answers = await asyncio.gather(
        *(client.completions.create(model="any", prompt=f"client {number}", max_tokens=5) for number in range(40))
    )
    assert all(answer.usage.completion_tokens == 5 for answer in answers)


async def test_the_hosts_secret_works_as_a_key(page):
    async with openai.AsyncOpenAI(base_url=f"{page.url}/v1", api_key=SECRET, max_retries=0) as host:
        assert (await host.completions.create(model="any", prompt="x", max_tokens=1)).usage.completion_tokens == 1
