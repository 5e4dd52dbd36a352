"""Fields of log records: from messages, from texts, and of a group's life."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator
from typing import Any

import anyio
import pytest

from kohort.errors import CorruptBatchError, GroupAuthorizationFailedError
from kohort.logs import PlacedText, error_text, get_logger
from kohort.testing import MemoryCluster
from kohort.types import TopicPartition
from tests.consumer.virtual import MemoryConsumer, poll_for, values
from tests.support.virtual import run_virtual

FIELDS = ("group", "member", "generation", "topic", "partition", "offset")
TP = TopicPartition("orders", 3)


def fields(record: logging.LogRecord) -> dict[str, object]:
    known = vars(record)
    return {name: known[name] for name in FIELDS if name in known}


@pytest.fixture
def logger(caplog: pytest.LogCaptureFixture) -> Iterator[logging.Logger]:
    with caplog.at_level(logging.DEBUG, "kohort.test"):
        yield get_logger("kohort.test")


@pytest.mark.parametrize(
    ("message", "arguments", "found"),
    [
        ("[%s] left the group: %s", ("billing", "done"), {"group": "billing"}),
        ("[%s] %s failed", ("billing", "x"), {"group": "billing"}),
        (
            "%s-%d: skipped %d bytes at offset %s%s. The next offset is %s",
            (*TP, 5, 7, "", 8),
            {"topic": "orders", "partition": 3, "offset": 7},
        ),
        ("topic %r did not exist", ("orders",), {"topic": "orders"}),
        ("[%s] rebalanced: epoch %d", ("g", 2), {"group": "g", "generation": 2}),
        ("[%s] member %s gets none", ("g", "m-1"), {"group": "g", "member": "m-1"}),
        ("%s-%d: the leader does not know epoch %d", (*TP, 9), {"topic": "orders", "partition": 3}),
        ("%.1f%% of [%s], broker %d", (1.0, "x", 2), {}),
        ("%d%% at offset %d", (5, 6), {"offset": 6}),
        ("offset %s", (None,), {}),
        ("offset %d", (), {}),
        ("no arguments", (), {}),
    ],
)
@pytest.mark.cases(12)
def test_message_gives_the_fields_that_it_names(
    logger: logging.Logger,
    caplog: pytest.LogCaptureFixture,
    message: str,
    arguments: tuple[Any, ...],
    found: dict[str, object],
) -> None:
    logger.handle(logger.makeRecord(logger.name, 20, "f", 1, message, arguments, None))
    [record] = caplog.records
    assert fields(record) == found


def test_text_of_an_error_gives_the_fields_of_the_error(
    logger: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    error = CorruptBatchError("bad", topic_partition=TP, offset=7)
    logger.warning("%s", error_text(error))
    logger.info("failed: %s", error_text(GroupAuthorizationFailedError("no", group_id="billing")))
    logger.info("failed: %s", error_text(SyntaxError("x", ("f", 1, 5, "text"))))
    assert [fields(record) for record in caplog.records] == [
        {"topic": "orders", "partition": 3, "offset": 7},
        {"group": "billing"},
        {},
    ]
    assert caplog.messages[0] == str(error)


def test_extra_fields_replace_those_of_the_message(
    logger: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    logger.info("[%s] left", "billing", extra={"group": "other", "member": "m-1"})
    logger.info({"a": 1})
    logger.info("%(a)s", {"a": 1})
    assert fields(caplog.records[0]) == {"group": "other", "member": "m-1"}
    assert fields(caplog.records[1]) == fields(caplog.records[2]) == {}


def test_placed_text_keeps_its_fields_when_text_is_added() -> None:
    text = PlacedText("orders-3", topic="orders", partition=3, offset=None) + ": gone"
    assert text == "orders-3: gone"
    assert text.fields == {"topic": "orders", "partition": 3}
    assert pickle.loads(pickle.dumps(text)).fields == text.fields


def test_a_logger_gets_its_filter_once() -> None:
    assert len((get_logger("kohort.test") and get_logger("kohort.test")).filters) == 1


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.cases(2)
def test_rebalance_and_loss_have_group_member_and_generation(
    caplog: pytest.LogCaptureFixture, protocol: str
) -> None:
    caplog.set_level(logging.INFO, "kohort")
    seen: list[tuple[str, int]] = []

    async def main() -> None:
        async with MemoryCluster(topics={"t": 2}) as cluster:
            cluster.produce("t", ["a"])
            consumer = MemoryConsumer(
                cluster, "t", group_protocol=protocol, max_poll_interval_ms=60_000
            )
            async with consumer:
                await values(consumer, 1)
                [member] = cluster.group("g").members
                seen.append((member.member_id, cluster.group("g").generation))
                await anyio.sleep(70)
                await poll_for(consumer, lambda: len(cluster.group("g").members) == 1)

    run_virtual(main)
    about = {
        word: next(fields(record) for record in caplog.records if word in record.getMessage())
        for word in ("rebalanced", "membership lost", "poll() was not called")
    }
    [(member, generation)] = seen
    expected = {"group": "g", "member": member, "generation": generation}
    assert about["rebalanced"] == about["membership lost"] == expected
    assert about["poll() was not called"] == {"group": "g"}
