"""The clients that benchmarks/fetch.py measures, by the names of the tables."""

from __future__ import annotations

RECORDS = "kohort records"
ITERATION = "kohort iteration"
GETMANY = "kohort getmany"
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

OURS = (ARROW, RECORDS, ITERATION, GETMANY, ASYNC_FOR, PURE)
OTHERS = (TUNED, CONFLUENT, AIOKAFKA, AIOKAFKA_FOR, KAFKA_PYTHON, JAVA, FRANZ)
SLOW = (ITERATION, GETMANY, ASYNC_FOR, PURE, CONFLUENT, AIOKAFKA_FOR, KAFKA_PYTHON)
"""With ``--brief`` these read one topic."""
