"""metrics(), explain() and health() of share consumers, with the parts of the other consumers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kohort.consumer.diagnosis._diagnosis import collect_diagnosis
from kohort.consumer.diagnosis._metrics import Metrics, or_never, polling, seconds_since
from kohort.share.client._locks import Locks
from kohort.types import NamedTuple, TopicPartition

if TYPE_CHECKING:
    from kohort.consumer.diagnosis._facts import (
        ExplanationFacts,
        GroupFacts,
        ProcessingFacts,
        ShareFacts,
    )
    from kohort.consumer.engine._parts import ConsumerParts
    from kohort.share.client._client import ShareClient
    from kohort.share.client._settings import ShareSettings


class ShareParts(NamedTuple):
    """The parts of a share consumer, with the state of its engine now."""

    engine: ConsumerParts
    settings: ShareSettings
    locks: Locks
    client: ShareClient | None
    """None before the first poll."""
    topics: frozenset[str]
    acknowledgement: str
    assigned: Iterable[TopicPartition]
    delivered: int
    """The number of records that polls have returned."""
    errors: Iterable[Exception]
    """Errors of data that the next polls raise."""


def collect_facts(
    parts: ShareParts, *, started: bool, closed: bool, processing: ProcessingFacts | None
) -> ExplanationFacts:
    """Return the state of a share consumer without I/O. An Explanation adds the reasons."""
    facts = collect_diagnosis(
        parts.engine,
        started=started,
        closed=closed,
        processing=processing,
        share_topics=parts.topics,
    )
    waiting = [*parts.errors, *(() if parts.client is None else tuple(parts.client.errors))]
    return {
        **facts,
        "poll": {
            **facts["poll"],
            "errors_waiting": facts["poll"]["errors_waiting"]
            + [f"{type(each).__name__}: {each}" for each in waiting],
        },
        "group": _group(parts),
        "shares": _shares(parts),
    }


def _group(parts: ShareParts) -> GroupFacts:
    client = parts.client
    statistics = None if client is None else client.statistics
    state = _state(parts)
    return {
        "group_id": parts.settings.group_id,
        "state": state,
        "coordinator": None if client is None else client.member.coordinator.node,
        "generation": -1 if client is None else client.membership.epoch,
        "member_id": "" if client is None else client.member.id,
        "group_instance_id": None,
        "group_protocol": "share",
        "group_protocol_reason": "it is a share consumer",
        "protocol": None,
        "leads": False,
        "waits_for_poll": False,
        "rebalance_reason": _reason(parts, state),
        "join_obstruction": None if client is None else client.member.coordinator.lookup_failure,
        "assignment_cause": None,
        "offset_read_failure": None,
        "last_failure": None if statistics is None else statistics.last_failure,
        "fenced": False,
        "last_heartbeat_seconds_ago": None
        if statistics is None
        else seconds_since(parts.engine, statistics.last_heartbeat),
        "session_in_doubt": False,  # the leaders do not ask for the membership
    }


def _state(parts: ShareParts) -> str:
    """Return the state of the membership, by the names of other groups."""
    if parts.client is None or not parts.topics:
        return "unsubscribed"
    membership = parts.client.membership
    if not membership.topics and parts.engine.cluster.bootstrapped:
        return "unsubscribed"  # it has left
    if membership.has_failed:
        return "failed"
    return "stable" if membership.is_member else "joining"


def _reason(parts: ShareParts, state: str) -> str | None:
    if state == "joining":
        return "this consumer has subscribed"
    if state != "unsubscribed":
        return None
    if parts.client is None or not parts.topics or not parts.client.member.has_left_silent:
        return "poll() joins a group that has topics to read"
    return "it left, because max_poll_interval_ms passed without a poll(). The next one joins again"


def _shares(parts: ShareParts) -> ShareFacts:
    locks, client = parts.locks, parts.client
    locked, buffered = locks.counts()
    unacknowledged, deadline = locks.unmarked()
    ago = seconds_since(parts.engine, deadline)
    return {
        "acknowledgement": parts.acknowledgement,
        "start": parts.settings.start,
        "partitions": [f"{each.topic}-{each.partition}" for each in sorted(parts.assigned)],
        "sessions": [] if client is None else client.session_nodes(),
        "nothing_available": client is not None and client.is_idle,
        "lock_seconds": locks.seconds,
        "locked": locked,
        "buffered": buffered,
        "unacknowledged": unacknowledged,
        "first_deadline_seconds": None if ago is None else -ago,
        "acquired": locks.acquired,
        "acknowledged": locks.acknowledged,
        "failed": locks.failed,
    }


def collect_metrics(parts: ShareParts) -> Metrics:
    """Return ``{group: {name: value}}``, with the groups and names of the Java client."""
    locks, client = parts.locks, parts.client
    locked, buffered = locks.counts()
    fetching = {
        "records-consumed-total": float(parts.delivered),
        "records-acquired-total": float(locks.acquired),
        "records-locked": float(locked),
        "records-buffered": float(buffered),
        "acknowledgements-total": float(locks.acknowledged),
        "acknowledgements-error-total": float(locks.failed),
    }
    coordinating = {"assigned-partitions": float(len([*parts.assigned]))}
    if client is not None:
        statistics = client.statistics
        fetching |= {
            "fetch-total": float(statistics.fetches.count),
            "fetch-error-total": float(statistics.failed_fetches),
            "fetch-latency-avg": 1000 * statistics.fetches.average,
            "fetch-latency-max": 1000 * statistics.fetches.longest,
            "bytes-consumed-total": float(statistics.bytes_fetched),
        }
        coordinating |= {
            "rebalance-total": float(statistics.rebalances),
            "heartbeat-total": float(statistics.heartbeats),
            "last-heartbeat-seconds-ago": or_never(parts.engine, statistics.last_heartbeat),
        }
    return {
        "consumer-share-metrics": polling(parts.engine),
        "consumer-share-fetch-manager-metrics": fetching,
        "consumer-share-coordinator-metrics": coordinating,
    }
