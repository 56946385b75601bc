"""Compiles the C++ of ``engine/model/native`` on first use and loads it; seconds once, then from the user's cache directory.

The library is built for exactly this processor, so its file name is a hash of the sources, the compiler's version, its flags and
the processor's features: another machine, or a changed source, gets a build of its own.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
from pathlib import Path

import torch  # also loads libgomp.so.1, before the library asks for it

from engine.model.cache_dir import find_entry, make_entry

SOURCES = Path(__file__).parent / "native"
LIBRARY = "kernels.so"
FLAGS = ("-O3", "-march=native", "-std=c++17", "-fopenmp", "-fPIC", "-shared", "-Wno-psabi")
#: the functions for each dtype end in this
SUFFIX = {torch.float32: "float", torch.bfloat16: "bf16"}
COMPILE_TIMEOUT = 180.0     # seconds


class NativeUnavailable(Exception):
    """The native code cannot be used here; the message says why, as the end of a sentence."""


@functools.cache
def load_library() -> ctypes.CDLL:
    """The compiled kernels. Raises :class:`NativeUnavailable` without a working C++ compiler.

    PyTorch is imported first: both then share its OpenMP runtime, whose one pool of threads serves both.
    """
    compiler = find_compiler()
    name = f"native/{_build_key(compiler)}"
    try:
        folder = find_entry(name) or make_entry(name, functools.partial(_compile, compiler))
        return _declare(ctypes.CDLL(str(folder / LIBRARY)))
    except OSError as error:
        raise NativeUnavailable(f"the compiled kernels could not be stored or loaded ({error})") from error


def find_compiler() -> str:
    """``$CXX``, else the first of g++, clang++ and c++ on the path. Raises :class:`NativeUnavailable`."""
    wanted = os.environ.get("CXX")
    for name in [wanted] if wanted else ["g++", "clang++", "c++"]:
        found = shutil.which(name)
        if found:
            return found
    raise NativeUnavailable("no C++ compiler was found (g++ or clang++; or name one in CXX)")


def _build_key(compiler: str) -> str:
    digest = hashlib.sha256()
    for source in sorted(SOURCES.iterdir()):
        if source.suffix in (".h", ".cpp"):
            digest.update(source.name.encode() + source.read_bytes())
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, timeout=20, check=False).stdout
    digest.update(repr((version, FLAGS, platform.machine(), _processor_features())).encode())
    return digest.hexdigest()[:20]


def _processor_features() -> str:
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as lines:
            return next((line for line in lines if line.startswith(("flags", "Features"))), "")
    except OSError:
        return platform.processor()


def _compile(compiler: str, folder: Path) -> None:
    command = [compiler, *FLAGS, *map(str, sorted(SOURCES.glob("*.cpp"))), "-o", str(folder / LIBRARY)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NativeUnavailable(f"the C++ compiler {compiler} could not be run ({error})") from error
    if done.returncode != 0:
        first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip()[:200])
        raise NativeUnavailable(f"the C++ compiler {compiler} refused the kernels: {first}")


def _declare(library: ctypes.CDLL) -> ctypes.CDLL:
    """Argument types of every function that Python calls; pointers are passed as addresses."""
    pointer, whole = ctypes.c_void_p, ctypes.c_int64
    for suffix in ("float", "bf16"):
        getattr(library, f"packed_panel_{suffix}").argtypes = [whole]
        getattr(library, f"packed_panel_{suffix}").restype = whole
        getattr(library, f"pack_{suffix}").argtypes = [pointer, whole, whole, pointer, whole]
        getattr(library, f"decoder_step_{suffix}").argtypes = [pointer, pointer, pointer]
        getattr(library, f"paged_attention_{suffix}").argtypes = [pointer]
    library.advise_huge_pages.argtypes = [pointer, whole]
    return library
