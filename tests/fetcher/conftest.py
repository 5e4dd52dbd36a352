"""Event loops of the fetcher's tests: asyncio, and trio with a clock that jumps over waits."""

from __future__ import annotations

from typing import Any

import pytest
import trio.testing


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    if request.param == "trio":
        return "trio", {"clock": trio.testing.MockClock(autojump_threshold=0)}
    return "asyncio"
