"""On a GPU box: this engine against ``generate_batch`` on random weights of real shapes, and how near decoding comes to the memory.

Reports for each shape: tokens per second of both and their ratio, the bandwidth of decode steps (bytes of weights and cache read,
by time) as a share of a measured copy on the same device, the share of CPU preparation that async batching hides behind the device,
and what CUDA graphs gain. ``--device cpu --shapes tiny`` runs the same logic anywhere.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from engine.bench.table import print_table

#: Shapes of Llama 3.2 1B and Llama 3.1 8B, from their published configurations, and one small enough for a test.
SHAPES = {
    "1b": {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8,
           "head_dim": 64, "vocab_size": 128256, "tie_word_embeddings": True},
    "8b": {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
           "head_dim": 128, "vocab_size": 128256, "tie_word_embeddings": False},
    "tiny": {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
             "head_dim": 32, "vocab_size": 512, "tie_word_embeddings": True},
}
MODES = {"eager": {}, "graphs": {"use_cuda_graph": True}, "async": {"use_cuda_graph": True, "use_async_batching": True}}


def main(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    from engine.model.threads import configure_threads
    configure_threads()
    report: dict[str, Any] = {"copy_bytes_per_second": measured_copy(options.device), "shapes": {}}
    for name in options.shapes.split(","):
        report["shapes"][name] = measure_shape(name, options, report["copy_bytes_per_second"])
        _print(name, report["shapes"][name])
        if options.json:
            options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m engine.bench gpu", description=__doc__.split("\n")[0])
    parser.add_argument("--shapes", default="1b,8b", help=f"of {', '.join(SHAPES)}")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--output", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser


def measured_copy(device: str, size: int | None = None) -> float:
    """Bytes per second that a large copy reads and writes on ``device``."""
    import torch
    size = size or (1 << 30 if device.startswith("cuda") else 1 << 26)
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    times = []
    for _ in range(10):
        _wait(device)
        begin = time.perf_counter()
        target.copy_(source)
        _wait(device)
        times.append(time.perf_counter() - begin)
    return 2 * size / statistics.median(times)


def measure_shape(name: str, options: argparse.Namespace, copy: float) -> dict[str, Any]:
    loaded = random_model(name, options.device)
    generator_prompts = [[(17 * i + 31 * j) % (loaded.spec.vocab_size - 10) + 5 for j in range(options.prompt)] for i in range(options.requests)]
    systems: dict[str, Any] = {mode: lambda mode=mode: run_ours(loaded, generator_prompts, options.output, MODES[mode]) for mode in MODES}
    peer = GenerateBatch(loaded.model, options)
    systems["generate_batch"] = lambda: peer.run(generator_prompts, options.output)
    runs: dict[str, list[dict[str, Any]]] = {system: [] for system in systems}
    for repeat in range(options.repeats + 1):
        for system, go in systems.items():
            print(f"{name} {system} {'warm-up' if repeat == 0 else repeat}", file=sys.stderr)
            result = go()
            if repeat:
                runs[system].append(result)
    peer.close()
    out: dict[str, Any] = {system: {"tok_s": statistics.median(run["tok_s"] for run in items)} for system, items in runs.items()}
    for mode in MODES:
        out[mode]["ratio"] = statistics.median(a["tok_s"] / b["tok_s"] for a, b in zip(runs[mode], runs["generate_batch"]))
        out[mode]["decode_bandwidth_share"] = statistics.median(run["bytes_per_second"] for run in runs[mode]) / copy
        out[mode]["overlap"] = statistics.median(run["overlap"] for run in runs[mode])
        out[mode]["backend"] = runs[mode][0]["backend"]
    return out


def random_model(name: str, device: str):
    """A Llama of shape ``name`` with random bfloat16 weights, made on the device itself."""
    import torch
    from transformers import AutoModelForCausalLM, LlamaConfig

    from engine.model.loading import LoadedModel
    from engine.model.spec import spec_from_model
    config = LlamaConfig(max_position_embeddings=8192, bos_token_id=1, eos_token_id=2, pad_token_id=0, **SHAPES[name])
    torch.manual_seed(0)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval().requires_grad_(False)
    return LoadedModel(model, None, spec_from_model(model, name), "random weights")


def run_ours(loaded: Any, prompts: list[list[int]], output: int, knobs: dict[str, Any]) -> dict[str, Any]:
    """One run of all prompts at once. ``bytes_per_second``: weights and cache read by pure decode steps, by their time;
    ``overlap``: share of the preparation of steps that fell into the device time of another."""
    from engine.config import EngineConfig
    from engine.engine import Engine
    from engine.executor.model import ModelExecutor
    from engine.sampling_params import SamplingParams
    executor = ModelExecutor(loaded)
    blocks = len(prompts) * (-(-(len(prompts[0]) + output) // 16) + 1)
    engine = Engine(executor, EngineConfig().replaced({
        "block_size": 16, "num_blocks": blocks, "max_batch_tokens": 2048, "max_requests_per_batch": len(prompts), "safety_margin": 0.0,
        "allow_block_sharing": False, **knobs}))
    spec, device = loaded.spec, str(loaded.model.device)
    for prompt in prompts:
        engine.submit(prompt, SamplingParams(max_new_tokens=output, ignore_eos=True))
    moved, spent, steps = 0, 0.0, []
    _wait(device)
    begin = last = time.perf_counter()
    while engine.has_work:
        event = engine.step()
        engine.take_events()
        now = time.perf_counter()
        budget, timing = (event or {}).get("budget"), (event or {}).get("timing")
        if budget and budget["tokens"][0] == len(prompts):
            moved += spec.num_matmul_params * spec.dtype_bytes + budget["kv"][0] * spec.kv_bytes_per_token
            spent += now - last
        if timing:
            steps.append(timing)
        last = now
    seconds = time.perf_counter() - begin
    result = {"tok_s": len(prompts) * output / seconds, "bytes_per_second": moved / spent if spent else 0.0, "overlap": overlap(steps),
              "backend": executor.info.backend}
    executor.close()
    return result


def overlap(timings: list[dict[str, Any]]) -> float:
    """Share of the preparation time (``prepare``: [step, begin, end]) that lies inside device intervals of other steps."""
    device = {timing["device"][0]: timing["device"][1:] for timing in timings if timing.get("device")}
    prepared = hidden = 0.0
    for timing in timings:
        if not timing.get("prepare"):
            continue
        step, begin, end = timing["prepare"]
        prepared += end - begin
        hidden += sum(max(0.0, min(end, stop) - max(begin, start)) for other, (start, stop) in device.items() if other != step and stop > begin and start < end)
    return hidden / prepared if prepared else 0.0


class GenerateBatch:
    """transformers' continuous batching on the same model object, its manager kept alive over all runs."""

    def __init__(self, model: Any, options: argparse.Namespace) -> None:
        from transformers import ContinuousBatchingConfig, GenerationConfig
        blocks = options.requests * (-(-(options.prompt + options.output) // 32) + 1)
        self._manager = model.init_continuous_batching(
            generation_config=GenerationConfig(do_sample=False, max_new_tokens=options.output, eos_token_id=-1, pad_token_id=0),
            continuous_batching_config=ContinuousBatchingConfig(block_size=32, num_blocks=blocks, max_batch_tokens=2048, allow_block_sharing=False))
        self._manager.start()

    def run(self, prompts: list[list[int]], output: int) -> dict[str, Any]:
        begin = time.perf_counter()
        names = {self._manager.add_request(prompt, max_new_tokens=output) for prompt in prompts}
        while names:
            result = self._manager.get_result(timeout=1)
            if result is not None and result.is_finished():
                if result.error:
                    raise RuntimeError(result.error)
                names.discard(result.request_id)
            elif result is None and not self._manager.is_running():
                raise RuntimeError("generate_batch's thread has ended")
        return {"tok_s": len(prompts) * output / (time.perf_counter() - begin)}

    def close(self) -> None:
        self._manager.stop(block=True, timeout=5)


def _wait(device: str) -> None:
    if device.startswith("cuda"):
        import torch
        torch.cuda.synchronize()


def _print(name: str, result: dict[str, Any]) -> None:
    print(f"\n{name}")
    print_table(["system", "tok/s", "by generate_batch", "decode bandwidth by copy", "preparation hidden"],
                [[f"{system} ({row['backend']})" if "backend" in row else system, f"{row['tok_s']:.0f}",
                  f"{row['ratio']:.2f}×" if "ratio" in row else "", f"{row['decode_bandwidth_share']:.0%}" if "ratio" in row else "",
                  f"{row['overlap']:.0%}" if "ratio" in row else ""] for system, row in result.items()])
