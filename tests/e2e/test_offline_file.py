"""The exported file in a browser, with the network cut: it follows its window, and its own buttons work there too."""

from __future__ import annotations

import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from viz.offline_html import offline_html
from viz.recording import open_recording

EXAMPLE = Path(__file__).parents[2] / "viz" / "static" / "examples" / "smollm2.jsonl.gz"

# For each panel with a plot of its own: how wide its place is, and how wide figure and canvas were drawn.
WIDTHS = """() => [...window.batchscopeOffline.replay.screen.entries.values()].filter(({ panel }) => panel.plot).map(({ spec, panel: { plot } }) =>
    ({ name: spec.name, place: Math.floor(plot.holder.clientWidth), drawn: plot.width, figure: plot.div._fullLayout.width,
       canvas: plot.canvas.clientWidth, pixels: plot.pen.getImageData(0, 0, plot.canvas.width, plot.canvas.height).data.some((value) => value > 0) }))"""


@pytest.fixture
def offline(browser: Browser, tmp_path: Path) -> Iterator[Page]:
    path = tmp_path / "offline.html"
    path.write_text(offline_html(open_recording(EXAMPLE)), encoding="utf-8")
    context = browser.new_context(viewport={"width": 1440, "height": 3000}, offline=True)
    page = context.new_page()
    faults: list[str] = []
    page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(path.as_uri())
    page.wait_for_selector("body[data-ready='true']", timeout=30000)
    page.evaluate("window.batchscopeOffline.show(40, null)")
    page.evaluate("window.batchscopeOffline.settled()")
    yield page
    context.close()
    assert faults == []


def until(page: Page, question: str, holds: Callable[[Any], bool]) -> None:
    """Ask again and again until the answer is right: the file forbids the eval that Playwright's own polling needs."""
    deadline = time.monotonic() + 30
    while not holds(answer := page.evaluate(question)):
        assert time.monotonic() < deadline, answer
        page.wait_for_timeout(50)


def test_every_panel_is_drawn_again_when_the_window_changes_its_size(offline):
    """Nothing plays and nothing is clicked: the new size alone must be reason enough."""
    before = {row["name"]: row for row in offline.evaluate(WIDTHS)}
    assert {"composition", "blocks", "timeline"} <= set(before)
    offline.set_viewport_size({"width": 1060, "height": 3000})

    def follows(row: dict[str, Any]) -> bool:
        old = before[row["name"]]
        return (row["place"] < old["place"] - 100 and row["drawn"] == row["figure"] == row["place"]
                and row["canvas"] < old["canvas"] and row["pixels"])
    until(offline, WIDTHS, lambda rows: all(map(follows, rows)))


def test_a_figure_follows_its_own_place_also_where_the_panel_keeps_its_size(offline):
    """A row of figures that wraps takes its height from the plot below it, and nothing else on the page changes."""
    height = """() => { const { plot } = window.batchscopeOffline.replay.screen.entries.get('composition').panel;
      return [plot.height, plot.div._fullLayout.height]; }"""
    before = offline.evaluate(height)[0]
    offline.evaluate("document.querySelector('.bs-step-figures').style.paddingBottom = '30px'")
    until(offline, height, lambda heights: heights == [before - 30, before - 30])


def test_a_panel_is_saved_as_a_picture_from_the_file_itself(offline, tmp_path):
    """The file forbids itself every request, so the picture must be made without one; and it is the panel as it stands, also on a dark page."""
    offline.click("#bs-offline-bar button:has-text('◐')")
    for kind in ("svg", "png"):
        card = offline.locator("[data-panel=timeline]")
        card.hover()
        card.locator(".bs-picture-menu summary").click()
        with offline.expect_download(timeout=20000) as saved:
            card.locator(f".bs-picture-menu [data-kind={kind}]").click()
        assert saved.value.suggested_filename == f"batchscope-timeline.{kind}"
        saved.value.save_as(tmp_path / f"timeline.{kind}")
    root = ET.parse(tmp_path / "timeline.svg").getroot()
    ground = root.find("{http://www.w3.org/2000/svg}rect").get("fill")
    assert ground == "#161d26" and "r12" in "".join(root.itertext())
    assert (tmp_path / "timeline.png").read_bytes().startswith(b"\x89PNG")


def test_a_picture_taken_on_a_narrow_screen_is_not_folded(offline):
    """What is open on a phone is open in its picture, and what is folded there is as small as its head."""
    offline.set_viewport_size({"width": 390, "height": 3000})
    offline.evaluate("window.batchscopeOffline.settled()")
    sizes = offline.evaluate("""async () => {
      const height = async (name) => {
        const address = await window.batchscopeOffline.picture(name, 'png');
        const image = new Image();
        await new Promise((done) => { image.onload = done; image.src = address; });
        return [image.height, window.batchscopeOffline.replay.screen.entries.get(name).card.getBoundingClientRect().height];
      };
      return { lanes: await height('lanes'), swap_pool: await height('swap_pool') };
    }""")
    for pixels, shown in sizes.values():
        assert abs(pixels - 2 * shown) <= 2
    assert sizes["swap_pool"][1] < 60 < sizes["lanes"][1]
