"""The picture never lies: what the page's own JavaScript made of the stream is what the engine says it is, at every step.

The engine is asked over its own websocket, behind the page process's back, so neither the hub nor the browser can vouch for itself.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.e2e.served import App, Commands, Engine

STEPS = 320
#: A small cache, sharing, swapping and padding: everything that can happen to a block happens.
CONFIG = {"block_size": 8, "num_blocks": 40, "max_batch_tokens": 48, "max_requests_per_batch": 10, "cpu_offload_space": 0.02,
          "safety_margin": 0.0}
CHANGES: tuple[dict[str, Any], ...] = (
    {"max_batch_tokens": 24}, {"scheduler_type": "prefill_first"}, {"max_requests_per_batch": 6}, {"use_cuda_graph": True},
    {"block_size": 16, "num_blocks": 20}, {"use_async_batching": True}, {"allow_block_sharing": False}, {"cpu_offload_space": 0.0},
    {"use_async_batching": False}, {"scheduler_type": "static"},
    {"scheduler_type": "fifo", "allow_block_sharing": True}, {"num_blocks": 32}, {"demotion_policy": "lru"})


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    started = Engine(CONFIG)
    yield started
    started.stop()


@pytest.fixture(scope="module")
def watched(engine: Engine) -> Iterator[App]:
    started = App(engine=engine.url).until_ready()
    yield started
    started.stop()


def submit_some(ask: Commands, rng: random.Random) -> None:
    shared = list(range(100, 140))
    for _ in range(rng.randint(1, 3)):
        prompt = (shared[:rng.choice((8, 24, 40))] if rng.random() < 0.6 else []) + [rng.randrange(600) for _ in range(rng.randint(1, 60))]
        ask("submit", room="main", prompt_tokens=prompt,
            params={"max_new_tokens": rng.choice((0, 1, 12, 60, 90)), "ignore_eos": True, "n": rng.choice((1, 1, 1, 2))})


def differences(page: dict[str, Any], truth: dict[str, Any]) -> list[str]:
    """Names of what differs; requests are told apart by field, so a failure says where to look."""
    found = [name for name in truth if name != "requests" and page.get(name) != truth[name]]
    for request, fields in truth["requests"].items():
        found += [f"{request}.{name}" for name in fields if page["requests"].get(request, {}).get(name) != fields[name]]
    return found + [f"{request} is not the engine's" for request in page["requests"] if request not in truth["requests"]]


#: The newest state, once the event of this number has arrived; whatever there is after half a minute.
WHEN_THERE = """async (seq) => {
  const end = performance.now() + 30000;
  while (batchscope.store.head.seq < seq && performance.now() < end) await new Promise((done) => setTimeout(done, 2));
  return batchscope.store.head;
}"""


def both_states(page: Page, ask: Commands) -> tuple[dict[str, Any], dict[str, Any]]:
    """The page's state and the engine's after the same event. An event between the two questions makes them be asked again."""
    while True:
        truth = ask("snapshot", room="main")["state"]
        seen = page.evaluate(WHEN_THERE, truth["seq"])
        assert seen["seq"] >= truth["seq"], "the page fell behind"
        if seen["seq"] == truth["seq"]:
            return seen, truth


@pytest.mark.timeout(1200)      # thousands of questions, each quick, on a machine that may be crowded
def test_the_page_equals_the_engine_at_every_step_of_mixed_traffic(engine: Engine, watched: App, open_page: Callable[..., Page]):
    ask = Commands(engine.url)
    ask("pause", room="main")
    page = open_page(watched.url)
    rng = random.Random(7)
    kept: list[dict[str, Any]] = []
    for index in range(STEPS):
        if index % 7 == 0 and index % 80 < 50:
            submit_some(ask, rng)
        if index % 24 == 12:
            ask("configure", room="main", changes=CHANGES[index // 24 % len(CHANGES)])
        state = ask("snapshot", room="main")["state"]
        if index % 17 == 5 and state["queue"] + state["active"]:
            running = [request for request in state["queue"] + state["active"] if state["requests"][request]["finished"] is None]
            if running:
                ask("cancel", room="main", request=rng.choice(running))
        if index in (100, 200):
            # The loss of an event is seen by the one after it.
            page.evaluate("batchscope.socket.dropNext = 1")
            ask("step", room="main", count=1)
        ask("step", room="main", count=1)
        seen, truth = both_states(page, ask)
        assert differences(seen, truth) == [], f"after step {truth['step']} (event {truth['seq']})"
        kept.append(truth)
    counters = kept[-1]["counters"]
    # The traffic was mixed indeed: a run in which nothing happened would prove nothing.
    for name in ("finished", "cancelled", "offloads", "restores", "soft_resets", "prefix_hit_tokens", "copies", "captures"):
        assert counters[name] > 0, f"the traffic had no {name}"
    assert page.evaluate("batchscope.store.events.filter((event) => event.type === 'snapshot').length") >= 3, "a gap was healed twice"
    for truth in rng.sample(kept, 40):
        page.evaluate("seq => batchscope.store.seekSeq(seq)", truth["seq"])
        if page.evaluate("batchscope.store.state.seq") == truth["seq"]:
            assert differences(page.evaluate("batchscope.store.state"), truth) == [], f"looking back at step {truth['step']}"
    page.evaluate("batchscope.store.goLive()")
    assert differences(page.evaluate("batchscope.store.state"), kept[-1]) == []
    ask.close()
