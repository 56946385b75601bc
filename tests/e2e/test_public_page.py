"""A public page, as a stranger finds it: the show in main, a room of one's own with the first prompt, and only text is text."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.served import App

HOSTILE = "<img src=x onerror=\"window.hacked=1\"><script>window.hacked=1</script>"


@pytest.fixture(scope="module")
def public() -> Iterator[App]:
    started = App("--public", "--device", "simulated:h100", "--model", "llama-8b").until_ready()
    yield started
    started.stop()


def test_the_first_prompt_opens_a_room_of_the_strangers_own(public: App, open_page: Callable[..., Page]):
    page = open_page(public.url)
    assert page.evaluate("batchscope.hello.role") == "viewer"
    page.locator("#bs-prompt textarea").fill(HOSTILE)
    page.locator("#bs-send").click()
    page.wait_for_function("batchscope.socket.room !== 'main' && Object.keys(batchscope.store.head.requests).length === 1")
    page.wait_for_function("Object.values(batchscope.store.head.requests)[0].outputs > 3")
    assert page.evaluate("Object.values(batchscope.store.head.requests)[0].prompt") == HOSTILE
    expect(page.locator(".bs-answer-prompt")).to_have_text(HOSTILE)
    assert page.evaluate("window.hacked") is None
    expect(page.locator("img[src=x]")).to_have_count(0)


def test_what_strangers_say_is_shown_as_text_to_everybody(public: App, open_page: Callable[..., Page]):
    one = open_page(public.url)
    room = one.evaluate("""async (text) => {
        const { room } = await batchscope.socket.command('create_room', { title: text });
        await batchscope.socket.command('submit', { room, prompt: text, params: { max_new_tokens: 5, stop: [text] } });
        return room; }""", HOSTILE)
    other = open_page(f"{public.url}?room={room}")
    other.wait_for_function("Object.keys(batchscope.store.head.requests).length === 1")
    expect(other.locator(".bs-answer-prompt")).to_have_text(HOSTILE)
    expect(other.locator(".bs-lane-chips .bs-chip")).to_have_count(1)
    assert other.evaluate("window.hacked") is None
    expect(other.locator("img[src=x]")).to_have_count(0)
