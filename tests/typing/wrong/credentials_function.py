"""Credentials are a user and a password."""

from __future__ import annotations

from kohort import KafkaConsumer


def credentials() -> str:
    return "secret"


# expect: mypy arg-type | pyright reportArgumentType
KafkaConsumer("orders", sasl_credentials=credentials)
