"""Tokens for Amazon MSK's IAMLoginModule, signed by aws-msk-iam-sasl-signer-python."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from typing import Any, Final

from kohort.config.options._secret import Secret

SIGNER: Final = "aws_msk_iam_sasl_signer"
MODULE: Final = "IAMLoginModule"
OPTIONS: Final = frozenset({"awsProfileName", "awsRoleArn", "awsRoleSessionName"})
_ONLY_JAVA = {
    "sasl.mechanism": "AWS_MSK_IAM",
    "sasl.client.callback.handler.class": "IAMClientCallbackHandler",
}
"""Names and values that AWS's library for Java needs besides the module."""


class MskTokens:
    """A token provider that signs with AWS credentials."""

    __slots__ = ("_options", "_region")

    def __init__(self, region: str, options: Mapping[str, Secret]) -> None:
        self._region = region
        self._options = dict(options)

    def token(self) -> Any:
        """Return a token and its expiry in milliseconds since 1970. The call may contact AWS."""
        return self._signed(importlib.import_module(SIGNER).MSKAuthTokenProvider)

    def _signed(self, signer: Any) -> Any:
        # Tracebacks show local variables, so none has the token.
        if (role := self._options.get("awsRoleArn")) is not None:
            session = self._options.get("awsRoleSessionName")
            more = () if session is None else (session.reveal(),)
            return signer.generate_auth_token_from_role_arn(self._region, role.reveal(), *more)
        if (profile := self._options.get("awsProfileName")) is not None:
            return signer.generate_auth_token_from_profile(self._region, profile.reveal())
        return signer.generate_auth_token(self._region)


def is_installed() -> bool:
    """True if the signer can be imported."""
    return importlib.util.find_spec(SIGNER) is not None


def without_names_of_java(properties: Mapping[str, Any], jaas: str) -> Mapping[str, Any]:
    """Return the properties without those that only AWS's library for Java needs."""
    if MODULE not in _text(properties.get(jaas)):
        return properties
    return {
        name: value
        for name, value in properties.items()
        if _ONLY_JAVA.get(name, "").lower() != _text(value).rpartition(".")[2].lower()
        or name not in _ONLY_JAVA
    }


def _text(value: Any) -> str:
    return (value.reveal() if isinstance(value, Secret) else str(value)).strip()
