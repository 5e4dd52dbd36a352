"""Random faults while records are produced: each acknowledged record is in the log once."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

import anyio
import pytest

from kohort.errors import ErrorCode
from kohort.producer import NewRecord, RecordProducer, _producer
from kohort.producer._reactions import Reaction
from kohort.records import encode_batch
from kohort.testing import Action, Call, MemoryCluster
from tests.producer.test_producer import producing
from tests.support.virtual import run_virtual

PARTITIONS = 3
RECORDS = 80
PASSING = [
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NETWORK_EXCEPTION,
]
LOST_IDS = [
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_EPOCH,
]
SEEDS = range(12)


async def _produce(seed: int) -> list[str]:
    rng = random.Random(seed)
    async with MemoryCluster(
        brokers=3,
        topics={"t": PARTITIONS},
        configs={"default.replication.factor": "3"},
        seed=seed,
    ) as cluster:
        loses_ids = rng.random() < 0.3

        async def disturb(call: Call) -> Any:
            what = rng.random()
            if what < 0.1:
                return call.error(rng.choice(PASSING))
            if what < 0.2:
                await call.proceed()
                return call.error(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
            if what < 0.3:
                if rng.random() < 0.5:
                    await call.proceed()
                return Action.DROP
            if what < 0.35:
                await anyio.sleep(rng.uniform(0, 8))  # a request has 5 s
            if what < 0.4 and loses_ids:
                return call.error(rng.choice(LOST_IDS))
            return None

        cluster.on("Produce", disturb)
        cluster.on(
            "InitProducerId",
            lambda call: call.error(ErrorCode.COORDINATOR_NOT_AVAILABLE),
            chance=0.3,
        )
        async with producing(cluster) as producer:
            return await _run(cluster, producer, rng, exactly_once=not loses_ids)


async def _run(
    cluster: MemoryCluster, producer: RecordProducer, rng: random.Random, *, exactly_once: bool
) -> list[str]:
    expected: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    violations: list[str] = []
    async with anyio.create_task_group() as tasks:
        for number in range(RECORDS):
            partition, value = rng.randrange(PARTITIONS), b"%d" % number
            posted = producer.post("t", partition, NewRecord(0, None, value), timeout=600)
            expected[partition].append(value)
            tasks.start_soon(posted.wait)
            await anyio.sleep(rng.choice([0, 0, 0.01, 1.0]))
            if rng.random() < 0.1:
                cluster.move_leader("t", rng.randrange(PARTITIONS))
    for partition, sent in enumerate(expected):
        found = [record.value or b"" for record in cluster.records("t", partition)]
        first = list(dict.fromkeys(found))
        if (found if exactly_once else first) != sent:
            violations.append(f"partition {partition} has {found}, and {sent} were sent")
    return violations


def produce(seed: int) -> list[str]:
    """Run one seed. Return its violations."""
    return run_virtual(_produce, seed, seed=seed)


@pytest.mark.timeout(600)
def test_no_seed_loses_repeats_or_reorders_records() -> None:
    assert {seed: found for seed in SEEDS if (found := produce(seed))} == {}


def use_new_ids_for_retries() -> AbstractContextManager[Any]:
    return patch.object(_producer, "reaction_to", lambda error: Reaction.NEW_ID)


def send_without_sequences() -> AbstractContextManager[Any]:
    return patch.object(_producer, "encode_batch", lambda records, **ids: encode_batch(records))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("plant", [use_new_ids_for_retries, send_without_sequences])
def test_a_planted_bug_is_found(plant: Callable[[], AbstractContextManager[Any]]) -> None:
    with plant():
        assert next(filter(produce, range(40)), None) is not None
