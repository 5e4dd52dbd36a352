"""The machine of consumer groups, driven by requests that Apache Kafka has answered."""

from __future__ import annotations

from typing import Any

import pytest

from kohort.protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tests.broker.groups.consumer.consumer_machine import ConsumerMachine
from tests.broker.groups.consumer.group_lives import (
    TOPICS,
    Step,
    frames,
    lives,
    record_type,
    shown,
    uuid_bytes,
)

LIVES = lives()


def machine() -> ConsumerMachine:
    made = ConsumerMachine(consumer_max_size=6)
    for name, (partitions, topic_id) in TOPICS.items():
        made.topics.create(name, partitions, uuid_bytes(topic_id))
    return made


def answered(response: ConsumerGroupHeartbeatResponse) -> tuple[Any, ...]:
    assignment = None
    if response.assignment is not None:
        assignment = {
            bytes(each.topic_id): sorted(each.partitions)
            for each in response.assignment.topic_partitions
        }
    return (
        response.error_code,
        response.error_message,
        response.member_id,
        response.member_epoch,
        response.heartbeat_interval_ms,
        assignment,
    )


@pytest.fixture(scope="module")
def replayed() -> list[Step]:
    """Return the records of each step of the group ``life`` in the machine."""
    life = machine()
    steps = []
    for step in LIVES["life"]:
        life.batches.clear()
        for frame in frames(f"life: {step.name}"):
            if isinstance(frame.request, ConsumerGroupHeartbeatRequest):
                response = life.send(frame.request, frame.client_id)
                assert isinstance(frame.response, ConsumerGroupHeartbeatResponse)
                assert answered(response) == answered(frame.response), frame.note
                life.pass_time(0.01)
        steps.append(Step(step.name, life.appended))
    return steps


@pytest.mark.parametrize("index", range(20))
def test_records_of_a_life_match_kafka_step_by_step(replayed: list[Step], index: int) -> None:
    expected = [each for each in LIVES["life"][index].records if record_type(each) != 1]
    got = replayed[index].records
    assert [record_type(each) for each in got] == [record_type(each) for each in expected]
    assert sorted(map(shown, got)) == sorted(map(shown, expected))


ERRORS = [
    frame
    for frame in frames("probe: ")
    if isinstance(frame.request, ConsumerGroupHeartbeatRequest)
    and frame.request.group_id in ("errs", "nogroup")
]


def test_answers_to_one_group_match_kafka() -> None:
    group = machine()
    for frame in ERRORS:
        assert isinstance(frame.request, ConsumerGroupHeartbeatRequest)
        assert isinstance(frame.response, ConsumerGroupHeartbeatResponse)
        response = group.send(frame.request, frame.client_id)
        assert answered(response) == answered(frame.response), frame.scenario
        group.pass_time(0.01)
