"""A cluster for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kohort.testing import Cluster
from tests.broker.raw import Raw


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(topics={"t": 2}) as running:
        yield running


@pytest.fixture
def raw(cluster: Cluster) -> Iterator[Raw]:
    with Raw(cluster) as connection:
        yield connection
