"""Gradio's page as a part that arrives later: importing it takes longer than the page may take to be alive.

Until it is there, ``/`` answers a small page that says so and asks again, and everything else says "in a moment".
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import Callable
from typing import Any

from starlette.responses import HTMLResponse, PlainTextResponse

log = logging.getLogger("batchscope.page")

QUEUE_SLEEP = 0.5  # seconds

STARTING = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Batchscope</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><meta http-equiv="refresh" content="1">
<link rel="icon" href="data:,"><style>:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;display:grid;place-content:center;min-height:90vh;text-align:center}
p{margin:.3em;opacity:.8}</style></head><body><h1>Batchscope</h1>
<p role="status">The page is being put together; it opens by itself in a moment.</p>
<p lang="ko">화면을 준비하고 있습니다. 잠시 후 저절로 열립니다.</p></body></html>"""


class GradioPage:
    """ASGI app. :meth:`start` builds the page in a thread; :meth:`stop` ends it. ``build`` returns the finished ASGI app."""

    def __init__(self, build: Callable[[], Any]) -> None:
        self.build = build
        self.app: Any = None
        self.failed = ""
        self._task: asyncio.Task | None = None
        self._stop = asyncio.Event()

    async def start(self) -> None:
        self._task = asyncio.create_task(self._live())

    async def stop(self) -> None:
        self._stop.set()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def _live(self) -> None:
        try:
            app = await self._built()
            # The inner app's start-up and shutdown must run in one task; this one lives as long as the page.
            async with app.router.lifespan_context(app):
                self.app = app
                await self._stop.wait()
        except Exception as problem:  # the rest of the server goes on and says what is wrong
            log.exception("the page could not be built")
            self.failed = f"The page could not be built ({type(problem).__name__}: {str(problem)[:300]})."

    async def _built(self) -> Any:
        """Run ``build`` in a daemon thread, so that ending the server need not wait for an import."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()

        def finish(result: Any, problem: Exception | None) -> None:
            if not future.done():
                future.set_exception(problem) if problem is not None else future.set_result(result)

        def work() -> None:
            result, problem = None, None
            try:
                result = self.build()
            except Exception as error:  # handed to whoever waits
                problem = error
            with contextlib.suppress(RuntimeError):  # the loop may have ended meanwhile
                loop.call_soon_threadsafe(finish, result, problem)

        threading.Thread(target=work, name="page-builder", daemon=True).start()
        stopping = asyncio.create_task(self._stop.wait())
        await asyncio.wait({future, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not future.done():
            future.cancel()
            raise asyncio.CancelledError
        return future.result()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if self.app is not None:
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            await self._not_yet(scope)(scope, receive, send)

    def _not_yet(self, scope: Any) -> Any:
        if self.failed:
            return PlainTextResponse(self.failed + "\n", 500)
        if scope["path"].rstrip("/") == scope.get("root_path", "").rstrip("/"):
            return HTMLResponse(STARTING, headers={"Cache-Control": "no-store"})
        return PlainTextResponse("The page is still being put together.\n", 503, headers={"Retry-After": "1"})


def build_gradio(root_path: str) -> Any:
    """Import Gradio and mount the page into an app of its own."""
    os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
    from viz.gradio_import import import_gradio
    gr = import_gradio()
    from fastapi import FastAPI

    from viz.page import build_page, mount_arguments

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    page = build_page()
    mounted = gr.mount_gradio_app(app, page, path="/", root_path=root_path or None, **mount_arguments())
    _let_the_queue_sleep(page)
    return mounted


def _let_the_queue_sleep(page: Any) -> None:
    """Gradio looks into its queue of Python handlers a thousand times a second, which costs an idle server some percent of a core.
    This page has no such handler (see ``viz/page.py``), so nothing ever waits there; one that is added would wait this long."""
    page._queue.sleep_when_free = QUEUE_SLEEP
    page._queue.progress_update_sleep_when_free = QUEUE_SLEEP
