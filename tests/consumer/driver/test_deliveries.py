"""The order of records that one poll takes from two buffers."""

from __future__ import annotations

import pytest

from kohort.consumer.driver._delivery import IterationDelivery, PollDelivery
from kohort.consumer.driver._iteration_buffer import DrainSize, IterationBuffer
from kohort.fetcher import RecordTarget
from tests.fetcher.bench import Bench
from tests.fetcher.making import T0, batch, offsets


class Doubt:
    """The doubt about a session, which ends after some looks at it."""

    def __init__(self) -> None:
        self.looks = 0

    def may_deliver(self) -> bool:
        self.looks -= 1
        return self.looks < 0


class Buffers:
    """The iteration buffer with offsets 0 to 2 of T0, and fetched records from 3 to 5."""

    def __init__(self) -> None:
        self.doubt = Doubt()
        self.bench = Bench(T0, buffered={"may_deliver": self.doubt.may_deliver})
        self.iterated = IterationBuffer(self.bench.subscription, self.doubt.may_deliver)
        self.bench.put(T0, 0, batch(0, 3))
        self.iterated.load(self.bench.buffer.drain(100))
        self.bench.put(T0, 3, batch(3, 3))

    def poll(self) -> list[int]:
        delivery = PollDelivery(self.bench.buffer, self.iterated, 10, RecordTarget())
        delivery.take(None, repeat_errors=True)
        return offsets(delivery.target.records.get(T0, []))

    def iterate(self) -> list[int]:
        size = DrainSize(10, deserializes=False, timed=False)
        delivery = IterationDelivery(self.bench.buffer, self.iterated, size, float)
        delivery.take(None, repeat_errors=True)
        delivery.commit()
        found: list[int] = []
        while (record := self.iterated.next()) is not None:
            found.append(record.offset)
        return found


@pytest.mark.parametrize("looks", range(6))
@pytest.mark.parametrize("way", ["poll", "iterate"])
def test_no_record_is_overtaken_while_a_session_is_confirmed(way: str, looks: int) -> None:
    """The consumer thread may confirm the session between any two looks of the caller at it."""
    buffers = Buffers()
    buffers.doubt.looks = looks
    found: list[int] = []
    for _ in range(10):
        found += getattr(buffers, way)()
    assert found == [0, 1, 2, 3, 4, 5]
    assert buffers.bench.position(T0) == 6
