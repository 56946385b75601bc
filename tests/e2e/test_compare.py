"""Two rooms on one workload: the textbook figures come out of the real engine, and everything is given back afterwards."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

DONE = "window.batchscope.compare?.links.length === 2 && window.batchscope.compare.run.done && !window.batchscope.compare.run.running"


@pytest.fixture
def tab(live: Page) -> Page:
    live.get_by_role("tab", name="Compare").click()
    live.wait_for_function("window.batchscope.compare", timeout=30000)
    return live


def figures(page: Page) -> dict[str, list[str]]:
    # The table is drawn a moment after the last event, and the sentence below it says so.
    expect(page.locator(".bs-compare-bar [data-run-state]")).to_have_text("Both have finished.")
    rows = page.evaluate("""[...document.querySelectorAll('.bs-compare-figures tbody tr')]
      .map(row => [row.dataset.row, row.cells[1].textContent, row.cells[2].textContent])""")
    return {key: [re.sub(r"[ ✓]", "", value) for value in values] for key, *values in rows}


def test_the_textbook_case_in_one_click(tab):
    """2 places, outputs of 8, 2, 2 and 3: static needs 11 steps and leaves 7 cells idle, continuous 8 and 1."""
    tab.click("[data-pair=textbook]")
    tab.wait_for_function(DONE, timeout=60000)
    shown = figures(tab)
    assert shown["steps"] == ["11", "8"] and shown["idle_cells"] == ["7", "1"]
    assert shown["output_tokens"] == ["15", "15"] and shown["finished"] == ["4", "4"]
    assert tab.evaluate("window.batchscope.compare.links.map(link => link.store.head.config.scheduler_type)") == ["static", "fifo"]
    headline = tab.inner_text(".bs-compare-headline")
    assert "A 11" in headline and "B 8 ✓" in headline


def test_lockstep_keeps_both_rooms_at_the_same_step(tab):
    tab.click("[data-pair=static_continuous]")
    tab.wait_for_function("window.batchscope.compare.links.length === 2")
    tab.evaluate("""() => { window.apart = []; for (const link of window.batchscope.compare.links) link.store.subscribe(() => {
      const steps = window.batchscope.compare.links.map(item => item.store.head.counters.steps);
      if (!window.batchscope.compare.links.some(item => item.idle)) window.apart.push(Math.abs(steps[0] - steps[1])); }); }""")
    tab.select_option("#bs-compare-speed", "8")
    tab.wait_for_function("window.batchscope.compare.links.every(link => link.store.head.counters.steps >= 12)", timeout=60000)
    assert max(tab.evaluate("window.apart")) <= 1
    tab.click(".bs-compare-bar [data-do=play]")
    tab.wait_for_function("!window.batchscope.compare.run.running")
    steps = tab.evaluate("window.batchscope.compare.links.map(link => link.store.head.counters.steps)")
    tab.click(".bs-compare-bar [data-do=step]")
    tab.wait_for_function(f"window.batchscope.compare.links.every((link, side) => link.store.head.counters.steps === {steps}[side] + 1)")


def test_a_pair_of_ones_own_on_a_simulated_device_runs_freely(tab):
    tab.get_by_text("Set up your own comparison").click()
    tab.wait_for_function("document.querySelector('[data-device]').options.length > 3")
    tab.select_option("[data-form] [data-device]", "h100-80gb")
    tab.select_option("[data-form] [data-count]", "8")
    tab.select_option("[data-form] [data-model]", "llama-3.1-70b")
    tab.select_option("[data-form] [data-workload]", "pair:static_continuous")
    for side, scheduler in (("a", "static"), ("b", "fifo")):
        tab.select_option(f"[data-knob=scheduler_type][data-side={side}]", scheduler)
        tab.fill(f"[data-knob=max_requests_per_batch][data-side={side}]", "4")
    tab.select_option("#bs-compare-mode", "free", force=True)
    tab.click("[data-start]")
    tab.wait_for_function(DONE, timeout=60000)
    shown = figures(tab)
    assert float(shown["throughput"][1].replace(",", "")) > float(shown["throughput"][0].replace(",", "")), "continuous batching is faster"
    assert "ttft_p50" in shown and "ttft_steps_p50" not in shown
    assert tab.evaluate("window.batchscope.compare.links.every(link => link.store.head.engine.simulated)")
    assert "simulated" in tab.inner_text(".bs-compare-table .bs-small")


def test_a_refused_setup_says_why_and_leaves_no_room_behind(tab, commands):
    before = commands.room_names()
    tab.get_by_text("Set up your own comparison").click()
    tab.fill("[data-knob=num_blocks][data-side=b]", "0")
    tab.click("[data-start]")
    tab.wait_for_function("document.querySelector('.bs-compare-setup [data-message]').dataset.kind === 'error'")
    expect(tab.locator(".bs-compare-setup [data-message]")).to_contain_text("num_blocks must lie between")
    assert commands.room_names() <= before


def test_closing_gives_the_rooms_back(tab, commands):
    before = commands.room_names()
    tab.click("[data-pair=textbook]")
    tab.wait_for_function("window.batchscope.compare.links.length === 2")
    opened = commands.room_names() - before
    assert len(opened) == 2
    tab.click(".bs-compare-bar [data-do=close]")
    tab.wait_for_function("document.querySelector('.bs-compare-run').hidden")
    commands.until_gone(opened)
