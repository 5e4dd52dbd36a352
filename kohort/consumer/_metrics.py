"""The figures of a consumer, by the groups and names of the Java client."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kohort.consumer._engine import Engine

Metrics = dict[str, dict[str, float]]


def collect(engine: Engine) -> Metrics:
    """``{group: {name: value}}``; one group a topic partition for those that are assigned."""
    snapshot = engine.subscription.snapshot()
    figures: Metrics = {
        "consumer-fetch-manager-metrics": engine.fetcher.metrics(),
        "consumer-coordinator-metrics": {
            "assigned-partitions": float(len(snapshot.partitions)),
            "rebalance-total": float(engine.host.rebalances),
        },
    }
    for tp, state in snapshot.partitions.items():
        end, position = state.high_watermark, state.position
        if end is not None and position is not None:
            group = f"consumer-fetch-manager-metrics.{tp.topic}-{tp.partition}"
            figures[group] = {"records-lag": float(max(0, end - position))}
    return figures
