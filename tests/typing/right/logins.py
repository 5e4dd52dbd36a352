"""Logins take functions that may be coroutine functions."""

from __future__ import annotations

from kohort import AsyncKafkaConsumer, Secret


async def credentials() -> tuple[str, Secret]:
    return "user", Secret("secret")


class Tokens:
    async def token(self) -> tuple[str, float]:
        return "token", 1_900_000_000.0


AsyncKafkaConsumer(
    security_protocol="SASL_SSL", sasl_mechanism="PLAIN", sasl_credentials=credentials
)
AsyncKafkaConsumer(
    security_protocol="SASL_SSL", sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=Tokens()
)
AsyncKafkaConsumer(
    security_protocol="SASL_SSL", sasl_plain_username="user", sasl_plain_password="secret"
)
