"""Secrets of logins, shown nowhere: passwords, tokens, and the keys that SCRAM derives."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import threading
import time
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest

from kohort import KafkaConsumer, Secret
from kohort.errors import KafkaError, SaslAuthenticationFailedError
from kohort.security._secrets import MASK, mask
from kohort.testing import Cluster, Security
from tests.security.traces import read, reports, traces
from tests.support.leaks import leaked
from tests.support.tokens import unsecured

SECRET = "hunter2-correct-horse"
USER = "alice"
PASSWORDS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
TOKEN = unsecured(USER, life=86_400, marker="planted-in-the-token")
"""Tokens are searched for by their payload, because others have the same header."""
BOTH_LISTENERS = pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])


@pytest.fixture(scope="module")
def security() -> Security:
    return Security(
        listeners=["PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL"],
        users={USER: SECRET},
        session_lifetime_ms=1_500,
    )


@pytest.fixture(scope="module")
def secured(security: Security) -> Iterator[Cluster]:
    with Cluster(topics={"orders": 1}, security=security) as cluster:
        cluster.produce("orders", [b"tea"] * 10)
        yield cluster


@pytest.fixture(autouse=True)
def every_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(1)


def planted(security: Security, mechanism: str, password: str = SECRET) -> list[bytes]:
    """Return the secrets of a login by password, with the keys that SCRAM derives from it."""
    found = [password.encode()]
    if mechanism != "PLAIN":
        stored = security.credentials.scram[USER, mechanism]
        name = stored.hash_name
        salted = hashlib.pbkdf2_hmac(name, password.encode(), stored.salt, stored.iterations)
        client_key = hmac.digest(salted, b"Client Key", name)
        found += [
            salted,
            client_key,
            hashlib.new(name, client_key).digest(),
            hmac.digest(salted, b"Server Key", name),
        ]
    return found


def make(
    cluster: Cluster, mechanism: str, listener: str = "SASL_PLAINTEXT", **more: Any
) -> KafkaConsumer:
    options: dict[str, Any] = {
        "bootstrap_servers": cluster.bootstrap_servers_of(listener),
        "security_protocol": listener,
        "sasl_mechanism": mechanism,
        "auto_offset_reset": "earliest",
        "bootstrap_timeout_ms": 5_000,
    }
    if listener == "SASL_SSL":
        options["ssl_cafile"] = cluster.ssl_cafile
    if mechanism in PASSWORDS:
        options |= {"sasl_plain_username": USER, "sasl_plain_password": SECRET}
    return KafkaConsumer("orders", **options | more)


@pytest.mark.cases(2)  # each reads by two consumers
@BOTH_LISTENERS
@pytest.mark.parametrize("mechanism", PASSWORDS)
def test_a_login_by_password_shows_no_secret(
    secured: Cluster,
    security: Security,
    mechanism: str,
    listener: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def read_past_a_session(consumer: KafkaConsumer) -> None:
        read(consumer)
        logins = [each for each in secured.requests if each.api == "SaslAuthenticate"]
        deadline = time.monotonic() + 20
        while len(secured.requests) < 10_000 and time.monotonic() < deadline:
            consumer.poll(timeout_ms=100)
            again = [each for each in secured.requests if each.api == "SaslAuthenticate"]
            if len(again) > len(logins):
                break

    given = partial(make, secured, mechanism, listener, metadata_max_age_ms=300)
    shown = traces(caplog, given, secured, use=read_past_a_session)
    assert "auth_bytes=<" in shown
    for secret in planted(security, mechanism):
        assert not leaked(secret, shown)


@BOTH_LISTENERS
@pytest.mark.parametrize("mechanism", PASSWORDS)
def test_a_refused_password_is_not_shown(
    secured: Cluster,
    security: Security,
    mechanism: str,
    listener: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    wrong = "correct-horse-battery"
    given = partial(make, secured, mechanism, listener, sasl_plain_password=wrong)
    shown = traces(caplog, given, secured, raises=SaslAuthenticationFailedError)
    for secret in planted(security, mechanism, wrong):
        assert not leaked(secret, shown)


@pytest.mark.cases(2)  # each reads by two consumers
@BOTH_LISTENERS
@pytest.mark.parametrize("mechanism", [*PASSWORDS, "OAUTHBEARER"])
@pytest.mark.parametrize("fault", ["disconnect", "hang"])
def test_a_login_that_is_cut_shows_no_secret(
    secured: Cluster,
    security: Security,
    mechanism: str,
    listener: str,
    fault: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    rule = getattr(secured, fault)("SaslAuthenticate", times=None)
    more: dict[str, Any] = {}
    if mechanism == "OAUTHBEARER":
        more["sasl_oauth_token_provider"] = lambda: TOKEN
    more["socket_connection_setup_timeout_ms"] = 300
    try:
        given = partial(make, secured, mechanism, listener, bootstrap_timeout_ms=1_000, **more)
        shown = traces(caplog, given, secured, raises=KafkaError)
    finally:
        rule.stop()
    secrets = planted(security, mechanism) if mechanism in PASSWORDS else [payload(TOKEN)]
    for secret in secrets:
        assert not leaked(secret, shown)


def payload(token: str) -> bytes:
    return token.split(".")[1].encode()


@BOTH_LISTENERS
@pytest.mark.parametrize("good", [True, False], ids=["taken", "refused"])
def test_a_token_is_not_shown(
    secured: Cluster, good: bool, listener: str, caplog: pytest.LogCaptureFixture
) -> None:
    token = TOKEN if good else unsecured(USER, sub=None, marker="planted-in-the-token")
    provider = lambda: (token, time.time() + 200)  # noqa: E731
    given = partial(make, secured, "OAUTHBEARER", listener, sasl_oauth_token_provider=provider)
    raises = None if good else SaslAuthenticationFailedError
    shown = traces(caplog, given, secured, raises=raises)
    assert not leaked(payload(token), shown)


class IdentityProvider(BaseHTTPRequestHandler):
    """A token endpoint whose errors repeat the request."""

    status = 200

    def do_POST(self) -> None:
        asked = self.rfile.read(int(self.headers["Content-Length"])).decode()
        sent = f"{asked} {self.headers.get('Authorization')} {SECRET}"
        found: dict[str, Any] = {"access_token": TOKEN, "expires_in": 200}
        if self.status != 200:
            found = {"error": "invalid_client", "error_description": sent}
        body = json.dumps(found).encode()
        self.send_response(self.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing, because the test searches the logs."""


@pytest.fixture
def endpoint() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), IdentityProvider)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/token?tenant=planted-in-the-query"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("status", [200, 401, 503])
def test_a_client_secret_is_not_shown(
    secured: Cluster,
    endpoint: str,
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(IdentityProvider, "status", status)
    options: dict[str, Any] = {
        "sasl_oauthbearer_token_endpoint_url": endpoint,
        "sasl_oauthbearer_allow_http": True,
        "sasl_oauthbearer_client_id": "app",
        "sasl_oauthbearer_client_secret": SECRET,
    }
    is_good = status == 200
    patience_ms = 5_000 if is_good else 1_000
    given = partial(make, secured, "OAUTHBEARER", bootstrap_timeout_ms=patience_ms, **options)
    shown = traces(caplog, given, secured, raises=None if is_good else KafkaError)
    for secret in (SECRET, payload(TOKEN), "planted-in-the-query"):
        assert not leaked(secret, shown)


@pytest.mark.parametrize("status", [200, 401])
def test_an_assertion_is_not_shown(
    secured: Cluster,
    endpoint: str,
    status: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(IdentityProvider, "status", status)
    assertion = unsecured("app", marker="planted-in-the-assertion")
    file = tmp_path / "assertion.jwt"
    file.write_text(assertion)
    options: dict[str, Any] = {
        "sasl_oauthbearer_token_endpoint_url": endpoint,
        "sasl_oauthbearer_allow_http": True,
        "sasl_oauthbearer_grant_type": "jwt-bearer",
        "sasl_oauthbearer_assertion_file": file,
    }
    is_good = status == 200
    patience_ms = 5_000 if is_good else 1_000
    given = partial(make, secured, "OAUTHBEARER", bootstrap_timeout_ms=patience_ms, **options)
    shown = traces(caplog, given, secured, raises=None if is_good else KafkaError)
    for secret in (payload(assertion), payload(TOKEN), "planted-in-the-query"):
        assert not leaked(secret, shown)


def test_token_in_a_providers_error_stays_in_that_error(
    secured: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    def provider() -> str:
        raise ValueError(f"no token like {payload(TOKEN).decode()}")

    options: dict[str, Any] = {
        "sasl_oauth_token_provider": provider,
        "bootstrap_timeout_ms": 1_000,
    }
    with make(secured, "OAUTHBEARER", **options) as consumer:
        with pytest.raises(KafkaError) as raised:
            read(consumer)
        shown = reports(consumer)
    assert not leaked(payload(TOKEN), str(raised.value), shown)


def test_the_search_finds_a_planted_leak(
    secured: Cluster, security: Security, caplog: pytest.LogCaptureFixture
) -> None:
    for secret in planted(security, "SCRAM-SHA-256"):
        caplog.clear()
        logging.getLogger("kohort.test").debug("sent %s", secret.hex())
        assert leaked(secret, caplog.text)
        assert leaked(secret, repr(secret))


@pytest.mark.parametrize("secret", ["s3cr=t/p ss+w?rd", SECRET, "päss wörd"])
def test_a_secret_that_a_server_repeats_is_masked_in_every_form(secret: str) -> None:
    said = "it said"
    for before in ("", "a", "ab", "app:"):
        for form in (secret, quote_plus(secret)):
            data = f"{before}{form}".encode()
            said += f" {base64.b64encode(data).decode()} {base64.urlsafe_b64encode(data).decode()}"
    said += f" {secret} {quote_plus(secret)} {quote(secret)} {secret.encode().hex()} again"
    masked = mask(said, Secret(secret), None, Secret("x"))
    assert not leaked(secret, masked)
    assert not leaked(quote_plus(secret), masked)
    assert masked.startswith("it said ***")
    assert masked.endswith("*** again")


def test_masking_of_a_long_text_takes_linear_time() -> None:
    text = "A" * 1_000_000
    began = time.process_time()
    assert mask(text, Secret("B" * 20)) == text
    assert mask(f"{text}{'B' * 20}{text}", Secret("B" * 20)) in (MASK, f"{text}{MASK}{text}")
    assert time.process_time() - began < 2
