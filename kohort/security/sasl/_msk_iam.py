"""SASL AWS_MSK_IAM, a request that AWS credentials sign. It needs the extra ``msk``."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from kohort.config import Secret, msk_region_of
from kohort.errors import (
    CredentialsUnavailableError,
    InvalidOptionError,
    SaslServerError,
    SecurityError,
)
from kohort.security._calls import CALL_SECONDS, Waiting, call
from kohort.security._secrets import mask, printable

ACTION = "kafka-cluster:Connect"
SERVICE = "kafka-cluster"
_VERSION = "2020_10_22"
_SIGNED_SECONDS = 900
_USER_AGENT = "kohort"
_STEP = "getting AWS credentials"


class MskIamExchange:
    """A login of one message, which the broker answers with the id of the request."""

    def __init__(self, payload: dict[str, str]) -> None:
        self.principal = printable(payload["x-amz-credential"].partition("/")[0])
        self._payload = payload

    def first(self) -> bytes:
        """Return the signed request."""
        return json.dumps(self._payload).encode()

    async def next(self, challenge: bytes) -> bytes | None:
        """Return None after the broker's response, a JSON object with version and request id."""
        try:
            found = json.loads(challenge)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict) or found.get("version") != _VERSION:
            raise SaslServerError(f"the response to an AWS_MSK_IAM login is not of {_VERSION}")
        return None

    def is_valid_for(self, seconds: float) -> bool:
        """Return True if the signature lasts longer, as a new one is made for each login."""
        return seconds < _SIGNED_SECONDS

    def session_seconds(self, lifetime_ms: int | None) -> float | None:
        """Return the broker's limit."""
        return lifetime_ms / 1000 if lifetime_ms else None

    def shown(self, message: str) -> str:
        """Return the broker's message, escaped, without the signature and the session token."""
        for name in ("x-amz-signature", "x-amz-security-token"):
            if name in self._payload:
                message = mask(message, Secret(self._payload[name]))
        return printable(message)

    def refusal(self, message: str) -> str:
        """Return the message, and what to check."""
        return (
            f"{self.shown(message)}. Check that the policy of access key {self.principal} allows "
            f"{ACTION}, the region and the clock"
        )


class MskIamMechanism:
    """AWS_MSK_IAM for all connections of a client."""

    name = "AWS_MSK_IAM"

    def __init__(self, session: Any) -> None:
        self._session = session
        self._waiting = Waiting("AWS")

    async def login(self, host: str) -> MskIamExchange:
        """Sign a request with the current credentials. Raises SecurityError."""
        with self._waiting.asking(_STEP):
            try:
                exchange: MskIamExchange = await call(lambda: self._begin(host.rstrip(".")))
                return exchange
            except TimeoutError as error:
                raise CredentialsUnavailableError(
                    f"{_STEP} took longer than {CALL_SECONDS:g} s"
                ) from error

    async def login_again(self, refused: object, host: str) -> None:
        """Return None: another signature of the same credentials would be refused as well."""

    def credentials_obstacle(self, now: float) -> CredentialsUnavailableError | None:
        """Return the reason why no credentials come, or None."""
        return self._waiting.credentials_obstacle(now)

    def _begin(self, host: str) -> MskIamExchange:
        from botocore.exceptions import BotoCoreError

        try:
            region = msk_region_of([(host, 0)]) or self._session.get_config_variable("region")
            found = self._session.get_credentials()
            frozen = None if found is None else found.get_frozen_credentials()
        except BotoCoreError as error:
            raise CredentialsUnavailableError(f"{_STEP} failed: {printable(str(error))}") from error
        if region is None:
            raise SecurityError(
                f"AWS_MSK_IAM needs a region, and {printable(host)} has none. Set AWS_REGION"
            )
        if frozen is None:
            raise SecurityError(
                "there are no AWS credentials for AWS_MSK_IAM. Set them where AWS's tools find "
                "them, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a role"
            )
        return MskIamExchange(_signed(host, region, frozen))


def msk_iam_mechanism() -> MskIamMechanism:
    """Return AWS_MSK_IAM. Raises InvalidOptionError without the library botocore."""
    try:
        import botocore.session
    except ImportError:
        raise InvalidOptionError(
            "sasl_mechanism AWS_MSK_IAM needs botocore: pip install 'kohort[msk]'"
        ) from None
    return MskIamMechanism(botocore.session.Session())


def _signed(host: str, region: str, credentials: Any) -> dict[str, str]:
    """Return the fields of a presigned request to connect, with names in lower case."""
    from botocore.auth import SigV4QueryAuth
    from botocore.awsrequest import AWSRequest

    request = AWSRequest("GET", url=f"https://{host}/", params={"Action": ACTION})
    SigV4QueryAuth(credentials, SERVICE, region, expires=_SIGNED_SECONDS).add_auth(request)
    signed = {name.lower(): value for name, value in parse_qsl(urlsplit(request.url).query)}
    return {"version": _VERSION, "host": host, "user-agent": _USER_AGENT, **signed}
