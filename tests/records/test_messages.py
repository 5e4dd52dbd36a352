"""Records whose parts are methods, by the plain module and the compiled one."""

from __future__ import annotations

import gc
import importlib
import sys
import weakref
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from kohort.records import COMPILED, ConsumerRecord, NewRecord, RecordBatch, encode_batch
from kohort.share.machine._acquired import Hold
from tests.support.decoders import decoder_named

COUNT = 6000  # more than the pool of records keeps


class Value:
    message: Any = None


@pytest.fixture
def module(decoder: ModuleType) -> Iterator[ModuleType]:
    """The module of messages, plain or compiled as the decoder is."""
    compiled = decoder.__name__.endswith("_c")
    yield importlib.import_module(f"kohort.records._message{'_c' if compiled else ''}")
    gc.collect()  # the classes of the test, which hold the class of records


def _messages(module: ModuleType, count: int = 1) -> tuple[type[Any], list[Any]]:
    """Return messages, and their new class."""

    class Message(module.MessageRecord):  # type: ignore[misc, name-defined]
        __slots__ = ()

    message_type = module.as_message_type(Message)
    new = [
        NewRecord(n, b"k%d" % n, b"v", ((f"h{n}", b"x"),) if n % 2 else ()) for n in range(count)
    ]
    batch = RecordBatch.of(encode_batch(new, base_offset=7, leader_epoch=3))
    messages: list[Any] = list(batch.records(topic="t", partition=2))
    module.turn_into(message_type, messages)
    return message_type, messages


def test_methods_return_the_parts_of_the_record(module: ModuleType) -> None:
    message_type, (first, second) = _messages(module, 2)
    assert type(first) is message_type
    assert (first.topic(), first.partition(), first.offset()) == ("t", 2, 7)
    assert (second.key(), second.value(), second.headers()) == (b"k1", b"v", [("h1", b"x")])
    assert first.headers() is None
    assert (second.timestamp(), second.leader_epoch()) == ((1, 1), 3)
    assert (first.error(), first.latency(), first.delivery_count()) == (None, None, None)


def test_replaced_parts_are_returned(module: ModuleType) -> None:
    _, (message, other) = _messages(module, 2)
    parts = {"topic": "u", "key": 1, "value": [2], "headers": [("a", b"b")], "error": "wrong"}
    for name, part in parts.items():
        getattr(message, f"set_{name}")(part)
    assert {name: getattr(message, name)() for name in parts} == parts
    assert (message.timestamp(), message.leader_epoch(), other.error()) == ((1, 0), 3, None)
    message.set_error(None)
    assert message.error() is None


def test_attributes_stay_immutable(module: ModuleType) -> None:
    _, (message,) = _messages(module)
    with pytest.raises(AttributeError):
        message.value = b"other"


def test_methods_refuse_what_is_no_record(module: ModuleType) -> None:
    with pytest.raises((TypeError, AttributeError)):
        module.MessageRecord.value(42)
    with pytest.raises((TypeError, AttributeError)):
        module.MessageRecord.set_value(42, b"v")
    empty = ConsumerRecord.__new__(ConsumerRecord)
    with pytest.raises((TypeError, AttributeError)):
        module.MessageRecord.value(empty)


def test_classes_are_held_as_often_as_there_are_messages(module: ModuleType) -> None:
    message_type, messages = _messages(module, COUNT)
    before = sys.getrefcount(ConsumerRecord)
    held = sys.getrefcount(message_type)
    del messages[1000:]
    freed = held - sys.getrefcount(message_type)
    assert freed == COUNT - 1000 or freed == 0, freed  # 0 if types have no reference count
    assert sys.getrefcount(ConsumerRecord) == before
    for _ in range(3):
        _messages(module, COUNT)
    gc.collect()  # the classes
    assert abs(sys.getrefcount(ConsumerRecord) - before) < 100
    assert [each.offset() for each in messages] == list(range(7, 1007))


def test_value_that_refers_to_its_message_is_collected(module: ModuleType) -> None:
    _, (message,) = _messages(module)
    value = Value()
    value.message, gone = message, weakref.ref(value)
    message.set_value(value)
    del value, message
    assert gone() is not None
    gc.collect()
    assert gone() is None


class Lock:
    """A lock of two records, whose offsets begin with 7."""

    __slots__ = ("first", "open", "owner")

    def __init__(self, owner: object, room: int = 2) -> None:
        self.owner, self.first = owner, 7
        self.open: Any = bytearray(room) or None


def test_lock_follows_the_shared_values_of_records(module: ModuleType) -> None:
    class Message(ConsumerRecord[Any, Any]):
        __slots__ = ()

    message_type = module.as_message_type(Message)
    lock = Lock(None)
    held = sys.getrefcount(lock)
    records: list[Any] = []
    for epoch in (3, 3, 4):
        new = [NewRecord(n, b"k", b"v", ()) for n in range(COUNT)]
        batch = RecordBatch.of(encode_batch(new, base_offset=7, leader_epoch=epoch))
        records += batch.records(topic="t", partition=2)
    module.lock_records(message_type, records, lock)
    assert {type(record) for record in records} == {message_type}
    assert {record._origin for record in records} == {(3, 0, None, lock), (4, 0, None, lock)}
    last = records[-1]
    assert (last.offset, last.timestamp, last.leader_epoch) == (6 + COUNT, COUNT - 1, 4)
    del records[:], batch, last
    assert sys.getrefcount(lock) == held
    with pytest.raises((TypeError, AttributeError)):
        module.lock_records(message_type, [42], lock)


def test_marks_go_to_the_open_lock_of_their_owner(module: ModuleType) -> None:
    owner = object()
    lock, closed, other, short = Lock(owner), Lock(owner, 0), Lock(None), Lock(owner, 1)
    module.learn_locks(Lock)
    try:
        found: dict[Lock, list[Any]] = {}
        for each in (lock, closed, other, short):
            message_type, found[each] = _messages(module, 2)
            module.lock_records(message_type, found[each], each)
        first, second = found[lock]
        is_compiled = module.__name__.endswith("_c")
        assert module.mark_open((second, first), owner, 3) is is_compiled
        assert lock.open == (b"\3\3" if is_compiled else b"\0\0")
        plain = _messages(module)[1]
        for wrong in ((), found[closed], found[other], found[short], (first, 42), plain):
            assert module.mark_open(tuple(wrong), owner, 1) is False
        assert lock.open == (b"\3\3" if is_compiled else b"\0\0")  # also that of (first, 42)
        assert other.open == b"\0\0"
    finally:
        module.learn_locks(Hold)


def test_class_of_locks_needs_its_slots() -> None:
    decoder_named("compiled")
    module = importlib.import_module("kohort.records._message_c")

    class Wrong:
        owner = first = open = 7

    for wrong in (Wrong, object):
        with pytest.raises((TypeError, AttributeError)):
            module.learn_locks(wrong)


def test_class_with_more_than_a_record_is_refused() -> None:
    decoder_named("compiled")
    if not COMPILED:
        pytest.skip("KOHORT_PURE=1 is set: Python frees all messages")
    module = importlib.import_module("kohort.records._message_c")

    class Larger(module.MessageRecord):  # type: ignore[misc, name-defined]
        pass  # its instances have a dictionary

    class Finalized(module.MessageRecord):  # type: ignore[misc, name-defined]
        __slots__ = ()

        def __del__(self) -> None:
            pass  # would not be called

    for wrong in (Larger, Finalized, int, 7):
        with pytest.raises(TypeError):
            module.as_message_type(wrong)
