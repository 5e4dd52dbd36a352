"""Options of aiokafka's consumer, checked as there, and as kohort's consumer takes them."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Mapping
from typing import Any

from kohort.compat._peer import peer_name
from kohort.logs import get_logger

logger = get_logger("kohort.compat.aiokafka")

PEER_CONSUMER: Any = peer_name("aiokafka.consumer.consumer", "AIOKafkaConsumer")
"""aiokafka's consumer, or None."""
CLIENT_ID = f"aiokafka-{peer_name('aiokafka', '__version__') or '0.14.0'}"
"""Default of ``client_id``."""

_ROUND_ROBIN = peer_name("aiokafka.coordinator.assignors.roundrobin", "RoundRobinPartitionAssignor")
ASSIGNORS: tuple[Any, ...] = (_ROUND_ROBIN or "roundrobin",)
"""Default of ``partition_assignment_strategy``."""

_WITHOUT_MEANING = ("loop", "api_version", "consumer_timeout_ms", "rebalance_timeout_ms")
_MECHANISMS = ("PLAIN", "GSSAPI", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_PROTOCOLS = ("SSL", "PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL")
_ISOLATION_LEVELS = ("read_uncommitted", "read_committed")
_RESETS = ("latest", "earliest", "none")


def chosen_loop(loop: asyncio.AbstractEventLoop | None) -> asyncio.AbstractEventLoop:
    """Return the event loop of a consumer, which is the running one by default."""
    if loop is not None:
        warnings.warn(
            "The loop argument is deprecated since 0.7.1, and scheduled for removal in 0.9.0",
            DeprecationWarning,
            stacklevel=3,
        )
        return loop
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError(
            "The object should be created within an async function or provide loop directly."
        ) from None


def check_options(given: Mapping[str, Any]) -> None:
    """Raise the ValueError that aiokafka raises for a wrong option."""
    if given["api_version"] is not None:
        warnings.warn(
            "The `api_version` parameter has been deprecated since 0.13.0. It has no effect.",
            DeprecationWarning,
            stacklevel=3,
        )
    count = given["max_poll_records"]
    if count is not None and (not isinstance(count, int) or count < 1):
        raise ValueError("`max_poll_records` should be positive Integer")
    protocol = given["security_protocol"]
    if protocol not in _PROTOCOLS:
        raise ValueError("`security_protocol` should be SSL or PLAINTEXT")
    if "SSL" in protocol and given["ssl_context"] is None:
        raise ValueError("`ssl_context` is mandatory if security_protocol=='SSL'")
    if protocol.startswith("SASL"):
        _check_login(given)
    if given["isolation_level"] not in _ISOLATION_LEVELS:
        raise ValueError(f"Incorrect isolation level {given['isolation_level']}")


def _check_login(given: Mapping[str, Any]) -> None:
    mechanism = given["sasl_mechanism"]
    if mechanism not in _MECHANISMS:
        raise ValueError(
            "only `PLAIN`, `GSSAPI`, `SCRAM-SHA-256`, `SCRAM-SHA-512` and `OAUTHBEARER` "
            "sasl_mechanism are supported at the moment"
        )
    named = given["sasl_plain_username"], given["sasl_plain_password"]
    if mechanism == "PLAIN" and None in named:
        raise ValueError("sasl_plain_username and sasl_plain_password required for PLAIN sasl")


def native_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options for kohort's consumer, without those that have no effect."""
    protocol = given["security_protocol"]
    options = {name: value for name, value in given.items() if name not in _WITHOUT_MEANING}
    if "SSL" not in protocol:
        del options["ssl_context"]
    for name in given:
        if name.startswith("sasl_") and (not protocol.startswith("SASL") or given[name] is None):
            del options[name]
    if given["group_id"] is None:
        del options["group_instance_id"]
    if given["client_id"] is None:
        del options["client_id"]
    reset = str(given["auto_offset_reset"]).lower()
    if reset not in _RESETS:
        logger.warning("unknown auto_offset_reset %r: 'none' is used", reset)
        reset = "none"
    timeout = given["rebalance_timeout_ms"]
    options["rebalance_timeout_ms"] = given["session_timeout_ms"] if timeout is None else timeout
    options["auto_offset_reset"] = reset
    options["bootstrap_timeout_ms"] = 0  # each bootstrap server is tried once
    options["rebalance_without_poll"] = "always"
    options["group_protocol"] = "classic"  # the only one of aiokafka
    return options
