"""Subscriptions and rebalance listeners behave as kafka-python's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from tests.compat.kafka_python.conftest import MakeConsumer
from tests.compat.kafka_python.kit import poll_until_assigned
from tests.interop.brokers import Broker


def test_subscription_is_none_or_a_copy(compat: Any) -> None:
    with compat.KafkaConsumer(api_version=(4, 0)) as consumer:
        assert consumer.subscription() is None
        consumer.subscribe(("a", "b"))
        consumer.subscription().clear()
        assert consumer.subscription() == {"a", "b"}
        consumer.unsubscribe()
        assert consumer.subscription() is None
        consumer.subscribe(pattern="^c")
        assert consumer.subscription() == set()


def test_topics_pattern_and_assignment_exclude_each_other(compat: Any) -> None:
    error = compat.errors.IllegalStateError
    with compat.KafkaConsumer(api_version=(4, 0)) as consumer:
        with pytest.raises(error):
            consumer.subscribe(["a"], pattern="a")
        consumer.subscribe(["a"])
        with pytest.raises(error):
            consumer.subscribe(pattern="a")
        with pytest.raises(error):
            consumer.assign([compat.TopicPartition("a", 0)])
        consumer.assign([])
        consumer.assign([compat.TopicPartition("a", 0)])
        assert consumer._client.cluster._topics == {"a"}
        with pytest.raises(error):
            consumer.subscribe(["a"])


def test_subscribe_raises_for_wrong_arguments(compat: Any) -> None:
    with compat.KafkaConsumer(api_version=(4, 0)) as consumer:
        with pytest.raises(ValueError, match="Must provide topics or pattern"):
            consumer.subscribe()
        for topics in ("a", {"a"}):
            with pytest.raises(TypeError, match="Topics must be a list"):
                consumer.subscribe(topics)
        with pytest.raises(ValueError, match="topic name"):
            consumer.subscribe(["a/b"])
        with pytest.raises(TypeError, match="listener must be"):
            consumer.subscribe(["a"], listener=object())
        assert consumer.subscription() is None


def record_calls(base: type[Any], calls: list[tuple[str, Any]]) -> Any:
    """Return a listener of the class that records its calls, if plain."""

    class Recorder(base):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
            calls.append(("revoked", revoked))

        def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
            calls.append(("assigned", assigned))

    return Recorder()


def test_listener_hears_of_an_empty_revocation_first(
    compat: Any, topic: str, group: str, make: MakeConsumer
) -> None:
    calls: list[tuple[str, Any]] = []
    consumer = make(group_id=group)
    consumer.subscribe([topic], listener=record_calls(compat.ConsumerRebalanceListener, calls))
    poll_until_assigned(consumer)
    everything = {compat.TopicPartition(topic, 0), compat.TopicPartition(topic, 1)}
    assert calls == [("revoked", set()), ("assigned", everything)]
    consumer.close()
    assert calls[2:] == [("revoked", everything)]


def test_unsubscribe_does_not_call_the_listener(
    compat: Any, topic: str, group: str, make: MakeConsumer
) -> None:
    calls: list[tuple[str, Any]] = []
    consumer = make(group_id=group)
    consumer.subscribe([topic], listener=record_calls(compat.ConsumerRebalanceListener, calls))
    poll_until_assigned(consumer)
    consumer.unsubscribe()
    assert consumer.assignment() == set()
    assert [name for name, _ in calls] == ["revoked", "assigned"]


def test_coroutines_of_an_async_listener_are_awaited(
    compat: Any, topic: str, group: str, make: MakeConsumer
) -> None:
    calls: list[str] = []

    class Listener(compat.AsyncConsumerRebalanceListener):  # type: ignore[misc]
        async def on_partitions_revoked(self, revoked: Any) -> None:
            calls.append("revoked")

        async def on_partitions_assigned(self, assigned: Any) -> None:
            calls.append("assigned")

    consumer = make(group_id=group)
    consumer.subscribe([topic], listener=Listener())
    poll_until_assigned(consumer)
    assert calls == ["revoked", "assigned"]


def test_listener_error_is_raised_by_poll_with_its_cause(
    compat: Any, topic: str, group: str, make: MakeConsumer
) -> None:
    class Listener(compat.ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Any) -> None: ...

        def on_partitions_assigned(self, assigned: Any) -> None:
            raise LookupError("no store")

    consumer = make(group_id=group)
    consumer.subscribe([topic], listener=Listener())
    with pytest.raises(compat.errors.KafkaError) as raised:
        while True:
            consumer.poll(timeout_ms=100)
    assert isinstance(raised.value.__cause__, LookupError)
    assert len(consumer.assignment()) == 2


def test_names_of_topics_leave_out_internal_ones(
    broker: Broker, topic: str, group: str, make: MakeConsumer
) -> None:
    consumer = make(topic, group_id=group)
    poll_until_assigned(consumer)
    assert topic in consumer.topics()
    assert "__consumer_offsets" not in consumer.topics()
    assert consumer.partitions_for_topic(topic) == {0, 1}
    assert consumer.partitions_for_topic("no-such-topic") == set()


def test_private_attributes_show_the_membership(
    compat: Any, topic: str, group: str, make: MakeConsumer
) -> None:
    consumer = make(topic, group_id=group)
    assert consumer._closed is False
    assert consumer._coordinator.member_id == ""
    assert consumer._coordinator.generation_if_stable() is None
    poll_until_assigned(consumer)
    member = consumer.group_metadata()
    assert type(member) is compat.ConsumerGroupMetadata
    assert consumer._coordinator.state is compat.structs.MemberState.STABLE
    assert consumer._coordinator.member_id == member.member_id != ""
    assert consumer._coordinator.generation_if_stable()[:2] == (1, member.member_id)
    heartbeat = consumer._coordinator.heartbeat
    before = heartbeat.last_poll
    while heartbeat.last_receive < before:
        consumer.poll(timeout_ms=50)
    consumer.poll()
    assert heartbeat.last_poll > before
    assert consumer._client.in_flight_request_count() == 0
    consumer.close()
    assert consumer._closed is True
