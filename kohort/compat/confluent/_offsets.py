"""Stored and committed offsets of a consumer, which commits what the program has got."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from kohort import KafkaConsumer as NativeConsumer
from kohort import OffsetAndMetadata
from kohort import TopicPartition as NativePartition
from kohort.compat.confluent._buffer import Buffer
from kohort.compat.confluent._errors import to_error
from kohort.compat.confluent._values import (
    KafkaError,
    TopicPartition,
    committed_metadata,
    partition,
    to_commit,
)
from kohort.errors import KafkaError as NativeError
from kohort.logs import error_text, get_logger

logger = get_logger("kohort.compat")

Offsets = dict[NativePartition, OffsetAndMetadata]


class OffsetStore:
    """The offsets that the next commit without arguments commits.

    With ``enable.auto.offset.store`` these follow the delivered messages, otherwise
    ``store_offsets()`` sets them.
    """

    def __init__(
        self,
        native: NativeConsumer[Any, Any],
        buffer: Buffer,
        on_commit: Callable[..., Any] | None,
        *,
        follows: bool,
        interval: float | None,
    ) -> None:
        """Take the time between automatic commits as ``interval``, or None for none."""
        self._native = native
        self._buffer = buffer
        self._on_commit = on_commit
        self._follows = follows
        self._interval = interval
        self._due = 0.0
        self._stored: Offsets = {}
        self._committed: dict[NativePartition, int] = {}

    def store(self, offsets: Mapping[NativePartition, OffsetAndMetadata]) -> None:
        """Set the offsets of partitions."""
        self._stored.update(offsets)

    def forget(self, partitions: Collection[NativePartition]) -> None:
        """Drop what is known of partitions that are no longer assigned."""
        for tp in partitions:
            self._stored.pop(tp, None)
            self._committed.pop(tp, None)

    def stored(self) -> Offsets:
        """Return the stored offsets of all partitions."""
        if not self._follows:
            return dict(self._stored)
        return {
            tp: OffsetAndMetadata(last.offset() + 1, "", _epoch(last))
            for tp, last in self._buffer.last.items()
        }

    def _changed(self, chosen: Collection[NativePartition] | None = None) -> Offsets:
        """Return the stored offsets that were not committed yet."""
        return {
            tp: at
            for tp, at in self.stored().items()
            if self._committed.get(tp) != at.offset and (chosen is None or tp in chosen)
        }

    def commit(self, offsets: Offsets | None) -> list[TopicPartition] | None:
        """Commit these or the stored offsets, and wait. Return None if there are none."""
        wanted = self._changed() if offsets is None else offsets
        if not wanted:
            return None
        self._native.commit(wanted)
        self._note(wanted)
        return to_partitions(wanted)

    def commit_soon(self, offsets: Offsets | None, assigned: Iterable[NativePartition]) -> None:
        """Commit these or the stored offsets without waiting. ``on_commit`` gets the outcome."""
        wanted = self._changed() if offsets is None else offsets
        if not wanted:
            if self._on_commit is not None:
                none = [partition(*tp) for tp in assigned]
                self._on_commit(KafkaError(KafkaError._NO_OFFSET), none)
            return
        self._note(wanted)
        self._native.commit_async(wanted, self._finished)

    def commit_by_time(self, now: float) -> None:
        """Commit the stored offsets if that is automatic and due."""
        if self._interval is None or now < self._due:
            return
        if self._due and (wanted := self._changed()):
            self._note(wanted)
            self._native.commit_async(wanted, self._finished)
        self._due = now + self._interval

    def commit_last(self, partitions: Collection[NativePartition]) -> None:
        """Commit the stored offsets of partitions that are being given away, if automatic."""
        if self._interval is None or not (wanted := self._changed(partitions)):
            return
        error = None
        try:
            self._native.commit(wanted)
        except NativeError as raised:
            error = raised
        self._finished(wanted, error)

    def _note(self, offsets: Offsets) -> None:
        for tp, at in offsets.items():
            self._committed[tp] = at.offset

    def _finished(self, offsets: Any, error: Exception | None) -> None:
        if error is not None:
            logger.warning("commit failed: %s", error_text(error))
            for tp in offsets:
                self._committed.pop(tp, None)  # the next commit tries it again
        if self._on_commit is not None:
            found = None if error is None else _failed(error)
            self._on_commit(found, to_partitions(offsets, found))


def _failed(error: Exception) -> KafkaError:
    if isinstance(error, NativeError):
        return to_error(error)
    return KafkaError(KafkaError._FAIL, str(error))


def _epoch(message: Any) -> int:
    epoch = message.leader_epoch()
    return -1 if epoch is None else int(epoch)


def to_partitions(
    offsets: Mapping[NativePartition, OffsetAndMetadata], error: KafkaError | None = None
) -> list[TopicPartition]:
    """Return offsets in confluent-kafka's form."""
    return [
        partition(
            *tp,
            at.offset,
            metadata=committed_metadata(at),
            leader_epoch=at.leader_epoch,
            error=error,
        )
        for tp, at in offsets.items()
    ]


def from_message(message: Any) -> Offsets:
    """Return the offset after a message; nothing for one that has none."""
    if message.offset() is None:
        return {}
    tp = NativePartition(message.topic(), message.partition())
    return {tp: OffsetAndMetadata(message.offset() + 1, "", _epoch(message))}


def from_partitions(partitions: list[TopicPartition]) -> Offsets:
    """Return the offsets of partitions, without those that have no valid one."""
    found: Offsets = {}
    for tp in partitions:
        if not isinstance(tp, TopicPartition):
            raise TypeError("requires list of TopicPartition")
        if tp.offset >= 0:
            found[NativePartition(tp.topic, tp.partition)] = to_commit(tp)
    return found
