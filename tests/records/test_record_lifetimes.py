"""Lifetimes of millions of records: their memory is reused, and old contents never show."""

from __future__ import annotations

import gc
import sys
import weakref
from typing import Any

import pytest

from kohort.records import (
    COMPILED,
    ConsumerRecord,
    NewRecord,
    RecordBatch,
    deserialized,
    encode_batch,
)
from tests.support.decoders import decoder_named
from tests.support.undisturbed import least


def _decoded(count: int, *, first: int = 0, size: int = 10) -> list[ConsumerRecord[Any, Any]]:
    new = [NewRecord(first + n, b"k%d" % (first + n), b"v" * size) for n in range(count)]
    return list(RecordBatch.of(encode_batch(new, base_offset=first)).records(topic="t"))


def test_what_is_kept_never_changes_while_others_come_and_go() -> None:
    kept = _decoded(3000)[::7]
    before = [(record.offset, record.timestamp, record.key, record.value) for record in kept]
    for round_ in range(5):
        _decoded(5000, first=10_000 * round_ + 10_000)
    assert [(each.offset, each.timestamp, each.key, each.value) for each in kept] == before


def test_their_class_is_held_as_often_as_there_are_records() -> None:
    _decoded(6000)  # more than the pool keeps
    gc.collect()  # records that other tests left in circles
    before = sys.getrefcount(ConsumerRecord)
    for _ in range(5):
        records = _decoded(6000)
        held = sys.getrefcount(ConsumerRecord) - before
        assert held == len(records) or held == 0, held  # 0 if types have no reference count
        del records
        assert sys.getrefcount(ConsumerRecord) == before


def test_nothing_that_they_held_is_held_any_longer() -> None:
    class Value:
        pass

    value = Value()
    gone = weakref.ref(value)
    record = deserialized(_decoded(1)[0], b"k", value)
    del value
    assert gone() is not None
    del record
    assert gone() is None


def test_deserialized_value_that_refers_to_record_is_collected() -> None:
    class Value:
        record: Any = None

    value = Value()
    gone = weakref.ref(value)
    value.record = deserialized(_decoded(1)[0], b"k", value)
    del value
    assert gone() is not None
    gc.collect()
    assert gone() is None


def test_values_may_be_nested_as_deeply_as_memory_allows() -> None:
    record = _decoded(1)[0]
    nested: Any = None
    for _ in range(200_000):
        nested = deserialized(record, b"k", nested)
    del nested  # each is freed inside another


def test_a_subclass_may_have_fields_of_its_own() -> None:
    class Stamped(ConsumerRecord[Any, Any]):
        __slots__ = ("__weakref__", "seen_at")

    for _ in range(3):
        records = [Stamped("t", 0, offset=n, value=b"v" * n) for n in range(50)]
        for record in records:
            object.__setattr__(record, "seen_at", object())
        gone = [weakref.ref(record) for record in records]
        assert [record.offset for record in records] == list(range(50))
        del records, record
        assert [each() for each in gone] == [None] * 50
    assert [each.offset for each in _decoded(60)] == list(range(60))


def test_a_record_may_change_to_a_subclass_without_slots() -> None:
    class Named(ConsumerRecord[Any, Any]):
        __slots__ = ()

        @property
        def name(self) -> str:
            return f"{self.topic} at {self.offset}"

    change = object.__dict__["__class__"].__set__
    records: list[Any] = _decoded(60)
    held = sys.getrefcount(Named)
    for record in records:
        change(record, Named)
    assert [record.name for record in records] == [f"t at {n}" for n in range(60)]
    change(records[0], ConsumerRecord)
    assert type(records[0]) is ConsumerRecord
    assert not hasattr(records[0], "name")
    del records, record
    assert sys.getrefcount(Named) == held
    assert [each.offset for each in _decoded(60)] == list(range(60))


def test_empty_record_is_freed_and_its_memory_used_again() -> None:
    for _ in range(3):
        empty: Any = [ConsumerRecord.__new__(ConsumerRecord) for _ in range(50)]
        with pytest.raises(AttributeError, match="value"):
            _ = empty[0].value
        del empty
        assert [each.offset for each in _decoded(60)] == list(range(60))


def test_memory_of_a_freed_record_is_that_of_the_next() -> None:
    if not COMPILED or not getattr(sys, "_is_gil_enabled", lambda: True)():
        pytest.skip("freed records are reused by the compiled modules, with the interpreter's lock")
    assert ConsumerRecord.__base__ is not None
    assert ConsumerRecord.__base__.__name__ == "ConsumerRecord"  # the Python class
    decode_records = decoder_named("compiled").decode_records
    data = encode_batch([NewRecord(1, b"k", b"v")])[61:]

    def decoded() -> list[Any]:
        records: list[Any] = []
        decode_records(data, 0, 1, 0, 0, 1, False, 0, "t", 0, records)
        return records

    kept = decoded()
    place = id(kept[0])
    del kept[0]
    assert [id(each) for each in decoded()] == [place]


def test_the_garbage_collector_has_nothing_to_do_for_bytes() -> None:
    def collections() -> int:
        gc.collect()
        before = gc.get_stats()[0]["collections"]
        for _ in range(20):
            _decoded(1000)
        return int(gc.get_stats()[0]["collections"] - before)

    _decoded(2000)
    assert least(collections, 20 * 3) <= 20 * 3
