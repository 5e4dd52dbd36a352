"""The pytest plugin: a Kafka cluster as a fixture.

A package of its own, because pytest loads it in every run, and it must cost nothing there: kohort
is imported when the fixture is first used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from kohort.testing import Cluster

MARKER = "kafka_cluster"


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known, also to ``--strict-markers``."""
    config.addinivalue_line(
        "markers",
        f"{MARKER}(brokers=1, topics={{}}, ...): the cluster of the fixture kafka_cluster, "
        "with the arguments of kohort.testing.Cluster",
    )


@pytest.fixture
def kafka_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A Kafka cluster for one test: :class:`kohort.testing.Cluster`, as its markers say."""
    from kohort.testing import Cluster

    options: dict[str, Any] = {}
    for marker in request.node.iter_markers(MARKER):
        if marker.args:
            raise pytest.UsageError(f"@pytest.mark.{MARKER} takes names only: topics={{...}}")
        # The nearest one comes first and wins.
        options = {**marker.kwargs, **options}
    with Cluster(**options) as cluster:
        yield cluster
