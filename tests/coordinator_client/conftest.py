"""Event loops of the tests of groups: asyncio and trio on clocks that jump over waits."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.virtual import virtual_backend


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return virtual_backend(request.param)
