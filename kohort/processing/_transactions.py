"""Transactions of results and offsets for a loop of the program, without process().

A transaction opens with the exchange of the stored offset, as in ``_stored.py``. Then the block of
the program runs with the cursor. If the block or the commit raises, the consumer seeks back to the
stored offset, so the next poll returns the records again.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Generic, TypeVar

import anyio

from kohort import AsyncKafkaConsumer, ConsumerRecord, KafkaConsumer, TopicPartition
from kohort.errors import ConfigurationError, IllegalStateError, OffsetConflictError
from kohort.processing import _consumer
from kohort.processing._batches import end_of
from kohort.processing._stored import StoredOffsets
from kohort.processing.stores import (
    Handover,
    SqlOffsets,
    Steps,
    await_steps,
    open_session,
    run_steps,
)

C = TypeVar("C", AsyncKafkaConsumer[Any, Any], KafkaConsumer[Any, Any])


class _Transactions(Generic[C]):
    """The part that is the same for both APIs."""

    def __init__(self, consumer: C, offsets: SqlOffsets) -> None:
        is_async = isinstance(consumer, AsyncKafkaConsumer)
        if not isinstance(offsets, SqlOffsets):
            raise ConfigurationError(
                f"{type(self).__name__}(consumer, {offsets!r}) is wrong: use SqlOffsets(connect)"
            )
        _consumer.check_group(consumer)
        self._consumer: C = consumer
        group = _consumer.group_id(consumer)
        self._session = open_session(offsets, group, is_async=is_async)
        pause: Any = anyio.sleep if is_async else time.sleep
        self._stored = StoredOffsets(self._session, print, pause, is_async=is_async)

    def _steps(
        self, tp: TopicPartition, records: Sequence[ConsumerRecord[Any, Any]]
    ) -> Steps[None]:
        """Replace the stored offset by the end of the records, around the block."""
        stored, consumer = self._stored, self._consumer
        if (at := stored.known(tp)) is None:
            raise IllegalStateError(
                f"no stored offset is known for {tp.topic}-{tp.partition}: use this object as the "
                "listener of subscribe()"
            )
        stored.check_id(tp, at, _consumer.position_ids(consumer, [tp])[tp])
        try:
            if records[0].offset < at.offset:
                raise OffsetConflictError(
                    f"{tp.topic}-{tp.partition} is at offset {records[0].offset}, and the results "
                    f"up to offset {at.offset} are stored. The consumer seeks to that offset",
                    topic_partition=tp,
                    expected=records[0].offset,
                    stored=at.offset,
                )
            end = end_of(records[-1])
            yield from self._session.write(tp, at, end, Handover)
        except OffsetConflictError as error:
            yield from stored.note_conflict(tp, at, error)
            self._seek_back(tp)
            raise
        except BaseException:
            self._seek_back(tp)
            raise
        stored.advance_to(tp, end)

    def _seek_back(self, tp: TopicPartition) -> None:
        at = self._stored.known(tp)
        if at is not None and tp in self._consumer.assignment():
            self._consumer.seek(tp, at.offset)


class SqlTransactions(_Transactions[KafkaConsumer[Any, Any]]):
    """Results and offsets of a KafkaConsumer in one transaction, for a loop of the program.

    Give it to ``subscribe()`` as the listener. New partitions then begin at their stored offsets.
    :meth:`transaction` stores the results of polled records together with their end.
    """

    def __init__(self, consumer: KafkaConsumer[Any, Any], offsets: SqlOffsets) -> None:
        super().__init__(consumer, offsets)

    def on_partitions_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """Seek to the stored offsets."""
        if tps := sorted(partitions):
            run_steps(self._stored.admit(self._consumer, tps, run_steps))

    def on_partitions_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget the offsets, which another owner may replace."""
        self._stored.forget(partitions)

    @contextmanager
    def transaction(
        self, tp: TopicPartition, records: Sequence[ConsumerRecord[Any, Any]]
    ) -> Iterator[Any]:
        """Run a block with a cursor, and commit what it writes with the end of the records.

        ``records`` are all those that a poll returned for the partition. If the block raises,
        nothing is stored, and the next poll returns them again.

        Raises OffsetConflictError, before the block, if another owner has stored results. The
        consumer then goes on after these.
        """
        steps = self._steps(tp, records)
        handover: Any = run_steps(steps)
        try:
            yield handover.cursor
        except BaseException as error:
            run_steps(steps, error=error)
        else:
            run_steps(steps)

    def close(self) -> None:
        """Close the connections of the database."""
        run_steps(self._stored.close())


class AsyncSqlTransactions(_Transactions[AsyncKafkaConsumer[Any, Any]]):
    """The same for an AsyncKafkaConsumer and a database with asynchronous connections."""

    def __init__(self, consumer: AsyncKafkaConsumer[Any, Any], offsets: SqlOffsets) -> None:
        super().__init__(consumer, offsets)

    async def on_partitions_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """Seek to the stored offsets."""
        if tps := sorted(partitions):
            await await_steps(self._stored.admit(self._consumer, tps, await_steps))

    async def on_partitions_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget the offsets, which another owner may replace."""
        self._stored.forget(partitions)

    @asynccontextmanager
    async def transaction(
        self, tp: TopicPartition, records: Sequence[ConsumerRecord[Any, Any]]
    ) -> AsyncIterator[Any]:
        """Run a block with a cursor, and commit what it writes with the end of the records.

        The block and the errors are those of :meth:`SqlTransactions.transaction`.
        """
        steps = self._steps(tp, records)
        handover: Any = await await_steps(steps)
        try:
            yield handover.cursor
        except BaseException as error:
            await await_steps(steps, error=error)
        else:
            await await_steps(steps)

    async def close(self) -> None:
        """Close the connections of the database."""
        await await_steps(self._stored.close())
