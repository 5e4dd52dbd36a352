"""The listener's contract on KafkaConsumer."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from kohort import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
from kohort.errors import RebalanceListenerError, ReentrantCallError
from kohort.testing import Cluster
from tests.consumer.conftest import CLASSIC, MakeConsumer
from tests.consumer.kit import (
    PATIENCE,
    Partitions,
    Recorder,
    evict,
    poll_error,
    poll_until,
    read,
    values,
)


@pytest.fixture
def both(topic: str) -> Partitions:
    return frozenset({TopicPartition(topic, 0), TopicPartition(topic, 1)})


def join(
    make: MakeConsumer, topic: str, group: str, listener: Recorder, **more: Any
) -> KafkaConsumer:
    """Return a member that has its first assignment."""
    consumer = make(group_id=group, **more)
    consumer.subscribe([topic], listener=listener)
    assert poll_until(consumer, lambda: listener.count("assigned")) == []
    return consumer


def test_rebalance_revokes_all_before_join_and_assigns_the_rest(
    cluster: Cluster, topic: str, group: str, make: MakeConsumer, both: Partitions
) -> None:
    generations: list[int] = []
    first_listener = Recorder(revoked=lambda _: generations.append(cluster.group(group).generation))
    first = join(make, topic, group, first_listener, **CLASSIC)
    second_listener, second = Recorder(), make(group_id=group, **CLASSIC)
    second.subscribe([topic], listener=second_listener)

    def settled() -> bool:
        second.poll(20)
        return bool(second.assignment()) and first_listener.count("assigned") == 2

    poll_until(first, settled)
    assert first_listener.calls[:2] == [("assigned", both), ("revoked", both)]
    assert generations == [1]  # before the member joined again
    assert first_listener.calls[2] == ("assigned", frozenset(first.assignment()))
    assert first.assignment() | second.assignment() == both
    assert second_listener.calls == [("assigned", frozenset(second.assignment()))]


def test_assigned_is_called_even_with_nothing_and_revoked_is_not(
    topic: str, group: str, make: MakeConsumer
) -> None:
    members = [make(group_id=group) for _ in range(3)]
    listeners = [Recorder() for _ in members]
    for member, listener in zip(members, listeners, strict=True):
        member.subscribe([topic], listener=listener)

    def settled() -> bool:
        for member in members[1:]:
            member.poll(20)
        # One may have both for a time.
        return sorted(len(member.assignment()) for member in members) == [0, 1, 1] and all(
            listener.names[-1:] == ["assigned"] for listener in listeners
        )

    poll_until(members[0], lambda: settled() and members[0].group_metadata().state == "<stable>")
    (idle,) = [
        listener
        for member, listener in zip(members, listeners, strict=True)
        if not member.assignment()
    ]
    assert idle.calls[-1] == ("assigned", frozenset())
    assert all(partitions for listener in listeners for n, partitions in listener.calls[1:-1])
    assert all(p for listener in listeners for name, p in listener.calls if name == "revoked")


@pytest.mark.parametrize("reset", ["earliest", "by_duration:PT1H"])
def test_a_position_that_was_never_looked_up_is_found_in_revoked(
    topic: str, group: str, make: MakeConsumer, reset: str
) -> None:
    """The callback runs before the first look-up has ended. It must not wait for a delayed one."""
    tp = TopicPartition(topic, 0)
    positions: list[Any] = []

    def revoked(partitions: Partitions) -> None:
        consumer._driver.engine.subscription.request_reset(tp)
        positions.append(consumer.position(tp))

    consumer = join(make, topic, group, Recorder(revoked=revoked), auto_offset_reset=reset)
    consumer.unsubscribe()
    assert positions == [0]


def test_members_that_were_thrown_out_hear_lost(
    cluster: Cluster, topic: str, group: str, make: MakeConsumer, both: Partitions
) -> None:
    commits: list[type[Exception]] = []

    def lost(partitions: Partitions) -> None:
        try:
            consumer.commit({TopicPartition(topic, 0): 1})
        except Exception as error:
            commits.append(type(error))

    listener = Recorder(lost=lost)
    consumer = join(make, topic, group, listener)
    evict(cluster, group)
    poll_until(consumer, lambda: listener.count("assigned") == 2)
    assert listener.calls == [("assigned", both), ("lost", both), ("assigned", both)]
    assert [each.__name__ for each in commits] == ["CommitFailedError"]


def test_by_default_lost_is_revoked(
    cluster: Cluster, topic: str, group: str, make: MakeConsumer, both: Partitions
) -> None:
    class Old(ConsumerRebalanceListener):
        calls: list[Any] = []

        def on_partitions_revoked(self, revoked: Partitions) -> None:
            self.calls.append(revoked)

    consumer = make(topic, group_id=group)
    consumer.subscribe([topic], listener=Old())
    poll_until(consumer, consumer.assignment)
    evict(cluster, group)
    poll_until(consumer, lambda: Old.calls)
    assert Old.calls == [both]


def test_not_polling_for_too_long_is_a_loss(
    cluster: Cluster, topic: str, group: str, make: MakeConsumer, both: Partitions
) -> None:
    listener = Recorder()
    consumer = join(make, topic, group, listener, max_poll_interval_ms=200)
    cluster.wait_until(lambda: not cluster.group(group).members)
    poll_until(consumer, lambda: listener.count("assigned") == 2)
    assert listener.calls == [("assigned", both), ("lost", both), ("assigned", both)]


def test_iterating_slowly_within_a_batch_is_polling(
    cluster: Cluster, topic: str, group: str, make: MakeConsumer
) -> None:
    listener = Recorder()
    consumer = join(make, topic, group, listener, max_poll_interval_ms=4000)
    cluster.produce(topic, [b"x"] * 40, partition=0)
    started = threading.Event()
    for number, _ in zip(range(40), consumer, strict=False):
        started.wait(0.11)  # 4.4 s in total, and each step within the interval
        assert listener.count("lost") == 0, number


def test_close_and_unsubscribe_revoke(
    cluster: Cluster, topic: str, group: str, make: MakeConsumer, both: Partitions
) -> None:
    listener = Recorder()
    consumer = join(make, topic, group, listener)
    consumer.unsubscribe()
    assert listener.calls[1:] == [("revoked", both)]
    assert consumer.assignment() == set()
    assert consumer.subscription() == set()
    assert not cluster.group(group).members
    consumer.subscribe([topic], listener=listener)
    poll_until(consumer, lambda: listener.count("assigned") == 2)
    consumer.close()
    assert listener.names == ["assigned", "revoked", "assigned", "revoked"]
    assert listener.threads == {threading.current_thread()}
    assert not cluster.group(group).members


def test_closing_with_a_lost_generation_says_lost(
    cluster: Cluster, topic: str, group: str, make: MakeConsumer, both: Partitions
) -> None:
    listener = Recorder()
    consumer = join(make, topic, group, listener)
    evict(cluster, group)
    cluster.wait_until(lambda: consumer.group_metadata().generation_id < 0)
    consumer.close()
    assert listener.calls[1:] == [("lost", both)]


def test_heartbeats_go_on_while_a_listener_blocks(
    cluster: Cluster, topic: str, group: str, make: MakeConsumer
) -> None:
    def assigned(partitions: Partitions) -> None:
        before = beats()
        cluster.wait_until(lambda: beats() > before + 64)  # 3.2 s, more than the session

    def beats() -> int:
        return sum(request.api == "Heartbeat" for request in cluster.requests)

    listener = Recorder(assigned=assigned)
    consumer = join(make, topic, group, listener, **CLASSIC, session_timeout_ms=3000)
    assert cluster.group(group).generation == 1
    consumer.poll()
    assert listener.names == ["assigned"]


def test_an_exception_stops_nothing_and_comes_out_of_poll_once(
    cluster: Cluster, topic: str, group: str, make: MakeConsumer, both: Partitions
) -> None:
    """aiokafka 0.14 drops the exception."""
    cluster.produce(topic, [b"a"], partition=0)
    problem = ZeroDivisionError("in the listener")

    def fail(partitions: Partitions) -> None:
        raise problem

    listener = Recorder(assigned=fail)
    consumer = make(group_id=group)
    consumer.subscribe([topic], listener=listener)
    error = poll_error(consumer, RebalanceListenerError)
    assert (error.callback, error.partitions) == ("on_partitions_assigned", both)
    assert error.__cause__ is problem
    assert values(read(consumer, 1)) == [b"a"]
    listener.hooks = {"revoked": fail, "assigned": ReentrantHook(consumer)}
    evict(cluster, group)
    listener.hooks["lost"] = fail
    with pytest.raises(RebalanceListenerError) as raised:
        consumer.poll(timeout_ms=1000 * PATIENCE)  # until the rebalance has ended
    assert raised.value.callback == "on_partitions_lost"  # the first, the other is logged
    assert consumer.assignment() == both
    listener.hooks = {"revoked": fail}
    with pytest.raises(RebalanceListenerError, match="ZeroDivisionError: in the listener"):
        consumer.close()
    assert not cluster.group(group).members


class ReentrantHook:
    """A callback that makes the calls that a listener must not make."""

    def __init__(self, consumer: KafkaConsumer) -> None:
        self._consumer = consumer

    def __call__(self, partitions: Partitions) -> None:
        for call in (self._consumer.poll, self._consumer.unsubscribe, self._consumer.__next__):
            with pytest.raises(ReentrantCallError, match="inside a listener"):
                call()
        raise ValueError("raised after the first")


def test_coroutine_listeners_are_refused(topic: str, make: MakeConsumer) -> None:
    class Coroutine(ConsumerRebalanceListener):
        async def on_partitions_revoked(self, revoked: Partitions) -> None:
            pass

    with pytest.raises(TypeError, match="use AsyncKafkaConsumer"):
        make().subscribe([topic], listener=Coroutine())  # type: ignore[call-overload]


@pytest.mark.parametrize("raises", [False, True])
def test_close_in_a_listener_is_done_when_poll_returns(
    cluster: Cluster, topic: str, group: str, make: MakeConsumer, raises: bool
) -> None:
    cluster.produce(topic, [b"a"], partition=0)

    def close(partitions: Partitions) -> None:
        consumer.close()
        assert consumer.committed(TopicPartition(topic, 0)) is None  # the consumer works
        if raises:
            raise ZeroDivisionError

    listener = Recorder(assigned=close)
    consumer = make(group_id=group)
    consumer.subscribe([topic], listener=listener)
    if raises:
        poll_error(consumer, RebalanceListenerError)
    else:
        assert poll_until(consumer, lambda: consumer._driver.life.is_closed) == []
    assert consumer._driver.life.is_closed
    assert listener.names == ["assigned", "revoked"]
    assert cluster.committed(group) in ({}, {TopicPartition(topic, n): ANY for n in (0, 1)})
    assert all(at.offset == 0 for at in cluster.committed(group).values())


class _Any:
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


ANY: Any = _Any()
