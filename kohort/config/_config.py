"""ConsumerConfig: all options of a consumer, with a section for each package."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from kohort.config import _names
from kohort.config._client import ClientConfig
from kohort.config._deserializers import Deserialize, Deserializer, resolve
from kohort.config._fetch import FetchConfig
from kohort.config._group import GroupConfig
from kohort.config._unsupported import KEYWORDS
from kohort.config.options._option import Option, Section, option, options_of, section
from kohort.config.options._option_types import Boolean, Function, Instance, Milliseconds, OneOf
from kohort.config.options._secret import conceal
from kohort.config.security._security import SECURITY_SECTIONS, SecurityConfig
from kohort.errors import InvalidOptionError, UnsupportedOptionError

_AIOKAFKA_CONSUMER_TIMEOUT_MS = 200


@section
class ConsumerConfig(Section):
    """All options of a consumer, frozen. Use from_kwargs() or from_properties() to create one.

    Its own options decide what a consumer gives its caller. Each section has those of one package.
    """

    key_deserializer: Any = field(
        default=None,
        metadata=option(Deserializer(), "Makes the key from its bytes. It is not called for None."),
    )
    value_deserializer: Any = field(
        default=None,
        metadata=option(
            Deserializer(), "Makes the value from its bytes. It is not called for None."
        ),
    )
    consumer_timeout_ms: float = field(
        default=math.inf,
        metadata=option(
            Milliseconds(),
            "Time without a record after which iteration over KafkaConsumer ends.",
            unit="ms",
            properties=(),
        ),
    )
    rebalance_without_poll: str = field(
        default="idle",
        metadata=option(
            OneOf("idle", "always", "never"),
            "When AsyncKafkaConsumer rebalances outside of a poll. `idle` does so while its caller "
            "holds no returned records, `always` at any time, `never` as KafkaConsumer.",
            properties=(),
        ),
    )
    exclude_internal_topics: bool = field(
        default=True, metadata=option(Boolean(), "A pattern never matches Kafka's internal topics.")
    )
    default_offset_commit_callback: Callable[[Any, Any], Any] | None = field(
        default=None,
        metadata=option(
            Function(
                "a callable (offsets, error)",
                "Callable[[dict[TopicPartition, OffsetAndMetadata], Exception | None], object]",
            ),
            "Called after commit_async() without a callback. error is None or an exception.",
            properties=(),
        ),
    )
    metrics_enabled: bool = field(
        default=True,
        metadata=option(Boolean(), "False makes metrics() return None.", properties=()),
    )
    on_stats: Callable[[dict[str, Any]], Any] | None = field(
        default=None,
        metadata=option(
            Function("a callable (metrics)", "Callable[[dict[str, dict[str, float]]], object]"),
            "Called with the result of metrics() every stats_interval_ms, in the thread or task of "
            "listeners. Its exceptions are logged.",
            properties=(),
        ),
    )
    stats_interval_ms: float = field(
        default=60_000,
        metadata=option(
            Milliseconds(), "Time between calls of on_stats.", unit="ms", properties=()
        ),
    )
    connect: Callable[[str, int], Any] | None = field(
        default=None,
        metadata=option(
            Function("an async callable (host, port) that returns a connection", "Connect"),
            "Makes the connections to brokers in place of TCP. Examples are MemoryCluster.connect, "
            "or a function that wraps an anyio stream in kohort.network.StreamConnection. It is "
            "called in the consumer's event loop. KafkaConsumer runs asyncio in its own thread. "
            "TLS and login of security_protocol take place over its connections.",
            properties=(),
        ),
    )
    connect_encrypts: bool = field(
        default=False,
        metadata=option(
            Boolean(),
            "The function of connect encrypts its connections itself, so kohort adds no TLS.",
            properties=(),
        ),
    )
    rng: random.Random | None = field(
        default=None,
        metadata=option(
            Instance(random.Random, "a random.Random"),
            "Source of jitter and of the choice among brokers. Give a seeded one in tests. "
            "Children of a fork each continue it from the same state.",
            properties=(),
        ),
    )
    wall_clock: Callable[[], float] | None = field(
        default=None,
        metadata=option(
            Function("a callable () that returns seconds since the epoch", "Callable[[], float]"),
            "Time of day in place of time.time(). It decides the expiry of OAuth tokens, and "
            "offsets by time. Give MemoryCluster.wall_clock in tests.",
            properties=(),
        ),
    )
    client: ClientConfig = field(default_factory=ClientConfig)
    group: GroupConfig = field(default_factory=GroupConfig)
    fetch: FetchConfig = field(default_factory=FetchConfig)
    security: SecurityConfig = field(default_factory=SecurityConfig)

    @classmethod
    def from_kwargs(cls, **kwargs: Any) -> ConsumerConfig:
        """Create the options from keyword arguments, with the names of kafka-python and aiokafka.

        Raises UnknownOptionError, InvalidOptionError or UnsupportedOptionError.
        """
        conceal_secrets(kwargs)
        values: dict[str, Any] = {}
        for name, value in kwargs.items():
            if name in UNSUPPORTED:
                UNSUPPORTED[name].check(value)
            elif name in OPTIONS:
                values[name] = value
            else:
                raise _names.unknown_keyword(name, [*OPTIONS, *UNSUPPORTED])
        return cls._from_values(values)

    @classmethod
    def from_properties(
        cls,
        properties: Mapping[str, Any],
        *,
        key_deserializer: Any = None,
        value_deserializer: Any = None,
        unsupported: str = "raise",
    ) -> ConsumerConfig:
        """Create the options from the dotted names of Java and librdkafka. Values may be text.

        ``unsupported="warn"`` logs names that are unknown or not supported, and ignores them.

        Raises as from_kwargs() does, with the given names in the message. Raises TypeError if
        ``properties`` is not a mapping.
        """
        properties = conceal_properties(properties)
        if unsupported not in ("raise", "warn"):
            raise InvalidOptionError(f"unsupported={unsupported!r}: expected 'raise' or 'warn'")
        values, given_as = _names.read_properties(
            properties, OPTIONS.values(), only_warn=unsupported == "warn"
        )
        for name, given in (
            ("key_deserializer", key_deserializer),
            ("value_deserializer", value_deserializer),
        ):
            if given is not None:
                values[name] = given
        try:
            return cls._from_values(values)
        except InvalidOptionError as error:
            wrong = _names.with_dotted_names(error, given_as, OPTIONS.values())
        raise wrong

    @classmethod
    def _from_values(cls, values: dict[str, Any]) -> ConsumerConfig:
        checked = {name: OPTIONS[name].check(value) for name, value in values.items()}
        for name in ("retry_backoff", "reconnect_backoff"):
            # The user gave only the first pause. A default must not contradict it.
            least, most = f"{name}_ms", f"{name}_max_ms"
            if least in checked and most not in checked:
                checked[most] = max(checked[least], OPTIONS[most].default)
        memory, response = OPTIONS["buffer_memory"], OPTIONS["fetch_max_bytes"]
        if response.name in checked and memory.name not in checked:
            checked[memory.name] = max(memory.default, checked[response.name])
        elif memory.name in checked and response.name not in checked:
            checked[response.name] = min(response.default, checked[memory.name])
        security: dict[str, Any] = {
            name: section(**_values_of(section, checked))
            for name, section in SECURITY_SECTIONS.items()
        }
        return cls(
            client=ClientConfig(**_values_of(ClientConfig, checked)),
            group=GroupConfig(**_values_of(GroupConfig, checked)),
            fetch=FetchConfig(**_values_of(FetchConfig, checked)),
            security=SecurityConfig(**_values_of(SecurityConfig, checked), **security),
            **_values_of(cls, checked),
        )

    @property
    def deserialize_key(self) -> Deserialize | None:
        """The key deserializer as a function, or None if keys stay bytes."""
        return resolve(self.key_deserializer)

    @property
    def deserialize_value(self) -> Deserialize | None:
        """The value deserializer as a function, or None if values stay bytes."""
        return resolve(self.value_deserializer)

    def check_async(self) -> None:
        """Raise UnsupportedOptionError for options without meaning in AsyncKafkaConsumer."""
        if self.consumer_timeout_ms not in {math.inf, _AIOKAFKA_CONSUMER_TIMEOUT_MS}:
            raise UnsupportedOptionError(
                "consumer_timeout_ms is not supported by AsyncKafkaConsumer: leave it out. To end "
                "after a silence use poll(timeout_ms=...) or your event loop's timeout"
            )

    def check_sync(self) -> None:
        """Raise UnsupportedOptionError for values that KafkaConsumer cannot honour."""
        if self.rebalance_without_poll == "always":
            raise UnsupportedOptionError(
                "rebalance_without_poll='always' is not supported by KafkaConsumer: it calls "
                "listeners inside poll() only. Leave the option out, or use AsyncKafkaConsumer"
            )

    def _check_together(self) -> None:
        if self.connect is not None and self.security.proxy.url is not None:
            raise InvalidOptionError(
                f"{self.security.proxy.option_name} is given together with connect, which makes "
                "the connections: give one of them"
            )
        if self.connect_encrypts:
            self._check_connect_encrypts()
        elif self.security.security_protocol == "SASL_PLAINTEXT":
            # For consumers with security options.
            from kohort.config.security import _security_checks

            _security_checks.warn_of_clear_text(self.security, self.client.bootstrap_servers)
        # A response may exceed fetch_max_bytes by one whole batch of a partition.
        largest = self.fetch.fetch_max_bytes + self.fetch.max_partition_fetch_bytes
        if self.client.receive_message_max_bytes < largest:
            self._set("client", dataclasses.replace(self.client, receive_message_max_bytes=largest))

    def _check_connect_encrypts(self) -> None:
        if self.connect is None:
            raise InvalidOptionError(
                "connect_encrypts requires connect, whose connections it describes"
            )
        if unused := [name for name in self.security.given() if name.startswith("ssl_")]:
            raise InvalidOptionError(
                f"{unused[0]} is given together with connect_encrypts: the function of connect "
                "does the TLS. Give it the setting there, or leave one of the two options out"
            )


def _values_of(section: type[Section], values: Mapping[str, Any]) -> dict[str, Any]:
    return {each.name: values[each.name] for each in options_of(section) if each.name in values}


OPTIONS: dict[str, Option] = {
    each.name: each
    for section in (
        ClientConfig,
        GroupConfig,
        FetchConfig,
        ConsumerConfig,
        SecurityConfig,
        *SECURITY_SECTIONS.values(),
    )
    for each in options_of(section)
}
"""Supported options by keyword."""

ADMIN_OPTIONS = frozenset(
    each.name
    for section in (ClientConfig, SecurityConfig, *SECURITY_SECTIONS.values())
    for each in options_of(section)
) | {"connect", "connect_encrypts", "rng", "wall_clock"}
"""Names of the options that an admin client has, too."""

SHARE_OPTIONS = ADMIN_OPTIONS | {
    "check_crcs",
    "client_rack",
    "decompression_max_bytes",
    "fetch_max_bytes",
    "fetch_max_wait_ms",
    "fetch_min_bytes",
    "group_id",
    "key_deserializer",
    "max_poll_interval_ms",
    "max_poll_records",
    "metrics_enabled",
    "value_deserializer",
}
"""Names of the options that a share consumer has, too."""

UNSUPPORTED = {each.name: each for each in KEYWORDS}
"""Keywords of other clients that are not supported."""


def conceal_secrets(options: dict[str, Any]) -> None:
    """Replace what may be a secret in keyword arguments, before a traceback can show it.

    These are the values of options that hold secrets, and of unknown and unsupported names.
    """
    for name, value in options.items():
        known = OPTIONS.get(name)
        if known is None:
            unsupported = UNSUPPORTED.get(name)
            if unsupported is None or not unsupported.is_harmless(value):
                options[name] = conceal(value)
        else:
            options[name] = known.option_type.conceal(value)


def in_dotted_names(error: InvalidOptionError, given: Mapping[str, Any]) -> InvalidOptionError:
    """Return the error with the given dotted names in place of keywords."""
    known = {dotted: each.name for each in OPTIONS.values() for dotted in each.properties}
    given_as = {known[name]: name for name in given if name in known}
    return _names.with_dotted_names(error, given_as, OPTIONS.values())


def conceal_properties(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the properties in which no traceback shows a secret.

    See conceal_secrets(). Only from_properties() may read the copy. It raises TypeError if
    ``properties`` was not a mapping.
    """
    concealed: Any = _names.conceal_properties(properties, OPTIONS.values())
    return concealed  # type: ignore[no-any-return]
