"""The listener that logs."""

from __future__ import annotations

import logging

import pytest

from kohort.listeners import LoggingRebalanceListener
from kohort.listeners._dispatch import call_listener
from kohort.types import TopicPartition

PARTITIONS = {TopicPartition("orders", 10), TopicPartition("orders", 9)}


def test_each_callback_is_logged_with_its_partitions(caplog: pytest.LogCaptureFixture) -> None:
    listener = LoggingRebalanceListener()
    with caplog.at_level(logging.INFO, logger="kohort.rebalance"):
        call_listener(listener, "on_partitions_assigned", PARTITIONS)
        call_listener(listener, "on_partitions_revoked", PARTITIONS)
        call_listener(listener, "on_partitions_lost", PARTITIONS)
        call_listener(listener, "on_partitions_assigned", [])
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", "partitions assigned: orders-9, orders-10"),
        ("INFO", "partitions revoked: orders-9, orders-10"),
        ("WARNING", "partitions lost: orders-9, orders-10"),
        ("INFO", "partitions assigned: none"),
    ]


def test_logger_and_level_can_be_chosen(caplog: pytest.LogCaptureFixture) -> None:
    listener = LoggingRebalanceListener(logging.getLogger("mine"), logging.ERROR)
    call_listener(listener, "on_partitions_lost", PARTITIONS)
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("mine", "ERROR")
