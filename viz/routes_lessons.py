"""``/api/lessons``: the list of lessons, one lesson with its recorded run, its figures and its handout. All read from data."""

from __future__ import annotations

import asyncio
import logging
from functools import lru_cache
from typing import Any

from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from lessons.figures import draw_figure
from lessons.format import LANGUAGES, Lesson, LessonBroken
from lessons.handout import Handout
from lessons.loader import lesson_names, load_glossary, load_lesson, recording_path
from lessons.page_data import course_entry, lesson_page
from lessons.record import RecordingBroken, read_recording

log = logging.getLogger("batchscope.lessons")
CACHE = {"Cache-Control": "no-cache"}


@lru_cache(maxsize=64)
def _lesson(name: str) -> Lesson:
    return load_lesson(name)


@lru_cache(maxsize=256)
def _figure(name: str, figure: str, language: str) -> str:
    lesson = _lesson(name)
    return draw_figure(lesson, read_recording(lesson), figure, language)


@lru_cache(maxsize=64)
def _handout(name: str, language: str) -> str:
    lesson = _lesson(name)
    return Handout(lesson, read_recording(lesson), language, load_glossary()).html()


def _course() -> dict[str, Any]:
    entries = []
    for name in lesson_names():
        try:
            entries.append(course_entry(_lesson(name)))
        except LessonBroken as problem:      # one broken lesson must not take the others away
            log.warning("lesson %s is left out: %s", name, problem)
    return {"lessons": entries, "glossary": load_glossary()}


class LessonRoutes:
    """The handlers; :meth:`all` lists them for the app. Reading and drawing run in a thread, so no viewer waits for them."""

    def all(self) -> list[Route]:
        return [Route("/api/lessons", self.course), Route("/api/lessons/{name}", self.lesson),
                Route("/api/lessons/{name}/run.jsonl.gz", self.recording), Route("/api/lessons/{name}/figures/{figure}.svg", self.figure),
                Route("/api/lessons/{name}/handout", self.handout)]

    async def course(self, request: Request) -> Response:
        return JSONResponse(await asyncio.to_thread(_course), headers=CACHE)

    async def lesson(self, request: Request) -> Response:
        return await self._answer(request, lambda name, _: JSONResponse(lesson_page(_lesson(name)), headers=CACHE))

    async def recording(self, request: Request) -> Response:
        return await self._answer(request, lambda name, _: FileResponse(recording_path(_lesson(name)), media_type="application/gzip", headers=CACHE)
                                  if recording_path(_lesson(name)).is_file() else PlainTextResponse("This lesson has no recording yet.\n", 404))

    async def figure(self, request: Request) -> Response:
        figure = request.path_params["figure"]
        return await self._answer(request, lambda name, language: Response(
            _figure(name, figure, language), media_type="image/svg+xml", headers=CACHE))

    async def handout(self, request: Request) -> Response:
        return await self._answer(request, lambda name, language: Response(
            _handout(name, language), media_type="text/html; charset=utf-8",
            headers={**CACHE, "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}))

    async def _answer(self, request: Request, make: Any) -> Response:
        name, language = request.path_params["name"], request.query_params.get("lang", "en")
        if name not in lesson_names() or language not in LANGUAGES:
            return PlainTextResponse("There is no such lesson.\n", 404)
        try:
            return await asyncio.to_thread(make, name, language)
        except KeyError:
            return PlainTextResponse("There is no such figure.\n", 404)
        except (LessonBroken, RecordingBroken) as problem:
            return PlainTextResponse(f"{problem}\n", 500)
