"""Tests of what only a CUDA device can show. Elsewhere each is skipped; on a GPU box: ``python -m pytest tests/gpu``.

They need torch, transformers and pytest, and no model from anywhere.
"""

from __future__ import annotations

import pytest
import torch


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "gpu" in item.path.parts:
            item.add_marker(pytest.mark.gpu)
            if not torch.cuda.is_available():
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture
def device() -> torch.device:
    return torch.device("cuda", torch.cuda.current_device())
