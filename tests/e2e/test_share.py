"""The state in the address: opening it elsewhere gives the same run, it never holds a secret, and a bad one is refused by name."""

from __future__ import annotations

import base64
import zlib

import pytest
from playwright.sync_api import Page, expect

WORKLOAD = {"name": "shared", "seed": 5, "num_requests": 4, "arrivals": {"kind": "at_once"}, "prompt_length": {"kind": "uniform", "low": 6, "high": 20},
            "output_length": {"kind": "uniform", "low": 3, "high": 9}}
RESULT = """JSON.stringify(Object.values(window.batchscope.store.head.requests).map(item => [item.id, item.prompt, item.text, item.outputs]))"""
FINISHED = "window.batchscope.store.head.counters.finished === 4"


def share(page: Page, state: str) -> str:
    return page.evaluate(f"import('/viz/share.js').then(module => module.shareLink(window.batchscope, {state}))")


def test_opening_a_link_elsewhere_gives_the_same_run(app, live, commands, open_page):
    commands("configure", room="main", changes={"max_batch_tokens": 24, "max_requests_per_batch": 3})
    live.evaluate("window.batchscope.layout.toggle('roofline', false)")
    live.wait_for_function("window.batchscope.store.head.config.max_batch_tokens === 24")
    live.evaluate("workload => { window.batchscope.workload = workload; }", WORKLOAD)
    link = share(live, "{tab: 'live'}")
    live.evaluate("localStorage.clear()")
    results = []
    for _ in range(2):
        page = open_page(link)
        page.wait_for_function(FINISHED, timeout=60000)
        results.append(page.evaluate(RESULT))
        config = page.evaluate("window.batchscope.store.head.config")
        assert config["max_batch_tokens"] == 24 and config["max_requests_per_batch"] == 3 and config["block_size"] == 16
        assert page.evaluate("window.batchscope.socket.room") != "main", "a link never changes what others look at"
        assert page.evaluate("window.batchscope.screen.entries.get('roofline').card.hidden")
        room = page.evaluate("window.batchscope.socket.room")
        page.context.close()            # before its room goes, so that a fetch of the room's past finds it
        commands("close_room", room=room)
    assert results[0] == results[1]


def test_a_link_holds_no_secret_and_no_prompt(app, commands, open_page):
    page = open_page(f"{app.url}?host=very-secret-token")
    commands("submit", room="main", prompt="my private prompt", params={"max_new_tokens": 2})
    page.wait_for_function("Object.keys(window.batchscope.store.head.requests).length > 0")
    link = share(page, "{}")
    assert "secret" not in link and "?" not in link
    packed = link.partition("#b1.")[2]
    text = zlib.decompress(base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4)), -15).decode()
    assert "secret" not in text and "private" not in text and '"l":"en"' in text


def test_a_compared_pair_and_the_language_travel(app, live, open_page):
    small = "max_requests_per_batch: 2, num_blocks: 64, block_size: 16"
    link = share(live, f"{{tab: 'compare', compare: {{configs: [{{scheduler_type: 'static', {small}}}, {{{small}}}], device: 'model'}}}}")
    live.evaluate("localStorage.clear()")
    page = open_page(link.replace("#", "?lang=ko#"))
    page.wait_for_function("window.batchscope.compare?.links.length === 2 && window.batchscope.compare.run.done", timeout=60000)
    assert page.evaluate("window.batchscope.compare.links.map(link => link.store.head.counters.steps)") == [11, 8]
    assert page.evaluate("window.batchscope.t.language()") == "en", "the link's language is opened"
    page.click(".bs-compare-bar [data-do=close]")


@pytest.mark.parametrize(("bad", "sentence"), [
    ("b1.!!!", "damaged"), ("b1.AAAA", "damaged"), ("b2.abcd", "newer"), ("b1." + "A" * 20000, "too long"),
    ("b1." + base64.urlsafe_b64encode(zlib.compress(b'"' + b"a" * 10_000_000 + b'"', wbits=-15)).decode().rstrip("="), "too long"),
    ("b1." + base64.urlsafe_b64encode(zlib.compress(b"[1]", wbits=-15)).decode().rstrip("="), "damaged"),
])
def test_a_bad_link_is_refused_with_a_sentence(app, commands, open_page, bad, sentence):
    page = open_page(f"{app.url}#{bad}")
    expect(page.locator(".bs-link-sentence")).to_contain_text(sentence)
    assert page.evaluate("window.batchscope.socket.room") == "main"


def test_unknown_and_hostile_parts_of_a_link_are_left_out(app, commands, open_page):
    state = b'{"t":"evil","c":{"nope":1,"seed":{"a":1},"__proto__":{"x":1}},"p":"<img src=x onerror=alert(1)>","l":"xx","h":"<script>","d":1}'
    page = open_page(f"{app.url}#b1.{base64.urlsafe_b64encode(zlib.compress(state, wbits=-15)).decode().rstrip('=')}")
    page.wait_for_function("document.getElementById('bs-announce')?.textContent === 'The shared view is open.'")
    assert page.evaluate("window.batchscope.socket.room") == "main"
    assert page.evaluate("[document.body.dataset.hiddenControls ?? null, window.batchscope.t.language(), ({}).x ?? null]") == [None, "en", None]


def test_controls_that_are_left_out_are_hidden_elsewhere(app, live, commands, open_page):
    live.get_by_role("tab", name="Recordings").click()
    live.wait_for_function("window.batchscope.recordings?.replay?.mounted", timeout=30000)
    live.check("[data-hide-control=forms]")
    live.click("[data-do=link]")
    live.wait_for_function("document.querySelector('[data-link]').value.includes('#b1.')")
    page = open_page(live.input_value("[data-link]"))
    page.wait_for_function("document.body.dataset.hiddenControls === 'forms'")
    expect(page.locator("#bs-forms")).to_be_hidden()
    expect(page.locator("#bs-host-transport")).to_be_visible()


def test_the_run_card_tells_what_ran(live, commands):
    commands("submit", room="main", prompt="Hello", params={"max_new_tokens": 3})
    live.wait_for_function("window.batchscope.store.head.counters.finished >= 1")
    live.get_by_role("tab", name="Recordings").click()
    live.wait_for_function("window.batchscope.recordings?.replay?.mounted", timeout=30000)
    live.click(".bs-replay [data-do=close]")
    live.click("[data-do=card]")
    live.wait_for_function("window.batchscope.recordings.copied")
    card = live.evaluate("window.batchscope.recordings.copied")
    assert "model: " in card and "SmolLM2" in card and "steps: " in card and "cache: 96 blocks × 16 tokens" in card
