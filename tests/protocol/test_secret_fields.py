"""Secret fields of messages: no text about a message shows them."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from kohort.errors import MessageDecodeError, MessageEncodeError
from kohort.protocol import (
    Message,
    Response,
    Struct,
    decode,
    decode_request,
    decode_response,
    encode,
    encode_request,
    messages,
)
from kohort.protocol._struct import field
from kohort.protocol._types import Bytes, Int16, String
from kohort.protocol.messages import (
    AlterUserScramCredentialsRequest,
    CreateDelegationTokenResponse,
    DescribeDelegationTokenResponse,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from kohort.testing import ReceivedRequest
from tests.support.leaks import error_text, leaked

SECRET = "hunter2-correct-horse"
DATA = SECRET.encode()
FIELDS = {
    "AlterUserScramCredentialsRequest.ScramCredentialUpsertion.salt",
    "AlterUserScramCredentialsRequest.ScramCredentialUpsertion.salted_password",
    "CreateDelegationTokenResponse.hmac",
    "DescribeDelegationTokenResponse.DescribedDelegationToken.hmac",
    "ExpireDelegationTokenRequest.hmac",
    "RenewDelegationTokenRequest.hmac",
    "SaslAuthenticateRequest.auth_bytes",
    "SaslAuthenticateResponse.auth_bytes",
}


def structs(cls: type[Struct]) -> Iterator[type[Struct]]:
    yield cls
    for inner in vars(cls).values():
        if isinstance(inner, type) and issubclass(inner, Struct):
            yield from structs(inner)


def every_struct() -> Iterator[type[Struct]]:
    for name in messages.__all__:
        cls: type[Message] = getattr(messages, name)
        yield from structs(cls)


def user(iterations: int = 4096) -> AlterUserScramCredentialsRequest:
    upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
    return AlterUserScramCredentialsRequest(
        upsertions=[
            upsertion(name="alice", mechanism=1, iterations=4096, salt=DATA, salted_password=DATA),
            upsertion(
                name="bob", mechanism=1, iterations=iterations, salt=DATA, salted_password=DATA
            ),
        ]
    )


def test_fields_with_passwords_and_tokens_are_secret() -> None:
    found = {
        f"{cls.__qualname__}.{spec.name}"
        for cls in every_struct()
        for spec in cls._fields
        if spec.secret
    }
    assert found == FIELDS


@pytest.mark.parametrize("cls", [each for each in every_struct() if each._has_secrets])
def test_repr_shows_the_size_of_a_secret_field_only(cls: Any) -> None:
    for spec in cls._fields:
        if spec.secret:
            assert f"{spec.name}=<21 bytes>" in repr(cls(**{spec.name: DATA}))
            assert f"{spec.name}=<21 bytes>" in repr(cls(**{spec.name: memoryview(DATA)}))
            assert f"{spec.name}='***'" in repr(cls(**{spec.name: SECRET}))
            assert f"{spec.name}=None" in repr(cls(**{spec.name: None}))


def test_repr_hides_secret_fields_of_nested_structures() -> None:
    shown = repr(user())
    assert shown.count("salted_password=<21 bytes>") == 2
    assert not leaked(SECRET, shown)


def test_repr_shows_the_other_fields_of_a_message_with_secrets() -> None:
    shown = repr(SaslAuthenticateResponse(error_message="wrong", auth_bytes=DATA))
    assert "error_message='wrong'" in shown
    assert "session_lifetime_ms=0" in shown


@pytest.mark.parametrize(
    "message",
    [
        user(iterations=2**40),
        SaslAuthenticateRequest(auth_bytes=SECRET),  # type: ignore[arg-type]
        SaslAuthenticateResponse(error_code=99_999, auth_bytes=DATA),
        SaslAuthenticateResponse(session_lifetime_ms=2**70, auth_bytes=DATA),
        CreateDelegationTokenResponse(hmac=DATA, throttle_time_ms=2**40),
        DescribeDelegationTokenResponse(
            tokens=[
                DescribeDelegationTokenResponse.DescribedDelegationToken(
                    hmac=DATA,
                    renewers="nobody",  # type: ignore[arg-type]
                )
            ]
        ),
    ],
    ids=lambda message: type(message).__name__,
)
def test_an_encode_error_shows_no_secret_field(message: Message) -> None:
    with pytest.raises(MessageEncodeError) as raised:
        encode(message, type(message).versions.last)
    assert raised.value.__cause__ is None
    assert not leaked(SECRET, error_text(raised.value))


def test_an_error_of_an_absent_field_shows_no_secret() -> None:
    class NewResponse(Response, api_key=1, versions="0-1"):
        error_code: Int16 = field(default=0)
        token: Bytes = field("1+", default=b"", secret=True)
        name: String = field("1+", default="")

    with pytest.raises(MessageEncodeError, match="token=<21 bytes> cannot be sent") as raised:
        encode(NewResponse(token=DATA), 0)
    assert not leaked(SECRET, error_text(raised.value))
    with pytest.raises(MessageEncodeError, match="name='x' cannot be sent"):
        encode(NewResponse(name="x"), 0)


def test_a_decode_error_shows_no_secret_of_a_request() -> None:
    for version in (0, 2):
        request = SaslAuthenticateRequest(auth_bytes=DATA)
        frame = b"".join(encode_request(request, version, 7, "me"))[4:]
        for data in (frame[:-1], frame + b"\0"):
            with pytest.raises(MessageDecodeError) as raised:
                decode_request(data)
            assert not leaked(SECRET, error_text(raised.value))


def test_a_decode_error_shows_no_secret_of_a_response() -> None:
    body = encode(SaslAuthenticateResponse(auth_bytes=DATA), 1)
    for data in (body[:-1], body + b"\0"):
        with pytest.raises(MessageDecodeError) as raised:
            decode(SaslAuthenticateResponse, 1, data)
        assert not leaked(SECRET, error_text(raised.value))
        with pytest.raises(MessageDecodeError) as raised:
            decode_response(SaslAuthenticateResponse, 1, b"\0\0\0\1" + data)
        assert not leaked(SECRET, error_text(raised.value))


def test_a_received_request_shows_no_secret_field() -> None:
    received = ReceivedRequest(1, "SaslAuthenticate", 2, "me", "/::1", 0.0, user())
    assert "salt=<21 bytes>" in repr(received)
    assert not leaked(SECRET, repr(received))


def test_a_planted_leak_is_found_in_every_form() -> None:
    secret = "s3cr=t/p ss+w?rd"
    for before in ("", "a", "ab", "abc"):
        text = base64.b64encode(f"{before}{secret}{before}".encode()).decode()
        assert leaked(secret, f"password is {text}")
        assert leaked(secret, base64.urlsafe_b64encode(f"{before}{secret}".encode()).decode())
    for text in (secret, secret.encode().hex(), quote(secret), repr(secret.encode())):
        assert leaked(secret, f"password is {text}")
    try:
        raise ValueError("nothing") from ValueError(secret)
    except ValueError as error:
        assert leaked(secret, error_text(error))
    assert not leaked(secret, "password is ***", "<16 bytes>")
