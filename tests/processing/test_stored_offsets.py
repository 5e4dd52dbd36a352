"""process(offsets=SqlOffsets(...)) on the virtual clock, with an asynchronous SQLite."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest

from kohort import AsyncKafkaConsumer, ConsumerRecord
from kohort.errors import (
    ConfigurationError,
    OffsetConflictError,
    OffsetOutOfRangeError,
    TopicRecreatedError,
)
from kohort.processing import Batch, Retry, Skip, SqlOffsets, process
from kohort.testing import MemoryCluster
from tests.processing.databases import Database, Gaps, Killed, sqlite_at
from tests.processing.kit import TP, World, in_world, processing, until

Record = ConsumerRecord[bytes, bytes]
ALL = [(0, n) for n in range(6)]

pytestmark = pytest.mark.parametrize("backend", ["asyncio", "trio"])


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return sqlite_at(tmp_path / "results.db")


async def insert(record: Record, cursor: Any) -> None:
    text = "INSERT INTO results VALUES (?, ?, ?)"
    await cursor.execute(text, (record.partition, record.offset, record.value))


async def insert_all(records: list[Record], cursor: Any) -> None:
    for record in records:
        await insert(record, cursor)


async def run_until(
    world: World,
    database: Database,
    end: int,
    handler: Any = insert,
    *,
    consumer: AsyncKafkaConsumer[bytes, bytes] | None = None,
    **options: Any,
) -> None:
    """Process until the stored offset of partition 0 is ``end``."""
    consumer = consumer or world.consumer()
    async with processing(consumer, handler, offsets=Gaps(database).store(), **options):
        await until(lambda: stored(database) == end)


def stored(database: Database) -> int | None:
    try:
        return database.next_offsets().get(0)
    except Exception:  # the table does not exist yet
        return None


KINDS: dict[str, dict[str, Any]] = {
    "records": {"handler": insert},
    "batch": {"handler": insert_all, "batch": Batch(4, seconds=1)},
}


@pytest.mark.parametrize("kind", KINDS)
def test_results_and_offsets_are_stored_together(
    backend: str, database: Database, kind: str
) -> None:
    async def main(world: World) -> None:
        world.produce(*"abcdef")
        await run_until(world, database, 6, **KINDS[kind])
        assert database.results() == ALL
        assert world.committed() == 6
        world.produce("g")
        await run_until(world, database, 7, **KINDS[kind])
        assert database.results() == [*ALL, (0, 6)]

    in_world(backend, main)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.cases(1)  # each has a life for each statement
def test_a_kill_at_any_statement_loses_and_repeats_nothing(
    backend: str, tmp_path: Path, kind: str
) -> None:
    calls: list[str] = []

    async def main(world: World) -> None:
        world.produce(*"abcdef")
        gaps = Gaps(database, at)
        try:
            consumer = world.consumer()
            async with processing(consumer, offsets=gaps.store(), **KINDS[kind]):
                await until(lambda: gaps.is_dead or stored(database) == 6)
        except* Killed:
            assert gaps.is_dead
        calls[:] = gaps.calls
        assert len(database.results()) == (stored(database) or 0)
        await run_until(world, database, 6, **KINDS[kind])
        assert database.results() == ALL

    at = 0
    while at == 0 or len(calls) > at - 1:
        database = sqlite_at(tmp_path / f"{at}.db")
        in_world(backend, main)
        at += 1
    assert {"connect", "cursor", "SELECT", "CREATE", "INSERT", "UPDATE", "commit"} <= set(calls)


def test_the_table_decides_where_to_begin(backend: str, database: Database) -> None:
    async def main(world: World) -> None:
        world.produce(*"abcdef")
        await run_until(world, database, 6)
        database.change("DELETE FROM results WHERE place >= 2")
        database.change("UPDATE kohort_offsets SET next_offset = 2")
        await run_until(world, database, 6)
        assert database.results() == ALL

    in_world(backend, main)


def test_the_first_start_is_stored_before_a_record(backend: str, database: Database) -> None:
    async def main(world: World) -> None:
        world.produce("a", "b")
        latest: Any = {"auto_offset_reset": "latest"}
        await run_until(world, database, 2, consumer=world.consumer(**latest))
        world.produce("c")
        await run_until(world, database, 3, consumer=world.consumer(**latest))
        assert database.results() == [(0, 2)]

    in_world(backend, main)


def test_a_failed_handler_leaves_nothing_and_is_retried(backend: str, database: Database) -> None:
    attempts = 0

    async def handler(record: Record, cursor: Any) -> None:
        nonlocal attempts
        await insert(record, cursor)
        if record.value == b"b":
            attempts += 1
            if attempts < 3:
                raise OSError

    async def main(world: World) -> None:
        world.produce("a", "b", "c")
        await run_until(world, database, 3, handler, retry=Retry(5))
        assert database.results() == [(0, 0), (0, 1), (0, 2)]
        assert attempts == 3

    in_world(backend, main)


def test_a_failed_handler_stops_process_by_default(backend: str, database: Database) -> None:
    async def handler(record: Record, cursor: Any) -> None:
        await insert(record, cursor)
        if record.value == b"b":
            raise OSError("no")

    async def main(world: World) -> None:
        world.produce("a", "b")
        with pytest.raises(OSError, match="no"):
            await process(world.consumer(), handler, offsets=Gaps(database).store())
        assert database.results() == [(0, 0)]
        assert database.next_offsets() == {0: 1}

    in_world(backend, main)


def test_a_skipped_record_leaves_nothing_and_is_passed(backend: str, database: Database) -> None:
    async def handler(record: Record, cursor: Any) -> None:
        await insert(record, cursor)
        if record.value == b"b":
            raise Skip

    async def main(world: World) -> None:
        world.produce("a", "b")
        await run_until(world, database, 2, handler)
        assert database.results() == [(0, 0)]

    in_world(backend, main)


@pytest.mark.parametrize("batch", [None, Batch(4, seconds=1), Batch(4, seconds=1, split=True)])
def test_a_failed_record_is_passed_after_its_policy(
    backend: str, database: Database, batch: Batch | None
) -> None:
    failed: list[int] = []

    async def handler(load: Any, cursor: Any) -> None:
        for record in load if batch else [load]:
            await insert(record, cursor)
            if record.value == b"f":
                raise OSError

    async def main(world: World) -> None:
        def keep(record: Record, error: Exception, attempts: int) -> None:
            failed.append(record.offset)

        world.produce(*"abcdef")
        await run_until(world, database, 6, handler, batch=batch, failed=keep)
        whole = batch is not None and not batch.split
        assert failed == ([4, 5] if whole else [5])
        assert database.results() == ALL[: 4 if whole else 5]

    in_world(backend, main)


def test_a_leave_waits_for_the_end_of_a_failed_record(backend: str, database: Database) -> None:
    away_until = 0.0

    class Away(Gaps):
        async def before_transaction(self) -> None:
            if anyio.current_time() < away_until:
                raise OSError("away")

    async def refuse(record: Record, cursor: Any) -> None:
        raise LookupError("only here")

    async def main(world: World) -> None:
        consumer = world.consumer()

        def keep(record: Record, error: Exception, attempts: int) -> None:
            nonlocal away_until
            away_until = anyio.current_time() + 2
            consumer.wakeup()

        world.produce("a")
        store = Away(database).store()
        await process(consumer, refuse, failed=keep, offsets=store, handle_signals=False)
        assert stored(database) == 1
        world.produce("b")
        await run_until(world, database, 2)
        assert database.results() == [(0, 1)]

    in_world(backend, main)


def owner(world: World) -> AsyncKafkaConsumer[bytes, bytes]:
    """Return a consumer that owns partition 0 whatever others do, as a suspended member does."""
    consumer = world.consumer(subscribe=False)
    consumer.assign([TP])
    return consumer


def test_a_suspended_owner_is_refused_and_goes_on(
    backend: str, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(world: World) -> None:
        suspended, go_on = anyio.Event(), anyio.Event()

        class Suspended(Gaps):
            async def before_transaction(self) -> None:
                if len(handled) == 2 and not suspended.is_set():
                    suspended.set()
                    await go_on.wait()

        handled: list[int] = []

        async def handler(record: Record, cursor: Any) -> None:
            await insert(record, cursor)
            handled.append(record.offset)

        world.produce(*"abcdef")
        async with processing(owner(world), handler, offsets=Suspended(database).store()):
            await suspended.wait()
            async with processing(owner(world), insert, offsets=Gaps(database).store()):
                await until(lambda: stored(database) == 6)
            go_on.set()
            world.produce("g")
            await until(lambda: stored(database) == 7)
        assert handled == [0, 1, 6]
        assert database.results() == [*ALL, (0, 6)]

    in_world(backend, main)
    assert "another owner of the partition has stored the results up to offset 6" in caplog.text


@pytest.mark.parametrize("kind", KINDS)
def test_owners_at_the_same_time_store_each_record_once(
    backend: str, database: Database, kind: str
) -> None:
    async def main(world: World) -> None:
        world.produce(*(f"{n}" for n in range(60)))
        owners = [Gaps(database) for _ in range(3)]
        async with AsyncExitStack() as stack:
            for each in owners:
                running = processing(owner(world), offsets=each.store(), **KINDS[kind])
                await stack.enter_async_context(running)
            await until(lambda: stored(database) == 60)
        assert sum("close" in each.calls for each in owners) == 3

    in_world(backend, main)
    assert database.results() == [(0, n) for n in range(60)]


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_retention_past_the_stored_offset_is_logged(
    backend: str, database: Database, caplog: pytest.LogCaptureFixture, reset: str
) -> None:
    async def main(world: World) -> None:
        world.cluster.create_topic("old", configs={"retention.ms": "100000"})
        world.cluster.produce("old", ["a", "b"], partition=0)
        await run_until(world, database, 2, consumer=world.consumer("old"))
        for value in "cdef":
            world.cluster.produce("old", [value], partition=0)
        await anyio.sleep(200)
        world.cluster.produce("old", ["g"], partition=0)
        world.cluster.delete_old_records("old")
        consumer = world.consumer("old", auto_offset_reset=reset)
        await run_until(world, database, 7, consumer=consumer)
        assert database.results() == [(0, 0), (0, 1), (0, 6)]

    in_world(backend, main)
    assert "the offsets from 2 to 5 were deleted before they were handled" in caplog.text


def test_retention_is_an_error_without_a_reset(backend: str, database: Database) -> None:
    async def main(world: World) -> None:
        world.cluster.create_topic("old", configs={"retention.ms": "100000"})
        for value in "abcd":
            world.cluster.produce("old", [value], partition=0)
        await run_until(world, database, 4, consumer=world.consumer("old"))
        database.change("UPDATE kohort_offsets SET next_offset = 1")
        await anyio.sleep(200)
        world.cluster.delete_old_records("old")
        consumer = world.consumer("old", auto_offset_reset="none")
        with pytest.raises(OffsetOutOfRangeError):
            await process(consumer, insert, offsets=Gaps(database).store())

    in_world(backend, main)


@pytest.mark.parametrize("reset", ["earliest", "none"])
@pytest.mark.parametrize("while_running", [False, True])
def test_a_topic_created_again_is_an_error(
    backend: str, database: Database, while_running: bool, reset: str
) -> None:
    async def main(world: World) -> None:
        def create_again() -> None:
            world.cluster.delete_topic("orders")
            world.cluster.create_topic("orders", 1)
            world.produce(*"uvwxyz")

        world.produce("a", "b", "c")
        await run_until(world, database, 3)
        consumer = world.consumer(auto_offset_reset=reset)
        if not while_running:
            create_again()
        with pytest.raises((TopicRecreatedError, BaseExceptionGroup)) as raised:
            async with processing(consumer, insert, offsets=Gaps(database).store()):
                await until(lambda: consumer.positions().get(TP) == 3)
                create_again()
                await anyio.sleep_forever()
        error = raised.value
        while isinstance(error, BaseExceptionGroup):
            (error,) = error.exceptions
        assert isinstance(error, TopicRecreatedError)
        assert error.old_topic_id != error.new_topic_id
        assert database.results() == ALL[:3]
        assert database.next_offsets() == {0: 3}

    in_world(backend, main)


def test_a_log_that_ends_before_the_stored_offset_is_an_error(
    backend: str, database: Database
) -> None:
    async def main(world: World) -> None:
        world.produce("a")
        await run_until(world, database, 1)
        database.change("UPDATE kohort_offsets SET next_offset = 5")
        with pytest.raises(OffsetConflictError, match="its log ends at 1") as raised:
            await process(world.consumer(), insert, offsets=Gaps(database).store())
        assert raised.value.stored == 5

    in_world(backend, main)


def test_a_seek_back_is_an_error(backend: str, database: Database) -> None:
    async def main(world: World) -> None:
        world.produce("a", "b")
        consumer = world.consumer()

        async def handler(record: Record, cursor: Any) -> None:
            await insert(record, cursor)
            if record.offset == 1:
                consumer.seek(TP, 0)

        with pytest.raises(OffsetConflictError, match="went back to offset 0"):
            await process(consumer, handler, offsets=Gaps(database).store())
        assert database.results() == [(0, 0), (0, 1)]

    in_world(backend, main)


@pytest.mark.parametrize("change", ["SET next_offset = 1", "SET topic_id = ''", None])
def test_a_changed_table_is_an_error(backend: str, database: Database, change: str | None) -> None:
    async def main(world: World) -> None:
        world.produce("a", "b")

        async def tamper() -> None:
            await until(lambda: stored(database) == 2)
            database.change(
                f"UPDATE kohort_offsets {change}" if change else "DELETE FROM kohort_offsets"
            )
            world.produce("c")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(tamper)
            with pytest.raises(OffsetConflictError, match="was replaced by"):
                await process(world.consumer(), insert, offsets=Gaps(database).store())
        assert database.results() == [(0, 0), (0, 1)]

    in_world(backend, main)


def test_a_database_that_is_away_is_waited_for(backend: str, database: Database) -> None:
    class Away(Gaps):
        async def before_transaction(self) -> None:
            if anyio.current_time() < 20 + began:
                raise OSError("away")

    began = 0.0

    async def main(world: World) -> None:
        nonlocal began
        began = anyio.current_time()
        world.produce("a", "b")
        store = Away(database).store()
        async with processing(world.consumer(), insert, offsets=store, retry=Retry(None)):
            await until(lambda: stored(database) == 2)
        with pytest.raises(OSError, match="away"):
            began = anyio.current_time()
            await process(world.consumer(), insert, offsets=Away(database).store())

    in_world(backend, main)


def test_a_lock_of_another_transaction_is_waited_for(backend: str, database: Database) -> None:
    class Deadlock(Exception):
        sqlstate = "40P01"

    refused = 0

    async def handler(record: Record, cursor: Any) -> None:
        nonlocal refused
        await insert(record, cursor)
        if refused < limit:
            refused += 1
            raise Deadlock

    async def main(world: World) -> None:
        world.produce("a")
        await run_until(world, database, 1, handler)
        assert database.results() == [(0, 0)]

    limit = 5
    in_world(backend, main)
    assert refused == 5


def test_a_plain_function_needs_a_plain_connection(backend: str, database: Database) -> None:
    async def main(world: World) -> None:
        def plain(record: Record, cursor: Any) -> None: ...

        for handler, store in (
            (insert, SqlOffsets(database.connect)),
            (plain, Gaps(database).store()),
        ):
            with pytest.raises(ConfigurationError, match="asynchronous connection"):
                await process(world.consumer(), handler, offsets=store)

    if backend == "asyncio":  # a thread needs a clock that goes on
        anyio.run(lambda: in_memory(main))


async def in_memory(main: Callable[[World], Any]) -> None:
    async with MemoryCluster(topics={"orders": 1}) as cluster:
        await main(World(cluster))
