"""Ready-made rooms: a config, a workload that goes with it, and a sentence why it is worth looking at.

The page shows them as buttons; ``engine.bench run --preset NAME`` runs them. Titles and help in Korean stand with the page's
other texts, under the same keys.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from engine.config import EngineConfig
from engine.workload import Workload


@dataclass(frozen=True)
class Preset:
    """``config`` are the knobs that differ from their defaults; ``device`` is ``"model"`` or ``"simulated:…"``."""

    key: str
    title: str
    help: str
    config: dict[str, Any]
    workload: dict[str, Any]
    device: str = "model"
    model: str | None = None
    pace: float = 0.0
    tags: tuple[str, ...] = field(default=())

    def engine_config(self) -> EngineConfig:
        return EngineConfig.from_dict(self.config)

    def to_dict(self) -> dict[str, Any]:
        return {"key": self.key, "title": self.title, "help": self.help, "config": dict(self.config), "workload": dict(self.workload),
                "device": self.device, "model": self.model, "pace": self.pace, "tags": list(self.tags)}


#: Small enough that a class sees the cache fill up, large enough that a dozen answers run side by side.
CLASSROOM_CONFIG = {"block_size": 16, "num_blocks": 96, "max_batch_tokens": 64, "max_requests_per_batch": 16, "cpu_offload_space": 0.05}

_PRESETS = (
    Preset(
        "classroom", "Classroom", "For a lecture: small blocks and a cache that a dozen answers fill, so that everything that can happen does.",
        CLASSROOM_CONFIG,
        {"name": "classroom", "num_requests": 24, "content": "questions", "arrivals": {"kind": "poisson", "rate": 1.0},
         "output_length": {"kind": "uniform", "low": 16, "high": 64}},
        pace=8.0, tags=("teaching",)),
    Preset(
        "chat", "Chat", "People who come one by one, ask short questions and read along: small slices keep every stream smooth.",
        {"block_size": 16, "num_blocks": 512, "max_batch_tokens": 64, "max_requests_per_batch": 16},
        {"name": "chat", "num_requests": 48, "content": "auto", "arrivals": {"kind": "closed", "users": 8, "think": 2.0},
         "prompt_length": {"kind": "lognormal", "mean": 40, "sigma": 0.6, "low": 8, "high": 200},
         "output_length": {"kind": "lognormal", "mean": 48, "sigma": 0.6, "low": 4, "high": 160},
         "shared_prefix": {"tokens": 48, "groups": 1}}),
    Preset(
        "batch", "Overnight batch", "Everything is there at once and nobody waits at a screen: large slices, a full batch, all for throughput.",
        {"block_size": 32, "num_blocks": 512, "max_batch_tokens": 512, "max_requests_per_batch": 32},
        {"name": "batch", "num_requests": 64, "arrivals": {"kind": "at_once"},
         "prompt_length": {"kind": "uniform", "low": 20, "high": 200}, "output_length": {"kind": "uniform", "low": 8, "high": 96}}),
    Preset(
        "long_prompts", "Long prompts", "A long prompt walks into a room of running answers: in slices it rides along, in one piece it stops them all.",
        {"block_size": 16, "num_blocks": 512, "max_batch_tokens": 64, "max_requests_per_batch": 8},
        {"name": "long prompts", "num_requests": 16, "arrivals": {"kind": "bursts", "size": 2, "interval": 2.0},
         "prompt_length": {"kind": "heavy_tail", "mean": 180, "rare": 1000, "share": 0.12, "low": 8, "high": 1000},
         "output_length": {"kind": "uniform", "low": 24, "high": 64}}),
    Preset(
        "shared_prefix", "Shared system prompt", "Every request starts with the same system prompt: it is computed once, and then its blocks are shared.",
        {"block_size": 16, "num_blocks": 256, "max_batch_tokens": 64, "max_requests_per_batch": 8},
        {"name": "shared prefix", "num_requests": 32, "arrivals": {"kind": "poisson", "rate": 2.0}, "shared_prefix": {"tokens": 128, "groups": 2},
         "prompt_length": {"kind": "uniform", "low": 6, "high": 30}, "output_length": {"kind": "uniform", "low": 8, "high": 32}}),
    Preset(
        "tiny_cache", "Tiny cache", "The cache holds two or three answers: the others wait, and the waiting list says what for.",
        {"block_size": 4, "num_blocks": 32, "max_batch_tokens": 32, "max_requests_per_batch": 8, "cpu_offload_space": 0.02},
        {"name": "tiny cache", "num_requests": 12, "arrivals": {"kind": "at_once"},
         "prompt_length": {"kind": "uniform", "low": 8, "high": 24}, "output_length": {"kind": "uniform", "low": 8, "high": 40}}),
    Preset(
        "thrash", "Thrashing", "No safety margin, short prompts and long answers: too many start, all of them grow, and they push each other out.",
        {"block_size": 4, "num_blocks": 64, "max_batch_tokens": 64, "max_requests_per_batch": 16, "safety_margin": 0.0,
         "cpu_offload_space": 0.0, "allow_block_sharing": False},
        {"name": "thrash", "num_requests": 24, "arrivals": {"kind": "at_once"},
         "prompt_length": {"kind": "fixed", "value": 8}, "output_length": {"kind": "fixed", "value": 56}}),
    Preset(
        "static_batching", "Static batching", "The baseline: a fixed batch waits for its slowest member, and so does everybody outside.",
        {"scheduler_type": "static", "block_size": 16, "num_blocks": 128, "max_batch_tokens": 256, "max_requests_per_batch": 4},
        {"name": "static batching", "num_requests": 12, "arrivals": {"kind": "at_once"}, "prompt_length": {"kind": "fixed", "value": 16},
         "output_length": {"kind": "uniform", "low": 2, "high": 48}}),
    Preset(
        "heavy_tail", "Heavy tail, 70B on 8 × H100", "500 tokens on average, 30,000 now and then, on a simulated eight-GPU server: the mean says little.",
        {"block_size": 256, "max_batch_tokens": 2048, "max_requests_per_batch": 256, "use_cuda_graph": True, "use_async_batching": True},
        {"name": "heavy tail", "num_requests": 400, "arrivals": {"kind": "poisson", "rate": 10.0},
         "prompt_length": {"kind": "heavy_tail", "mean": 500, "rare": 30000, "share": 0.005},
         "output_length": {"kind": "lognormal", "mean": 200, "sigma": 0.8, "high": 2000}},
        device="simulated:h100:8", model="llama-3.1-70b", tags=("simulated",)),
)

PRESETS: dict[str, Preset] = {preset.key: preset for preset in _PRESETS}


def preset_workload(key: str) -> Workload:
    """The checked workload of a preset. Raises ``KeyError`` for an unknown one."""
    return Workload.from_dict(PRESETS[key].workload)


def describe_presets() -> list[dict[str, Any]]:
    """All presets, JSON-ready, in the order in which they are shown."""
    return [preset.to_dict() for preset in PRESETS.values()]
