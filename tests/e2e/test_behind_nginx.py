"""The page works in a browser when nginx serves it under a sub-path: forms, modules, websocket and answers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.deploy.nginx import nginx
from tests.e2e.served import App
from tests.ports import held_port

PREFIX = "/batchscope"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with contextlib.ExitStack() as stack:
        port = stack.enter_context(held_port())
        app = App("--root-path", PREFIX, "--device", "simulated:h100", "--model", "llama-8b")
        stack.callback(app.stop)
        # The app prints its public address; here the test is still on the inner side of the proxy.
        app.url = app.url.removesuffix(f"{PREFIX}/") + "/"
        app.until_ready()
        inner = app.url.rstrip("/").rsplit(":", 1)[1]
        exchanged = {"listen 80;": f"listen 127.0.0.1:{port};", "127.0.0.1:7860": f"127.0.0.1:{inner}"}
        stack.enter_context(nginx("nginx.conf.example", exchanged, port))
        yield f"http://127.0.0.1:{port}{PREFIX}/"


def test_a_prompt_is_answered_on_a_page_under_a_sub_path(address, open_page):
    page = open_page(address)
    page.locator("#bs-prompt textarea").fill("What is the capital of France?")
    page.locator("#bs-send").click()
    page.wait_for_function("Object.values(window.batchscope.store.state.requests)"
                           ".some((request) => request.state === 'finished' && request.text)", timeout=60000)
