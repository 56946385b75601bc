"""Batchscope: ``python app.py`` serves the page on http://127.0.0.1:7860 and starts an engine beside it."""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import socket
import sys
from pathlib import Path

#: Small blocks and slices, so that a first prompt shows something happening. Everything can be turned on the page.
TEACHING_CONFIG = {"block_size": 16, "num_blocks": 256, "max_batch_tokens": 64, "max_requests_per_batch": 16}
STATIC = Path(__file__).resolve().parent / "viz" / "static"
LOOPBACK = ("127.0.0.1", "::1", "localhost")


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    on_space = bool(os.environ.get("SPACE_ID"))
    env = os.environ.get
    parser = argparse.ArgumentParser(prog="python app.py", description=__doc__)
    parser.add_argument("--host", default=env("HOST") or ("0.0.0.0" if on_space else "127.0.0.1"))
    parser.add_argument("--port", type=int, default=int(env("PORT") or 7860))
    parser.add_argument("--model", default=env("MODEL") or None, help="Hub id or folder (default: SmolLM2-135M-Instruct)")
    parser.add_argument("--engine", metavar="WS_URL", help="attach to a running engine instead of starting one")
    parser.add_argument("--engine-token-env", metavar="NAME", help="environment variable with that engine's token")
    parser.add_argument("--device", default="model", help='what the main room runs on: "model", or e.g. "simulated:h100"')
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--config", default=json.dumps(TEACHING_CONFIG), help="knobs of the main room as JSON")
    parser.add_argument("--limits", default="{}", help="caps as JSON, see engine/limits.py")
    parser.add_argument(
        "--pace", type=float, default=8.0, help="steps per second of the main room at first (0: unlimited; default 8)"
    )
    parser.add_argument(
        "--public", action="store_true", default=on_space, help="strangers visit: main is a show, nobody is host but by the link"
    )
    parser.add_argument("--root-path", default=env("ROOT_PATH") or "", help="sub-path under which a proxy serves the app")
    parser.add_argument("--allow-origin", action="append", default=[], help="origin of another page that may open the websocket")
    parser.add_argument(
        "--tab-grace", type=float, default=15.0, help="seconds after which a closed tab's requests are cancelled (default 15)"
    )
    parser.add_argument("--frame-ancestors", default="'self' https://huggingface.co https://*.hf.space" if on_space else "'self'")
    return parser.parse_args(arguments)


def build(options: argparse.Namespace):
    """The ASGI app and the rules of access. Nothing heavy is imported and nothing is started yet."""
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.routing import Mount, WebSocketRoute

    from engine.limits import Limits
    from lessons.loader import lesson_steps
    from viz.access import Access, SecurityHeaders
    from viz.class_board import Board, board_path
    from viz.classroom import Classroom
    from viz.gradio_mount import GradioPage, build_gradio
    from viz.hub import MAIN, Hub
    from viz.metrics import Metrics
    from viz.routes import Routes, not_found
    from viz.routes_export import ExportRoutes
    from viz.routes_lessons import LessonRoutes
    from viz.routes_openai import OpenAIRoutes
    from viz.static_files import StaticFiles
    from viz.supervisor import RemoteEngine, Supervisor
    from viz.viewer import Viewers

    limits = Limits().replaced(json.loads(options.limits))
    secret = os.environ.pop("BATCHSCOPE_HOST_SECRET", "")
    access = Access(
        **({"secret": secret} if secret else {}),
        public=options.public,
        local_host=options.host in LOOPBACK,
        origins=tuple(options.allow_origin),
    )
    if options.engine:
        source = RemoteEngine(
            options.engine, os.environ.pop(options.engine_token_env, None) if options.engine_token_env else None
        )
    else:
        source = Supervisor(engine_arguments(options))
    hub = Hub(source)
    metrics = Metrics(hub)
    hub.feeds[MAIN].listeners.add(metrics.listen)
    page = GradioPage(lambda: build_gradio(options.root_path))
    classroom = Classroom(Board(board_path()), lesson_steps())
    viewers = Viewers(hub, access, limits, grace=options.tab_grace, classroom=classroom)

    @contextlib.asynccontextmanager
    async def lifespan(app):
        await hub.start()
        await page.start()
        yield
        await page.stop()
        await hub.stop()
        classroom.board.close()

    routes = [
        WebSocketRoute("/ws", viewers.serve),
        *Routes(hub, metrics).all(),
        *ExportRoutes().all(),
        *LessonRoutes().all(),
        *OpenAIRoutes(hub, access, limits, os.environ.pop("BATCHSCOPE_API_KEY", None)).all(),
        Mount("/viz", StaticFiles(STATIC)),
        Mount("/api", not_found),
        Mount("/v1", not_found),
        Mount("/", page),
    ]
    app = Starlette(
        routes=routes, lifespan=lifespan, middleware=[Middleware(SecurityHeaders, frame_ancestors=options.frame_ancestors)]
    )
    app.state.hub, app.state.access, app.state.viewers = hub, access, viewers
    return app, access


def engine_arguments(options: argparse.Namespace) -> list[str]:
    """Command line of the engine child."""
    arguments = [
        "--config",
        options.config,
        "--limits",
        options.limits,
        "--device",
        options.device,
        "--dtype",
        options.dtype,
        "--pace",
        str(options.pace),
    ]
    if options.model:
        arguments += ["--model", options.model]
    return arguments + (["--show"] if options.public else [])


def listen(host: str, port: int) -> socket.socket:
    """Take the port before anything is started, so that one that is in use is said at once. Raises ``OSError``."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    listener.listen(512)
    return listener


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s", stream=sys.stderr)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        listener = listen(options.host, options.port)
    except OSError as problem:
        print(
            f"Cannot listen on {options.host}:{options.port}: {problem.strerror or problem}; choose another with --port.",
            file=sys.stderr,
        )
        return 1
    import uvicorn

    app, access = build(options)
    name = "127.0.0.1" if options.host in ("0.0.0.0", "::") else options.host
    address = f"http://{name}:{listener.getsockname()[1]}{options.root_path}/"
    print(f"Batchscope: {address}", flush=True)
    if not access.local_host or access.public:
        print(f"Host's link, keep it to yourself: {address}?host={access.secret}", flush=True)
    # Query strings may hold the host's secret, so requests are not logged.
    config = uvicorn.Config(
        app,
        ws="websockets-sansio",
        ws_per_message_deflate=False,
        ws_max_size=4 * 2**20,
        access_log=False,
        log_level="warning",
        timeout_graceful_shutdown=3,
        server_header=False,
    )
    # Ctrl-C has already ended everything in good order when it arrives here once more.
    with contextlib.suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listener])
    return 0


if __name__ == "__main__":
    sys.exit(main())
