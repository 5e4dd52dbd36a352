"""The commits and reads of offsets, with the rules for each error code."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import cached_property

import anyio

from kohort.config import GroupConfig
from kohort.coordinator_client._cluster_view import GroupCluster, TopicIdHistory, topic_ids
from kohort.coordinator_client._coordinator import CoordinatorConnection
from kohort.coordinator_client.machine._error_code_actions import (
    CoordinatorAction,
    action_for,
    error_for,
)
from kohort.coordinator_client.machine._events import Event
from kohort.coordinator_client.machine._membership import Membership
from kohort.coordinator_client.machine._partition_text import describe
from kohort.coordinator_client.offsets._commit_rules import Commit, CommitRules, OffsetsByPartition
from kohort.coordinator_client.offsets._offset_messages import (
    FetchedOffset,
    commit_codes,
    commit_forms,
    fetch_forms,
    fetched_offsets,
    has_topic_ids,
)
from kohort.errors import (
    CommitFailedError,
    ErrorCode,
    KafkaError,
    KafkaTimeoutError,
    ProtocolError,
    TopicAuthorizationFailedError,
    TransportError,
    UnknownTopicOrPartitionError,
    error_name,
)
from kohort.logs import PlacedText, get_logger
from kohort.protocol import ApiKey
from kohort.transport import RepeatedLog, escaped, in_seconds, with_principal
from kohort.types import OffsetAndMetadata, TopicPartition

logger = get_logger(__name__)

UNRESOLVED_RETRIES = 5
"""Number of reads that follow one that says nothing of a partition's committed offset."""


class OffsetManager:
    """The committed offsets of one group.

    One commit is in flight at a time. Otherwise a retried commit could overtake a later one and set
    the offset back. ``pause_after`` returns the seconds before a retry after a count of failures.
    """

    def __init__(
        self,
        cluster: GroupCluster,
        coordinator: CoordinatorConnection,
        config: GroupConfig,
        membership: Membership,
        send_event: Callable[[Event], None],
        pause_after: Callable[[int], float],
        *,
        require_stable: bool,
        history: TopicIdHistory,
    ) -> None:
        self._cluster = cluster
        self._coordinator = coordinator
        self._group_id = config.group_id or ""
        self._instance_id = config.group_instance_id
        self._request_timeout = config.request_timeout_ms / 1000
        self._rules = CommitRules(
            self._group_id, membership, send_event, patience=self._request_timeout
        )
        self._pause_after = pause_after
        self._require_stable = require_stable
        self._history = history
        self.read_failure: str | None = None
        """Why the read of committed offsets in progress has failed so far, or None."""
        self._repeats = RepeatedLog(logger)

    @cached_property
    def _committing(self) -> anyio.Lock:
        """The lock of commits, made in the event loop. The constructor may be called on another."""
        return anyio.Lock()

    # --- commit ---------------------------------------------------------------------------------

    async def commit(
        self,
        offsets: OffsetsByPartition,
        timeout: float | None,
        *,
        ids: Mapping[TopicPartition, bytes] | None = None,
    ) -> None:
        """Commit in the current generation or epoch within ``timeout`` seconds, or without a limit.

        ``ids`` has the known ids of the topics that the offsets belong to. Offsets of a topic that
        was deleted or recreated since are not committed. After the other offsets are committed,
        that raises CommitFailedError.

        Without a subscription the commit has no generation. The coordinator accepts it while the
        group has no members. Raise

        - CommitFailedError if this member does not own the partitions, or owns them no longer. If
          that is known before, nothing is sent. Keep polling: the consumer rejoins.
        - RebalanceInProgressError if the member still owns the partitions, but the group is between
          JoinGroup and SyncGroup and accepts no commits. Poll, then commit again.
        - KafkaTimeoutError if the commit is not complete in time. ``__cause__`` is the latest
          error, if there was one.
        - TopicAuthorizationFailedError if READ is missing on some topics. The error's ``committed``
          has the other offsets, which are committed.
        - GroupAuthorizationFailedError, OffsetMetadataTooLargeError and other errors of a broker
          that a retry does not fix.
        """
        if not offsets:
            return
        commit = self._rules.begin(offsets)
        existing = self._existing({tp.topic for tp in offsets})

        async def attempt_once() -> str:
            commit.pop_deleted(existing - self._existing(existing))
            commit.outdated.update(self._pop_outdated(commit.remaining, ids or {}))
            return await self._commit_once(commit) if commit.remaining else ""

        await self._retry(
            attempt_once, timeout, f"commit of {describe(offsets)}", lock=self._committing
        )
        if commit.outdated:
            raise CommitFailedError(
                f"commit failed for {describe(commit.outdated)}: the topic was deleted and created "
                "again, and these offsets belong to the deleted topic. Keep polling; the next "
                "commit uses offsets of the new topic",
                offsets=commit.outdated,
            )
        if commit.deleted:
            raise CommitFailedError(
                f"commit failed for {describe(commit.deleted)}: the topic was deleted. Commit only "
                "offsets of existing topics",
                offsets=commit.deleted,
            )
        if commit.released:
            raise self._rules.released_error(commit)
        if commit.denied:
            done = {tp: at for tp, at in offsets.items() if tp not in commit.denied}
            raise with_principal(_denied_commit_error(commit.denied, done), self._cluster.principal)

    def _existing(self, topics: Iterable[str]) -> set[str]:
        """Return those of the topics that have partitions in the metadata."""
        known = self._cluster.metadata.topics
        return {name for name in topics if name in known and known[name].partitions}

    def _pop_outdated(
        self,
        remaining: dict[TopicPartition, OffsetAndMetadata],
        ids: Mapping[TopicPartition, bytes],
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Remove and return the offsets whose topic has a new id."""
        known = {tp: topic_id for tp, topic_id in ids.items() if any(topic_id)}
        gone = [
            tp
            for tp in remaining
            if any(now := self._history.current_id(tp.topic)) and known.get(tp, now) != now
        ]
        return {tp: remaining.pop(tp) for tp in gone}

    async def _commit_once(self, commit: Commit) -> str:
        """Commit ``commit.remaining`` once and remove the offsets that are done.

        Return the reason to retry the others, or "".
        """
        if self._rules.must_wait:
            return "the group rebalances"
        sender, remaining = self._rules.committer(commit), commit.remaining
        if not remaining:
            return ""
        ids = topic_ids(self._history, {tp.topic for tp in remaining})
        instance = self._instance_id if sender.is_member else None
        response = await self._coordinator.request(
            commit_forms(self._group_id, sender, instance, remaining, ids),
            timeout=self._request_timeout,
        )
        codes = commit_codes(response, remaining, ids)
        for tp, code in codes.items():
            if action_for(ApiKey.OFFSET_COMMIT, code) is CoordinatorAction.PROCEED:
                del remaining[tp]
            elif code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                commit.denied[tp] = remaining.pop(tp)
        retry_reason = ""
        for code in sorted({codes[tp] for tp in remaining}):
            retry_reason = error_name(code)
            affected = {tp: remaining[tp] for tp in remaining if codes[tp] == code}
            match action_for(ApiKey.OFFSET_COMMIT, code):
                case CoordinatorAction.REDISCOVER:
                    self._coordinator.drop(f"OffsetCommit returned {retry_reason}")
                case CoordinatorAction.RETRY:
                    if code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
                        commit.unknown.update(affected)
                        self._cluster.request_refresh()
                case CoordinatorAction.FAIL:
                    if code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
                        raise self._group_denied_error(ApiKey.OFFSET_COMMIT, code)
                    error = error_for(ApiKey.OFFSET_COMMIT, code, self._group_id)
                    raise type(error)(f"{error} (for {describe(affected)})", code=code)
                case _:
                    now = anyio.current_time()
                    self._rules.commit_rejected(code, sender, commit, affected, now)
        return retry_reason

    # --- fetch ----------------------------------------------------------------------------------

    async def committed(
        self,
        partitions: Iterable[TopicPartition],
        timeout: float | None,
        *,
        denied: set[TopicPartition] | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the group's committed offset for each partition, or None without one.

        One request covers all partitions. Partitions of topics on which DESCRIBE is missing are
        added to ``denied`` and left out of the result. Without ``denied`` they raise
        TopicAuthorizationFailedError. If the coordinator rejects the member or its epoch, the read
        is repeated. That never counts as no committed offset.

        A response that leaves out a partition, and UNKNOWN_TOPIC_OR_PARTITION, do not mean that
        there is no committed offset. After some retries they raise ProtocolError and
        UnknownTopicOrPartitionError.

        The result is None for an offset that was committed by topic name and is known to belong to
        a deleted topic. Raise KafkaTimeoutError after ``timeout`` seconds, and a broker's error if
        a retry would not fix it.
        """
        remaining = set(partitions)
        result: dict[TopicPartition, OffsetAndMetadata | None] = dict.fromkeys(remaining)
        by_name = False
        refusals = 0

        async def attempt_once() -> str:
            nonlocal by_name, refusals
            names = {tp.topic for tp in remaining}
            ids = None if by_name else topic_ids(self._history, names)
            reader = self._rules.reader()
            response = await self._coordinator.request(
                fetch_forms(self._group_id, reader, remaining, ids, self._require_stable),
                timeout=self._request_timeout,
            )
            code, found = fetched_offsets(response, self._group_id, remaining, ids)
            if self._rules.read_rejected(code, reader):
                return error_name(code)
            retry_reason = self._check_fetched(code, remaining)
            if code:
                return retry_reason
            if unresolved := _unresolved(found, remaining):
                self._cluster.request_refresh()
                retry_reason = _why_unresolved(found, unresolved)
                refusals += 1
                if refusals > UNRESOLVED_RETRIES:
                    raise _unresolved_error(found, unresolved)
            for tp, at in found.items():
                if at == ErrorCode.TOPIC_AUTHORIZATION_FAILED and denied is not None:
                    denied.add(tp)
                    del result[tp]
                elif isinstance(at, int):
                    retry_reason = self._check_fetched(at, {tp}) or retry_reason
                    if at == ErrorCode.UNKNOWN_TOPIC_ID and ids is not None:
                        by_name = True
                        self._history.mark_unconfirmed(tp.topic, ids[tp.topic])
                    if action_for(ApiKey.OFFSET_FETCH, at) is not CoordinatorAction.PROCEED:
                        continue
                else:
                    outdated = at is not None and self._history.is_deleted_offset(tp, at.offset)
                    result[tp] = None if outdated and not has_topic_ids(response) else at
                remaining.discard(tp)
            return retry_reason if remaining else ""

        if remaining:
            what = f"read of committed offsets of {describe(remaining)}"
            attempt = self._noting_failures(attempt_once, what)
            try:
                await self._retry(attempt, timeout, what, lock=nullcontext())
            finally:
                self.read_failure = None
        return result

    def _noting_failures(
        self, attempt_once: Callable[[], Awaitable[str]], what: str
    ) -> Callable[[], Awaitable[str]]:
        """Return an attempt that notes for explain() why it has to be repeated, and logs it."""

        async def attempt() -> str:
            try:
                reason = await attempt_once()
            except (TransportError, KafkaTimeoutError) as error:
                self._note_failed_read(what, str(error))
                raise
            if reason:
                self._note_failed_read(what, f"the coordinator returned {reason}")
            else:
                self._repeats.ended(what)
            return reason

        return attempt

    def _note_failed_read(self, what: str, reason: str) -> None:
        self.read_failure = reason
        text = f"[{escaped(self._group_id)}] {what} failed: {reason}; trying again"
        self._repeats.log(what, logging.INFO, PlacedText(text, group=self._group_id))

    def _group_denied_error(self, api: ApiKey, code: int) -> KafkaError:
        """Return the error for a missing right on the group."""
        return with_principal(error_for(api, code, self._group_id), self._cluster.principal)

    def _check_fetched(self, code: int, affected: Iterable[TopicPartition]) -> str:
        """Return the reason to retry, or "". Raise an error that a retry does not fix."""
        match action_for(ApiKey.OFFSET_FETCH, code):
            case CoordinatorAction.PROCEED:
                return ""
            case CoordinatorAction.REDISCOVER:
                self._coordinator.drop(f"OffsetFetch returned {error_name(code)}")
            case CoordinatorAction.FAIL:
                if code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
                    raise self._group_denied_error(ApiKey.OFFSET_FETCH, code)
                error = error_for(ApiKey.OFFSET_FETCH, code, self._group_id)
                if isinstance(error, TopicAuthorizationFailedError):
                    topics = {tp.topic for tp in affected}
                    raise with_principal(
                        TopicAuthorizationFailedError(
                            f"read of committed offsets failed for {describe(affected)}: this "
                            f"client needs DESCRIBE on topic {names_of(topics)}. Grant DESCRIBE or "
                            "READ",
                            topics=topics,
                            operation="DESCRIBE",
                        ),
                        self._cluster.principal,
                    )
                raise type(error)(f"{error} (for {describe(affected)})", code=code)
            case _:
                if code == ErrorCode.UNKNOWN_TOPIC_ID:
                    self._cluster.request_refresh()
        return error_name(code)

    # --- both -----------------------------------------------------------------------------------

    async def _retry(
        self,
        attempt_once: Callable[[], Awaitable[str]],
        timeout: float | None,
        what: str,
        *,
        lock: AbstractAsyncContextManager[object],
    ) -> None:
        """Call ``attempt_once`` until it returns no reason to retry, also after transport errors.

        Hold ``lock`` over all attempts. The wait for it is part of the timeout.
        """
        retry_reason = "the coordinator was not found or did not respond"
        cause: KafkaError | None = None
        attempt = 0
        with anyio.move_on_after(timeout):
            async with lock:
                while True:
                    try:
                        retry_reason = await attempt_once()
                        cause = None
                    except ProtocolError:
                        raise
                    except (TransportError, KafkaTimeoutError) as error:
                        retry_reason, cause = str(error), error
                    if not retry_reason:
                        return
                    attempt += 1
                    await anyio.sleep(self._pause_after(attempt))
        raise KafkaTimeoutError(
            f"{what} did not complete within {in_seconds(timeout)}: {retry_reason}"
        ) from cause


def _unresolved(
    found: Mapping[TopicPartition, FetchedOffset], requested: Iterable[TopicPartition]
) -> list[TopicPartition]:
    """Return the partitions of which the coordinator says neither an offset nor that it has none.

    They may have a committed offset, so a reset would lose or repeat records.
    """
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return sorted(tp for tp in requested if tp not in found or found[tp] == unknown)


def _why_unresolved(
    found: Mapping[TopicPartition, FetchedOffset], unresolved: Collection[TopicPartition]
) -> str:
    absent = [tp for tp in unresolved if tp not in found]
    if absent:
        return f"the response to OffsetFetch leaves out {describe(absent)}"
    return error_name(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _unresolved_error(
    found: Mapping[TopicPartition, FetchedOffset], unresolved: Collection[TopicPartition]
) -> KafkaError:
    where = f"read of committed offsets failed for {describe(unresolved)}"
    why = _why_unresolved(found, unresolved)
    if any(tp not in found for tp in unresolved):
        return ProtocolError(
            f"{where}: {why}, {UNRESOLVED_RETRIES + 1} times. Check the broker and any proxy "
            "before it, or seek() to an offset"
        )
    return UnknownTopicOrPartitionError(
        f"{where}: {why}. Check that the topic exists, or seek() to an offset",
        code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )


def names_of(topics: Iterable[str]) -> str:
    """Return the topics as text for an error message."""
    return ", ".join(repr(topic) for topic in sorted(topics))


def _denied_commit_error(
    denied: OffsetsByPartition, done: OffsetsByPartition
) -> TopicAuthorizationFailedError:
    topics = {tp.topic for tp in denied}
    rest = f"The offsets of {describe(done)} are committed" if done else "Nothing is committed"
    return TopicAuthorizationFailedError(
        f"commit failed for {describe(denied)}: this client needs READ on topic "
        f"{names_of(topics)}. {rest}",
        topics=topics,
        operation="READ",
        committed=done,
    )
