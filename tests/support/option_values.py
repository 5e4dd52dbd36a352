"""Values of options that are accepted, and values that are refused."""

from __future__ import annotations

import math
from typing import Any

SERVERS: list[tuple[Any, list[tuple[str, int]]]] = [
    ("localhost", [("localhost", 9092)]),
    ("kafka:1234", [("kafka", 1234)]),
    ("a:1, b:2 ,c", [("a", 1), ("b", 2), ("c", 9092)]),
    (["a:1", "b:2,c:3"], [("a", 1), ("b", 2), ("c", 3)]),
    (("a:1", "a:1"), [("a", 1)]),
    ("[::1]:9093", [("::1", 9093)]),
    ("[2001:db8::7]", [("2001:db8::7", 9092)]),
    ("2001:db8::7", [("2001:db8::7", 9092)]),
    ("PLAINTEXT://kafka:9092", [("kafka", 9092)]),
    (("kafka", 9092), [("kafka", 9092)]),
    ([("a", 1), ("b", 2)], [("a", 1), ("b", 2)]),
]
"""Values of ``bootstrap_servers`` with their normal forms."""

MALFORMED_SERVERS: list[Any] = [
    "",
    [],
    ",",
    "a:1,,b:2",
    "host:",
    "host:x",
    "host:0",
    "host:65536",
    "host:-1",
    "host:٣",
    ":9092",
    "[::1",
    "[::1]9092",
    "[]:1",
    "SSL://host:9093",
    "http://host/path",
    "user:secret@host:9092",
    b"host:9092",
    9092,
    None,
    {"host": 9092},
    [9092],
    ["a:1", 2],
    ["a", None],
    [("a", 1, 2)],
    [("host", "9092")],
    [("host", True)],
]
"""Values of ``bootstrap_servers`` that are refused."""

WRONG_VALUES: list[tuple[str, Any, str]] = [
    ("session_timeout_ms", "45000", "an int of at least 1"),
    ("session_timeout_ms", 0, "an int of at least 1"),
    ("session_timeout_ms", 2**31, "an int of at least 1"),
    ("session_timeout_ms", True, "an int"),
    ("session_timeout_ms", 1.5, "an int"),
    ("session_timeout_ms", math.nan, "an int"),
    ("session_timeout_ms", math.inf, "an int"),
    ("session_timeout_ms", None, "an int"),
    ("fetch_min_bytes", -1, "an int of at least 0"),
    ("fetch_max_bytes", [1], "an int"),
    ("max_poll_records", 0, "an int of at least 1, or None"),
    ("enable_auto_commit", "false", "True or False"),
    ("enable_auto_commit", 1, "True or False"),
    ("group_id", "", "a non-empty str, or None"),
    ("group_id", b"g", "a non-empty str, or None"),
    ("group_id", "x" * 40_000, "a non-empty str, or None"),
    ("client_id", 5, "a str"),
    ("auto_offset_reset", "first", '"earliest", "latest", "none"'),
    ("auto_offset_reset", None, '"earliest", "latest", "none"'),
    ("auto_offset_reset", "by_duration", "by_duration:PT1H30M"),
    ("auto_offset_reset", "by_duration:", "no duration such as PT1H or P7D"),
    ("auto_offset_reset", "by_duration:P", "no duration"),
    ("auto_offset_reset", "by_duration:PT", "no duration"),
    ("auto_offset_reset", "by_duration:P1DT", "no duration"),
    ("auto_offset_reset", "by_duration:1h", "no duration"),
    ("auto_offset_reset", "by_duration:P1M", "no duration"),
    ("auto_offset_reset", "by_duration:-PT1S", "cannot be negative"),
    ("auto_offset_reset", "by_duration:PT-1S", "cannot be negative"),
    ("isolation_level", "committed", "read_committed"),
    ("consumer_timeout_ms", "1000", "a number of milliseconds"),
    ("consumer_timeout_ms", math.nan, "a number of milliseconds"),
    ("consumer_timeout_ms", True, "a number of milliseconds"),
    ("socket_options", "TCP_NODELAY", "socket.setsockopt"),
    ("socket_options", [(1, 2)], "socket.setsockopt"),
    ("socket_options", [(1, 2, "on")], "socket.setsockopt"),
    ("socket_options", 3, "socket.setsockopt"),
    ("default_offset_commit_callback", "print", "a callable"),
    ("receive_buffer_bytes", -5, "an int above 0, or None"),
    ("connections_max_idle_ms", -5, "an int above 0, or None"),
    (
        "partition_assignment_strategy",
        "rnge",
        '"range", "cooperative-sticky", "sticky", "roundrobin"',
    ),
    (
        "partition_assignment_strategy",
        [],
        '"range", "cooperative-sticky", "sticky", "roundrobin"',
    ),
    ("partition_assignment_strategy", [object()], "assignor classes or instances"),
    ("partition_assignment_strategy", 3, "a list"),
    ("key_deserializer", "utf-8", "a callable that takes bytes"),
    ("value_deserializer", lambda: None, "a callable that takes bytes"),
    ("connect", "host:9092", "an async callable (host, port)"),
    ("rng", 7, "a random.Random, or None"),
    ("wall_clock", 1.5, "a callable () that returns seconds since the epoch"),
    ("decompression_max_bytes", 0, "an int of at least 1"),
]
"""Options, refused values, and a part of the error."""

SPECIAL_VALUES: dict[str, Any] = {
    "max_poll_records": None,
    "connections_max_idle_ms": -1,
    "receive_buffer_bytes": -1,
    "consumer_timeout_ms": -1,
    "rebalance_timeout_ms": None,
    "auto_offset_reset": "smallest",
    "session_timeout_ms": 6_000.0,
}
"""Values that other clients accept."""
