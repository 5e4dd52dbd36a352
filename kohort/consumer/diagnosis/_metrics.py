"""The metrics of a consumer, with the groups and names of the Java client, and their report."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio

from kohort.consumer.engine._callback_queue import AssignorCallback
from kohort.errors import KafkaError
from kohort.logs import get_logger
from kohort.subscription import PartitionState
from kohort.types import MetricSample, TopicPartition

if TYPE_CHECKING:
    from kohort.consumer.engine._parts import ConsumerParts

logger = get_logger("kohort.consumer")

Metrics = dict[str, dict[str, float]]

NEVER = -1.0
"""Value of "seconds ago" for an event that has not happened yet, as in Java."""
FETCHING = "consumer-fetch-manager-metrics"
_PARTITION = f"{FETCHING}."
"""Prefix of the group of a partition, before ``topic-number``."""


def seconds_since(parts: ConsumerParts, then: float | None) -> float | None:
    """Return the seconds since ``then`` by the engine's clock.

    Return None if ``then`` is None, or if the engine has ended and its clock with it.
    """
    return None if then is None or parts.ended else parts.callback_queue.clock() - then


def end_offset(state: PartitionState, *, committed_only: bool) -> int | None:
    """Return the offset after the last readable record, as of the latest fetch."""
    if (watermarks := state.watermarks) is None:
        return None
    return watermarks.last_stable_offset if committed_only else watermarks.high_watermark


def lags(parts: ConsumerParts) -> dict[TopicPartition, int | None]:
    """Return the lag of each assigned partition in offsets; None while it is unknown."""
    only = parts.config.fetch.isolation_level == "read_committed"
    found: dict[TopicPartition, int | None] = {}
    for tp, state in parts.subscription.snapshot().partitions.items():
        end = end_offset(state, committed_only=only)
        known = end is not None and end >= 0 and state.position is not None
        found[tp] = max(0, (end or 0) - (state.position or 0)) if known else None
    return found


def lag_times(
    parts: ConsumerParts, by_partition: dict[TopicPartition, int | None]
) -> dict[TopicPartition, float]:
    """Return the age in seconds of the record at each position, or 0 without a lag.

    The record must be buffered. A partition whose next record is not is left out.
    """
    states = parts.subscription.snapshot().partitions
    behind = {
        tp: position
        for tp, lag in by_partition.items()
        if lag and tp in states and (position := states[tp].position) is not None
    }
    buffered = parts.fetcher.buffer.queues.next_timestamps(behind)
    now = (parts.config.wall_clock or time.time)()
    found = {tp: 0.0 for tp, lag in by_partition.items() if lag == 0}
    for tp, position in behind.items():
        timestamp = parts.iterated_timestamp(tp, position)
        if timestamp is None:
            timestamp = buffered.get(tp, -1)
        if timestamp >= 0:
            found[tp] = max(0.0, now - timestamp / 1000)
    return found


def collect(parts: ConsumerParts) -> Metrics:
    """Return ``{group: {name: value}}``, with one group for each assigned partition."""
    by_partition = lags(parts)
    known = [lag for lag in by_partition.values() if lag is not None]
    ages = lag_times(parts, by_partition)
    fetching = parts.fetcher.metrics() | {"records-lag-max": float(max(known, default=0))}
    if ages:
        fetching["lag-seconds-max"] = max(ages.values())
    figures: Metrics = {
        "consumer-metrics": polling(parts),
        FETCHING: fetching,
        "consumer-coordinator-metrics": _coordinating(parts, len(by_partition)),
    }
    for tp, state in parts.subscription.snapshot().partitions.items():
        own: dict[str, float] = {}
        if (lag := by_partition.get(tp)) is not None:
            own["records-lag"] = float(lag)
        if tp in ages:
            own["lag-seconds"] = ages[tp]
        if state.watermarks is not None and state.position is not None:
            lead = state.position - state.watermarks.log_start_offset
            own["records-lead"] = float(max(0, lead))
        if own:
            figures[f"{_PARTITION}{tp.topic}-{tp.partition}"] = own
    return figures


def collect_samples(parts: ConsumerParts) -> list[MetricSample]:
    """Return the figures of :func:`collect`, each with its labels."""
    config = parts.config
    return labelled(collect(parts), config.client.client_id, config.group.group_id)


def labelled(metrics: Metrics, client_id: str, group_id: str | None) -> list[MetricSample]:
    """Return the figures of a client, each with its labels."""
    labels = {"client_id": client_id}
    if group_id is not None:
        labels["group_id"] = group_id
    found: list[MetricSample] = []
    for section, figures in metrics.items():
        own = labels
        if section.startswith(_PARTITION):
            topic, _, number = section.removeprefix(_PARTITION).rpartition("-")
            own = labels | {"topic": topic, "partition": number}
        found += [MetricSample(name, dict(own), value) for name, value in figures.items()]
    return found


def polling(parts: ConsumerParts) -> dict[str, float]:
    """Return the figures of the calls of poll()."""
    callback_queue = parts.callback_queue
    return {
        "poll-total": float(callback_queue.poll_count),
        "last-poll-seconds-ago": or_never(parts, callback_queue.last_active_at),
        "time-between-poll-max": 1000 * callback_queue.longest_poll_interval,
    }


def _coordinating(parts: ConsumerParts, assigned: int) -> dict[str, float]:
    activity = parts.commit_statistics
    figures = {
        "assigned-partitions": float(assigned),
        "commit-total": float(activity.commits.count),
        "commit-failed-total": float(activity.failed_commits),
        "commit-latency-avg": 1000 * activity.commits.average,
        "commit-latency-max": 1000 * activity.commits.longest,
    }
    if parts.coordinator is None:
        return figures
    group = parts.coordinator.statistics()
    last = parts.coordinator.rebalances[-1:]
    return figures | {
        "rebalance-total": float(group.rebalances),
        "rebalance-latency-avg": 1000 * group.rebalance_seconds / max(1, group.rebalances),
        "rebalance-latency-max": 1000 * group.rebalance_longest,
        "last-rebalance-seconds-ago": or_never(parts, last[0].at if last else None),
        "heartbeat-total": float(group.heartbeats),
        "last-heartbeat-seconds-ago": or_never(parts, group.last_heartbeat),
    }


def or_never(parts: ConsumerParts, then: float | None) -> float:
    """Return the seconds since ``then``, or NEVER if that is unknown."""
    seconds = seconds_since(parts, then)
    return NEVER if seconds is None else seconds


async def report_stats(parts: Callable[[], ConsumerParts]) -> None:
    """Call ``on_stats`` every ``stats_interval_ms`` on the caller's side. Run until cancelled."""
    config, callback_queue = parts().config, parts().callback_queue
    assert config.on_stats is not None
    hook = config.on_stats

    def call() -> None:
        try:
            hook(collect(parts()))
        except Exception:
            logger.exception("on_stats raised an error")

    while True:
        await anyio.sleep(config.stats_interval_ms / 1000)
        with suppress(KafkaError):  # Ctrl-C interrupted the call; the next one follows
            await callback_queue.call(AssignorCallback(callback_queue.engine_loop, call))
