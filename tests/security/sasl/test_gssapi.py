"""GSSAPI without a KDC: the steps of a login and its errors, with a stub of the library."""

from __future__ import annotations

import enum
import sys
import time
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from kohort.config import SaslConfig
from kohort.errors import (
    CredentialsUnavailableError,
    InvalidOptionError,
    KafkaTimeoutError,
    SaslServerError,
    SecurityError,
)
from kohort.security.sasl import _gssapi
from kohort.security.sasl._gssapi import GssapiMechanism, gssapi_mechanism

pytestmark = pytest.mark.anyio

LAYERS = b"\x07\x00\xff\xff"


class GSSError(Exception):
    """The library's error."""

    def __init__(self, text: str, min_code: int = 0) -> None:
        super().__init__(text)
        self.min_code = min_code


class Flag(enum.IntFlag):
    mutual_authentication = 1
    out_of_sequence_detection = 2
    integrity = 4


class Context:
    """A security context that is complete after one token of the broker."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.complete = False

    def step(self, token: bytes | None = None) -> bytes | None:
        if token is None:
            return b"AP-REQ"
        assert token == b"AP-REP"
        self.complete = True
        return None

    def unwrap(self, token: bytes) -> Any:
        return SimpleNamespace(message=token)

    def wrap(self, token: bytes, encrypt: bool) -> Any:
        assert not encrypt
        return SimpleNamespace(message=b"wrapped " + token)


def library(context: Any = Context) -> Any:
    """Return a stub of the package gssapi."""
    return SimpleNamespace(
        Name=lambda name, kind: (name, kind),
        Credentials=lambda **options: SimpleNamespace(**{**options, "name": "alice@TEST"}),
        SecurityContext=context,
        NameType=SimpleNamespace(hostbased_service="service", kerberos_principal="principal"),
        MechType=SimpleNamespace(kerberos="krb5"),
        RequirementFlag=Flag,
        exceptions=SimpleNamespace(GSSError=GSSError),
    )


def mechanism(context: Any = Context, **options: Any) -> GssapiMechanism:
    return GssapiMechanism(SaslConfig(sasl_mechanism="GSSAPI", **options), library(context))


async def test_login_negotiates_no_security_layer() -> None:
    exchange = await mechanism().login("broker.example.org.")
    assert exchange.principal == "alice@TEST"
    assert exchange.first() == b"AP-REQ"
    assert await exchange.next(b"AP-REP") == b""
    assert await exchange.next(LAYERS) == b"wrapped \x01\x00\xff\xff"
    assert await exchange.next(b"") is None
    assert exchange._context.options["name"] == ("kafka@broker.example.org", "service")
    with pytest.raises(SaslServerError, match="goes on after its last step"):
        await exchange.next(b"more")


@pytest.mark.parametrize("layers", [b"\x06\x00\xff\xff", b"\x01", b"", b"\x01\x00\x00\x00\x00"])
async def test_login_fails_when_a_security_layer_is_required(layers: bytes) -> None:
    exchange = await mechanism().login("b")
    await exchange.next(b"AP-REP")
    with pytest.raises(SaslServerError, match="security layer"):
        await exchange.next(layers)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"sasl_kerberos_service_name": "k"}, ("k@b", "service")),
        ({"sasl_kerberos_domain_name": "d"}, ("kafka@d", "service")),
        ({"sasl_kerberos_name": "kafka/b@TEST"}, ("kafka/b@TEST", "principal")),
    ],
)
async def test_ticket_is_for_the_name_of_the_options(
    options: dict[str, Any], name: tuple[str, str]
) -> None:
    exchange = await mechanism(**options).login("b")
    assert exchange._context.options["name"] == name


async def test_keytab_is_used_with_a_cache_of_its_own() -> None:
    exchange = await mechanism(sasl_kerberos_keytab=__file__, sasl_kerberos_principal="p").login(
        "b"
    )
    credentials = exchange._context.options["creds"]
    assert credentials.store["client_keytab"] == __file__
    assert credentials.store["ccache"].startswith("MEMORY:")


async def test_caches_of_keytabs_are_never_shared() -> None:
    names = []
    for _ in range(20):
        exchange = await mechanism(sasl_kerberos_keytab=__file__).login("b")
        names.append(exchange._context.options["creds"].store["ccache"])
    assert len(set(names)) == 20


async def test_login_names_the_step_when_the_kdc_is_down() -> None:
    def failing(**_: Any) -> Any:
        raise GSSError("Cannot contact any KDC", -1765328228)

    gssapi = mechanism(failing)
    with pytest.raises(KafkaTimeoutError, match="getting a Kerberos ticket for kafka@b failed"):
        await gssapi.login("b")
    credentials_obstacle = gssapi.credentials_obstacle(anyio.current_time())
    assert isinstance(credentials_obstacle, CredentialsUnavailableError)
    assert "Cannot contact any KDC. Check that the KDC is up" in str(credentials_obstacle)


async def test_login_names_the_option_when_a_service_is_unknown() -> None:
    text = "Major (851968): Unspecified.  Minor (2529638919): Server kafka/b@TEST not found"

    def failing(**_: Any) -> Any:
        raise GSSError(text, 2529638919)

    with pytest.raises(SecurityError, match="failed: Server kafka/b@TEST not found") as raised:
        await mechanism(failing).login("b")
    assert "sasl_kerberos_service_name" in str(raised.value)
    assert "kinit" not in str(raised.value)


async def test_login_names_the_keytab_that_cannot_be_read() -> None:
    with pytest.raises(SecurityError, match="sasl_kerberos_keytab cannot be read: No such file"):
        await mechanism(sasl_kerberos_keytab="/nowhere/k").login("b")


async def test_login_fails_without_a_ticket() -> None:
    def failing(**_: Any) -> Any:
        raise GSSError("No credentials\n")

    with pytest.raises(SecurityError, match=r"No credentials\\n. Get a ticket with kinit"):
        await mechanism(failing).login("b")


async def test_login_is_given_up_when_the_kdc_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_gssapi, "CALL_SECONDS", 0.05)
    with pytest.raises(KafkaTimeoutError, match="does the KDC respond"):
        await mechanism(lambda **_: time.sleep(2.0)).login("b")


def test_option_is_refused_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(InvalidOptionError, match="extra gssapi"):
        gssapi_mechanism(SaslConfig(sasl_mechanism="GSSAPI"))
