from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.server.page import Page, running


@pytest.fixture(scope="session")
def page() -> Iterator[Page]:
    """One page process for the tests that leave it as they found it."""
    with running() as started:
        yield started
