"""Panels of a recording as pictures, drawn by a headless Chromium from the offline page, so a picture is the page's own."""

from __future__ import annotations

import base64
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import BatchscopeError
from viz.browser import find_chromium
from viz.offline_html import offline_html
from viz.panels import load_panels
from viz.recording import Recording

WIDTH, TALLEST = 1440, 8000
READY_MS = 120_000          # the longest recording that may be opened takes about this long in the browser

NO_PLAYWRIGHT = "Drawing a panel needs the package playwright (pip install playwright) and Chromium; the page's own picture buttons need neither."
NO_CHROMIUM = ("Drawing a panel needs Chromium, which was not found or did not start: install it (Debian: apt-get install chromium) or name "
               "the program in the variable CHROMIUM.")


@dataclass(frozen=True, slots=True)
class Moment:
    """What of the run is shown: after which step (``None``: at the end), and which request is highlighted."""

    step: int | None = None
    request: str | None = None


def check_wanted(recording: Recording, panels: list[str], moment: Moment) -> None:
    """Raises :class:`BatchscopeError` for a panel, a step or a request that there is not; starts nothing."""
    names = [spec.name for spec in load_panels()]
    for panel in panels:
        if panel not in names:
            raise BatchscopeError("unknown_panel", f"There is no panel named {panel[:40]!r}; there are {', '.join(names)}.")
    first, last = recording.snapshot["state"]["step"], recording.last_step
    if moment.step is not None and not first <= moment.step <= last:
        raise BatchscopeError("no_such_step", f"This recording goes from step {first} to step {last}; it has no step {moment.step}.")
    requests = {*recording.snapshot["state"]["requests"], *(record["id"] for event in recording.events for record in event.get("requests", ()))}
    if moment.request is not None and moment.request not in requests:
        raise BatchscopeError("no_such_request", f"There is no request named {moment.request[:40]!r} in this recording.")


def draw_panels(recording: Recording, wanted: list[tuple[str, str]], moment: Moment) -> Iterator[bytes]:
    """The pictures, for each (panel, ``svg`` or ``png``). Raises :class:`BatchscopeError` where there is no browser."""
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError as error:
        raise BatchscopeError("no_browser", NO_PLAYWRIGHT) from error
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page_file = Path(folder) / "recording.html"
        page_file.write_text(offline_html(recording), encoding="utf-8")
        try:
            browser = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"] if os.geteuid() == 0 else [])
        except Error as error:
            raise BatchscopeError("no_browser", NO_CHROMIUM) from error
        try:
            # Canvases are painted at the screen's own resolution, so this one is as fine as the picture.
            page = browser.new_page(viewport={"width": WIDTH, "height": 1000}, device_scale_factor=2)
            _open(page, page_file, moment)
            for panel, kind in wanted:
                address = page.evaluate("([panel, kind]) => window.batchscopeOffline.picture(panel, kind)", [panel, kind])
                yield base64.b64decode(address.partition(",")[2])
        except Error as error:
            reason = error.message.splitlines()[0].rstrip(".")[:200]
            raise BatchscopeError("not_drawn", f"The browser could not draw the recording: {reason}.") from error
        finally:
            browser.close()


def _open(page: Any, page_file: Path, moment: Moment) -> None:
    page.goto(page_file.as_uri())
    page.wait_for_selector("body[data-ready='true']", timeout=READY_MS)      # a polled function would need eval, which the page forbids
    page.evaluate("([step, request]) => window.batchscopeOffline.show(step, request)", [moment.step, moment.request])
    # Only panels in sight are drawn, so the window becomes as tall as the page.
    height = page.evaluate("document.documentElement.scrollHeight")
    page.set_viewport_size({"width": WIDTH, "height": min(TALLEST, height)})
    page.wait_for_timeout(200)                                               # the observers of sight and size report in their own time
    page.evaluate("window.batchscopeOffline.settled()")
