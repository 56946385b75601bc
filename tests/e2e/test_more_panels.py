"""The panels below the main ones, on a recorded run of the real engine: what they show is computed a second time here, in Python."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy
import pytest
from playwright.sync_api import Page, expect

from engine.executor.catalog import find_gpu, find_model
from engine.executor.roofline import Roofline, load_of
from engine.plan import Slice
from viz.metrics_csv import tables
from viz.recording import open_recording, replay

EXAMPLE = Path(__file__).parents[2] / "viz" / "static" / "examples" / "smollm2.jsonl.gz"
RECORDING = open_recording(EXAMPLE)
STATES = {event["seq"]: json.loads(json.dumps(state)) for event, state in replay(RECORDING)}
LAST = max(STATES)
MIDDLE = next(seq for seq, state in STATES.items() if any(request["offloaded"] for request in state["requests"].values()))


@pytest.fixture(scope="module")
def page(browser, app) -> Page:
    """The Recordings tab with the example, in a window tall enough for all panels."""
    context = browser.new_context(viewport={"width": 1440, "height": 3600})
    page = context.new_page()
    page.goto(app.url)
    page.get_by_role("tab", name="Recordings").click()
    page.wait_for_function("window.batchscope?.recordings?.replay?.mounted", timeout=60000)
    yield page
    context.close()


def seek(page: Page, seq: int) -> dict[str, Any]:
    """Look at this moment. The panels take turns and are drawn in the frames after, so what they show has to be waited for."""
    page.evaluate("seq => window.batchscope.recordings.replay.store.seekSeq(seq)", seq)
    return STATES[seq]


def expect_log_at(page: Page, seq: int) -> None:
    """The decision log has been drawn for this moment, at which something was decided: no later step is in it, and this one is."""
    page.wait_for_function(r"""step => {
      const labels = [...document.querySelectorAll('.bs-replay [data-panel=decision_log] .bs-sentence-step')].map((element) => element.textContent);
      return labels.length > 0 && Math.max(...labels.map((label) => Number(label.match(/\d+$/)[0]))) === step; }""", arg=STATES[seq]["step"])


def ask(page: Page, module: str, expression: str, value: Any = None) -> Any:
    return page.evaluate(f"async value => {{ const module = await import('/viz/{module}.js'); const {{ store }} = window.batchscope.recordings.replay;"
                         f" return {expression}; }}", value)


def panel(page: Page, name: str):
    return page.locator(f".bs-replay [data-panel={name}]")


# --- decisions -------------------------------------------------------------------------------------------------------

def test_every_refusal_and_transition_is_a_sentence(page):
    rows = ask(page, "decisions", "module.decisionTrack(store).rows.map(row => [row.id, row.key, row.step, row.until ?? row.step])")
    for event in RECORDING.events:
        for transition in event.get("transitions", ()):
            keys = (transition["cause"], f"{transition['cause']}_self")
            assert any(row[0] == transition["id"] and row[1] in keys and row[2] == event["step"] for row in rows), transition
        if event["type"] == "step":
            for refused in STATES[event["seq"]]["waiting"]["refused"]:
                key = f"wait_{refused['reason']}"
                assert any(row[0] == refused["id"] and row[1] == key and row[2] <= event["step"] <= row[3] for row in rows), (event["step"], refused)


def test_the_log_shows_the_newest_decision_first_and_nothing_later_than_the_step(page):
    seek(page, MIDDLE)
    expect_log_at(page, MIDDLE)
    expect(panel(page, "decision_log")).to_contain_text("is offloaded")


def test_the_story_of_a_request_is_its_whole_life(page):
    victim = next(name for name, request in STATES[MIDDLE]["requests"].items() if request["offloaded"])
    seek(page, LAST)
    page.evaluate("id => window.batchscope.recordings.replay.screen.select(id)", victim)
    story, request = panel(page, "request_story"), STATES[LAST]["requests"][victim]
    for part in ("arrives with a prompt of", "is admitted", "computes prompt tokens", "first token", "decodes", "is offloaded", "is restored", "finishes",
                 f"{request['prompt_len']} prompt + {request['outputs']} output tokens", f"offloaded {request['offloads']}×"):
        expect(story).to_contain_text(part)
    page.evaluate("window.batchscope.recordings.replay.screen.select(null)")


def test_hovering_a_sentence_highlights_its_request_everywhere(page):
    seek(page, MIDDLE)
    expect_log_at(page, MIDDLE)
    row = panel(page, "decision_log").locator("[data-request]").first
    row.hover()
    assert page.evaluate("window.batchscope.recordings.replay.screen.hovered") == row.get_attribute("data-request")
    page.mouse.move(2, 2)


# --- blocks ----------------------------------------------------------------------------------------------------------

def test_the_block_table_is_the_request_s_own(page):
    state = seek(page, MIDDLE)
    name = next(name for name, request in state["requests"].items() if request["tables"] and len(request["tables"][0]) > 2)
    page.evaluate("id => window.batchscope.recordings.replay.screen.select(id)", name)
    cells = panel(page, "block_table").locator(".bs-block-cell")
    expect(cells.locator("i")).to_have_text([str(logical) for logical, _ in enumerate(state["requests"][name]["tables"][0])])
    expect(cells.locator("b")).to_have_text([str(physical) for physical in state["requests"][name]["tables"][0]])
    page.evaluate("window.batchscope.recordings.replay.screen.select(null)")


def test_the_swap_pool_shows_who_owns_each_slot(page):
    state = seek(page, MIDDLE)
    owners = dict(ask(page, "panels/swap_pool", "[...module.slotOwners(store.state)].map(([slot, request]) => [String(slot), request.id])"))
    assert owners == {str(slot): name for name, request in state["requests"].items() for slots in request["slots"] for slot in slots}
    expect(panel(page, "swap_pool")).to_contain_text(f"{len(owners)} of {state['layout']['swap_slots']} slots")


def test_the_prefix_tree_holds_every_known_block_once_in_its_chain(page):
    for seq in (MIDDLE, LAST):
        hashes = STATES[seq]["hashes"]
        bars = ask(page, "prefix_tree", """module.buildTree(value).bars.map(bar => ({
          hashes: bar.hashes, blocks: bar.blocks, above: bar.parent ? bar.parent.hashes.at(-1) : null, orphan: bar.orphan}))""", hashes)
        assert sorted(block for bar in bars for block in bar["blocks"]) == sorted(map(int, hashes))
        parent_of = dict(hashes.values())
        for bar in bars:
            chain = [bar["above"], *bar["hashes"]]
            for parent, known in zip(chain, chain[1:], strict=False):
                assert parent_of[known] == parent or (bar["orphan"] and known == bar["hashes"][0])


def test_prefix_hits_are_counted_from_the_shared_blocks(page):
    counted = ask(page, "prefix_tree", "[...module.hitTrack(store).countUpTo(value).values()].reduce((sum, count) => sum + count, 0)", LAST)
    operations = [operation for event in RECORDING.events for operation in event.get("blocks", ())]
    shared = sum(len(operation[3]) for operation in operations if operation[0] == "share" and operation[4] == "prefix")
    assert counted == shared > 0


# --- figures ---------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("seq", [MIDDLE, LAST])
def test_latencies_are_those_of_the_events(page, seq):
    ttft, itl, times = [], [], {}
    for event in RECORDING.events:
        if event["seq"] > seq:
            break
        for token in event.get("tokens", ()):
            state = STATES[event["seq"]]
            before = times.get(token["id"])
            (ttft if before is None else itl).append(1000 * (event["time"] - (before if before is not None else state["requests"][token["id"]]["arrival"])))
            times[token["id"]] = event["time"]
    shown = ask(page, "measures", """['ttft', 'itl'].map(name => {
      const { count, p50, p90, p99 } = module.summary(module.measureTrack(store)[name], value, 1e9);
      return [count, p50, p90, p99]; })""", seq)
    for (count, *percentiles), values in zip(shown, (ttft, itl), strict=True):
        assert count == len(values)
        assert percentiles == pytest.approx([numpy.percentile(values, percent) for percent in (50, 90, 99)])


def test_the_page_and_the_csv_count_the_same_tokens(page):
    steps = ask(page, "measures", "module.measureTrack(store).steps.map(row => [row.step, row.decode, row.prefill, row.active, row.waiting])")
    lines = [line.split(",") for line in tables(RECORDING)[1].splitlines()]
    head = lines[0]
    pick = [head.index(name) for name in ("step", "decode_tokens", "prefill_tokens", "active", "waiting")]
    assert steps == [[int(line[at]) for at in pick] for line in lines[1:]]


def test_the_work_of_a_step_is_that_of_the_roofline_model(page):
    """The browser's sums of bytes and FLOPs equal the engine's cost model, sliding windows included."""
    pieces = [(0, 37, "prefill", True), (120, 1, "decode", True), (3000, 1, "decode", True), (500, 64, "prefill", False), (40, 1, "padding", False)]
    for name in ("smollm2", "llama-70b", "gemma-2-9b", "mistral-7b-v0.1"):
        spec = find_model(name)
        model = Roofline(find_gpu("h100"), spec)
        load = load_of([Slice(None, *piece) for piece in pieces], spec.sliding_window)
        load.query_tokens += 5
        cost = model.step_cost(load)
        groups = [{"window": None, "layers": list(range(model.full_layers))}, {"window": spec.sliding_window, "layers": list(range(model.sliding_layers))}]
        value = {"slices": [["r", *piece] for piece in pieces], "spec": spec.to_dict(), "groups": groups, "window": spec.sliding_window}
        work = ask(page, "step_work", """module.workOf(
          module.loadOf(value.slices, value.window), value.spec, value.groups.filter(group => group.layers.length), 5)""", value)
        assert work["bytes"] == pytest.approx(cost.bytes_read) and work["flops"] == pytest.approx(cost.flops), name


def test_overlap_is_the_time_that_both_lanes_are_busy(page):
    value = {"cpu": [[0, 1], [2, 3], [5, 9]], "device": [[0.5, 2.5], [6, 7], [8, 8.5]]}
    assert ask(page, "panels/cpu_device", "module.overlap(value.cpu, value.device)", value) == pytest.approx(0.5 + 0.5 + 1 + 0.5)


def test_charts_draw_and_every_panel_says_a_sentence(page):
    seek(page, LAST)
    for name in ("latency", "throughput", "roofline"):
        expect(panel(page, name).locator(".js-plotly-plot svg")).not_to_have_count(0)
    silent = page.evaluate("""[...window.batchscope.recordings.replay.screen.entries.values()].filter(entry => !entry.card.hidden)
      .filter(entry => !(entry.panel.describe?.(window.batchscope.recordings.replay.store.view()) ?? '').trim()).map(entry => entry.spec.name)""")
    assert silent == []
