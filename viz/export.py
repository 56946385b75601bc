"""Turn a recording into files: ``python -m viz.export FILE --html OUT --perfetto OUT --csv OUT --svg PANEL OUT``.

``--csv OUT`` writes two tables, ``OUT-requests.csv`` and ``OUT-steps.csv``. ``--svg`` draws one panel in a headless browser from the
offline page, so the picture is the page's own; it needs Playwright and a Chromium (``--png`` likewise).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

from engine.errors import BatchscopeError
from viz.metrics_csv import tables
from viz.offline_html import offline_html
from viz.perfetto import chrome_trace
from viz.recording import Limits, Recording, open_recording, replay

#: Whoever runs the command owns the machine and may open large files; what strangers send to the page is bounded more tightly.
LIMITS = {"command": Limits(), "page": Limits(packed=24 * 2**20, unpacked=160 * 2**20, lines=100_000)}
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status: 0 done, 1 refused (a sentence on standard error), 2 wrong arguments."""
    options = _parser().parse_args(arguments)
    outputs = (options.html, options.perfetto, options.csv, *options.svg, *options.png)
    if not any(outputs):
        _parser().error("nothing to write: give at least one of --html, --perfetto, --csv, --svg, --png")
    try:
        recording = open_recording(options.file, LIMITS[options.limits])
        steps = _check(recording)
        for written in write_all(recording, options):
            print(f"wrote {written}")
        print(f"{recording.header.get('model') or 'run'}: {len(recording.events)} events, {steps} steps")
    except BatchscopeError as refusal:
        print(refusal.message, file=sys.stderr)
        return 1
    except OSError as error:
        print(f"{error.filename or 'A file'} could not be written: {error.strerror or error}.", file=sys.stderr)
        return 1
    return 0


def write_all(recording: Recording, options: argparse.Namespace) -> list[Path]:
    """Write what was asked for; returns the files."""
    written: list[Path] = []

    def write(path: str, text: str) -> None:
        Path(path).write_text(text, encoding="utf-8", newline="")
        written.append(Path(path))
    if options.html:
        write(options.html, offline_html(recording))
    if options.perfetto:
        write(options.perfetto, json.dumps(chrome_trace(recording), ensure_ascii=False, separators=(",", ":")))
    if options.csv:
        base = options.csv.removesuffix(".csv")
        requests, steps = tables(recording)
        write(f"{base}-requests.csv", requests)
        write(f"{base}-steps.csv", steps)
    if options.svg or options.png:
        written += _draw_panels(recording, options.svg, options.png)
    return written


def _check(recording: Recording) -> int:
    """Replay it once, so that a recording that does not hold together is refused before anything is written."""
    return sum(event["type"] == "step" for event, _ in replay(recording))


def _draw_panels(recording: Recording, svgs: list[list[str]], pngs: list[list[str]]) -> list[Path]:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError as error:
        raise BatchscopeError("no_browser", "Drawing a panel needs a browser: install playwright and chromium, or use the page's own "
                              "export buttons.") from error
    browser_path = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    written = []
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page_file = Path(folder) / "recording.html"
        page_file.write_text(offline_html(recording), encoding="utf-8")
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"] if os.geteuid() == 0 else [])
        page = browser.new_page(viewport={"width": 1440, "height": 1000})
        page.goto(page_file.as_uri())
        page.wait_for_function("document.body.dataset.ready === 'true'")
        page.evaluate("window.batchscopeOffline.showEnd()")
        for kind, wanted in (("svg", svgs), ("png", pngs)):
            for panel, path in wanted:
                address = page.evaluate("([panel, kind]) => window.batchscopeOffline.picture(panel, kind)", [panel, kind])
                if address is None:
                    raise BatchscopeError("unknown_panel", f"There is no panel named {panel[:40]!r}.")
                Path(path).write_bytes(_bytes_of(address))
                written.append(Path(path))
        browser.close()
    return written


def _bytes_of(address: str) -> bytes:
    import base64
    return base64.b64decode(address.partition(",")[2])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m viz.export", description=__doc__.split("\n\n")[0])
    parser.add_argument("file", help="a recording (.jsonl.gz)")
    parser.add_argument("--html", metavar="OUT", help="one HTML file that replays offline")
    parser.add_argument("--perfetto", metavar="OUT", help="Chrome trace JSON for ui.perfetto.dev")
    parser.add_argument("--csv", metavar="OUT", help="OUT-requests.csv and OUT-steps.csv")
    parser.add_argument("--svg", nargs=2, action="append", default=[], metavar=("PANEL", "OUT"), help="one panel at the last step")
    parser.add_argument("--png", nargs=2, action="append", default=[], metavar=("PANEL", "OUT"), help="the same as pixels")
    parser.add_argument("--limits", choices=LIMITS, default="command", help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
