"""The browser's history store, driven directly in a page: gaps, bounds, seeking, tracks."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page

from tests.e2e.served import App

#: A store fed with a made-up room: one request that decodes a token a step. The reducer is the real one.
SCRIPT = """async ({ code, options }) => {
  const base = new URL('viz/', document.baseURI);
  const { Store } = await import(new URL('store.js', base));
  const { apply, clone, emptyState } = await import(new URL('reduce.js', base));
  const store = new Store(options);
  const record = { id: 'r1', ordinal: 1, prompt: 'x', prompt_tokens: [1, 2],
    params: { max_new_tokens: 9999 }, arrival: 0, arrival_step: 0, parent: null, visitor: null, seed: 0 };
  const event = (seq) => seq === 1 ? { v: 1, type: 'submit', room: 'm', seq, step: 0, time: 0, requests: [record] }
    : { v: 1, type: 'step', room: 'm', seq, step: seq - 1, time: seq / 8, slices: [['r1', seq, 1, 'decode', true]],
        tokens: [{ id: 'r1', token: seq, text: 'a' }], counters: { steps: seq - 1 } };
  const snapshotAt = (seq) => {
    let state = emptyState();
    for (let n = 1; n <= seq; n += 1) state = apply(state, event(n));
    return { v: 1, type: 'snapshot', room: 'm', seq, state };
  };
  const feed = (from, to) => { for (let seq = from; seq <= to; seq += 1) if (!store.receive(event(seq))) return seq; return null; };
  return await (new Function('store', 'event', 'snapshotAt', 'feed', 'clone', `return (async () => { ${code} })()`))(store, event, snapshotAt, feed, clone);
}"""


@pytest.fixture(scope="module")
def run(app: App, browser):
    page: Page = browser.new_page()
    page.goto(app.url)
    page.wait_for_function("window.batchscope")
    yield lambda code, **options: page.evaluate(SCRIPT, {"code": code, "options": options})
    page.close()


def test_a_gap_is_noticed_and_a_snapshot_heals_it(run):
    assert run("""store.receive(snapshotAt(1)); const gap = [store.receive(event(2)), store.receive(event(4))];
        const healed = store.receive(snapshotAt(4)); return [...gap, healed, store.head.seq, feed(5, 9), store.head.requests.r1.outputs];
    """) == [True, False, True, 4, None, 8]


def test_an_event_seen_twice_changes_nothing(run):
    assert run("""store.receive(snapshotAt(1)); feed(2, 5); store.receive(event(3));
        return [store.head.seq, store.events.length]
    """) == [5, 5]


def test_a_delta_before_any_snapshot_is_refused(run):
    assert run("return [store.receive(event(7)), store.events.length]") == [False, 0]


def test_seeking_anywhere_gives_the_state_of_that_moment(run):
    assert run("""store.receive(snapshotAt(1)); feed(2, 300);
        for (const seq of [300, 17, 18, 255, 2, 128, 129, 127, 64, 299]) {
          store.seekSeq(seq);
          if (JSON.stringify(store.state) !== JSON.stringify(snapshotAt(seq).state)) return seq;
        }
        store.goLive(); return store.state.seq === 300 && store.head.requests.r1.text.length === 299;
    """, checkpointEvery=16) is True


def test_looking_back_never_changes_the_newest_state(run):
    assert run("""store.receive(snapshotAt(1)); feed(2, 50); const before = JSON.stringify(store.head); store.seekSeq(9);
        store.moveStep(1); store.moveStep(-1); return before === JSON.stringify(store.head)
    """) is True


def test_memory_is_bounded_and_what_remains_can_be_reached(run):
    assert run("""store.receive(snapshotAt(1)); feed(2, 3000);
        store.seekIndex(store.first);
        return [store.events.length <= 500, store.checkpoints.length <= 500 / 50 + 2,
          JSON.stringify(store.state) === JSON.stringify(snapshotAt(store.state.seq).state)];
    """, checkpointEvery=50, maxEvents=500) == [True, True, True]


def test_a_viewer_in_a_past_that_is_forgotten_is_moved_to_the_oldest_moment_kept(run):
    assert run("""store.receive(snapshotAt(1)); feed(2, 100); store.seekSeq(5); feed(101, 2000);
        return store.index === store.first && store.state.seq === store.events[0].seq;
    """, checkpointEvery=50, maxEvents=500) is True


def test_an_earlier_past_joins_without_a_seam(run):
    assert run("""store.receive(snapshotAt(200)); feed(201, 260); store.seekSeq(230); const before = JSON.stringify(store.state);
        const past = [snapshotAt(40)]; for (let seq = 41; seq <= 210; seq += 1) past.push(event(seq));
        const joined = store.prepend(past);
        const still = before === JSON.stringify(store.state);
        for (const seq of [40, 41, 199, 200, 201, 260]) {
          store.seekSeq(seq);
          if (JSON.stringify(store.state) !== JSON.stringify(snapshotAt(seq).state)) return seq;
        }
        return [joined, still, store.events.length, new Set(store.events.map((item) => item.seq)).size];
    """, checkpointEvery=16) == [True, True, 221, 221]


def test_of_a_long_past_only_as_much_joins_as_memory_allows(run):
    assert run("""store.receive(snapshotAt(400)); feed(401, 420);
        const past = [snapshotAt(1)]; for (let seq = 2; seq <= 400; seq += 1) past.push(event(seq));
        const joined = store.prepend(past);
        store.seekIndex(store.first);
        return [joined, store.events.length <= 100, store.state.seq > 300, JSON.stringify(store.state) === JSON.stringify(snapshotAt(store.state.seq).state)];
    """, checkpointEvery=16, maxEvents=100) == [True, True, True, True]


def test_a_past_that_does_not_fit_is_left_out(run):
    assert run("""store.receive(snapshotAt(200));
        return [store.prepend([snapshotAt(40), event(41)]), store.prepend([]), store.events.length]
    """) == [False, False, 1]


def test_a_restarted_numbering_starts_a_new_history(run):
    assert run("""store.receive({ ...snapshotAt(50), life: 'a' }); feed(51, 60);
        store.receive({ ...snapshotAt(1), life: 'b' }); return [store.events.length, store.head.seq, store.live]
    """) == [1, 1, True]


def test_a_track_sees_every_event_once_and_in_order_whatever_is_looked_at(run):
    assert run("""const seen = []; store.receive(snapshotAt(1)); feed(2, 20);
        store.track('t', () => ({ reset() { seen.length = 0; }, heal() { seen.push('healed'); }, push(event) { seen.push(event.seq); } }));
        store.seekSeq(4); feed(21, 30); store.receive(snapshotAt(40)); feed(41, 42);
        return seen.join() === [...Array.from({ length: 29 }, (_, at) => at + 2), 'healed', 41, 42].join();
    """) is True
