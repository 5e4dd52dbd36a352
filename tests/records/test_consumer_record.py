"""ConsumerRecord: a value with the attributes of kafka-python's and aiokafka's."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import warnings
from typing import Any

import aiokafka.structs
import pytest

from kohort.records import ConsumerRecord, NewRecord, RecordBatch, deserialized, encode_batch

with warnings.catch_warnings():  # importing kafka-python raises a DeprecationWarning
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.consumer.fetcher


def _record(**changes: Any) -> ConsumerRecord[Any, Any]:
    fields: dict[str, Any] = {"topic": "orders", "partition": 2, "offset": 41, "value": b"v"}
    return ConsumerRecord(**fields | changes)


def test_every_attribute_of_the_peers_records_is_there() -> None:
    theirs = {field.name for field in dataclasses.fields(aiokafka.structs.ConsumerRecord)}
    theirs |= set(kafka.consumer.fetcher.ConsumerRecord._fields)
    assert {name for name in theirs if not hasattr(_record(), name)} == set()


def test_topic_partition_and_offset_are_enough() -> None:
    record: ConsumerRecord[str, str] = ConsumerRecord(topic="orders", partition=2, offset=41)
    assert (record.timestamp, record.timestamp_type, record.leader_epoch) == (-1, 0, -1)
    assert (record.key, record.value, record.headers, record.checksum) == (None, None, (), None)
    assert record.serialized_key_size == -1
    assert record.serialized_value_size == -1
    assert record.serialized_header_size == -1
    with pytest.raises(TypeError, match="offset"):
        make: Any = ConsumerRecord
        make(topic="orders", partition=2)


def test_it_is_no_tuple() -> None:
    record: Any = _record()
    assert not isinstance(record, tuple)
    with pytest.raises(TypeError):
        iter(record)


def test_it_cannot_be_changed() -> None:
    records: list[Any] = [_record(), _decoded()]
    for record in records:
        with pytest.raises(AttributeError, match=r"immutable.*'value'"):
            record.value = b"other"
        with pytest.raises(AttributeError, match="immutable"):
            del record.value
        with pytest.raises(AttributeError):
            record.new = 1


def test_equal_records_are_equal_and_hash_alike() -> None:
    assert _record() == _record()
    assert hash(_record(value={"a": 1})) == hash(_record(value={"a": 1}))
    assert len({_record(), _record(), _record(offset=42)}) == 2
    assert _record() != _record(value=b"w")
    assert _record() != _record(headers=(("h", b""),))
    assert _record() != "something else"


def test_a_decoded_record_is_one_like_any_other() -> None:
    record = _decoded()
    assert type(record) is ConsumerRecord
    assert record == ConsumerRecord(
        topic="t",
        partition=1,
        offset=9,
        timestamp=5,
        key=b"k",
        value=b"vv",
        headers=(("h", b"xyz"), ("n", None)),
        leader_epoch=6,
        serialized_key_size=1,
        serialized_value_size=2,
        serialized_header_size=5,
    )


def test_it_pickles_and_copies_by_value() -> None:
    record = _decoded()
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(record, protocol)) == record
    assert copy.copy(record) == record == copy.deepcopy(record)
    assert record.__replace__(value=b"new").value == b"new"


def test_it_shows_its_fields_and_shortens_long_ones() -> None:
    shown = repr(_record(value=b"x" * 100_000))
    assert shown.startswith(
        "ConsumerRecord(topic='orders', partition=2, leader_epoch=-1, offset=41"
    )
    assert len(shown) < 600


def test_deserializing_keeps_everything_else() -> None:
    record = _decoded()
    other: ConsumerRecord[str, dict[str, int]] = deserialized(record, "k", {"vv": 1})
    assert (other.key, other.value) == ("k", {"vv": 1})
    assert other == record.__replace__(key="k", value={"vv": 1})


def _decoded() -> ConsumerRecord[bytes, bytes]:
    new = NewRecord(5, b"k", b"vv", [("h", b"xyz"), ("n", None)])
    batch = RecordBatch.of(encode_batch([new], base_offset=9, leader_epoch=6))
    [record] = batch.records(topic="t", partition=1)
    return record
