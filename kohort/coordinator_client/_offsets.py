"""Committed offsets: write and read them, with the rules for each error code."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext

import anyio

from kohort.config import GroupConfig
from kohort.coordinator_client._cluster_view import Cluster, TopicHistory, topic_ids
from kohort.coordinator_client._coordinator import CoordinatorConnection
from kohort.coordinator_client._error_actions import Action, action_for, failure
from kohort.coordinator_client._events import CommitRefused, Event
from kohort.coordinator_client._member import NO_GENERATION
from kohort.coordinator_client._membership import Membership
from kohort.coordinator_client._offset_messages import (
    commit_codes,
    commit_forms,
    fetch_forms,
    fetched,
    goes_by_id,
)
from kohort.coordinator_client._partition_text import describe
from kohort.coordinator_client._state import MemberState
from kohort.errors import (
    CommitFailedError,
    ErrorCode,
    KafkaError,
    KafkaTimeoutError,
    ProtocolError,
    RebalanceInProgressError,
    TopicAuthorizationFailedError,
    TransportError,
    error_name,
)
from kohort.protocol import ApiKey
from kohort.transport import Backoff, in_seconds, with_principal
from kohort.types import OffsetAndMetadata, TopicPartition

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


class OffsetManager:
    """Commits and fetches the offsets of one group.

    One commit is on its way at a time, so that one that has to be repeated cannot overtake a later
    one and set the offset back.
    """

    def __init__(
        self,
        cluster: Cluster,
        link: CoordinatorConnection,
        config: GroupConfig,
        membership: Membership,
        tell: Callable[[Event], None],
        backoff: Backoff,
        rng: random.Random,
        *,
        require_stable: bool,
        history: TopicHistory,
    ) -> None:
        self._cluster = cluster
        self._link = link
        self._group_id = config.group_id or ""
        self._instance_id = config.group_instance_id
        self._request_timeout = config.request_timeout_ms / 1000
        self._membership = membership
        self._tell = tell
        self._backoff = backoff
        self._rng = rng
        self._require_stable = require_stable
        self._history = history
        self._committing = anyio.Lock()

    # --- commit ---------------------------------------------------------------------------------

    async def commit(
        self,
        offsets: Offsets,
        timeout: float | None,
        *,
        ids: Mapping[TopicPartition, bytes] | None = None,
    ) -> None:
        """Commit within ``timeout`` seconds (None: no limit), in the generation of this moment.

        ``ids`` are those of the topics that the offsets belong to, where they are known. Offsets of
        a topic that was recreated since are left out; when the others are committed, that is a
        CommitFailedError.

        Without a subscription it is a commit from outside the group, which the coordinator takes
        as long as the group has no members. Raises

        - CommitFailedError: this is not (any more) the member that owns these partitions. Nothing
          is sent if that is known beforehand. Poll on: the consumer rejoins by itself.
        - RebalanceInProgressError: the partitions are still owned, but the group is between
          JoinGroup and SyncGroup, when it takes no commits. Poll, then commit again.
        - KafkaTimeoutError: not done in time; ``__cause__`` is the last error, if there was one.
        - TopicAuthorizationFailedError: READ is missing on some topics. The other offsets are
          committed; ``committed`` of the error has them.
        - GroupAuthorizationFailedError, OffsetMetadataTooLargeError and other errors of a broker
          that a repetition does not fix.
        """
        if not offsets:
            return
        left = dict(offsets)
        losses = self._membership.losses

        void: dict[TopicPartition, OffsetAndMetadata] = {}
        refused: dict[TopicPartition, OffsetAndMetadata] = {}

        async def once() -> str:
            void.update(self._take_void(left, ids or {}))
            return await self._commit_once(left, refused, losses) if left else ""

        await self._repeat(
            once, timeout, f"the commit of {describe(offsets)}", turn=self._committing
        )
        if void:
            raise CommitFailedError(
                f"commit failed for {describe(void)}: the topic was deleted and created again, and "
                "these offsets belong to the old one. Go on polling; the next commit is that of "
                "the new topic",
                offsets=void,
            )

        if refused:
            done = {tp: at for tp, at in offsets.items() if tp not in refused}
            raise with_principal(_refused_commit(refused, done), self._cluster.principal)

    def _take_void(
        self, left: dict[TopicPartition, OffsetAndMetadata], ids: Mapping[TopicPartition, bytes]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Take out the offsets of topics that have another id than they belong to."""
        known = {tp: topic_id for tp, topic_id in ids.items() if any(topic_id)}
        gone = [
            tp
            for tp in left
            if any(now := self._history.of(tp.topic)) and known.get(tp, now) != now
        ]
        return {tp: left.pop(tp) for tp in gone}

    async def _commit_once(
        self,
        left: dict[TopicPartition, OffsetAndMetadata],
        refused: dict[TopicPartition, OffsetAndMetadata],
        losses: int,
    ) -> str:
        """Commit what is left, take out what is done; returns why the rest has to be repeated.

        ``refused`` takes the offsets of topics on which a right is missing.
        """
        if self._membership.commits_soon and self._membership.state is not MemberState.JOINING:
            return "the group rebalances"
        generation, member_id = self._identity(left)
        if generation != NO_GENERATION and losses != self._membership.losses:
            # Owned again, it may be, but others may have read and committed on in between.
            raise CommitFailedError(
                f"not committed: this consumer has lost its membership of {self._group_id!r} "
                f"since, and {describe(left)} may have been another's meanwhile. Go on polling: "
                "the next commit is that of the positions of now",
                offsets=left,
            )
        ids = topic_ids(self._history, {tp.topic for tp in left})
        instance = None if generation == NO_GENERATION else self._instance_id
        response = await self._link.request(
            commit_forms(self._group_id, generation, member_id, instance, left, ids),
            timeout=self._request_timeout,
        )
        codes = commit_codes(response, left, ids)
        for tp, code in codes.items():
            if action_for(ApiKey.OFFSET_COMMIT, code) is Action.PROCEED:
                del left[tp]
            elif code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                refused[tp] = left.pop(tp)
        problem = ""
        for code in sorted({codes[tp] for tp in left}):
            problem = error_name(code)
            concerned = {tp: left[tp] for tp in left if codes[tp] == code}
            match action_for(ApiKey.OFFSET_COMMIT, code):
                case Action.REDISCOVER:
                    self._link.drop(f"OffsetCommit was answered {problem}")
                case Action.RETRY:
                    if code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
                        self._cluster.request_refresh()
                case Action.FAIL:
                    if code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
                        raise self._refusal(ApiKey.OFFSET_COMMIT, code)
                    error = failure(ApiKey.OFFSET_COMMIT, code, self._group_id)
                    raise type(error)(f"{error} (for {describe(concerned)})", code=code)
                case _:
                    self._moved_on(code, generation, member_id, concerned)
        return problem

    def _identity(self, offsets: Offsets) -> tuple[int, str]:
        """(generation, member id) to commit with; raises if there is no point in sending."""
        member = self._membership
        if member.state is MemberState.UNSUBSCRIBED:
            return NO_GENERATION, ""
        if member.generation == NO_GENERATION:
            then = "Subscribe again" if member.fenced else "Go on polling, it rejoins by itself"
            raise CommitFailedError(
                f"not committed: this consumer is not a member of group {self._group_id!r} at the "
                f"moment ({member.state.value}), and {describe(offsets)} may belong to another. "
                f"{then}",
                offsets=offsets,
            )
        gone = {tp: at for tp, at in offsets.items() if tp not in member.owned}
        if gone:
            raise CommitFailedError(
                f"not committed: {describe(gone)} is not assigned to this consumer (any more) in "
                f"generation {member.generation}",
                offsets=gone,
            )
        if member.state in (MemberState.ASSIGNING, MemberState.SYNCING):
            raise self._in_between()
        return member.generation, member.member_id

    def _in_between(self) -> RebalanceInProgressError:
        return RebalanceInProgressError(
            f"not committed: group {self._group_id!r} is rebalancing and takes no commits right "
            "now; poll() to complete the rebalance, then commit again"
        )

    def _moved_on(self, code: int, generation: int, member_id: str, refused: Offsets) -> None:
        """The coordinator does not take a commit of this generation; returns if another may do."""
        member = self._membership
        if generation == NO_GENERATION:
            raise CommitFailedError(
                f"not committed, the coordinator answered {error_name(code)}: group "
                f"{self._group_id!r} has members, and only they may commit. subscribe(), or use "
                "another group_id",
                offsets=refused,
            ) from failure(ApiKey.OFFSET_COMMIT, code, self._group_id)
        if (generation, member_id) != (member.generation, member.member_id):
            return  # a rebalance was faster; the next attempt sees what is left of the ownership
        action = action_for(ApiKey.OFFSET_COMMIT, code)
        if member.commits_soon and action in (Action.REJOIN, Action.LOSE_GENERATION):
            return  # the join round has ended; the response to JoinGroup tells the generation
        self._tell(CommitRefused(code, generation, member_id))
        still_owned = all(tp in member.owned for tp in refused)
        rejoining = member.state is MemberState.JOINING and action is not Action.FENCED
        if still_owned and (action is Action.REJOIN or rejoining):
            raise self._in_between()
        raise CommitFailedError(
            f"not committed, the coordinator answered {error_name(code)}: the group went on "
            f"without this consumer, and {describe(refused)} may belong to another. Poll more "
            "often (max_poll_interval_ms), or process less per poll (max_poll_records)",
            offsets=refused,
        ) from failure(ApiKey.OFFSET_COMMIT, code, self._group_id)

    # --- fetch ----------------------------------------------------------------------------------

    async def committed(
        self,
        partitions: Iterable[TopicPartition],
        timeout: float | None,
        *,
        refused: set[TopicPartition] | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed for each partition; None where nothing is.

        ``refused`` takes the partitions of topics on which a right is missing; they are left out
        of the result. Without it TopicAuthorizationFailedError is raised for them.

        An offset that goes by the topic's name counts as nothing if it is known to belong to a
        topic that was deleted. One request for all of them. Raises KafkaTimeoutError after
        ``timeout`` seconds, and the errors of a broker that another try would not change.
        """
        left = set(partitions)
        result: dict[TopicPartition, OffsetAndMetadata | None] = dict.fromkeys(left)
        by_name = False

        async def once() -> str:
            nonlocal by_name
            names = {tp.topic for tp in left}
            ids = None if by_name else topic_ids(self._history, names)
            response = await self._link.request(
                fetch_forms(self._group_id, left, ids, self._require_stable),
                timeout=self._request_timeout,
            )
            code, found = fetched(response, self._group_id, left, ids)
            problem = self._check_fetched(code, left)
            if code:
                return problem
            for tp, at in found.items():
                if at == ErrorCode.TOPIC_AUTHORIZATION_FAILED and refused is not None:
                    refused.add(tp)
                    del result[tp]
                elif isinstance(at, int):
                    problem = self._check_fetched(at, {tp}) or problem
                    if at == ErrorCode.UNKNOWN_TOPIC_ID and ids is not None:
                        by_name = True
                        self._history.doubt(tp.topic, ids[tp.topic])
                    if action_for(ApiKey.OFFSET_FETCH, at) is not Action.PROCEED:
                        continue
                else:
                    void = at is not None and self._history.is_void(tp, at.offset)
                    result[tp] = None if void and not goes_by_id(response) else at
                left.discard(tp)
            return problem if left else ""

        if left:
            what = f"the committed offsets of {describe(left)}"
            await self._repeat(once, timeout, what, turn=nullcontext())
        return result

    def _refusal(self, api: ApiKey, code: int) -> KafkaError:
        """Return the error for a missing right on the group."""
        return with_principal(failure(api, code, self._group_id), self._cluster.principal)

    def _check_fetched(self, code: int, concerned: Iterable[TopicPartition]) -> str:
        """Returns why to repeat, "" if there is no need; raises what no repetition mends."""
        match action_for(ApiKey.OFFSET_FETCH, code):
            case Action.PROCEED:
                return ""
            case Action.REDISCOVER:
                self._link.drop(f"OffsetFetch was answered {error_name(code)}")
            case Action.FAIL:
                if code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
                    raise self._refusal(ApiKey.OFFSET_FETCH, code)
                error = failure(ApiKey.OFFSET_FETCH, code, self._group_id)
                if isinstance(error, TopicAuthorizationFailedError):
                    topics = {tp.topic for tp in concerned}
                    raise with_principal(
                        TopicAuthorizationFailedError(
                            f"no committed offsets for {describe(concerned)}: this client needs "
                            f"DESCRIBE on topic {names_of(topics)}",
                            topics=topics,
                            operation="DESCRIBE",
                        ),
                        self._cluster.principal,
                    )
                raise type(error)(f"{error} (for {describe(concerned)})", code=code)
            case _:
                if code == ErrorCode.UNKNOWN_TOPIC_ID:
                    self._cluster.request_refresh()
        return error_name(code)

    # --- both -----------------------------------------------------------------------------------

    async def _repeat(
        self,
        once: Callable[[], Awaitable[str]],
        timeout: float | None,
        what: str,
        *,
        turn: AbstractAsyncContextManager[object],
    ) -> None:
        """Until ``once`` has nothing to complain of. Transport errors are repeated, too.

        ``turn`` is held over all the attempts; waiting for it counts into the timeout.
        """
        problem = "the coordinator was not found or did not answer"
        cause: KafkaError | None = None
        attempt = 0
        with anyio.move_on_after(timeout):
            async with turn:
                while True:
                    try:
                        problem = await once()
                        cause = None
                    except ProtocolError:
                        raise
                    except (TransportError, KafkaTimeoutError) as error:
                        problem, cause = str(error), error
                    if not problem:
                        return
                    attempt += 1
                    await anyio.sleep(self._backoff.delay(attempt, self._rng))
        raise KafkaTimeoutError(
            f"{what} was not done within {in_seconds(timeout)}: {problem}"
        ) from cause


def names_of(topics: Iterable[str]) -> str:
    """Return topics as a list for a message."""
    return ", ".join(repr(topic) for topic in sorted(topics))


def _refused_commit(refused: Offsets, done: Offsets) -> TopicAuthorizationFailedError:
    topics = {tp.topic for tp in refused}
    rest = f"The offsets of {describe(done)} are committed" if done else "Nothing is committed"
    return TopicAuthorizationFailedError(
        f"commit failed for {describe(refused)}: this client needs READ on topic "
        f"{names_of(topics)}. {rest}",
        topics=topics,
        operation="READ",
        committed=done,
    )
