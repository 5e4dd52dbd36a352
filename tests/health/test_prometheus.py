"""Figures for Prometheus: names, units, and series that end with their partition."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from kohort import AsyncKafkaConsumer, KafkaConsumer, MetricSample, TopicPartition
from kohort.health._answers import exposition as text_of
from kohort.health._answers import series
from kohort.prometheus import Collector, exposition
from kohort.testing import Cluster

prometheus = pytest.importorskip("prometheus_client")
parser = pytest.importorskip("prometheus_client.parser")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(topics={"orders": 2}) as cluster:
        cluster.produce("orders", ["a", "b"], partition=0)
        cluster.produce("orders", ["c"], partition=1)
        yield cluster


def scraped(*consumers: KafkaConsumer) -> dict[tuple[str, str | None], float]:
    """Return the values of a scrape by name and partition."""
    registry = prometheus.CollectorRegistry()
    registry.register(Collector(*consumers))
    text = prometheus.generate_latest(registry).decode()
    return {
        (sample.name, sample.labels.get("partition")): sample.value
        for family in parser.text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_series_of_a_revoked_partition_end_at_the_next_scrape(cluster: Cluster) -> None:
    both = [TopicPartition("orders", 0), TopicPartition("orders", 1)]
    with KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        consumer.assign(both)
        consumer.seek_to_beginning()
        seen = 0
        while seen < 3:
            seen += sum(map(len, consumer.poll(1000).values()))
        found = scraped(consumer)
        assert found["kohort_records_lag", "0"] == found["kohort_lag_seconds", "1"] == 0
        assert found["kohort_records_consumed_total", None] == 3
        consumer.assign(both[:1])
        found = scraped(consumer)
        assert ("kohort_records_lag", "0") in found
        assert not [name for name in found if name[1] == "1"]
        assert all(value == value for value in found.values())
    assert scraped(consumer) == {}
    assert exposition(consumer) == ""


def test_text_without_prometheus_client_has_the_same_series(cluster: Cluster) -> None:
    with KafkaConsumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        consumer.assign([TopicPartition("orders", 0)])
        consumer.poll(0)
        text = exposition(consumer)
        names = {
            sample.name
            for family in parser.text_string_to_metric_families(text)
            for sample in family.samples
        }
        assert names == {name for name, _ in scraped(consumer)}


def test_several_consumers_share_one_collector(cluster: Cluster) -> None:
    servers = cluster.bootstrap_servers
    with (
        KafkaConsumer(bootstrap_servers=servers, client_id="a") as first,
        KafkaConsumer(bootstrap_servers=servers, client_id="b") as second,
    ):
        families = list(Collector(first, second).collect())
    [polls] = [each for each in families if each.name == "kohort_poll"]
    assert [each.labels["client_id"] for each in polls.samples] == ["a", "b"]


def test_unstarted_async_consumer_has_figures() -> None:
    consumer = AsyncKafkaConsumer("orders")
    assert any(each.name == "kohort_poll" for each in Collector(consumer).collect())


@pytest.mark.parametrize(
    ("figure", "value", "name", "shown"),
    [
        ("lag-seconds", 5.5, "kohort_lag_seconds", 5.5),
        ("lag-seconds-max", 5.5, "kohort_lag_max_seconds", 5.5),
        ("fetch-latency-avg", 250.0, "kohort_fetch_latency_avg_seconds", 0.25),
        ("time-between-poll-max", 1500.0, "kohort_time_between_poll_max_seconds", 1.5),
        ("fetch-throttle-time-max", 10.0, "kohort_fetch_throttle_time_max_seconds", 0.01),
        ("fetch-interval", 10.0, "kohort_fetch_interval_seconds", 0.01),
        ("last-poll-seconds-ago", 3.0, "kohort_last_poll_age_seconds", 3.0),
        ("bytes-consumed-total", 3.0, "kohort_bytes_consumed_total", 3.0),
    ],
)
@pytest.mark.cases(8)
def test_times_are_in_seconds(figure: str, value: float, name: str, shown: float) -> None:
    [found] = series([MetricSample(figure, {}, value)])
    assert found.name == name
    assert found.value == pytest.approx(shown)


@pytest.mark.long
def test_scrape_of_1000_partitions_costs_at_most_twice_constant_gauges() -> None:
    samples = [
        MetricSample(name, {"topic": "t", "partition": str(number)}, 1.0)
        for number in range(1000)
        for name in ("records-lag", "lag-seconds", "records-lead")
    ]

    class Consumer:
        class _driver:  # noqa: N801
            class life:  # noqa: N801
                is_closed = False

        def metric_samples(self) -> list[MetricSample]:
            return [MetricSample(name, dict(labels), value) for name, labels, value in samples]

    ours, constant = prometheus.CollectorRegistry(), prometheus.CollectorRegistry()
    consumer = Consumer()
    ours.register(Collector(consumer))  # type: ignore[arg-type]
    for name in ("records_lag", "lag_seconds", "records_lead"):
        gauge = prometheus.Gauge(name, "constant", ["topic", "partition"], registry=constant)
        for number in range(1000):
            gauge.labels("t", str(number)).set(1)

    def cost(registry: object) -> float:
        begun = time.process_time()
        prometheus.generate_latest(registry)
        return time.process_time() - begun

    assert text_of(samples).count("\n") == 3003
    pairs = [(cost(ours), cost(constant)) for _ in range(15)]
    assert min(one for one, _ in pairs) <= 2 * min(other for _, other in pairs)
