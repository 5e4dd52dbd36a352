"""Fixtures of the consumer's tests: a cluster for each module, topics and groups for each test.

The folders ``api``, ``driver``, ``engine`` and ``diagnosis`` test the packages of these names. The
folders ``group``, ``security`` and ``errors`` test whole consumers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kohort import KafkaConsumer
from kohort.testing import Cluster
from tests.consumer.both_apis import CLUSTER
from tests.consumer.virtual import MemoryConsumer

MakeConsumer = Callable[..., KafkaConsumer]

_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """One broker that allows short sessions and does not create topics automatically."""
    with Cluster(**CLUSTER) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster: Cluster) -> str:
    """A new topic of two partitions."""
    name = f"topic-{next(_NUMBERS)}"
    cluster.create_topic(name, 2)
    return name


CLASSIC: dict[str, Any] = {"group_protocol": "classic", "heartbeat_interval_ms": 50}
"""Options of a classic member that notices rebalances soon."""


@pytest.fixture
def group() -> str:
    """The name of a new group."""
    return f"group-{next(_NUMBERS)}"


@pytest.fixture
def group_protocol() -> str | None:
    """The option of the same name, or None for the default. Suites override it with parameters."""
    return None


@pytest.fixture(params=["classic", "consumer"])
def each_protocol(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a test by both group protocols. Return the one of each ``MemoryConsumer``."""
    monkeypatch.setattr(MemoryConsumer, "default_protocol", request.param)
    return str(request.param)


@pytest.fixture
def options(cluster: Cluster, group_protocol: str | None) -> dict[str, Any]:
    """Options of consumers that read from the beginning and use short intervals."""
    options = {
        "bootstrap_servers": cluster.bootstrap_servers,
        "auto_offset_reset": "earliest",
        "fetch_max_wait_ms": 100,
        "retry_backoff_ms": 10,
        "retry_backoff_max_ms": 50,
        "reconnect_backoff_ms": 10,
        "reconnect_backoff_max_ms": 50,
    }
    if group_protocol == "classic":
        options |= CLASSIC
    elif group_protocol is not None:
        options["group_protocol"] = group_protocol
    return options


@pytest.fixture
def make(options: dict[str, Any]) -> Iterator[MakeConsumer]:
    """A function that creates consumers with these options. The fixture closes them."""
    made: list[KafkaConsumer] = []

    def make_consumer(*topics: str, **more: Any) -> KafkaConsumer:
        made.append(KafkaConsumer(*topics, **{**options, **more}))
        return made[-1]

    yield make_consumer
    for consumer in made:
        consumer.close()
    threads = [consumer._driver.thread for consumer in made]
    assert not [thread for thread in threads if thread and thread.is_running]
