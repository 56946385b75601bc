"""A real app, a real browser. Every page opened here is held to two rules: no console error, and no request to another origin."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.e2e.served import CONFIG, App, Commands
from viz.browser import find_chromium

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]
LOCAL_SCHEMES = ("data", "blob", "about")
#: The page is whole: every part stands in its place and listens to keys and clicks, not the panels alone.
MOUNTED = """(() => { const { screen, store, header, transport, controls } = window.batchscope ?? {};
  return screen?.mounted && store.started && header && transport && controls && document.querySelector('#bs-transport [data-fork]'); })()"""

# Every wait for something to become true is as patient as Playwright's own ones, whose 30 seconds hold on a crowded machine too.
expect.set_options(timeout=30_000)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/e2e/" in str(item.path).replace(os.sep, "/"):
            item.add_marker(pytest.mark.e2e)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = find_chromium()
    if path is None:
        pytest.fail("The browser tests need chromium: install it (Debian: apt-get install chromium) or name it in the variable CHROMIUM.")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def app() -> Iterator[App]:
    """The page with the real default model."""
    started = App().until_ready()
    yield started
    started.stop()


@pytest.fixture
def commands(app: App) -> Iterator[Commands]:
    """The main room as a test finds it: empty, configured, running as fast as it can."""
    client = Commands(app.url)
    client("reset", room="main")
    client("configure", room="main", changes=CONFIG)
    client("pace", room="main", steps_per_second=0)
    client("resume", room="main")
    yield client
    client.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """``open_page(url, width=…, height=…)`` opens a page whose live screen is mounted; at the end its two rules are checked."""
    contexts: list[BrowserContext] = []
    faults: list[str] = []

    def opened(url: str, *, width: int = 1440, height: int = 900, mounted: bool = True, **options: Any) -> Page:
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        page = context.new_page()
        origin = urlsplit(url).netloc
        page.on("console", lambda message: faults.append(f"console: {message.text}") if message.type == "error" else None)
        page.on("pageerror", lambda error: faults.append(f"uncaught: {error}"))

        def asked(request: Any) -> None:
            parts = urlsplit(request.url)
            if parts.scheme not in LOCAL_SCHEMES and parts.netloc != origin:
                faults.append(f"request to another origin: {request.url}")
        page.on("request", asked)
        page.on("websocket", lambda socket: None if urlsplit(socket.url).netloc == origin else faults.append(f"websocket to {socket.url}"))
        page.goto(url)
        if mounted:
            page.wait_for_function(MOUNTED, timeout=60000)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert faults == []


@pytest.fixture
def live(app: App, commands: Commands, open_page: Callable[..., Page]) -> Page:
    """The live tab on an empty main room."""
    return open_page(app.url)
