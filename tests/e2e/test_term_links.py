"""A term explains itself where it stands, and leads to the lesson that explains it at length: with a pointer and without one."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from viz.page_head import STATIC

TERM = "#bs-live [data-term='block.shared']"
LESSON = "10-prefix-caching"


def test_every_linked_lesson_exists():
    text = (STATIC / "term_lessons.js").read_text()
    names = set(re.findall(r"'(\d\d-[a-z-]+)'", text))
    lessons = STATIC.parent.parent / "lessons"
    assert names and all((lessons / name / "lesson.en.md").is_file() for name in names)


def test_the_pointer_can_follow_a_term_to_its_lesson(live):
    live.hover(TERM)
    link = live.locator("#bs-tip .bs-tip-link")
    expect(link).to_have_text("Lesson 10 ›")
    link.click()
    live.wait_for_function(f"window.batchscope.lessons?.view?.lesson?.name === '{LESSON}'")


def test_enter_on_a_focused_term_opens_its_lesson(live):
    live.keyboard.press("Tab")                # from now on focus is shown, as for somebody without a mouse
    live.focus(TERM)
    live.wait_for_selector("#bs-tip:not([hidden])")
    live.keyboard.press("Enter")
    live.wait_for_function(f"window.batchscope.lessons?.view?.lesson?.name === '{LESSON}'")


def test_a_term_without_a_lesson_has_no_link(live):
    live.hover("#bs-controls [data-term='live_knob']")
    live.wait_for_selector("#bs-tip:not([hidden])")
    expect(live.locator("#bs-tip .bs-tip-link")).to_be_hidden()
