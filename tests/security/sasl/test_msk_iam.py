"""AWS_MSK_IAM: the signed request, the broker's response, and what is missing."""

from __future__ import annotations

import hashlib
import hmac
import json
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from kohort.config import SaslConfig, SecurityConfig
from kohort.errors import (
    InvalidOptionError,
    SaslAuthenticationFailedError,
    SaslServerError,
    SecurityError,
)
from kohort.protocol.messages import SaslHandshakeResponse
from kohort.security import Mechanism, mechanism_of
from tests.transport.sasl_peer import SaslPeer, done, logged_in, refused

pytest.importorskip("botocore")

pytestmark = pytest.mark.anyio

ACCESS_KEY, SECRET_KEY, SESSION_TOKEN = "AKIAEXAMPLE", "a-secret/key+", "session+token/=="
HOST = "b-1.orders.ab12.c2.kafka.eu-west-1.amazonaws.com"
RESPONSE = b'{"version": "2020_10_22", "request-id": "17a1"}'


@pytest.fixture(autouse=True)
def account(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """Set temporary AWS credentials, and no files of this machine."""
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    monkeypatch.setenv("AWS_SESSION_TOKEN", SESSION_TOKEN)
    return monkeypatch


def mechanism() -> Mechanism:
    found = mechanism_of(
        SecurityConfig(security_protocol="SASL_SSL", sasl=SaslConfig(sasl_mechanism="AWS_MSK_IAM"))
    )
    assert found is not None
    return found


def signature(fields: dict[str, str], secret: str) -> str:
    """Return the signature of a presigned request, as AWS documents Signature Version 4."""
    names = ("Algorithm", "Credential", "Date", "Expires", "Security-Token", "SignedHeaders")
    query = {"Action": fields["action"]}
    query |= {f"X-Amz-{name}": fields[f"x-amz-{name.lower()}"] for name in names}
    listed = "&".join(f"{name}={quote(query[name], safe='-_.~')}" for name in sorted(query))
    nothing = hashlib.sha256(b"").hexdigest()
    request = f"GET\n/\n{listed}\nhost:{fields['host']}\n\nhost\n{nothing}"
    scope = fields["x-amz-credential"].partition("/")[2]
    digest = hashlib.sha256(request.encode()).hexdigest()
    text = f"AWS4-HMAC-SHA256\n{fields['x-amz-date']}\n{scope}\n{digest}"
    key = f"AWS4{secret}".encode()
    for part in (*scope.split("/"), text):
        key = hmac.digest(key, part.encode(), "sha256")
    return key.hex()


async def test_request_is_signed_for_the_host_and_region() -> None:
    fields = json.loads((await mechanism().login(HOST)).first())
    day = fields["x-amz-date"][:8]
    assert fields.pop("x-amz-signature") == signature(fields, SECRET_KEY)
    assert len(fields.pop("x-amz-date")) == len("20260101T000000Z")
    assert fields.pop("user-agent").startswith("kohort")
    assert fields == {
        "version": "2020_10_22",
        "host": HOST,
        "action": "kafka-cluster:Connect",
        "x-amz-algorithm": "AWS4-HMAC-SHA256",
        "x-amz-credential": f"{ACCESS_KEY}/{day}/eu-west-1/kafka-cluster/aws4_request",
        "x-amz-expires": "900",
        "x-amz-security-token": SESSION_TOKEN,
        "x-amz-signedheaders": "host",
    }


def checking(secret: str) -> SaslPeer:
    """Return a broker that knows the secret key of the account."""

    def check(data: bytes) -> Any:
        fields = json.loads(data)
        if fields.pop("x-amz-signature") != signature(fields, secret):
            return refused(f"Access denied for {fields['x-amz-security-token']}")
        return done(3_600_000, RESPONSE)

    broker = SaslPeer()
    broker.handshake = lambda _: SaslHandshakeResponse(mechanisms=["AWS_MSK_IAM"])
    broker.authenticate = check
    return broker


async def test_broker_accepts_the_signature(account: pytest.MonkeyPatch) -> None:
    account.setenv("AWS_REGION", "eu-west-1")
    broker = checking(SECRET_KEY)
    async with logged_in(broker, mechanism()):
        assert len(broker.logins) <= 1
    assert broker.connections == 1


async def test_refusal_names_the_access_key_and_no_secret(account: pytest.MonkeyPatch) -> None:
    account.setenv("AWS_REGION", "eu-west-1")
    with pytest.raises(SaslAuthenticationFailedError, match=ACCESS_KEY) as raised:
        async with logged_in(checking("another key"), mechanism()):
            pass
    assert SESSION_TOKEN not in str(raised.value)
    assert "kafka-cluster:Connect" in str(raised.value)


@pytest.mark.parametrize("response", [b"", b"[]", b"{", b'{"version": "1"}'])
async def test_response_of_another_mechanism_is_refused(response: bytes) -> None:
    login = await mechanism().login(HOST)
    assert await login.next(RESPONSE) is None
    with pytest.raises(SaslServerError, match="AWS_MSK_IAM"):
        await login.next(response)


async def test_login_names_a_missing_region() -> None:
    with pytest.raises(SecurityError, match="AWS_REGION"):
        await mechanism().login("localhost")


async def test_login_names_missing_credentials(account: pytest.MonkeyPatch) -> None:
    account.delenv("AWS_ACCESS_KEY_ID")
    account.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(SecurityError, match="AWS_ACCESS_KEY_ID"):
        await mechanism().login(HOST)


def test_mechanism_names_the_extra_when_botocore_is_missing(account: pytest.MonkeyPatch) -> None:
    account.setitem(sys.modules, "botocore.session", None)
    with pytest.raises(InvalidOptionError, match=r"kohort\[msk\]"):
        mechanism()
