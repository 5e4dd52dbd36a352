"""Consumers that log in: every mechanism and protocol, in a group, on both APIs and clusters."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import pytest

from kohort import AsyncKafkaConsumer, KafkaConsumer
from kohort.errors import (
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
    WrongListenerError,
)
from kohort.testing import Cluster, Security
from tests.consumer.kit import aread, read
from tests.consumer.secured import (
    MECHANISMS,
    PASSWORD,
    PROTOCOLS,
    USER,
    Secured,
    delegation_token,
    on_kafka,
    options,
    with_delegation_token,
)
from tests.support.awaited import EACH_API
from tests.support.secure_kafka import SecureKafka
from tests.support.tokens import unsecured
from tests.support.topics import create_topic

SESSION_MS = 4_000


@pytest.fixture(scope="module")
def in_process() -> Iterator[Secured]:
    security = Security(users={USER: PASSWORD}, session_lifetime_ms=SESSION_MS)
    with Cluster(brokers=2, security=security) as cluster:

        def fill(topic: str, count: int) -> None:
            if topic not in created:
                created.add(topic)
                cluster.create_topic(topic, 2)
            for number in range(count):
                cluster.produce(topic, [b"%d" % number], partition=number % 2)

        created: set[str] = set()
        yield Secured(cluster.bootstrap_servers_of, cluster.ssl_cafile, fill)


@pytest.fixture(params=["in-process", pytest.param("kafka", marks=pytest.mark.real_kafka)])
def secured(request: pytest.FixtureRequest) -> Secured:
    """Both clusters. Sessions of the in-process cluster end after 4 s."""
    if request.param == "in-process":
        found: Secured = request.getfixturevalue("in_process")
        return found
    return on_kafka(request.getfixturevalue("secure_kafka"))


@pytest.mark.cases(6)  # of two APIs, on two clusters
@pytest.mark.anyio
@EACH_API
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_consumer_logs_in(
    secured: Secured,
    unique: Callable[[str], str],
    consumer_class: Any,
    protocol: str,
    mechanism: str,
) -> None:
    topic = unique("logins")
    await anyio.to_thread.run_sync(secured.fill, topic, 10)
    given = options(secured, protocol, mechanism)
    async with consumer_class(topic, group_id=unique("g"), **given) as consumer:
        assert len(await aread(consumer, 10)) == 10
        await consumer.commit()


@pytest.mark.long  # waits until sessions expire
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_consumer_keeps_reading_past_its_session(
    in_process: Secured, unique: Callable[[str], str], mechanism: str
) -> None:
    topic = unique("sessions")
    in_process.fill(topic, 1)
    with KafkaConsumer(
        topic, group_id=unique("g"), **options(in_process, "SASL_PLAINTEXT", mechanism)
    ) as consumer:
        _read_past_sessions(consumer, lambda: in_process.fill(topic, 1))


@pytest.mark.long  # waits until sessions expire
@pytest.mark.real_kafka
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_consumer_keeps_reading_past_its_session_on_kafka(
    secure_kafka: SecureKafka, unique: Callable[[str], str], mechanism: str
) -> None:
    from confluent_kafka import Producer

    topic = create_topic(secure_kafka.bootstrap_servers, unique("sessions"), 2)
    producer = Producer({"bootstrap.servers": secure_kafka.bootstrap_servers})

    def fill() -> None:
        producer.produce(topic, b"x")
        producer.flush(10)

    fill()
    found = options(
        Secured(secure_kafka.bootstrap_servers_of, "", lambda *_: None),
        "SASL_PLAINTEXT",
        mechanism,
        bootstrap_servers=secure_kafka.bootstrap_servers_of("REAUTH"),
    )
    with KafkaConsumer(topic, group_id=unique("g"), **found) as consumer:
        _read_past_sessions(consumer, fill)


def _read_past_sessions(consumer: KafkaConsumer, produce: Callable[[], None]) -> None:
    """Read for two sessions. Check that no record is lost or repeated, and no poll waits 0.5 s."""
    count, sent = len(read(consumer, 1)), 1
    end = time.monotonic() + 2.2 * SESSION_MS / 1000
    longest = 0.0
    while time.monotonic() < end:
        produce()
        sent += 1
        began = time.monotonic()
        while count < sent:
            for part in consumer.poll(timeout_ms=100).values():
                count += len(part)
            assert time.monotonic() < began + 5
        longest = max(longest, time.monotonic() - began)
        time.sleep(0.02)  # pace of a producer
    assert count == sent
    assert longest < 0.5


def poll_once(given: dict[str, Any]) -> None:
    """Subscribe and poll once."""
    with KafkaConsumer("t", **given) as consumer:
        consumer.poll(timeout_ms=10_000)


def test_consumer_raises_when_the_password_is_wrong(secured: Secured) -> None:
    given = options(secured, "SASL_PLAINTEXT", "SCRAM-SHA-256", sasl_plain_password="planted")
    began = time.monotonic()
    with pytest.raises(SaslAuthenticationFailedError, match="login of 'admin'") as raised:
        poll_once(given)
    assert time.monotonic() - began < 60
    assert "planted" not in str(raised.value)


def test_consumer_raises_when_the_mechanism_is_not_enabled(secured: Secured) -> None:
    pytest.importorskip("gssapi")
    given = options(secured, "SASL_PLAINTEXT", "GSSAPI")
    del given["sasl_plain_username"], given["sasl_plain_password"]
    with pytest.raises(UnsupportedSaslMechanismError, match=r"offers: OAUTHBEARER, PLAIN, SCRAM"):
        poll_once(given)


def test_consumer_raises_when_the_listener_has_no_sasl(secured: Secured) -> None:
    given = options(secured, "SASL_PLAINTEXT", "PLAIN")
    given["bootstrap_servers"] = secured.bootstrap_servers_of("PLAINTEXT")
    with pytest.raises(WrongListenerError, match="listener without SASL"):
        poll_once(given)


def test_consumer_takes_a_rotated_password(unique: Callable[[str], str]) -> None:
    security = Security(("SASL_PLAINTEXT",), {USER: PASSWORD}, session_lifetime_ms=SESSION_MS)
    passwords = [PASSWORD]
    with Cluster(security=security, topics={"t": 1}) as cluster:
        with KafkaConsumer(
            "t",
            bootstrap_servers=cluster.bootstrap_servers,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="SCRAM-SHA-512",
            sasl_credentials=lambda: (USER, passwords[-1]),
            group_id=unique("g"),
            auto_offset_reset="earliest",
        ) as consumer:
            cluster.produce("t", [b"1"])
            assert len(read(consumer, 1)) == 1
            passwords.append("another-secret")
            cluster.set_password(USER, passwords[-1])
            _read_past_sessions_of(cluster, consumer)


def _read_past_sessions_of(cluster: Cluster, consumer: KafkaConsumer) -> None:
    for _ in range(30):
        cluster.produce("t", [b"x"])
        assert len(read(consumer, 1)) == 1
        time.sleep(0.2)  # six seconds, more than a session


@pytest.mark.cases(1)  # each waits until a token expires
@pytest.mark.parametrize("is_async", [False, True])
def test_token_provider_is_asked_for_short_tokens(
    unique: Callable[[str], str], is_async: bool
) -> None:
    made: list[float] = []

    class Provider:
        def token(self) -> Any:
            made.append(time.time())
            token = unsecured(USER, 5.0)

            async def later() -> str:
                return token

            return later() if is_async else token

    security = Security(("SASL_PLAINTEXT",))
    with Cluster(security=security, topics={"t": 1}) as cluster:
        with KafkaConsumer(
            "t",
            bootstrap_servers=cluster.bootstrap_servers,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=Provider(),
            group_id=unique("g"),
            auto_offset_reset="earliest",
        ) as consumer:
            cluster.produce("t", [b"1"])
            assert len(read(consumer, 1)) == 1
            _read_past_sessions_of(cluster, consumer)
    assert 2 <= len(made) <= 4 + (made[-1] - made[0]) / 3


@pytest.mark.real_kafka
def test_signed_tokens_are_checked_by_kafka(
    secure_kafka: SecureKafka, unique: Callable[[str], str]
) -> None:
    secured = Secured(
        secure_kafka.bootstrap_servers_of, str(secure_kafka.certificates.ca), lambda *_: None
    )
    given = options(secured, "SASL_SSL", "OAUTHBEARER")
    given = {name: value for name, value in given.items() if "unsecured" not in name}
    given["bootstrap_servers"] = secure_kafka.bootstrap_servers_of("OAUTH")
    key = secure_kafka.signing_key
    topic = create_topic(secure_kafka.bootstrap_servers, unique("signed"), 1)
    good = given | {"sasl_oauth_token_provider": lambda: key.token(USER)}
    with KafkaConsumer(group_id=unique("g"), **good) as consumer:
        assert consumer.partitions_for_topic(topic) == {0}
    bad = given | {"sasl_oauth_token_provider": lambda: key.token(USER, aud="another")}
    with pytest.raises(SaslAuthenticationFailedError, match=r"aud=another, iss=https://idp.test"):
        poll_once(bad)


@pytest.mark.real_kafka
@pytest.mark.anyio
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_delegation_token_logs_in(
    secure_kafka: SecureKafka, unique: Callable[[str], str], mechanism: str
) -> None:
    secured = Secured(secure_kafka.bootstrap_servers_of, "", lambda *_: None)
    token = await delegation_token(options(secured, "SASL_PLAINTEXT", "PLAIN"))
    given = options(secured, "SASL_PLAINTEXT", mechanism, **with_delegation_token(*token))
    topic = await anyio.to_thread.run_sync(
        create_topic, secure_kafka.bootstrap_servers, unique("token"), 1
    )
    async with AsyncKafkaConsumer(topic, group_id=unique("g"), **given) as consumer:
        assert consumer.assignment()
