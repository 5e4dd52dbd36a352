"""Messages, positions, offsets and callbacks are those of confluent-kafka."""

from __future__ import annotations

import json
import time
from typing import Any
from unittest.mock import patch

import confluent_kafka
import pytest

import kohort.compat.confluent as package
from kohort.testing import Cluster, ProducerRecord
from tests.compat.confluent.conftest import MakeConsumer
from tests.compat.confluent.kit import LIMIT_S, poll_until, read
from tests.interop.waiting import wait_until


def write(cluster: Cluster, topic: str, *values: bytes, partition: int = 0) -> None:
    """Write values to one partition."""
    cluster.produce(topic, [ProducerRecord(value, partition=partition) for value in values])


def test_poll_returns_one_message_at_a_time(
    client: Any, cluster: Cluster, own_topic: str, make: MakeConsumer
) -> None:
    write(cluster, own_topic, b"a", b"b", b"c")
    consumer = make()
    consumer.assign([client.TopicPartition(own_topic, 0)])
    assert [consumer.poll(LIMIT_S).value() for _ in range(3)] == [b"a", b"b", b"c"]
    assert consumer.poll(0) is None


def test_consume_waits_until_it_has_all_or_the_time_is_over(
    client: Any, cluster: Cluster, own_topic: str, make: MakeConsumer
) -> None:
    write(cluster, own_topic, b"a", b"b")
    consumer = make()
    consumer.assign([client.TopicPartition(own_topic, 0), client.TopicPartition(own_topic, 1)])
    write(cluster, own_topic, b"c", partition=1)  # another batch, so another response
    assert sorted(each.value() for each in read(consumer, 3)) == [b"a", b"b", b"c"]
    began = time.monotonic()
    assert consumer.consume(1, 0.2) == []
    assert time.monotonic() - began >= 0.2
    assert consumer.consume(0, 0.2) == []
    for wrong in (-1, 1_000_001):
        with pytest.raises(ValueError, match="num_messages must be between 0 and 1000000"):
            consumer.consume(wrong)
    with pytest.raises(TypeError):
        consumer.poll("1")


def test_subscription_to_a_missing_topic_creates_none(
    client: Any, cluster: Cluster, make: MakeConsumer
) -> None:
    consumer = make()
    consumer.subscribe(["missing"])
    message = consumer.poll(LIMIT_S)
    assert message.error().code() == client.KafkaError.UNKNOWN_TOPIC_OR_PART
    assert "missing" not in consumer.list_topics().topics
    assert "missing" not in cluster.topics


def test_assign_starts_at_offsets_and_seek_moves_them(
    client: Any, cluster: Cluster, own_topic: str, make: MakeConsumer
) -> None:
    write(cluster, own_topic, b"a", b"b", b"c")
    write(cluster, own_topic, b"x", partition=1)
    consumer = make(auto_offset_reset="latest")
    first = client.TopicPartition(own_topic, 0, 1)
    second = client.TopicPartition(own_topic, 1, client.OFFSET_BEGINNING)
    consumer.assign([first])
    assert [each.value() for each in read(consumer, 2)] == [b"b", b"c"]
    assert [at.offset for at in consumer.position([first, second])] == [3, client.OFFSET_INVALID]
    consumer.incremental_assign([second])
    assert [each.value() for each in read(consumer, 1)] == [b"x"]
    assert set(consumer.assignment()) == {first, second}
    consumer.seek(client.TopicPartition(own_topic, 0, 2))
    assert [each.value() for each in read(consumer, 1)] == [b"c"]
    consumer.incremental_unassign([second])
    assert consumer.assignment() == [first]
    consumer.unassign()
    assert consumer.assignment() == []
    with pytest.raises(client.KafkaException) as raised:
        consumer.seek(client.TopicPartition(own_topic, 0, 2))
    assert raised.value.args[0].code() == client.KafkaError._STATE


def test_paused_partitions_return_nothing_and_lose_nothing(
    client: Any, cluster: Cluster, own_topic: str, make: MakeConsumer
) -> None:
    write(cluster, own_topic, *(b"%d" % number for number in range(20)))
    consumer = make(enable_partition_eof=True)
    tp = client.TopicPartition(own_topic, 0)
    consumer.assign([tp])
    got = [consumer.poll(LIMIT_S).value() for _ in range(5)]
    consumer.pause([tp, client.TopicPartition("other", 0)])
    assert consumer.poll(0.1) is None
    consumer.resume([tp])
    got += [consumer.poll(LIMIT_S).value() for _ in range(15)]
    assert got == [b"%d" % number for number in range(20)]
    assert consumer.poll(LIMIT_S).error() == client.KafkaError._PARTITION_EOF


def test_ends_of_partitions_are_messages(
    client: Any, cluster: Cluster, own_topic: str, make: MakeConsumer
) -> None:
    write(cluster, own_topic, b"a")
    consumer = make(enable_partition_eof=True)
    consumer.assign([client.TopicPartition(own_topic, 0), client.TopicPartition(own_topic, 1)])
    found = read(consumer, 3)
    ends = {each.partition(): each for each in found if each.error() is not None}
    assert {number: each.offset() for number, each in ends.items()} == {0: 1, 1: 0}
    assert all(each.error() == client.KafkaError._PARTITION_EOF for each in ends.values())
    assert ends[0].timestamp() == (client.TIMESTAMP_NOT_AVAILABLE, -1)
    assert consumer.poll(0.2) is None
    write(cluster, own_topic, b"b")
    assert [each.value() for each in read(consumer, 2)][:1] == [b"b"]


def test_commits_are_what_was_returned(
    client: Any, cluster: Cluster, own_topic: str, group: str, make: MakeConsumer
) -> None:
    write(cluster, own_topic, b"a", b"b", b"c")
    outcomes: list[Any] = []
    consumer = make(on_commit=lambda error, partitions: outcomes.append((error, partitions)))
    tp = client.TopicPartition(own_topic, 0)
    consumer.assign([tp])
    first, second = [consumer.poll(LIMIT_S) for _ in range(2)]
    assert consumer.committed([tp])[0].offset == client.OFFSET_INVALID
    [done] = consumer.commit(asynchronous=False)
    assert (done.topic, done.partition, done.offset, done.error) == (own_topic, 0, 2, None)
    assert consumer.committed([tp])[0].offset == 2
    with pytest.raises(client.KafkaException) as raised:
        consumer.commit(asynchronous=False)
    assert raised.value.args[0].code() == client.KafkaError._NO_OFFSET
    [done] = consumer.commit(message=first, asynchronous=False)
    assert done.offset == 1
    named = client.TopicPartition(own_topic, 0, 2, metadata="note")
    consumer.commit(offsets=[named], asynchronous=False)
    assert consumer.committed([tp])[0].metadata == "note"
    assert consumer.commit(second) is None
    poll_until(consumer, lambda: outcomes)
    [(error, [at])] = outcomes
    assert (error, at.offset) == (None, 2)
    with pytest.raises(ValueError, match="mutually exclusive"):
        consumer.commit(message=first, offsets=[tp])


@pytest.mark.parametrize("text", [None, "", "note"])
def test_metadata_is_the_same_for_either_client(
    client: Any, cluster: Cluster, own_topic: str, group: str, make: MakeConsumer, text: str | None
) -> None:
    consumer = make()
    peer = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": group}
    )
    try:
        for writer, package in ((consumer, client), (peer, confluent_kafka)):
            metadata = {} if text is None else {"metadata": text}
            place = package.TopicPartition(own_topic, 0, 1, **metadata)
            [done] = writer.commit(offsets=[place], asynchronous=False)
            [own] = consumer.committed([client.TopicPartition(own_topic, 0)])
            [other] = peer.committed([confluent_kafka.TopicPartition(own_topic, 0)])
            assert [done.metadata, own.metadata, other.metadata] == [text] * 3
    finally:
        peer.close()


def test_stored_offsets_alone_are_committed(
    client: Any, cluster: Cluster, own_topic: str, make: MakeConsumer
) -> None:
    write(cluster, own_topic, b"a", b"b", b"c")
    consumer = make(enable_auto_offset_store=False)
    tp = client.TopicPartition(own_topic, 0)
    consumer.assign([tp])
    first, *_ = read(consumer, 3)
    with pytest.raises(client.KafkaException) as raised:
        consumer.commit(asynchronous=False)
    assert raised.value.args[0].code() == client.KafkaError._NO_OFFSET
    consumer.store_offsets(message=first)
    consumer.commit(asynchronous=False)
    assert consumer.committed([tp])[0].offset == 1
    with pytest.raises(client.KafkaException) as raised:
        consumer.store_offsets(offsets=[client.TopicPartition("other", 0, 1)])
    assert raised.value.args[0].code() == client.KafkaError._UNKNOWN_PARTITION
    with pytest.raises(ValueError, match="expected either message or offsets"):
        consumer.store_offsets()


def test_store_offsets_needs_its_option(client: Any, own_topic: str, make: MakeConsumer) -> None:
    consumer = make()
    with pytest.raises(client.KafkaException) as raised:
        consumer.store_offsets(offsets=[client.TopicPartition(own_topic, 0, 1)])
    assert raised.value.args[0].code() == client.KafkaError._INVALID_ARG


def test_close_commits_what_was_stored(
    client: Any, cluster: Cluster, own_topic: str, make: MakeConsumer
) -> None:
    write(cluster, own_topic, b"a", b"b", b"c")
    tp = client.TopicPartition(own_topic, 0)
    with make(enable_auto_commit=True) as consumer:
        consumer.subscribe([own_topic])
        assert consumer.poll(LIMIT_S).value() == b"a"
    assert make().committed([tp])[0].offset == 1


def test_rebalances_call_the_program(
    client: Any, cluster: Cluster, own_topic: str, make: MakeConsumer
) -> None:
    write(cluster, own_topic, b"a", b"b", b"c")
    calls: list[Any] = []

    def on_assign(consumer: Any, partitions: list[Any]) -> None:
        calls.append(("assigned", consumer, partitions))
        for each in partitions:
            each.offset = 1 if each.partition == 0 else client.OFFSET_END
        consumer.assign(partitions)

    def on_revoke(consumer: Any, partitions: list[Any]) -> None:
        calls.append(("revoked", consumer, partitions))
        consumer.commit(asynchronous=False)
        consumer.unassign()

    consumer = make()
    assert consumer.memberid() is None
    consumer.subscribe([own_topic], on_assign=on_assign, on_revoke=on_revoke)
    assert consumer.poll(LIMIT_S).value() == b"b"
    both = [client.TopicPartition(own_topic, 0), client.TopicPartition(own_topic, 1)]
    assert calls == [("assigned", consumer, both)]
    assert isinstance(consumer.memberid(), str)
    assert consumer.assignment() == both
    consumer.close()
    assert calls[1:] == [("revoked", consumer, both)]
    assert make().committed(both[:1])[0].offset == 2


def test_subscribe_begins_to_join(
    client: Any, cluster: Cluster, own_topic: str, make: MakeConsumer
) -> None:
    consumer = make()
    consumer.subscribe([own_topic])
    wait_until(lambda: consumer.memberid() is not None)


def test_fetched_messages_belong_to_nobody_until_they_are_returned(
    client: Any, cluster: Cluster, own_topic: str, make: MakeConsumer
) -> None:
    write(cluster, own_topic, *(b"%d" % number for number in range(20)))
    first = make(enable_auto_commit=True)
    first.subscribe([own_topic])
    assert first.poll(LIMIT_S).value() == b"0"
    first.unsubscribe()
    assert first.poll(0) is None
    second = make()
    second.subscribe([own_topic])
    assert [each.value() for each in read(second, 19)] == [b"%d" % each for each in range(1, 20)]


def test_cooperative_members_assign_in_steps(
    client: Any, cluster: Cluster, own_topic: str, make: MakeConsumer
) -> None:
    write(cluster, own_topic, b"a", b"b")
    codes: list[int] = []

    def on_assign(consumer: Any, partitions: list[Any]) -> None:
        with pytest.raises(client.KafkaException) as raised:
            consumer.assign(partitions)
        codes.append(raised.value.args[0].code())
        for each in partitions:
            each.offset = 1
        consumer.incremental_assign(partitions)

    consumer = make(partition_assignment_strategy="cooperative-sticky")
    consumer.subscribe([own_topic], on_assign=on_assign)
    assert consumer.poll(LIMIT_S).value() == b"b"
    assert codes == [client.KafkaError._STATE]


def test_errors_of_callbacks_leave_poll_unchanged(
    client: Any, cluster: Cluster, own_topic: str, make: MakeConsumer
) -> None:
    write(cluster, own_topic, b"a")

    def on_assign(consumer: Any, partitions: list[Any]) -> None:
        raise LookupError("no place")

    consumer = make()
    consumer.subscribe([own_topic], on_assign=on_assign)
    with pytest.raises(LookupError, match="no place"):
        poll_until(consumer, lambda: False)
    assert consumer.poll(LIMIT_S).value() == b"a"


def test_patterns_begin_with_a_circumflex(
    client: Any, cluster: Cluster, own_topic: str, make: MakeConsumer
) -> None:
    write(cluster, own_topic, b"a")
    consumer = make()
    consumer.subscribe([f"^{own_topic[:-1]}."])
    assert consumer.poll(LIMIT_S).value() == b"a"
    consumer.subscribe(["^another.*", own_topic])
    cluster.produce(own_topic, [b"b"])
    assert consumer.poll(LIMIT_S).value() == b"b"
    for wrong in ([], [""]):
        with pytest.raises(client.KafkaException) as raised:
            consumer.subscribe(wrong)
        assert raised.value.args[0].code() == client.KafkaError._INVALID_ARG
    with pytest.raises(TypeError, match="expected list of topic unicode strings"):
        consumer.subscribe(own_topic)


def test_unknown_topics_are_messages(
    client: Any, cluster: Cluster, own_topic: str, make: MakeConsumer
) -> None:
    consumer = make()
    consumer.subscribe([own_topic, "missing"])
    message = consumer.poll(LIMIT_S)
    assert message.error().code() == client.KafkaError.UNKNOWN_TOPIC_OR_PART
    assert message.topic() == "missing"
    assert b"missing" in message.value()


def test_offsets_out_of_reach_are_messages(
    client: Any, cluster: Cluster, own_topic: str, make: MakeConsumer
) -> None:
    write(cluster, own_topic, b"a")
    consumer = make(auto_offset_reset="error")
    consumer.assign([client.TopicPartition(own_topic, 0, 7)])
    message = consumer.poll(LIMIT_S)
    assert message.error().code() == client.KafkaError._AUTO_OFFSET_RESET
    assert (message.topic(), message.partition()) == (own_topic, 0)


def test_late_poll_returns_an_error_first(
    cluster: Cluster, own_topic: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(cluster, own_topic, b"a", b"b")
    consumer = package.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([own_topic])
    read(consumer, 1)
    monkeypatch.setattr(consumer, "_polled_at", consumer._polled_at - 1000)
    late = consumer.poll(0)
    assert late is not None
    assert late.error() == package.KafkaError._MAX_POLL_EXCEEDED
    with pytest.raises(package.KafkaException) as raised:
        consumer.commit(late)
    assert raised.value.args[0].code() == package.KafkaError._INVALID_ARG
    assert [each.value() for each in read(consumer, 1)] == [b"b"]
    consumer.close()


def test_errors_of_the_client_go_to_error_cb(client: Any) -> None:
    errors: list[Any] = []
    consumer = client.Consumer(
        {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "error_cb": errors.append}
    )
    try:
        consumer.subscribe(["t"])
        assert poll_until(consumer, lambda: errors) == []
        assert errors[0].code() in (
            client.KafkaError._ALL_BROKERS_DOWN,
            client.KafkaError._TRANSPORT,
        )
        with pytest.raises(client.KafkaException) as raised:
            consumer.list_topics(timeout=0.1)
        assert raised.value.args[0].code() in (
            client.KafkaError._TRANSPORT,
            client.KafkaError._TIMED_OUT,
            client.KafkaError._ALL_BROKERS_DOWN,
        )
    finally:
        consumer.close()


def test_statistics_have_the_keys_that_people_read(
    client: Any, cluster: Cluster, own_topic: str, make: MakeConsumer
) -> None:
    write(cluster, own_topic, b"a", b"b", b"c")
    found: list[Any] = []
    consumer = make(stats_cb=lambda text: found.append(json.loads(text)), statistics_interval_ms=50)
    consumer.subscribe([own_topic])
    assert consumer.poll(LIMIT_S).value() == b"a"
    consumer.commit(asynchronous=False)

    def partition() -> Any:
        topics = found[-1]["topics"] if found else {}
        return topics.get(own_topic, {}).get("partitions", {}).get("0", {})

    poll_until(consumer, lambda: partition().get("app_offset") == 3 and "cgrp" in found[-1])
    poll_until(consumer, lambda: partition().get("hi_offset") == 3)
    poll_until(consumer, lambda: partition().get("committed_offset") in (1, -1001))
    at, whole = partition(), found[-1]
    assert at["consumer_lag_stored"] == 0
    assert (at["partition"], at["stored_offset"], at["ls_offset"]) == (0, 3, 3)
    assert (whole["type"], whole["cgrp"]["assignment_size"]) == ("consumer", 2)
    assert {"name", "client_id", "ts", "time", "age", "rxmsgs", "rx_bytes", "brokers"} <= set(whole)
    assert {"broker", "leader", "fetch_state", "next_offset", "eof_offset", "lo_offset"} <= set(at)


def test_lookups_have_the_shapes_of_confluent_kafka(
    client: Any, cluster: Cluster, own_topic: str, make: MakeConsumer
) -> None:
    cluster.produce(own_topic, [ProducerRecord(b"a", partition=0, timestamp=1000)])
    consumer = make()
    first = client.TopicPartition(own_topic, 0)
    assert consumer.get_watermark_offsets(first, timeout=LIMIT_S) == (0, 1)
    nowhere = (client.OFFSET_INVALID, client.OFFSET_INVALID)
    assert consumer.get_watermark_offsets(first, cached=True) == nowhere
    consumer.assign([first])
    read(consumer, 1)
    assert consumer.get_watermark_offsets(first, cached=True)[1] == 1
    with pytest.raises(client.KafkaException) as raised:
        consumer.get_watermark_offsets(client.TopicPartition(own_topic, 9), timeout=LIMIT_S)
    assert raised.value.args[0].code() == client.KafkaError._UNKNOWN_PARTITION
    times = [client.TopicPartition(own_topic, 0, at) for at in (5, 5000)]
    for asked, offset in zip(times, (0, client.OFFSET_END), strict=True):
        [found] = consumer.offsets_for_times([asked], timeout=LIMIT_S)
        assert (found.topic, found.partition, found.offset) == (own_topic, 0, offset)
    [known, unknown] = consumer.offsets_for_times(
        [client.TopicPartition(own_topic, 0, 5), client.TopicPartition(own_topic, 9, 5)],
        timeout=LIMIT_S,
    )
    assert (known.error, unknown.error) == (None, client.KafkaError._UNKNOWN_PARTITION)
    listed = consumer.list_topics(own_topic, timeout=LIMIT_S)
    assert list(listed.topics) == [own_topic]
    assert sorted(listed.topics[own_topic].partitions) == [0, 1]
    assert listed.topics[own_topic].partitions[0].leader in listed.brokers
    missing = consumer.list_topics("missing", timeout=LIMIT_S).topics["missing"]
    assert missing.error.code() == client.KafkaError.UNKNOWN_TOPIC_OR_PART
    assert listed.cluster_id == consumer.cluster_id()
    metadata = consumer.consumer_group_metadata()
    assert metadata.startswith(b"CGMDv2:")


def test_credentials_can_be_set(client: Any, make: MakeConsumer) -> None:
    consumer = make()
    consumer.set_sasl_credentials("user", "password")
    for wrong in ((None, "password"), ("user", None)):
        with pytest.raises(TypeError):
            consumer.set_sasl_credentials(*wrong)


def test_pattern_that_does_not_compile_is_refused(client: Any, make: MakeConsumer) -> None:
    consumer = make()
    consumer.assign([client.TopicPartition("orders", 0)])
    with pytest.raises(client.KafkaException) as caught:
        consumer.subscribe(["^["])
    assert caught.value.args[0].code() == client.KafkaError._INVALID_ARG
    assert [each.topic for each in consumer.assignment()] == ["orders"]


def test_subscribe_calls_no_error_cb() -> None:
    errors: list[Any] = []
    consumer = package.Consumer(
        {"bootstrap.servers": "localhost:1", "group.id": "g", "error_cb": errors.append}
    )

    native = consumer._native
    original = native.poll

    def poll(timeout_ms: float, most: int) -> Any:
        found = original(timeout_ms, most)
        wait_until(lambda: native.explain().as_dict()["cluster"]["last_error"])
        return found

    with patch.object(native, "poll", poll):
        consumer.subscribe(["orders"])
    assert errors == []
    assert consumer.poll(0) is None
    assert errors
    consumer.close()


def test_the_first_poll_after_assign_looks_for_events() -> None:
    consumer = package.Consumer({"bootstrap.servers": "localhost:1", "group.id": "g"})
    consumer.assign([package.TopicPartition("orders", 0)])
    with patch.object(consumer._events, "look") as look:
        assert consumer.poll(0) is None
    look.assert_called_once()
    consumer.close()


def test_subclasses_may_replace_methods(client: Any, cluster: Cluster, own_topic: str) -> None:
    class Counted(client.Consumer):  # type: ignore[misc]
        count = 0

        def poll(self, timeout: float = -1) -> Any:
            self.count += 1
            return super().poll(timeout)

    consumer = Counted({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "counted"})
    assert consumer.poll(0) is None
    assert consumer.count == 1
    consumer.close()


def test_throttle_cb_reports_a_delay_by_a_quota(
    client: Any, cluster: Cluster, own_topic: str, group: str, make: MakeConsumer
) -> None:
    write(cluster, own_topic, b"a")

    async def delayed(call: Any) -> Any:
        response = await call.proceed()
        response.throttle_time_ms = 150
        return response

    events: list[Any] = []
    consumer = make(throttle_cb=events.append, client_id=group)
    consumer.assign([client.TopicPartition(own_topic, 0)])
    with cluster.on("Fetch", delayed, client_id=group):
        poll_until(consumer, lambda: bool(events))
    assert isinstance(events[0], client.ThrottleEvent)
    assert events[0].throttle_time == pytest.approx(0.15)
    assert str(events[0]).endswith("throttled for 150 ms")
