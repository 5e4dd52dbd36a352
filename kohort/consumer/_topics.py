"""The task that applies the subscription to the cluster metadata."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

import anyio

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
from kohort.subscription import SubscriptionMode
from kohort.transport import ClusterMetadata, start_soon, weak_callback
from kohort.types import TopicPartition

if TYPE_CHECKING:
    from kohort.consumer._engine import Engine

logger = logging.getLogger("kohort.consumer")

UNKNOWN_TOPIC_REFRESHES = 3
"""Consecutive metadata updates without a topic or partition before an error is reported.

A new topic is also unknown to some brokers at first."""


class TopicWatch:
    """The task that keeps the cluster client, the group and the subscription in step.

    Without a group, it also assigns all partitions of the topics.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._woken = anyio.Event()
        self._group_subscription: frozenset[str] | None = None
        self._pattern: re.Pattern[str] | None = None
        self._unknown: dict[str, int] = {}
        self._reported: set[str] = set()
        self._missing: dict[TopicPartition, int] = {}
        self._denied_topics: frozenset[str] = frozenset()
        self.has_assigned_all = False
        """True if a subscription without a group has assigned all existing partitions."""

    def wake(self) -> None:
        """Apply the subscription again, because it or the metadata changed."""
        self._woken.set()

    def forget_denied_topics(self) -> None:
        """Forget which topics were denied, so that a new subscription reports them again."""
        engine = self._engine
        self._denied_topics = frozenset()
        if engine.cluster.metadata.refused(engine.subscription.topics()):
            engine.cluster.request_refresh()  # permissions may have changed since the last update

    def forget_subscription(self) -> None:
        """Forget the topics sent to the group after leaving it, so that they are sent again."""
        self._group_subscription = None
        self.wake()

    async def run(self) -> None:
        """Run until cancelled; never raises."""
        engine = self._engine
        engine.cluster.on_metadata_change(weak_callback(self._on_metadata))
        tasks = anyio.create_task_group()
        async with tasks:
            start_soon(tasks, self._bootstrap)
            while True:
                self._woken = anyio.Event()
                try:
                    await self._apply_subscription()
                except KafkaError as error:
                    engine.callback_queue.report(error)
                await self._woken.wait()

    async def _bootstrap(self) -> None:
        """Report each failure to reach any broker, and each security error of all brokers."""
        known: KafkaError | None = None
        while True:
            try:
                await self._engine.cluster.wait_bootstrapped(known)
            except (NoBrokersAvailable, CredentialsUnavailableError) as error:
                self._engine.callback_queue.report(error)
            except SecurityError as error:
                known = error
                self._engine.callback_queue.report(error)
            except IllegalStateError:
                return  # cancelled before the start, and the connections are closed
            else:
                self._engine.callback_queue.notify()
                return

    async def _apply_subscription(self) -> None:
        engine = self._engine
        if engine.replaced_offsets:
            await engine.commit_replaced()
        if engine.is_leaving:
            return  # finish_leave() wakes this task for later changes
        subscription = engine.subscription
        mode = subscription.mode
        if mode is SubscriptionMode.PATTERN:
            engine.cluster.want_topics(None)
            if not await self._match_pattern():
                return
            self._observe_topics()
        else:
            self._pattern = None
            self._observe_topics()
            # The leader assigns the topics of all members, so it needs their metadata.
            of_group = engine.coordinator.group_topics if engine.coordinator else frozenset()
            owned = {tp.topic for tp in subscription.assigned()}
            engine.cluster.want_topics(subscription.topics() | of_group | owned)
        if not engine.is_subscribed:
            return
        topics = subscription.topics()
        if engine.coordinator is None:
            self._assign_all(topics)
        elif topics != self._group_subscription or engine.resubscribed:
            self._group_subscription, engine.resubscribed = topics, False
            engine.coordinator.subscribe(topics)
        reason, engine.rejoin_reason = engine.rejoin_reason, None
        if engine.coordinator is not None and reason is not None:
            engine.coordinator.request_rejoin(reason)

    async def _match_pattern(self) -> bool:
        """Match the pattern. Return False while the names of all topics are unknown."""
        cluster, pattern = self._engine.cluster, self._engine.subscription.pattern
        if not cluster.bootstrapped:
            return False
        if pattern is not self._pattern:
            # Without the names, the consumer would join the group in vain and again soon after.
            await cluster.fetch_topics(None)
            self._pattern = pattern
        known = cluster.metadata.topics
        hide = self._engine.config.exclude_internal_topics
        names = [name for name, topic in known.items() if not (hide and topic.is_internal)]
        self._engine.subscription.match_topics(names)
        return True

    def _assign_all(self, topics: frozenset[str]) -> None:
        """Assign all partitions of the topics, for a subscription without a group."""
        metadata = self._engine.cluster.metadata
        wanted = {
            TopicPartition(topic, partition)
            for topic in topics
            for partition in metadata.partitions_for(topic)
        }
        if wanted != self._engine.subscription.assigned():
            self._engine.subscription.assign_from_group(wanted)
            self._engine.apply_subscription()
        if wanted or self._engine.subscription.mode is SubscriptionMode.PATTERN:
            self.has_assigned_all = True
            self._engine.callback_queue.notify()

    def _on_metadata(self, _old: ClusterMetadata, _new: ClusterMetadata) -> None:
        engine = self._engine
        self._note_ids()
        if engine.subscription.mode is not SubscriptionMode.PATTERN:
            self._observe_topics()  # a pattern does this after the match
        if engine.coordinator is not None:
            engine.coordinator.apply_metadata(engine.cluster.metadata)
        self._check_topics()
        self._check_assigned()
        self.wake()
        engine.fetcher.wake()
        engine.callback_queue.notify()  # start() may be waiting for it

    def _note_ids(self) -> None:
        """Pass topic ids to the subscription first, so that it detects recreated topics."""
        engine = self._engine
        topics = engine.cluster.metadata.topics
        recreated = engine.subscription.note_topic_ids(
            {name: topic.topic_id for name, topic in topics.items()}
        )
        for each in recreated:
            engine.commit_statistics.forget_topic(each.topic)
        if recreated:
            engine.find_positions()

    def _observe_topics(self) -> None:
        """Note which partitions of the topics exist, so that later ones count as new."""
        engine = self._engine
        subscription = engine.subscription
        engine.first_positions.baseline.observe(
            engine.cluster.metadata, subscription.topics(), self._pattern
        )
        engine.fetcher.wake()

    def _check_topics(self) -> None:
        """Report topics that do not exist, once each."""
        metadata = self._engine.cluster.metadata
        wanted = self._engine.subscription.topics()
        self._check_rights(wanted)
        for topic in wanted:
            known = metadata.topics.get(topic)
            code = known.error if known is not None else 0
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

    def _check_rights(self, wanted: frozenset[str]) -> None:
        """Report topics that the principal may not describe, once for each change."""
        engine = self._engine
        named = wanted | {tp.topic for tp in engine.subscription.assigned()}
        refused = engine.cluster.metadata.refused(named)
        news, self._denied_topics = refused - self._denied_topics, refused
        if news:
            creates = engine.config.client.allow_auto_create_topics
            engine.report_refusal(
                denied_topics_error("reading metadata", news, "DESCRIBE", may_create=creates)
            )

    def _check_assigned(self) -> None:
        """Report partitions of assign() that do not exist, once each."""
        engine, metadata = self._engine, self._engine.cluster.metadata
        missing: dict[TopicPartition, int] = {}
        if engine.subscription.mode is SubscriptionMode.MANUAL:
            for tp in engine.subscription.assigned():
                there = metadata.partitions_for(tp.topic)
                if there and tp.partition not in there:
                    missing[tp] = self._missing.get(tp, 0) + 1
        self._missing = missing
        for tp, answers in missing.items():
            if answers == UNKNOWN_TOPIC_REFRESHES:
                there = metadata.partitions_for(tp.topic)
                engine.callback_queue.report(_unknown_partition(tp, len(there)))
            elif answers < UNKNOWN_TOPIC_REFRESHES:
                engine.cluster.request_refresh()

    def _report(self, topic: str, error: KafkaError) -> None:
        if topic not in self._reported:
            self._reported.add(topic)
            self._engine.callback_queue.report(error)

    async def partitions_of(self, topic: str) -> frozenset[int]:
        """Return the partitions of a topic, requested if they are unknown."""
        metadata = self._engine.cluster.metadata
        while not metadata.partitions_for(topic):
            # A request for one name could create the topic, so all topics are requested.
            metadata = await self._engine.cluster.fetch_topics(None)
            known = metadata.topics.get(topic)
            if known is None or known.error != ErrorCode.LEADER_NOT_AVAILABLE:
                break
            # The topic exists, but its leaders are not elected yet.
            await anyio.sleep(self._engine.config.client.retry_backoff_ms / 1000)
        return frozenset(metadata.partitions_for(topic))

    async def all_topics(self) -> frozenset[str]:
        """Return the names of all topics of the cluster, by a new request."""
        metadata = await self._engine.cluster.fetch_topics(None)
        hide = self._engine.config.exclude_internal_topics
        return frozenset(
            name for name, topic in metadata.topics.items() if not (hide and topic.is_internal)
        )

    async def ids_of(self, names: frozenset[str]) -> dict[str, bytes]:
        """Return the ids of topics by a new request.

        Topics that do not exist or have no id are left out.
        """
        metadata = await self._engine.cluster.fetch_topics(names, may_create=False)
        known = {name: metadata.topics[name] for name in names if name in metadata.topics}
        return {
            name: topic.topic_id
            for name, topic in known.items()
            if not topic.error and any(topic.topic_id)
        }


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
