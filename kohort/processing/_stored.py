"""Exactly-once handling: process() with results and offsets in one transaction of a store.

Theory of operation. A store has one offset for each group and partition, and the id of the topic.
``admit()`` runs when partitions are assigned. It reads their offsets, and seeks. A partition
without an offset gets that of its position, so its start is fixed before its first record.
``handle()`` runs for each load. In one transaction it replaces the stored offset by the end of the
load, if it is still the known one, and calls the handler.

Invariants:

1. A stored offset n means that the results of all records from the start to n - 1 are stored, and
   of no others. Nothing else decides where a partition begins. Offsets in Kafka follow, for tools.
2. The compare-and-swap of the offset is the fence between owners. It needs no help of the group. A
   former owner that is suspended, and goes on later, cannot store a result twice.
3. A refused owner reads the offset again. If it is higher, others have stored the records below it,
   which are skipped. If it is lower or missing, someone changed the table, and process() stops.
4. Records of a load may be skipped only by rule 3. So a position that goes back, by a seek or a
   reset, stops process(). So does a topic that was created again: offsets of the former topic say
   nothing about the new one.
5. The policy of a failed record returns before the end of the record is stored, so no letter is
   lost. If a crash or an outage of the store prevents the second step, the next owner handles the
   record again. So a letter may be repeated, or stand beside a result.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias
from uuid import UUID

from kohort import KafkaError, TopicPartition
from kohort.errors import ConfigurationError, OffsetConflictError, TopicRecreatedError
from kohort.processing import _consumer
from kohort.processing._batches import Chunk, end_of, table_of
from kohort.processing._policies import Skip
from kohort.processing._reports import logger
from kohort.processing.stores import Steps, StoredOffset, StoreSession

MAX_CONFLICTS = 8
"""Attempts at one load while the stored offset stays the expected one, as in a locked row."""
MAX_FAILURES = 8
"""Attempts to store the end of a record whose policy has returned: for about five seconds."""
FIRST_PAUSE = 0.02
"""Half of the seconds after the first attempt. Each later pause is twice as long."""

InStore: TypeAlias = Callable[[Steps[Any]], Any]
"""Runs steps of a store, and returns the result, or an awaitable of it."""


class StoredOffsets:
    """The loads and offsets of one call of process(). See the top of the module."""

    def __init__(
        self,
        session: StoreSession,
        handler: Callable[..., Any],
        pause: Callable[[float], Any],
        *,
        is_async: bool,
    ) -> None:
        self._session = session
        self._handler = handler
        self._pause = pause
        self.is_async: bool = is_async
        """True if the handler is a coroutine function."""
        self._known: dict[TopicPartition, StoredOffset] = {}
        self._polled: dict[TopicPartition, int] = {}
        """The lowest offset that the next poll may return."""
        self._policy_done: set[tuple[TopicPartition, int]] = set()
        """The records whose policy has returned, and whose end is not stored yet."""
        self._error: Exception | None = None
        """The error of a poll whose records were not handled, so that no later ones are."""

    def close(self) -> Steps[None]:
        """Close the session."""
        yield from self._session.close()

    # -- partitions -------------------------------------------------------------------------------

    def admit(
        self, consumer: _consumer.AnyConsumer, tps: list[TopicPartition], in_store: InStore
    ) -> Steps[None]:
        """Let a consumer begin at the stored offsets of new partitions.

        ``in_store`` runs steps of the store. This has the calls of the consumer beside them.
        """
        session = self._session
        ids: dict[str, UUID] = yield consumer.topic_ids(sorted({tp.topic for tp in tps}))
        found: dict[TopicPartition, StoredOffset] = yield in_store(session.read(tps))
        missing = [tp for tp in tps if tp not in found]
        for tp in missing:
            position: int = yield consumer.position(tp)
            at = StoredOffset(position, str(ids.get(tp.topic, "")))
            found[tp] = yield in_store(self._begin(tp, at))
        first: dict[TopicPartition, int] = yield consumer.beginning_offsets(tps)
        last: dict[TopicPartition, int] = yield consumer.end_offsets(tps)
        is_reset = _consumer.is_reset(consumer)
        for tp in tps:
            self.check_id(tp, found[tp], ids.get(tp.topic))
            start = _start_of(tp, found[tp].offset, first[tp], last[tp], is_reset=is_reset)
            consumer.seek(tp, start)
            self._known[tp], self._polled[tp] = found[tp], start

    def check(
        self,
        consumer: _consumer.AnyConsumer,
        polled: Mapping[TopicPartition, Sequence[Any]],
    ) -> None:
        """Raise an error if a poll returned what must not be handled, by rule 4."""
        if self._error is not None:
            raise self._error
        ids = _consumer.position_ids(consumer, polled) if polled else {}
        for tp, records in polled.items():
            if (least := self._polled.get(tp)) is None:
                continue  # not admitted, so no record of it is handled
            try:
                self.check_id(tp, self._known[tp], ids[tp])
                if records[0].offset < least:
                    raise OffsetConflictError(
                        f"{tp.topic}-{tp.partition} went back to offset {records[0].offset} by a "
                        f"seek or a reset, and records up to offset {least} are handled. To "
                        "handle some again, stop process(), and correct results and offset",
                        topic_partition=tp,
                        expected=least,
                        stored=self._known[tp].offset,
                    )
            except KafkaError as error:
                self._error = error
                raise
            self._polled[tp] = end_of(records[-1])

    def check_id(self, tp: TopicPartition, at: StoredOffset, now: UUID | None) -> None:
        """Raise TopicRecreatedError if a stored offset belongs to another topic."""
        if now is None or not at.topic_id or at.topic_id == str(now):
            return
        raise TopicRecreatedError(
            f"{tp.topic} was deleted and created again. The stored offset {at.offset} of "
            f"partition {tp.partition} belongs to the topic with the id {at.topic_id}, and the id "
            f"is now {now}. Delete the stored offsets of the topic to begin with the new one",
            topic_partition=tp,
            offset=at.offset,
            old_topic_id=UUID(at.topic_id),
            new_topic_id=now,
        )

    def known(self, tp: TopicPartition) -> StoredOffset | None:
        """Return the stored offset of an admitted partition, as far as it is known here."""
        return self._known.get(tp)

    def advance_to(self, tp: TopicPartition, end: int) -> None:
        """Note that a transaction has stored the results up to an offset."""
        self._known[tp] = self._known[tp]._replace(offset=end)

    def forget(self, tps: Iterable[TopicPartition]) -> None:
        """Forget partitions that others may own."""
        for tp in tps:
            self._known.pop(tp, None)

    def _begin(self, tp: TopicPartition, at: StoredOffset) -> Steps[StoredOffset]:
        """Store the first offset of a partition, unless another has. Return what is stored."""
        conflicts = 0
        while True:
            try:
                yield from self._session.begin(tp, at)
            except OffsetConflictError:
                conflicts += 1
                if conflicts == MAX_CONFLICTS:
                    raise
                yield self._pause(FIRST_PAUSE * 2**conflicts)
            if (found := (yield from self._session.read([tp])).get(tp)) is not None:
                return found

    # -- loads ------------------------------------------------------------------------------------

    def handle(self, load: Any) -> Steps[None]:
        """Call the handler for a load, and store its results and its end."""
        try:
            yield from self._store(load, self._work)
        except Skip:
            yield from self._store(load, None)
            raise

    def advance(self, load: Any) -> Steps[None]:
        """Store the end of a record that has failed for good, after the policy has returned.

        A failure is tried again at once, before a drain ends, because the policy cannot be undone.
        After the last one this is called later, and :meth:`is_policy_done` is True until then.
        """
        key = _partition_and_offset(load)
        self._policy_done.add(key)
        failures = 0
        while key in self._policy_done:
            try:
                yield from self._store(load, None)
            except KafkaError:
                raise
            except Exception:
                failures += 1
                if failures == MAX_FAILURES:
                    raise
                yield self._pause(FIRST_PAUSE * 2**failures)
            else:
                self._policy_done.discard(key)

    def is_policy_done(self, record: Any) -> bool:
        """True if the policy has returned for a record whose end is not stored yet."""
        return _partition_and_offset(record) in self._policy_done

    def _store(self, load: Any, work: Callable[[Any, Any], Any] | None) -> Steps[None]:
        first = load[0] if isinstance(load, list) else load
        tp = TopicPartition(first.topic, first.partition)
        conflicts = 0
        while (rest := _after(load, self._known[tp].offset)) is not None:
            at = self._known[tp]
            end = end_of(rest[-1] if isinstance(rest, list) else rest)
            try:
                yield from self._session.write(
                    tp, at, end, None if work is None else _bound(work, rest)
                )
            except OffsetConflictError as error:
                yield from self.note_conflict(tp, at, error)
                if self._known[tp] == at:
                    conflicts += 1
                    if conflicts == MAX_CONFLICTS:
                        raise
                    yield self._pause(FIRST_PAUSE * 2**conflicts)
            else:
                self.advance_to(tp, end)

    def note_conflict(
        self, tp: TopicPartition, at: StoredOffset, error: OffsetConflictError
    ) -> Steps[None]:
        """Read the offset of a refused transaction again. Raise if it does not lead on."""
        found = (yield from self._session.read([tp])).get(tp)
        if found is None or found.offset < at.offset or found.topic_id != at.topic_id:
            raise OffsetConflictError(
                f"{tp.topic}-{tp.partition}: the stored offset {at.offset} was replaced by "
                f"{'nothing' if found is None else found}. Nothing was stored. Start process() "
                "again to go on from the present state of the store",
                topic_partition=tp,
                expected=at.offset,
                stored=None if found is None else found.offset,
            ) from error
        if found.offset > at.offset:
            logger.warning(
                "%s-%d: another owner of the partition has stored the results up to offset %d. "
                "The transaction from offset %d on was rolled back, and what is stored is skipped",
                tp.topic,
                tp.partition,
                found.offset,
                at.offset,
            )
        self._known[tp] = found

    def _work(self, load: Any, cursor: Any) -> Any:
        whole = isinstance(load, list) and isinstance(load[0], Chunk)
        argument = table_of(load) if whole else load
        with_cursor = (cursor,) if self._session.has_cursor else ()
        result = self._handler(argument, *with_cursor)
        if inspect.isawaitable(result) != self.is_async:
            if inspect.iscoroutine(result):
                result.close()
            raise ConfigurationError(
                f"process(offsets=...) does not know whether the handler {self._handler!r} is "
                "asynchronous. Use a function of 'def' or 'async def'"
            )
        return result


def _partition_and_offset(record: Any) -> tuple[TopicPartition, int]:
    return TopicPartition(record.topic, record.partition), record.offset


def _start_of(tp: TopicPartition, stored: int, first: int, last: int, *, is_reset: bool) -> int:
    """Return where a partition with this stored offset begins, by the ends of its log."""
    place = f"{tp.topic}-{tp.partition}"
    if stored > last:
        raise OffsetConflictError(
            f"{place} cannot begin at the stored offset {stored}: its log ends at {last}, so it "
            "has lost records whose results are stored. Correct the results and the stored offset",
            topic_partition=tp,
            expected=last,
            stored=stored,
        )
    if stored >= first or not is_reset:
        return stored
    logger.warning(
        "%s-%d: the offsets from %d to %d were deleted before they were handled. process() begins "
        "at offset %d",
        *tp,
        stored,
        first - 1,
        first,
    )
    return first


def _bound(work: Callable[[Any, Any], Any], load: Any) -> Callable[[Any], Any]:
    return lambda cursor: work(load, cursor)


def _after(load: Any, offset: int) -> Any:
    """Return the part of a load from an offset on; None if there is none."""
    if not isinstance(load, list):
        return load if load.offset >= offset else None
    if load[0].offset >= offset:
        return load
    kept: list[Any] = []
    for piece in load:
        if isinstance(piece, Chunk) and piece.offset < offset < piece.end:
            offsets = piece.columns.offset
            rows = range(piece.start, piece.start + piece.rows)
            done = sum(offsets[row] < offset for row in rows)
            kept.append(piece.split(done)[1])
        elif piece.offset >= offset:
            kept.append(piece)
    return kept or None
