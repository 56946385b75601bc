"""The dialogs and the running comparison: no serious axe violation, closed by Escape, and usable without a mouse."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.e2e.test_accessibility import AXE, RUN


@pytest.fixture
def page(live):
    live.add_script_tag(path=str(AXE))
    return live


def test_the_rooms_dialog(page, commands):
    before = commands.room_names()
    page.focus("#bs-header [data-room]")
    page.keyboard.press("Enter")
    page.wait_for_function("document.querySelectorAll('.bs-room-list li').length > 0 && document.querySelector('.bs-rooms [data-device]').options.length > 1")
    assert page.evaluate(RUN) == []
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog.bs-rooms", state="detached")
    page.keyboard.press("Enter")
    page.wait_for_selector("[data-big]")
    page.focus("[data-big]")
    page.keyboard.press("Enter")
    page.wait_for_function("window.batchscope.store.head.engine.simulated", timeout=30000)
    assert page.evaluate("[window.batchscope.store.head.engine.model, window.batchscope.store.head.engine.device]") == [
        "Llama-3.1-70B", "simulated 8 × H100-80GB"]
    expect(page.locator(".bs-engine-badge")).to_contain_text("simulated")
    (opened,) = commands.room_names() - before
    assert opened == page.evaluate("window.batchscope.socket.room")
    page.context.close()            # before its room goes, so that a fetch of the room's past finds it
    commands("close_room", room=opened)


def test_the_fork_dialog(page, commands):
    commands("submit", room="main", prompt="Hello", params={"max_new_tokens": 4})
    page.wait_for_function("window.batchscope.store.head.counters.finished > 0")
    page.focus("[data-fork]")
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog.bs-fork[open]")
    assert page.evaluate("document.querySelector('dialog.bs-fork').contains(document.activeElement)")
    assert page.evaluate(RUN) == []
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog.bs-fork", state="detached")


def test_the_running_comparison(page):
    page.get_by_role("tab", name="Compare").click()
    page.wait_for_selector("[data-pair=textbook]")
    page.focus("[data-pair=textbook]")
    page.keyboard.press("Enter")
    page.wait_for_function("window.batchscope.compare.links.length === 2 && window.batchscope.compare.run.done", timeout=60000)
    page.get_by_text("Set up your own comparison").click()
    assert page.evaluate(RUN) == []
    page.click(".bs-compare-bar [data-do=close]")


def test_a_picture_menu_saves_the_panel(page):
    page.locator("[data-panel=lanes] .bs-picture-menu summary").focus()
    page.keyboard.press("Enter")
    with page.expect_download() as saved:
        page.click("[data-panel=lanes] .bs-picture-menu [data-kind=png]")
    assert saved.value.suggested_filename == "batchscope-lanes.png"
