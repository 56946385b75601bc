"""``python -m engine``: serve a model's rooms over a websocket."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
import threading


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m engine", description="The continuous-batching engine and its websocket.")
    parser.add_argument("--model", help="Hub id or folder of a transformers causal LM (default: SmolLM2-135M-Instruct)")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8765, help="0 picks a free one (default: 8765)")
    parser.add_argument(
        "--device",
        default="model",
        help='what the main room runs on: "model", or e.g. "simulated:h100" (then --model names a catalog model)',
    )
    parser.add_argument("--torch-device", default="auto", help="torch device of the model: auto, cpu, cuda or cuda:<n>")
    parser.add_argument("--dtype", default="auto", choices=("auto", "float32", "bfloat16", "float16"))
    parser.add_argument("--config", default="{}", help="knobs of the main room as JSON, e.g. '{\"block_size\": 16}'")
    parser.add_argument("--limits", default="{}", help="caps as JSON, see engine/limits.py")
    parser.add_argument("--pace", type=float, default=0.0, help="steps per second of the main room (0: unlimited)")
    parser.add_argument("--token-env", metavar="NAME", help="environment variable that holds the token of the page process")
    parser.add_argument(
        "--origin", action="append", default=[], help="origin of a web page that may connect directly (repeatable)"
    )
    parser.add_argument("--show", action="store_true", help="viewers may not submit to the main room")
    parser.add_argument("--announce", action="store_true", help="print one line of JSON with port and pid when listening")
    parser.add_argument(
        "--end-with-parent", action="store_true", help="end when standard input closes or the parent process dies"
    )
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    if options.end_with_parent:
        end_with_parent()
    # Before anything can import torch: OpenMP reads its settings once.
    from engine.model.threads import configure_threads

    configure_threads()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s", stream=sys.stderr)
    logging.getLogger("websockets").setLevel(logging.CRITICAL)  # clients that hang up are not news

    from engine.config import EngineConfig
    from engine.errors import BatchscopeError
    from engine.limits import Limits
    from engine.provider import Provider
    from engine.server import EngineServer

    token = None
    if options.token_env:
        # Out of the environment again, so that no child and no crash report inherits it.
        token = os.environ.pop(options.token_env, None)
        if not token:
            print(f"The environment variable {options.token_env} is empty; put the token there.", file=sys.stderr)
            return 2
    try:
        config = EngineConfig.from_dict(json.loads(options.config))
        limits = Limits().replaced(json.loads(options.limits))
    except BatchscopeError as problem:
        print(f"--config: {problem.message}", file=sys.stderr)
        return 2
    except ValueError as problem:
        print(f"--config or --limits: {problem}", file=sys.stderr)
        return 2
    if token is None and options.host not in ("127.0.0.1", "::1", "localhost"):
        print("No token is set (--token-env), so whoever connects from another machine is a viewer.", file=sys.stderr)
    server = EngineServer(
        Provider(options.model, dtype=options.dtype, device=options.torch_device),
        config=config,
        device=options.device,
        limits=limits,
        token=token,
        origins=tuple(options.origin),
        main_open=not options.show,
        pace=options.pace,
    )
    return asyncio.run(_serve(server, options))


async def _serve(server, options: argparse.Namespace) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, stop.set)
    try:
        port = await server.start(options.host, options.port)
    except OSError as problem:
        print(f"Cannot listen on {options.host}:{options.port}: {problem.strerror or problem}.", file=sys.stderr)
        return 1
    if options.announce:
        print(json.dumps({"listening": True, "port": port, "pid": os.getpid()}), flush=True)
    logging.getLogger("batchscope.server").info("engine listening on ws://%s:%d", options.host, port)
    await stop.wait()
    await server.stop()
    return 0


def end_with_parent() -> None:
    """Never outlive the page process, however it ends: the kernel's signal where there is one, and the end of standard input."""
    if sys.platform == "linux":
        import ctypes

        PR_SET_PDEATHSIG = 1
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    def watch() -> None:
        try:
            # The raw descriptor: a buffered reader blocked in another thread would hold up the interpreter's own exit.
            while os.read(0, 4096):
                pass
        except OSError:
            pass
        os._exit(0)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


if __name__ == "__main__":
    sys.exit(main())
