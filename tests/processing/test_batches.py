"""Batches of one partition: how they gather, fail, and are split."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from kohort import ConsumerRecord, KafkaConsumer
from kohort.errors import ConfigurationError
from kohort.processing import Batch, GiveUp, Retry, process
from kohort.processing._batches import Chunk, table_of
from kohort.processing._core import Core
from kohort.processing._partition import Lane
from kohort.testing import Cluster
from tests.processing.kit import (
    OTHER,
    TP,
    World,
    commit,
    in_world,
    make_core,
    processing,
    records,
    take_all,
    until,
)

Record = ConsumerRecord[bytes, bytes]
BOOM = ValueError("boom")


def offsets(lane: Lane | None) -> list[int]:
    assert lane is not None
    return [record.offset for record in lane.load]


def tried(core: Core, bad: int) -> list[list[int]]:
    """Handle everything, where batches with one offset fail. Return what was tried."""
    found = []
    lane = core.take()
    while lane is not None or core.next_deadline() is not None:
        if lane is None:
            core.tick(core.next_deadline() or 0.0, 0.0)
            lane = core.take()
            continue
        found.append(offsets(lane))
        if lane.error is None and bad in found[-1]:
            lane = core.failed(lane, BOOM, core.now)
        else:
            lane = core.done(lane)
    return found


def test_a_complete_batch_is_ready_at_once() -> None:
    core = make_core(batch=Batch(3, seconds=10))
    core.records(TP, records(0, 1), 0.0)
    assert core.take() is None
    core.records(TP, records(2, 3), 1.0)
    lane = core.take()
    assert offsets(lane) == [0, 1, 2]
    assert commit(core) == (0, "")
    assert lane is not None and core.done(lane) is None
    assert commit(core) == (3, "")


def test_a_batch_is_ready_at_the_end_of_its_time() -> None:
    core = make_core(batch=Batch(3, seconds=10))
    core.records(TP, records(0), 5.0)
    core.records(TP, records(1), 9.0)
    assert core.next_deadline() == 15.0
    core.tick(15.0, 0.0)
    lane = core.take()
    assert offsets(lane) == [0, 1]
    core.records(TP, records(2), 16.0)
    assert lane is not None and core.done(lane) is None
    assert core.next_deadline() == 26.0


def test_batches_of_two_partitions_run_side_by_side() -> None:
    core = make_core(TP, OTHER, batch=Batch(2))
    core.records(TP, records(0, 1, 2, 3), 0.0)
    core.records(OTHER, records(0, 1, tp=OTHER), 0.0)
    assert [offsets(lane) for lane in take_all(core)] == [[0, 1], [0, 1]]


def test_a_failed_batch_is_retried_as_a_whole() -> None:
    core = make_core(batch=Batch(3), retries=(Retry(3, first=1.0),), failed="skip")
    core.records(TP, records(0, 1, 2, 3, 4, 5), 0.0)
    assert tried(core, 1) == [[0, 1, 2]] * 3 + [[3, 4, 5]]
    assert commit(core) == (6, "")


def test_a_bad_record_is_found_by_halving() -> None:
    core = make_core(batch=Batch(8, split=True), retries=(Retry(2, first=1.0),), failed="skip")
    core.records(TP, records(*range(8)), 0.0)
    assert tried(core, 5) == [
        *[list(range(8))] * 2,
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [4, 5],
        [4],
        [5],
        [5],
        [6, 7],
    ]
    assert commit(core) == (8, "")


def test_halves_that_are_done_are_committed() -> None:
    core = make_core(batch=Batch(4, split=True))
    core.records(TP, records(*range(4)), 0.0)
    lane = core.take()
    assert lane is not None
    lane = core.failed(lane, BOOM, 0.0)
    assert lane is not None and offsets(lane) == [0, 1]
    core.done(lane)
    assert commit(core) == (2, "")


def test_a_policy_gets_each_record_of_a_failed_batch() -> None:
    core = make_core(batch=Batch(3), failed="call")
    core.records(TP, records(0, 1, 2), 0.0)
    lane = core.take()
    assert lane is not None
    lane = core.failed(lane, BOOM, 0.0)
    handed = []
    while lane is not None:
        handed.append((offsets(lane), lane.error, lane.attempt))
        lane = core.done(lane)
    assert handed == [([n], BOOM, 1) for n in range(3)]
    assert commit(core) == (3, "")


@pytest.mark.parametrize(
    ("split", "failed"), [(True, "stop"), (True, "skip"), (True, "call"), (False, "call")]
)
@pytest.mark.cases
def test_a_failed_batch_of_a_closed_partition_is_left_to_the_next_owner(
    split: bool, failed: Any
) -> None:
    """One bad record is the cause, and no policy may get the others for it."""
    core = make_core(batch=Batch(4, split=split), failed=failed)
    core.records(TP, records(*range(4)), 0.0)
    lane = core.take()
    assert lane is not None
    core.close([TP])
    assert core.failed(lane, BOOM, 0.0) is None
    assert core.take() is None
    assert not core.running_of([TP])
    assert commit(core) == (0, "")


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_handler_gets_lists_of_one_partition(backend: str) -> None:
    async def main(world: World) -> None:
        got: list[list[str]] = []

        async def insert(batch: list[Record]) -> None:
            assert len({record.partition for record in batch}) == 1
            got.append([(record.value or b"").decode() for record in batch])

        world.produce(*"abcde")
        world.produce("f", partition=1)
        async with processing(world.consumer(), insert, batch=Batch(rows=3, seconds=2)):
            await until(lambda: (world.committed(0), world.committed(1)) == (5, 1))
        assert sorted(got) == [["a", "b", "c"], ["d", "e"], ["f"]]

    in_world(backend, main, partitions=2)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_handler_gets_tables_of_one_partition(backend: str) -> None:
    pytest.importorskip("pyarrow")
    failed: list[tuple[bytes | None, int]] = []

    def keep(record: Record, error: Exception, attempts: int) -> None:
        failed.append((record.value, record.offset))

    async def main(world: World) -> None:
        got: list[tuple[int, list[bytes]]] = []

        async def insert(table: Any) -> None:
            values = table.column("value").to_pylist()
            if b"bad" in values:
                raise GiveUp
            (partition,) = set(table.column("partition").to_pylist())
            got.append((partition, values))

        world.produce("a", "b")
        world.produce("x", "bad", "y", partition=1)
        await anyio.sleep(1)
        batch = Batch(rows=4, seconds=2, columns=True, split=True)
        async with processing(world.consumer(), insert, batch=batch, failed=keep):
            await until(lambda: (world.committed(0), world.committed(1)) == (2, 3))
            world.produce(*"cdefg")
            await until(lambda: world.committed(0) == 7)
        by_partition = [[value for at, row in got if at == n for value in row] for n in (0, 1)]
        assert by_partition == [[b"a", b"b", b"c", b"d", b"e", b"f", b"g"], [b"x", b"y"]]
        assert max(len(row) for _, row in got) <= 4
        assert failed == [(b"bad", 1)]

    in_world(backend, main, partitions=2)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_window_has_room_for_large_batches(backend: str) -> None:
    pytest.importorskip("pyarrow")
    rows = 15_000
    got: list[int] = []

    async def insert(table: Any) -> None:
        got.append(len(table))

    async def main(world: World) -> None:
        world.produce(*map(str, range(2 * rows)))
        batch = Batch(rows, seconds=600, columns=True)
        async with processing(world.consumer(), insert, batch=batch):
            await until(lambda: world.committed() == 2 * rows)
        assert got == [rows, rows]

    in_world(backend, main)


def test_parts_of_a_poll_are_converted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    whole = pyarrow.record_batch({"offset": list(range(10))})
    columns: Any = SimpleNamespace(topic="orders", partition=0, offset=range(10))
    made: list[Any] = []

    def record_batch(of: Any) -> Any:
        made.append(of)
        return whole

    monkeypatch.setattr(pyarrow, "record_batch", record_batch)
    first, rest = Chunk(columns, 0, 10).split(4)
    second, third = rest.split(3)
    found = [table_of(load)["offset"].to_pylist() for load in ([first], [second, third])]
    assert found == [[0, 1, 2, 3], [4, 5, 6, 7, 8, 9]]
    assert made == [columns]


def chunk(start: int, end: int) -> Chunk:
    columns: Any = SimpleNamespace(topic="orders", partition=0, offset=range(start, end))
    return Chunk(columns, 0, end - start)


def test_the_window_bounds_columns_too() -> None:
    core = make_core(window=100, batch=Batch(10, seconds=1, columns=True))
    partition = core.partitions[TP]
    for start, end in ((0, 50), (50, 99), (99, 149)):
        core.records(TP, [chunk(start, end)], 0.0)
    assert partition.taken() == 100
    found = []
    lane = core.take()
    while lane is not None:
        found.append((lane.load[0].offset, lane.load[-1].end))
        assert partition.taken() <= 100
        lane = core.done(lane)
    core.tick(1.0, 1.0)
    assert found == [(start, start + 10) for start in range(0, 140, 10)]
    lane = core.take()
    assert lane is not None
    assert (lane.load[0].offset, lane.load[-1].end) == (140, 149)
    assert core.done(lane) is None
    assert commit(core) == (149, "")


def test_a_full_window_is_resumed_before_its_last_batch_is_whole() -> None:
    core = make_core(window=1000, batch=Batch(150, seconds=60, columns=True))
    partition = core.partitions[TP]
    for start in (0, 500):
        core.records(TP, [chunk(start, start + 500)], 0.0)
    assert partition.is_full
    lane = core.take()
    while lane is not None:
        lane = core.done(lane)
    assert partition.taken() == 100  # which would otherwise wait for the seconds of a batch
    assert not partition.is_full


def test_threads_get_tables_too() -> None:
    pytest.importorskip("pyarrow")
    with Cluster(topics={"orders": 1}) as cluster:
        cluster.produce("orders", [f"{n}" for n in range(100)])
        consumer = KafkaConsumer(
            "orders",
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
        )
        got: list[bytes] = []

        def insert(table: Any) -> None:
            got.extend(table.column("value").to_pylist())
            if len(got) == 100:
                consumer.wakeup()

        process(consumer, insert, batch=Batch(rows=30, seconds=0.2, columns=True))
        assert got == [b"%d" % n for n in range(100)]
        assert [at.offset for at in cluster.committed("g").values()] == [100]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch": Batch(50), "window": 10}, "fit into the window"),
        ({"batch": Batch(5), "order": "key"}, "in its order"),
        ({"batch": Batch(5), "delay": 1}, "in its order"),
        ({"batch": 5}, "a Batch or None"),
        ({"order": "random"}, '"partition", "key" or "none"'),
        ({"window": 20_001}, "from 1 to 20000"),
        ({"concurrency": 0}, "at least 1"),
        ({"drain": -1}, "number of seconds"),
        ({"commit_interval": 0}, "above 0"),
        ({"failed": "ignore"}, '"stop", "skip"'),
        ({"retry": 3}, "a Retry, a list"),
        ({"handle_signals": 1}, "True or False"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    consumer = KafkaConsumer("orders", group_id="g")
    wrong: Any = process
    with pytest.raises(ConfigurationError, match=message):
        wrong(consumer, print, **options)


@pytest.mark.parametrize("make", [lambda: Retry(0), lambda: Retry(factor=0.5), lambda: Batch(0)])
def test_wrong_policies_are_refused(make: Any) -> None:
    with pytest.raises(ConfigurationError):
        make()
