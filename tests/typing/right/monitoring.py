"""Figures and explanations have types."""

from __future__ import annotations

from typing import assert_type

from kohort import ConsumerGroupMetadata, Explanation, KafkaConsumer, TopicPartition


def report(figures: dict[str, dict[str, float]]) -> None:
    print(figures)


consumer = KafkaConsumer("orders", on_stats=report, stats_interval_ms=1_000)
assert_type(consumer.metrics(), dict[str, dict[str, float]] | None)
assert_type(consumer.lag(), dict[TopicPartition, int | None])
assert_type(consumer.explain(), Explanation)
assert_type(consumer.group_metadata(), ConsumerGroupMetadata)
