"""The line of a completed rebalance in the log of a member of the consumer protocol."""

from __future__ import annotations

import logging

import pytest

from kohort.coordinator_client.machine._commands import CallAssigned, CallLost
from kohort.errors import ErrorCode
from tests.coordinator_client.consumer_scripts import INTERVAL, ConsumerScript, by_id


def test_log_names_lost_and_gained_partitions_of_lost_membership(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "kohort")
    script = ConsumerScript()
    script.to_stable(0, 1)
    script.pass_time(INTERVAL)
    script.answer(error=ErrorCode.UNKNOWN_MEMBER_ID)
    script.poll()
    script.called_back(CallLost)
    script.answer(5, by_id(0))
    script.poll()
    script.called_back(CallAssigned)
    assert "gained t 0, lost t 0-1, now 1 partition" in caplog.messages[-1]
    assert "after it was due" not in caplog.messages[-1]


def test_wait_for_poll_begins_with_the_changed_assignment(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "kohort")
    script = ConsumerScript()
    script.to_stable(0)
    script.pass_time(INTERVAL)
    script.answer(3, by_id(0, 1))
    script.now += 0.5
    script.poll()
    script.called_back(CallAssigned)
    assert "(0.500 s after it was due): epoch 3, gained t 1, lost none" in caplog.messages[-1]
