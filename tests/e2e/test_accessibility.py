"""axe on every tab, light and dark: no serious and no critical violation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.served import App, Commands
from viz.page import TABS

AXE = Path(__file__).parent / "vendor" / "axe.min.js"
#: Runs axe and keeps what a person needs to find the element.
RUN = """async () => (await axe.run(document, { resultTypes: ['violations'], runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa'] })).violations
  .filter((item) => item.impact === 'serious' || item.impact === 'critical')
  .flatMap((item) => item.nodes.map((node) =>
    `${item.id}: ${node.target.join(' ')}: ${node.any.concat(node.all, node.none).map((each) => each.message)[0] ?? ''}`))"""


#: What stands in each tab when it is whole, with all that axe should see of it.
WHOLE = {"live": ".bs-waiting [data-request]", "compare": "[data-pair=textbook]", "lessons": ".bs-lesson-card",
         "recordings": ".bs-replay-actions [data-do=close]"}


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("tab", TABS)
def test_no_serious_violation(app: App, commands: Commands, open_page: Callable[..., Page], tab: str, theme: str):
    commands("configure", room="main", changes={"max_requests_per_batch": 2})
    commands("pause", room="main")
    for index in range(4):
        commands("submit", room="main", prompt=f"Question {index}?", params={"max_new_tokens": 20 if index else 1, "ignore_eos": True})
    commands("step", room="main", count=5)
    commands.until(lambda state: state["counters"]["steps"] == 5, "five steps")
    page = open_page(f"{app.url}?theme={theme}", reduced_motion="reduce")
    page.locator(f"#bs-tab-{tab}-button").click()
    page.locator(WHOLE[tab]).first.wait_for()
    if tab == "live":
        expect(page.locator("#bs-live .bs-answer")).to_have_count(3)
        expect(page.locator("#bs-live .bs-chip")).to_have_count(4)
    page.evaluate(AXE.read_text("utf-8"))
    assert page.evaluate(RUN) == []
