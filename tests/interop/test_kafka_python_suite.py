"""kafka-python's own integration tests pass on ``kohort broker`` as on Apache Kafka."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interop.kafka_python_suite import FetchError, fetch_suite, run_suite
from tests.support.kafka_server import KafkaServer
from tests.support.needs import required

pytestmark = [pytest.mark.long, pytest.mark.real_kafka, pytest.mark.timeout(1_500)]

CONFIGS = {
    "auto.create.topics.enable": "true",
    "group.min.session.timeout.ms": "500",
    "node.id": "0",
    "num.partitions": "4",
}
"""Settings that the tests expect of their broker."""
PASSED_AT_LEAST = 50


@pytest.fixture(scope="module")
def suite() -> Path:
    try:
        return fetch_suite()
    except FetchError as error:
        reason = f"kafka-python's source cannot be fetched: {error}"
        if required():
            pytest.fail(f"{reason} (KOHORT_REQUIRE_REAL is set)", pytrace=False)
        pytest.skip(reason)


@pytest.fixture
def kohort_broker() -> Iterator[str]:
    """Address of a ``kohort broker``."""
    configs = [f"--config={name}={value}" for name, value in CONFIGS.items()]
    command = [sys.executable, "-m", "kohort", "broker", "--port", "0", *configs]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().split()[-1]
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_what_passes_on_kafka_passes_on_kohort_broker(
    suite: Path, kohort_broker: str, start_kafka: Callable[..., KafkaServer], tmp_path: Path
) -> None:
    kafka = start_kafka(CONFIGS)
    theirs = run_suite(suite, kafka.bootstrap_servers, tmp_path / "kafka.xml")
    kafka.stop()
    ours = run_suite(suite, kohort_broker, tmp_path / "kohort.xml")
    assert len(theirs.passed) >= PASSED_AT_LEAST, theirs.output
    assert not theirs.passed - ours.passed, ours.output
    assert not theirs.failed, theirs.output
