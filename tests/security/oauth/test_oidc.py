"""Token endpoints: grants, limits, and faulty responses."""

from __future__ import annotations

import base64
import json
import os
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils

from kohort.config import ConsumerConfig
from kohort.errors import InvalidOptionError, OAuthTokenError, OAuthTokenUnavailableError
from kohort.security import mechanism_of
from kohort.security._secrets import text_of
from kohort.security.oauth import _http, _oidc, _token_sources
from kohort.security.oauth._jwt import signer
from kohort.security.oauth._token_sources import token_source
from kohort.security.oauth._tokens import Token
from tests.support.certificates import Certificates
from tests.support.idp import CLIENT_ID, CLIENT_SECRET, Idp, serving
from tests.support.tokens import unsecured

pytestmark = pytest.mark.anyio


@pytest.fixture
def idp(monkeypatch: pytest.MonkeyPatch) -> Iterator[Idp]:
    """An endpoint without TLS that gets one request per login."""
    monkeypatch.setattr(_token_sources, "RETRY_SECONDS", 0.0)
    with serving() as running:
        yield running


def config(url: str = "http://127.0.0.1:1/token", **more: Any) -> Any:
    """Return the security options of a client of the endpoint."""
    given: dict[str, Any] = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauthbearer_token_endpoint_url": url,
        "sasl_oauthbearer_allow_http": True,
        "sasl_oauthbearer_client_id": CLIENT_ID,
        "sasl_oauthbearer_client_secret": CLIENT_SECRET,
    }
    given |= more
    used = {name: value for name, value in given.items() if value is not None}
    return ConsumerConfig.from_kwargs(**used).security


async def get(url: str, **more: Any) -> Token:
    return await token_source(config(url, **more)).get()


async def test_client_credentials_are_sent(idp: Idp) -> None:
    token = await get(idp.url, sasl_oauthbearer_scope="read write")
    assert idp.forms == [{"grant_type": "client_credentials", "scope": "read write"}]
    assert idp.headers[0]["Content-Type"] == "application/x-www-form-urlencoded"
    assert token.expires_at is not None
    assert 240 < token.expires_at - time.time() < 360
    assert (token.claims or {})["sub"] == "app"


async def test_client_credentials_are_encoded_when_asked(idp: Idp) -> None:
    with pytest.raises(OAuthTokenError):
        await get(
            idp.url,
            sasl_oauthbearer_client_id="a b",
            sasl_oauthbearer_client_secret="c:d/é",
            sasl_oauthbearer_header_urlencode=True,
        )
    sent = base64.b64decode(idp.headers[0]["Authorization"].removeprefix("Basic "))
    assert sent == b"a+b:c%3Ad%2F%C3%A9"


MACHINE = {"sasl_oauthbearer_client_id": None, "sasl_oauthbearer_client_secret": None}
"""Options of a login as the identity of the machine, which has no client and no secret."""


async def test_azure_is_asked_for_the_identity_of_the_machine(idp: Idp) -> None:
    kind = {"sasl_oauthbearer_metadata_authentication_type": "azure_imds"}
    token = await get(f"{idp.url}?api-version=2018-02-01&resource=app", **MACHINE, **kind)
    assert idp.targets == ["/token?api-version=2018-02-01&resource=app"]
    assert idp.headers[0]["Metadata"] == "true"
    assert "Authorization" not in idp.headers[0]
    assert (token.claims or {})["sub"] == "app"


async def test_google_token_is_sent_with_the_name_of_its_account(idp: Idp) -> None:
    idp.mode = "opaque"
    url = idp.url.replace("/token", "/accounts/default/token")
    kind = {"sasl_oauthbearer_metadata_authentication_type": "google"}
    source = token_source(config(url, **MACHINE, **kind))
    token = await source.get()
    assert idp.targets == ["/accounts/default/?recursive=true", "/accounts/default/token"]
    assert {each["Metadata-Flavor"] for each in idp.headers} == {"Google"}
    header, _, signature = text_of(token.value).split(".")
    assert json.loads(base64.urlsafe_b64decode(header + "==")) == {
        "typ": "JWT",
        "alg": "GOOG_OAUTH2_TOKEN",
    }
    found = token.claims or {}
    assert (found["sub"], found["iss"], found["scope"]) == (
        "app@project.example",
        "Google",
        "kafka",
    )
    assert found["exp"] == token.expires_at
    assert base64.urlsafe_b64decode(signature + "==") == b"opaque"


async def test_account_without_a_name_is_an_error(idp: Idp) -> None:
    idp.reply = 200, {"scopes": []}, {}
    kind = {"sasl_oauthbearer_metadata_authentication_type": "google"}
    with pytest.raises(OAuthTokenError, match="names no service account"):
        await get(idp.url, **MACHINE, **kind)


def test_azure_is_configured_as_in_librdkafka() -> None:
    properties = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.metadata.authentication.type": "azure_imds",
        "sasl.oauthbearer.config": "query=api-version=2018-02-01&resource=https://hub.example",
    }
    oauth = ConsumerConfig.from_properties(properties).security.oauth
    url = oauth.sasl_oauthbearer_token_endpoint_url
    assert url is not None
    assert (url.host, url.port) == ("169.254.169.254", 80)
    assert url.target == (
        "/metadata/identity/oauth2/token?api-version=2018-02-01&resource=https://hub.example"
    )


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"sasl.oauthbearer.config": "principal=app"}, "which does not use it"),
        ({}, "requires sasl_oauthbearer_token_endpoint_url with a query"),
        ({"sasl.oauthbearer.token.endpoint.url": "http://example.com/a?b"}, "use https://"),
        ({"sasl.oauthbearer.config": "query=a", "sasl.oauthbearer.client.id": "app"}, "client_id"),
        (
            {
                "sasl.oauthbearer.config": "query=a",
                "sasl.oauthbearer.token.endpoint.url": "https://example.com/a",
            },
            "the same sasl_oauthbearer_token_endpoint_url",
        ),
    ],
)
def test_wrong_options_of_azure_are_refused(given: dict[str, str], text: str) -> None:
    properties = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.metadata.authentication.type": "azure_imds",
    }
    with pytest.raises(InvalidOptionError, match=text):
        ConsumerConfig.from_properties({**properties, **given})


def test_google_needs_no_other_option() -> None:
    made = ConsumerConfig.from_kwargs(
        security_protocol="SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauthbearer_metadata_authentication_type="google",
    )
    mechanism_of(made.security)


async def test_extensions_are_added(idp: Idp) -> None:
    token = await get(idp.url, sasl_oauthbearer_extensions={"logicalCluster": "lkc-1"})
    assert token.extensions == {"logicalCluster": "lkc-1"}


@pytest.mark.parametrize(
    ("mode", "text", "retriable"),
    [
        ("401", r"responded with 401: invalid_client: no\\nsuch", False),
        ("429", "responded with 429", True),
        ("500", "responded with 500: server_error", True),
        ("html", "responded with text/html without a JSON object", False),
        ("html error", "responded with 403", False),
        ("huge", "with more than 65536 bytes", False),
        ("redirect", "responded with 302, a redirect, which is not followed", False),
        ("list", "without a JSON object", False),
        ("deep", "without a JSON object", False),
        ("no token", "without an access_token", False),
        ("number", "without an access_token", False),
        ("control", "has characters that no token has", False),
        ("space", "has characters that no token has", False),
        ("empty", "is empty", False),
        ("long", "more than 16384 characters", False),
        ("mac", "token of type 'mac'", False),
        ("expired", "expired 60 s ago: it is not sent", False),
    ],
)
async def test_endpoint_error_is_told_apart(
    idp: Idp, mode: str, text: str, retriable: bool
) -> None:
    idp.mode = mode
    with pytest.raises(OAuthTokenError, match=text) as raised:
        await get(idp.url + "?tenant=planted")
    assert raised.value.retriable is retriable
    assert len(idp.forms) == 1
    assert len(str(raised.value)) < 400
    assert "planted" not in str(raised.value)
    assert CLIENT_SECRET not in str(raised.value)


async def test_secret_is_masked_when_the_endpoint_repeats_it(idp: Idp) -> None:
    with pytest.raises(OAuthTokenError, match=r"responded with 401: invalid_client") as raised:
        await get(idp.url, sasl_oauthbearer_client_secret="planted-secret")
    assert "not app:***" in str(raised.value)


async def test_secret_is_masked_before_the_text_is_cut(idp: Idp) -> None:
    for length in range(150, 200, 7):
        idp.reply = 401, {"error": "e" * length, "error_description": f"not {CLIENT_SECRET}"}, {}
        with pytest.raises(OAuthTokenError) as raised:
            await get(idp.url)
        assert CLIENT_SECRET[:6] not in str(raised.value)


async def test_answer_that_is_cut_is_not_used(idp: Idp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_token_sources, "RETRY_SECONDS", 0.0)
    body = {"access_token": "opaque", "expires_in": 60}
    idp.reply = 200, body, {"Content-Length": "5000", "Connection": "close"}
    with pytest.raises(OAuthTokenUnavailableError, match="IncompleteRead"):
        await get(idp.url)


async def test_expiry_comes_from_expires_in_when_the_token_is_opaque(idp: Idp) -> None:
    idp.mode = "opaque"
    token = await get(idp.url)
    assert token.expires_at is not None
    assert 540 < token.expires_at - time.time() < 660


async def test_token_without_expiry_is_asked_for_at_each_login(idp: Idp) -> None:
    idp.mode = "no exp"
    source = token_source(config(idp.url))
    await source.get()
    await source.get()
    assert len(idp.forms) == 2


async def test_endpoint_is_retried_when_it_fails_for_now(
    idp: Idp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_token_sources, "RETRY_SECONDS", 10.0)
    idp.failures = 2
    await get(idp.url)
    assert len(idp.forms) == 3


@pytest.mark.parametrize("mode", ["hang", "drip"])
async def test_endpoint_is_given_up_when_it_is_slow(
    idp: Idp, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_http, "TOTAL_SECONDS", 0.4)
    idp.mode = mode
    began = time.monotonic()
    with pytest.raises(OAuthTokenUnavailableError, match=r"did not respond within 0.4 s"):
        await get(idp.url)
    assert time.monotonic() - began < 60


async def test_login_that_is_cancelled_ends_its_thread(idp: Idp) -> None:
    idp.mode = "hang"
    with anyio.move_on_after(0.2):
        await get(idp.url)
    deadline = time.monotonic() + 60
    while any("Worker" in each.name and _in_call(each) for each in threading.enumerate()):
        assert time.monotonic() < deadline
        await anyio.sleep(0.01)


def _in_call(thread: threading.Thread) -> bool:
    import sys

    frame = sys._current_frames().get(thread.ident or 0)
    while frame is not None:
        if frame.f_code.co_filename == _http.__file__:
            return True
        frame = frame.f_back
    return False


async def test_endpoint_that_refuses_connections_is_unavailable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    call = _token_sources.token_source(config(f"http://127.0.0.1:{port}/token"))
    with pytest.raises(OAuthTokenUnavailableError, match="cannot be reached: Connection refused"):
        await call._fetch()


async def test_proxies_of_the_environment_are_not_used(
    idp: Idp, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
        monkeypatch.setenv(name.upper(), "http://127.0.0.1:1")
    await get(idp.url)
    assert len(idp.forms) == 1


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("idp"))


@pytest.fixture
def secure_idp(certificates: Certificates, monkeypatch: pytest.MonkeyPatch) -> Iterator[Idp]:
    monkeypatch.setattr(_token_sources, "RETRY_SECONDS", 0.0)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.path("server.pem"), certificates.path("server.key"))
    with serving(context) as running:
        yield running


async def test_endpoint_is_asked_over_tls(secure_idp: Idp, certificates: Certificates) -> None:
    path = str(certificates.ca)
    text = await anyio.Path(path).read_text()
    await get(secure_idp.url, sasl_oauthbearer_https_cafile=path)
    await get(secure_idp.url, sasl_oauthbearer_https_cadata=text)
    assert len(secure_idp.forms) == 2


async def test_endpoint_is_refused_when_its_ca_is_unknown(secure_idp: Idp) -> None:
    with pytest.raises(OAuthTokenError, match="Set sasl_oauthbearer_https_cafile") as raised:
        await get(secure_idp.url)
    assert not raised.value.retriable
    assert secure_idp.forms == []


def test_ca_file_is_refused_when_it_does_not_load(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    with pytest.raises(InvalidOptionError, match="https_cafile"):
        mechanism_of(config(sasl_oauthbearer_https_cafile=str(tmp_path / "ca.pem")))


@pytest.fixture(scope="module")
def keys() -> dict[str, Any]:
    return {
        "RS256": rsa.generate_private_key(public_exponent=65537, key_size=2048),
        "ES256": ec.generate_private_key(ec.SECP256R1()),
        "P384": ec.generate_private_key(ec.SECP384R1()),
    }


def pem_of(key: Any, password: bytes | None = None) -> bytes:
    encryption: Any = serialization.NoEncryption()
    if password is not None:
        encryption = serialization.BestAvailableEncryption(password)
    pem: bytes = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
    )
    return pem


def decoded(text: str) -> Any:
    return json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))


def grant(**more: Any) -> dict[str, Any]:
    return {
        "sasl_oauthbearer_client_id": None,
        "sasl_oauthbearer_client_secret": None,
        "sasl_oauthbearer_grant_type": "jwt-bearer",
        **{f"sasl_oauthbearer_assertion_{name}": value for name, value in more.items()},
    }


@pytest.mark.parametrize("broken", ["key", "no key", "template", "no template"])
def test_assertion_is_refused_at_once_when_a_file_is_bad(
    keys: dict[str, Any], tmp_path: Path, broken: str
) -> None:
    key, template = tmp_path / "key.pem", tmp_path / "template.json"
    if broken != "no key":
        key.write_bytes(b"planted" if broken == "key" else pem_of(keys["RS256"]))
    if broken != "no template":
        template.write_text("planted" if broken == "template" else "{}")
    given = grant(private_key_file=str(key), template_file=str(template))
    with pytest.raises(
        InvalidOptionError, match="key" if "key" in broken else "template"
    ) as raised:
        mechanism_of(config(**given))
    assert "planted" not in str(raised.value)


async def test_login_fails_when_the_key_of_assertions_breaks(
    idp: Idp, keys: dict[str, Any], tmp_path: Path
) -> None:
    key = tmp_path / "key.pem"
    key.write_bytes(pem_of(keys["RS256"]))
    mechanism = mechanism_of(
        config(
            sasl_oauthbearer_token_endpoint_url=idp.url,
            sasl_oauthbearer_allow_http=True,
            **grant(private_key_file=str(key)),
        )
    )
    assert mechanism is not None
    key.write_bytes(b"planted")
    with pytest.raises(OAuthTokenError, match="the private key of the OAuth assertion does not"):
        await mechanism.login("b")
    assert not idp.forms


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
async def test_assertion_is_signed(
    idp: Idp, keys: dict[str, Any], tmp_path: Path, algorithm: str
) -> None:
    (tmp_path / "key.pem").write_bytes(pem_of(keys[algorithm], b"keypass"))
    (tmp_path / "template.json").write_text(
        '{"header": {"kid": "k7", "alg": "none"}, "payload": {"tenant": "t"}}'
    )
    await get(
        idp.url,
        **grant(
            algorithm=algorithm,
            private_key_file=str(tmp_path / "key.pem"),
            private_key_passphrase="keypass",
            claim_aud="https://idp",
            claim_iss="app",
            claim_sub="app",
            claim_jti_include=True,
            template_file=str(tmp_path / "template.json"),
        ),
    )
    form = idp.forms[0]
    assert form["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
    head, body, signature = form["assertion"].split(".")
    assert decoded(head) == {"typ": "JWT", "alg": algorithm, "kid": "k7"}
    claims = decoded(body)
    assert claims["tenant"] == "t"
    assert (claims["aud"], claims["iss"], claims["sub"]) == ("https://idp", "app", "app")
    assert claims["exp"] - claims["iat"] == 300
    assert claims["iat"] - claims["nbf"] == 60
    assert claims["jti"]
    raw = base64.urlsafe_b64decode(signature + "=" * (-len(signature) % 4))
    signed = f"{head}.{body}".encode()
    public = keys[algorithm].public_key()
    if algorithm == "RS256":
        public.verify(raw, signed, padding.PKCS1v15(), hashes.SHA256())
    else:
        numbers = int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big")
        public.verify(utils.encode_dss_signature(*numbers), signed, ec.ECDSA(hashes.SHA256()))


async def test_assertion_file_is_read_for_each_token(idp: Idp, tmp_path: Path) -> None:
    path = tmp_path / "assertion"
    path.write_text("a.b+c.d\n")
    await get(idp.url, **grant(file=str(path)))
    assert idp.forms[0]["assertion"] == "a.b+c.d"


@pytest.mark.parametrize(("algorithm", "key"), [("RS256", "ES256"), ("ES256", "P384")])
def test_key_of_another_kind_is_refused(keys: dict[str, Any], algorithm: str, key: str) -> None:
    with pytest.raises(InvalidOptionError, match=f"{algorithm} needs an"):
        signer(algorithm, pem_of(keys[key]), None)


def test_key_with_a_wrong_password_is_refused(keys: dict[str, Any]) -> None:
    with pytest.raises(InvalidOptionError, match="does not load"):
        signer("RS256", pem_of(keys["RS256"], b"right"), None)


async def test_token_file_is_read_at_each_login(tmp_path: Path) -> None:
    path = tmp_path / "token"
    given = config(
        sasl_oauthbearer_token_endpoint_url=None,
        sasl_oauthbearer_allow_http=None,
        sasl_oauthbearer_client_id=None,
        sasl_oauthbearer_client_secret=None,
        sasl_oauthbearer_token_file=str(path),
    )
    source = token_source(given)
    with pytest.raises(OAuthTokenUnavailableError, match="cannot be read: No such file"):
        await source.get()
    for subject in ("one", "two"):
        path.write_text(unsecured(subject) + "\n")
        token = await source.get()
        assert (token.claims or {})["sub"] == subject
    path.write_bytes(b"x" * 70_000)
    assert (await source.get()) is token  # it is still valid
    with pytest.raises(OAuthTokenError, match="more than 65536 bytes"):
        await token_source(given).get()
    path.write_bytes("é".encode())
    with pytest.raises(OAuthTokenError, match="is not ASCII"):
        await token_source(given).get()


async def test_token_file_that_hangs_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_oidc, "CALL_SECONDS", 0.05)
    path = tmp_path / "token"
    os.mkfifo(path)
    source = token_source(
        config(
            sasl_oauthbearer_token_endpoint_url=None,
            sasl_oauthbearer_allow_http=None,
            sasl_oauthbearer_client_id=None,
            sasl_oauthbearer_client_secret=None,
            sasl_oauthbearer_token_file=str(path),
        )
    )
    with pytest.raises(OAuthTokenUnavailableError, match="took longer than"):
        await source.get()
    with path.open("wb"):  # ends the thread
        pass


async def test_unsecured_tokens_have_the_claims() -> None:
    given = config(
        sasl_oauthbearer_token_endpoint_url=None,
        sasl_oauthbearer_allow_http=None,
        sasl_oauthbearer_client_id=None,
        sasl_oauthbearer_client_secret=None,
        sasl_oauthbearer_unsecured=True,
        sasl_oauthbearer_unsecured_claims={"sub": "alice", "groups": ["a", "b"]},
        sasl_oauthbearer_unsecured_lifetime_seconds=600,
    )
    token = await token_source(given).get()
    claims = dict(token.claims or {})
    assert (claims["sub"], claims["groups"]) == ("alice", ["a", "b"])
    assert text_of(token.value).endswith(".")
    assert token.expires_at is not None
    assert 540 < token.expires_at - time.time() < 660


def test_msk_signer_is_a_provider() -> None:
    """The test uses a stub with the interface of aws-msk-iam-sasl-signer-python."""
    signed_url = base64.urlsafe_b64encode(b"https://kafka.eu-west-1.amazonaws.com/?x=y" * 20)

    class MSKAuthTokenProvider:
        @staticmethod
        def generate_auth_token(region: str) -> tuple[str, int]:
            return signed_url.decode().rstrip("="), int((time.time() + 900) * 1000)

    given = config(
        sasl_oauthbearer_token_endpoint_url=None,
        sasl_oauthbearer_allow_http=None,
        sasl_oauthbearer_client_id=None,
        sasl_oauthbearer_client_secret=None,
        sasl_oauth_token_provider=lambda: MSKAuthTokenProvider.generate_auth_token("eu-west-1"),
    )
    token = anyio.run(token_source(given).get)
    assert token.life is not None
    assert 895 < token.life <= 900


async def test_errors_show_no_secret_in_their_frames(idp: Idp) -> None:
    idp.mode = "500"
    with pytest.raises(OAuthTokenError) as raised:
        await get(idp.url, sasl_oauthbearer_client_secret="planted-secret")
    encoded = base64.b64encode(b"app:planted-secret").decode()
    shown = []
    chain: list[BaseException | None] = [raised.value]
    while chain:
        error = chain.pop()
        if error is None:
            continue
        chain += [error.__cause__, error.__context__]
        trace = error.__traceback__
        while trace is not None:
            if "/tests/" not in trace.tb_frame.f_code.co_filename:
                shown += [repr(value) for value in trace.tb_frame.f_locals.values()]
            trace = trace.tb_next
    assert len(shown) > 20
    assert not [text for text in shown if "planted" in text or encoded in text]
