"""Named GPUs and named models for the simulated device: public data-sheet numbers and public model shapes, no weights.

GPU numbers (one device, dense tensor-core peak without sparsity, decimal units as printed) come from NVIDIA's data sheets:

* T4: "NVIDIA T4 Tensor Core GPU" data sheet, 2019: 16 GB GDDR6, 320 GB/s, 65 TFLOP/s fp16, PCIe 3.0 x16. No bf16.
* L4: "NVIDIA L4 Tensor Core GPU" data sheet, 2023: 24 GB GDDR6, 300 GB/s, 121 TFLOP/s (242 with sparsity), PCIe 4.0 x16.
* A100: "NVIDIA A100 Tensor Core GPU" data sheet, 2021: SXM 40 GB at 1,555 GB/s or 80 GB at 2,039 GB/s, 312 TFLOP/s, NVLink 600 GB/s.
* H100: "NVIDIA H100 Tensor Core GPU" data sheet, 2023: SXM 80 GB HBM3, 3.35 TB/s, 989 TFLOP/s, NVLink 900 GB/s, PCIe 5.0 x16.
* H200: "NVIDIA H200 Tensor Core GPU" data sheet, 2024: 141 GB HBM3e, 4.8 TB/s, 989 TFLOP/s, NVLink 900 GB/s.
* B200: "NVIDIA DGX B200" data sheet, 2024, per GPU: 180 GB HBM3e, 8 TB/s, 2.25 PFLOP/s bf16 dense, NVLink 1.8 TB/s.

NVLink figures are printed for both directions together; half of it is what one direction carries, and what is stored
here. PCIe x16 per direction: 3.0 15.75 GB/s, 4.0 31.5 GB/s, 5.0 63 GB/s (PCI-SIG). Cards without NVLink use PCIe.

Model shapes are those of each model's public ``config.json`` on the Hugging Face Hub (OPT and GPT-3: their papers). The
parameter counts are computed from the shape and tested against the published totals.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from engine.errors import CommandRefused
from engine.model_spec import FULL, SLIDING, ModelSpec

GB, TB, TFLOPS = 1e9, 1e12, 1e12


@dataclass(frozen=True, slots=True)
class Hardware:
    """What the roofline needs to know of one device. Bandwidths are bytes/s in one direction, times are seconds.

    The efficiencies say which part of the printed peak real kernels reach. ``kernel_launch`` is what the host needs to
    start one kernel; a GPU runs behind the host (``launch_overlaps``), so it only shows when kernels are shorter than their
    launch. ``graph_gap`` is what remains between the kernels of a replayed graph. ``host_step`` and ``host_row`` are the
    host's work per step and per batch row (scheduling, tables, positions, inputs, reading the sampled tokens); the defaults are
    what this engine itself took on a server core (``bench calibrate`` and ``bench schedule``, November 2026).

    ``matmul_rates`` and ``attention_cost`` are only for a calibrated machine: measured FLOP/s of a matrix product by number
    of rows, and measured seconds per cached token read and per (query, position) pair, in one layer.
    """

    key: str
    name: str
    memory_bytes: float
    bandwidth: float
    peak_flops: float
    host_bandwidth: float
    link_bandwidth: float
    link_latency: float = 8e-6
    dtype: str = "bfloat16"
    bandwidth_efficiency: float = 0.85
    flops_efficiency: float = 0.70
    attention_efficiency: float = 0.50
    host_bandwidth_efficiency: float = 0.80
    kernel_launch: float = 5e-6
    launch_overlaps: bool = True
    graph_gap: float = 0.7e-6
    host_step: float = 600e-6
    host_row: float = 11e-6
    reserved_bytes: float = 2e9
    matmul_rates: tuple[tuple[int, float], ...] = ()
    attention_cost: tuple[float, float] | None = None

    @property
    def ridge(self) -> float:
        """Arithmetic intensity (FLOP per byte) at which the device turns from bandwidth-bound to compute-bound."""
        return self.peak_flops / self.bandwidth


PCIE3, PCIE4, PCIE5 = 15.75 * GB, 31.5 * GB, 63 * GB

GPUS: dict[str, Hardware] = {gpu.key: gpu for gpu in (
    Hardware("t4", "T4", 16 * GB, 320 * GB, 65 * TFLOPS, PCIE3, PCIE3, 15e-6, "float16", reserved_bytes=1e9),
    Hardware("l4", "L4", 24 * GB, 300 * GB, 121 * TFLOPS, PCIE4, PCIE4, 15e-6, reserved_bytes=1e9),
    Hardware("a100-40gb", "A100-40GB", 40 * GB, 1555 * GB, 312 * TFLOPS, PCIE4, 300 * GB),
    Hardware("a100-80gb", "A100-80GB", 80 * GB, 2039 * GB, 312 * TFLOPS, PCIE4, 300 * GB),
    Hardware("h100-80gb", "H100-80GB", 80 * GB, 3.35 * TB, 989 * TFLOPS, PCIE5, 450 * GB),
    Hardware("h200", "H200", 141 * GB, 4.8 * TB, 989 * TFLOPS, PCIE5, 450 * GB),
    Hardware("b200", "B200", 180 * GB, 8 * TB, 2250 * TFLOPS, PCIE5, 900 * GB),
)}

THIS_MACHINE = "this-machine"
GPU_ALIASES = {"a100": "a100-80gb", "a100-40": "a100-40gb", "a100-80": "a100-80gb", "h100": "h100-80gb",
               "h200-141gb": "h200", "b200-180gb": "b200", "t4-16gb": "t4", "l4-24gb": "l4"}


@dataclass(frozen=True, slots=True)
class CatalogModel:
    """One entry of the catalog: a builder, and the total that its makers publish (parameters)."""

    key: str
    build: Callable[[], ModelSpec]
    published_params: float


MODELS: dict[str, CatalogModel] = {}


def decoder(name: str, layers: int, hidden: int, intermediate: int, heads: int, kv_heads: int, vocab: int, *,
            head_dim: int | None = None, tied: bool = False, gated: bool = True, biases: str = "", qk_norm: bool = False,
            norms: int = 2, learned_positions: int = 0, window: int | None = None, full_every: int | None = None,
            max_position: int | None = None, eos: tuple[int, ...] = ()) -> ModelSpec:
    """A spec from the shape of a dense decoder, with its parameters counted.

    ``tied``: the LM head is the embedding table. ``gated``: the MLP has three matrices (SwiGLU, GeGLU), else two.
    ``biases``: ``""``, ``"qkv"`` or ``"all"``. ``norms``: norm vectors a layer. ``window`` alone makes every layer sliding;
    with ``full_every`` each n-th layer is full (Gemma 2: 2, Gemma 3: 6).
    """
    head_dim = head_dim or hidden // heads
    q_size, kv_size = heads * head_dim, kv_heads * head_dim
    attention = hidden * (q_size + 2 * kv_size) + q_size * hidden
    mlp = (3 if gated else 2) * hidden * intermediate
    vectors = norms * hidden + (2 * head_dim if qk_norm else 0)
    if biases:
        vectors += q_size + 2 * kv_size
    if biases == "all":
        vectors += 2 * hidden + intermediate + norms * hidden      # o and down, up, and the bias half of each LayerNorm
    head = hidden * vocab
    total = layers * (attention + mlp + vectors) + head * (1 if tied else 2) + hidden + learned_positions * hidden
    kinds = tuple(FULL if window is None or (full_every and (layer + 1) % full_every == 0) else SLIDING for layer in range(layers))
    return ModelSpec(
        name=name, num_layers=layers, hidden_size=hidden, intermediate_size=intermediate, num_heads=heads,
        num_kv_heads=kv_heads, head_dim=head_dim, vocab_size=vocab, num_params=total,
        num_matmul_params=layers * (attention + mlp) + head, layer_types=kinds, sliding_window=window,
        max_position=max_position, eos_token_ids=eos)


def _add(key: str, published: float, *shape, **options) -> None:
    MODELS[key] = CatalogModel(key, lambda: decoder(*shape, **options), published)


_LLAMA3 = {"max_position": 131072, "eos": (128001, 128008, 128009)}
_QWEN = {"max_position": 32768, "eos": (151645, 151643)}
_GEMMA2 = {"tied": True, "norms": 4, "window": 4096, "full_every": 2, "max_position": 8192, "eos": (1, 107)}
_GEMMA3 = {"tied": True, "norms": 4, "qk_norm": True, "full_every": 6, "eos": (1, 106)}

# key, published total, name, layers, hidden, intermediate, heads, KV heads, vocabulary
_add("smollm2-135m", 134.5e6, "SmolLM2-135M-Instruct", 30, 576, 1536, 9, 3, 49152, tied=True, max_position=8192, eos=(2,))
_add("smollm2-1.7b", 1.711e9, "SmolLM2-1.7B-Instruct", 24, 2048, 8192, 32, 32, 49152, tied=True, max_position=8192, eos=(2,))
_add("llama-3.2-1b", 1.236e9, "Llama-3.2-1B", 16, 2048, 8192, 32, 8, 128256, tied=True, **_LLAMA3)
_add("llama-3.2-3b", 3.213e9, "Llama-3.2-3B", 28, 3072, 8192, 24, 8, 128256, tied=True, **_LLAMA3)
_add("llama-3.1-8b", 8.030e9, "Llama-3.1-8B", 32, 4096, 14336, 32, 8, 128256, **_LLAMA3)
_add("llama-3.1-70b", 70.554e9, "Llama-3.1-70B", 80, 8192, 28672, 64, 8, 128256, **_LLAMA3)
_add("llama-3.1-405b", 405.85e9, "Llama-3.1-405B", 126, 16384, 53248, 128, 8, 128256, **_LLAMA3)
_add("llama-2-7b", 6.738e9, "Llama-2-7B", 32, 4096, 11008, 32, 32, 32000, max_position=4096, eos=(2,))
_add("llama-2-13b", 13.016e9, "Llama-2-13B", 40, 5120, 13824, 40, 40, 32000, max_position=4096, eos=(2,))
_add("llama-2-70b", 68.977e9, "Llama-2-70B", 80, 8192, 28672, 64, 8, 32000, max_position=4096, eos=(2,))
_add("mistral-7b", 7.248e9, "Mistral-7B-v0.3", 32, 4096, 14336, 32, 8, 32768, max_position=32768, eos=(2,))
_add("mistral-7b-v0.1", 7.242e9, "Mistral-7B-v0.1", 32, 4096, 14336, 32, 8, 32000, window=4096, max_position=32768, eos=(2,))
_add("mistral-small-24b", 23.572e9, "Mistral-Small-24B", 40, 5120, 32768, 32, 8, 131072, head_dim=128, max_position=32768, eos=(2,))
_add("qwen2.5-0.5b", 494e6, "Qwen2.5-0.5B", 24, 896, 4864, 14, 2, 151936, tied=True, biases="qkv", **_QWEN)
_add("qwen2.5-7b", 7.616e9, "Qwen2.5-7B", 28, 3584, 18944, 28, 4, 152064, biases="qkv", **_QWEN)
_add("qwen2.5-32b", 32.764e9, "Qwen2.5-32B", 64, 5120, 27648, 40, 8, 152064, biases="qkv", **_QWEN)
_add("qwen2.5-72b", 72.706e9, "Qwen2.5-72B", 80, 8192, 29568, 64, 8, 152064, biases="qkv", **_QWEN)
_add("qwen3-0.6b", 596e6, "Qwen3-0.6B", 28, 1024, 3072, 16, 8, 151936, head_dim=128, tied=True, qk_norm=True, **_QWEN)
_add("qwen3-8b", 8.191e9, "Qwen3-8B", 36, 4096, 12288, 32, 8, 151936, qk_norm=True, **_QWEN)
_add("qwen3-32b", 32.762e9, "Qwen3-32B", 64, 5120, 25600, 64, 8, 151936, head_dim=128, qk_norm=True, **_QWEN)
_add("gemma-2-2b", 2.614e9, "Gemma-2-2B", 26, 2304, 9216, 8, 4, 256000, head_dim=256, **_GEMMA2)
_add("gemma-2-9b", 9.242e9, "Gemma-2-9B", 42, 3584, 14336, 16, 8, 256000, head_dim=256, **_GEMMA2)
_add("gemma-2-27b", 27.227e9, "Gemma-2-27B", 46, 4608, 36864, 32, 16, 256000, head_dim=128, **_GEMMA2)
# Gemma 3: the published totals here are those of the text decoder (technical report, table 1), without the vision tower.
_add("gemma-3-1b", 1.000e9, "Gemma-3-1B", 26, 1152, 6912, 4, 1, 262144, head_dim=256, window=512, max_position=32768, **_GEMMA3)
_add("gemma-3-4b", 3.884e9, "Gemma-3-4B", 34, 2560, 10240, 8, 4, 262208, head_dim=256, window=1024, max_position=131072, **_GEMMA3)
_add("gemma-3-12b", 11.771e9, "Gemma-3-12B", 48, 3840, 15360, 16, 8, 262208, head_dim=256, window=1024, max_position=131072, **_GEMMA3)
_add("gemma-3-27b", 27.016e9, "Gemma-3-27B", 62, 5376, 21504, 32, 16, 262208, head_dim=128, window=1024, max_position=131072, **_GEMMA3)
_add("phi-3.5-mini", 3.821e9, "Phi-3.5-mini", 32, 3072, 8192, 32, 32, 32064, max_position=131072, eos=(32000,))
_add("phi-4", 14.660e9, "Phi-4", 40, 5120, 17920, 40, 10, 100352, max_position=16384, eos=(100265,))
_add("opt-13b", 12.853e9, "OPT-13B", 40, 5120, 20480, 40, 40, 50272, tied=True, gated=False, biases="all",
     learned_positions=2050, max_position=2048, eos=(2,))
_add("gpt-3-175b", 175e9, "GPT-3-175B", 96, 12288, 49152, 96, 96, 50257, tied=True, gated=False, biases="all",
     learned_positions=2048, max_position=2048, eos=(50256,))

MODEL_ALIASES = {
    "smollm2": "smollm2-135m", "llama-8b": "llama-3.1-8b", "llama-70b": "llama-3.1-70b", "llama-405b": "llama-3.1-405b",
    "llama-7b": "llama-2-7b", "llama-13b": "llama-2-13b", "qwen-7b": "qwen2.5-7b", "qwen-32b": "qwen3-32b",
    "qwen-72b": "qwen2.5-72b", "gemma-27b": "gemma-3-27b", "mistral-24b": "mistral-small-24b",
}


def find_gpu(name: str) -> Hardware:
    """The GPU of that name, in any case, e.g. ``"H100"``; ``"this-machine"`` is the machine as it was last calibrated.

    Raises :class:`CommandRefused` naming the known ones.
    """
    key = str(name).strip().lower().replace("_", "-")
    key = GPU_ALIASES.get(key, key)
    if key == THIS_MACHINE:
        from engine.executor.calibration import saved_hardware
        calibrated = saved_hardware()
        if calibrated is None:
            raise CommandRefused("not_calibrated", "This machine has not been measured yet; run python -m engine.bench calibrate first.")
        return calibrated
    if key not in GPUS:
        raise CommandRefused("unknown_device", f"There is no simulated device named {str(name)[:60]!r}; there are {', '.join(GPUS)}.")
    return GPUS[key]


def find_model(name: str) -> ModelSpec:
    """The spec of a catalog model, e.g. ``"llama-70b"``. Raises :class:`CommandRefused` naming the known ones."""
    key = str(name).strip().lower().replace("_", "-").rsplit("/", 1)[-1].removesuffix("-instruct")
    key = MODEL_ALIASES.get(key, key)
    if key not in MODELS:
        raise CommandRefused("unknown_model", f"There is no catalog model named {str(name)[:60]!r}; there are {', '.join(MODELS)}.")
    return MODELS[key].build()


def parse_device(text: str) -> tuple[Hardware, int]:
    """``"simulated:h100"`` or ``"simulated:h100:8"`` → the GPU and how many. Raises :class:`CommandRefused`."""
    match = re.fullmatch(r"(?:simulated:)?([a-z0-9_-]+)(?::(\d{1,3}))?", str(text).strip().lower())
    if match is None:
        raise CommandRefused("bad_device", f"A simulated device is written simulated:h100 or simulated:h100:8, not {str(text)[:60]!r}.")
    count = int(match[2] or 1)
    if not 1 <= count <= 64:
        raise CommandRefused("bad_device", f"A simulated room may have 1 to 64 devices, not {count}.")
    return find_gpu(match[1]), count


def describe_catalog() -> dict[str, list[dict]]:
    """Devices and models for menus, JSON-ready."""
    devices = [{"key": gpu.key, "name": gpu.name, "memory_gb": gpu.memory_bytes / GB, "bandwidth_gbs": gpu.bandwidth / GB,
                "tflops": gpu.peak_flops / TFLOPS, "dtype": gpu.dtype, "ridge": round(gpu.ridge, 1)} for gpu in GPUS.values()]
    models = []
    for entry in MODELS.values():
        spec = entry.build()
        models.append({"key": entry.key, "name": spec.name, "params": spec.num_params, "layers": spec.num_layers,
                       "kv_bytes_per_token": spec.kv_bytes_per_token, "sliding_window": spec.sliding_window})
    return {"devices": devices, "models": models}
