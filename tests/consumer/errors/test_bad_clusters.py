"""Wrong addresses and wrong clusters: a typed error that says what to do, and no spin."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from kohort import AsyncKafkaConsumer, KafkaConsumer, TopicPartition
from kohort.errors import (
    InvalidOptionError,
    KafkaTimeoutError,
    NoBrokersAvailable,
    UnknownOptionError,
    UnknownTopicOrPartitionError,
)
from kohort.testing import Cluster
from tests.consumer import servers
from tests.consumer.conftest import MakeConsumer
from tests.consumer.kit import apoll_quietly, aread, poll_error, poll_quietly, read, values
from tests.support.awaited import EACH_API
from tests.support.net import free_ports


@pytest.fixture
def options(cluster: Cluster) -> dict[str, Any]:
    """Default options. They must not cost CPU."""
    return {"bootstrap_servers": cluster.bootstrap_servers, "auto_offset_reset": "earliest"}


NO_BROKERS: dict[str, tuple[bytes | None, str]] = {
    "garbage": (b"\x00garbage, and more of it", "bytes"),
    "http": (servers.HTTP, "HTTP"),
    "oversized": (servers.OVERSIZED, "1073741824"),
    "negative": (servers.NEGATIVE, "-1"),
    "short": (servers.SHORT, ""),
    "black hole": (None, "did not respond"),
    "hangs up": (b"", ""),
}


@pytest.mark.cases(2)  # each waits for a timeout
@pytest.mark.parametrize("kind", NO_BROKERS)
def test_what_is_no_broker_is_told_apart(kind: str, make: MakeConsumer) -> None:
    says, reason = NO_BROKERS[kind]
    with servers.server(says) as address:
        consumer = make(
            "orders",
            bootstrap_servers=address,
            bootstrap_timeout_ms=600,
            # On a busy machine a server that responds must not count as silent.
            socket_connection_setup_timeout_ms=150 if says is None else 10_000,
            reconnect_backoff_ms=50,
            reconnect_backoff_max_ms=1_000,
        )
        error = poll_error(consumer, NoBrokersAvailable)
        assert address in str(error)
        assert reason in str(error)
        assert "Check bootstrap_servers" in str(error)
        errors = poll_quietly(consumer, seconds=2.0)
        assert {type(each) for each in errors} <= {NoBrokersAvailable}
        assert poll_error(consumer, NoBrokersAvailable)
        assert len(errors) < 5
        consumer.close()


def test_unreachable_servers_are_logged_once_and_raised_by_poll(
    make: MakeConsumer, caplog: pytest.LogCaptureFixture
) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    consumer = make("orders", bootstrap_servers=address, bootstrap_timeout_ms=1500)
    with caplog.at_level(logging.WARNING):
        begun = time.monotonic()
        consumer.poll()
        while not caplog.records:
            consumer.poll(20)  # it would raise later
        error = poll_error(consumer, NoBrokersAvailable)
        assert time.monotonic() - begun >= 1.5
        poll_error(consumer, NoBrokersAvailable)
    assert address in str(error)
    assert error.retriable
    (warning,) = caplog.records
    assert address in warning.getMessage()
    with pytest.raises(NoBrokersAvailable):
        consumer.bootstrap()
    with pytest.raises(NoBrokersAvailable):
        consumer.topics()


@pytest.mark.parametrize("method", ["start", "bootstrap"])
def test_timeout_of_zero_waits_for_all_silent_servers(method: str, make: MakeConsumer) -> None:
    """The call must outlast the servers, which together take longer than one request."""
    with ExitStack() as stack:
        addresses = [stack.enter_context(servers.server(None)) for _ in range(4)]
        consumer = make(
            "orders",
            bootstrap_servers=addresses,
            bootstrap_timeout_ms=0,
            request_timeout_ms=800,
            socket_connection_setup_timeout_ms=800,
        )
        with pytest.raises(NoBrokersAvailable) as caught:
            getattr(consumer, method)()
        assert all(address in str(caught.value) for address in addresses)
        consumer.close()


def test_a_cluster_that_comes_up_late_is_used(make: MakeConsumer) -> None:
    (port,) = free_ports(1)
    consumer = make(
        "orders",
        bootstrap_servers=f"127.0.0.1:{port}",
        bootstrap_timeout_ms=200,
        group_id="late",
    )
    poll_error(consumer, NoBrokersAvailable)
    with Cluster(topics={"orders": 1}, ports=[port]) as cluster:
        cluster.produce("orders", [b"at last"])
        records: list[Any] = []
        while not records:
            try:
                records = read(consumer, 1)
            except NoBrokersAvailable:
                pass  # the error reported above, again
        assert values(records) == [b"at last"]
        consumer.close()


@pytest.mark.anyio
@pytest.mark.parametrize("says", [None, b"garbage garbage"])
async def test_start_raises_and_leaves_nothing_behind(says: bytes | None) -> None:
    with servers.server(says) as address:
        consumer = AsyncKafkaConsumer(
            "orders",
            bootstrap_servers=address,
            bootstrap_timeout_ms=200,
            socket_connection_setup_timeout_ms=100,
        )
        with pytest.raises(NoBrokersAvailable, match=address):
            async with consumer:
                raise AssertionError("it did not start")
        assert consumer._driver.background_task is None


@pytest.mark.anyio
@EACH_API
async def test_an_unknown_topic_is_reported_once_and_awaited(
    cluster: Cluster, topic: str, group: str, options: dict[str, Any], consumer_class: Any
) -> None:
    missing = f"{topic}-missing"
    cluster.produce(topic, [b"there"])
    options |= {"group_id": group, "allow_auto_create_topics": False}
    async with consumer_class(topic, missing, **options) as consumer:
        records = []
        with pytest.raises(UnknownTopicOrPartitionError, match=f"'{missing}' does not exist"):
            while True:
                records += [r for part in (await consumer.poll(200)).values() for r in part]
        records += await aread(consumer, 1 - len(records))
        assert values(records) == [b"there"]
        assert await apoll_quietly(consumer) == []
        cluster.create_topic(missing)
        cluster.produce(missing, [b"here now"])
        assert values(await aread(consumer, 1)) == [b"here now"]


def test_missing_assigned_partition_is_raised_once_and_awaited(
    cluster: Cluster, topic: str, make: MakeConsumer
) -> None:
    there, missing = TopicPartition(topic, 0), TopicPartition(topic, 2)
    consumer = make(metadata_max_age_ms=200)
    consumer.assign([there, missing])
    error = poll_error(consumer, UnknownTopicOrPartitionError)
    assert f"{topic}-2 is assigned and does not exist: the topic has 2 partitions" in str(error)
    assert poll_quietly(consumer) == []
    cluster.produce(topic, [b"a"], partition=0)
    assert values(read(consumer, 1)) == [b"a"]
    cluster.add_partitions(topic, 3)
    cluster.produce(topic, [b"b"], partition=2)
    assert values(read(consumer, 1)) == [b"b"]


@pytest.mark.parametrize(
    "call",
    [
        lambda consumer, tp: consumer.end_offsets([tp]),
        lambda consumer, tp: consumer.beginning_offsets([tp]),
        lambda consumer, tp: consumer.offsets_for_times({tp: 0}),
        lambda consumer, tp: consumer.committed(tp),
        lambda consumer, tp: consumer.commit({tp: 1}),
        lambda consumer, tp: consumer.topics(),
        lambda consumer, tp: consumer.partitions_for_topic(tp.topic),
        lambda consumer, tp: consumer.bootstrap(),
    ],
)
def test_cluster_query_raises_when_no_server_responds_in_time(
    make: MakeConsumer, call: Callable[[KafkaConsumer, TopicPartition], object]
) -> None:
    server = f"127.0.0.1:{free_ports(1)[0]}"
    consumer = make(
        group_id="g", bootstrap_servers=server, bootstrap_timeout_ms=200, request_timeout_ms=300_000
    )
    consumer.assign([TopicPartition("orders", 0)])
    begun = time.monotonic()
    with pytest.raises(NoBrokersAvailable, match="Check bootstrap_servers"):
        call(consumer, TopicPartition("orders", 0))
    assert time.monotonic() - begun < 90
    consumer.close(timeout_ms=0)


@pytest.mark.parametrize("consumer_class", [KafkaConsumer, AsyncKafkaConsumer])
@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"bootstrap_server": "x"}, UnknownOptionError, "bootstrap_servers"),
        ({"max_poll_records": 0}, InvalidOptionError, "at least 1"),
        ({"max_poll_records": "many"}, InvalidOptionError, "max_poll_records"),
        ({"auto_offset_reset": "newest"}, InvalidOptionError, "latest"),
        ({"group_protocol": "streams"}, InvalidOptionError, "consumer"),
    ],
)
@pytest.mark.filterwarnings("error::ResourceWarning")
def test_wrong_options_are_errors_of_the_constructor(
    consumer_class: Any, options: dict[str, Any], kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        consumer_class("orders", **options)


CALLS: dict[str, Callable[[Any], object]] = {
    "topics": lambda consumer: consumer.topics(timeout_ms=50),
    "topic_ids": lambda consumer: consumer.topic_ids({"orders"}, timeout_ms=50),
    "partitions_for_topic": lambda consumer: consumer.partitions_for_topic("orders", timeout_ms=50),
    "bootstrap": lambda consumer: consumer.bootstrap(timeout_ms=50),
    "end_offsets": lambda consumer: consumer.end_offsets(
        [TopicPartition("orders", 0)], timeout_ms=50
    ),
}


@pytest.mark.cases
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_timeout_names_why_no_broker_is_reached(
    call: Callable[[Any], object], make: MakeConsumer
) -> None:
    [port] = free_ports(1)
    consumer = make(bootstrap_servers=f"127.0.0.1:{port}")
    until = time.monotonic() + 60
    said = ""
    while "cannot connect to 127.0.0.1" not in said and time.monotonic() < until:
        with pytest.raises(KafkaTimeoutError) as caught:
            call(consumer)
        said = str(caught.value)
    assert f"within 0.05 s: cannot connect to 127.0.0.1:{port}" in said
