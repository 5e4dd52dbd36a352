"""The task that applies the subscription to the cluster metadata, and checks of that metadata."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING

import anyio

from kohort.consumer.engine._error_reports import ErrorReports
from kohort.consumer.engine._positions import TopicBaseline
from kohort.consumer.engine._requests import ClusterRequests
from kohort.errors import (
    CredentialsUnavailableError,
    ErrorCode,
    IllegalStateError,
    KafkaError,
    NoBrokersAvailable,
    SecurityError,
    UnknownTopicOrPartitionError,
    broker_error,
)
from kohort.fetcher import denied_topics_error
from kohort.logs import error_text, get_logger
from kohort.subscription import SubscriptionMode, SubscriptionState
from kohort.transport import (
    ClusterClient,
    ClusterMetadata,
    TaskSignal,
    start_soon,
    weak_callback,
)
from kohort.types import NamedTuple, TopicPartition

if TYPE_CHECKING:
    from kohort.coordinator_client import CoordinatorClient


logger = get_logger("kohort.consumer")

UNKNOWN_TOPIC_REFRESHES = 3
"""Consecutive metadata updates without a topic or partition before an error is reported.

A new topic is also unknown to some brokers at first."""


class TopicChecks:
    """The checks of each metadata update. They report each missing or denied topic once."""

    def __init__(
        self,
        cluster: ClusterClient,
        subscription: SubscriptionState,
        errors: ErrorReports,
        *,
        may_create: bool,
    ) -> None:
        self._cluster = cluster
        self._subscription = subscription
        self._errors = errors
        self._may_create = may_create
        self._unknown: dict[str, int] = {}
        self._reported: set[str] = set()
        self._missing: dict[TopicPartition, int] = {}
        self._denied_topics: frozenset[str] = frozenset()
        self._absent: set[str] = set()
        self.appeared: frozenset[str] = frozenset()
        """Topics that did not exist when they were requested first, and exist now.

        With ``allow_auto_create_topics`` the first request may have created them.
        """

    def forget_denied_topics(self) -> None:
        """Forget which topics were denied, so that a new subscription reports them again."""
        self._denied_topics = frozenset()
        if self._cluster.metadata.refused(self._subscription.topics()):
            self._cluster.request_refresh()  # permissions may have changed since the last update

    def run(self) -> None:
        """Check the current metadata."""
        self._check_topics()
        self._check_assigned()

    def _check_topics(self) -> None:
        """Report topics that do not exist, once each."""
        metadata = self._cluster.metadata
        wanted = self._subscription.topics()
        self._check_rights(wanted)
        for topic in wanted:
            known = metadata.topics.get(topic)
            code = known.error if known is not None else 0
            if self._may_create and known is not None:
                self._note_existence(topic, exists=bool(known.partitions), code=code)
            if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._unknown[topic] = self._unknown.get(topic, 0) + 1
                if self._unknown[topic] == UNKNOWN_TOPIC_REFRESHES:
                    self._report(topic, _unknown_topic(topic))
            elif code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                self._unknown.pop(topic, None)
            elif code not in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
                self._report(topic, broker_error(code, f"topic {topic!r}: {broker_error(code)}"))
            else:
                self._unknown.pop(topic, None)
                self._reported.discard(topic)
        self._reported &= wanted
        self._unknown = {topic: n for topic, n in self._unknown.items() if topic in wanted}

    def _note_existence(self, topic: str, *, exists: bool, code: int) -> None:
        """Note topics that come into being after the first request for them.

        A broker that creates a topic responds with one of these codes first.
        """
        if code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE):
            if not exists:
                self._absent.add(topic)
        elif exists and topic in self._absent:
            self._absent.remove(topic)
            self.appeared |= {topic}
            logger.info(
                "topic %r did not exist when it was requested first, and exists now. Brokers may "
                "have created it, because allow_auto_create_topics is True",
                topic,
            )

    def _check_rights(self, wanted: frozenset[str]) -> None:
        """Report topics that the principal may not describe, once for each change."""
        named = wanted | {tp.topic for tp in self._subscription.assigned()}
        refused = self._cluster.metadata.refused(named)
        news, self._denied_topics = refused - self._denied_topics, refused
        if news:
            self._errors.report_refusal(
                denied_topics_error(
                    "reading metadata", news, "DESCRIBE", may_create=self._may_create
                )
            )

    def _check_assigned(self) -> None:
        """Report partitions of assign() that do not exist, once each."""
        metadata = self._cluster.metadata
        missing: dict[TopicPartition, int] = {}
        if self._subscription.mode is SubscriptionMode.MANUAL:
            for tp in self._subscription.assigned():
                there = metadata.partitions_for(tp.topic)
                if there and tp.partition not in there:
                    missing[tp] = self._missing.get(tp, 0) + 1
        self._missing = missing
        for tp, answers in missing.items():
            if answers == UNKNOWN_TOPIC_REFRESHES:
                there = metadata.partitions_for(tp.topic)
                self._errors.report(_unknown_partition(tp, len(there)))
            elif answers < UNKNOWN_TOPIC_REFRESHES:
                self._cluster.request_refresh()

    def _report(self, topic: str, error: KafkaError) -> None:
        if topic not in self._reported:
            self._reported.add(topic)
            self._errors.report(error)


def _unknown_topic(topic: str) -> UnknownTopicOrPartitionError:
    return UnknownTopicOrPartitionError(
        f"topic {topic!r} does not exist, and the cluster does not create topics automatically. "
        "Create it or correct the name. Further polls wait for it"
    )


def _unknown_partition(tp: TopicPartition, count: int) -> UnknownTopicOrPartitionError:
    return UnknownTopicOrPartitionError(
        f"{tp.topic}-{tp.partition} is assigned and does not exist: the topic has {count} "
        "partitions, numbered from 0. Correct assign() or add partitions. Further polls wait for it"
    )


_PATTERNS = (SubscriptionMode.PATTERN, SubscriptionMode.BROKER_PATTERN)
REFRESH_SECONDS = 1.0
"""Longest time that a rebalance waits for the names of new topics before it joins."""


class TopicEvents(NamedTuple):
    """Functions that the topic watch calls."""

    notify: Callable[[], None]
    """Wakes a waiting caller, such as start()."""
    wake_fetcher: Callable[[], None]
    on_assignment: Callable[[], None]
    """Called after it has assigned partitions."""
    on_recreated: Callable[[Collection[str]], None]
    """Called with the topics that were deleted and created again."""
    commit_replaced: Callable[[], Awaitable[None]]
    """Awaited before a changed assignment is applied."""


class TopicWatch:
    """The task that keeps the cluster client, the group and the subscription in step.

    Without a group, it also assigns all partitions of the topics.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        requests: ClusterRequests,
        subscription: SubscriptionState,
        coordinator: CoordinatorClient | None,
        baseline: TopicBaseline,
        checks: TopicChecks,
        errors: ErrorReports,
        events: TopicEvents,
    ) -> None:
        self._cluster = cluster
        self._requests = requests
        self._subscription = subscription
        self._coordinator = coordinator
        self._baseline = baseline
        self._checks = checks
        self._errors = errors
        self._events = events
        self._woken = TaskSignal()
        self._group_subscription: tuple[frozenset[str], str] | None = None
        self._pattern: re.Pattern[str] | str | None = None
        """The pattern whose first topics are known. It is a str if the brokers evaluate it."""
        self._is_resubscribed = False
        """True after subscribe(), also for the same topics. A fenced member then joins again."""
        self._rejoin_reason: str | None = None
        """The reason of a rebalance that the caller requested, until it is sent."""
        self._others: frozenset[str] = frozenset()
        """Topics whose metadata another part of the consumer needs."""
        self._leaving = 0
        self.has_assigned_all = False
        """True if a subscription without a group has assigned all existing partitions."""

    def wake(self) -> None:
        """Apply the subscription again, because it or the metadata changed."""
        self._woken.notify()

    def renew(self) -> None:
        """Apply a new subscription or assignment, and report its denied topics again."""
        self._checks.forget_denied_topics()
        self.wake()

    def note_subscribe(self) -> None:
        """Note a call of subscribe(), from any thread. :meth:`renew` applies it."""
        self._is_resubscribed = True

    def note_rejoin(self, reason: str) -> None:
        """Note a request for a rebalance, from any thread. :meth:`wake` sends it."""
        self._rejoin_reason = reason

    def hold(self) -> None:
        """Join no group until :meth:`release`, because the consumer unsubscribes."""
        self._leaving += 1

    def release(self) -> None:
        """End :meth:`hold`, and send the topics to the group again after leaving it."""
        self._leaving = max(0, self._leaving - 1)
        self._group_subscription = None
        self.wake()

    def want_others(self, topics: frozenset[str]) -> None:
        """Keep metadata of these topics, too, which another part of the consumer reads."""
        self._others = topics
        self.wake()

    def want_first_topics(self) -> None:
        """Request what is known before the start with the first metadata, which saves a request."""
        if self._subscription.mode not in _PATTERNS:
            owned = {tp.topic for tp in self._subscription.assigned()}
            self._cluster.want_topics(self._subscription.topics() | owned | self._others)

    async def run(self) -> None:
        """Run until cancelled; never raises."""
        self._cluster.on_metadata_change(weak_callback(self._on_metadata))
        tasks = anyio.create_task_group()
        async with tasks:
            start_soon(tasks, self._bootstrap)
            while True:
                woken = self._woken.event()
                try:
                    await self._apply_subscription()
                except KafkaError as error:
                    self._errors.report(error)
                await woken.wait()

    async def _bootstrap(self) -> None:
        """Report each failure to reach any broker, and each security error of all brokers."""
        known: KafkaError | None = None
        while True:
            try:
                await self._cluster.wait_bootstrapped(known)
            except (NoBrokersAvailable, CredentialsUnavailableError) as error:
                self._errors.report(error)
            except SecurityError as error:
                known = error
                self._errors.report(error)
            except IllegalStateError:
                return  # cancelled before the start, and the connections are closed
            else:
                self._events.notify()
                return

    async def _apply_subscription(self) -> None:
        await self._events.commit_replaced()
        if self._leaving:
            return  # release() wakes this task for later changes
        subscription = self._subscription
        mode = subscription.mode
        if mode is SubscriptionMode.PATTERN:
            self._cluster.want_topics(None)
            if not await self._match_pattern():
                return
            self._observe_topics()
        else:
            if mode is not SubscriptionMode.BROKER_PATTERN:
                self._pattern = None
            elif not await self._note_first_topics(subscription.broker_pattern):
                return
            self._observe_topics()
            # The leader assigns the topics of all members, so it needs their metadata.
            of_group = self._coordinator.group_topics if self._coordinator else frozenset()
            owned = {tp.topic for tp in subscription.assigned()}
            self._cluster.want_topics(subscription.topics() | of_group | owned | self._others)
        if not subscription.is_subscribed:
            return
        self._apply_topics(subscription.topics())
        reason, self._rejoin_reason = self._rejoin_reason, None
        if self._coordinator is not None and reason is not None:
            self._coordinator.request_rejoin(reason)

    async def _match_pattern(self) -> bool:
        """Match the pattern. Return False while the names of all topics are unknown."""
        cluster, pattern = self._cluster, self._subscription.pattern
        if not cluster.bootstrapped:
            return False
        if pattern is not self._pattern:
            # Without the names, the consumer would join the group in vain and again soon after.
            await cluster.fetch_topics(None)
            self._pattern = pattern
        self._subscription.match_topics(self._requests.visible_topics(cluster.metadata))
        return True

    async def _note_first_topics(self, pattern: str) -> bool:
        """Note the topics that exist when a pattern of the brokers is new.

        Topics that it matches later did not exist before. Return False while they are unknown.
        """
        cluster = self._cluster
        if not cluster.bootstrapped:
            return False
        if pattern != self._pattern:
            metadata = await cluster.fetch_topics(None)
            self._pattern = pattern
            self._baseline.observe(metadata, metadata.topics, pattern)
        return True

    async def refresh_pattern(self) -> None:
        """Match the pattern with new metadata before the group is joined, and never raise.

        Another member may have started the rebalance because of a topic that is unknown here. Two
        rebalances would assign this topic if the member joined without it.
        """
        pattern = self._subscription.pattern
        if pattern is None or pattern is not self._pattern:
            return
        try:
            with anyio.move_on_after(REFRESH_SECONDS) as scope:
                await self._cluster.wait_refreshed()
        except KafkaError as error:
            logger.debug("the topics of the pattern could not be refreshed: %s", error_text(error))
            return
        if scope.cancelled_caught or self._leaving or pattern is not self._subscription.pattern:
            return
        self._subscription.match_topics(self._requests.visible_topics(self._cluster.metadata))
        self._observe_topics()
        self._apply_topics(self._subscription.topics())

    def _apply_topics(self, topics: frozenset[str]) -> None:
        """Subscribe to changed topics in the group, or assign all partitions without a group."""
        if self._coordinator is None:
            self._assign_all(topics)
            return
        regex = self._subscription.broker_pattern
        wanted = (frozenset() if regex else topics, regex)
        if wanted != self._group_subscription or self._is_resubscribed:
            self._group_subscription, self._is_resubscribed = wanted, False
            self._coordinator.subscribe(*wanted)

    def _assign_all(self, topics: frozenset[str]) -> None:
        """Assign all partitions of the topics, for a subscription without a group."""
        metadata = self._cluster.metadata
        wanted = {
            TopicPartition(topic, partition)
            for topic in topics
            for partition in metadata.partitions_for(topic)
        }
        if wanted != self._subscription.assigned():
            self._subscription.assign_from_group(wanted)
            self.wake()
            self._events.on_assignment()
        if wanted or self._subscription.mode is SubscriptionMode.PATTERN:
            self.has_assigned_all = True
            self._events.notify()

    def _on_metadata(self, _old: ClusterMetadata, _new: ClusterMetadata) -> None:
        self._note_ids()
        if self._subscription.mode not in _PATTERNS:
            self._observe_topics()  # a pattern does this after the match
        if self._coordinator is not None:
            self._coordinator.apply_metadata(self._cluster.metadata)
        self._checks.run()
        self.wake()
        self._events.wake_fetcher()
        self._events.notify()  # start() may be waiting for it

    def _note_ids(self) -> None:
        """Pass topic ids to the subscription first, so that it detects recreated topics."""
        topics = self._cluster.metadata.topics
        recreated = self._subscription.note_topic_ids(
            {name: topic.topic_id for name, topic in topics.items()}
        )
        if recreated:
            self._events.on_recreated([each.topic for each in recreated])

    def _observe_topics(self) -> None:
        """Note which partitions of the topics exist, so that later ones count as new."""
        self._baseline.observe(self._cluster.metadata, self._subscription.topics(), self._pattern)
        self._events.wake_fetcher()
