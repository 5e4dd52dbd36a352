"""Callbacks that outlast the membership, and callbacks that raise, by both protocols."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator

import pytest

from kohort import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
from kohort.errors import RebalanceListenerError
from tests.interop.brokers import Broker
from tests.interop.reported_group import OPTIONS, PARTITIONS, SESSION_S, ReportedGroup
from tests.interop.waiting import wait_until

pytestmark = pytest.mark.real_kafka
Unique = Callable[[str], str]


@pytest.fixture(params=["classic", "consumer"])
def group(
    quick_apache: Broker, unique: Unique, request: pytest.FixtureRequest
) -> Iterator[ReportedGroup]:
    """Group without members yet."""
    topic = quick_apache.create_topic(unique("callbacks"), PARTITIONS)
    with ReportedGroup(quick_apache, topic, unique("callbacks"), request.param) as group:
        yield group


@pytest.mark.long  # a session has to end
def test_member_rejoins_when_fenced_during_its_callback(group: ReportedGroup) -> None:
    slow = group.join(revoking_s=SESSION_S / 2)
    group.settle()
    other = group.join()
    wait_until(lambda: slow.reported("revoking"))
    slow.signal(signal.SIGSTOP)
    group.present.remove(slow)
    group.settle(time.monotonic() - SESSION_S)
    reads, continued = len(slow.reads), time.monotonic()
    slow.signal(signal.SIGCONT)
    group.present.append(slow)
    wait_until(lambda: slow.owned and slow.settled_at > continued)
    group.settle()
    twice = group.finish()
    last = {place for polled in slow.reads[max(0, reads - 1) : reads + 1] for place in polled}
    print(f"{group.protocol}: {len(twice)} records read twice, {len(last)} uncommitted")
    assert twice.keys() <= last
    assert other.reported("refused") == []


class Raising(ConsumerRebalanceListener):
    """Listener that raises whenever it is called."""

    def on_partitions_assigned(self, assigned: frozenset[TopicPartition]) -> None:
        raise RuntimeError("assigned")

    def on_partitions_revoked(self, revoked: frozenset[TopicPartition]) -> None:
        raise RuntimeError("revoked")


def test_group_settles_when_a_listener_raises(group: ReportedGroup) -> None:
    protocol = {"group_protocol": group.protocol, **OPTIONS[group.protocol]}
    raised: list[str] = []
    places: list[tuple[int, int]] = []
    with KafkaConsumer(
        bootstrap_servers=group.broker.bootstrap_servers,
        group_id=group.group,
        auto_offset_reset="earliest",
        **protocol,
    ) as raising:
        raising.subscribe([group.topic], listener=Raising())

        def poll() -> None:
            try:
                records = raising.poll(timeout_ms=50)
            except RebalanceListenerError as error:
                raised.append(str(error.__cause__))
            else:
                places.extend((r.partition, r.offset) for some in records.values() for r in some)

        wait_until(lambda: len(raising.assignment()) == PARTITIONS, poll)
        other = group.join()
        wait_until(
            lambda: len(raising.assignment()) == len(other.owned) == PARTITIONS // 2,
            poll,
            deadline_s=60.0,
        )
        with pytest.raises(RebalanceListenerError):
            raising.close()
    group.settle()
    group.feed.stop()
    written = set(group.feed.written)
    wait_until(lambda: written <= {*places, *(place for polled in other.reads for place in polled)})
    other.leave()
    assert {"assigned", "revoked"} <= set(raised)
