"""The systems that are compared, each behind one method: ``run(requests) -> generated token ids of each request``.

Every one computes in bfloat16 with greedy choice, ignores the end-of-text token and runs with its own defaults where it has
some. A system is opened in a process of its own (see ``peer_worker``); imports stand inside, since not every environment has
all of them.
"""

from __future__ import annotations

import os
from typing import Any, Protocol

#: room for the largest workload on every system
CACHE_TOKENS = 32768
MAX_REQUESTS = 32


class System(Protocol):
    def run(self, requests: list[dict[str, Any]]) -> list[list[int]]:
        """``requests``: ``prompt`` (token ids) and ``output_tokens``."""
        ...

    def describe(self) -> str:
        """Versions and settings for the run card."""
        ...


class Batchscope:
    """This project's engine with events on, as the page uses it."""

    def __init__(self, model: str) -> None:
        from engine.model.threads import configure_threads
        configure_threads()
        from engine.config import EngineConfig
        from engine.engine import Engine
        from engine.executor.model import ModelExecutor
        from engine.model.loading import load_model
        loaded = load_model(model, dtype="bfloat16")
        self._executor = ModelExecutor(loaded)
        # Repeats send the same prompts again: no system may find them in its prefix cache.
        config = EngineConfig(num_blocks=CACHE_TOKENS // 32, block_size=32, max_requests_per_batch=MAX_REQUESTS, max_batch_tokens=256,
                              allow_block_sharing=False)
        self._engine = Engine(self._executor, config, tokenizer=loaded.tokenizer)

    def run(self, requests):
        from engine.sampling_params import SamplingParams
        engine = self._engine
        ids = [engine.submit(request["prompt"], SamplingParams(max_new_tokens=request["output_tokens"], ignore_eos=True))[0]
               for request in requests]
        running = [engine.requests[name] for name in ids]
        while not all(request.ended for request in running):
            engine.step()
            engine.take_events()
        return [request.tokens[request.num_prompt_tokens:] for request in running]

    def describe(self) -> str:
        info = self._executor.info
        return f"batchscope on {info.device}, {info.backend} attention, 256 tokens a step, blocks of 32{''.join(' ' + n for n in info.notes)}"


class GenerateBatch:
    """transformers' continuous batching, its manager kept alive between runs. Only the size of its cache is set: left alone it
    would take 90 % of the machine's memory."""

    def __init__(self, model: str) -> None:
        from transformers import ContinuousBatchingConfig, GenerationConfig
        self._model = _transformers_model(model)
        self._manager = self._model.init_continuous_batching(
            generation_config=GenerationConfig(do_sample=False, max_new_tokens=256, eos_token_id=-1, pad_token_id=0),
            continuous_batching_config=ContinuousBatchingConfig(block_size=32, num_blocks=CACHE_TOKENS // 32, allow_block_sharing=False))
        self._manager.start()

    def run(self, requests):
        names = [self._manager.add_request(request["prompt"], max_new_tokens=request["output_tokens"]) for request in requests]
        results: dict[str, list[int]] = {}
        while len(results) < len(names):
            result = self._manager.get_result(timeout=1)
            if result is not None and result.is_finished():
                if result.error:
                    raise RuntimeError(result.error)
                results[result.request_id] = list(result.generated_tokens)
            elif result is None and not self._manager.is_running():
                raise RuntimeError("generate_batch's thread has ended")
        return [results[name] for name in names]

    def describe(self) -> str:
        return f"{_transformers_version()}, continuous batching, {self._model.config._attn_implementation}"


class Static:
    """transformers' ``generate`` on left-padded groups of 8 in order of arrival; a group lasts as long as its longest member."""

    GROUP = 8

    def __init__(self, model: str) -> None:
        self._model = _transformers_model(model)

    def run(self, requests):
        import torch
        outputs = []
        for first in range(0, len(requests), self.GROUP):
            group = requests[first:first + self.GROUP]
            width = max(len(request["prompt"]) for request in group)
            longest = max(request["output_tokens"] for request in group)
            ids = torch.tensor([[0] * (width - len(request["prompt"])) + request["prompt"] for request in group])
            mask = torch.tensor([[0] * (width - len(request["prompt"])) + [1] * len(request["prompt"]) for request in group])
            with torch.inference_mode():
                out = self._model.generate(ids, attention_mask=mask, max_new_tokens=longest, do_sample=False, eos_token_id=None, pad_token_id=0)
            outputs += [row[width:width + request["output_tokens"]].tolist() for row, request in zip(out, group)]
        return outputs

    def describe(self) -> str:
        return f"{_transformers_version()}, static groups of {self.GROUP}, {self._model.config._attn_implementation}"


class Vllm:
    """vLLM's CPU build, from its own environment."""

    def __init__(self, model: str) -> None:
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")
        from vllm import LLM
        self._llm = LLM(model=model, dtype="bfloat16", max_model_len=2048, max_num_seqs=MAX_REQUESTS, enable_prefix_caching=False,
                        disable_log_stats=True)

    def run(self, requests):
        from vllm import SamplingParams
        params = [SamplingParams(temperature=0.0, max_tokens=request["output_tokens"], ignore_eos=True, detokenize=False) for request in requests]
        out = self._llm.generate([{"prompt_token_ids": request["prompt"]} for request in requests], params, use_tqdm=False)
        return [list(item.outputs[0].token_ids) for item in out]

    def describe(self) -> str:
        import vllm
        return f"vllm-cpu {vllm.__version__}, {MAX_REQUESTS} sequences"


def _transformers_model(source: str):
    import torch
    from transformers import AutoModelForCausalLM
    return AutoModelForCausalLM.from_pretrained(source, dtype=torch.bfloat16).eval()


def _transformers_version() -> str:
    import torch
    import transformers
    return f"transformers {transformers.__version__}, torch {torch.__version__}, {torch.get_num_threads()} threads"
