"""Spark's own Kafka source and sink, which are kafka-clients 3.9.1, on the in-process cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer

from kohort.testing import Cluster, ProducerRecord
from tests.support.jars import spark_jars

pytestmark = [
    pytest.mark.long,  # needs Spark's own source, a further download
    pytest.mark.spark_source,
    pytest.mark.timeout(300),
]
SCRIPT = Path(__file__).with_name("spark_source.py")
EARLY_MS, SINCE_MS, LATE_MS = 1_700_000_000_000, 1_700_000_030_000, 1_700_000_060_000
EARLY, LATE = ([f"{when} {n}" for n in range(15)] for when in ("early", "late"))


def transfer(cluster: Cluster, value: str, *, commit: bool) -> None:
    """Write the value in a transaction."""
    options = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "till"}
    producer = Producer(options)
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce("transfers", value)
    producer.flush(20)
    producer.commit_transaction(20) if commit else producer.abort_transaction(20)


def test_spark_reads_writes_and_goes_on(tmp_path: Path) -> None:
    """Spark starts once for all of it, because that takes most of the time."""
    topics = {"orders": 3, "returns": 1, "transfers": 2, "copy": 3, "copy-since": 3}
    with Cluster(brokers=3, topics=topics) as cluster:
        for values, moment in ((EARLY, EARLY_MS), (LATE, LATE_MS)):
            cluster.produce("orders", [ProducerRecord(v, timestamp=moment) for v in values])
        cluster.produce("returns", "returned")
        for value in ("lost", "kept", "lost too"):
            transfer(cluster, value, commit=value == "kept")
        jars = ",".join(map(str, spark_jars().glob("*.jar")))
        done = subprocess.run(
            [sys.executable, SCRIPT, cluster.bootstrap_servers, jars, tmp_path, str(SINCE_MS)],
            capture_output=True,
            text=True,
            timeout=270,
            env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
            cwd=tmp_path,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        assert json.loads(done.stdout.splitlines()[-1]) == {
            "all": sorted(EARLY + LATE),
            "since": sorted(LATE),
            "since, by partition": sorted(LATE),
            "matching": sorted([*EARLY, *LATE, "returned"]),
            "committed": ["kept"],
            "by the older way": sorted([*EARLY, *LATE, "last"]),
        }
        assert "JoinGroup" in {request.api for request in cluster.requests}
        copied = {topic: values_of(cluster, topic) for topic in ("copy", "copy-since")}
    assert copied == {"copy": sorted([*EARLY, *LATE, "last"]), "copy-since": sorted(LATE)}


def values_of(cluster: Cluster, topic: str) -> list[str]:
    return sorted((record.value or b"").decode() for record in cluster.records(topic))
