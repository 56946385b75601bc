"""How the page looks and reads: languages, dark, phone, laptop, projector, reduced motion, and without a mouse."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.served import App, Commands

#: Counts the animations that are started from here on.
COUNT_MOVES = """() => { window.moves = 0; const { animate } = Element.prototype;
  Element.prototype.animate = function (...all) { window.moves += 1; return animate.apply(this, all); }; }"""
MAIN = ("lanes", "blocks", "composition", "timeline")


@pytest.fixture
def busy(commands: Commands) -> Commands:
    """A paused room in which requests wait, prefill, decode and have finished."""
    commands("configure", room="main", changes={"max_requests_per_batch": 6})
    commands("pause", room="main")
    commands("submit", room="main", prompt="Short", params={"max_new_tokens": 2})
    for index in range(7):
        commands("submit", room="main", prompt=f"Story number {index}: once upon a time there was a lighthouse",
                 params={"max_new_tokens": 40, "ignore_eos": True})
    commands("step", room="main", count=6)
    commands.until(lambda state: state["counters"]["steps"] == 6, "six steps")
    return commands


def drawn(page: Page) -> Page:
    """Wait until the lists of the busy room stand there: one request finished, six run, one waits."""
    expect(page.locator(".bs-lane-chips .bs-chip")).to_have_count(8)
    expect(page.locator('.bs-lane[data-lane="decoding"] .bs-chip')).to_have_count(6)
    expect(page.locator(".bs-answer")).to_have_count(7)
    expect(page.locator(".bs-waiting [data-request]")).to_have_count(1)
    return page


def test_the_main_panels_fit_a_laptop_without_scrolling(app: App, busy: Commands, open_page: Callable[..., Page]):
    page = drawn(open_page(app.url, width=1280, height=720))
    for name in (*MAIN, "waiting", "answers"):
        box = page.locator(f'[data-panel="{name}"]').bounding_box()
        assert box["y"] >= 0 and box["y"] + box["height"] <= 720, f"{name} ends at {box['y'] + box['height']:.0f}"
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    # The lane of the offloaded, when there are some, makes the others lower and moves nothing.
    before = page.locator('[data-panel="timeline"]').bounding_box()["y"]
    page.evaluate("document.querySelector('[data-lane=offloaded]').dataset.some = 'true'")
    assert page.locator('[data-panel="timeline"]').bounding_box()["y"] == pytest.approx(before, abs=1)


def test_a_phone_shows_transport_lanes_blocks_and_answers_and_folds_the_rest(app: App, busy: Commands, open_page: Callable[..., Page]):
    page = open_page(app.url, width=390, height=844, has_touch=True, is_mobile=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    for selector in ("#bs-transport", "#bs-prompt textarea", "#bs-send"):
        expect(page.locator(selector)).to_be_visible()
    for name in ("lanes", "blocks", "answers"):
        expect(page.locator(f'[data-panel="{name}"] .bs-panel-body')).to_be_visible()
    timeline = page.locator('[data-panel="timeline"]')
    expect(timeline.locator(".bs-panel-body")).to_be_hidden()
    timeline.locator("[data-fold]").click()
    expect(timeline.locator(".bs-panel-body")).to_be_visible()
    expect(timeline.locator("[data-fold]")).to_have_attribute("aria-expanded", "true")
    drawn(page)
    ends = page.locator(".bs-lane-chips .bs-chip").evaluate_all("chips => chips.map((chip) => chip.getBoundingClientRect().right)")
    assert max(ends) <= 390


def test_korean_reaches_every_corner_at_once_and_is_kept(app: App, busy: Commands, open_page: Callable[..., Page]):
    page = open_page(app.url)
    page.locator("[data-do=language]").click()
    expect(page.locator("html")).to_have_attribute("lang", "ko")
    for selector, text in (("#bs-tab-live-button", "라이브"), ("#bs-send", "보내기"), ("#bs-send8", "8개 한꺼번에"),
                           ('[data-panel="lanes"] h3', "요청"), ('#bs-prompt [data-testid="block-info"]', "모델에게 묻기"),
                           ("#bs-max_new_tokens [data-testid='block-info']", "최대 생성 토큰"), (".bs-waiting li >> nth=0", "요청 수 한도"),
                           (".bs-live-badge", "실시간"), ("[data-reset-all]", "모두 초기화")):
        expect(page.locator(selector).first).to_contain_text(text)
    left = page.evaluate("""[...document.querySelectorAll('#bs-live h3, #bs-live [data-t], #bs-transport [data-t], #bs-controls [data-t]')]
        .map((element) => element.textContent).filter((text) => /[a-z]{4,} [a-z]{3,}/.test(text))""")
    assert left == []
    page.locator('[data-knob="max_batch_tokens"] label').hover()
    expect(page.locator("#bs-tip")).to_contain_text("쿼리 토큰")
    page.reload()
    page.wait_for_function("window.batchscope?.screen?.mounted")
    expect(page.locator("#bs-send")).to_have_text("보내기")


def test_no_text_is_shown_by_its_key(app: App, busy: Commands, open_page: Callable[..., Page]):
    page = open_page(app.url)
    for language, reason in (("en", "request cap reached"), ("ko", "요청 수 한도")):
        page.evaluate("language => batchscope.setLanguage(language)", language)
        drawn(page)
        expect(page.locator(".bs-waiting li").first).to_contain_text(reason)
        shown = page.evaluate("document.body.innerText + [...document.querySelectorAll('[aria-label]')].map((e) => e.getAttribute('aria-label')).join(' ')")
        keys = set(page.evaluate("Object.keys(batchscope.data.texts.en)"))
        assert {word for word in shown.split() if word in keys and "." in word} == set()


def test_dark_changes_what_is_drawn_too(app: App, busy: Commands, open_page: Callable[..., Page]):
    page = drawn(open_page(app.url, color_scheme="light"))
    pixel = """(() => { const canvas = document.querySelector('[data-panel=blocks] canvas');
        return [...canvas.getContext('2d').getImageData(canvas.width * 0.6, canvas.height * 0.5, 1, 1).data].slice(0, 3).reduce((a, b) => a + b, 0); })()"""
    light = page.wait_for_function(pixel).json_value()
    page.locator("[data-do=dark]").click()
    expect(page.locator("body")).to_have_class("dark")
    page.wait_for_function(f"{pixel} > 0 && {pixel} < {light} / 2")


def test_projector_hides_the_forms_and_enlarges_the_type(app: App, busy: Commands, open_page: Callable[..., Page]):
    page = open_page(app.url)
    size = "parseFloat(getComputedStyle(document.querySelector('[data-panel=lanes] h3')).fontSize)"
    before = page.evaluate(size)
    page.locator("[data-do=projector]").click()
    expect(page.locator("#bs-forms")).to_be_hidden()
    assert page.evaluate(size) > before * 1.2


def test_reduced_motion_moves_nothing(app: App, commands: Commands, open_page: Callable[..., Page]):
    page = open_page(app.url, reduced_motion="reduce")
    page.evaluate(COUNT_MOVES)
    commands("pause", room="main")
    commands("submit", room="main", prompt="Hello", params={"max_new_tokens": 4, "ignore_eos": True})
    commands("step", room="main", count=8)
    expect(page.locator('.bs-lane[data-lane="finished"] .bs-chip')).to_have_count(1)
    assert page.evaluate("window.moves") == 0


def test_with_motion_a_request_slides_to_its_next_lane(app: App, commands: Commands, open_page: Callable[..., Page]):
    page = open_page(app.url)
    page.evaluate(COUNT_MOVES)
    commands("pause", room="main")
    commands("submit", room="main", prompt="Hello", params={"max_new_tokens": 4, "ignore_eos": True})
    expect(page.locator('.bs-lane[data-lane="pending"] .bs-chip')).to_have_count(1)
    commands("step", room="main", count=1)
    expect(page.locator('.bs-lane[data-lane="decoding"] .bs-chip')).to_have_count(1)
    page.wait_for_function("window.moves > 0")


def test_a_prompt_is_sent_and_a_request_pinned_without_a_mouse(app: App, commands: Commands, open_page: Callable[..., Page]):
    page = open_page(app.url)
    area = page.locator("#bs-prompt textarea")
    area.focus()
    page.keyboard.type("Hello")
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "bs-send":
            break
    assert page.evaluate("document.activeElement.id") == "bs-send"
    page.keyboard.press("Enter")
    page.wait_for_function("batchscope.store.head.counters.finished === 1")
    chip = page.locator('.bs-lane[data-lane="finished"] .bs-chip')
    chip.focus()
    page.keyboard.press("Enter")
    assert page.evaluate("batchscope.screen.pinned") == chip.get_attribute("data-request")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"


def test_each_panel_describes_itself_in_a_sentence(app: App, busy: Commands, open_page: Callable[..., Page]):
    page = open_page(app.url)
    for name in (*MAIN, "waiting", "answers"):
        sentence = page.locator(f'[data-panel="{name}"] [data-describe]')
        expect(sentence).to_have_text(re.compile(r"\S+ \S+"))
    expect(page.locator('[data-panel="lanes"] [data-describe]')).to_contain_text("1 finished")


def test_an_empty_room_says_what_will_appear_and_how(app: App, commands: Commands, open_page: Callable[..., Page]):
    page = open_page(app.url)
    expect(page.locator(".bs-lanes-empty")).to_contain_text("Send 8 at once")
    expect(page.locator('[data-panel="answers"] .bs-empty')).to_be_visible()
    expect(page.locator('[data-panel="waiting"]')).to_contain_text("Nobody waits")


def test_hidden_panels_stay_hidden_and_come_back(app: App, busy: Commands, open_page: Callable[..., Page]):
    page = open_page(app.url)
    panel = page.locator('[data-panel="timeline"]')
    panel.hover()
    panel.locator("[data-hide]").click()
    expect(panel).to_be_hidden()
    page.reload()
    page.wait_for_function("window.batchscope?.screen?.mounted")
    expect(page.locator('[data-panel="timeline"]')).to_be_hidden()
    page.locator("[data-do=panels]").click()
    page.locator('dialog input[value="timeline"]').check()
    expect(page.locator('[data-panel="timeline"]')).to_be_visible()


@pytest.mark.parametrize("blocks", [16, 4096, 100_000])
def test_the_block_map_is_legible_from_sixteen_to_a_hundred_thousand_blocks(app: App, open_page: Callable[..., Page], blocks: int):
    page = open_page(app.url)
    grid = page.evaluate("""async (count) => {
        const { layoutBlocks } = await import(new URL('viz/block_layout.js', document.baseURI));
        const { blocks } = batchscope.data.panels;
        return layoutBlocks(count + 3, 460, 180, blocks.options);
    }""", blocks)
    assert grid["columns"] * grid["cell"] <= 460
    assert grid["rows"] * grid["cell"] <= 180
    assert grid["cell"] >= 3
    assert grid["perCell"] * grid["cells"] >= blocks + 3
    assert (grid["perCell"] == 1) == (blocks <= 4096)
