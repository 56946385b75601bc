"""The figures of a lesson as SVG, drawn from its recorded runs: timelines, compositions, memory, curves and bars.

Each function returns one self-contained ``<svg>``. Every text in it is escaped; nothing from a lesson reaches the markup as markup.
"""

from __future__ import annotations

import json
from html import escape
from typing import Any

from engine.state import apply_event, block_counts
from lessons.expression import Expression
from lessons.format import Lesson
from lessons.record import LessonRecording
from lessons.runner import Run
from lessons.values import format_value

#: hues that people with any colour vision can tell apart (after Okabe and Ito, 2008), darkened for white paper
COLORS = ("#0b63bd", "#c25e00", "#17803d", "#a3408b", "#8a6d00", "#0083a3", "#b3261e", "#5a4fcf", "#4d6b00", "#7a4a2b", "#c03a6b", "#3d5a80")
INK, SOFT, GRID, PALE = "#17212d", "#526070", "#dce2e9", "#eef1f5"
WIDTH = 640
WORDS = {"en": {"step": "step", "blocks": "blocks", "budget": "token budget", "tokens": "tokens", "cached": "cached", "used": "in use"},
         "ko": {"step": "스텝", "blocks": "블록", "budget": "토큰 예산", "tokens": "토큰", "cached": "캐시에 남음", "used": "사용 중"}}


def draw_figure(lesson: Lesson, recording: LessonRecording, name: str, language: str) -> str:
    """The SVG of figure ``name``. Raises ``KeyError`` for an unknown one."""
    figure = lesson.scenario["figures"][name]
    kind = figure["kind"]
    if kind in ("curve", "bars"):
        points = [[_words(point[0], language), *(Expression(part).evaluate(recording.metrics) for part in point[1:])] for point in figure["points"]]
        return (_curve if kind == "curve" else _bars)(figure, points, language)
    run = recording.runs[figure["run"]]
    first, last = figure.get("from_step", 1), figure.get("to_step", 10**9)
    return {"timeline": _timeline, "composition": _composition, "memory": _memory}[kind](run, first, last, WORDS[language])


def _words(value: Any, language: str) -> Any:
    return value.get(language, "") if isinstance(value, dict) else value


def _svg(height: float, parts: list[str]) -> str:
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img" '
            f'font-family="Inter, Noto Sans KR, Noto Sans CJK KR, system-ui, sans-serif" font-size="11">'
            f'<defs><pattern id="hatch" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
            f'<rect width="2" height="5" fill="#ffffff" fill-opacity=".65"/></pattern></defs>'
            f'<rect width="{WIDTH}" height="{height:.0f}" fill="#ffffff"/>{"".join(parts)}</svg>')


def _text(x: float, y: float, words: str, *, anchor: str = "start", fill: str = INK, size: int = 11) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}" font-size="{size}">{escape(str(words))}</text>'


def _rect(x: float, y: float, width: float, height: float, fill: str, extra: str = "") -> str:
    return f'<rect x="{x:.2f}" y="{y:.2f}" width="{max(width, 0):.2f}" height="{max(height, 0):.2f}" fill="{fill}" {extra}/>'


def _steps(run: Run, first: int, last: int) -> list[dict[str, Any]]:
    return [event for event in run.events if event["type"] == "step" and event.get("slices") and first <= event["step"] <= last]


def _axis(steps: list[int], left: float, cell: float, y: float, word: str) -> list[str]:
    every = next(size for size in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000) if len(steps) / size <= 14)
    parts = [_text(left + (index + 0.5) * cell, y, str(step), anchor="middle", fill=SOFT) for index, step in enumerate(steps) if step % every == 0]
    return [*parts, _text(left - 6, y, word, anchor="end", fill=SOFT)]


def _timeline(run: Run, first: int, last: int, words: dict[str, str]) -> str:
    """A row a request, a column a step: hatched prefill, solid decode, pale padding, a dashed line while swapped out."""
    events = _steps(run, first, last)
    steps = [event["step"] for event in events]
    column = {step: index for index, step in enumerate(steps)}
    rows: dict[str, int] = {}
    for event in run.events:
        for record in event.get("requests", ()):
            rows[record["id"]] = len(rows)
    left, height = 44.0, 18.0 if len(rows) <= 14 else 11.0
    cell = (WIDTH - left - 8) / max(1, len(steps))
    top = 8.0
    parts = [_rect(left, top + row * height + 1, WIDTH - left - 8, height - 3, PALE, 'rx="2"') for row in rows.values()]
    parts += [_text(left - 6, top + row * height + height - 6, name, anchor="end") for name, row in rows.items()]
    away: dict[str, int] = {}
    for event in run.events:
        for move in event.get("transitions", ()):
            if move["cause"] in ("offload", "soft_reset"):
                away[move["id"]] = event["step"]
            elif move["cause"] in ("restore", "admitted") and move["id"] in away:
                start, end = column.get(away.pop(move["id"])), column.get(event["step"])
                if start is not None and end is not None:
                    y = top + rows[move["id"]] * height + height / 2
                    line = f"M{left + start * cell:.1f} {y:.1f}H{left + end * cell:.1f}"
                    parts.append(f'<path d="{line}" stroke="{INK}" stroke-width="2" stroke-dasharray="3 3"/>')
    for event in events:
        x = left + column[event["step"]] * cell
        for name, _start, _count, kind, _samples in event["slices"]:
            y, color = top + rows[name] * height + 1, COLORS[rows[name] % len(COLORS)]
            gap = 1 if cell > 4 else 0
            parts.append(_rect(x, y, cell - gap, height - 3, color, 'fill-opacity=".22"' if kind == "padding" else ""))
            if kind == "prefill":
                parts.append(_rect(x, y, cell - gap, height - 3, "url(#hatch)"))
    bottom = top + len(rows) * height
    return _svg(bottom + 22, parts + _axis(steps, left, cell, bottom + 14, words["step"]))


def _composition(run: Run, first: int, last: int, words: dict[str, str]) -> str:
    """A bar a step: decodes at the bottom, prompt slices above, padding on top, the budget as a line where it is near."""
    events = _steps(run, first, last)
    steps = [event["step"] for event in events]
    left, top, height = 52.0, 10.0, 150.0
    cell = (WIDTH - left - 8) / max(1, len(steps))
    totals = [sum(piece[2] for piece in event["slices"]) + ((event.get("graph") or {}).get("q_padding") or 0) for event in events]
    limit = (events[0].get("budget") or {}).get("tokens", [0, 0])[1] if events else 0
    scale = max(totals, default=1) * 1.08
    show_limit = 0 < limit <= 1.6 * scale
    scale = max(scale, limit * 1.08) if show_limit else scale
    parts = []
    for index, event in enumerate(events):
        y, x = top + height, left + index * cell
        decode = sum(piece[2] for piece in event["slices"] if piece[3] == "decode")
        prefill = sum(piece[2] for piece in event["slices"] if piece[3] == "prefill")
        padding = sum(piece[2] for piece in event["slices"] if piece[3] == "padding") + ((event.get("graph") or {}).get("q_padding") or 0)
        for amount, fill, hatch in ((decode, COLORS[0], False), (prefill, COLORS[1], True), (padding, "#b9c3cf", False)):
            size = amount / scale * height
            y -= size
            if amount:
                parts.append(_rect(x, y, max(cell - 1, 0.6), size, fill))
                if hatch:
                    parts.append(_rect(x, y, max(cell - 1, 0.6), size, "url(#hatch)"))
    if show_limit:
        y = top + height - limit / scale * height
        parts.append(f'<path d="M{left} {y:.1f}H{WIDTH - 8}" stroke="{SOFT}" stroke-dasharray="4 3"/>')
        parts.append(_text(WIDTH - 10, y - 3, f"{words['budget']} {limit}", anchor="end", fill=SOFT))
    parts.append(f'<path d="M{left} {top + height}H{WIDTH - 8}" stroke="{GRID}"/>')
    parts.append(_text(left - 6, top + 10, format_value(max(totals, default=0)), anchor="end", fill=SOFT))
    parts.append(_text(left - 6, top + height, words["tokens"], anchor="end", fill=SOFT))
    return _svg(top + height + 24, parts + _axis(steps, left, cell, top + height + 15, words["step"]))


def _memory(run: Run, first: int, last: int, words: dict[str, str]) -> str:
    """Blocks in use over the steps, and above them those that are cached without an owner, against the whole pool."""
    state = json.loads(json.dumps(run.snapshot["state"]))
    steps, counts = [], []
    for event in run.events:
        apply_event(state, event)
        if event["type"] == "step" and first <= event["step"] <= last:
            steps.append(event["step"])
            counts.append(block_counts(state))
    left, top, height = 52.0, 10.0, 130.0
    cell = (WIDTH - left - 8) / max(1, len(steps))
    total = state["layout"]["num_blocks"]
    parts = [_rect(left, top, WIDTH - left - 8, height, PALE)]
    for index, count in enumerate(counts):
        used, cached = count["owned"] / total * height, count["cached"] / total * height
        x = left + index * cell
        parts.append(_rect(x, top + height - used, cell + 0.3, used, COLORS[0]))
        parts.append(_rect(x, top + height - used - cached, cell + 0.3, cached, "#9db8d6"))
    parts += [_text(left - 6, top + 10, total, anchor="end", fill=SOFT), _text(left - 6, top + height, words["blocks"], anchor="end", fill=SOFT)]
    if any(count["cached"] for count in counts):
        parts += [_rect(left + 8, top + 8, 10, 10, COLORS[0]), _text(left + 22, top + 17, words["used"]),
                  _rect(left + 90, top + 8, 10, 10, "#9db8d6"), _text(left + 104, top + 17, words["cached"])]
    return _svg(top + height + 24, parts + _axis(steps, left, cell, top + height + 15, words["step"]))


def _curve(figure: dict[str, Any], points: list[list[Any]], language: str) -> str:
    """Lines over evenly spaced x values (batch sizes double, so an even spacing is a logarithmic axis)."""
    left, top, height = 56.0, 14.0, 160.0
    count = len(points[0]) - 1
    highest = max(value for point in points for value in point[1:]) * 1.12 or 1.0
    place = [left + 20 + index * (WIDTH - left - 60) / max(1, len(points) - 1) for index in range(len(points))]
    parts = [f'<path d="M{left} {top + height}H{WIDTH - 8}" stroke="{GRID}"/>']
    labels = figure.get("labels") or []
    for line in range(count):
        ys = [top + height - point[line + 1] / highest * height for point in points]
        color = COLORS[line]
        parts.append(f'<path d="M{" L".join(f"{x:.1f} {y:.1f}" for x, y in zip(place, ys))}" fill="none" stroke="{color}" stroke-width="2"/>')
        for x, y, point in zip(place, ys, points):
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{color}"/>')
            parts.append(_text(x, y - 7, format_value(point[line + 1]), anchor="middle", fill=color))
        if line < len(labels):
            unit = f" ({figure['unit']})" if figure.get("unit") else ""
            parts.append(_text(left + 26, top + 12 + 14 * line, f"● {_words(labels[line], language)}{unit}", fill=color))
    parts += [_text(x, top + height + 15, format_value(point[0]) if isinstance(point[0], (int, float)) else point[0], anchor="middle", fill=SOFT)
              for x, point in zip(place, points)]
    parts.append(_text(WIDTH - 10, top + height + 31, _words(figure.get("label", ""), language), anchor="end", fill=SOFT))
    return _svg(top + height + 38, parts)


def _bars(figure: dict[str, Any], points: list[list[Any]], language: str) -> str:
    """Horizontal bars with their value; one scale for all."""
    row, top, left = 24.0, 24.0, 210.0
    highest = max(abs(point[1]) for point in points) or 1.0
    unit = f" {figure['unit']}" if figure.get("unit") else ""
    parts = [_text(8, 14, _words(figure.get("label", ""), language), fill=SOFT)]
    for index, (label, value) in enumerate((point[0], point[1]) for point in points):
        y, size = top + index * row, abs(value) / highest * (WIDTH - left - 90)
        parts += [_text(left - 8, y + 14, label, anchor="end"), _rect(left, y + 2, size, row - 8, COLORS[0], 'rx="2"'),
                  _text(left + size + 6, y + 14, format_value(value) + unit)]
    return _svg(top + len(points) * row + 6, parts)
