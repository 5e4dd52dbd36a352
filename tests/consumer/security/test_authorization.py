"""Permissions that are missing, granted and revoked while consumers run."""

from __future__ import annotations

import functools
import inspect
import itertools
import logging
import pickle
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from kohort import (
    AsyncKafkaConsumer,
    ConsumerRebalanceListener,
    OffsetAndMetadata,
    TopicPartition,
)
from kohort.consumer.engine._positions import DeniedPositions
from kohort.errors import (
    ErrorCode,
    GroupAuthorizationFailedError,
    KafkaError,
    TopicAuthorizationFailedError,
)
from kohort.testing import Authorization, Cluster, MemoryCluster, Security
from tests.consumer.conftest import MakeConsumer
from tests.consumer.kit import poll_error, poll_past, poll_quietly, values
from tests.consumer.virtual import MemoryConsumer
from tests.support.virtual import pass_time, run_virtual

ME = "User:ANONYMOUS"
A, B = TopicPartition("a", 0), TopicPartition("b", 0)
GRANTED_AT = 7.0


@asynccontextmanager
async def secured(**options: Any) -> AsyncIterator[MemoryCluster]:
    """Return a cluster that denies everything by default, with two topics of three records."""
    security = Security(listeners=["PLAINTEXT"], authorization=Authorization())
    async with MemoryCluster(topics={"a": 1, "b": 1}, security=security, **options) as cluster:
        for topic in ("a", "b"):
            cluster.produce(topic, [f"{topic}{number}" for number in range(3)])
        yield cluster


def on_secured_cluster(scenario: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Return a test that runs the scenario on a cluster of secured() and a virtual clock."""

    @functools.wraps(scenario)
    def test(**given: Any) -> None:
        async def main() -> None:
            async with secured() as cluster:
                await scenario(cluster, **given)

        run_virtual(main)

    signature = inspect.signature(scenario)
    given = [each for name, each in signature.parameters.items() if name != "cluster"]
    test.__signature__ = signature.replace(parameters=given)  # type: ignore[attr-defined]
    return test


class Polled:
    """Values and errors of polls, each with its second."""

    def __init__(self) -> None:
        self.records: list[tuple[float, str]] = []
        self.errors: list[tuple[float, KafkaError]] = []

    @property
    def values(self) -> list[str]:
        return [value for _, value in self.records]

    def first(self, prefix: str) -> float:
        """Return the second in which the first record of a topic arrived."""
        return next(at for at, value in self.records if value.startswith(prefix))


async def poll(
    consumer: AsyncKafkaConsumer, seconds: float, polled: Polled | None = None
) -> Polled:
    """Poll for a number of seconds of the loop's clock."""
    polled = Polled() if polled is None else polled
    begun = anyio.current_time()
    while (now := anyio.current_time() - begun) < seconds:
        try:
            parts = await consumer.poll(timeout_ms=100)
        except KafkaError as error:
            polled.errors.append((now, error))
            continue
        for records in parts.values():
            at = anyio.current_time() - begun
            polled.records += [(at, (record.value or b"").decode()) for record in records]
    return polled


def consumer(cluster: MemoryCluster, *topics: str, **configs: Any) -> MemoryConsumer:
    return MemoryConsumer(cluster, *topics, **{"metadata_max_age_ms": 2000, **configs})


def assert_refused(error: KafkaError, topic: str, operation: str) -> None:
    assert isinstance(error, TopicAuthorizationFailedError)
    assert error.topics == frozenset({topic})
    assert error.operation == operation


WITH_AND_WITHOUT_GROUP = pytest.mark.parametrize("group_id", ["g", None])


@WITH_AND_WITHOUT_GROUP
@on_secured_cluster
async def test_hidden_topic_costs_no_other_topic_a_record(
    cluster: MemoryCluster, group_id: str | None
) -> None:
    cluster.grant(ME, "READ", topic="a")
    cluster.grant(ME, "READ", group="g")
    async with consumer(cluster, "a", "b", group_id=group_id) as reader:
        seen = await poll(reader, GRANTED_AT)
        assert seen.values == ["a0", "a1", "a2"]
        assert seen.first("a") < 1.0
        ((_, error),) = seen.errors
        assert_refused(error, "b", "DESCRIBE")
        assert "needs DESCRIBE on topic 'b' (CREATE if it does not exist)" in str(error)
        cluster.grant(ME, "READ", topic="b")
        seen = await poll(reader, 5.0)
        assert seen.values == ["b0", "b1", "b2"]
        assert seen.first("b") < 3.0
        assert seen.errors == []


@WITH_AND_WITHOUT_GROUP
@on_secured_cluster
async def test_unreadable_topic_costs_no_other_topic_a_record(
    cluster: MemoryCluster, group_id: str | None
) -> None:
    cluster.grant(ME, "READ", topic="a")
    cluster.grant(ME, "DESCRIBE", topic="b")
    cluster.grant(ME, "READ", group="g")
    async with consumer(cluster, "a", "b", group_id=group_id) as reader:
        seen = await poll(reader, GRANTED_AT)
        assert seen.values == ["a0", "a1", "a2"]
        assert seen.first("a") < 1.0
        ((_, error),) = seen.errors
        assert_refused(error, "b", "READ")
        cluster.grant(ME, "READ", topic="b")
        seen = await poll(reader, 5.0)
        assert seen.values == ["b0", "b1", "b2"]
        assert seen.first("b") < 2.5
        assert seen.errors == []


@on_secured_cluster
async def test_fetches_of_a_refused_topic_are_sent_ever_less_often(cluster: MemoryCluster) -> None:
    cluster.grant(ME, "DESCRIBE", topic="b")
    async with consumer(cluster, "b", group_id=None, metadata_max_age_ms=60_000) as reader:
        await poll(reader, 120.0)
        fetches = [each.at for each in cluster.requests if each.api == "Fetch"]
        pauses = [round(b - a, 1) for a, b in itertools.pairwise(fetches)]
        assert 0.8 <= pauses[0] <= 1.2
        assert len(fetches) <= 10
        assert max(pauses) > 30


@on_secured_cluster
async def test_revoked_read_is_reported_and_a_grant_resumes_reading(
    cluster: MemoryCluster,
) -> None:
    rights = cluster.grant(ME, "READ", topic="a")
    cluster.grant(ME, "READ", topic="b")
    cluster.grant(ME, "READ", group="g")
    async with consumer(cluster, "a", "b", enable_auto_commit=False) as reader:
        assert len((await poll(reader, 3.0)).values) == 6
        rights.stop()
        cluster.grant(ME, "DESCRIBE", topic="a")
        cluster.produce("b", ["b3"])
        seen = await poll(reader, GRANTED_AT)
        assert seen.values == ["b3"]
        ((_, error),) = seen.errors
        assert_refused(error, "a", "READ")
        cluster.produce("a", ["a3"])
        cluster.grant(ME, "READ", topic="a")
        seen = await poll(reader, 10.0)
        assert seen.values == ["a3"]
        assert seen.errors == []


@on_secured_cluster
async def test_positions_survive_when_a_topic_is_hidden_for_a_while(cluster: MemoryCluster) -> None:
    rights = cluster.grant(ME, "READ", topic="a")
    async with consumer(cluster, "a", group_id=None) as reader:
        assert len((await poll(reader, 3.0)).values) == 3
        rights.stop()
        seen = await poll(reader, GRANTED_AT)
        assert seen.values == []
        operations = {error.operation for _, error in seen.errors}  # type: ignore[attr-defined]
        assert operations == {"READ", "DESCRIBE"}
        assert len(seen.errors) == 2
        cluster.produce("a", ["a3"])
        cluster.grant(ME, "READ", topic="a")
        seen = await poll(reader, 10.0)
        assert seen.values == ["a3"]
        assert seen.errors == []


@pytest.mark.parametrize("right", ["READ", "DESCRIBE"])
@on_secured_cluster
async def test_group_without_rights_joins_after_a_grant(cluster: MemoryCluster, right: str) -> None:
    cluster.grant(ME, "READ", topic="a")
    if right == "READ":
        cluster.grant(ME, "DESCRIBE", group="g")
    async with consumer(cluster, "a") as reader:
        seen = await poll(reader, GRANTED_AT)
        assert seen.values == []
        assert 2 <= len(seen.errors) <= 4
        for _, error in seen.errors:
            assert isinstance(error, GroupAuthorizationFailedError)
            assert (error.group_id, error.operation) == ("g", right)
            assert f"needs {right} on group 'g'" in str(error)
        cluster.grant(ME, "READ", group="g")
        seen = await poll(reader, 12.0)
        assert seen.values == ["a0", "a1", "a2"]
        assert seen.errors == []


@on_secured_cluster
async def test_assigned_topics_are_read_when_one_position_is_refused(
    cluster: MemoryCluster,
) -> None:
    cluster.grant(ME, "READ", topic="a")
    cluster.grant(ME, "READ", group="g")
    async with consumer(cluster) as reader:
        reader.assign([A, B])
        seen = await poll(reader, GRANTED_AT)
        assert seen.values == ["a0", "a1", "a2"]
        assert seen.first("a") < 1.0
        assert {type(error) for _, error in seen.errors} == {TopicAuthorizationFailedError}
        assert len(seen.errors) <= 2
        with pytest.raises(TopicAuthorizationFailedError, match="DESCRIBE on topic 'b'"):
            await reader.position(B)
        cluster.grant(ME, "READ", topic="b")
        seen = await poll(reader, 5.0)
        assert seen.values == ["b0", "b1", "b2"]


@on_secured_cluster
async def test_group_without_rights_costs_an_assigned_consumer_little(
    cluster: MemoryCluster,
) -> None:
    cluster.grant(ME, "READ", topic="a")
    async with consumer(cluster, enable_auto_commit=False) as reader:
        reader.assign([A])
        seen = await poll(reader, GRANTED_AT)
        assert 2 <= len(seen.errors) <= 5
        cluster.grant(ME, "READ", group="g")
        assert (await poll(reader, 12.0)).values == ["a0", "a1", "a2"]


@on_secured_cluster
async def test_pattern_sees_what_is_visible_and_new_grants(cluster: MemoryCluster) -> None:
    cluster.grant(ME, "READ", topic="a")
    cluster.grant(ME, "READ", group="g")
    async with consumer(cluster) as reader:
        reader.subscribe(pattern="^[ab]$")
        seen = await poll(reader, GRANTED_AT)
        assert seen.values == ["a0", "a1", "a2"]
        assert seen.errors == []
        cluster.grant(ME, "READ", topic="b")
        seen = await poll(reader, 5.0)
        assert seen.values == ["b0", "b1", "b2"]
        assert seen.errors == []


@on_secured_cluster
async def test_partly_refused_commit_names_what_is_committed(cluster: MemoryCluster) -> None:
    rights = [cluster.grant(ME, "READ", topic=topic) for topic in ("a", "b")]
    cluster.grant(ME, "READ", group="g")
    async with consumer(cluster, "a", "b", enable_auto_commit=False) as reader:
        assert len((await poll(reader, 3.0)).values) == 6
        rights[1].stop()
        with pytest.raises(TopicAuthorizationFailedError) as raised:
            await reader.commit()
        error = raised.value
        assert_refused(error, "b", "READ")
        assert error.committed == {A: OffsetAndMetadata(3, "", 0)}
        assert "READ on topic 'b'" in str(error)
        assert "offsets of a 0 are committed" in str(error)
        assert {tp: at.offset for tp, at in cluster.committed("g").items()} == {A: 3}
        copy = pickle.loads(pickle.dumps(error))
        assert (copy.topics, copy.committed) == (error.topics, error.committed)


@on_secured_cluster
async def test_errors_of_a_former_subscription_are_forgotten(cluster: MemoryCluster) -> None:
    cluster.grant(ME, "READ", topic="a")
    cluster.grant(ME, "READ", group="g")
    async with consumer(cluster, "b", metadata_max_age_ms=300_000) as reader:
        with pytest.raises(TopicAuthorizationFailedError):
            await reader.poll(timeout_ms=1000)
        cluster.grant(ME, "READ", topic="b")
        reader.subscribe(["a", "b"])
        seen = await poll(reader, 5.0)
        assert sorted(seen.values) == ["a0", "a1", "a2", "b0", "b1", "b2"]
        assert seen.errors == []


@pytest.mark.parametrize("rights", [[], ["DESCRIBE"]])
def test_on_error_skip_only_logs_missing_rights(
    rights: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with secured() as cluster:
            cluster.grant(ME, "READ", topic="a")
            for right in rights:
                cluster.grant(ME, right, topic="b")
            async with consumer(cluster, "a", "b", group_id=None, on_error="skip") as reader:
                seen = await poll(reader, GRANTED_AT)
                assert seen.values == ["a0", "a1", "a2"]
                assert seen.errors == []

    with caplog.at_level(logging.WARNING):
        run_virtual(scenario)
    texts = [each.getMessage() for each in caplog.records if "on topic 'b'" in each.getMessage()]
    assert len(texts) == 1


class SlowListener(ConsumerRebalanceListener):
    """A listener that takes five seconds for an assignment."""

    async def on_partitions_assigned(self, assigned: frozenset[TopicPartition]) -> None:
        await anyio.sleep(5)


def test_refused_positions_wait_for_the_end_of_a_callback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Looking up a due position once spun until on_partitions_assigned returned."""
    looks: list[float] = []
    due = DeniedPositions.due

    def counted(refused: DeniedPositions, missing: Any, now: float) -> Any:
        looks.append(now)
        if looks.count(now) > 100:
            pass_time(0.1)  # Nothing else ends a spin on a virtual clock.
        return due(refused, missing, now)

    monkeypatch.setattr(DeniedPositions, "due", counted)

    async def scenario() -> None:
        async with secured() as cluster:
            cluster.grant(ME, "READ", topic="*")
            cluster.grant(ME, "READ", group="g")
            cooperative: dict[str, Any] = {"partition_assignment_strategy": ("cooperative-sticky",)}
            first = MemoryConsumer(cluster, **cooperative)
            first.subscribe(["a", "b"], listener=SlowListener())

            async def visit() -> None:
                await anyio.sleep(1)  # the callback runs, and no position is known
                cluster.deny(ME, "ALL", topic="a")
                await anyio.sleep(9)
                async with MemoryConsumer(cluster, "b", seed=6, **cooperative):
                    await anyio.sleep(20)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(visit)
                async with first:
                    await poll(first, 40.0)

    run_virtual(scenario)
    assert len(looks) > 5
    assert max(Counter(looks).values()) < 100


@on_secured_cluster
async def test_explain_names_the_rights_that_are_missing(cluster: MemoryCluster) -> None:
    cluster.grant(ME, "READ", topic="a")
    cluster.grant(ME, "READ", group="g")
    cluster.grant(ME, "DESCRIBE", topic="b")
    async with consumer(
        cluster, "a", "b", "c", client_id="c1", allow_auto_create_topics=False
    ) as reader:
        await poll(reader, 3.0)
        text = str(reader.explain())
        assert "this client needs READ on topic b" in text
        assert "this client needs DESCRIBE on topic c" in text
        rights = reader.explain().as_dict()["missing_rights"]
        assert {
            "principal": None,
            "operation": "DESCRIBE",
            "resource": "topic",
            "name": "c",
        } in rights
        cluster.grant(ME, "READ", topic="*")
        await poll(reader, 5.0)
        assert reader.explain().as_dict()["missing_rights"] == []


@on_secured_cluster
async def test_explain_names_the_right_that_a_group_needs(cluster: MemoryCluster) -> None:
    cluster.grant(ME, "READ", topic="a")
    async with consumer(cluster, "a") as reader:
        await poll(reader, 0.5)
        assert "this client needs DESCRIBE on group g" in str(reader.explain())
        cluster.grant(ME, "READ", group="g")
        await poll(reader, 5.0)
        assert "needs" not in str(reader.explain())


@pytest.fixture
def options(cluster: Cluster) -> dict[str, Any]:
    """Default options. They must not cost CPU."""
    return {"bootstrap_servers": cluster.bootstrap_servers, "auto_offset_reset": "earliest"}


@pytest.mark.cases(1)  # each waits for refusals of Apache Kafka
@pytest.mark.parametrize(
    ("protocol", "join"), [("classic", "JoinGroup"), ("consumer", "ConsumerGroupHeartbeat")]
)
def test_what_is_not_allowed_is_told(
    cluster: Cluster, topic: str, group: str, make: MakeConsumer, protocol: str, join: str
) -> None:
    with cluster.fail(join, ErrorCode.GROUP_AUTHORIZATION_FAILED, times=None):
        consumer = make(topic, group_id=group, group_protocol=protocol)
        poll_error(consumer, GroupAuthorizationFailedError)
        assert {type(e) for e in poll_quietly(consumer)} <= {GroupAuthorizationFailedError}
    poll_past(consumer, GroupAuthorizationFailedError, consumer.assignment)
    with cluster.fail("OffsetFetch", ErrorCode.GROUP_AUTHORIZATION_FAILED, times=None):
        other = make(group_id=group)
        other.assign([TopicPartition(topic, 0)])
        poll_error(other, GroupAuthorizationFailedError)
        errors = poll_quietly(other, 1.5)
        assert {type(each) for each in errors} == {GroupAuthorizationFailedError}
    poll_past(
        other,
        GroupAuthorizationFailedError,
        lambda: other.position(TopicPartition(topic, 0)) == 0,
    )
    with cluster.fail("Fetch", ErrorCode.TOPIC_AUTHORIZATION_FAILED, times=None):
        poll_error(other, TopicAuthorizationFailedError)
        assert {type(e) for e in poll_quietly(other)} <= {TopicAuthorizationFailedError}
    cluster.produce(topic, [b"a"], partition=0)
    assert values(
        poll_past(
            other,
            TopicAuthorizationFailedError,
            lambda: other.position(TopicPartition(topic, 0)) == 1,
        )
    ) == [b"a"]
