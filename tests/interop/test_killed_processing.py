"""SIGTERM and SIGKILL end processes of a group under load, on Apache Kafka."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.brokers import Broker
from tests.processing.killing import Workers, check_kills, run_kills

pytestmark = [pytest.mark.real_kafka, pytest.mark.long, pytest.mark.timeout(3600)]

KILLS = 20
PARTITIONS = 4
EACH = 100
"""Records for each partition between two kills."""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda each: each.name)
def test_only_records_in_flight_at_a_kill_are_repeated(
    apache: Broker, unique: Callable[[str], str], tmp_path: Path, number: signal.Signals
) -> None:
    topic = apache.create_topic(unique("orders"), PARTITIONS)
    feed = apache.feed(topic, PARTITIONS)

    def produce() -> int:
        feed.write(EACH)
        return EACH * PARTITIONS

    def committed() -> dict[int, int]:
        return {partition: offset for (_, partition), offset in apache.committed(topic).items()}

    workers = Workers(tmp_path, apache.bootstrap_servers, topic)
    check_kills(run_kills(workers, number, KILLS, produce, committed))
