"""``POST /api/export/{html,perfetto,csv}``: a recording in, a file out; what the page's export buttons call.

The file comes from a stranger, so it is read in a process of its own (``python -m viz.export``), within limits, at low priority
and one at a time: neither a hostile nor a huge recording can hold up the viewers.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path

from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Route

MAX_BODY = 24 * 2**20
TIMEOUT = 60.0
ROOT = Path(__file__).parents[1]
#: kind → (options of the command, file that it writes, name for the visitor, media type)
KINDS = {
    "html": ("--html", "out.html", "batchscope-recording.html", "text/html; charset=utf-8"),
    "perfetto": ("--perfetto", "out.json", "batchscope-trace.json", "application/json"),
    "csv": ("--csv", "out.csv", "batchscope-metrics.zip", "application/zip"),
}


class ExportRoutes:
    """The handler; :meth:`all` lists it for the app."""

    def __init__(self) -> None:
        self._turn = asyncio.Semaphore(1)

    def all(self) -> list[Route]:
        return [Route("/api/export/{kind}", self.export, methods=["POST"])]

    async def export(self, request: Request) -> Response:
        kind = request.path_params["kind"]
        if kind not in KINDS:
            return PlainTextResponse(f"There is no export named {kind[:40]!r}; there are {', '.join(KINDS)}.\n", 404)
        folder = Path(tempfile.mkdtemp(prefix="batchscope-export-"))
        try:
            if not await _receive(request, folder / "in.jsonl.gz"):
                return self._refuse(folder, 413, f"A recording to export may have at most {MAX_BODY // 2**20} MiB; use python -m viz.export for larger ones.")
            async with self._turn:
                problem = await _convert(folder, kind)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        if problem is not None:
            return self._refuse(folder, 422, problem)
        _, written, name, media = KINDS[kind]
        path = folder / written
        if kind == "csv":
            path = folder / "out.zip"
            await asyncio.to_thread(_zip_tables, folder, path)
        # "attachment": an exported page must be saved, never run under this origin.
        return FileResponse(path, media_type=media, filename=name, content_disposition_type="attachment",
                            headers={"Cache-Control": "no-store"}, background=BackgroundTask(shutil.rmtree, folder, ignore_errors=True))

    @staticmethod
    def _refuse(folder: Path, status: int, sentence: str) -> Response:
        shutil.rmtree(folder, ignore_errors=True)
        return PlainTextResponse(sentence + "\n", status)


async def _receive(request: Request, path: Path) -> bool:
    """Write the body to ``path``; False as soon as it is too large."""
    size = 0
    with open(path, "wb") as file:
        async for chunk in request.stream():
            size += len(chunk)
            if size > MAX_BODY:
                return False
            file.write(chunk)
    return True


async def _convert(folder: Path, kind: str) -> str | None:
    """Run the export; the sentence of its refusal, or None."""
    option, written, _, _ = KINDS[kind]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "viz.export", str(folder / "in.jsonl.gz"), option, str(folder / written), "--limits", "page",
        cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE, preexec_fn=_be_nice)
    try:
        async with asyncio.timeout(TIMEOUT):
            _, errors = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return f"The export took longer than {TIMEOUT:.0f} seconds; use python -m viz.export for recordings this large."
    if process.returncode == 0:
        return None
    lines = errors.decode("utf-8", "replace").strip().splitlines()
    return lines[-1][:300] if process.returncode == 1 and lines else "The export failed; the file may not be a Batchscope recording."


def _be_nice() -> None:
    os.nice(10)


def _zip_tables(folder: Path, target: Path) -> None:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for table in ("requests", "steps"):
            archive.write(folder / f"out-{table}.csv", f"batchscope-{table}.csv")
