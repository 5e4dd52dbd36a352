"""The source on a secured Apache Kafka, with the options of Spark's Kafka source."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from tests.spark_connector.starting import started
from tests.support.certificates import KEY_PASSWORD
from tests.support.idp import CLIENT_ID, CLIENT_SECRET, Idp, serving
from tests.support.leaks import leaked
from tests.support.secure_kafka import SecureKafka, password_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.real_kafka,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]
LOGINS = "org.apache.kafka.common.security"
LISTENERS = ("SSL", "MTLS", "SASL_PLAINTEXT", "SASL_SSL", "OAUTH")
HANDLER = f"{LOGINS}.oauthbearer.secured.OAuthBearerLoginCallbackHandler"


@pytest.fixture
def idp(secure_kafka: SecureKafka) -> Iterator[Idp]:
    """A token endpoint by TLS, whose tokens the listener OAUTH accepts."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(secure_kafka.certificates.path("server.both"))
    with serving(context) as running:
        running.make = partial(secure_kafka.signing_key.token, "admin")
        yield running


def java_options(server: SecureKafka, listener: str, idp: Idp) -> dict[str, str]:
    """Return the options that Spark's source has for a listener, in Java's names."""
    protocols = {"MTLS": "SSL", "OAUTH": "SASL_SSL"}
    options = {
        "kafka.bootstrap.servers": server.bootstrap_servers_of(listener),
        "kafka.security.protocol": protocols.get(listener, listener),
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
    if listener == "OAUTH":
        options |= {
            "kafka.sasl.mechanism": "OAUTHBEARER",
            "kafka.sasl.oauthbearer.token.endpoint.url": idp.url,
            "kafka.sasl.login.callback.handler.class": HANDLER,
            "kafka.sasl.jaas.config": f"{LOGINS}.oauthbearer.OAuthBearerLoginModule required "
            f'clientId="{CLIENT_ID}" clientSecret="{CLIENT_SECRET}" scope="read" '
            f'ssl.truststore.type=PEM ssl.truststore.location="{server.certificates.ca}";',
        }
    return options


def login(module: str) -> str:
    """Return the text of ``sasl.jaas.config`` for the user admin."""
    password = password_of("admin")
    return f'{LOGINS}.{module} required username="admin" password="{password}";'


@pytest.fixture
def topic(secure_kafka: SecureKafka, unique: Callable[[str], str]) -> str:
    """A topic of two partitions with 40 records, which the user of client.pem may read."""
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


@pytest.mark.cases(1)  # each is a job of Spark with new workers
@pytest.mark.parametrize("listener", LISTENERS)
def test_batch_reads_over_every_security_protocol(
    spark: SparkSession, secure_kafka: SecureKafka, idp: Idp, topic: str, listener: str
) -> None:
    options = java_options(secure_kafka, listener, idp)
    frame = spark.read.format("kohort").options(**options, subscribe=topic).load()
    assert frame.count() == 40


def client_certificate(server: SecureKafka) -> dict[str, str]:
    """Return the client certificate and its encrypted key as text, in Java's names."""
    return {
        "kafka.ssl.keystore.certificate.chain": server.certificates.path("client.pem").read_text(),
        "kafka.ssl.keystore.key": server.certificates.path("client.enc.key").read_text(),
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.key.password": KEY_PASSWORD,
    }


@pytest.mark.parametrize(
    "listener",
    ["SASL_SSL", *(pytest.param(name, marks=pytest.mark.long) for name in ("MTLS", "OAUTH"))],
)
def test_stream_member_logs_in_and_no_secret_is_written(
    spark: SparkSession,
    secure_kafka: SecureKafka,
    idp: Idp,
    topic: str,
    unique: Callable[[str], str],
    event_log: Path,
    tmp_path: Path,
    listener: str,
) -> None:
    options = java_options(secure_kafka, listener, idp)
    options |= {"kafka.group.id": unique("spark"), "startingOffsets": "earliest"}
    secrets = [password_of("admin"), CLIENT_SECRET]
    if listener == "MTLS":
        del options["kafka.ssl.keystore.location"]
        options |= client_certificate(secure_kafka)
        lines = options["kafka.ssl.keystore.key"].splitlines()
        secrets += [KEY_PASSWORD, *(line for line in lines if not line.startswith("-"))]
    else:
        secrets.append(options["kafka.sasl.jaas.config"])
    make = idp.make

    def make_and_note(life: float) -> str:
        secrets.append(make(life).rpartition(".")[2])  # headers and claims are similar
        return make(life)

    idp.make = make_and_note
    table = unique("spark").replace("-", "_")
    query = started(
        spark.readStream.format("kohort")
        .options(**options, subscribe=topic)
        .schema("value string")
        .load()
        .writeStream.format("memory")
        .queryName(table)
        .trigger(availableNow=True),
        tmp_path,
    )
    assert query.awaitTermination(300)
    assert spark.table(table).count() == 40
    assert len(secrets) > 3 or listener != "OAUTH"
    written = [path for folder in (event_log, tmp_path) for path in folder.rglob("*")]
    contents = {path: path.read_bytes() for path in written if path.is_file()}
    assert any(b"SparkListenerJobEnd" in content for content in contents.values())
    for secret in secrets:
        shown = [path for path, text in contents.items() if leaked(secret, text.decode("latin-1"))]
        assert shown == []


def test_search_finds_a_secret_in_what_spark_writes(tmp_path: Path) -> None:
    file = tmp_path / "events"
    file.write_bytes(b"\xff password=" + base64.b64encode(b"s3cret/x"))
    assert leaked("s3cret/x", file.read_bytes().decode("latin-1"))
