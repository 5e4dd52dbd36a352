"""Fixtures that all tests share: the two event loops, and checks of what the machine can run."""

from __future__ import annotations

import pytest

pytest_plugins = ["tests.support.plugin"]


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Event loop of tests marked ``anyio``: each runs on both."""
    return str(request.param)
