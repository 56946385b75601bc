"""What the page costs: ``python -m viz.bench`` prints the frame cost of all visible panels and the delay from event to paint.

The engine (a simulated device, so that the model takes no time from the browser), the page process and a headless chromium share
this machine. 64 requests run at once over 4,096 blocks at 60 steps a second; figures are of the page's own clocks
(``Screen.frameTimes``, ``Screen.paintDelays``), of the intervals between frames, and of the main thread's CPU time, which alone does
not depend on what else the machine does.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from viz.browser import find_chromium
from viz.served_page import serving

ROOT = Path(__file__).resolve().parent.parent
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
FRAME_GOAL_MS, PAINT_GOAL_MS = 16.0, 100.0

#: Collects for a while and returns percentiles of each list of milliseconds.
MEASURE = """async (seconds) => {
  const { screen, store } = batchscope;
  const gaps = [];
  let last = performance.now();
  let going = true;
  const tick = (now) => { gaps.push(now - last); last = now; if (going) requestAnimationFrame(tick); };
  requestAnimationFrame(tick);
  screen.frameTimes.length = 0;
  screen.paintDelays.length = 0;
  const from = { step: store.head.step, active: 0 };
  const end = performance.now() + seconds * 1000;
  while (performance.now() < end) {
    await new Promise((done) => setTimeout(done, 250));
    from.active = Math.max(from.active, store.head.active.length);
  }
  going = false;
  const at = (list, share) => {
    const sorted = [...list].sort((a, b) => a - b);
    return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? null;
  };
  const figures = (list) => ({ count: list.length, p50: at(list, 0.5), p95: at(list, 0.95), p99: at(list, 0.99) });
  const panels = Object.fromEntries([...screen.entries].filter(([, entry]) => entry.costs.length)
    .map(([name, entry]) => [name, at(entry.costs, 0.5)]));
  return { steps: store.head.step - from.step, seconds, active: from.active, blocks: store.head.layout.num_blocks,
           frame: figures(screen.frameTimes), paint: figures(screen.paintDelays), interval: figures(gaps), panels };
}"""


def measure(seconds: float, pace: float, blocks: int, requests: int) -> dict[str, Any]:
    """Figures as the page reports them. Raises ``RuntimeError`` when there is no chromium."""
    from playwright.sync_api import sync_playwright

    path = find_chromium()
    if path is None:
        raise RuntimeError("viz.bench needs chromium; install it or name it in the variable CHROMIUM.")
    workload = {"num_requests": 4000, "arrivals": {"kind": "closed", "users": requests}, "content": "tokens",
                "prompt_length": {"kind": "uniform", "low": 32, "high": 600}, "output_length": {"kind": "uniform", "low": 100, "high": 300}}
    config = {"block_size": 16, "num_blocks": blocks, "max_requests_per_batch": requests, "max_batch_tokens": 512, "safety_margin": 0.0}
    with serving(config, pace, "--device", "simulated:h100", "--model", "llama-8b") as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(url)
        page.wait_for_function("window.batchscope?.screen?.mounted && batchscope.store.started")
        page.evaluate("workload => batchscope.command('workload', { workload })", workload)
        page.wait_for_timeout(6000)
        # Thread ticks count the main thread's own CPU time, so that a busy machine does not look like an expensive page.
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        before = _main_thread(session)
        result = page.evaluate(MEASURE, seconds)
        after = _main_thread(session)
        result["cpu"] = {name: 1000 * (after[name] - before[name]) / max(1, result["frame"]["count"]) for name in after}
        browser.close()
    return result


def _main_thread(session: Any) -> dict[str, float]:
    """Seconds of CPU that the page's main thread has used so far: in all, in scripts, in layout and style."""
    values = {item["name"]: item["value"] for item in session.send("Performance.getMetrics")["metrics"]}
    return {"all": values["TaskDuration"], "scripts": values["ScriptDuration"], "layout": values["LayoutDuration"] + values["RecalcStyleDuration"]}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m viz.bench", description=__doc__)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--pace", type=float, default=60.0, help="engine steps per second")
    parser.add_argument("--blocks", type=int, default=4096)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args(arguments)
    try:
        result = measure(options.seconds, options.pace, options.blocks, options.requests)
    except RuntimeError as problem:
        print(problem, file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps(result))
        return 0
    print(f"{result['steps'] / result['seconds']:.1f} steps/s seen, up to {result['active']} active requests, {result['blocks']:,} blocks, "
          f"{os.cpu_count()} CPUs for engine, page process and browser")
    for name, label, goal in (("frame", "all visible panels, one frame", FRAME_GOAL_MS), ("paint", "event to paint", PAINT_GOAL_MS),
                              ("interval", "between frames", None)):
        figures = result[name]
        verdict = "" if goal is None else f"   goal p95 < {goal:g} ms: {'met' if figures['p95'] < goal else 'MISSED'}"
        print(f"{label:32} p50 {figures['p50']:6.1f}  p95 {figures['p95']:6.1f}  p99 {figures['p99']:6.1f} ms  (n={figures['count']}){verdict}")
    cpu = result["cpu"]
    print(f"main thread's CPU per frame      mean {cpu['all']:.1f} ms: scripts {cpu['scripts']:.1f}, style and layout {cpu['layout']:.1f} "
          "(counts only time on a core)")
    print("panels, p50 ms: " + ", ".join(f"{name} {cost:.1f}" for name, cost in sorted(result["panels"].items(), key=lambda item: -item[1])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
