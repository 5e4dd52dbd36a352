"""The source with logins by GSSAPI, on the driver and on executors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from tests.spark_connector.starting import started
from tests.support.kerberos import USER, Kdc
from tests.support.secure_kafka import SecureKafka

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.kerberos,
    pytest.mark.spark,
    pytest.mark.real_kafka,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]
COUNT = 40
MODULE = "com.sun.security.auth.module.Krb5LoginModule required"


@pytest.fixture(scope="module")
def topic(kerberos_kafka: SecureKafka) -> str:
    """A topic of two partitions with 40 records, which the user of the KDC may read."""
    name = kerberos_kafka.create_topic("spark-kerberos", 2)
    producer = Producer({"bootstrap.servers": kerberos_kafka.bootstrap_servers})
    for number in range(COUNT):
        producer.produce(name, f"v{number}", partition=number % 2)
    assert producer.flush(30) == 0
    for resource in ("--topic", name), ("--group", "*"):
        kerberos_kafka.acl(
            *("--add", "--allow-principal", f"User:{USER}", "--operation", "READ"), *resource
        )
    return name


@pytest.fixture
def given(
    kerberos_kafka: SecureKafka, kdc: Kdc, kerberos_config: Path, topic: str
) -> dict[str, str]:
    """The options of Spark's source, without the login."""
    kerberos_config.write_text(kdc.config.read_text())
    return {
        "kafka.bootstrap.servers": kerberos_kafka.bootstrap_servers_of("SASL_PLAINTEXT"),
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "GSSAPI",
        "kafka.sasl.kerberos.service.name": "kafka",
        "subscribe": topic,
    }


def keytab(kdc: Kdc) -> str:
    """Return the text of ``sasl.jaas.config`` for a keytab, as in Spark's docs."""
    return (
        f"{MODULE} useKeyTab=true storeKey=true useTicketCache=false "
        f'serviceName="kafka" keyTab="{kdc.user_keytab}" principal="{USER}";'
    )


def ticket_cache(kdc: Kdc) -> str:
    """Return the text for a credential cache, which then has a ticket."""
    kdc.kinit()
    cache = kdc.environment["KRB5CCNAME"].removeprefix("FILE:")
    return f'{MODULE} useTicketCache=true renewTGT=true doNotPrompt=true ticketCache="{cache}";'


@pytest.mark.long  # a further node of Kafka, with tickets
@pytest.mark.parametrize("login", [keytab, ticket_cache])
def test_batch_reads_with_tickets(
    spark: SparkSession, given: dict[str, str], kdc: Kdc, login: Callable[[Kdc], str]
) -> None:
    options = given | {"kafka.sasl.jaas.config": login(kdc)}
    assert spark.read.format("kohort").options(**options).load().count() == COUNT


@pytest.mark.long  # a further query
def test_stream_member_reads_with_a_keytab(
    spark: SparkSession, given: dict[str, str], kdc: Kdc, tmp_path: Path
) -> None:
    options = given | {"kafka.sasl.jaas.config": keytab(kdc), "kafka.group.id": "spark-kerberos"}
    query = started(
        spark.readStream.format("kohort")
        .options(**options, startingOffsets="earliest")
        .schema("value string")
        .load()
        .writeStream.format("memory")
        .queryName("kerberos_stream")
        .trigger(availableNow=True),
        tmp_path,
    )
    assert query.awaitTermination(300)
    assert spark.table("kerberos_stream").count() == COUNT


def test_batch_names_the_remedy_when_there_is_no_ticket(
    spark: SparkSession, given: dict[str, str], tmp_path: Path
) -> None:
    from pyspark.errors import PySparkException

    cache = tmp_path / "empty"
    login = f'{MODULE} useTicketCache=true ticketCache="{cache}";'
    frame = spark.read.format("kohort").options(**given, **{"kafka.sasl.jaas.config": login})
    with pytest.raises(PySparkException, match="Get a ticket with kinit"):
        frame.load().count()
