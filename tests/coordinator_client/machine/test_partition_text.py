"""The text that names partitions in messages."""

from __future__ import annotations

from kohort.coordinator_client.machine._partition_text import describe
from kohort.types import TopicPartition
from tests.coordinator_client.scripts import parts


def test_runs_are_drawn_together() -> None:
    assert describe(parts(0, 1, 2, 5, 7, 8)) == "t 0-2, 5, 7-8"
    assert describe(parts(3) | parts(1, topic="a")) == "a 1; t 3"
    assert describe([]) == "none"


def test_many_topics_are_counted() -> None:
    many = [TopicPartition(f"t{number:02}", 0) for number in range(25)]
    assert describe(many).endswith("t19 0; 5 more topics")


def test_what_could_forge_a_line_of_the_log_is_escaped() -> None:
    assert describe(parts(0, topic="t\n2026 ERROR\x1b[31m")) == "t\\n2026 ERROR\\x1b[31m 0"
