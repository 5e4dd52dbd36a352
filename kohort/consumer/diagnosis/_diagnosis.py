"""The state that explain() uses, as one dict of plain values that can be logged as JSON."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kohort.consumer.diagnosis._explanation import SLOW_SECONDS
from kohort.consumer.diagnosis._metrics import end_offset, lag_times, lags, seconds_since
from kohort.consumer.engine._open_transactions import hidden_offsets
from kohort.errors import TopicAuthorizationFailedError
from kohort.fetcher import is_distant
from kohort.records import COMPILED, PLAIN_REASON
from kohort.subscription import PartitionState
from kohort.types import TopicPartition

if TYPE_CHECKING:
    from kohort.consumer.diagnosis._facts import (
        AssignmentCauseFacts,
        DistantBrokerFacts,
        ExplanationFacts,
        GroupFacts,
        HeldPartitionFacts,
        OpenTransactionFacts,
        PartitionFacts,
        ProcessingFacts,
        RebalanceFacts,
        RightFacts,
        SecurityFacts,
        SlowLineFacts,
    )
    from kohort.consumer.engine._parts import ConsumerParts
    from kohort.coordinator_client import AssignmentCause, MembershipSnapshot


def collect_diagnosis(
    parts: ConsumerParts,
    *,
    started: bool,
    closed: bool,
    processing: ProcessingFacts | None,
    share_topics: frozenset[str] = frozenset(),
) -> ExplanationFacts:
    """Return the state of a consumer without I/O. An Explanation adds the reasons.

    The caller passes the keyword arguments, because the engine does not know them.
    ``share_topics`` are those of a share consumer, whose engine has no subscription.
    """
    config, callback_queue, metadata = parts.config, parts.callback_queue, parts.cluster.metadata
    snapshot = parts.subscription.snapshot()
    topics = snapshot.topics | share_topics
    servers = config.client.bootstrap_servers
    return {
        "reasons": [],
        "client_id": config.client.client_id,
        "state": _state(parts, started=started, closed=closed),
        "decoders": {"compiled": COMPILED, "plain_reason": PLAIN_REASON},
        "cluster": {
            "reached": parts.cluster.bootstrapped,
            "last_error": None if parts.cluster.bootstrapped else parts.cluster.last_error,
            "bootstrap_servers": [f"{host}:{port}" for host, port in servers],
            "proxy": parts.cluster.proxy,
            "brokers": sorted(metadata.brokers),
            "unreachable": _unreachable(parts),
            "slow_lines": _slow_lines(parts),
            "distant_brokers": _distant_brokers(parts),
            "api_versions": {
                key: [served.first, served.last]
                for key, served in parts.cluster.api_versions.items()
            },
            "fetch_max_wait_ms": 1000 * parts.fetcher.usual_long_poll,
            "fetch_interval_ms": 1000 * parts.fetcher.interval,
        },
        "security": _security(parts, running=started and not parts.ended),
        "subscription": {
            "mode": "topics" if share_topics else snapshot.mode.value,
            "topics": sorted(topics),
            "pattern": snapshot.pattern,
            "appeared_topics": sorted(snapshot.topics & parts.topic_checks.appeared),
            "unknown_topics": sorted(
                topic
                for topic in topics - metadata.refused(topics)
                if not metadata.partitions_for(topic)
            ),
        },
        "poll": {
            "inside": callback_queue.is_polling,
            "last_seconds_ago": seconds_since(parts, callback_queue.last_active_at),
            "max_poll_interval_ms": config.group.max_poll_interval_ms,
            "errors_waiting": [f"{type(e).__name__}: {e}" for e in tuple(parts.errors.waiting)],
        },
        "group": _group(parts),
        "rebalances": _rebalances(parts),
        "partitions": _partitions(parts),
        "shares": None,
        "missing_rights": _missing_rights(parts, share_topics),
        "last_commit_error": parts.commit_statistics.last_commit_error,
        "commits": {
            "automatic": config.group.auto_commit,
            "recommit_seconds": config.group.offsets_recommit_interval_ms / 1000 or None,
        },
        "processing": processing,
    }


def _unreachable(parts: ConsumerParts) -> dict[int, str]:
    """Return the failures of unreachable brokers that this consumer needs.

    It needs the coordinator and the brokers that it reads from. For requests to any broker it needs
    the others only if none of them is reachable.
    """
    failures, metadata = parts.cluster.unreachable, parts.cluster.metadata
    needed: set[int | None] = set()
    if failures.keys() >= metadata.brokers.keys():
        needed.update(metadata.brokers)
    if parts.coordinator is not None:
        needed.add(parts.coordinator.snapshot().coordinator)
    for tp in parts.subscription.assigned():
        leader = metadata.leader(tp)
        needed |= {parts.fetcher.follower(tp), None if leader is None else leader.node}
    return {node: failure for node, failure in failures.items() if node in needed}


def _slow_lines(parts: ConsumerParts) -> dict[int, SlowLineFacts]:
    """Return the rate of each broker whose latest large response took a second or longer."""
    lines = {node: parts.cluster.line(node) for node in sorted(parts.cluster.metadata.brokers)}
    return {
        node: {
            "bytes_per_second": round(line.bytes_per_second),
            "fetch_seconds": line.delivery_seconds,
        }
        for node, line in lines.items()
        if line is not None and line.delivery_seconds >= SLOW_SECONDS
    }


def _distant_brokers(parts: ConsumerParts) -> dict[int, DistantBrokerFacts]:
    """Return the round trip of each distant broker, and how its partitions are fetched."""
    found: dict[int, DistantBrokerFacts] = {}
    for node in sorted(parts.cluster.metadata.brokers):
        line = parts.cluster.line(node)
        if line is None or not is_distant(line.round_trip):
            continue
        connections, rate = parts.fetcher.parallel_fetches(node)
        rate = rate or line.bytes_per_second
        found[node] = {
            "round_trip_seconds": line.round_trip,
            "connections": connections,
            "bytes_per_second": None if rate == math.inf else round(rate),
        }
    return found


def _security(parts: ConsumerParts, *, running: bool) -> SecurityFacts:
    security, contexts = parts.config.security, parts.cluster.contexts
    expires_at, days = (None, None) if contexts is None else contexts.expiry()
    return {
        "protocol": security.security_protocol,
        "encrypted_by": parts.cluster.encrypted_by,
        "mechanism": security.sasl.sasl_mechanism if security.uses_sasl else None,
        "principal": parts.cluster.principal,
        "refusals": parts.cluster.refusals,
        "credentials_obstacle": _obstacle(parts) if running else None,  # the loop has the clock
        "certificate_of": None if contexts is None else contexts.identity,
        "certificate_expires_at": expires_at,
        "certificate_expires_in_days": days,
    }


def _obstacle(parts: ConsumerParts) -> str | None:
    return parts.cluster.credentials_obstacle(parts.callback_queue.clock())


def _state(parts: ConsumerParts, *, started: bool, closed: bool) -> str:
    if closed:
        return "closed"
    if not started:
        return "not started"
    if parts.failure is not None:
        return f"broken down: {parts.failure!r}"
    return "ended" if parts.ended else "running"


def _group(parts: ConsumerParts) -> GroupFacts | None:
    if parts.coordinator is None:
        return None
    group, activity = parts.coordinator.snapshot(), parts.coordinator.statistics()
    choice = parts.coordinator.protocol_choice
    return {
        "group_id": parts.config.group.group_id or "",
        "state": group.state,
        "coordinator": group.coordinator,
        "generation": group.generation_id,
        "member_id": group.member_id,
        "group_instance_id": group.group_instance_id,
        "group_protocol": None if choice is None else choice.protocol,
        "group_protocol_reason": _open_choice(group) if choice is None else choice.reason,
        "protocol": group.protocol,
        "leads": activity.is_leader,
        "waits_for_poll": parts.coordinator.needs_poll,
        "rebalance_reason": activity.reason or None,
        "join_obstruction": activity.join_obstruction,
        "assignment_cause": _assignment_cause(parts.coordinator.assignment_cause),
        "offset_read_failure": parts.coordinator.offset_read_failure or parts.position_failure,
        "last_failure": activity.last_failure,
        "fenced": activity.is_fenced,
        "last_heartbeat_seconds_ago": seconds_since(parts, activity.last_heartbeat),
        "session_in_doubt": _past(parts, parts.coordinator.confirmed_until),
    }


def _assignment_cause(cause: AssignmentCause | None) -> AssignmentCauseFacts | None:
    if cause is None:
        return None
    held: list[HeldPartitionFacts] = [
        {
            "partition": _name(each.partition),
            "member_id": each.member_id,
            "client_id": each.client_id,
            "host": each.host,
        }
        for each in cause.held
    ]
    return {
        "text": cause.text,
        "members": cause.members,
        "partitions": cause.partitions,
        "waits_for": held,
    }


def _open_choice(group: MembershipSnapshot) -> str:
    """Return why ``group_protocol="auto"`` has not chosen a protocol yet."""
    match group.state:
        case "joining" if group.coordinator is None:
            return "the coordinator of the group is not known yet"
        case "joining":
            return "the coordinator has not responded to the look-up that decides it"
        case "failed":
            return "the join failed before the coordinator responded"
        case "unsubscribed":
            return "this consumer has not joined the group"
        case _:
            return "the join waits for poll()"


def _past(parts: ConsumerParts, time: float) -> bool:
    ago = seconds_since(parts, time) if math.isfinite(time) else None
    return ago is not None and ago >= 0


def _rebalances(parts: ConsumerParts) -> list[RebalanceFacts]:
    if parts.coordinator is None:
        return []
    return [
        {
            "seconds_ago": seconds_since(parts, record.at),
            "reason": record.reason,
            "generation": record.generation,
            "protocol": record.protocol,
            "gained": [_name(tp) for tp in sorted(record.gained)],
            "lost": [_name(tp) for tp in sorted(record.lost)],
            "assigned": len(record.assignment),
            "seconds": record.seconds,
            "waited_for_poll_seconds": record.waited,
        }
        for record in parts.coordinator.rebalances
    ]


def _partitions(parts: ConsumerParts) -> dict[str, PartitionFacts]:
    behind, held = lags(parts), parts.fetcher.buffer.queues.bytes_by_partition()
    ages = lag_times(parts, behind)
    in_flight, standing = parts.fetcher.in_flight(), parts.fetcher.buffer.queues.permanent_errors()
    only = parts.config.fetch.isolation_level == "read_committed"
    found: dict[str, PartitionFacts] = {}
    for tp, state in sorted(parts.subscription.snapshot().partitions.items()):
        error = standing.get(tp) or state.status.last_error
        known = parts.cluster.metadata.leader(tp)
        leader = None if known is None else known.node
        fetched_at = parts.fetcher.fetched_at(tp)
        fetch = in_flight.get(tp)
        found[_name(tp)] = {
            "topic": tp.topic,
            "position": state.position,
            "committed": parts.commit_statistics.committed.get(tp),
            "end": end_offset(state, committed_only=only),
            "high_watermark": None if state.watermarks is None else state.watermarks.high_watermark,
            "hidden_offsets": hidden_offsets(state) if only else 0,
            "open_transaction": _open_transaction(parts, tp, state) if only else None,
            "started_at_end": _started_at_end(state),
            "paused": state.paused,
            "paused_by": sorted(state.paused_by, key=str),
            "being_revoked": state.is_leaving,
            "leader": leader,
            "read_from": parts.fetcher.follower(tp) or leader,
            "last_fetch_seconds_ago": seconds_since(parts, fetched_at),
            "withheld_seconds": _withheld(state, fetched_at),
            "last_error": None if error is None else f"{type(error).__name__}: {error}",
            "lag": behind.get(tp),
            "lag_seconds": ages.get(tp),
            "buffered_bytes": held.get(tp, 0),
            "in_flight": fetch is not None,
            "in_flight_to": None if fetch is None else fetch.node,
            "in_flight_seconds": None if fetch is None else seconds_since(parts, fetch.sent_at),
            "in_flight_max_wait_ms": None if fetch is None else 1000 * fetch.long_poll,
        }
    return found


def _open_transaction(
    parts: ConsumerParts, tp: TopicPartition, state: PartitionState
) -> OpenTransactionFacts | None:
    watch = parts.open_transactions
    found = None if watch is None else watch.find(tp, state)
    if found is None:
        return None
    now = (parts.config.wall_clock or time.time)()
    return {
        "text": found.text(tp, hidden_offsets(state), now),
        "producer_id": found.producer_id,
        "epoch": found.epoch,
        "first_offset": found.first_offset,
        "last_timestamp": found.last_timestamp,
    }


def _started_at_end(state: PartitionState) -> int | None:
    """Return the offset at which reading started by "latest", if the log has earlier ones."""
    first, watermarks = state.status.started_at_end, state.status.watermarks
    if first is None or watermarks is None or watermarks.log_start_offset >= first:
        return None
    return first


def _withheld(state: PartitionState, fetched_at: float | None) -> float | None:
    """Return the seconds for which responses contained no records below the high watermark."""
    if state.status.withheld is None or fetched_at is None:
        return None
    offset, since = state.status.withheld
    return fetched_at - since if state.next_fetch.offset == offset else None


def _name(tp: TopicPartition) -> str:
    return f"{tp.topic}-{tp.partition}"


def _missing_rights(parts: ConsumerParts, share_topics: frozenset[str]) -> list[RightFacts]:
    """Return the permissions that brokers denied: operation, resource, name and principal.

    The principal is the user of the login, the subject of the client certificate, or None.
    """
    principal = parts.cluster.principal
    return [
        {"principal": principal, "operation": operation, "resource": kind, "name": name}
        for operation, kind, name in sorted(set(_missing(parts, share_topics)))
    ]


def _missing(parts: ConsumerParts, share_topics: frozenset[str]) -> Iterator[tuple[str, str, str]]:
    """Yield operation, resource type and name of each denied permission."""
    snapshot = parts.subscription.snapshot()
    named = snapshot.topics | share_topics | {tp.topic for tp in snapshot.partitions}
    for topic in parts.cluster.metadata.refused(named):
        yield "DESCRIBE", "topic", topic
    standing = parts.fetcher.buffer.queues.permanent_errors()
    for tp, state in snapshot.partitions.items():
        error = standing.get(tp) or state.status.last_error
        if isinstance(error, TopicAuthorizationFailedError):
            yield error.operation or "READ", "topic", tp.topic
    group = None if parts.coordinator is None else parts.coordinator.statistics()
    if group is not None and group.denied_operation is not None:
        yield group.denied_operation, "group", parts.config.group.group_id or ""
