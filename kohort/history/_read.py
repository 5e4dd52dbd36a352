"""``read_history()``: the records of a group in ``__consumer_offsets``, and the lag of the past."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Unpack

from kohort.admin import KafkaAdminClient
from kohort.errors import GroupIdNotFoundError, TopicAuthorizationFailedError
from kohort.history._records import offsets_partition
from kohort.history._timeline import GroupHistory, LagPoint, Timeline
from kohort.reading import moment_ms, read_batches
from kohort.types import LazyModule, TopicPartition

if TYPE_CHECKING:
    from kohort import _options
    from kohort.records import RecordTable
else:
    _options = LazyModule("kohort._options")

OFFSETS = "__consumer_offsets"
Moment = str | datetime | timedelta


def read_history(
    group_id: str,
    *,
    since: Moment = "earliest",
    until: Moment = "latest",
    moments: int = 0,
    timeout_ms: float = 60_000,
    **options: Unpack[_options.AdminOptions],
) -> GroupHistory:
    """Return the history of a group: owners, rebalances with their causes, commits, lag.

    ``kohort.history.read_history("billing", since="-2h", bootstrap_servers="localhost:9092")``

    ``since`` and ``until`` are times with the forms of :func:`kohort.read`. ``moments`` is the
    number of past moments whose lag is computed, from the commits and from the offsets of the log
    at that time. ``options`` are those of an admin client, which needs to read the topic
    ``__consumer_offsets``.

    Raises GroupIdNotFoundError if the topic has no record of the group, and the errors of
    :func:`kohort.read`.
    """

    def batches(partition: int) -> Iterator[RecordTable]:
        return read_batches(OFFSETS, partitions=[partition], timeout_ms=timeout_ms, **options)

    with KafkaAdminClient(**options) as admin:
        return read_history_with(
            admin, batches, group_id, since, until, moments=moments, timeout_ms=timeout_ms
        )


def read_history_with(
    admin: KafkaAdminClient,
    batches: Callable[[int], Iterator[RecordTable]],
    group_id: str,
    since: Moment,
    until: Moment,
    *,
    moments: int,
    timeout_ms: float,
) -> GroupHistory:
    """Return the history with a client, and a function that reads a partition of the offsets."""
    now = time.time()
    first, last = moment_ms(since, now), moment_ms(until, now)
    topics = admin.describe_topics(timeout_ms=timeout_ms)
    if OFFSETS not in topics:  # brokers leave a topic out of the list without the right to see it
        error = admin.describe_topics(OFFSETS, timeout_ms).errors.get(OFFSETS)
        raise error if isinstance(error, TopicAuthorizationFailedError) else _unknown(group_id)
    names: dict[uuid.UUID, str] = {
        each.topic_id: name for name, each in topics.items() if each.topic_id is not None
    }
    partition = offsets_partition(group_id, len(topics[OFFSETS].partitions))
    rows = (
        row
        for table in batches(partition)
        for columns in table.batches
        for row in zip(columns.offset, columns.timestamp, columns.key, columns.value, strict=True)
    )
    until_ms = round(now * 1000) if last is None else last
    history = replay_history(group_id, names, rows, first or 0, until_ms)
    if history is None:
        raise _unknown(group_id)
    if moments:
        history = history._replace(lags=tuple(_lags(admin, history, moments, timeout_ms)))
    return history


def replay_history(
    group_id: str,
    names: Mapping[uuid.UUID, str],
    rows: Iterable[tuple[int, int, bytes | None, bytes | None]],
    since_ms: int,
    until_ms: int,
) -> GroupHistory | None:
    """Return the history in records of one partition. None if no record is of the group.

    A row has offset, timestamp, key and value. With ``since_ms`` 0 the history begins with its
    first change.
    """
    timeline = Timeline(group_id, names)
    for offset, at_ms, key, value in rows:
        timeline.add(offset, at_ms, key, value)
    history = timeline.finish(since_ms, until_ms)
    if history.protocol == "unknown" and not history.commits:
        return None
    if not since_ms:
        history = history._replace(since_ms=min(_times(history), default=until_ms))
    return history


def _unknown(group_id: str) -> GroupIdNotFoundError:
    return GroupIdNotFoundError(
        f"the topic {OFFSETS} has no record of a classic or consumer group {group_id!r}"
    )


def _times(history: GroupHistory) -> Iterator[int]:
    yield from (each.at_ms for each in history.events)
    yield from (each.start_ms for each in history.spans)
    yield from (each.at_ms for each in history.commits)


def _lags(
    admin: KafkaAdminClient, history: GroupHistory, moments: int, timeout_ms: float
) -> Iterator[LagPoint]:
    """Yield the lag of each partition with a commit, at moments of equal distance.

    The end of a log at a past moment is the first offset with a later timestamp.
    """
    span = history.until_ms - history.since_ms
    for number in range(1, moments + 1):
        at_ms = history.since_ms + span * number // moments
        committed = history.committed_at(at_ms)
        if not committed:
            continue
        later: dict[TopicPartition, int] = dict.fromkeys(committed, at_ms + 1)
        found = admin.list_partition_offsets(later, timeout_ms=timeout_ms)
        latest = [tp for tp, end in found.items() if end is None]
        ends = admin.list_partition_offsets(dict.fromkeys(latest, -1), timeout_ms=timeout_ms)
        for tp, offset in committed.items():
            end = found.get(tp) or ends.get(tp)
            if end is not None:
                yield LagPoint(at_ms, tp, max(0, end.offset - offset))
