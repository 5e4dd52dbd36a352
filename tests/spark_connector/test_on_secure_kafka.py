"""The source on a secured Apache Kafka, with the options of Spark's own Kafka source."""

from __future__ import annotations

import base64
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from tests.support.secure_kafka import SecureKafka, password_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.real_kafka,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]
LOGINS = "org.apache.kafka.common.security"
LISTENERS = ("SSL", "MTLS", "SASL_PLAINTEXT", "SASL_SSL")


def java_options(server: SecureKafka, listener: str) -> dict[str, str]:
    """Return the options that Spark's own source has for a listener, in Java's names."""
    options = {
        "kafka.bootstrap.servers": server.bootstrap_servers_of(listener),
        "kafka.security.protocol": "SSL" if listener == "MTLS" else listener,
    }
    if listener != "SASL_PLAINTEXT":
        options["kafka.ssl.truststore.type"] = "PEM"
        options["kafka.ssl.truststore.location"] = server.certificates.ca
    if listener == "MTLS":
        options["kafka.ssl.keystore.type"] = "PEM"
        options["kafka.ssl.keystore.location"] = str(server.certificates.path("client.both"))
    if listener == "SASL_PLAINTEXT":
        options["kafka.sasl.mechanism"] = "PLAIN"
        options["kafka.sasl.jaas.config"] = login("plain.PlainLoginModule")
    if listener == "SASL_SSL":
        options["kafka.sasl.mechanism"] = "SCRAM-SHA-512"
        options["kafka.sasl.jaas.config"] = login("scram.ScramLoginModule")
    return options


def login(module: str) -> str:
    """Return the text of ``sasl.jaas.config`` for the user admin."""
    password = password_of("admin")
    return f'{LOGINS}.{module} required username="admin" password="{password}";'


@pytest.fixture
def topic(secure_kafka: SecureKafka, unique: Callable[[str], str]) -> str:
    """A topic of two partitions with 40 records; the user of client.pem may read it."""
    name = secure_kafka.create_topic(unique("spark"), 2)
    producer = Producer({"bootstrap.servers": secure_kafka.bootstrap_servers})
    for number in range(40):
        producer.produce(name, f"v{number}", partition=number % 2)
    assert producer.flush(30) == 0
    for resource in ("--topic", name), ("--group", "*"):
        secure_kafka.acl(
            *("--add", "--allow-principal", "User:client", "--operation", "READ"), *resource
        )
    return name


@pytest.mark.parametrize("listener", LISTENERS)
def test_batch_reads_over_every_security_protocol(
    spark: SparkSession, secure_kafka: SecureKafka, topic: str, listener: str
) -> None:
    options = java_options(secure_kafka, listener)
    frame = spark.read.format("kohort").options(**options, subscribe=topic).load()
    assert frame.count() == 40


def test_stream_member_logs_in_and_no_secret_is_written(
    spark: SparkSession,
    secure_kafka: SecureKafka,
    topic: str,
    unique: Callable[[str], str],
    event_log: Path,
    tmp_path: Path,
) -> None:
    options = java_options(secure_kafka, "SASL_SSL")
    options |= {"kafka.group.id": unique("spark"), "startingOffsets": "earliest"}
    table = unique("spark").replace("-", "_")
    query = (
        spark.readStream.format("kohort")
        .options(**options, subscribe=topic)
        .schema("value string")
        .load()
        .writeStream.format("memory")
        .queryName(table)
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert spark.table(table).count() == 40
    written = [path for folder in (event_log, tmp_path) for path in folder.rglob("*")]
    contents = {path: path.read_bytes() for path in written if path.is_file()}
    assert any(b"SparkListenerJobEnd" in content for content in contents.values())
    secret = password_of("admin")
    for form in forms(secret):
        assert not [path for path, content in contents.items() if form in content]


def test_forms_of_a_secret_are_found() -> None:
    written = b"password=" + base64.b64encode(b"s3cret/x")
    assert any(form in written for form in forms("s3cret/x"))


def forms(secret: str) -> set[bytes]:
    """Return a secret in clear, base64, hex and URL form."""
    data = secret.encode()
    quoted = urllib.parse.quote(secret, safe="").encode()
    return {data, base64.b64encode(data), data.hex().encode(), quoted}
