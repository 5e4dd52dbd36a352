"""Queries on a standalone Spark cluster that Kafka refuses, on the driver and on an executor."""

from __future__ import annotations

from pathlib import Path

import pytest

from kohort.errors import ErrorCode
from kohort.testing import Cluster, Security
from tests.spark_connector.end_to_end.applications import ApplicationProcess
from tests.spark_connector.end_to_end.queries import Plan
from tests.spark_connector.end_to_end.standalone import StandaloneCluster
from tests.spark_connector.end_to_end.test_standalone import SETTINGS
from tests.spark_connector.end_to_end.waiting import wait_until
from tests.spark_connector.reading import produce

pytestmark = [
    pytest.mark.long,  # a Spark cluster of several processes
    pytest.mark.spark,
    pytest.mark.timeout(900),
]
PASSWORD, WRONG = "alice-secret", "wrong-secret"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_refused_queries_name_the_cause_and_no_password(tmp_path: Path) -> None:
    security = Security(["SASL_PLAINTEXT"], users={"alice": PASSWORD})
    with (
        Cluster(topics={"orders": 2}, security=security) as kafka,
        StandaloneCluster(tmp_path / "workers", 1) as spark,
    ):
        produce(kafka, 5)
        kafka.fail("Fetch", ErrorCode.TOPIC_AUTHORIZATION_FAILED, times=None)
        spark.wait_ready()
        settings = {"spark.master": spark.master, "spark.task.maxFailures": "2", **SETTINGS}
        with ApplicationProcess(tmp_path, **settings) as application:

            def failure(name: str, password: str) -> str:
                """Return the error of a query of this user."""
                options = {
                    "kafka.bootstrap.servers": kafka.bootstrap_servers,
                    "kafka.security.protocol": "SASL_PLAINTEXT",
                    "kafka.sasl.mechanism": "PLAIN",
                    "kafka.sasl.jaas.config": f'{MODULE} required username="alice" '
                    f'password="{password}";',
                    "subscribe": "orders",
                    "startingOffsets": "earliest",
                }
                application.start(Plan(name, str(tmp_path / name), options))
                wait_until(lambda: not application.do("state", name=name)["active"])
                return str(application.do("state", name=name)["failure"])

            wrong, denied = failure("wrong", WRONG), failure("denied", PASSWORD)

    assert "SaslAuthenticationFailedError" in wrong
    assert "TopicAuthorizationFailedError" in denied
    log = (tmp_path / "application.log").read_text()
    assert WRONG not in wrong + log
    assert PASSWORD not in denied + log
