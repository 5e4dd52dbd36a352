"""The metrics of a consumer, with the groups and names of the Java client, and their report."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import anyio

from kohort.consumer._callback_queue import AssignorCallback
from kohort.errors import KafkaError
from kohort.subscription import PartitionState
from kohort.types import TopicPartition

if TYPE_CHECKING:
    from kohort.consumer._engine import Engine

logger = logging.getLogger("kohort.consumer")

Metrics = dict[str, dict[str, float]]

NEVER = -1.0
"""Value of "seconds ago" for an event that has not happened yet, as in Java."""
FETCHING = "consumer-fetch-manager-metrics"


def seconds_since(engine: Engine, then: float | None) -> float | None:
    """Return the seconds since ``then`` by the engine's clock.

    Return None if ``then`` is None, or if the engine has ended and its clock with it.
    """
    return None if then is None or engine.ended else engine.callback_queue.clock() - then


def end_offset(state: PartitionState, *, committed_only: bool) -> int | None:
    """Return the offset after the last readable record, as of the latest fetch."""
    return state.last_stable_offset if committed_only else state.high_watermark


def lags(engine: Engine) -> dict[TopicPartition, int | None]:
    """Return the lag of each assigned partition in offsets; None while it is unknown."""
    only = engine.config.fetch.isolation_level == "read_committed"
    found: dict[TopicPartition, int | None] = {}
    for tp, state in engine.subscription.snapshot().partitions.items():
        end = end_offset(state, committed_only=only)
        known = end is not None and end >= 0 and state.position is not None
        found[tp] = max(0, (end or 0) - (state.position or 0)) if known else None
    return found


def collect(engine: Engine) -> Metrics:
    """Return ``{group: {name: value}}``, with one group for each assigned partition."""
    by_partition = lags(engine)
    known = [lag for lag in by_partition.values() if lag is not None]
    fetching = engine.fetcher.metrics() | {"records-lag-max": float(max(known, default=0))}
    figures: Metrics = {
        "consumer-metrics": _polling(engine),
        FETCHING: fetching,
        "consumer-coordinator-metrics": _coordinating(engine, len(by_partition)),
    }
    for tp, state in engine.subscription.snapshot().partitions.items():
        own: dict[str, float] = {}
        if (lag := by_partition.get(tp)) is not None:
            own["records-lag"] = float(lag)
        if state.log_start_offset is not None and state.position is not None:
            own["records-lead"] = float(max(0, state.position - state.log_start_offset))
        if own:
            figures[f"{FETCHING}.{tp.topic}-{tp.partition}"] = own
    return figures


def _polling(engine: Engine) -> dict[str, float]:
    callback_queue = engine.callback_queue
    return {
        "poll-total": float(callback_queue.poll_count),
        "last-poll-seconds-ago": _or_never(engine, callback_queue.last_active_at),
        "time-between-poll-max": 1000 * callback_queue.longest_poll_interval,
    }


def _coordinating(engine: Engine, assigned: int) -> dict[str, float]:
    activity = engine.commit_statistics
    figures = {
        "assigned-partitions": float(assigned),
        "commit-total": float(activity.commits.count),
        "commit-failed-total": float(activity.failed_commits),
        "commit-latency-avg": 1000 * activity.commits.average,
        "commit-latency-max": 1000 * activity.commits.longest,
    }
    if engine.coordinator is None:
        return figures
    group = engine.coordinator.statistics()
    last = engine.coordinator.rebalances[-1:]
    return figures | {
        "rebalance-total": float(group.rebalances),
        "rebalance-latency-avg": 1000 * group.rebalance_seconds / max(1, group.rebalances),
        "rebalance-latency-max": 1000 * group.rebalance_longest,
        "last-rebalance-seconds-ago": _or_never(engine, last[0].at if last else None),
        "heartbeat-total": float(group.heartbeats),
        "last-heartbeat-seconds-ago": _or_never(engine, group.last_heartbeat),
    }


def _or_never(engine: Engine, then: float | None) -> float:
    seconds = seconds_since(engine, then)
    return NEVER if seconds is None else seconds


async def report_stats(engine: Engine, hook: Callable[[dict[str, Any]], Any]) -> None:
    """Call the hook every ``stats_interval_ms`` on the caller's side. Run until cancelled."""

    def call() -> None:
        try:
            hook(collect(engine))
        except Exception:
            logger.exception("on_stats raised an error")

    while True:
        await anyio.sleep(engine.config.stats_interval_ms / 1000)
        with suppress(KafkaError):  # Ctrl-C interrupted the call; the next one follows
            await engine.callback_queue.call(
                AssignorCallback(engine.callback_queue.engine_loop, call)
            )
