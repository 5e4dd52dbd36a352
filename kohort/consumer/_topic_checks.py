"""The checks of cluster metadata for topics and partitions that cannot be read."""

from __future__ import annotations

import logging

from kohort.consumer._error_reports import ErrorReports
from kohort.errors import ErrorCode, KafkaError, UnknownTopicOrPartitionError, broker_error
from kohort.fetcher import denied_topics_error
from kohort.subscription import SubscriptionMode, SubscriptionState
from kohort.transport import ClusterClient
from kohort.types import TopicPartition

logger = logging.getLogger("kohort.consumer")

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
