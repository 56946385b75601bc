"""Takes the pictures of the documentation from the real page: ``python -m viz.screenshots`` writes ``docs/images``.

The engine runs the real default model on a cache small enough that requests wait, share blocks, and are pushed out and come back.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from viz.served_page import serving

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
CONFIG = {"block_size": 16, "num_blocks": 76, "max_batch_tokens": 64, "max_requests_per_batch": 12, "safety_margin": 0.0,
          "cpu_offload_space": 0.05}
QUESTIONS = ("Why is the sea salty?", "List five things a lighthouse keeper does in a day.", "Count from one to thirty in words.",
             "Write a short letter to a friend about winter.", "What is a lighthouse for?", "Explain how rain is made, in simple words.",
             "Why do ships float?", "Tell a story about a map.")
#: name → (width, height, query)
PICTURES: dict[str, tuple[int, int, str]] = {
    "live": (1440, 900, "?lang=en&theme=light"), "live-dark": (1440, 900, "?lang=en&theme=dark"),
    "korean": (1440, 900, "?lang=ko&theme=light"), "laptop": (1280, 720, "?lang=en&theme=light"),
    "phone": (390, 844, "?lang=en&theme=light"), "projector": (1440, 900, "?lang=en&theme=light&view=projector"),
}


def fill_room(page: Any) -> None:
    """Twenty prompts in three waves, paused at a moment when something of everything is on screen."""
    page.evaluate("""async ({ questions }) => {
      const { command, store, t } = batchscope;
      const ask = (prompt, max_new_tokens) => ({ prompt, chat: true, params: { max_new_tokens, ignore_eos: true } });
      const steps = async (count) => {
        const target = store.head.step + count;
        await command('step', { count });
        while (store.head.step < target) await new Promise((done) => setTimeout(done, 20));
      };
      await command('reset');
      await command('pause');
      await command('pace', { steps_per_second: 0 });
      while (store.head.counters.steps > 0) await new Promise((done) => setTimeout(done, 20));
      await command('submit', { requests: questions.map((prompt, at) => ask(prompt, [28, 150, 120, 170, 36, 140, 160, 130][at])) });
      await steps(30);
      await command('submit', { requests: questions.slice(0, 4).map((prompt, at) => ask(prompt, [90, 120, 100, 110][at])) });
      await steps(42);
      await command('submit', { requests: [ask(t('example.long.prompt'), 60), ...questions.slice(2).map((prompt) => ask(prompt, 80))] });
      await steps(24);
    }""", {"questions": list(QUESTIONS)})
    page.wait_for_timeout(800)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m viz.screenshots", description=__doc__)
    parser.add_argument("--out", type=Path, default=IMAGES)
    parser.add_argument("names", nargs="*", default=list(PICTURES), help=f"which pictures: {', '.join(PICTURES)}")
    options = parser.parse_args(arguments)
    from playwright.sync_api import sync_playwright
    options.out.mkdir(parents=True, exist_ok=True)
    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    with serving(CONFIG, 8) as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        filled = False
        for name in options.names:
            width, height, query = PICTURES[name]
            phone = width < 500
            page = browser.new_context(viewport={"width": width, "height": height}, is_mobile=phone, has_touch=phone,
                                       device_scale_factor=2 if phone else 1).new_page()
            page.goto(url + query)
            page.wait_for_function("window.batchscope?.screen?.mounted && batchscope.store.started")
            if not filled:
                # Whoever leaves takes their requests along: the page that sent them stays until the end.
                guest = browser.new_page()
                guest.goto(url)
                guest.wait_for_function("window.batchscope?.screen?.mounted && batchscope.store.started")
                fill_room(guest)
                filled = True
            page.wait_for_timeout(2500)
            if phone:
                page.evaluate("document.querySelector('[data-panel=lanes]').scrollIntoView(); scrollBy(0, -110)")
                page.wait_for_timeout(300)
            page.screenshot(path=options.out / f"{name}.png")
            page.context.close()
            print(options.out / f"{name}.png")
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
