"""Every secret option, planted in logins and searched for in all their output."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)

from kohort import AsyncKafkaConsumer, KafkaConsumer
from kohort.config import OPTIONS, ConsumerConfig
from kohort.config.security._security_types import SecretText
from kohort.errors import (
    KafkaError,
    OAuthTokenError,
    SaslAuthenticationFailedError,
    TlsClientCertificateError,
)
from kohort.security.oauth._token_sources import token_source
from kohort.security.oauth._tokens import Token
from kohort.testing import CertificateFiles, Cluster, Listener, Security
from tests.consumer.kit import aread
from tests.consumer.secured import delegation_token, with_delegation_token
from tests.security.traces import COUNT, reports, texts_of_error, traces
from tests.support.certificates import Certificates
from tests.support.idp import CLIENT_ID, CLIENT_SECRET, Idp, serving
from tests.support.leaks import leaked
from tests.support.tokens import unsecured

USER, PASSWORD = "alice", "hunter2/correct=horse"
KEY_PASSWORD = "battery-staple-of-the-key"
STORE_PASSWORD = "battery-staple-of-the-store"
TRUST_PASSWORD = "battery-staple-of-the-cas"
PASSPHRASE = "battery-staple-of-the-assertion"
MODULES = "org.apache.kafka.common.security"
TOKEN = unsecured("app", 86_400, marker="planted-in-the-access-token")
ACCESS = TOKEN.split(".")[1]
REFRESH = "planted-refresh-token-4711"
LISTENERS = (
    "PLAINTEXT",
    "SASL_PLAINTEXT",
    "SASL_SSL",
    Listener("SSL", "MTLS", client_auth="required"),
)


@dataclass
class World:
    """A cluster, a token endpoint and files."""

    cluster: Cluster
    idp: Idp
    files: Certificates
    folder: Path

    def of(self, listener: str) -> dict[str, Any]:
        """Return the options of a listener."""
        found: dict[str, Any] = {
            "bootstrap_servers": self.cluster.bootstrap_servers_of(listener),
            "security_protocol": "SSL" if listener == "MTLS" else listener,
        }
        return found if listener == "SASL_PLAINTEXT" else found | {"ssl_cafile": self.files.ca}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def cluster(files: Certificates) -> Iterator[Cluster]:
    shown = CertificateFiles(files.ca, str(files.path("server.pem")), str(files.path("server.key")))
    security = Security(LISTENERS, {USER: PASSWORD}, certificates=shown)
    with Cluster(topics={"orders": 1}, security=security) as running:
        running.produce("orders", [b"tea"] * COUNT)
        yield running


@pytest.fixture
def world(cluster: Cluster, files: Certificates, tmp_path: Path) -> Iterator[World]:
    with serving() as idp:
        idp.make = lambda _: TOKEN
        yield World(cluster, idp, files, tmp_path)


@pytest.fixture(autouse=True)
def every_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(1)


Secrets = list[str | bytes]
Planted = tuple[dict[str, Any], Secrets]


def key_secrets(pem: bytes, password: str | None = None) -> Secrets:
    """Return the lines of the PEM text, the unencrypted key, and its number."""
    key = load_pem_private_key(pem, None if password is None else password.encode())
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    clear = key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    number = key.private_numbers().private_value.to_bytes(32, "big")
    lines: Secrets = [line for line in pem.decode().splitlines() if not line.startswith("-")]
    return [*lines, clear, number]


def encrypted(pem: bytes, password: str) -> bytes:
    key = load_pem_private_key(pem, None)
    encryption = BestAvailableEncryption(password.encode())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)


def key_text(world: World, name: str) -> Planted:
    pem = encrypted(world.files.path(f"{name}.key").read_bytes(), KEY_PASSWORD)
    options = world.of("MTLS") | {
        "ssl_certdata": world.files.path(f"{name}.pem").read_text(),
        "ssl_keydata": pem.decode(),
        "ssl_password": KEY_PASSWORD,
    }
    return options, [KEY_PASSWORD, *key_secrets(pem, KEY_PASSWORD)]


def stores(world: World, name: str) -> Planted:
    pem = world.files.path(f"{name}.key").read_bytes()
    key = load_pem_private_key(pem, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    chain = x509.load_pem_x509_certificates(world.files.path(f"{name}.pem").read_bytes())
    cas = x509.load_pem_x509_certificates(Path(world.files.ca).read_bytes())
    kept, trusted = world.folder / "keys.p12", world.folder / "cas.p12"
    kept.write_bytes(
        pkcs12.serialize_key_and_certificates(
            b"client", key, chain[0], chain[1:], BestAvailableEncryption(STORE_PASSWORD.encode())
        )
    )
    trusted.write_bytes(
        pkcs12.serialize_java_truststore(
            [pkcs12.PKCS12Certificate(each, b"ca") for each in cas],
            BestAvailableEncryption(TRUST_PASSWORD.encode()),
        )
    )
    options = world.of("MTLS") | {
        "ssl_keystore_location": str(kept),
        "ssl_keystore_password": STORE_PASSWORD,
        "ssl_truststore_location": str(trusted),
        "ssl_truststore_password": TRUST_PASSWORD,
    }
    del options["ssl_cafile"]
    return options, [STORE_PASSWORD, TRUST_PASSWORD, *key_secrets(pem)]


def password(world: World, good: bool) -> Planted:
    secret = PASSWORD if good else "another/horse=battery"
    options = world.of("SASL_SSL") | {
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_plain_username": USER,
        "sasl_plain_password": secret,
    }
    return options, [secret]


def hmac_of_a_token(world: World, good: bool) -> Planted:
    token_id, hmac = anyio.run(delegation_token, password(world, True)[0])
    if not good:
        hmac = bytes(reversed(hmac))
    options = world.of("SASL_SSL") | {"sasl_mechanism": "SCRAM-SHA-512"}
    options |= with_delegation_token(token_id, hmac)
    return options, [hmac, base64.b64encode(hmac)]


def client_secret(world: World, good: bool) -> Planted:
    secret = CLIENT_SECRET if good else "secret-of-another-app"
    options = world.of("SASL_PLAINTEXT") | {
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauthbearer_token_endpoint_url": world.idp.url,
        "sasl_oauthbearer_allow_http": True,
        "sasl_oauthbearer_client_id": CLIENT_ID,
        "sasl_oauthbearer_client_secret": secret,
    }
    return options, [secret, ACCESS]


def assertion_key(world: World, good: bool) -> Planted:
    pem = encrypted(world.files.path("client.key").read_bytes(), PASSPHRASE)
    if not good:
        world.idp.mode = "401"
    options = world.of("SASL_PLAINTEXT") | {
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauthbearer_token_endpoint_url": world.idp.url,
        "sasl_oauthbearer_allow_http": True,
        "sasl_oauthbearer_grant_type": "jwt-bearer",
        "sasl_oauthbearer_assertion_algorithm": "ES256",
        "sasl_oauthbearer_assertion_private_key_pem": pem.decode(),
        "sasl_oauthbearer_assertion_private_key_passphrase": PASSPHRASE,
    }
    return options, [PASSPHRASE, ACCESS, *key_secrets(pem, PASSPHRASE)]


Plant = Callable[[World], Planted]
GOOD: dict[str, Plant] = {
    "key text": partial(key_text, name="client"),
    "stores": partial(stores, name="client"),
    "password": partial(password, good=True),
    "delegation token": partial(hmac_of_a_token, good=True),
    "client secret": partial(client_secret, good=True),
    "assertion key": partial(assertion_key, good=True),
}
REFUSED: dict[str, tuple[Plant, type[KafkaError]]] = {
    "key text": (partial(key_text, name="otherclient"), TlsClientCertificateError),
    "stores": (partial(stores, name="otherclient"), TlsClientCertificateError),
    "password": (partial(password, good=False), SaslAuthenticationFailedError),
    "delegation token": (partial(hmac_of_a_token, good=False), SaslAuthenticationFailedError),
    "client secret": (partial(client_secret, good=False), OAuthTokenError),
    "assertion key": (partial(assertion_key, good=False), OAuthTokenError),
}


def consumer(given: dict[str, Any]) -> KafkaConsumer:
    return KafkaConsumer("orders", auto_offset_reset="earliest", **given)


def assert_hidden(secrets: Secrets, text: str) -> None:
    assert [leaked(secret, text) for secret in secrets] == [[] for _ in secrets]


@pytest.mark.parametrize("way", GOOD)
def test_secret_of_a_good_login_is_left_nowhere(
    world: World, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    given, secrets = GOOD[way](world)
    assert_hidden(secrets, traces(caplog, partial(consumer, given), world.cluster))


@pytest.mark.parametrize("way", REFUSED)
def test_secret_of_a_refused_login_is_left_nowhere(
    world: World, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    plant, raises = REFUSED[way]
    given, secrets = plant(world)
    assert_hidden(secrets, traces(caplog, partial(consumer, given), world.cluster, raises=raises))


def test_every_option_that_is_a_secret_is_planted(world: World) -> None:
    planted = {name for plant in GOOD.values() for name in plant(world)[0]}
    secret = {
        name for name, option in OPTIONS.items() if isinstance(option.option_type, SecretText)
    }
    assert len(secret) >= 8
    assert secret - planted == set()


JAAS = {
    "PLAIN": f'{MODULES}.plain.PlainLoginModule required username="{USER}" password="%s";',
    "SCRAM-SHA-512": f'{MODULES}.scram.ScramLoginModule required username="{USER}" password="%s";',
    "OAUTHBEARER": f'{MODULES}.oauthbearer.OAuthBearerLoginModule required clientId="{CLIENT_ID}" '
    'clientSecret="%s" scope="read";',
}


@pytest.mark.parametrize("good", [True, False], ids=["taken", "refused"])
@pytest.mark.parametrize("mechanism", JAAS)
def test_jaas_text_is_left_nowhere(
    world: World, mechanism: str, good: bool, caplog: pytest.LogCaptureFixture
) -> None:
    right = CLIENT_SECRET if mechanism == "OAUTHBEARER" else PASSWORD
    secret = right if good else "another/horse=battery"
    properties = {
        "bootstrap.servers": world.cluster.bootstrap_servers_of("SASL_SSL"),
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": world.files.ca,
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": JAAS[mechanism] % secret,
        "auto.offset.reset": "earliest",
    }
    if mechanism == "OAUTHBEARER":
        properties["sasl.oauthbearer.token.endpoint.url"] = world.idp.url
        properties["sasl.oauthbearer.allow.http"] = "true"

    def make() -> KafkaConsumer:
        made = KafkaConsumer.from_properties(properties)
        made.subscribe(["orders"])
        return made

    shown = traces(caplog, make, world.cluster, raises=None if good else KafkaError)
    assert_hidden([secret, properties["sasl.jaas.config"], ACCESS], shown)


TOKENS = {"access_token": TOKEN, "refresh_token": REFRESH, "id_token": REFRESH}
ANSWERS: dict[str, tuple[int, Any, dict[str, str]]] = {
    "no access token": (200, {"refresh_token": REFRESH}, {}),
    "a control character": (200, TOKENS | {"access_token": TOKENS["access_token"] + "\x01"}, {}),
    "another type": (200, TOKENS | {"token_type": "mac"}, {}),
    "a page": (200, f"<p>{TOKENS}</p>".encode(), {"Content-Type": "text/html"}),
    "half an object": (200, json.dumps(TOKENS)[:-1].encode(), {}),
    "a huge object": (200, json.dumps(TOKENS | {"more": "x" * 70_000}).encode(), {}),
    "a redirect": (302, TOKENS, {"Location": f"http://127.0.0.1:1/?token={REFRESH}"}),
    "an error": (400, TOKENS | {"error": "invalid_grant"}, {"WWW-Authenticate": REFRESH}),
    "a forbidden page": (403, f"{TOKENS}".encode(), {"Content-Type": "text/html"}),
    "a failure": (503, TOKENS | {"error": "server_error"}, {}),
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_tokens_in_odd_answers_are_left_nowhere(
    world: World,
    answer: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(world.idp, "answer", lambda *_: ANSWERS[answer])
    given, secrets = client_secret(world, True)
    given["bootstrap_timeout_ms"] = 1_000
    shown = traces(caplog, partial(consumer, given), world.cluster, raises=KafkaError)
    assert world.idp.forms
    with pytest.raises(KafkaError) as raised:
        anyio.run(endpoint_of(given))
    assert_hidden([*secrets, REFRESH], shown + texts_of_error(raised.value))


def test_tokens_in_a_cut_answer_are_left_nowhere(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    body = json.dumps(TOKENS)
    head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    says = f"{head}{len(body) + 10:x}\r\n{body}".encode()

    def serve() -> None:
        link, _ = listener.accept()
        with link:
            link.recv(65_536)
            link.sendall(says)
            link.shutdown(socket.SHUT_WR)
            while link.recv(65_536):
                pass

    given, secrets = client_secret(world, True)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        given["sasl_oauthbearer_token_endpoint_url"] = f"http://127.0.0.1:{_port(listener)}/token"
        with pytest.raises(OAuthTokenError, match="IncompleteRead") as raised:
            anyio.run(endpoint_of(given))
        thread.join(60)
    assert_hidden([*secrets, REFRESH], caplog.text + texts_of_error(raised.value))


def _port(listener: socket.socket) -> int:
    return int(listener.getsockname()[1])


def endpoint_of(given: dict[str, Any]) -> Callable[[], Awaitable[Token]]:
    """Return a function that sends one request to the token endpoint, without retries."""
    source = token_source(ConsumerConfig.from_kwargs(**given).security)
    return source._fetch


@pytest.mark.parametrize("way", ["password", "client secret", "key text"])
def test_debug_mode_of_asyncio_shows_no_secret(
    world: World, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    given, secrets = GOOD[way](world)

    async def main() -> str:
        asyncio.get_running_loop().slow_callback_duration = 0.0  # logs every callback
        async with AsyncKafkaConsumer("orders", auto_offset_reset="earliest", **given) as reader:
            await aread(reader, COUNT)
            return reports(reader)

    with asyncio.Runner(debug=True) as runner:
        shown = runner.run(main())
    assert "Executing <" in caplog.text
    assert_hidden(secrets, shown + caplog.text)


@pytest.mark.parametrize("way", GOOD)
def test_search_finds_each_planted_secret(
    world: World, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    given, secrets = GOOD[way](world)
    for secret in secrets:
        caplog.clear()
        data = secret.encode() if isinstance(secret, str) else secret
        logging.getLogger("ssl").debug("sent %s", base64.b64encode(b"x:" + data).decode())
        assert leaked(secret, traces(caplog, partial(consumer, given), use=lambda _: None))
