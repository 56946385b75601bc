"""The fast way through a Llama-like decoder on a CPU: the whole step in one native call, with packed weights.

Recognised are the transformers classes in :data:`KNOWN_MODELS`; whatever else a model does differently (an activation, a bias, a
sliding window) makes :meth:`FusedDecoder.why_not` decline, and the generic forward pass serves it. Nothing is approximated: the
phases and the places where bf16 rounds are those of the transformers modules.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from typing import Any

import torch

from engine.model.native_library import SUFFIX, NativeUnavailable, load_library
from engine.model.packed_batch import PackedBatch, PagedKVCache

KNOWN_MODELS = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
#: rotary embeddings whose angles depend on the position alone
KNOWN_ROPE = ("default", "linear", "llama3", "yarn")
PHASES = ("embed", "norm", "qkv", "rope and cache write", "attention", "output projection", "gate and up", "down", "lm head")


class _Layer(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in (
        "input_norm", "qkv", "qkv_bias", "query_norm", "key_norm", "output", "mlp_norm", "gate_up", "down", "keys", "values")]


class _Model(ctypes.Structure):
    _fields_ = [*((name, ctypes.c_int32) for name in (
        "num_layers", "hidden", "query_heads", "kv_heads", "head_size", "intermediate", "vocabulary", "threads")),
        ("norm_eps", ctypes.c_float), ("attention_scale", ctypes.c_float),
        *((name, ctypes.c_void_p) for name in ("embedding", "final_norm", "head", "cosine", "sine"))]


class _Step(ctypes.Structure):
    _fields_ = [*((name, ctypes.c_int64) for name in ("tokens", "rows", "samples", "table_width", "block_size")),
                *((name, ctypes.c_void_p) for name in (
                    "input_ids", "position_ids", "slot_mapping", "sample_rows", "query_starts", "block_table", "kv_lengths",
                    "workspace", "logits", "most_likely", "seconds"))]


class FusedDecoder:
    """``Forward`` for one recognised model in fp32 or bf16. Rooms share it, one call at a time: its packed weights, a second copy
    of the matrices, are made once."""

    name = "native"

    def __init__(self, model: Any) -> None:
        """Raises :class:`NativeUnavailable` when :meth:`why_not` has a reason or the compiler fails."""
        reason = self.why_not(model)
        if reason:
            raise NativeUnavailable(reason)
        self._library = load_library()
        config, decoder = model.config, model.model
        self.dtype = model.lm_head.weight.dtype
        self._suffix = SUFFIX[self.dtype]
        self._call = getattr(self._library, f"decoder_step_{self._suffix}")
        self._decoder = decoder
        attention = decoder.layers[0].self_attn
        self._model = _Model(
            num_layers=len(decoder.layers), hidden=config.hidden_size, query_heads=config.num_attention_heads,
            kv_heads=config.num_key_value_heads, head_size=attention.head_dim, intermediate=config.intermediate_size,
            vocabulary=model.lm_head.weight.shape[0], threads=torch.get_num_threads(),
            norm_eps=decoder.norm.variance_epsilon, attention_scale=attention.scaling,
            embedding=decoder.embed_tokens.weight.data_ptr(), final_norm=decoder.norm.weight.data_ptr())
        self._layers = (_Layer * len(decoder.layers))()
        self._kept: list[torch.Tensor] = [decoder.embed_tokens.weight, decoder.norm.weight]
        self._cosine = self._sine = torch.empty(0)
        self._workspace = torch.empty(0, dtype=torch.uint8)
        self._cache: weakref.ref[PagedKVCache] | None = None      # weak: a room's old cache must be free to go
        self._lock = threading.Lock()
        #: seconds spent in each of :data:`PHASES` since the last reset, as the first thread saw them
        self.seconds = torch.zeros(len(PHASES), dtype=torch.float64)
        self._pack(model)

    @staticmethod
    def why_not(model: Any) -> str | None:
        """Why this model cannot take the fused path, as the end of a sentence, or ``None``."""
        kind, config = type(model).__name__, model.config
        if kind not in KNOWN_MODELS:
            return f"it does not know {kind}"
        attention, mlp = model.model.layers[0].self_attn, model.model.layers[0].mlp
        weight = model.lm_head.weight
        if weight.device.type != "cpu" or weight.dtype not in SUFFIX:
            return "it computes in float32 or bfloat16 on a CPU"
        if config.hidden_act != "silu" or mlp.gate_proj.bias is not None or attention.o_proj.bias is not None:
            return "it knows only SiLU, and no bias in the MLP or behind attention"
        if any(kind != "full_attention" for kind in getattr(config, "layer_types", None) or ()) or getattr(config, "sliding_window", None):
            return "it has no sliding windows"
        if model.model.rotary_emb.rope_type not in KNOWN_ROPE:
            return f"it does not know the {model.model.rotary_emb.rope_type} rotary embedding"
        if attention.head_dim % 32 or config.hidden_size % 16 or config.intermediate_size % 16:
            return "it needs heads of a multiple of 32 and layers of a multiple of 16 wide"
        if config.num_attention_heads // config.num_key_value_heads > 48:
            return "it handles at most 48 query heads for a K/V head"
        return None

    def __call__(self, batch: PackedBatch, cache: PagedKVCache) -> torch.Tensor:
        """Logits [S, vocab_size] in the model's dtype, see :class:`~engine.model.packed_batch.Forward`."""
        logits = torch.empty(batch.sample_rows.shape[0], self._model.vocabulary, dtype=self.dtype)
        self._run(batch, cache, logits=logits.data_ptr())
        return logits

    def greedy(self, batch: PackedBatch, cache: PagedKVCache) -> torch.Tensor:
        """The most likely token of each sampled row, int64 [S], without writing the logits down: what argmax over the result of a
        plain call gives, the first of equal ones."""
        tokens = torch.zeros(batch.sample_rows.shape[0], dtype=torch.int64)
        self._run(batch, cache, most_likely=tokens.data_ptr())
        return tokens

    def _run(self, batch: PackedBatch, cache: PagedKVCache, logits: int | None = None, most_likely: int | None = None) -> None:
        group, tokens = batch.groups[0], batch.num_tokens
        with self._lock:
            if self._cache is None or self._cache() is not cache:
                self._use(cache)
            self._need_positions(int(batch.position_ids.max()) + 1)
            self._need_workspace(tokens)
            step = _Step(
                tokens=tokens, rows=batch.num_rows, samples=batch.sample_rows.shape[0], table_width=group.block_table.stride(0),
                block_size=cache.layout.block_size, input_ids=batch.input_ids.data_ptr(), position_ids=batch.position_ids.data_ptr(),
                slot_mapping=group.slot_mapping.data_ptr(), sample_rows=batch.sample_rows.data_ptr(),
                query_starts=batch.query_starts.data_ptr(), block_table=group.block_table.data_ptr(),
                kv_lengths=group.kv_lengths.data_ptr(), workspace=self._workspace.data_ptr(), logits=logits,
                most_likely=most_likely, seconds=self.seconds.data_ptr())
            self._call(ctypes.byref(self._model), self._layers, ctypes.byref(step))

    def _use(self, cache: PagedKVCache) -> None:
        """Point the layers at another room's cache."""
        for layer, (_, place) in cache.place_of_layer.items():
            self._layers[layer].keys = cache.keys[place].data_ptr()
            self._layers[layer].values = cache.values[place].data_ptr()
        self._library.advise_huge_pages(cache.storage.data_ptr(), cache.storage.nbytes)
        self._cache = weakref.ref(cache)

    def _need_positions(self, count: int) -> None:
        """Extend the tables of rotary angles, [positions, head_size] each, made by the model's own module."""
        if count <= self._cosine.shape[0]:
            return
        size = max(1024, 1 << (count - 1).bit_length())
        positions = torch.arange(size)[None]
        like = torch.empty(0, dtype=self.dtype)
        with torch.inference_mode():
            cosine, sine = self._decoder.rotary_emb(like, positions)
        self._cosine, self._sine = cosine[0].contiguous(), sine[0].contiguous()
        self._model.cosine, self._model.sine = self._cosine.data_ptr(), self._sine.data_ptr()

    def _need_workspace(self, tokens: int) -> None:
        """hidden and normed, q k v, attention output, activations: for each token, in the model's dtype."""
        m = self._model
        entries = 2 * m.hidden + (2 * m.query_heads + 2 * m.kv_heads) * m.head_size + m.intermediate
        size = tokens * entries * self.dtype.itemsize
        if self._workspace.numel() < size:
            self._workspace = torch.empty(size, dtype=torch.uint8)

    @torch.inference_mode()
    def _pack(self, model: Any) -> None:
        """Pack all matrices into one allocation of huge pages: reading weights is what small batches wait for."""
        m, decoder = self._model, model.model
        sizes = [self._packed_size(n, k) for n, k in (
            ((m.query_heads + 2 * m.kv_heads) * m.head_size, m.hidden), (m.hidden, m.query_heads * m.head_size),
            (m.intermediate, m.hidden), (m.intermediate, m.hidden), (m.hidden, m.intermediate))]
        total = sum(sizes) * m.num_layers + self._packed_size(m.vocabulary, m.hidden)
        self._packed = torch.empty(total, dtype=self.dtype)
        self._library.advise_huge_pages(self._packed.data_ptr(), total * self.dtype.itemsize)
        used = 0

        def place(*weights: torch.Tensor) -> int:
            """Pack matrices of one shape so that their panels alternate; returns the address."""
            nonlocal used
            panel = getattr(self._library, f"packed_panel_{self._suffix}")(weights[0].shape[1])
            address = self._packed.data_ptr() + used * self.dtype.itemsize
            for index, weight in enumerate(weights):
                dense = weight.contiguous()
                getattr(self._library, f"pack_{self._suffix}")(
                    dense.data_ptr(), *weight.shape, address + index * panel * self.dtype.itemsize, len(weights) * panel)
                used += self._packed_size(*weight.shape)
            return address

        def keep(vector: torch.Tensor | None) -> int | None:
            if vector is None:
                return None
            self._kept.append(vector.contiguous())
            return self._kept[-1].data_ptr()

        for native, layer in zip(self._layers, decoder.layers, strict=True):
            attention, mlp = layer.self_attn, layer.mlp
            projections = (attention.q_proj, attention.k_proj, attention.v_proj)
            native.qkv = place(torch.cat([projection.weight for projection in projections]))
            if projections[0].bias is not None:
                native.qkv_bias = keep(torch.cat([projection.bias for projection in projections]))
            native.output = place(attention.o_proj.weight)
            native.gate_up = place(mlp.gate_proj.weight, mlp.up_proj.weight)
            native.down = place(mlp.down_proj.weight)
            native.input_norm, native.mlp_norm = keep(layer.input_layernorm.weight), keep(layer.post_attention_layernorm.weight)
            native.query_norm = keep(attention.q_norm.weight if hasattr(attention, "q_norm") else None)
            native.key_norm = keep(attention.k_norm.weight if hasattr(attention, "k_norm") else None)
        m.head = place(model.lm_head.weight)

    def _packed_size(self, n: int, k: int) -> int:
        width = self._library.panel_width()
        return -(-n // width) * getattr(self._library, f"packed_panel_{self._suffix}")(k)
