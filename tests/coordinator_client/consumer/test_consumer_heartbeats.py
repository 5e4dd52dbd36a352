"""Times of the heartbeats of a consumer group member."""

from __future__ import annotations

from kohort.coordinator_client.machine._commands import ConsumerHeartbeat
from tests.coordinator_client.consumer_scripts import INTERVAL, ConsumerScript


def _heartbeat_in_flight() -> ConsumerScript:
    script = ConsumerScript()
    script.to_stable(0)
    script.pass_time(INTERVAL)
    assert script.has(ConsumerHeartbeat)
    return script


def test_heartbeat_interval_does_not_depend_on_response_time() -> None:
    script = _heartbeat_in_flight()
    script.pass_time(INTERVAL * 0.4)
    script.answer()
    script.pass_time(INTERVAL * 0.5)
    assert not script.has(ConsumerHeartbeat)
    script.pass_time(INTERVAL * 0.1)
    assert script.has(ConsumerHeartbeat)


def test_one_heartbeat_follows_a_response_slower_than_interval() -> None:
    script = _heartbeat_in_flight()
    script.pass_time(INTERVAL * 3)
    script.answer()
    script.pass_time(0)
    script.answer()
    script.pass_time(INTERVAL * 0.9)
    assert not script.has(ConsumerHeartbeat)
    script.pass_time(INTERVAL * 0.1)
    assert script.has(ConsumerHeartbeat)
