"""explain(), health(), metrics() of share consumers, and what serves them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import anyio
import pytest
from prometheus_client import CollectorRegistry

from kohort import AsyncShareConsumer, ShareConsumer, health
from kohort.errors import ErrorCode, GroupAuthorizationFailedError
from kohort.prometheus import Collector, exposition
from kohort.testing import Cluster, MemoryCluster
from tests.share.test_consumer import BACKENDS, TOPIC, consumer, on_cluster, poll

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"
FETCHING = "consumer-share-fetch-manager-metrics"


def reasons(member: AsyncShareConsumer) -> str:
    return "; ".join(member.explain().reasons)


@BACKENDS
def test_explain_names_the_reason_at_each_step(backend: str) -> None:
    async def scene(cluster: MemoryCluster) -> None:
        cluster.produce(TOPIC, ["a", "b"])
        async with consumer(cluster, start=None) as member:
            assert "not a member of the group yet (reason: poll() joins" in reasons(member)
            assert await member.poll(timeout_ms=20_000) == {}
            assert "produced after its first fetch" in reasons(member)
            cluster.produce(TOPIC, ["c", "d"])
            first, second = await poll(member, 2)
            member.accept(first)
            assert await member.commit() == {}
            assert await member.poll(timeout_ms=2_000) == {}
            assert "no other record is available, and 1 record of this consumer" in reasons(member)
            facts = member.explain().as_dict()
            shares = facts["shares"]
            assert shares is not None
            assert (shares["locked"], shares["unacknowledged"], shares["buffered"]) == (1, 1, 0)
            assert shares["first_deadline_seconds"] == pytest.approx(28, abs=1)
            assert (shares["acquired"], shares["acknowledged"], shares["failed"]) == (2, 1, 0)
            assert shares["partitions"] == ["jobs-0"]
            assert shares["sessions"] == facts["cluster"]["brokers"]
            assert facts["subscription"]["topics"] == [TOPIC]
            group = facts["group"]
            assert group is not None
            assert (group["group_id"], group["state"]) == ("workers", "stable")
            assert group["group_protocol"] == "share"
            assert group["coordinator"] in facts["cluster"]["brokers"]
            assert json.loads(json.dumps(facts)) is not None
            text = str(member.explain())
            assert "group workers: stable, epoch" in text
            assert "locks of 30 s: 1 record, of which 0 wait for a poll and 1 for an" in text
            member.accept(second)
            assert await member.commit() == {}
            assert await member.poll(timeout_ms=2_000) == {}
            assert "all are done, or locked by other members" in reasons(member)
            cluster.produce(TOPIC, ["e"])
            await poll(member, 1)
            assert "the first lock ends in 29.5 s" in str(member.explain())
            await anyio.sleep(31)
            assert "the first lock ended 1.5 s ago" in str(member.explain())
        assert "is closed" in reasons(member)

    on_cluster(backend, scene)


@BACKENDS
def test_explain_names_missing_topics_and_denied_groups(backend: str) -> None:
    async def scene(cluster: MemoryCluster) -> None:
        async with consumer(cluster) as member:
            member.subscribe(["nowhere"])
            assert await member.poll(timeout_ms=6_000) == {}
            assert "no such topic in the cluster metadata: nowhere" in reasons(member)
            assert "was assigned no partitions" in reasons(member)
        cluster.fail("ShareGroupHeartbeat", ErrorCode.GROUP_AUTHORIZATION_FAILED)
        async with consumer(cluster) as member:
            with pytest.raises(GroupAuthorizationFailedError):
                await member.poll(timeout_ms=6_000)
            assert "the membership failed, and poll() joins again" in reasons(member)
            assert member.health().live
            assert not member.health().ready

    on_cluster(backend, scene)


@BACKENDS
def test_health_is_ready_after_the_join_and_dead_after_silence(backend: str) -> None:
    async def scene(cluster: MemoryCluster) -> None:
        async with consumer(cluster, max_poll_interval_ms=60_000) as member:
            assert not member.health().ready
            await member.poll(timeout_ms=6_000)
            assert member.health() == (True, True, ())
            await anyio.sleep(50)
            await member.commit()
            await anyio.sleep(50)
            assert member.health().live
            await anyio.sleep(11)
            assert not member.health().live
            assert "no call of poll() for 61 s" in member.health().reasons[0]
            assert "it left, because max_poll_interval_ms passed" in reasons(member)
            await member.poll(timeout_ms=6_000)
            assert "it left" not in reasons(member)
            await member.unsubscribe()
            member.subscribe([TOPIC])
            assert "it left" not in reasons(member)
            assert "poll() joins a group" in reasons(member)

    on_cluster(backend, scene)


@BACKENDS
def test_metrics_count_what_was_done(backend: str) -> None:
    async def scene(cluster: MemoryCluster) -> None:
        cluster.produce(TOPIC, ["a", "b", "c"])
        async with consumer(cluster, client_id="one") as member:
            empty = member.metrics()
            assert empty is not None
            assert empty[FETCHING]["records-consumed-total"] == 0
            first, second, _ = await poll(member, 3)
            member.accept(first, second)
            await member.commit()
            figures = member.metrics()
            assert figures is not None
            fetching = figures[FETCHING]
            assert fetching["records-consumed-total"] == fetching["records-acquired-total"] == 3
            assert fetching["acknowledgements-total"] == 2
            assert fetching["records-locked"] == 1
            assert fetching["bytes-consumed-total"] > 60
            assert fetching["fetch-total"] >= 1
            assert figures["consumer-share-metrics"]["poll-total"] >= 1
            coordinating = figures["consumer-share-coordinator-metrics"]
            assert coordinating["assigned-partitions"] == coordinating["rebalance-total"] == 1
            assert coordinating["heartbeat-total"] >= 2
            text = PAGE.read_text().partition("## Share consumers")[2]
            shown = re.findall(r"^\| `([a-z.-]+)` \| `([a-z-]+)` \|", text, re.MULTILINE)
            assert sorted(shown) == sorted((g, name) for g in figures for name in figures[g])
            await anyio.sleep(31)
            third = member.explain().as_dict()["shares"]
            assert third is not None
            assert third["first_deadline_seconds"] is not None
            assert third["first_deadline_seconds"] < 0
            member.acknowledge(*_place(member))
            assert len(await member.commit()) == 1
            figures = member.metrics()
            assert figures is not None
            assert figures[FETCHING]["acknowledgements-error-total"] == 1
            samples = {each.name: each for each in member.metric_samples()}
            assert samples["records-locked"].labels == {"client_id": "one", "group_id": "workers"}
        async with consumer(cluster, metrics_enabled=False) as member:
            assert member.metrics() is None
            assert member.metric_samples() == []

    on_cluster(backend, scene)


def _place(member: AsyncShareConsumer) -> tuple[Any, int]:
    (partition,) = member.assignment()
    return partition, 2


@BACKENDS
def test_an_app_serves_the_health_of_a_share_consumer(backend: str) -> None:
    async def scene(cluster: MemoryCluster) -> None:
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        async def receive() -> Any:
            return {"type": "http.request"}

        async with consumer(cluster) as member:
            await member.poll(timeout_ms=6_000)
            for path in ("/ready", "/metrics"):
                scope = {"type": "http", "method": "GET", "path": path}
                await health.app(member)(scope, receive, send)
        assert [each["status"] for each in sent if "status" in each] == [200, 200]
        assert b'kohort_assigned_partitions{client_id="' in sent[-1]["body"]

    on_cluster(backend, scene)


def test_another_thread_scrapes_a_share_consumer() -> None:
    with Cluster(topics={TOPIC: 1}) as cluster:
        cluster.produce(TOPIC, ["a"])
        with ShareConsumer(
            TOPIC,
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="workers",
            start="earliest",
            client_id="one",
        ) as member:
            while not member.poll(timeout_ms=1_000):
                pass
            registry = CollectorRegistry()
            registry.register(Collector(member))
            labels = {"client_id": "one", "group_id": "workers"}
            assert registry.get_sample_value("kohort_records_consumed_total", labels) == 1
            assert "kohort_records_locked" in exposition(member)
        assert exposition(member) == ""
