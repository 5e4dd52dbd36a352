"""Errors of kohort arrive as those that a program for kafka-python catches."""

from __future__ import annotations

import uuid
from typing import Any

import kafka.consumer.fetcher
import kafka.errors
import kafka.structs
import pytest

import kohort.compat.kafka_python as package
import kohort.errors
from kohort import TopicPartition
from kohort.compat.kafka_python._errors import TABLE, translated
from tests.compat.kafka_python.conftest import MakeConsumer
from tests.compat.kafka_python.kit import poll_until_assigned
from tests.interop.brokers import Broker

TP = TopicPartition("t", 0)
CASES = [
    (kohort.errors.ConsumerClosedError("x"), "IllegalStateError", ("KafkaConsumer is closed",)),
    (kohort.errors.NotAssignedError("x"), "IllegalStateError", ("x",)),
    (kohort.errors.InvalidOptionError("x"), "KafkaConfigurationError", ("x",)),
    (kohort.errors.KafkaTimeoutError("x"), "KafkaTimeoutError", ("x",)),
    (kohort.errors.NoBrokersAvailable("x"), "KafkaConnectionError", ("x",)),
    (kohort.errors.KafkaConnectionError("x"), "KafkaConnectionError", ("x",)),
    (kohort.errors.MessageDecodeError("x"), "KafkaError", ("x",)),
    (kohort.errors.OAuthTokenError("x"), "SaslAuthenticationFailedError", ("x",)),
    (
        kohort.errors.NoOffsetForPartitionError("x", topic_partition=TP),
        "NoOffsetForPartitionError",
        ({TP},),
    ),
    (
        kohort.errors.TopicRecreatedError(
            "x",
            topic_partition=TP,
            offset=7,
            old_topic_id=uuid.UUID(int=1),
            new_topic_id=uuid.UUID(int=2),
        ),
        "OffsetOutOfRangeError",
        ({TP: 7},),
    ),
    (kohort.errors.UnsupportedCodecError("x"), "UnsupportedCodecError", ("x",)),
    (kohort.errors.CorruptBatchError("x"), "CorruptRecordError", ("x",)),
    (kohort.errors.TopicAuthorizationFailedError("x", topics=["t"]), None, ({"t"},)),
    (kohort.errors.GroupAuthorizationFailedError("x", group_id="g"), None, ("g",)),
    (kohort.errors.NotLeaderOrFollowerError("x"), "NotLeaderForPartitionError", ("x",)),
    (kohort.errors.FencedInstanceIdError("x"), "FencedInstanceIdError", ("x",)),
    (kohort.errors.AssignorError("x"), "KafkaError", ("x",)),
]


@pytest.mark.parametrize(("error", "name", "args"), CASES, ids=lambda each: str(each)[:20])
def test_error_is_translated_with_its_arguments(
    error: kohort.errors.KafkaError, name: str | None, args: tuple[object, ...]
) -> None:
    found = translated(error)
    assert type(found) is getattr(kafka.errors, name or type(error).__name__)
    assert found.args == args
    assert found.__cause__ is error


def test_truncation_names_the_diverging_offset() -> None:
    error = kohort.errors.LogTruncationError("x", topic_partition=TP, offset=9, diverging_offset=5)
    found = translated(error)
    assert isinstance(found, kafka.errors.LogTruncationError)
    assert found.divergent_offsets == {TP: (5, "", -1)}


def test_too_large_record_is_that_of_the_fetcher() -> None:
    found = translated(kohort.errors.RecordTooLargeError("x", topic_partition=TP, offset=1))
    assert type(found) is kafka.consumer.fetcher.RecordTooLargeError
    assert found.args[1] == {TP: 1}


def test_every_name_of_the_table_exists_in_kafka_python() -> None:
    assert [name for _, name, _ in TABLE if not hasattr(kafka.errors, name)] == []


def test_kafka_python_catches_its_own_classes(group: str) -> None:
    assert package.errors.KafkaTimeoutError is kafka.errors.KafkaTimeoutError
    assert package.TopicPartition is kafka.structs.TopicPartition
    with pytest.raises(kafka.errors.IllegalStateError):
        package.KafkaConsumer(api_version=(4, 0)).commit()


def test_errors_are_those_of_kohort_without_kafka_python(alone: Any) -> None:
    assert alone.TopicPartition is TopicPartition
    assert alone.errors.KafkaConfigurationError is kohort.errors.ConfigurationError
    assert "CorruptRecordError" in dir(alone.errors)
    with pytest.raises(AttributeError, match="not installed"):
        _ = alone.errors.NoSuchError
    with pytest.raises(kohort.errors.IllegalStateError, match="Requires group_id"):
        alone.KafkaConsumer(api_version=(4, 0)).commit()
    with pytest.raises(ImportError):
        alone.install()


def test_offset_out_of_range_names_the_partition(
    compat: Any, topic: str, make: MakeConsumer
) -> None:
    consumer, tp = make(auto_offset_reset="none"), compat.TopicPartition(topic, 0)
    consumer.assign([tp])
    consumer.seek(tp, 100)
    with pytest.raises(compat.errors.OffsetOutOfRangeError) as raised:
        while True:
            consumer.poll(timeout_ms=100)
    if compat is package:
        assert raised.value.args == ({tp: 100},)


def test_commit_of_a_replaced_member_fails(
    compat: Any, broker: Broker, topic: str, group: str, make: MakeConsumer
) -> None:
    consumer = make(topic, group_id=group, group_instance_id="a")
    poll_until_assigned(consumer)
    other = make(topic, group_id=group, group_instance_id="a")
    poll_until_assigned(other)
    with pytest.raises(compat.errors.KafkaError):
        consumer.commit({compat.TopicPartition(topic, 0): compat.OffsetAndMetadata(1, "", -1)})
