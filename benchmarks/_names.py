"""Clients that benchmarks/fetch.py measures, by the names of the tables."""

from __future__ import annotations

LIMIT = "limit"
LIMIT_DEFAULT = "limit (default sizes)"
BARE_ARROW = "bare decoder (Arrow)"
BARE_RECORDS = "bare decoder (records)"

RECORDS = "kohort records"
ITERATION = "kohort iteration"
ASYNC_POLL = "kohort async poll"
ASYNC_FOR = "kohort async for"
PURE = "kohort records (pure)"
ARROW = "kohort Arrow"
CONFLUENT = "confluent-kafka (default)"
TUNED = "confluent-kafka (tuned)"
AIOKAFKA = "aiokafka getmany"
AIOKAFKA_FOR = "aiokafka async for"
KAFKA_PYTHON = "kafka-python poll"
JAVA = "Java"
FRANZ = "franz-go"

ANCHORS = (LIMIT, LIMIT_DEFAULT, BARE_ARROW, BARE_RECORDS)
"""Programs without a group, for comparison: see ``_anchors``."""
OURS = (ARROW, RECORDS, ITERATION, ASYNC_POLL, ASYNC_FOR, PURE)
OTHERS = (TUNED, CONFLUENT, AIOKAFKA, AIOKAFKA_FOR, KAFKA_PYTHON, JAVA, FRANZ)
EVERY = (*ANCHORS, *OURS, *OTHERS)
TABLES = (BARE_ARROW, ARROW)
"""Clients that read columns; all others but the limits create an object for each record."""
