"""Options of the consumer itself: what its caller gets, and how."""

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
    """What KafkaConsumer and AsyncKafkaConsumer need."""

    key_deserializer: Any = field(
        default=None,
        metadata=option(Deserializer(), "Makes the key out of its bytes; not called for None."),
    )
    value_deserializer: Any = field(
        default=None,
        metadata=option(Deserializer(), "Makes the value out of its bytes; not called for None."),
    )
    consumer_timeout_ms: float = field(
        default=math.inf,
        metadata=option(
            Milliseconds(),
            "Iteration over KafkaConsumer ends after so long without a record.",
            unit="ms",
            properties=(),
        ),
    )
    rebalance_without_poll: str = field(
        default="idle",
        metadata=option(
            OneOf("idle", "always", "never"),
            "When AsyncKafkaConsumer goes through a rebalance outside of a poll: while its caller "
            "holds no returned records, at any time as aiokafka does, or never as KafkaConsumer.",
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
            "Called after commit_async() without a callback; error is None or an exception.",
            properties=(),
        ),
    )
    metrics_enabled: bool = field(
        default=True,
        metadata=option(Boolean(), "Whether metrics() gives figures, or None.", properties=()),
    )
    on_stats: Callable[[dict[str, Any]], Any] | None = field(
        default=None,
        metadata=option(
            Function("a callable (metrics)", "Callable[[dict[str, dict[str, float]]], object]"),
            "Given what metrics() gives every stats_interval_ms, called where listeners are; what "
            "it raises is logged.",
            properties=(),
        ),
    )
    stats_interval_ms: float = field(
        default=60_000,
        metadata=option(Milliseconds(), "How often on_stats is called.", unit="ms", properties=()),
    )
    connect: Callable[[str, int], Any] | None = field(
        default=None,
        metadata=option(
            Function("an async callable (host, port) that returns a connection", "Connect"),
            "Makes the connections to brokers in place of TCP: MemoryCluster.connect in tests, or "
            "one that wraps an anyio stream (kohort.transport.StreamConnection). Called in the "
            "consumer's event loop, which is asyncio in a thread of its own for KafkaConsumer.",
            properties=(),
        ),
    )
    rng: random.Random | None = field(
        default=None,
        metadata=option(
            Instance(random.Random, "a random.Random"),
            "Where jitter and the choice among brokers come from: a seeded one for tests.",
            properties=(),
        ),
    )
    wall_clock: Callable[[], float] | None = field(
        default=None,
        metadata=option(
            Function("a callable () that returns seconds since the epoch", "Callable[[], float]"),
            "The time of day in place of time.time(), for the expiry of OAuth tokens and for "
            "offsets by time: MemoryCluster.wall_clock in tests.",
            properties=(),
        ),
    )
