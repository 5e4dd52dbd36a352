"""Configuration of confluent-kafka's consumer: its own part, and kohort's options for the rest."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from kohort import KafkaAdminClient
from kohort.compat.confluent._values import KafkaError, KafkaException
from kohort.config import ConsumerConfig
from kohort.errors import ConfigurationError, UnknownOptionError
from kohort.logs import error_text, get_logger

logger = get_logger("kohort.compat")

BOOTSTRAP_MS: Final = 1000
"""Time without a reachable broker after which ``error_cb`` is called."""

_REFRESHED_PART: Final = 0.8
"""Part of its life after which a token of ``oauth_cb`` is replaced."""
_RETRY_S: Final = 10.0
"""Time between a failed call of ``oauth_cb`` and the next."""
_CALLBACKS: Final = ("on_commit", "error_cb", "stats_cb", "throttle_cb")
_DEFAULTS: Final[Mapping[str, Any]] = {
    "isolation.level": "read_committed",
    "group.protocol": "classic",
    "exclude.internal.topics": False,
    "allow.auto.create.topics": False,
}
"""Defaults of librdkafka that differ from those of kohort."""
_EAGER: Final = "range,roundrobin"
_BOOLEANS: Final = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}


class Credentials:
    """User and password of PLAIN and SCRAM, which ``set_sasl_credentials()`` replaces."""

    def __init__(self, username: str, password: str) -> None:
        self.pair = (username, password)

    def __call__(self) -> tuple[str, str]:
        return self.pair


class FirstToken:
    """``oauth_cb``, which is called with the new consumer, and again before its token expires.

    A timer makes these calls, as a thread of confluent-kafka does. So a login finds a token.
    """

    def __init__(self, callback: Callable[[str], Any], config: str) -> None:
        self._callback = callback
        self._config = config
        self._token: Any = None
        self._timer: threading.Timer | None = None
        self._lock = threading.RLock()  # garbage collection may call stop() within _plan()
        self._stopped = False

    def fetch(self) -> None:
        """Get the token of the first login. Raises KafkaException without one."""
        try:
            token, expiry = (found := self._callback(self._config))[:2]
            if not isinstance(token, str) or not isinstance(expiry, (int, float)):
                raise TypeError("it must return (token, expiry), and may add principal, extensions")
        except Exception as error:
            text = f"oauth_cb failed: {error}"
            raise KafkaException(KafkaError(KafkaError.SASL_AUTHENTICATION_FAILED, text)) from error
        self._token = found
        self._plan(_REFRESHED_PART * (expiry - time.time()))

    def _plan(self, seconds: float) -> None:
        with self._lock:
            if not self._stopped:
                self._timer = threading.Timer(max(1.0, seconds), self._refresh)
                self._timer.daemon = True
                self._timer.start()

    def _refresh(self) -> None:
        try:
            self.fetch()
        except KafkaException as error:
            logger.warning("%s", error_text(error))
            self._plan(_RETRY_S)

    def stop(self) -> None:
        """Make no further calls."""
        with self._lock:
            self._stopped = True
            if self._timer is not None:
                self._timer.cancel()

    def __call__(self, config: str) -> Any:
        """Return the latest token once, and otherwise what the callback returns."""
        found, self._token = self._token, None
        is_valid = found is not None and found[1] > time.time()
        return found if is_valid else self._callback(config)


class Options:
    """Configuration of a consumer: what the drop-in applies itself, and the rest."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        """Read a configuration. Raises what confluent-kafka raises for a wrong one."""
        values = _flat(given)
        if values.get("group.id") is None:
            raise ValueError("Failed to create consumer: group.id must be set")
        callbacks: dict[str, Callable[..., Any] | None] = {
            name: _callback(name, values.pop(name, None)) for name in _CALLBACKS
        }
        self.on_commit = callbacks["on_commit"]
        self.error_cb = callbacks["error_cb"]
        self.stats_cb = callbacks["stats_cb"]
        self.throttle_cb = callbacks["throttle_cb"]
        self.logger: Any = values.pop("logger", None)
        self.auto_commit: bool = _boolean(values, "enable.auto.commit", True)
        self.auto_store: bool = _boolean(values, "enable.auto.offset.store", True)
        self.partition_eof: bool = _boolean(values, "enable.partition.eof", False)
        self.commit_interval: float = _seconds(values, "auto.commit.interval.ms", 5000)
        self.stats_interval: float = _seconds(values, "statistics.interval.ms", 0)
        self.poll_interval: float = _number(values, "max.poll.interval.ms", 300_000) / 1000
        if values.get("session.timeout.ms") and values.get("heartbeat.interval.ms") is None:
            session = int(_number(values, "session.timeout.ms", 45_000))
            values["heartbeat.interval.ms"] = max(1, min(3000, session // 3))
        values = {**_DEFAULTS, **values, "enable.auto.commit": False}
        if str(values["group.protocol"]).lower() == "classic":
            values.setdefault("partition.assignment.strategy", _EAGER)
        else:
            values.pop("heartbeat.interval.ms", None)
        self.is_cooperative: bool = "cooperative" in str(
            values.get("partition.assignment.strategy", "cooperative")
        )
        self.credentials = _take_credentials(values)
        self.first_token = _put_first_token(values)
        self.properties: Mapping[str, Any] = values

    def keywords(self) -> dict[str, Any]:
        """Return kohort's options. Raises KafkaException for a wrong name or value."""
        try:
            config = ConsumerConfig.from_properties(self.properties)
        except ConfigurationError as error:
            wrong = _configuration_error(error)
        else:
            found = dict(_passed(config))
            found["bootstrap_timeout_ms"] = BOOTSTRAP_MS
            if self.credentials is not None:
                found["sasl_credentials"] = self.credentials
            if self.first_token is not None:
                self.first_token.fetch()
            return found
        raise wrong

    def admin(self) -> KafkaAdminClient:
        """Return an admin client of the same cluster."""
        values = dict(self.properties)
        if self.credentials is not None:
            values["sasl.username"], values["sasl.password"] = self.credentials.pair
        return KafkaAdminClient.from_properties(values)


class ShareOptions(NamedTuple):
    """Configuration of a share consumer."""

    keywords: dict[str, Any]
    """kohort's options."""
    error_cb: Callable[..., Any] | None
    logger: Any
    credentials: Credentials | None
    first_token: FirstToken | None
    """The calls of ``oauth_cb``, to stop when the consumer is closed."""


def share_options(given: Mapping[str, Any]) -> ShareOptions:
    """Return the configuration of a share consumer.

    Raises what confluent-kafka raises for a wrong configuration.
    """
    values = _flat(given)
    if values.get("group.id") is None:
        raise ValueError("Failed to create consumer: group.id must be set")
    callbacks = {name: _callback(name, values.pop(name, None)) for name in _CALLBACKS}
    logger = values.pop("logger", None)
    values.pop("statistics.interval.ms", None)
    own = {
        "acknowledgement": values.pop("share.acknowledgement.mode", "implicit"),
        "acquire_mode": values.pop("share.acquire.mode", "batch_optimized"),
    }
    credentials = _take_credentials(values)
    first_token = _put_first_token(values)
    try:
        found = dict(_passed(ConsumerConfig.from_properties(values)))
    except ConfigurationError as error:
        raise _configuration_error(error) from None
    found.pop("buffer_memory", None)  # follows from fetch.max.bytes; nothing is buffered here
    found |= own | {"bootstrap_timeout_ms": BOOTSTRAP_MS}
    if credentials is not None:
        found["sasl_credentials"] = credentials
    if first_token is not None:
        first_token.fetch()
    return ShareOptions(found, callbacks["error_cb"], logger, credentials, first_token)


def _flat(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration with dotted names. None counts as not given.

    Objects such as a UUID stand for their text.
    """
    values = dict(given)
    values.update(values.pop("default.topic.config", None) or {})
    return {name: _plain(name, value) for name, value in values.items() if value is not None}


def _plain(name: Any, value: Any) -> Any:
    if not isinstance(name, str):
        raise TypeError("expected configuration key to be unicode string")
    is_plain = isinstance(value, (str, bytes, int, float, dict, list))
    return value if is_plain or callable(value) or name == "logger" else str(value)


def _callback(name: str, value: Any) -> Callable[..., Any] | None:
    if value is not None and not callable(value):
        raise TypeError(f"expected {name} property as a callable function")
    return value  # type: ignore[no-any-return]


def _boolean(values: dict[str, Any], name: str, default: bool) -> bool:
    value = values.pop(name, default)
    found = _BOOLEANS.get(str(value).strip().lower())
    if found is None:
        raise _invalid(f'Expected bool value for "{name}": true or false')
    return found


def _number(values: Mapping[str, Any], name: str, default: int) -> float:
    try:
        return int(str(values.get(name, default)).strip())
    except ValueError:
        raise _invalid(f'Invalid value for configuration property "{name}"') from None


def _seconds(values: dict[str, Any], name: str, default: int) -> float:
    found = _number(values, name, default) / 1000
    values.pop(name, None)
    return found


def _mechanism(values: Mapping[str, Any]) -> str:
    return str(values.get("sasl.mechanism") or values.get("sasl.mechanisms") or "").upper()


def _put_first_token(values: dict[str, Any]) -> FirstToken | None:
    """Put a FirstToken in the place of a callable ``oauth_cb``, and return it."""
    callback = values.get("oauth_cb")
    if _mechanism(values) != "OAUTHBEARER" or not callable(callback) or hasattr(callback, "token"):
        return None
    first = FirstToken(callback, str(values.get("sasl.oauthbearer.config", "")))
    values["oauth_cb"] = first
    return first


def _take_credentials(values: dict[str, Any]) -> Credentials | None:
    mechanism = _mechanism(values)
    if not mechanism.startswith(("PLAIN", "SCRAM")) or "sasl.username" not in values:
        return None
    return Credentials(str(values.pop("sasl.username")), str(values.pop("sasl.password", "")))


def _passed(section: Any) -> Iterator[tuple[str, Any]]:
    """Yield the options that a section and its subsections were given."""
    for name in section.passed_names:
        value = getattr(section, name)
        if hasattr(value, "passed_names"):
            yield from _passed(value)
        else:
            yield name, value


def _configuration_error(error: ConfigurationError) -> KafkaException:
    text = str(error)
    if isinstance(error, UnknownOptionError):
        name = text.partition("'")[2].partition("'")[0]
        return _invalid(f'No such configuration property: "{name}"')
    return _invalid(text)


def _invalid(text: str) -> KafkaException:
    return KafkaException(KafkaError(KafkaError._INVALID_ARG, text))
