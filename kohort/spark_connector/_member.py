"""The member of the group, in the driver process of a query: one thread does all client I/O.

The thread of Spark's calls shares only :class:`MemberPartitions` with it. It cannot call the client
itself, because a revocation waits for Spark's next call, which would wait for the client.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping

from kohort import (
    CommitFailedError,
    KafkaError,
    KafkaTimeoutError,
    OffsetAndMetadata,
    TopicPartition,
)
from kohort.errors import (
    MaxPollIntervalExceededError,
    OffsetsTimeoutError,
    RebalanceInProgressError,
    ThreadStartError,
    TransportError,
    UnknownTopicOrPartitionError,
    WakeupError,
)
from kohort.spark_connector import _option_values
from kohort.spark_connector._consumers import make_consumer
from kohort.spark_connector._end_offsets import (
    PARTITIONS_REFRESH_S,
    SILENT_S,
    EndLookup,
    offsets_of,
)
from kohort.spark_connector._member_listener import MemberListener, named, user_listener
from kohort.spark_connector._member_partitions import Held, MemberPartitions
from kohort.spark_connector._offsets import Offsets
from kohort.spark_connector._options import SourceOptions
from kohort.spark_connector._planning import Planner
from kohort.spark_connector._session import SparkFolders

logger = logging.getLogger("kohort.spark_connector")

METADATA = "kohort/"
"""Begins what goes with every commit, to tell it from those of others: the id of the query."""
POLL_MS = 50
ENDS_REFRESH_S = 0.15
RETRY_S = 0.5
WARN_S = 10.0
LOOK_UP_MS = 2_000
"""While a look-up hangs no partition is handed over, so it must not for long."""
COMMIT_MS = 5_000
LAST_COMMIT_MS = 1_200
CLOSE_MS = 2_400
END_S = 3.0
"""How long the end of a process may take, whatever the brokers do."""

# Eager is what members with other assignors need; a group of such as these may do without.
_DEFAULTS = {"partition.assignment.strategy": "cooperative-sticky,range"}

_REJOINS = (CommitFailedError, RebalanceInProgressError, MaxPollIntervalExceededError)
"""After these the consumer rejoins by itself, or has done so."""


class GroupMember:
    """Joins with the first call of :meth:`begin`, and leaves with :meth:`close`."""

    def __init__(self, options: SourceOptions, clock: Callable[[], float] = time.monotonic) -> None:
        self.holdings = MemberPartitions()
        self._options = options
        self._clock = clock
        self._listener = user_listener(options.rebalance_listener)
        self._consumer = make_consumer(_DEFAULTS | dict(options.properties), group=True)
        self._planner = Planner(self._consumer, options, self._pause, LOOK_UP_MS)
        self._lookup = EndLookup(self._planner, LOOK_UP_MS, clock, self._note_silence)
        self._session = SparkFolders(clock)
        self._at_start: frozenset[TopicPartition] = frozenset()
        self._ends_due = self._partitions_due = self._retry_due = float("-inf")
        self._ids_due = self._resolve_due = float("-inf")
        self._unresolved: Mapping[TopicPartition, int] = {}
        self._names_checked = options.fail_on_data_loss  # then they are from the first
        self._warned: dict[str, float] = {}
        self._ids: dict[str, str] = {}
        self._thread = threading.Thread(target=self._run, name="kohort-spark-member", daemon=True)
        try:
            self._thread.start()
        except (RuntimeError, MemoryError) as error:
            self._consumer.close()
            raise ThreadStartError(
                f"the thread of the group member did not start: {error}. Lower the number of "
                "threads on the driver or raise the system's limit"
            ) from error

    # -- the thread of Spark's calls ----------------------------------------------------------

    def request_end(self) -> None:
        """Have the member commit what is done and leave; from any thread, without waiting."""
        self.holdings.end()
        self._consumer.wakeup()

    def wait_ended(self, seconds: float) -> bool:
        """Whether it has left within the time."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    # -- the thread of the member -------------------------------------------------------------

    def _run(self) -> None:
        holdings = self.holdings
        try:
            self._subscribe()
            while not holdings.ending and holdings.error is None:
                self._step()
        except WakeupError:
            pass  # the end
        except BaseException as error:
            holdings.fail(error)
        finally:
            try:
                holdings.end()
                self._consumer.close(autocommit=False, timeout_ms=CLOSE_MS)
            except KafkaError as error:
                logger.warning("%s was not left in good order: %s", self._group, str(error))
            finally:
                holdings.end(over=True)

    def _subscribe(self) -> None:
        self._look_for_partitions(must_exist=self._options.fail_on_data_loss)
        self._at_start = self.holdings.known or frozenset()
        listener = MemberListener(self, self.holdings.fail, self._listener)
        if self._options.pattern is not None:
            pattern = _option_values.whole(self._options.pattern)
            self._consumer.subscribe(pattern=pattern, listener=listener)
        else:
            self._consumer.subscribe(self._options.topics, listener=listener)

    def _step(self) -> None:
        for what, do in (
            ("the session", self._session.check),
            ("the group", self._poll),
            ("the starts of partitions", self._resolve),
            ("a commit", self._commit_done),
            ("the ends of partitions", self._look_for_ends),
            ("the partitions", self._look_for_partitions),
        ):
            try:
                do()
            except WakeupError:
                if self.holdings.ending:
                    raise
            except KafkaError as error:
                if not self._may_pass(error):
                    raise
                self._note(error)
                self._warn(what, error)
                self._pause(RETRY_S)

    def _may_pass(self, error: KafkaError) -> bool:
        """An outage makes a query wait that has begun; what does not get better ends it."""
        if isinstance(error, _REJOINS):
            return True
        if isinstance(error, (TransportError, KafkaTimeoutError)):
            return self.holdings.epoch > 0 or error.retriable
        return error.retriable

    def _poll(self) -> None:
        self._consumer.poll(POLL_MS)  # the listener is called in here; there are no records

    def _resolve(self) -> None:
        """Find out where new partitions start: committed, as asked for, or at their beginning.

        What was not committed is, at once: a restart before the first batch starts there, too.
        """
        holdings = self.holdings
        with holdings.changed:
            new = {tp: at for tp, at in holdings.there.items() if tp not in holdings.ready}
            fresh = holdings.fresh
        if fresh and not self._names_checked:
            self._check_names()
        if not new or fresh is None:
            return
        if new == self._unresolved and self._clock() < self._resolve_due:
            return
        found = self._consumer.committed(sorted(new), metadata=True, timeout_ms=LOOK_UP_MS)
        there = {tp: at for tp, at in found.items() if isinstance(at, OffsetAndMetadata)}
        offsets = {tp: at.offset for tp, at in there.items()}
        missing = new.keys() - there.keys()
        if missing:
            starts = self._starts(missing, fresh)
            self._commit(starts, COMMIT_MS)
            offsets |= starts
        known = {tp: epoch for tp, epoch in new.items() if tp in offsets}
        if known:
            self._look_up_ends(known)
        holdings.resolve(
            {
                tp: Held(epoch, offsets[tp], tp in there and not _is_ours(there[tp]))
                for tp, epoch in known.items()
            },
            offsets,
        )
        self._unresolved = {tp: epoch for tp, epoch in new.items() if tp not in known}
        self._resolve_due = self._clock() + SILENT_S

    def _starts(self, missing: set[TopicPartition], fresh: bool) -> Offsets:
        """Where partitions start that nothing is committed of, as far as it can be found out."""
        asked = missing & self._at_start if fresh else set()
        found: dict[TopicPartition, int] = {}
        try:
            if asked:
                found |= self._planner.starts(asked, among=self._at_start)
            found |= self._planner.earliest(missing - asked)
        except OffsetsTimeoutError as error:
            self._note_silence(error)
            found |= offsets_of(error)
        return found

    def _check_names(self) -> None:
        """Topics that a query names at its very beginning have to exist, whatever it may lose."""
        try:
            self._planner.partitions(must_exist=True)
        except UnknownTopicOrPartitionError as error:
            self.holdings.fail(error)
        self._names_checked = True

    def _commit_done(self) -> None:
        with self.holdings.changed:
            done = dict(self.holdings.done)
        if not done or self._clock() < self._retry_due:
            return
        try:
            self._commit(done, COMMIT_MS)
        except WakeupError:
            raise
        except KafkaError as error:
            # Spark's checkpoint is what counts for the query; the group's offsets tell others.
            self._retry_due = self._clock() + RETRY_S
            if isinstance(error, CommitFailedError):
                self._ids_due = self._ends_due = float("-inf")  # is it another topic by now?
            self._warn("a commit", error)

    def _commit(self, offsets: Offsets, timeout_ms: float) -> None:
        if offsets:
            metadata = f"{METADATA}{self.holdings.query}"
            entries = {tp: OffsetAndMetadata(at, metadata) for tp, at in offsets.items()}
            self._consumer.commit(entries, timeout_ms=timeout_ms)
            self.holdings.note_commit(offsets)

    def _look_for_ends(self) -> None:
        with self.holdings.changed:
            there = self.holdings.there
            urgent = self.holdings.ends_urgent
        if self._clock() < self._ends_due and not urgent:
            return
        try:
            if there:
                self._look_up_ends(there)
        finally:
            self._ends_due = self._clock() + ENDS_REFRESH_S

    def _look_up_ends(self, partitions: Mapping[TopicPartition, object]) -> None:
        with self.holdings.changed:
            asked = self.holdings.ends_asked
        ends = self._lookup.look_up(partitions)
        with self.holdings.changed:
            moved = not ends.items() <= self.holdings.ends.items()
        ids: dict[str, str] = {}
        if moved or self._clock() >= self._ids_due:
            # Asked for behind the ends: as long as the ids are the same, the ends are theirs.
            ids = self._planner.ids(ends, LOOK_UP_MS)
            self._ids_due = self._clock() + PARTITIONS_REFRESH_S
            self._go_on_in(ids)
        with self.holdings.changed:
            of_all = self.holdings.there.keys() <= ends.keys()
            self.holdings.note_ends(ends, ids, asked if of_all else None)

    def _go_on_in(self, ids: Mapping[str, str]) -> None:
        """Commit offsets of recreated topics from now on, and nothing more of the old ones.

        A seek has the consumer go on: it refuses to commit in a recreated topic until then.
        """
        other = {topic for topic, topic_id in ids.items() if self._ids.get(topic) != topic_id}
        self.holdings.forget_commits(other & self._ids.keys())
        for tp in self._consumer.assignment():
            if tp.topic in other:
                self._consumer.seek(tp, 0)
        self._ids |= ids

    def _look_for_partitions(self, must_exist: bool = False) -> None:
        if self._clock() < self._partitions_due:
            return
        try:
            self.holdings.note_known(self._planner.partitions(must_exist=must_exist))
        finally:
            self._partitions_due = self._clock() + PARTITIONS_REFRESH_S

    # -- the listener -------------------------------------------------------------------------

    def assigned(self, partitions: frozenset[TopicPartition]) -> None:
        """Take them; nothing is fetched, and where they stand is not this consumer's affair."""
        self._consumer.pause(*partitions)
        for tp in partitions:
            self._consumer.seek(tp, 0)
        logger.info("%s: assigned %s", self._group, named(partitions))
        self.holdings.add_assigned(partitions)
        if not partitions <= (self.holdings.known or frozenset()):
            self._partitions_due = float("-inf")  # the leader knows of more than was there lately

    def revoked(self, partitions: frozenset[TopicPartition]) -> None:
        """Hold them until the micro-batch is over, commit, and give them up."""
        begun = self._clock()
        released = self.holdings.release(partitions, self._options.rebalance_wait_s)
        logger.info(
            "%s: revoked %s after %.2f s", self._group, named(partitions), self._clock() - begun
        )
        if released.unfinished and not released.ending:
            logger.warning(
                "%s: %s given up in the midst of a micro-batch, which took longer than "
                "rebalanceWait (%g s): other members will read its records, too",
                self._group,
                named(released.unfinished),
                self._options.rebalance_wait_s,
            )
        try:
            self._commit_at_last(released.done)
        except KafkaError as error:
            logger.warning("offsets were not committed to %s: %s", self._group, str(error))

    def _commit_at_last(self, offsets: Offsets) -> None:
        """Commit in short attempts: in a callback no wakeup tells that the query is to end."""
        deadline = self._clock() + COMMIT_MS / 1000
        while True:
            try:
                return self._commit(offsets, LAST_COMMIT_MS)
            except KafkaTimeoutError:
                if self.holdings.ending or self._clock() >= deadline:
                    raise

    def lost(self, partitions: frozenset[TopicPartition]) -> None:
        """Let go of them at once: a commit would be refused."""
        logger.warning("%s: lost %s", self._group, named(partitions))
        self.holdings.lose(partitions)

    # -- small things -------------------------------------------------------------------------

    @property
    def _group(self) -> str:
        return f"group {self._options.group_id}"

    def _note_silence(self, error: OffsetsTimeoutError) -> None:
        self._note(error)
        self._warn("a look-up of offsets", error)

    def _note(self, error: KafkaError) -> None:
        self._partitions_due = float("-inf")  # has a topic been deleted?
        self.holdings.last_error = error

    def _pause(self, seconds: float) -> None:
        self.holdings.wait(lambda: False, seconds)

    def _warn(self, what: str, error: KafkaError) -> None:
        now = self._clock()
        if now >= self._warned.get(what, float("-inf")):
            self._warned[what] = now + WARN_S
            logger.warning("%s: %s failed, will be tried again: %s", self._group, what, str(error))


def _is_ours(committed: OffsetAndMetadata) -> bool:
    """Whether a query has committed it, this one or another of its group."""
    return committed.metadata.startswith(METADATA)
