"""The live tab as a person uses it, on the real model."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.served import App, Commands

LONG = "The keeper of the lighthouse wrote down every ship that passed the rocks. " * 12


def expect_in_lane(page: Page, lane: str, count: int) -> None:
    """The lane's own count: it is drawn in the frames after the event."""
    expect(page.locator(f'.bs-lane[data-lane="{lane}"] .bs-lane-head b')).to_have_text(str(count))


def until_step(page: Page, count: int) -> None:
    """Steps are run after their command has been answered, and then they have to come here."""
    page.wait_for_function("count => batchscope.store.head.counters.steps === count", arg=count)


def head(page: Page, expression: str):
    """An expression over ``s``, the newest state in the page's store."""
    return page.evaluate(f"(() => {{ const s = batchscope.store.head; return {expression}; }})()")


def write(page: Page, prompt: str) -> None:
    page.locator("#bs-prompt textarea").fill(prompt)


def test_a_typed_prompt_moves_through_the_lanes_fills_and_empties_blocks_and_streams_its_answer(live: Page, commands: Commands):
    commands("pace", room="main", steps_per_second=8)
    write(live, "Why is the sea salty?")
    live.locator("#bs-send").click()
    decoding = live.locator('.bs-lane[data-lane="decoding"] .bs-chip')
    expect(decoding).to_have_count(1)
    live.wait_for_function("Number(document.querySelector('[data-count=owned]').textContent) > 0")
    answer = live.locator(".bs-answer p")
    live.wait_for_function("document.querySelector('.bs-answer p')?.textContent.length > 5")
    early = answer.inner_text()
    # Words and blocks at one moment: while the answer grows, it holds blocks.
    live.wait_for_function("""length => document.querySelector('.bs-answer p').textContent.length > length + 10
        && Number(document.querySelector('[data-count=owned]').textContent) > 0""", arg=len(early))
    commands("pace", room="main", steps_per_second=0)
    expect(live.locator('.bs-lane[data-lane="finished"] .bs-chip')).to_have_count(1)
    expect(decoding).to_have_count(0)
    live.wait_for_function("document.querySelector('[data-count=owned]').textContent === '0'")
    state = commands("snapshot", room="main")["state"]
    (request,) = state["requests"].values()
    assert request["text"].startswith(early[:5])
    # The words are redrawn ten times a second, so they may come up to that much after the lanes.
    live.wait_for_function("text => document.querySelector('.bs-answer p').textContent === text", arg=request["text"])
    assert live.locator("#bs-ask-message").inner_text() != ""


def test_prefill_slices_and_decodes_are_seen_in_one_step(live: Page, commands: Commands):
    commands("pause", room="main")
    commands("submit", room="main", prompt="One two three", params={"max_new_tokens": 40, "ignore_eos": True})
    commands("step", room="main", count=3)
    # A step is run after its command is answered: the long prompt must come when these three are over.
    live.wait_for_function("Object.values(batchscope.store.head.requests)[0]?.outputs === 3")
    commands("submit", room="main", prompt=LONG, params={"max_new_tokens": 8})
    commands("step", room="main", count=1)
    live.wait_for_function("batchscope.store.head.last.slices.length === 2")
    expect(live.locator('[data-figure="decode"]')).to_have_text("1")
    expect(live.locator('[data-figure="prefill"]')).to_have_text("63")
    expect(live.locator('[data-figure="unused"]')).to_have_text("0")
    expect(live.locator('.bs-lane[data-lane="prefilling"] .bs-chip')).to_have_count(1)


def test_turning_max_batch_tokens_is_obeyed_by_the_very_next_step(live: Page, commands: Commands):
    commands("pause", room="main")
    commands("submit", room="main", prompt=LONG, params={"max_new_tokens": 4})
    commands("step", room="main", count=1)
    live.wait_for_function("batchscope.store.head.last.slices[0]?.[2] === 64")
    knob = live.locator("#bs-knob-max_batch_tokens")
    knob.fill("8")
    knob.press("Enter")
    live.wait_for_function("batchscope.store.head.config.max_batch_tokens === 8")
    commands("step", room="main", count=1)
    live.wait_for_function("batchscope.store.head.last.slices[0]?.[2] === 8")
    expect(live.locator('[data-figure="prefill"]')).to_have_text("8")


def test_a_knob_that_rebuilds_the_cache_loses_no_request(live: Page, commands: Commands):
    commands("pause", room="main")
    commands("submit", room="main", prompt=LONG, params={"max_new_tokens": 12, "ignore_eos": True})
    commands("step", room="main", count=6)
    until_step(live, 6)
    knob = live.locator("#bs-knob-block_size")
    knob.fill("32")
    knob.press("Enter")
    live.wait_for_function("batchscope.store.head.layout.block_size === 32")
    commands("resume", room="main")
    live.wait_for_function("batchscope.store.head.counters.finished === 1")
    assert head(live, "Object.values(s.requests)[0].outputs") == 12


def test_send_eight_at_once_starts_eight_lives_of_different_length(live: Page, commands: Commands):
    commands("pause", room="main")
    live.locator("[data-example=list]").click()
    expect(live.locator("#bs-prompt textarea")).to_have_value(re.compile("lighthouse"))
    live.locator("#bs-send8").click()
    live.wait_for_function("Object.keys(batchscope.store.head.requests).length === 8")
    assert len(set(head(live, "Object.values(s.requests).map((r) => r.params.max_new_tokens)"))) >= 5
    expect_in_lane(live, "pending", 8)
    commands("resume", room="main")
    live.wait_for_function("batchscope.store.head.counters.finished === 8", timeout=90000)
    expect_in_lane(live, "finished", 8)


def test_a_bad_prompt_gets_a_sentence_and_the_engine_serves_on(live: Page):
    live.locator("#bs-send").click()
    message = live.locator("#bs-ask-message")
    expect(message).to_contain_text("empty")
    expect(message).to_have_attribute("data-kind", "error")
    expect(live.locator("#bs-prompt textarea")).to_have_attribute("aria-invalid", "true")
    write(live, LONG * 12)
    live.locator("#bs-send").click()
    expect(message).to_contain_text(re.compile(r"\d"))
    expect(message).to_have_attribute("data-kind", "error")
    write(live, "Hello")
    live.locator("#bs-send").click()
    expect(message).to_have_attribute("data-kind", "good")
    live.wait_for_function("batchscope.store.head.counters.finished === 1")


@pytest.mark.parametrize(("knob", "typed", "said"), [
    ("max_batch_tokens", "0", "between 1 and"), ("max_batch_tokens", "many", "whole number"), ("safety_margin", "2", "between 0 and"),
    ("block_size", "2", "between 4 and"), ("max_requests_per_batch", "", "")])
def test_a_knob_that_cannot_work_says_why_and_keeps_its_value(live: Page, knob: str, typed: str, said: str):
    before = head(live, f"s.config.{knob}")
    field = live.locator(f"#bs-knob-{knob}")
    field.fill(typed)
    field.press("Enter")
    sentence = live.locator(f'[data-knob="{knob}"] .bs-sentence')
    expect(sentence).to_contain_text(said or knob)
    expect(field).to_have_value("" if before is None else str(before))
    expect(field).to_have_attribute("aria-invalid", "true")
    assert head(live, f"s.config.{knob}") == before


def test_async_without_graphs_is_refused_where_it_was_asked(live: Page):
    live.locator('.bs-knobs:has([data-group="graphs"]) > summary').click()
    live.locator("#bs-knob-use_async_batching").click()
    expect(live.locator('[data-knob="use_async_batching"] .bs-sentence')).to_contain_text("use_cuda_graph")
    expect(live.locator("#bs-knob-use_async_batching")).not_to_be_checked()


def test_the_waiting_list_shows_the_schedulers_own_reason(live: Page, commands: Commands):
    commands("configure", room="main", changes={"max_requests_per_batch": 1})
    commands("pause", room="main")
    for _ in range(3):
        commands("submit", room="main", prompt="Hello there", params={"max_new_tokens": 30, "ignore_eos": True})
    commands("step", room="main", count=2)
    rows = live.locator(".bs-waiting li")
    expect(rows.first).to_contain_text("request cap reached")
    expect(rows.first).to_contain_text("1 requests at most")
    expect(rows.nth(1)).to_contain_text("1 more behind")
    live.locator("#bs-knob-max_requests_per_batch").fill("8")
    live.locator("#bs-knob-max_requests_per_batch").press("Enter")
    live.wait_for_function("batchscope.store.head.config.max_requests_per_batch === 8")
    commands("step", room="main", count=1)
    expect(live.locator(".bs-waiting")).to_contain_text("Nobody waits")


def test_hover_lights_a_request_everywhere_and_a_click_pins_it(live: Page, commands: Commands):
    commands("pause", room="main")
    for text in ("Hello there", "Good morning"):
        commands("submit", room="main", prompt=text, params={"max_new_tokens": 40, "ignore_eos": True})
    commands("step", room="main", count=6)
    until_step(live, 6)
    live.wait_for_function("document.querySelectorAll('.bs-answer').length === 2")
    chip = live.locator(".bs-lane-chips .bs-chip").first
    request = chip.get_attribute("data-request")
    chip.hover()
    expect(live.locator(f'.bs-answer[data-request="{request}"]')).to_have_attribute("data-on", "1")
    expect(live.locator("#bs-tip")).to_contain_text(request)
    chip.click()
    live.mouse.move(5, 5)
    expect(live.locator(f'.bs-answer[data-request="{request}"]')).to_have_attribute("data-on", "1")
    assert live.evaluate("batchscope.screen.pinned") == request


def test_an_answer_is_text_whatever_it_contains(live: Page, commands: Commands):
    commands("submit", room="main", prompt="<img src=x onerror='window.broken=1'><b>bold</b>", params={"max_new_tokens": 4})
    expect(live.locator(".bs-answer-prompt")).to_contain_text("<img src=x")
    # Only when the answer stands there too has everything been drawn that must not be markup.
    live.wait_for_function("""batchscope.store.head.counters.finished === 1
        && document.querySelector('.bs-answer p').textContent === Object.values(batchscope.store.head.requests)[0].text""")
    assert live.locator(".bs-answer img, .bs-answer p b").count() == 0
    assert live.evaluate("window.broken") is None


def test_a_running_request_can_be_cancelled_from_its_answer(live: Page, commands: Commands):
    commands("pace", room="main", steps_per_second=8)
    commands("submit", room="main", prompt="Count to a thousand", params={"max_new_tokens": 400, "ignore_eos": True})
    live.locator(".bs-answer [data-cancel]").click()
    live.wait_for_function("batchscope.store.head.counters.cancelled === 1")
    expect(live.locator('.bs-chip[data-state="cancelled"]')).to_have_count(1)


def test_a_reload_finds_the_room_and_its_past(live: Page, app: App, commands: Commands, open_page):
    commands("submit", room="main", prompt="Hello there", params={"max_new_tokens": 12, "ignore_eos": True})
    live.wait_for_function("batchscope.store.head.counters.finished === 1")
    later = open_page(app.url)
    later.wait_for_function("batchscope.store.events.length > 10")
    later.keyboard.press("Home")
    later.keyboard.press("Shift+ArrowRight")
    assert later.evaluate("batchscope.store.live") is False
    assert 0 < later.evaluate("batchscope.store.state.step") < head(later, "s.step")
