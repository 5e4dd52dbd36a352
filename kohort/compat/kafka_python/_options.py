"""Keywords of kafka-python's consumer: its defaults, its checks, and kohort's options for them."""

from __future__ import annotations

import math
import socket
from collections.abc import Mapping
from typing import Any

from kohort.compat._peer import peer_name
from kohort.compat.kafka_python import errors
from kohort.compat.kafka_python._values import ListHeaders
from kohort.logs import get_logger

logger = get_logger("kohort.compat")

SESSION_TIMEOUT_BEFORE_3_0 = 30000
"""Default of ``session_timeout_ms`` if ``api_version`` names a broker before 3.0 (KIP-735)."""


def _succeed(offsets: Any, response: Any) -> bool:
    return True


_OWN_DEFAULTS: dict[str, Any] = {
    "bootstrap_servers": "localhost",
    "client_id": "kohort",
    "client_rack": "",
    "group_id": None,
    "group_instance_id": None,
    "key_deserializer": None,
    "value_deserializer": None,
    "enable_incremental_fetch_sessions": True,
    "fetch_max_wait_ms": 500,
    "fetch_min_bytes": 1,
    "fetch_max_bytes": 52428800,
    "max_partition_fetch_bytes": 1048576,
    "request_timeout_ms": 30000,
    "retry_backoff_ms": 100,
    "reconnect_backoff_ms": 50,
    "reconnect_backoff_max_ms": 30000,
    "max_in_flight_requests_per_connection": 5,
    "auto_offset_reset": "latest",
    "enable_auto_commit": True,
    "auto_commit_interval_ms": 5000,
    "default_offset_commit_callback": _succeed,
    "check_crcs": True,
    "isolation_level": "read_uncommitted",
    "allow_auto_create_topics": True,
    "metadata_max_age_ms": 300000,
    "client_dns_lookup": "use_all_dns_ips",
    "partition_assignment_strategy": ("range", "roundrobin"),
    "max_poll_records": 500,
    "max_poll_interval_ms": 300000,
    "session_timeout_ms": 45000,
    "heartbeat_interval_ms": 3000,
    "receive_buffer_bytes": None,
    "send_buffer_bytes": None,
    "receive_message_max_bytes": 100_000_000,
    "socket_options": [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
    "consumer_timeout_ms": math.inf,
    "security_protocol": "PLAINTEXT",
    "ssl_context": None,
    "ssl_check_hostname": True,
    "ssl_cafile": None,
    "ssl_certfile": None,
    "ssl_keyfile": None,
    "ssl_crlfile": None,
    "ssl_password": None,
    "ssl_ciphers": None,
    "api_version": None,
    "bootstrap_timeout_ms": 30000,
    "connections_max_idle_ms": 540000,
    "metric_reporters": [],
    "metrics_enabled": True,
    "metrics_num_samples": 2,
    "metrics_sample_window_ms": 30000,
    "metric_group_prefix": "consumer",
    "selector": None,
    "exclude_internal_topics": True,
    "sasl_mechanism": None,
    "sasl_plain_username": None,
    "sasl_plain_password": None,
    "sasl_kerberos_name": None,
    "sasl_kerberos_service_name": "kafka",
    "sasl_kerberos_domain_name": None,
    "sasl_oauth_token_provider": None,
    "proxy_url": None,
    "socks5_proxy": None,
    "kafka_client": None,
}
PEER_CONSUMER = peer_name("kafka.consumer.group", "KafkaConsumer")
DEFAULTS: dict[str, Any] = {**_OWN_DEFAULTS, **getattr(PEER_CONSUMER, "DEFAULT_CONFIG", {})}
"""Every keyword with its default; the installed kafka-python's count."""

_REFUSED = ("kafka_client",)
_WITHOUT_EFFECT = frozenset(
    {
        *_REFUSED,
        "api_version",
        "client_dns_lookup",
        "metric_group_prefix",
        "metric_reporters",
        "metrics_num_samples",
        "metrics_sample_window_ms",
        "selector",
    }
)
_DIFFERENT = ("max_partition_fetch_bytes", "reconnect_backoff_max_ms")
"""Options whose default in kohort is another one; that of kafka-python counts here."""


def read_config(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the complete configuration. Raises KafkaConfigurationError as kafka-python does."""
    unknown = set(given).difference(DEFAULTS)
    if unknown:
        raise errors.KafkaConfigurationError(f"Unrecognized configs: {unknown}")
    config = {**DEFAULTS, **given}
    renamed = {"smallest": "earliest", "largest": "latest"}.get(config["auto_offset_reset"])
    if renamed is not None:
        logger.warning(
            "auto_offset_reset=%r is deprecated: use %r", given["auto_offset_reset"], renamed
        )
        config["auto_offset_reset"] = renamed
    _check_together(config)
    largest = config["fetch_max_bytes"] + config["max_partition_fetch_bytes"]
    config["receive_message_max_bytes"] = max(config["receive_message_max_bytes"], largest)
    config["api_version"] = _known_version(config["api_version"])
    version = config["api_version"]
    if version is not None and version < (3, 0) and "session_timeout_ms" not in given:
        config["session_timeout_ms"] = SESSION_TIMEOUT_BEFORE_3_0
    return config


def _check_together(config: Mapping[str, Any]) -> None:
    wait, request = config["fetch_max_wait_ms"], config["request_timeout_ms"]
    idle = config["connections_max_idle_ms"]
    if not wait < request < (math.inf if idle is None else idle):
        raise errors.KafkaConfigurationError(
            f"fetch_max_wait_ms={wait} must be below request_timeout_ms={request}, "
            f"and request_timeout_ms below connections_max_idle_ms={idle}"
        )
    for name in _REFUSED:
        if config[name] != DEFAULTS[name]:
            raise errors.KafkaConfigurationError(
                f"kohort does not support {name}. Leave it out, or keep kafka-python's consumer"
            )
    if config["isolation_level"] not in ("read_uncommitted", "read_committed"):
        raise errors.KafkaConfigurationError("Unrecognized isolation_level")
    if config["group_id"] is None:
        if config["group_instance_id"] is not None:
            raise errors.KafkaConfigurationError("group_instance_id requires group_id")
        return
    heartbeat, session = config["heartbeat_interval_ms"], config["session_timeout_ms"]
    if heartbeat >= session:
        raise errors.KafkaConfigurationError(
            f"Heartbeat interval must be lower than the session timeout ({heartbeat} v {session})"
        )


def _known_version(version: Any) -> Any:
    """Return the nearest version that kafka-python knows; without it the version as a tuple."""
    if version is None or version == "auto":
        return None
    data = peer_name("kafka.protocol.broker_version_data", "BrokerVersionData")
    if data is not None:
        return data(version).broker_version
    return tuple(map(int, version.split("."))) if isinstance(version, str) else tuple(version)


def inferred_version(api_versions: Mapping[int, list[int]]) -> Any:
    """Return the version of a broker that serves these APIs; None without kafka-python."""
    data = peer_name("kafka.protocol.broker_version_data", "BrokerVersionData")
    if data is None or not api_versions:
        return None
    return data(api_versions=dict(api_versions)).broker_version


def native_options(config: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return kohort's options for a configuration; ``given`` are the keywords of the caller."""
    protocol = str(config["security_protocol"]).upper()
    named = (set(given) | {*_DIFFERENT, "session_timeout_ms"}) - _WITHOUT_EFFECT
    options = {name: config[name] for name in named if _has_effect(name, protocol, config)}
    options["group_protocol"] = "classic"  # the only one of kafka-python
    options["partition_assignment_strategy"] = config["partition_assignment_strategy"]
    for name in ("key_deserializer", "value_deserializer"):
        if config[name] is not None:
            options[name] = ListHeaders(config[name])
    if options.get("client_id", "") is None:
        del options["client_id"]  # without a name there, with that of kohort here
    if (former := options.pop("socks5_proxy", None)) is not None and config["proxy_url"] is None:
        logger.warning("socks5_proxy is deprecated: use proxy_url")
        options["proxy_url"] = former
    if "client_rack" in options:
        options["client_rack"] = options["client_rack"] or None
    if options.get("consumer_timeout_ms", 0) < 0:
        options["consumer_timeout_ms"] = math.inf
    if options.get("auto_offset_reset", "latest") not in ("earliest", "latest"):
        options["auto_offset_reset"] = "none"  # kafka-python takes any other word for it
    return options


def _has_effect(name: str, protocol: str, config: Mapping[str, Any]) -> bool:
    """True if kafka-python looks at the option with this security protocol."""
    if name.startswith("sasl_"):
        return protocol.startswith("SASL_")
    if name.startswith("ssl_"):
        context = config["ssl_context"]
        return protocol.endswith("SSL") and (context is None or name == "ssl_context")
    return True


def is_eager(strategy: Any) -> bool:
    """True if no assignor of the strategy is cooperative."""
    names = [strategy] if isinstance(strategy, str) else strategy
    return not any("cooperative" in str(getattr(each, "name", each)).lower() for each in names)
