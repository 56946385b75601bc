"""What if: the same history twice, then two futures. What was is repeated token by token; only the changed side differs."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

LINKS = "window.batchscope.compare?.links.length === 2"
DONE = f"{LINKS} && window.batchscope.compare.run.done && !window.batchscope.compare.run.running"
TEXTS = "window.batchscope.compare.links.map(link => Object.fromEntries(Object.entries(link.store.head.requests).map(([id, item]) => [id, item.text])))"


def fork(page: Page, knob: str, value: str) -> None:
    page.wait_for_selector("dialog.bs-fork")
    page.select_option(".bs-fork-row select", knob)
    page.fill(f".bs-fork [data-knob={knob}]", value)
    page.click(".bs-fork [data-do=start]")
    page.wait_for_function(LINKS, timeout=60000)


@pytest.fixture
def run(live: Page, commands) -> Page:
    """Three finished requests in main."""
    commands("submit", room="main", requests=[{"prompt": prompt, "params": {"max_new_tokens": 24}} for prompt in
                                              ("Tell me a story about the sea.", "Count from one to ten.", "Name three fruits.")])
    live.wait_for_function("window.batchscope.store.head.counters.finished >= 3 && window.batchscope.store.head.active.length === 0", timeout=60000)
    return live


def test_a_live_run_is_forked_at_the_step_that_is_shown(run):
    run.evaluate("window.batchscope.store.seekStep(8)")
    truth = run.evaluate("Object.fromEntries(Object.entries(window.batchscope.store.state.requests).map(([id, item]) => [id, [item.outputs, item.text]]))")
    run.click("[data-fork]")
    fork(run, "max_requests_per_batch", "2")
    sides = run.evaluate("""window.batchscope.compare.links.map(link => ({step: link.store.head.step, cap: link.store.head.config.max_requests_per_batch,
      requests: Object.fromEntries(Object.entries(link.store.head.requests).map(([id, item]) => [id, [item.outputs, item.text]]))}))""")
    assert [side["cap"] for side in sides] == [16, 2]
    for side in sides:
        assert side["step"] == 8 and side["requests"] == truth, "both begin with the very same past"
    run.click(".bs-compare-bar [data-do=play]")
    run.wait_for_function(DONE, timeout=60000)
    texts = run.evaluate(TEXTS)
    original = run.evaluate("Object.fromEntries(Object.entries(window.batchscope.store.head.requests).map(([id, item]) => [id, item.text]))")
    assert texts[0] == original, "the side without a change ends as the original did"
    expect(run.locator(".bs-compare-table .bs-small")).to_contain_text("Forked from step 8")


def test_a_recording_is_forked_without_its_room(live):
    live.get_by_role("tab", name="Recordings").click()
    live.wait_for_function("window.batchscope.recordings?.replay?.mounted", timeout=30000)
    live.evaluate("window.batchscope.recordings.replay.store.seekStep(30)")
    truth = live.evaluate("""Object.fromEntries(Object.entries(window.batchscope.recordings.replay.store.state.requests)
      .map(([id, item]) => [id, item.outputs]))""")
    live.click(".bs-replay [data-do=fork]")
    fork(live, "cpu_offload_space", "0")
    sides = live.evaluate("""window.batchscope.compare.links.map(link => ({
      step: link.store.head.step, space: link.store.head.config.cpu_offload_space,
      outputs: Object.fromEntries(Object.entries(link.store.head.requests).map(([id, item]) => [id, item.outputs]))}))""")
    assert [side["step"] for side in sides] == [30, 30] and [side["space"] for side in sides] == [0.02, 0]
    # A request that arrived at this very step stands in the recording already, and is asked for again when the fork goes on.
    assert sides[0]["outputs"] == {name: count for name, count in truth.items() if name in sides[0]["outputs"]}
    assert {name for name in truth if name not in sides[0]["outputs"]} <= {name for name, count in truth.items() if count == 0}
    live.select_option("#bs-compare-speed", "32")
    live.click(".bs-compare-bar [data-do=play]")
    live.wait_for_function(DONE, timeout=120000)
    counters = live.evaluate("window.batchscope.compare.links.map(link => link.store.head.counters)")
    assert counters[1]["soft_resets"] > 0 and counters[1]["finished"] == counters[0]["finished"] == 12


def test_a_fork_without_a_difference_and_a_bad_value_are_refused_in_the_dialog(run):
    run.click("[data-fork]")
    run.wait_for_selector("dialog.bs-fork")
    run.click(".bs-fork [data-do=start]")
    expect(run.locator(".bs-fork [data-message]")).to_contain_text("differs")
    run.fill(".bs-fork [data-knob=max_batch_tokens]", "-4")
    run.click(".bs-fork [data-do=start]")
    run.wait_for_function("document.querySelector('.bs-fork [data-message]').textContent.includes('max_batch_tokens must lie between')")
    run.keyboard.press("Escape")
    run.wait_for_selector("dialog.bs-fork", state="detached")
