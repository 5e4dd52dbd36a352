"""Topic that is deleted and created again, on both clusters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kohort import KafkaConsumer, TopicPartition
from kohort.errors import TopicRecreatedError
from tests.interop.brokers import Broker
from tests.interop.reading import consumer, read, read_on
from tests.interop.waiting import wait_until

pytestmark = pytest.mark.timeout(120)
Unique = Callable[[str], str]


def produce(broker: Broker, topic: str, prefix: str, count: int) -> list[bytes]:
    values = [f"{prefix}{number}".encode() for number in range(count)]
    for value in values:
        broker.write(topic, value)
    return values


def read_and_recreate(broker: Broker, one: KafkaConsumer, topic: str) -> list[bytes]:
    """Recreate a topic while it is paused, and return the values that must be read then."""
    place = TopicPartition(topic, 0)
    produce(broker, topic, "old", 10)
    read(one, 10)
    one.commit()
    one.pause(place)
    broker.delete_topic(topic)
    # The controller responds before the brokers apply it. Until then they accept records.
    wait_until(lambda: topic not in broker.admin.list_topics().topics)
    broker.create_topic(topic)
    expected = produce(broker, topic, "new", 20)
    one.resume(place)
    return expected


@pytest.mark.parametrize("reset", ["earliest", "latest"])
@pytest.mark.parametrize("by_hand", [False, True])
def test_recreated_topic_is_read_from_its_beginning(
    broker: Broker, unique: Unique, reset: str, by_hand: bool
) -> None:
    topic, group = broker.create_topic(unique("recreated")), unique("recreated")
    options: dict[str, Any] = {"auto_offset_reset": reset, "group_id": group}
    with consumer(broker.bootstrap_servers, **options) as one:
        if by_hand:
            one.assign([TopicPartition(topic, 0)])
        else:
            one.subscribe([topic])
        wait_until(lambda: one.positions(), lambda: one.poll(timeout_ms=50))
        expected = read_and_recreate(broker, one, topic)
        assert read_on(one, 20) == expected
        one.commit()
        assert broker.committed(group)[topic, 0] == 20


def test_recreated_topic_raises_until_a_seek_without_a_rule(broker: Broker, unique: Unique) -> None:
    topic, group = broker.create_topic(unique("recreated")), unique("recreated")
    place = TopicPartition(topic, 0)
    with consumer(broker.bootstrap_servers, auto_offset_reset="none", group_id=group) as one:
        one.assign([place])
        one.seek(place, 0)
        old_id = one.topic_ids([topic])[topic]
        expected = read_and_recreate(broker, one, topic)
        for _ in range(2):
            with pytest.raises(TopicRecreatedError) as caught:
                read_on(one, 1)
        assert caught.value.offset == 10
        new_id = one.topic_ids([topic])[topic]
        assert (caught.value.old_topic_id, caught.value.new_topic_id) == (old_id, new_id)
        one.seek(place, 5)
        assert read_on(one, 15) == expected[5:]
