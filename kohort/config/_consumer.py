"""Section of the options that decide what a consumer gives its caller."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import field
from typing import Any

from kohort.config._deserializers import Deserializer
from kohort.config._option import Section, option, section
from kohort.config._option_types import Boolean, Function, Instance, Milliseconds, OneOf


@section
class ConsumerSection(Section):
    """Options of KafkaConsumer and AsyncKafkaConsumer themselves."""

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
