"""Figures and explanations have types."""

from __future__ import annotations

from typing import assert_type

from kohort import (
    AsyncKafkaConsumer,
    ConsumerGroupMetadata,
    Explanation,
    ExplanationFacts,
    GroupFacts,
    KafkaConsumer,
    MetricSample,
    PartitionFacts,
    TopicPartition,
)


def report(figures: dict[str, dict[str, float]]) -> None:
    print(figures)


consumer = KafkaConsumer("orders", on_stats=report, stats_interval_ms=1_000)
assert_type(consumer.metrics(), dict[str, dict[str, float]] | None)
assert_type(consumer.lag(), dict[TopicPartition, int | None])
assert_type(consumer.explain(), Explanation)
assert_type(consumer.group_metadata(), ConsumerGroupMetadata)

facts = consumer.explain().as_dict()
assert_type(facts, ExplanationFacts)
assert_type(facts["reasons"], list[str])
assert_type(facts["group"], GroupFacts | None)
assert_type(facts["partitions"], dict[str, PartitionFacts])
assert_type([part["lag"] for part in facts["partitions"].values()], list[int | None])
assert_type(facts["cluster"]["unreachable"], dict[int, str])
for name, labels, value in consumer.metric_samples():
    print(name.upper(), labels.get("topic"), value + 1)
assert_type(AsyncKafkaConsumer("orders").metric_samples(), list[MetricSample])
