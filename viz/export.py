"""Turn a recording into files: ``python -m viz.export FILE --html OUT --perfetto OUT --csv OUT --svg PANEL OUT``.

``--csv OUT`` writes two tables, ``OUT-requests.csv`` and ``OUT-steps.csv``. ``--svg`` draws one panel in a headless browser from the
offline page, so the picture is the page's own; it needs Playwright and a Chromium (``--png`` likewise). ``--step`` and ``--request`` say
which moment is drawn and whose request is highlighted.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from engine.errors import BatchscopeError
from viz.metrics_csv import tables
from viz.offline_html import offline_html
from viz.panel_pictures import Moment, check_wanted, draw_panels
from viz.perfetto import chrome_trace
from viz.recording import Limits, Recording, open_recording, replay

#: Whoever runs the command owns the machine and may open large files; what strangers send to the page is bounded more tightly.
LIMITS = {"command": Limits(), "page": Limits(packed=24 * 2**20, unpacked=160 * 2**20, lines=100_000)}


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status: 0 done, 1 refused (a sentence on standard error), 2 wrong arguments."""
    options = _parser().parse_args(arguments)
    outputs = (options.html, options.perfetto, options.csv, *options.svg, *options.png)
    if not any(outputs):
        _parser().error("nothing to write: give at least one of --html, --perfetto, --csv, --svg, --png")
    try:
        recording = open_recording(options.file, LIMITS[options.limits])
        steps = _check(recording)
        check_wanted(recording, [panel for panel, _, _ in _pictures(options)], _moment(options))
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
    pictures = _pictures(options)
    if pictures:
        drawn = draw_panels(recording, [(panel, kind) for panel, kind, _ in pictures], _moment(options))
        for (_, _, path), picture in zip(pictures, drawn, strict=True):
            Path(path).write_bytes(picture)
            written.append(Path(path))
    return written


def _pictures(options: argparse.Namespace) -> list[tuple[str, str, str]]:
    """(panel, kind, file) of each picture that was asked for."""
    return [(panel, kind, path) for kind in ("svg", "png") for panel, path in getattr(options, kind)]


def _moment(options: argparse.Namespace) -> Moment:
    return Moment(options.step, options.request)


def _check(recording: Recording) -> int:
    """Replay it once, so that a recording that does not hold together is refused before anything is written."""
    return sum(event["type"] == "step" for event, _ in replay(recording))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m viz.export", description=__doc__.split("\n\n")[0])
    parser.add_argument("file", help="a recording (.jsonl.gz)")
    parser.add_argument("--html", metavar="OUT", help="one HTML file that replays offline")
    parser.add_argument("--perfetto", metavar="OUT", help="Chrome trace JSON for ui.perfetto.dev")
    parser.add_argument("--csv", metavar="OUT", help="OUT-requests.csv and OUT-steps.csv")
    parser.add_argument("--svg", nargs=2, action="append", default=[], metavar=("PANEL", "OUT"), help="one panel as it is at the end")
    parser.add_argument("--png", nargs=2, action="append", default=[], metavar=("PANEL", "OUT"), help="the same as pixels")
    parser.add_argument("--step", type=int, metavar="N", help="draw the panels as they are after this step instead")
    parser.add_argument("--request", metavar="ID", help="highlight this request in the pictures; the request story is about it")
    parser.add_argument("--limits", choices=LIMITS, default="command", help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
