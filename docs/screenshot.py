"""Take the README's picture of the live page: the real app, the real default model, fourteen requests under way.

    python docs/screenshot.py [FILE]        (needs requirements-test.txt and chromium)
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from playwright.sync_api import sync_playwright  # noqa: E402

from tests.e2e.served import App, Commands  # noqa: E402

PROMPTS = (
    "What is the capital of France?", "Write a short poem about the sea.", "Why is the sky blue?", "Explain a queue to a child.",
    "Name five trees and say how to tell them apart.", "How does a bicycle stay upright?", "Tell me a story about a lighthouse.",
    "What does a compiler do?", "List three uses of a lever and explain each of them in two sentences.", "Describe the taste of honey.",
    "What is a prime number?", "How do bees find their way home, and how do they tell the others where they have been?",
    "Write a haiku about rain.", "Why do we sleep?",
)
CONFIG = {"block_size": 16, "num_blocks": 40, "max_batch_tokens": 48, "max_requests_per_batch": 8}
#: Decode steps of the pictured moment: some requests have finished, some decode, some wait.
OUTPUTS = (8, 40, 12, 60, 48, 30, 64, 44, 56, 36, 40, 40, 40, 40)
STEPS = 17


def take(target: Path) -> None:
    app = App(config=CONFIG)
    try:
        app.until_ready()
        room = Commands(app.url)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"])
            page = browser.new_page(viewport={"width": 1440, "height": 1180}, device_scale_factor=1)
            page.goto(app.url)
            page.wait_for_function("window.batchscope?.screen?.mounted && window.batchscope.store.started", timeout=60000)
            page.keyboard.press("Escape")
            room("pause", room="main")
            for prompt, outputs in zip(PROMPTS, OUTPUTS, strict=True):
                room("submit", room="main", prompt=prompt, chat=True, params={"max_new_tokens": outputs})
            room("step", room="main", count=STEPS)
            page.wait_for_function(f"window.batchscope.store.state.step >= {STEPS}", timeout=120000)
            page.wait_for_timeout(1500)
            page.screenshot(path=str(target))
            browser.close()
        room.close()
    finally:
        app.stop()


if __name__ == "__main__":
    take(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "images" / "live.png")
