"""Set-up common to all tests. The OpenMP settings come first: they are read when torch is imported."""

from __future__ import annotations

import os

from engine.model.threads import configure_threads

configure_threads()
# Tests never ask the Hub; those about the Hub start one of their own on loopback.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")

import pytest  # noqa: E402


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The browser tests come last: Playwright's event loop stays in this thread until the session ends, and tests that run
    an event loop of their own could not do so beside it."""
    items.sort(key=lambda item: "e2e" in item.path.parts)


def _load_default(dtype: str):
    from engine.errors import ModelUnavailable
    from engine.model.loading import load_model

    try:
        return load_model(dtype=dtype, device="cpu")
    except ModelUnavailable as error:
        pytest.fail(f"The default model is part of the test set-up (make test installs it): {error}")


@pytest.fixture(scope="session")
def default_model():
    """SmolLM2-135M-Instruct in fp32 on the CPU, a :class:`engine.model.loading.LoadedModel`. Shared: never change its weights."""
    return _load_default("float32")


@pytest.fixture(scope="session")
def default_model_bf16():
    """The same in bf16."""
    return _load_default("bfloat16")
