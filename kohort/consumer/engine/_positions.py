"""The lookup of first positions: the committed offset, or else the rules of the offset reset.

A partition has two offsets. The position is the next offset to return. It moves on the caller's
thread, together with the return of records. The fetch offset is the next offset to fetch, ahead of
the position. PositionFinder sets the first one of both. Without a committed offset
FirstPositionRules chooses. TopicBaseline has what the metadata showed when the subscription began.
A topic or partition that comes later is new, and read from its beginning by default.

Invariants:

1. A seek or a revocation raises the epoch of a partition under the lock of the subscription. Data
   and look-ups of an earlier epoch are dropped. A pause keeps the buffer.
2. The rule is looked up when the offset is requested, because then the metadata is known.
3. A position is valid under the epoch of a leader. Under a later epoch nothing more is fetched
   before its validation (``fetcher/_validation``). ``poll()`` still returns what was fetched
   before.
4. A position belongs to the id of its topic (``subscription/_topic_ids``). TopicWatch passes the
   ids on before any other part reads new metadata.
5. A recreated topic is neither fetched nor committed under the old position. Its error follows the
   fetched data in the queue (``fetcher/_recreated``). So the change happens inside ``poll()``.
6. A look-up belongs to the id at the time of its request. After another id it is made again.
7. In the first generation of a group, the committed offsets may be read before the assignment. The
   result counts for the next look-up only, with the same membership, partitions and ids. Between
   JoinGroup and SyncGroup no member can commit.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Callable, Collection, Mapping

import anyio

from kohort.config import ConsumerConfig, FetchConfig
from kohort.consumer.engine._error_reports import ErrorReports
from kohort.consumer.engine._group_adapter import GroupAdapter
from kohort.consumer.engine._requests import OffsetRequests, TimeLimit
from kohort.errors import (
    ErrorCode,
    GroupAuthorizationFailedError,
    KafkaError,
    NoOffsetForPartitionError,
    NotAssignedError,
    SecurityError,
)
from kohort.fetcher import Fetcher, denied_topics_error
from kohort.logs import error_text, get_logger
from kohort.subscription import NO_ID, OffsetReset, SubscriptionState
from kohort.transport import (
    SYSTEM_RNG,
    Backoff,
    ClusterMetadata,
    OneShot,
    RepeatedLog,
    TaskSignal,
    TopicMetadata,
)
from kohort.types import NamedTuple, OffsetAndMetadata, TopicPartition

logger = get_logger("kohort.consumer")

UPDATES_UNTIL_KNOWN = 3
"""Number of metadata updates without a partition after which it counts as new in any case.

Before that it counts as new only in leader epoch 0, because a broker that has just started may not
know all partitions."""
ABSENT_CODES = (
    ErrorCode.NONE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
)
"""The error codes of a topic without partitions: it does not exist or is being created."""


class _SeenTopic:
    """The state of a topic when its subscription began."""

    __slots__ = ("partitions", "topic_id", "updates")

    def __init__(self, topic_id: bytes, partitions: set[int], answers: int) -> None:
        self.topic_id = topic_id
        self.partitions = partitions
        self.updates = answers


class TopicBaseline:
    """The topics and partitions that existed when the subscription began.

    Topics that are no longer subscribed to are removed. A pattern covers all topics from its first
    metadata on, so a topic that it matches later did not exist before.
    """

    def __init__(self) -> None:
        self._topics: dict[str, _SeenTopic] = {}
        self._pattern: object = None
        self._updates = 0
        self._latest: ClusterMetadata | None = None

    def observe(
        self, metadata: ClusterMetadata, wanted: Collection[str], pattern: object = None
    ) -> None:
        """Add the wanted topics as the metadata shows them. ``pattern`` is what matched them."""
        if pattern is not self._pattern:
            self._pattern, self._updates = pattern, 0
            self._topics.clear()
        if pattern is None:
            for topic in [topic for topic in self._topics if topic not in wanted]:
                del self._topics[topic]
        later = pattern is not None and self._updates > 0
        answered = metadata is not self._latest
        self._updates += answered or not later
        self._latest = metadata
        for topic in wanted:
            known = metadata.topics.get(topic)
            if known is None or (known.error not in ABSENT_CODES and not known.partitions):
                continue
            seen = self._topics.get(topic)
            if seen is None:
                seen = self._topics[topic] = _SeenTopic(NO_ID, set(), self._updates if later else 0)
                if not later:
                    seen.partitions.update(known.partitions)
            if seen.updates < UPDATES_UNTIL_KNOWN:
                seen.partitions.update(_not_new(known, seen))
            if known.partitions and seen.topic_id == NO_ID:
                seen.topic_id = known.topic_id
            seen.updates += answered

    def is_new(self, tp: TopicPartition, topic_id: bytes) -> bool | None:
        """Return True if the partition did not exist; None while that is unknown."""
        seen = self._topics.get(tp.topic)
        if seen is None:
            return None
        other = NO_ID not in (topic_id, seen.topic_id) and topic_id != seen.topic_id
        return other or tp.partition not in seen.partitions


def _not_new(known: TopicMetadata, seen: _SeenTopic) -> Collection[int]:
    """Return the partitions that appeared late, if one of them has had several leaders."""
    if seen.topic_id not in (NO_ID, known.topic_id):
        return ()
    late: Mapping[int, int] = {
        number: partition.leader_epoch
        for number, partition in known.partitions.items()
        if number not in seen.partitions
    }
    return late if any(epoch > 0 for epoch in late.values()) else ()


class FirstPositionRules:
    """The rules for the first position of each partition."""

    def __init__(self, subscription: SubscriptionState, config: FetchConfig) -> None:
        self.baseline = TopicBaseline()
        self._subscription = subscription
        self._rule_for_new = _rule_for_new_partitions(config)

    def rule_for(self, tp: TopicPartition) -> OffsetReset | None:
        """Return the rule for a partition without a committed offset; None while unknown."""
        subscription = self._subscription
        history, rule = subscription.history, subscription.default_reset
        old, now = history.last_position_id(tp), history.current_id(tp.topic)
        if NO_ID not in (old, now) and old != now:
            return self._rule_for_recreated(tp.topic, old, now)
        if rule == self._rule_for_new:
            return rule
        new = self.baseline.is_new(tp, now)
        if new is None:
            return None
        return self._rule_for_new if new else rule

    def _rule_for_recreated(self, topic: str, old: bytes, now: bytes) -> OffsetReset:
        """Return the rule for a recreated topic whose predecessor this consumer has read.

        See :class:`RecreatedTopics`.
        """
        if not self._subscription.default_reset.reads_recreated:
            return OffsetReset.NONE
        if self._subscription.history.needs_log(topic, now):
            from uuid import UUID

            logger.warning(
                "topic %s was deleted and created again since this consumer read it: its id was %s "
                "and is now %s. The new topic is read from its beginning",
                topic,
                UUID(bytes=old),
                UUID(bytes=now),
            )
        return OffsetReset.EARLIEST


def _rule_for_new_partitions(config: FetchConfig) -> OffsetReset:
    chosen = config.auto_offset_reset_new_partitions
    if chosen is None:
        chosen = "none" if config.auto_offset_reset == "none" else "earliest"
    elif chosen == "auto_offset_reset":
        chosen = config.auto_offset_reset
    return OffsetReset.from_option(chosen)


MAX_NAMED_PARTITIONS = 5
"""Maximum number of partitions that an error names."""
FIRST_CHECK_SECONDS, MAX_CHECK_SECONDS = 0.002, 0.1
"""Seconds between checks of a reset in progress. They double from the first to the second."""

FIRST_RETRY_SECONDS = 1.0
MAX_GROUP_RETRY_SECONDS = 10.0
"""Maximum seconds before a retry after the group was denied, the same as for joining."""


class _KnownPosition(NamedTuple):
    """The known state of one partition's position."""

    position: int | None
    epoch: int
    reset: OffsetReset | None
    first: bool
    leaving: bool
    error: KafkaError | None


class _EarlyRead:
    """A read of the committed offsets of partitions that will be assigned."""

    def __init__(self, membership: tuple[str, int], ids: Mapping[TopicPartition, bytes]) -> None:
        self.membership = membership
        self.ids = ids
        self.done = OneShot()
        self.committed: dict[TopicPartition, OffsetAndMetadata | None] | None = None
        """The result, or None after a failure."""
        self.denied: set[TopicPartition] = set()


class PositionFinder:
    """The task that looks up the first positions of assigned partitions."""

    def __init__(
        self,
        config: ConsumerConfig,
        subscription: SubscriptionState,
        rules: FirstPositionRules,
        requests: OffsetRequests,
        fetcher: Fetcher,
        group: GroupAdapter,
        errors: ErrorReports,
        notify: Callable[[], None],
    ) -> None:
        self._subscription = subscription
        self._rules = rules
        self._requests = requests
        self._fetcher = fetcher
        self._group = group
        self._errors = errors
        self._notify = notify
        self.failure: str | None = None
        """The error of the latest look-up that is repeated, or None."""
        self._repeats = RepeatedLog(logger)
        self._woken = TaskSignal()
        self._early_read: _EarlyRead | None = None
        self._has_group = config.group.group_id is not None
        self._longest_pause = config.client.retry_backoff_max_ms / 1000
        max_age = config.client.metadata_max_age_ms / 1000
        self._denied = DeniedPositions(max_age, config.rng or SYSTEM_RNG)

    def wake(self) -> None:
        """Look for partitions without a position now, and fetch those that have one."""
        self._woken.notify()
        self._fetcher.wake()

    async def run(self) -> None:
        """Run until cancelled; never raises."""
        while True:
            woken = self._woken.event()
            awaiting = self._subscription.awaiting_position()
            missing = self._denied.due(awaiting, anyio.current_time())
            if not missing or self._group.is_assigning:
                # While on_partitions_assigned() runs, due lookups wait. Its end wakes this task.
                pause = anyio.current_time() + FIRST_RETRY_SECONDS
                with anyio.CancelScope(deadline=pause if missing else self._denied.next_due):
                    await woken.wait()
                continue
            try:
                await self._look_up(missing, collects=True)
                self.failure = None
                self._repeats.ended(self)
                self._denied.forget_group_denials()
            except GroupAuthorizationFailedError as error:
                self._errors.report_refusal(error)
                await anyio.sleep(self._denied.next_group_pause())
            except KafkaError as error:
                # The cluster client reports security errors of brokers, once each.
                if error.retriable or isinstance(error, SecurityError):
                    self.failure = str(error)
                    text = f"reading the committed offsets failed: {error}"
                    self._repeats.log(self, logging.INFO, text)
                else:
                    self._errors.report(error)
                with anyio.move_on_after(max(self._longest_pause, MAX_CHECK_SECONDS)):
                    await woken.wait()

    async def look_ahead(self, partitions: Collection[TopicPartition]) -> None:
        """Read the committed offsets of partitions before they are assigned. Never raise."""
        ids = self._subscription.topic_ids(partitions)
        early = self._early_read = _EarlyRead(self._requests.membership, ids)
        try:
            early.committed = await self._committed(list(partitions), early.denied)
        except KafkaError as error:
            text = error_text(error)
            logger.debug("reading committed offsets before the assignment failed: %s", text)
        finally:
            early.done.set()

    async def find(self, tp: TopicPartition, timeout: float | None) -> int:
        """Return the position of one partition, also inside a listener.

        Raise NotAssignedError if it is not assigned, or the error that prevents a position. Raise
        KafkaTimeoutError after ``timeout``; None is no limit.
        """
        with TimeLimit(timeout, f"the position of {tp.topic}-{tp.partition} was not found"):
            return await self._find(tp)

    async def _find(self, tp: TopicPartition) -> int:
        pause = FIRST_CHECK_SECONDS
        while True:
            found = self._known_position(tp)
            if found.position is not None:
                return found.position
            if found.leaving:
                return await self._position_of_revoked(tp, found.reset)
            if found.reset is None:
                await self._look_up({tp: found.epoch})
                continue
            rule = self._rules.rule_for(tp) if found.first else found.reset
            if rule == OffsetReset.NONE:
                raise _no_offset_error(tp)
            if found.error is not None and not found.error.retriable:
                raise found.error
            # The fetcher does the reset.
            self._fetcher.wake()
            await anyio.sleep(pause)
            pause = min(2 * pause, MAX_CHECK_SECONDS)

    def _known_position(self, tp: TopicPartition) -> _KnownPosition:
        subscription = self._subscription
        with subscription.lock:
            state = subscription.partition(tp)
            if state is None:
                raise NotAssignedError(f"{tp.topic}-{tp.partition} is not assigned")
            return _KnownPosition(
                state.position,
                state.epoch,
                state.reset,
                state.is_first,
                state.is_leaving,
                state.status.last_error,
            )

    async def _position_of_revoked(self, tp: TopicPartition, reset: OffsetReset | None) -> int:
        """Return the first position of a partition that is revoked before it had one."""
        committed = await self._committed([tp])
        at = committed.get(tp)
        if at is not None and reset is None:
            return at.offset
        default = self._subscription.default_reset
        strategy = reset or self._rules.rule_for(tp) or default
        if strategy == OffsetReset.NONE:
            raise _no_offset_error(tp)
        return await self._requests.reset_offset(tp, strategy)

    async def _committed(
        self, partitions: list[TopicPartition], denied: set[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        if not self._has_group:
            return {}
        return await self._requests.committed(partitions, None, denied=denied)

    async def _first_committed(
        self, ids: dict[TopicPartition, bytes], denied: set[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the committed offsets of partitions with these ids, read before if possible."""
        early, self._early_read = self._early_read, None
        if early is not None and (early.membership, early.ids) == (self._requests.membership, ids):
            await early.done.wait()
            if early.committed is not None:
                denied |= early.denied
                return early.committed
        return await self._committed(list(ids), denied)

    def _report_denied(self, news: set[TopicPartition]) -> None:
        topics = {tp.topic for tp in news}
        names = ", ".join(
            f"{tp.topic}-{tp.partition}" for tp in sorted(news)[:MAX_NAMED_PARTITIONS]
        )
        where = f"reading the committed offsets of {names}"
        self._errors.report_refusal(denied_topics_error(where, topics, "DESCRIBE"))

    async def _look_up(self, missing: dict[TopicPartition, int], *, collects: bool = False) -> None:
        """Find positions. ``collects``: report refused ones instead of raising an error."""
        subscription = self._subscription
        # The ids are read before the request, to detect topics that are recreated meanwhile.
        ids = subscription.topic_ids(missing)
        denied: set[TopicPartition] = set()
        self._fetcher.prepare(missing)
        if collects:
            committed = await self._first_committed(ids, denied)
        else:
            committed = await self._committed(list(missing))
        now, history = anyio.current_time(), subscription.history
        news = {tp for tp in denied if self._denied.note_denial(tp, missing[tp], now)}
        if news:
            self._report_denied(news)
        for tp, epoch in missing.items():
            at = committed.get(tp)
            if tp in denied:
                continue  # its position stays unknown until the next lookup
            if history.current_id(tp.topic) != ids[tp] != NO_ID:
                continue  # recreated meanwhile, so the next lookup requests it again
            if at is not None:
                topic_id = history.confirmed_id(tp.topic)
                subscription.set_position(
                    tp, at.offset, at.leader_epoch, epoch=epoch, topic_id=topic_id
                )
            else:
                subscription.reset_if_unknown(tp, epoch=epoch)
        self._fetcher.wake()
        self._notify()  # start() may be waiting for it


def _no_offset_error(tp: TopicPartition) -> NoOffsetForPartitionError:
    return NoOffsetForPartitionError(
        f"{tp.topic}-{tp.partition} has no first position: there is no committed offset, and "
        f'auto_offset_reset is "none". Call seek({tp}, ...), or commit an offset first',
        topic_partition=tp,
    )


class _DeniedPosition(NamedTuple):
    epoch: int
    failures: int
    at: float


class DeniedPositions:
    """The retry times of denied partitions, with pauses that double from 1 s to ``max_seconds``."""

    def __init__(self, max_seconds: float, rng: random.Random) -> None:
        self._backoff = Backoff(min(FIRST_RETRY_SECONDS, max_seconds), max_seconds)
        self._rng = rng
        self._denied: dict[TopicPartition, _DeniedPosition] = {}
        self._group_failures = 0

    @property
    def next_due(self) -> float:
        """Time of the next retry of any partition; infinity if there are none."""
        return min((each.at for each in self._denied.values()), default=math.inf)

    def due(self, missing: Mapping[TopicPartition, int], now: float) -> dict[TopicPartition, int]:
        """Return the partitions, with their epochs, that may be requested now."""
        for tp, known in list(self._denied.items()):
            if missing.get(tp) != known.epoch:
                del self._denied[tp]
        return {
            tp: epoch
            for tp, epoch in missing.items()
            if tp not in self._denied or self._denied[tp].at <= now
        }

    def note_denial(self, tp: TopicPartition, epoch: int, now: float) -> bool:
        """Note a denial. Return True if it is the partition's first."""
        known = self._denied.get(tp)
        failures = 1 if known is None else known.failures + 1
        at = now + self._backoff.delay(failures, self._rng)
        self._denied[tp] = _DeniedPosition(epoch, failures, at)
        return known is None

    def next_group_pause(self) -> float:
        """Return the seconds to wait after the whole group was denied once more."""
        self._group_failures += 1
        longest = min(MAX_GROUP_RETRY_SECONDS, max(self._backoff.maximum, FIRST_RETRY_SECONDS))
        return Backoff(FIRST_RETRY_SECONDS, longest).delay(self._group_failures, self._rng)

    def forget_group_denials(self) -> None:
        """Reset the pause for the group after a success."""
        self._group_failures = 0
