"""How the panels are drawn while an engine runs: nothing moves that should not, nothing is drawn more often than it is read."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page

from tests.e2e.served import App, Commands

#: Counts how often each picture gets another size, and how often each panel is drawn, from here on.
WATCH = """() => {
  window.seen = { sizes: {}, draws: {}, since: performance.now() };
  for (const [name, entry] of batchscope.screen.entries) {
    if (entry.card.hidden || !entry.panel) continue;
    for (const [index, element] of entry.body.querySelectorAll('canvas, .bs-plot, .bs-legend, .bs-step-figures').entries()) {
      const key = `${name} ${index} ${element.className || element.tagName}`;
      let last = null;
      new ResizeObserver(([record]) => {
        const { width, height } = record.contentRect;
        const size = `${Math.round(width)}x${Math.round(height)}`;
        if (last !== null && last !== size) (seen.sizes[key] ??= []).push(`${last} to ${size}`);
        last = size;
      }).observe(element);
    }
    const update = entry.panel.update.bind(entry.panel);
    seen.draws[name] = 0;
    entry.panel.update = (view) => { seen.draws[name] += 1; update(view); };
  }
}"""
SEEN = "() => ({ ...seen, seconds: (performance.now() - seen.since) / 1000 })"


def mixed_traffic(commands: Commands) -> None:
    """Prompts and outputs of many lengths, so that every figure of a step changes its number of digits again and again."""
    commands("configure", room="main", changes={"max_batch_tokens": 128, "max_requests_per_batch": 12})
    for index in range(24):
        commands("submit", room="main", prompt="The keeper wrote down every ship that passed. " * (1 + 7 * (index % 5)),
                 params={"max_new_tokens": 6 + 9 * (index % 4), "ignore_eos": True})


def test_no_picture_changes_its_size_while_the_numbers_around_it_change(app: App, commands: Commands, open_page: Callable[..., Page]):
    page = open_page(app.url)
    commands("pause", room="main")
    mixed_traffic(commands)
    commands("step", room="main", count=3)
    page.wait_for_function("batchscope.store.head.counters.steps === 3")
    page.evaluate(WATCH)
    start = page.evaluate("batchscope.store.head.step")
    commands("pace", room="main", steps_per_second=60)
    commands("resume", room="main")
    page.wait_for_function("batchscope.store.head.active.length === 0 && batchscope.store.head.queue.length === 0", timeout=60000)
    seen = page.evaluate(SEEN)
    assert page.evaluate("batchscope.store.head.step") - start > 40, "too few steps to see anything"
    assert seen["draws"]["composition"] > 20
    assert seen["sizes"] == {}


def test_words_are_drawn_no_more_often_than_they_are_read_and_end_with_the_last_state(app: App, commands: Commands,
                                                                                      open_page: Callable[..., Page]):
    page = open_page(app.url)
    commands("pause", room="main")
    mixed_traffic(commands)
    page.evaluate(WATCH)
    commands("pace", room="main", steps_per_second=0)
    commands("resume", room="main")
    page.wait_for_function("batchscope.store.head.active.length === 0 && batchscope.store.head.queue.length === 0", timeout=60000)
    seen = page.evaluate(SEEN)
    rests = page.evaluate("Object.fromEntries([...batchscope.screen.entries].map(([name, entry]) => [name, entry.spec.redraw_ms]))")
    assert rests["answers"] > 0 and rests["decision_log"] > 0 and rests["lanes"] == 0
    for name in ("answers", "decision_log"):
        # Besides the regular draws there are a few asked for at once: a snapshot, a panel that scrolls into sight.
        assert 1 <= seen["draws"][name] <= 1000 * seen["seconds"] / rests[name] + 8, name
    newest = commands("snapshot", room="main")["state"]
    last = max(newest["requests"].values(), key=lambda request: (request["finished"] or 0, request["ordinal"]))
    page.wait_for_function("([id, text]) => document.querySelector(`.bs-answer[data-request=\"${id}\"] p`)?.textContent === text",
                           arg=[last["id"], last["text"]])


def test_the_figures_of_a_step_stand_in_the_same_lines_whatever_their_numbers(app: App, commands: Commands, open_page: Callable[..., Page]):
    commands("pause", room="main")
    commands("configure", room="main", changes={"max_batch_tokens": 512, "max_requests_per_batch": 64})
    page = open_page(app.url)
    page.wait_for_function("batchscope.store.head.config.max_batch_tokens === 512")
    page.wait_for_function("document.querySelector('[data-figure=requests]').textContent.endsWith('/ 64')")
    heights = """() => {
      const list = document.querySelector('.bs-step-figures');
      const numbers = [...list.querySelectorAll('[data-figure]')];
      return [['0', '0 / 64'], ['512', '64 / 64']].map(([tokens, requests]) => {
        for (const element of numbers) element.textContent = element.dataset.figure === 'requests' ? requests : tokens;
        return list.offsetHeight;
      });
    }"""
    seen = set()
    for width in range(1180, 1700, 20):
        page.set_viewport_size({"width": width, "height": 900})
        low, high = page.evaluate(heights)
        assert low == high, f"at {width} pixels"
        seen.add(low)
    assert len(seen) > 1, "no width at which the figures take another line: the test looks at the wrong widths"
