"""Time on the page: transport, scrubbing, the keyboard, and no doubt about what is live."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.served import Commands

PAST = re.compile("bs-past")


@pytest.fixture
def lived(live: Page, commands: Commands) -> Page:
    """A page with some forty steps of history, paused."""
    commands("pause", room="main")
    for index in range(4):
        commands("submit", room="main", prompt=f"Story number {index}: once upon a time", params={"max_new_tokens": 30, "ignore_eos": True})
    commands("step", room="main", count=40)
    live.wait_for_function("batchscope.store.head.counters.finished === 4")
    return live


def step(page: Page) -> int:
    return page.evaluate("batchscope.store.state.step")


def with_its_past(page: Page, commands: Commands) -> Page:
    """Wait until the page has fetched what was before it came: that moves the first moment, and indices with it."""
    first = commands("subscribe", room="main")["first"]
    commands("unsubscribe", room="main")
    page.wait_for_function("first => batchscope.store.messageAt(batchscope.store.first).seq === first", arg=first)
    return page


def test_space_pauses_and_resumes_the_engine(live: Page, commands: Commands):
    live.keyboard.press("Space")
    live.wait_for_function("batchscope.store.head.engine.status === 'paused'")
    expect(live.locator("[data-do=play]")).to_have_attribute("aria-label", "Run the engine (space)")
    live.keyboard.press("Space")
    live.wait_for_function("batchscope.store.head.engine.status === 'ready'")


def test_space_in_the_prompt_is_a_letter(live: Page):
    area = live.locator("#bs-prompt textarea")
    area.focus()
    live.keyboard.type("a b")
    expect(area).to_have_value("a b")
    # The page's next command is answered after whatever it sent before, so a pause would be seen by now.
    assert live.evaluate("batchscope.command('snapshot').then(({ state }) => state.engine.status)") == "ready"


def test_right_arrow_runs_one_step_when_live(live: Page, commands: Commands):
    commands("pause", room="main")
    commands("submit", room="main", prompt="Hello", params={"max_new_tokens": 20, "ignore_eos": True})
    live.wait_for_function("batchscope.store.head.queue.length === 1")
    before = step(live)
    live.keyboard.press("ArrowRight")
    live.wait_for_function(f"batchscope.store.head.step === {before + 1}")


def test_arrows_walk_the_past_and_end_returns(lived: Page, commands: Commands):
    with_its_past(lived, commands)
    last = step(lived)
    lived.keyboard.press("ArrowLeft")
    lived.keyboard.press("ArrowLeft")
    assert step(lived) == last - 2
    expect(lived.locator("body")).to_have_class(PAST)
    expect(lived.locator(".bs-live-badge")).to_have_text("Back to live")
    expect(lived.locator(".bs-step-read")).to_have_text(f"step {last - 2} of {last}")
    lived.keyboard.press("Shift+ArrowLeft")
    assert step(lived) == last - 12
    lived.keyboard.press("ArrowRight")
    assert step(lived) == last - 11
    lived.keyboard.press("Home")
    assert lived.evaluate("batchscope.store.index === batchscope.store.first")
    lived.keyboard.press("End")
    assert lived.evaluate("batchscope.store.live")
    expect(lived.locator("body")).not_to_have_class(PAST)


def test_every_panel_shows_the_step_that_is_looked_at(lived: Page):
    lived.evaluate("batchscope.store.seekStep(batchscope.store.head.step - 5)")
    seen = lived.evaluate("batchscope.store.state.last.slices.length")
    expect(lived.locator('[data-figure="decode"]')).to_have_text(str(seen))
    expect(lived.locator('.bs-lane[data-lane="decoding"] .bs-chip')).to_have_count(seen)
    text = lived.evaluate("Object.values(batchscope.store.state.requests)[0].text")
    assert lived.evaluate("Object.values(batchscope.store.head.requests)[0].text").startswith(text)


def test_new_events_do_not_move_what_is_looked_at(lived: Page, commands: Commands):
    lived.keyboard.press("ArrowLeft")
    at = step(lived)
    commands("submit", room="main", prompt="More", params={"max_new_tokens": 8, "ignore_eos": True})
    commands("step", room="main", count=8)
    lived.wait_for_function("batchscope.store.head.counters.finished === 5")
    assert step(lived) == at


def test_the_scrubber_seeks_and_its_right_end_is_live(lived: Page):
    # The handle is redrawn ten times a second, and its end is the newest event of then.
    up_to_date = "Number(document.querySelector('.bs-scrub input').max) === batchscope.store.head.seq"
    box = lived.locator(".bs-scrub").bounding_box()
    lived.wait_for_function(up_to_date)
    lived.mouse.click(box["x"] + box["width"] * 0.4, box["y"] + box["height"] / 2)
    assert lived.evaluate("batchscope.store.live") is False
    lived.wait_for_function(up_to_date)
    lived.mouse.click(box["x"] + box["width"] - 2, box["y"] + box["height"] / 2)
    assert lived.evaluate("batchscope.store.live") is True


def test_playing_the_past_arrives_at_live(lived: Page):
    lived.locator("#bs-speed").select_option("8")
    lived.evaluate("batchscope.store.seekStep(batchscope.store.head.step - 6)")
    lived.keyboard.press("Space")
    lived.wait_for_function("batchscope.store.live")


def test_jumping_finds_the_next_finish_and_says_when_there_is_none(lived: Page):
    lived.keyboard.press("Home")
    lived.locator("#bs-jump-kind").select_option("finish")
    lived.locator("body").click(position={"x": 700, "y": 20})
    lived.keyboard.press("]")
    assert lived.evaluate("batchscope.store.event.transitions.some((item) => item.to === 'finished')")
    lived.locator("#bs-jump-kind").select_option("swap")
    lived.locator("[data-do=next]").click()
    expect(lived.locator("#bs-transport [data-say]")).to_contain_text("swap")


def test_speed_is_the_engines_pace(live: Page):
    live.locator("#bs-speed").select_option("2")
    live.wait_for_function("batchscope.store.head.engine.pace === 16")
    live.locator("#bs-speed").select_option("0")
    live.wait_for_function("batchscope.store.head.engine.pace === 0")


def test_question_mark_opens_help_and_escape_closes_it(live: Page):
    live.keyboard.press("?")
    expect(live.locator("dialog.bs-dialog")).to_be_visible()
    live.keyboard.press("Escape")
    expect(live.locator("dialog.bs-dialog")).to_have_count(0)
