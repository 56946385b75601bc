"""Takes the pictures of the documentation from the real page: ``python -m viz.screenshots`` writes ``docs/images``.

Each tab is taken on a desktop, on a phone, in the dark and in Korean. The engine runs the real default model on a cache small enough
that requests wait, share blocks, and are pushed out and come back.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from viz.browser import find_chromium
from viz.served_page import serving

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
CONFIG = {"block_size": 16, "num_blocks": 76, "max_batch_tokens": 64, "max_requests_per_batch": 12, "safety_margin": 0.0,
          "cpu_offload_space": 0.05}
QUESTIONS = ("Why is the sea salty?", "List five things a lighthouse keeper does in a day.", "Count from one to thirty in words.",
             "Write a short letter to a friend about winter.", "What is a lighthouse for?", "Explain how rain is made, in simple words.",
             "Why do ships float?", "Tell a story about a map.")
LESSON = "03-a-batch-rebuilt-every-step"
MOUNTED = "window.batchscope?.screen?.mounted && batchscope.store.started"
#: name → (width, height, query)
LOOKS: dict[str, tuple[int, int, str]] = {
    "desktop": (1440, 900, "?lang=en&theme=light"), "dark": (1440, 900, "?lang=en&theme=dark"),
    "korean": (1440, 900, "?lang=ko&theme=light"), "phone": (390, 844, "?lang=en&theme=light"),
    "laptop": (1280, 720, "?lang=en&theme=light"), "projector": (1440, 900, "?lang=en&theme=light&view=projector"),
}
TABS = ("live", "compare", "lessons", "recordings")
ANIMATION = "live-animation"
FRAMES, STEPS_A_FRAME, FRAME_MS = 44, 2, 250               # as fast as ×1 on the page: eight steps a second
PICTURES = [f"{tab}-{look}" for tab in TABS for look in ("desktop", "dark", "korean", "phone")] + ["live-laptop", "live-projector", ANIMATION]


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


def _live(page: Any, phone: bool) -> None:
    page.wait_for_timeout(2500)
    if phone:
        page.evaluate("document.querySelector('[data-panel=lanes]').scrollIntoView(); scrollBy(0, -110)")


def _compare(page: Any, phone: bool) -> None:
    """Static against continuous batching, in lockstep, where the holes are seen."""
    _to_tab(page, "compare")
    page.wait_for_function("window.batchscope.compare", timeout=30000)
    page.click("[data-pair=static_continuous]")
    page.wait_for_function("batchscope.compare?.links.length === 2")
    page.select_option("#bs-compare-speed", index=page.locator("#bs-compare-speed option").count() - 1)
    page.wait_for_function("batchscope.compare.links.every((link) => link.store.head.counters.steps >= 58)", timeout=120000)
    page.click(".bs-compare-bar [data-do=play]")
    page.wait_for_function("!batchscope.compare.run.running")
    page.wait_for_timeout(1500)
    page.evaluate("document.querySelector('.bs-compare-headline').scrollIntoView(); scrollBy(0, -110)" if phone else "scrollTo(0, 0)")


def _lessons(page: Any, phone: bool) -> None:
    """A lesson whose prediction is answered and whose run has ended."""
    _to_tab(page, "lessons")
    page.wait_for_function("batchscope.lessons && document.querySelector('.bs-lesson-card')", timeout=30000)
    page.evaluate("name => batchscope.lessons.open(name, 1)", LESSON)
    page.wait_for_selector('.bs-lesson-section[data-current="true"]')
    page.wait_for_timeout(500)
    page.locator("#bs-lesson-speed").select_option("0")
    page.locator(".bs-lesson-transport [data-do=play]").click()
    page.wait_for_function("batchscope.lessons.view.stage.transport.atEnd", timeout=30000)
    page.mouse.move(0, 0)


def _recordings(page: Any, phone: bool) -> None:
    """The recorded example, at a moment in the middle of it."""
    _to_tab(page, "recordings")
    page.wait_for_function("window.batchscope.recordings?.replay?.mounted", timeout=30000)
    page.evaluate("(() => { const { store } = batchscope.recordings.replay; store.seekSeq(Math.round(store.head.seq * 0.55)); })()")


SCENES: dict[str, Callable[[Any, bool], None]] = {"live": _live, "compare": _compare, "lessons": _lessons, "recordings": _recordings}


def _to_tab(page: Any, name: str) -> None:
    page.evaluate("name => import(new URL('viz/show_tab.js', document.baseURI)).then((tab) => tab.showTab(name))", name)


def _save(page: Any, path: Path) -> None:
    """A screenshot with a palette: half the size of a full-colour one, and nothing in these pictures needs more."""
    from PIL import Image
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    picture.quantize(256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(path, optimize=True)


def _animate(page: Any, path: Path) -> None:
    """Three waves of requests that come, wait, run side by side and leave, a picture every two steps, as a GIF that repeats."""
    from PIL import Image
    page.evaluate("""async ({ questions }) => {
      const { command, t } = batchscope;
      await command('reset');
      await command('pause');
      const ask = (prompt, max_new_tokens) => ({ prompt, chat: true, params: { max_new_tokens, ignore_eos: true } });
      window.waves = [questions.map((prompt, at) => ask(prompt, [14, 60, 44, 34, 20, 70, 50, 64][at])),
        [ask(t('example.long.prompt'), 30), ...questions.slice(2, 6).map((prompt, at) => ask(prompt, 24 + 8 * at))],
        questions.slice(0, 7).map((prompt, at) => ask(prompt, 40 + 4 * at))];
    }""", {"questions": list(QUESTIONS)})
    frames = []
    for number in range(FRAMES):
        if number in (1, 6, 20):
            page.evaluate("batchscope.command('submit', { requests: waves.shift() })")
            page.wait_for_timeout(500)
        frames.append(Image.open(io.BytesIO(page.screenshot())).convert("RGB").resize((1080, 675), Image.Resampling.LANCZOS))
        page.evaluate("count => batchscope.command('step', { count })", STEPS_A_FRAME)
        page.wait_for_timeout(350)
    # One palette for all frames, made from the fullest: what stays the same then stays the same to the bit, and costs nothing.
    palette = frames[FRAMES // 2].quantize(200, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    small = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    small[0].save(path, save_all=True, append_images=small[1:], duration=[FRAME_MS] * (FRAMES - 1) + [2500], loop=0, optimize=True)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m viz.screenshots", description=__doc__)
    parser.add_argument("--out", type=Path, default=IMAGES)
    parser.add_argument("names", nargs="*", default=PICTURES, help=f"which pictures: {', '.join(PICTURES)}")
    options = parser.parse_args(arguments)
    from playwright.sync_api import sync_playwright
    options.out.mkdir(parents=True, exist_ok=True)
    with serving(CONFIG, 8) as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox", "--disable-gpu"])
        # Whoever leaves takes their requests along: the page that sends them stays until the end.
        guest = browser.new_page()
        guest.goto(url)
        guest.wait_for_function(MOUNTED)
        fill_room(guest)
        for name in options.names:
            tab, look = name.split("-") if name != ANIMATION else ("live", "desktop")
            width, height, query = LOOKS[look]
            phone = width < 500
            page = browser.new_context(viewport={"width": width, "height": height}, is_mobile=phone, has_touch=phone,
                                       device_scale_factor=2 if phone else 1).new_page()
            page.goto(url + query)
            page.wait_for_function(MOUNTED)
            target = options.out / (f"{name}.gif" if name == ANIMATION else f"{name}.png")
            if name == ANIMATION:
                _animate(page, target)
            else:
                SCENES[tab](page, phone)
                page.wait_for_timeout(1200)
                _save(page, target)
            page.context.close()
            print(target, flush=True)
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
