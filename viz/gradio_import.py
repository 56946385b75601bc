"""Import Gradio in half the time, and without it writing into site-packages.

At every import Gradio parses the source of each of its components and brings the ``.pyi`` stub beside it up to date, for
editors. A served page has no use for stubs, and on two cores that parsing is the longest single part of getting the page up.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

_MODULE, _STUB_WRITER = "gradio.component_meta", "create_or_modify_pyi"


class _WithoutStubs(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the one module as usual, and exchanges its stub writer right after it has run, before any component is defined."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        if name != _MODULE:
            return None
        sys.meta_path.remove(self)          # once; and the search below must not come back here
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return None
        self.loader, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec: Any) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.loader.exec_module(module)
        # Gone from a later Gradio, there is nothing to save either.
        if hasattr(module, _STUB_WRITER):
            setattr(module, _STUB_WRITER, lambda *arguments: None)


def import_gradio() -> ModuleType:
    """The ``gradio`` package; the first import in a process is the quick one."""
    if _MODULE not in sys.modules:
        sys.meta_path.insert(0, _WithoutStubs())
    return importlib.import_module("gradio")
