"""Arguments that the protocol cannot encode: the call raises, and later calls work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, SupportsIndex

import pytest

from kohort import OffsetAndMetadata, SubscriptionPattern, TopicPartition
from kohort.config import ConsumerConfig
from kohort.consumer.api import _arguments
from kohort.errors import InvalidOptionError
from kohort.testing import Cluster
from tests.consumer.conftest import MakeConsumer
from tests.consumer.kit import read, values

T0 = TopicPartition("t", 0)
LONE = "a\ud800"
LONG = "a" * 32_768

Call = Callable[[Any, TopicPartition], object]

WRONG: dict[str, tuple[Call, str]] = {
    "seek": (lambda c, tp: c.seek(tp, 2**63), "offset must be at most"),
    "seek, digits": (lambda c, tp: c.seek(tp, 10**5000), "offset must be at most"),
    "until": (lambda c, tp: c.seek(tp, 0, until=2**63), "until must be at most"),
    "commit": (lambda c, tp: c.commit({tp: 2**63}), "offset of .* must be at most"),
    "commit, negative": (lambda c, tp: c.commit({tp: -1}), "offset of .* must be at least 0"),
    "commit_async": (lambda c, tp: c.commit_async({tp: 2**63}), "offset of .* must be at most"),
    "epoch": (
        lambda c, tp: c.commit({tp: OffsetAndMetadata(1, "", 2**31)}),
        "leader epoch of .* must be at most 2147483647",
    ),
    "epoch, negative": (
        lambda c, tp: c.commit({tp: OffsetAndMetadata(1, "", -2)}),
        "leader epoch of .* must be at least -1",
    ),
    "metadata": (
        lambda c, tp: c.commit({tp: OffsetAndMetadata(1, LONE)}),
        "metadata of .* must be valid Unicode",
    ),
    "metadata, long": (
        lambda c, tp: c.commit({tp: OffsetAndMetadata(1, LONG)}),
        "metadata of .* must have at most 32767 bytes",
    ),
    "timestamp": (lambda c, tp: c.offsets_for_times({tp: 2**63}), "timestamp of .* at most"),
    "timestamp, float": (lambda c, tp: c.offsets_for_times({tp: 1e300}), "timestamp of .* at most"),
    "partition": (lambda c, tp: c.assign([tp, (tp.topic, 2**31)]), "partition must be at most"),
    "partition, negative": (lambda c, tp: c.assign([(tp.topic, -1)]), "partition must be at least"),
    "topic": (lambda c, tp: c.assign([(LONE, 0)]), "topic must be valid Unicode"),
    "topic, long": (lambda c, tp: c.assign([(LONG, 0)]), "topic must have at most 32767 bytes"),
    "position": (lambda c, tp: c.position((tp.topic, 2**31)), "partition must be at most"),
    "committed": (lambda c, tp: c.committed((tp.topic, 2**31)), "partition must be at most"),
    "end_offsets": (lambda c, tp: c.end_offsets([(LONE, 0)]), "topic must be valid Unicode"),
}


@pytest.mark.parametrize("name", WRONG)
def test_call_raises_when_protocol_cannot_encode_argument(
    cluster: Cluster, topic: str, group: str, make: MakeConsumer, name: str
) -> None:
    call, text = WRONG[name]
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    consumer = make(group_id=group)
    consumer.assign([first, second])
    consumer.poll(timeout_ms=100)
    with pytest.raises(ValueError, match=text):
        call(consumer, first)
    assert consumer.assignment() == {first, second}
    cluster.produce(topic, [b"a"], partition=0)
    cluster.produce(topic, [b"b"], partition=1)
    assert sorted(values(read(consumer, 2))) == [b"a", b"b"]
    assert cluster.committed(group) == {}


@pytest.mark.parametrize("reason", [LONE, LONG])
def test_enforce_rebalance_raises_when_reason_is_no_text(make: MakeConsumer, reason: str) -> None:
    consumer = make("t", group_id="g")
    with pytest.raises(ValueError, match="reason must"):
        consumer.enforce_rebalance(reason)
    with pytest.raises(ValueError, match="SubscriptionPattern must"):
        consumer.subscribe(pattern=SubscriptionPattern(reason))


@pytest.mark.parametrize("name", ["group_id", "client_id", "group_instance_id", "client_rack"])
@pytest.mark.parametrize("value", [LONE, LONG])
def test_option_is_refused_when_text_cannot_be_encoded(name: str, value: str) -> None:
    with pytest.raises(InvalidOptionError, match=name):
        ConsumerConfig.from_kwargs(**{"group_id": "g", name: value})


@pytest.mark.parametrize(
    "name", ["fetch_max_bytes", "max_poll_records", "session_timeout_ms", "receive_buffer_bytes"]
)
@pytest.mark.parametrize("value", [2**31, 2**63])
def test_option_is_refused_when_int_cannot_be_encoded(name: str, value: int) -> None:
    with pytest.raises(InvalidOptionError, match=name):
        ConsumerConfig.from_kwargs(**{"group_id": "g", name: value})


@pytest.mark.parametrize("value", [True, False, 1.0, "1", None])
def test_other_types_are_refused_as_integers(value: Any) -> None:
    with pytest.raises(TypeError, match="offset must be an int"):
        _arguments.offset(value)
    with pytest.raises(TypeError, match="expected a TopicPartition"):
        _arguments.topic_partition(("t", value))
    with pytest.raises(TypeError, match=r"leader epoch of .* must be an int"):
        _arguments.commit_offsets({T0: (1, "", str(value))})


def test_numpy_integers_are_accepted() -> None:
    numpy = pytest.importorskip("numpy")
    one = numpy.int64(1)
    found = _arguments.commit_offsets({("t", numpy.int32(0)): (one, "", numpy.int16(3))})
    assert found == {T0: OffsetAndMetadata(1, "", 3)}
    assert {type(each) for tp, at in found.items() for each in (tp.partition, at.offset)} == {int}
    assert _arguments.one_or_more(("t", numpy.uint8(0))) == (True, [T0])
    assert _arguments.timeout_seconds(numpy.int64(500)) == 0.5
    assert _arguments.timeout_seconds(numpy.float64(500)) == 0.5
    assert _arguments.max_records(one, 5) == 1
    assert _arguments.timestamps({T0: numpy.int64(5)}) == {T0: 5}
    with pytest.raises(TypeError, match="offset must be an int"):
        _arguments.offset(numpy.bool_(True))
    with pytest.raises(ValueError, match="offset must be at most"):
        _arguments.offset(numpy.uint64(2**63))


def test_usual_arguments_need_no_check_of_a_protocol(monkeypatch: pytest.MonkeyPatch) -> None:
    def checked(cls: type, instance: object) -> bool:
        raise AssertionError(f"{instance!r} is checked for {cls}")

    monkeypatch.setattr(type(SupportsIndex), "__instancecheck__", checked)
    assert _arguments.timeout_seconds(500) == _arguments.timeout_seconds(500.0) == 0.5
    assert _arguments.topic_partition(T0) == T0
    assert _arguments.one_or_more(T0) == (True, [T0])
