"""Fixtures that all tests share: the two event loops, and checks of what the machine can run."""

from __future__ import annotations

import pytest

from kohort.consumer.driver._driver import log_decoders
from kohort.testing import Cluster

pytest_plugins = ["tests.support.plugin"]

# A busy machine may stop for seconds. These are the default timeouts.
Cluster.wait_until.__defaults__ = Cluster.wait_until_async.__defaults__ = (90.0,)


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Event loop of tests marked ``anyio``: each runs on both."""
    return str(request.param)


@pytest.fixture(scope="session", autouse=True)
def logged_decoders() -> None:
    """Log the line that is logged once per process, so that no test depends on the order."""
    log_decoders()
