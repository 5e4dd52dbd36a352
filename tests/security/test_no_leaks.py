"""A secret of the client: no error with local variables, no log, text or pickle shows it.

tests/config/security/test_security.py does the same for errors of single options.
"""

from __future__ import annotations

import copy
import logging
import pickle
from pathlib import Path
from typing import Any

import pytest

from kohort import AsyncKafkaConsumer, KafkaConsumer
from kohort.config import ConsumerConfig, Url
from kohort.errors import ConfigurationError, InvalidOptionError, KafkaError
from kohort.security import TlsContexts
from tests.support.certificates import Certificates
from tests.support.leaks import error_text, leaked

SECRET = "hunter2-correct-horse"
PLAIN = {
    "bootstrap_servers": "localhost:1",
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "PLAIN",
    "sasl_plain_username": "alice",
    "sasl_plain_password": SECRET,
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(params=[KafkaConsumer, AsyncKafkaConsumer], ids=["sync", "async"])
def consumer(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.mark.parametrize(
    "wrong",
    [
        {"sasl_plain_pasword": "x"},
        {"session_timeout_ms": "x"},
        {"proxy_url": f"socks4://u:{SECRET}@h"},
        {"proxy_url": f"http://u:{SECRET}@h/path"},
        {"socks5_proxy": f"http://u:{SECRET}@h"},
        {"sasl_mechanism": "GSSAPI"},
        {"ssl_cafile": "missing.pem"},
        {"sasl_credentials": ("alice", SECRET)},
        {"consumer_timeout_ms": -5, "heartbeat_interval_ms": 99_999_999},
        {"sasl_oauthbearer_token_endpoint_url": f"https://a:{SECRET}@idp/"},
    ],
)
def test_a_constructor_that_raises_shows_no_secret(consumer: Any, wrong: Any) -> None:
    with pytest.raises(KafkaError) as raised:
        consumer("orders", **{**PLAIN, **wrong})
    assert not leaked(SECRET, error_text(raised.value))


@pytest.mark.parametrize(
    "wrong",
    [
        {"sasl.pasword": "x"},
        {"session.timeout.ms": "x"},
        {"sasl.mechanism": "GSSAPI"},
        {"ssl.ca.location": "missing.pem"},
        {"sasl.jaas.config": f'a.PlainLoginModule required username=a password="{SECRET}"'},
        {"sasl.jaas.config": f'a.PlainLoginModule required username=a password="{SECRET}";'},
        {"sasl.oauthbearer.token.endpoint.url": f"https://a:{SECRET}@idp/"},
    ],
)
def test_properties_that_are_wrong_show_no_secret(consumer: Any, wrong: Any) -> None:
    properties = {
        "bootstrap.servers": "localhost:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": f"{SECRET}2",
    }
    with pytest.raises(KafkaError) as raised:
        consumer.from_properties(properties | wrong)
    assert not leaked(SECRET, error_text(raised.value))
    with pytest.raises(TypeError) as failed:
        consumer.from_properties(list((properties | wrong).items()))
    assert not leaked(SECRET, error_text(failed.value))


def test_a_configuration_is_neither_shown_nor_pickled() -> None:
    config = ConsumerConfig.from_kwargs(**PLAIN)
    assert not leaked(SECRET, repr(config), str(vars(config)), repr(vars(config.security.sasl)))
    with pytest.raises(TypeError) as raised:
        pickle.dumps(config)
    assert not leaked(SECRET, error_text(raised.value))


@pytest.mark.parametrize("section", ["", "security", "sasl"])
def test_a_configuration_with_a_secret_is_not_copied(section: str) -> None:
    """Tools that report the error show the local variables of copy.deepcopy(), too."""
    config = ConsumerConfig.from_kwargs(**PLAIN)
    parts: dict[str, Any] = {"": config, "security": config.security, "sasl": config.security.sasl}
    with pytest.raises(TypeError, match="cannot be pickled or copied") as raised:
        copy.deepcopy(parts[section])
    assert not leaked(SECRET, error_text(raised.value))


def test_a_copy_of_a_token_endpoint_does_not_show_its_query() -> None:
    url = f"https://idp/token?key={SECRET}"
    config = ConsumerConfig.from_kwargs(
        security_protocol="SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauthbearer_token_endpoint_url=url,
        sasl_oauthbearer_client_id="app",
        sasl_oauthbearer_client_secret="x",
    )
    endpoint = config.security.oauth.sasl_oauthbearer_token_endpoint_url
    assert endpoint is not None and endpoint.target.endswith(SECRET)
    for way in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError) as raised:
            way(endpoint)
        assert not leaked(SECRET, error_text(raised.value, inside=""))
    plain = Url("https", "idp", 443, "/token", "")
    assert pickle.loads(pickle.dumps(plain)) == copy.deepcopy(plain) == plain


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (
            {"ssl_certfile": "client.pem", "ssl_keyfile": "client.enc.key"}
            | {"ssl_password": SECRET},
            "ssl_password does not decrypt",
        ),
        (
            {"ssl_certfile": "client.pem", "ssl_keyfile": "client.enc.key"}
            | {"ssl_password": lambda: SECRET},
            "ssl_password does not decrypt",
        ),
        (
            {"ssl_keystore_location": "client.p12", "ssl_keystore_password": SECRET},
            "its password is another one",
        ),
        (
            {"ssl_truststore_location": "client.p12", "ssl_truststore_password": SECRET},
            "its password is another one",
        ),
    ],
)
def test_a_wrong_password_of_a_file_is_not_shown(
    files: Certificates, options: dict[str, Any], match: str
) -> None:
    given = {
        name: str(files.path(value)) if isinstance(value, str) and "client." in value else value
        for name, value in options.items()
    }
    with pytest.raises(InvalidOptionError, match=match) as raised:
        TlsContexts(ConsumerConfig.from_kwargs(security_protocol="SSL", **given).security)
    assert not leaked(SECRET, error_text(raised.value))


def test_a_private_key_is_not_shown_when_it_does_not_fit(files: Certificates) -> None:
    certificate = files.path("client.pem").read_text()
    key = files.path("client2.key").read_text()
    body = key.splitlines()[2]
    config = ConsumerConfig.from_kwargs(
        security_protocol="SSL", ssl_certdata=certificate, ssl_keydata=key
    )
    assert not leaked(body, repr(config))
    with pytest.raises(InvalidOptionError, match="not the one of the certificate") as raised:
        TlsContexts(config.security)
    assert not leaked(body, error_text(raised.value))


def test_a_key_that_is_damaged_is_not_shown(files: Certificates) -> None:
    key = f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----\n"
    config = ConsumerConfig.from_kwargs(
        security_protocol="SSL",
        ssl_certdata=files.path("client.pem").read_text(),
        ssl_keydata=key,
    )
    with pytest.raises(InvalidOptionError) as raised:
        TlsContexts(config.security)
    assert not leaked(SECRET, error_text(raised.value))


def test_errors_of_loading_use_the_names_of_properties(consumer: Any, tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.pem")
    with pytest.raises(ConfigurationError, match=r"^ssl\.ca\.location") as raised:
        consumer.from_properties({"security.protocol": "SSL", "ssl.ca.location": missing})
    assert "ssl_" not in str(raised.value)


def test_logs_and_reports_of_a_consumer_show_no_secret(
    files: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    options: dict[str, Any] = {
        "ssl_cafile": files.ca,
        "ssl_certfile": str(files.path("client.pem")),
        "ssl_keyfile": str(files.path("client.enc.key")),
        "ssl_password": "keypass",
    }
    consumer = KafkaConsumer(
        "orders", bootstrap_servers="localhost:1", security_protocol="SSL", **options
    )
    with pytest.raises(TypeError) as raised:
        pickle.dumps(consumer)
    shown = [error_text(raised.value), repr(consumer), repr(vars(consumer))]
    consumer.poll(timeout_ms=50)
    shown += [str(consumer.explain()), repr(consumer.explain()), repr(consumer.metrics())]
    consumer.close()
    assert not leaked("keypass", caplog.text, *shown)
