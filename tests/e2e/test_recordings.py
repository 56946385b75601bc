"""Recordings on the page: what is saved is what happened, what is opened is only ever data, and both replay without an engine."""

from __future__ import annotations

import contextlib
import gzip
import json
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from playwright.sync_api import Page, expect

from engine.state import apply_event
from tests.e2e.served import App, Process
from tests.ports import held_port
from tests.viz.runs import file_of, lines_of, packed, small_run
from viz.offline_html import offline_html
from viz.recording import open_recording, replay

EXAMPLE = Path(__file__).parents[2] / "viz" / "static" / "examples" / "smollm2.jsonl.gz"
XSS = "<img src=x onerror=\"window.hacked=1\"><script>window.hacked=1</script>"


def open_tab(page: Page) -> None:
    page.get_by_role("tab", name="Recordings").click()
    page.wait_for_function("window.batchscope.recordings?.replay?.mounted", timeout=30000)


def open_file(page: Page, data: bytes, name: str = "run.jsonl.gz") -> None:
    page.set_input_files("[data-file]", {"name": name, "mimeType": "application/gzip", "buffer": data})


def expect_pictures(page: Page) -> None:
    """The panels that are drawn last are drawn: the charts, which take turns, and the lists far down."""
    for name in ("latency", "throughput", "roofline"):
        expect(page.locator(f".bs-replay [data-panel={name}] .js-plotly-plot svg")).not_to_have_count(0)
    expect(page.locator(".bs-replay [data-panel=decision_log] .bs-sentence-step")).not_to_have_count(0)
    expect(page.locator(".bs-replay [data-panel=swap_pool] .bs-panel-note")).to_contain_text("slots")


def replayed_state(page: Page) -> dict[str, Any]:
    return page.evaluate("JSON.parse(JSON.stringify(window.batchscope.recordings.replay.store.state))")


@pytest.fixture
def tab(live: Page) -> Page:
    open_tab(live)
    return live


def test_the_example_says_that_it_is_a_recording_and_of_what(tab):
    banner = tab.inner_text(".bs-replay-banner")
    assert "RECORDING" in banner and "SmolLM2" in banner and "real run" in banner


def test_every_step_of_a_replay_is_the_state_of_the_recording(tab):
    """Forwards, backwards and by jumps: the page shows what the Python reducer makes of the same file."""
    recording = open_recording(EXAMPLE)
    expected = {event["seq"]: json.loads(json.dumps(state)) for event, state in replay(recording)}
    for seq in [*list(expected)[::7], *list(expected)[::-11], max(expected), min(expected)]:
        tab.evaluate("seq => window.batchscope.recordings.replay.store.seekSeq(seq)", seq)
        assert replayed_state(tab) == expected[seq], seq


def test_a_replay_has_all_transport_controls_by_key(tab):
    at = "window.batchscope.recordings.replay.store.state.step"
    tab.click(".bs-replay-banner")                # the tab's own label has the focus, where arrows change the tab
    tab.keyboard.press("Home")
    assert tab.evaluate(at) == 0
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("ArrowRight")
    assert tab.evaluate(at) == 2
    tab.keyboard.press("Shift+ArrowRight")
    assert tab.evaluate(at) == 12
    tab.keyboard.press("ArrowLeft")
    assert tab.evaluate(at) == 11
    tab.keyboard.press("]")
    assert tab.evaluate("window.batchscope.recordings.replay.store.event.transitions.some(item => item.cause === 'offload' || item.cause === 'soft_reset')")
    tab.keyboard.press("End")
    assert tab.evaluate(at) == open_recording(EXAMPLE).last_step
    tab.keyboard.press("Home")
    tab.select_option("[data-speed]", "0")
    tab.keyboard.press("Space")
    tab.wait_for_function(f"{at} === {open_recording(EXAMPLE).last_step}")
    # Slow enough not to have arrived at the end, where a space would begin anew, before the space that stops it.
    tab.keyboard.press("Home")
    tab.select_option("[data-speed]", "1")
    tab.keyboard.press("Space")
    tab.wait_for_function(f"{at} > 2")
    tab.keyboard.press("Space")
    stopped = tab.evaluate(at)
    tab.wait_for_timeout(500)                     # four steps of it
    assert tab.evaluate(at) == stopped


def test_a_replay_never_commands_the_engine(tab, commands):
    """A recording is in the room of nobody: its answers' cancel buttons must not cancel a live request of the same name."""
    before = commands("snapshot", room="main")["seq"]
    tab.evaluate("() => { for (const button of document.querySelectorAll('.bs-replay .bs-panel-answers button')) button.click(); }")
    tab.click(".bs-replay [data-do=play]")
    tab.wait_for_function("window.batchscope.recordings.replay.store.state.step > 2")
    # The page's next command is answered after whatever it sent before.
    tab.evaluate("window.batchscope.command('rooms').then(() => null)")
    assert commands("snapshot", room="main")["seq"] == before


def test_the_live_run_is_saved_as_it_happened_and_opens_again(app: App, live, commands):
    commands("submit", room="main", requests=[{"prompt": "Name three fruits.", "params": {"max_new_tokens": 6}},
                                              {"prompt": XSS, "params": {"max_new_tokens": 5}}])
    live.wait_for_function("window.batchscope.store.head.counters.finished >= 2 && window.batchscope.store.head.active.length === 0")
    open_tab(live)
    with live.expect_download() as saved:
        live.click(".bs-recordings-actions [data-do=save]")
    data = Path(saved.value.path()).read_bytes()
    recording = open_recording(data)
    states = [state for _, state in replay(recording)]
    truth = commands("snapshot", room="main")["state"]
    assert states[-1] == truth
    assert recording.header["model"] == truth["engine"]["model"] and recording.header["journal"]["entries"]
    open_file(live, data)
    live.wait_for_function("!document.querySelector('.bs-replay-banner').textContent.includes('Twelve questions')")
    live.evaluate("window.batchscope.recordings.replay.store.seekIndex(1e9)")
    assert replayed_state(live) == truth


# --- files of strangers ----------------------------------------------------------------------------------------------

def hostile_files() -> dict[str, tuple[bytes, str]]:
    lines = lines_of(small_run())
    gap, deep, proto = list(lines), list(lines), list(lines)
    gap.pop(3)
    deep[3] = b'{"type":"engine","seq":2,"x":' + b"[" * 5000 + b"]" * 5000 + b"}"
    proto[2] = lines[2].replace(b'"r1"', b'"__proto__"')
    edited = list(lines)
    edited[3] = lines[3].replace(b'"r1"', b'"r7"')
    return {
        "no gzip": (b"\x1f\x8b" + b"\0" * 40, "not whole"), "cut": (packed(small_run())[:-20], "not whole"),
        "text": (b"hello", "Line 1 is not a JSON object"), "empty": (b"", "ends before"),
        "array": (gzip.compress(b"[]\n"), "Line 1 is not a JSON object"), "other": (gzip.compress(b'{"format":"x"}\n'), "not a Batchscope run card"),
        "bomb": (gzip.compress(b'{"format":"' + b"a" * (40 * 2**20)), "longer than"),
        "gap": (file_of(gap), "Line 4 should have sequence number"), "deep": (file_of(deep), "Line 4 is nested deeper"),
        "prototype": (file_of(proto), "Line 3 does not continue"), "edited": (file_of(edited), "Line 4 does not continue"),
        "newer": (file_of([lines[0].replace(b'"version":1', b'"version":9'), *lines[1:]]), "version 9"),
        "utf8": (gzip.compress(b"\xff\xfe\n"), "not UTF-8"),
    }


def test_a_bad_file_is_refused_with_a_sentence_and_a_good_one_opens_after_it(tab):
    good = packed(small_run())
    for name, (data, sentence) in hostile_files().items():
        open_file(tab, data)
        tab.wait_for_function("document.querySelector('.bs-recordings > [data-message]').dataset.kind === 'error'")
        expect(tab.locator(".bs-recordings > [data-message]"), name).to_contain_text(sentence)
        assert tab.evaluate("window.batchscope.recordings.replay") is None, name
        open_file(tab, good)
        tab.wait_for_function("window.batchscope.recordings.replay?.mounted")
        tab.wait_for_function("document.querySelector('.bs-recordings > [data-message]').dataset.kind !== 'error'")


def test_nothing_in_a_recording_becomes_markup_or_code(tab):
    run = small_run()
    run.header.update(title=XSS, model=XSS, device=XSS, room=XSS, workload={"name": XSS}, versions={XSS: XSS})
    record = run.events[0]["requests"][0]
    record.update(prompt=XSS, visitor=XSS)
    run.events[1]["tokens"][0]["text"] = XSS
    run.events[2]["transitions"][0].update(reason=XSS, to="failed", cause="failed")
    run.snapshot["state"]["engine"].update(model=XSS, message=XSS, notes=[XSS])
    run.events[0]["engine"] = {"status": "paused", "message": XSS}
    open_file(tab, packed(run))
    tab.wait_for_function("window.batchscope.recordings.replay?.store.last === 3")
    for index in range(4):
        tab.evaluate("index => { const { replay } = window.batchscope.recordings; replay.store.seekIndex(index); replay.screen.select('r1'); }", index)
        expect(tab.locator(".bs-replay .bs-lane-chips .bs-chip")).to_have_count(int(index > 0))
    # Every place that shows words of the recording has drawn them.
    expect(tab.locator(".bs-replay .bs-answer-prompt")).to_have_text(XSS)
    expect(tab.locator(".bs-replay .bs-answer p")).to_contain_text(XSS)
    tab.locator(".bs-replay [data-panel=request_story]").scroll_into_view_if_needed()
    expect(tab.locator(".bs-replay [data-panel=request_story] q")).to_have_text(XSS)
    tab.get_by_text("Run card", exact=True).last.click()
    assert tab.evaluate("window.hacked") is None
    assert tab.locator(".bs-recordings img[src='x'], .bs-recordings script").count() == 0
    expect(tab.locator(".bs-card-facts")).to_contain_text(XSS)
    expect(tab.locator(".bs-replay-banner")).to_contain_text(XSS)


# --- exports ---------------------------------------------------------------------------------------------------------

def test_the_export_buttons_give_files_of_their_kind(tab):
    files = {}
    for kind in ("html", "perfetto", "csv"):
        with tab.expect_download(timeout=60000) as saved:
            tab.click(f".bs-replay [data-export={kind}]")
        files[kind] = Path(saved.value.path()).read_bytes()
    assert files["html"].startswith(b"<!doctype html>")
    assert len(json.loads(files["perfetto"])["traceEvents"]) > 500
    assert files["csv"].startswith(b"PK")


def test_the_offline_file_replays_by_double_click_and_asks_nobody(browser, tmp_path):
    """Opened from file:// with the network cut: every panel draws, every step is the recording's, and no request is made."""
    recording = open_recording(EXAMPLE)
    recording.header["title"] = XSS
    path = tmp_path / "offline.html"
    path.write_text(offline_html(recording), encoding="utf-8")
    context = browser.new_context(viewport={"width": 1280, "height": 3000}, offline=True)
    page = context.new_page()
    faults: list[str] = []
    page.on("console", lambda message: faults.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    own = ("data:", "blob:", path.as_uri())
    page.on("request", lambda request: None if request.url.startswith(own) else faults.append(request.url))
    page.goto(path.as_uri())
    page.wait_for_selector("body[data-ready='true']", timeout=30000)     # a polled function would need eval, which the file forbids
    expected = {event["seq"]: json.loads(json.dumps(state)) for event, state in replay(recording)}
    for seq in list(expected)[::17]:
        page.evaluate("seq => window.batchscopeOffline.replay.store.seekSeq(seq)", seq)
        assert page.evaluate("JSON.parse(JSON.stringify(window.batchscopeOffline.replay.store.state))") == expected[seq]
    page.evaluate("() => { const { store } = window.batchscopeOffline.replay; store.seekIndex(store.last); }")
    expect_pictures(page)
    broken = page.evaluate("""[...window.batchscopeOffline.replay.screen.entries.values()]
      .filter(entry => !entry.panel || entry.reported).map(entry => entry.spec.name)""")
    assert broken == [] and page.evaluate("window.hacked") is None
    page.keyboard.press("Home")
    page.keyboard.press("Shift+ArrowRight")
    assert page.evaluate("window.batchscopeOffline.replay.store.state.step") == 10
    page.get_by_role("button", name="한국어").click()
    expect(page.locator(".bs-replay-mark")).to_contain_text("녹화")
    context.close()
    assert faults == []


def test_every_panel_can_be_saved_as_a_picture(tab):
    tab.evaluate("window.batchscope.recordings.replay.store.seekStep(40)")
    tab.set_viewport_size({"width": 1400, "height": 3200})
    expect_pictures(tab)
    for name in tab.evaluate("[...window.batchscope.recordings.replay.screen.entries.keys()]"):
        size = tab.evaluate("""async name => {
          const { panelPicture } = await import('/viz/panel_image.js');
          const { card } = window.batchscope.recordings.replay.screen.entries.get(name);
          if (card.hidden) return null;
          const svg = await panelPicture(card, 'svg');
          const png = await panelPicture(card, 'png');
          const image = new Image();
          await new Promise((done, failed) => { image.onload = done; image.onerror = failed; image.src = png; });
          return [svg.startsWith('data:image/svg+xml'), image.width, image.height];
        }""", name)
        assert size is None or (size[0] and size[1] > 150 and size[2] > 100), (name, size)


def test_the_reducers_agree_on_the_example():
    """The file in the repository replays in Python to the same end as event by event."""
    recording = open_recording(EXAMPLE)
    state = json.loads(json.dumps(recording.snapshot["state"]))
    for event in recording.events:
        apply_event(state, event)
    assert EXAMPLE.stat().st_size < 300_000 and state["counters"]["finished"] == 12 and state["counters"]["offloads"] > 0
    assert not recording.header["simulated"] and recording.header["journal"]["entries"]


def until_page(app: App) -> str:
    """The address, as soon as Gradio's page is up; the engine need not be."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), urlopen(app.url, timeout=10) as answer:
            if b"bs-data" in answer.read():
                return app.url
        time.sleep(0.2)
    raise AssertionError("the page did not come up")


# --- the greeting ----------------------------------------------------------------------------------------------------

def test_the_example_greets_until_the_engine_is_ready(open_page):
    """A page opened before its engine answers shows the recording, says so, and gives way to the live run by itself."""
    with contextlib.ExitStack() as stack:
        port = stack.enter_context(held_port())
        app = App(engine=f"ws://127.0.0.1:{port}")
        stack.callback(app.stop)
        page = open_page(until_page(app))
        page.wait_for_selector("#bs-greeting .bs-replay-banner", timeout=60000)
        page.wait_for_function("document.querySelector('#bs-greeting .bs-replay-actions').textContent.includes('while the model loads')")
        expect(page.locator("#bs-greeting .bs-replay-mark")).to_have_text("RECORDING")
        assert page.evaluate("document.getElementById('bs-live').hidden")
        stack.callback(Process("-m", "engine", "--port", str(port), "--announce", "--device", "simulated:h100", "--model", "llama-8b").stop)
        page.wait_for_function("!document.getElementById('bs-greeting') && !document.getElementById('bs-live').hidden", timeout=60000)
        assert page.evaluate("window.batchscope.store.head.engine.status") == "ready"
        page.evaluate("window.batchscope.socket.close()")       # so that the end of the app below is no error on the page
