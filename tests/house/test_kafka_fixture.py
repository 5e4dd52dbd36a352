"""Apache Kafka as a fixture: started, queried with its own tools, restarted and ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.support import supervise
from tests.support.kafka_server import KafkaServer, KafkaStartError

GROUP_COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
TOPIC_COMMAND = "org.apache.kafka.tools.TopicCommand"


@pytest.mark.real_kafka
def test_a_created_topic_is_described_by_kafkas_own_tool(
    kafka: KafkaServer, unique: Callable[[str], str]
) -> None:
    topic = kafka.create_topic(unique("orders"), 6)
    done = kafka.tool(
        TOPIC_COMMAND, "--bootstrap-server", kafka.bootstrap_servers, "--describe", "--topic", topic
    )
    assert done.returncode == 0, done.stderr
    assert "PartitionCount: 6" in done.stdout


@pytest.mark.long  # Kafka is started three times
@pytest.mark.real_kafka
def test_topics_survive_a_restart_and_a_crash(
    kafka: KafkaServer, unique: Callable[[str], str]
) -> None:
    topic = kafka.create_topic(unique("kept"), 2)
    kafka.restart()
    kafka.kill()
    kafka.start()
    done = kafka.tool(TOPIC_COMMAND, "--bootstrap-server", kafka.bootstrap_servers, "--list")
    assert topic in done.stdout.split()


@pytest.mark.long  # a further Kafka
@pytest.mark.real_kafka
def test_a_node_that_cannot_start_says_why(start_kafka: Callable[..., KafkaServer]) -> None:
    with pytest.raises(KafkaStartError, match="log\\.segment\\.bytes"):
        start_kafka({"log.segment.bytes": "no number"})


def test_what_is_supervised_ends_when_its_owner_is_killed() -> None:
    sleeper = "import time; print('up', flush=True); time.sleep(600)"
    owner = (
        "import subprocess, sys, time;"
        f"subprocess.Popen([sys.executable, {supervise.__file__!r}, sys.executable, '-c',"
        f" {sleeper!r}], stdin=subprocess.PIPE); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", owner], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        os.kill(process.pid, signal.SIGKILL)
        assert process.stdout.read() == b""  # the process ends when the last writer closes the pipe
