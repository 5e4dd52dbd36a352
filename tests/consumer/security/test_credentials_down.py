"""Consumers whose credential source is down: a typed error that names it, at the deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kohort import AsyncKafkaConsumer, KafkaConsumer
from kohort.errors import (
    CredentialsUnavailableError,
    KafkaTimeoutError,
    OAuthTokenUnavailableError,
)
from kohort.testing import Cluster, Security
from tests.support.net import free_ports
from tests.support.tokens import unsecured

DEADLINE_MS = 1_300


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    security = Security(("SASL_PLAINTEXT",), {"alice": "alice-secret"})
    with Cluster(brokers=2, topics={"orders": 1}, security=security) as cluster:
        yield cluster


def options(cluster: Cluster, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": cluster.bootstrap_servers_of("SASL_PLAINTEXT"),
        "bootstrap_timeout_ms": DEADLINE_MS,
        "security_protocol": "SASL_PLAINTEXT",
        "auto_offset_reset": "earliest",
        **more,
    }


def token_endpoint() -> dict[str, Any]:
    """Return the options of a token endpoint that refuses connections."""
    [port] = free_ports(1)
    return {
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauthbearer_token_endpoint_url": f"https://localhost:{port}/token",
        "sasl_oauthbearer_client_id": "app",
        "sasl_oauthbearer_client_secret": "app-secret",
    }


def test_token_endpoint_is_named_when_it_is_down(cluster: Cluster) -> None:
    begun = time.monotonic()
    with KafkaConsumer("orders", **options(cluster, **token_endpoint())) as consumer:
        with pytest.raises(OAuthTokenUnavailableError) as raised:
            consumer.poll(timeout_ms=300_000)
        seconds = time.monotonic() - begun
        shown = str(consumer.explain())
    text = str(raised.value)
    assert f"for {DEADLINE_MS} ms: the token endpoint https://localhost:" in text
    assert text.count("cannot be reached: Connection refused") == 1
    assert "bootstrap_servers" not in text
    assert isinstance(raised.value, KafkaTimeoutError)
    assert raised.value.retriable
    assert isinstance(raised.value.__cause__, OAuthTokenUnavailableError)
    assert DEADLINE_MS / 1000 <= seconds < 90
    assert "no login: OAuthTokenUnavailableError: the token endpoint" in shown


@pytest.mark.parametrize("mechanism", ["OAUTHBEARER", "PLAIN"])
def test_provider_is_named_when_it_hangs(cluster: Cluster, mechanism: str) -> None:
    release = threading.Event()
    name = "sasl_oauth_token_provider" if mechanism == "OAUTHBEARER" else "sasl_credentials"
    given = {"sasl_mechanism": mechanism, name: lambda: release.wait(120)}
    try:
        patient = options(cluster, bootstrap_timeout_ms=5_000, **given)
        with KafkaConsumer("orders", **patient) as consumer:
            with pytest.raises(CredentialsUnavailableError, match=r"has not returned for \d+ s"):
                consumer.poll(timeout_ms=90_000)
            begun = time.monotonic()
        assert time.monotonic() - begun < 60
    finally:
        release.set()


@pytest.mark.anyio
async def test_async_start_raises_what_the_provider_raised(cluster: Cluster) -> None:
    async def provide() -> str:
        raise RuntimeError("planted")

    given = {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": provide}
    with pytest.raises(OAuthTokenUnavailableError, match="provider raised RuntimeError") as raised:
        async with AsyncKafkaConsumer("orders", **options(cluster, **given)):
            pass
    assert "planted" not in str(raised.value)
    assert raised.value.__cause__ is not None
    assert isinstance(raised.value.__cause__.__cause__, RuntimeError)


def test_consumer_goes_on_when_the_provider_works_again(cluster: Cluster) -> None:
    is_up = threading.Event()

    def provide() -> str:
        if not is_up.is_set():
            raise OSError("down")
        return unsecured("alice", 300)

    cluster.produce("orders", [b"1"])
    given = {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": provide}
    with KafkaConsumer("orders", **options(cluster, **given)) as consumer:
        with pytest.raises(OAuthTokenUnavailableError):
            consumer.poll(timeout_ms=10_000)
        is_up.set()
        assert consumer.poll(timeout_ms=10_000)
        facts = consumer.explain().as_dict()["security"]
    assert facts["credentials_obstacle"] is None
    assert facts["principal"] == "alice"


def test_explain_names_the_step_that_hangs(cluster: Cluster) -> None:
    given = {
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "alice",
        "sasl_plain_password": "alice-secret",
        "socket_connection_setup_timeout_ms": 200,
    }
    rule = cluster.hang("SaslAuthenticate", times=None)
    try:
        with KafkaConsumer("orders", **options(cluster, **given)) as consumer:
            consumer.poll(timeout_ms=900)
            shown = str(consumer.explain())
    finally:
        rule.stop()
    assert "no broker was reached yet; tried: " in shown
    assert "did not complete the PLAIN login within 0.2 s" in shown
