"""The work for one record does not grow with the assigned partitions."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from kohort.fetcher.buffer._partition_queues import PartitionQueues
from kohort.fetcher.requests._candidates import Candidates
from kohort.fetcher.requests._sessions import FetchSession
from kohort.testing import MemoryCluster
from kohort.types import TopicPartition
from tests.consumer.virtual import MemoryConsumer, values
from tests.support.virtual import run_virtual

PARTITIONS, RECORDS = 300, 20
MOST = 8
"""Maximum partitions examined for one record: in its response, the drain, the connection change."""


@pytest.mark.parametrize("paused", [False, True])
def test_work_follows_changed_partitions(monkeypatch: pytest.MonkeyPatch, paused: bool) -> None:
    done: Counter[str] = Counter()
    place, advance = Candidates._place, Candidates._advance
    update, note = FetchSession.update, PartitionQueues.note_up_to_date

    def counted_place(self: Candidates, *arguments: Any) -> None:
        done["looks"] += 1
        place(self, *arguments)

    def counted_advance(self: Candidates, target: Any) -> bool:
        done["looks"] += 1
        return advance(self, target)

    def counted_update(self: FetchSession, changes: Any) -> Any:
        done["changes"] += len(changes)
        return update(self, changes)

    def counted_note(self: PartitionQueues, quiet: Any, at: float, **more: Any) -> None:
        done["notes"] += len(quiet)
        note(self, quiet, at, **more)

    async def main() -> None:
        async with MemoryCluster(topics={"t": PARTITIONS}) as cluster:
            async with MemoryConsumer(cluster, "t") as consumer:
                cluster.produce("t", ["first"], partition=7)
                assert await values(consumer, 1) == [b"first"]
                if paused:
                    consumer.pause(TopicPartition("t", 8))
                for _ in range(2):  # the effects of the first fetches end here
                    cluster.produce("t", ["again"], partition=7)
                    assert await values(consumer, 1) == [b"again"]
                done.clear()
                for number in range(RECORDS):
                    cluster.produce("t", [f"{number}"], partition=7)
                    assert await values(consumer, 1) == [b"%d" % number]

    monkeypatch.setattr(Candidates, "_place", counted_place)
    monkeypatch.setattr(Candidates, "_advance", counted_advance)
    monkeypatch.setattr(FetchSession, "update", counted_update)
    monkeypatch.setattr(PartitionQueues, "note_up_to_date", counted_note)
    run_virtual(main)
    assert 0 < done["looks"] <= MOST * RECORDS
    assert 0 < done["changes"] <= MOST * RECORDS
    assert done["notes"] <= MOST * RECORDS
