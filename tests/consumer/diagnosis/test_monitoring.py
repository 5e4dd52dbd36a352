"""The consumer's lag(), metrics(), on_stats and explain()."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from pathlib import Path
from typing import Any, get_args, get_type_hints, is_typeddict

import anyio
import pytest

from kohort import (
    AsyncKafkaConsumer,
    ExplanationFacts,
    KafkaConsumer,
    MetricSample,
    TopicPartition,
)
from kohort.errors import CorruptBatchError, ErrorCode, KafkaError
from kohort.protocol.messages import FetchResponse
from kohort.testing import Call, Cluster, MemoryCluster
from tests.consumer.conftest import MakeConsumer
from tests.consumer.kit import Recorder, poll_until, read
from tests.consumer.virtual import (
    EACH_PROTOCOL,
    HEARTBEATS,
    ClassicConsumer,
    MemoryConsumer,
    poll_for,
    polled,
    values,
)
from tests.support.net import free_ports
from tests.support.virtual import run_virtual

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "metrics.md"


def test_lag_is_what_is_left_to_read(
    cluster: Cluster, topic: str, group: str, make: MakeConsumer
) -> None:
    tp, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    cluster.produce(topic, [b"%d" % n for n in range(10)], partition=0)
    consumer = make(topic, group_id=group, max_poll_records=4)
    assert consumer.lag() == {}
    read(consumer, 4)
    poll_until(consumer, lambda: consumer.lag()[other] == 0)
    assert consumer.lag()[tp] in (6, 2, 0)
    while consumer.lag()[tp]:
        consumer.poll(100)
    assert consumer.lag() == {tp: 0, other: 0}
    assert consumer.position(tp) == 10


def test_metrics_page_lists_every_metric_and_no_others(
    cluster: Cluster, topic: str, group: str, make: MakeConsumer
) -> None:
    cluster.produce(topic, [b"a"], partition=0)
    consumer = make(topic, group_id=group)
    read(consumer, 1)
    consumer.commit()
    poll_until(consumer, lambda: all(lag is not None for lag in consumer.lag().values()))
    figures = consumer.metrics()
    assert figures is not None
    text = PAGE.read_text().partition("## Share consumers")[0]
    shown = re.findall(r"^\| `([a-z.-]+)` \| `([a-z-]+)` \|", text, re.MULTILINE)
    suffix = re.compile(rf"\.{topic}-[01]$")
    there = {(suffix.sub(".topic-partition", g), name) for g in figures for name in figures[g]}
    assert there == set(shown)
    assert len(shown) == len(set(shown))
    coordinating = figures["consumer-coordinator-metrics"]
    assert coordinating["commit-total"] >= 1
    assert coordinating["rebalance-total"] == 1
    assert coordinating["assigned-partitions"] == 2
    assert figures["consumer-fetch-manager-metrics"]["records-consumed-total"] == 1


def test_samples_are_the_figures_with_their_labels() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"a-b": 2}) as cluster:
            cluster.produce("a-b", ["x"] * 5, partition=1)
            async with MemoryConsumer(
                cluster, "a-b", group_id="g", client_id="c", max_poll_records=2
            ) as consumer:
                await values(consumer, 2)
                figures, samples = consumer.metrics(), consumer.metric_samples()
                assert figures is not None
                own = {"client_id": "c", "group_id": "g"}
                lag = own | {"topic": "a-b", "partition": "1"}
                assert MetricSample("records-lag", lag, 3.0) in samples
                assert MetricSample("records-consumed-total", own, 2.0) in samples
                assert sum(map(len, figures.values())) == len(samples)
                assert {name for name, _, _ in samples} == {
                    name for group in figures.values() for name in group
                }
                keys = {(name, *sorted(labels.items())) for name, labels, _ in samples}
                assert len(keys) == len(samples)

    run_virtual(main)


def test_samples_have_no_group_without_one(make: MakeConsumer) -> None:
    [*samples] = make(bootstrap_servers="localhost:1", client_id="c").metric_samples()
    assert samples
    assert all(each.labels == {"client_id": "c"} for each in samples)
    assert make(bootstrap_servers="localhost:1", metrics_enabled=False).metric_samples() == []


def test_the_page_lists_every_key_of_the_explanation(make: MakeConsumer) -> None:
    sections: dict[str, set[str]] = {"": set()}
    for key, kind in get_type_hints(ExplanationFacts).items():
        typed = [part for part in (kind, *get_args(kind)) if is_typeddict(part)]
        if typed:
            sections[key] = set(get_type_hints(typed[0]))
        else:
            sections[""].add(key)
    page = (PAGE.parents[1] / "monitoring.md").read_text()
    block = page.partition("the keys below it:\n\n```text\n")[2].partition("```")[0]
    shown: dict[str, set[str]] = {}
    for line in block.replace("\n    ", " ").splitlines():
        section, _, keys = line.rpartition(": ")
        shown[section] = set(keys.split(", "))
    assert shown == sections
    facts = make(bootstrap_servers="localhost:1", group_id="g").explain().as_dict()
    assert facts.keys() == get_type_hints(ExplanationFacts).keys()


@EACH_PROTOCOL
def test_figures_over_time() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:
            cluster.produce("t", ["a"] * 5)
            produced_at = int(cluster.wall_clock() * 1000) / 1000
            async with MemoryConsumer(
                cluster, "t", max_poll_records=2, wall_clock=cluster.wall_clock
            ) as consumer:
                await values(consumer, 2)
                await anyio.sleep(7)
                figures = consumer.metrics()
                assert figures is not None
                age = cluster.wall_clock() - produced_at
                assert figures["consumer-metrics"]["last-poll-seconds-ago"] == pytest.approx(7)
                assert figures["consumer-fetch-manager-metrics"]["records-lag-max"] == 3
                part = figures["consumer-fetch-manager-metrics.t-0"]
                assert part == {"records-lag": 3, "records-lead": 2, "lag-seconds": age}
                await consumer.poll()
                group = consumer.metrics() or {}
                assert group["consumer-metrics"]["time-between-poll-max"] == pytest.approx(7000)
                assert group["consumer-coordinator-metrics"]["heartbeat-total"] >= 2
                with cluster.fail("OffsetCommit", ErrorCode.OFFSET_METADATA_TOO_LARGE):
                    with pytest.raises(KafkaError):
                        await consumer.commit()
                group = consumer.metrics() or {}
                assert group["consumer-coordinator-metrics"]["commit-failed-total"] == 1
                assert "OffsetMetadataTooLarge" in str(consumer.explain())

    run_virtual(main)


def test_an_open_transaction_is_not_the_end_of_the_log() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:

            async def undecided(call: Call) -> None:
                answer = await call.proceed()
                assert isinstance(answer, FetchResponse)
                for part in answer.responses[0].partitions:
                    part.last_stable_offset, part.records = 0, b""

            cluster.produce("t", ["a", "b"])
            cluster.on("Fetch", undecided)
            options: dict[str, Any] = {"isolation_level": "read_committed"}
            async with MemoryConsumer(cluster, "t", **options) as consumer:
                await poll_for(consumer, lambda: "open transaction" in str(consumer.explain()))
                (reason,) = consumer.explain().reasons
                assert reason == "t-0: 2 offsets wait for the end of an open transaction"

    run_virtual(main)


def test_read_committed_lags_behind_what_is_decided() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:
            cluster.produce("t", ["a"])
            options: dict[str, Any] = {"isolation_level": "read_committed"}
            async with MemoryConsumer(cluster, "t", **options) as consumer:
                await values(consumer, 1)
                assert consumer.lag() == {TopicPartition("t", 0): 0}

    run_virtual(main)


def test_on_stats_is_called_inside_of_poll_on_the_callers_thread(
    cluster: Cluster, topic: str, group: str, make: MakeConsumer, caplog: pytest.LogCaptureFixture
) -> None:
    def hook(figures: dict[str, Any]) -> None:
        seen.append((threading.current_thread(), figures))
        raise ValueError("a defect of the hook's")

    seen: list[tuple[threading.Thread, dict[str, Any]]] = []
    consumer = make(topic, group_id=group, on_stats=hook, stats_interval_ms=20)
    poll_until(consumer, lambda: len(seen) >= 2)
    assert {thread for thread, _ in seen} == {threading.current_thread()}
    assert "consumer-metrics" in seen[0][1]
    assert "on_stats raised" in caplog.text
    consumer.close()


def test_ctrl_c_inside_of_on_stats_ends_no_more_than_the_poll(
    cluster: Cluster, topic: str, group: str, make: MakeConsumer
) -> None:
    def hook(figures: dict[str, Any]) -> None:
        seen.append(figures)
        if len(seen) == 1:
            raise KeyboardInterrupt

    seen: list[dict[str, Any]] = []
    consumer = make(topic, group_id=group, on_stats=hook, stats_interval_ms=20)
    with pytest.raises(KeyboardInterrupt):
        poll_until(consumer, lambda: False)
    poll_until(consumer, lambda: len(seen) >= 3)
    consumer.close()
    assert not cluster.group(group).members


def test_on_stats_of_the_async_face() -> None:
    seen: list[dict[str, Any]] = []

    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:
            options: dict[str, Any] = {"on_stats": seen.append, "stats_interval_ms": 10_000}
            async with MemoryConsumer(cluster, "t", **options) as consumer, polled(consumer):
                await anyio.sleep(35)
        assert len(seen) == 3

    run_virtual(main)


# -- explain() -------------------------------------------------------------------------------------


def test_before_the_start_and_after_the_end(topic: str, options: dict[str, Any]) -> None:
    for consumer_class in (KafkaConsumer, AsyncKafkaConsumer):
        consumer = consumer_class("t", group_id="g", **options)
        (reason,) = consumer.explain().reasons
        assert "not started" in reason
        json.dumps(consumer.explain().as_dict())
    sync = KafkaConsumer("t", group_id="g", **options)
    sync.close()
    assert "closed" in str(sync.explain())

    async def used() -> AsyncKafkaConsumer:
        async with AsyncKafkaConsumer(topic, **options) as consumer:
            await consumer.poll(timeout_ms=100)
        return consumer

    stopped = asyncio.run(used())
    assert "closed" in str(stopped.explain())
    assert stopped.metrics() is not None


def test_nobody_is_there(make: MakeConsumer) -> None:
    consumer = make("t", bootstrap_servers=f"127.0.0.1:{free_ports(1)[0]}")
    consumer.poll()
    assert any("no broker was reached" in reason for reason in consumer.explain().reasons)


@EACH_PROTOCOL
def test_why_nothing_comes() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 1, "two": 2}, auto_create_topics=False) as cluster:
            async with MemoryConsumer(cluster, allow_auto_create_topics=False) as consumer:
                tp = TopicPartition("t", 0)

                def why() -> str:
                    explanation = consumer.explain()
                    json.dumps(explanation.as_dict())
                    assert all(reason in str(explanation) for reason in explanation.reasons)
                    return "; ".join(explanation.reasons)

                assert "nothing is subscribed to" in why()
                consumer.subscribe(["missing"])
                await poll_for(consumer, lambda: "no such topic" in why())
                await consumer.unsubscribe()
                consumer.subscribe(pattern="nothing-.*")
                await consumer.poll(timeout_ms=2000)
                assert "no topic matches the pattern nothing-.*" in why()
                await consumer.unsubscribe()
                consumer.subscribe(["t"])
                await poll_for(consumer, consumer.assignment)
                await poll_for(consumer, lambda: consumer.lag()[tp] == 0)
                assert "read to the end" in why()
                consumer.pause(tp)
                assert why() == "paused, resume() them: t-0"
                consumer.pause(tp, owner="billing")
                consumer.resume(tp)
                assert why() == "paused by billing: t-0"
                consumer.resume(tp, owner="billing")
                with cluster.fail("Fetch", ErrorCode.TOPIC_AUTHORIZATION_FAILED, times=None):
                    await poll_for(consumer, lambda: "TopicAuthorizationFailed" in why())

    run_virtual(main)


def test_explain_names_the_wait_for_poll_and_the_reason() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:
            cluster.produce("t", ["a"])
            async with ClassicConsumer(cluster, "t") as consumer:
                await values(consumer, 1)
                consumer.enforce_rebalance("a test")
                await anyio.sleep(1)
                reasons = "; ".join(consumer.explain().reasons)
                assert "a rebalance waits for poll(), which was last called" in reasons
                await poll_for(consumer, lambda: "reason: a test" in str(consumer.explain()))

    run_virtual(main)


@EACH_PROTOCOL
def test_explain_names_a_member_beyond_the_partitions() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:
            one, two = MemoryConsumer(cluster, "t"), MemoryConsumer(cluster, "t")
            async with one, polled(one), two, polled(two):
                await cluster.wait_until(lambda: len(cluster.group("g").members) == 2)
                await cluster.wait_until(lambda: cluster.group("g").is_stable)
                (idle,) = [each for each in (one, two) if not each.assignment()]
                assert "members and 1 partition" in "; ".join(idle.explain().reasons)

    run_virtual(main)


def test_explain_names_idle_member_and_wait_for_other_members() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:
            one = ClassicConsumer(cluster, "t")
            listener = Recorder()
            two = ClassicConsumer(cluster)
            two.subscribe(["t"], listener=listener)
            async with one, polled(one), two, polled(two):
                await cluster.wait_until(lambda: len(cluster.group("g").members) == 2)
                await cluster.wait_until(lambda: "assigned" in listener.names)
                (idle,) = [each for each in (one, two) if not each.assignment()]
                assert "members and 1 partition" in "; ".join(idle.explain().reasons)
                with cluster.hang("JoinGroup"):
                    two.enforce_rebalance()
                    await cluster.wait_until(
                        lambda: "waits for the other members" in str(two.explain()), 30
                    )

    run_virtual(main)


@pytest.mark.parametrize(
    ("protocol", "api", "words"),
    [
        ("classic", "FindCoordinator", "being looked for: "),
        ("classic", "JoinGroup", "cannot be joined yet: JoinGroup returned "),
        ("consumer", "FindCoordinator", "being looked for: "),
        (
            "consumer",
            "ConsumerGroupHeartbeat",
            "cannot be joined yet: ConsumerGroupHeartbeat returned ",
        ),
    ],
)
def test_what_is_tried_again_in_silence_can_be_seen(protocol: str, api: str, words: str) -> None:
    words += "COORDINATOR_LOAD_IN_PROGRESS"

    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:
            async with MemoryConsumer(cluster, group_protocol=protocol) as consumer:
                with cluster.fail(api, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=None):
                    consumer.subscribe(["t"])
                    await poll_for(consumer, lambda: words in str(consumer.explain()), 10)
                await poll_for(consumer, consumer.assignment)
                assert words not in str(consumer.explain())

    run_virtual(main)


def test_explain_names_an_unreadable_record_until_seek_passes_it() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:
            tp = TopicPartition("t", 0)
            cluster.produce("t", ["bad"])
            cluster.produce("t", ["good"])
            cluster.corrupt(tp, 0)
            async with MemoryConsumer(cluster, "t") as consumer:
                with pytest.raises(CorruptBatchError):
                    await consumer.poll(timeout_ms=5000)
                (reason,) = consumer.explain().reasons
                assert reason.startswith("t-0: CorruptBatchError: ")
                consumer.seek(tp, 1)
                assert await values(consumer, 1) == [b"good"]
                await poll_for(consumer, lambda: "read to the end" in str(consumer.explain()))
                assert "Corrupt" not in str(consumer.explain())

    run_virtual(main)


def test_explain_does_not_name_log_end_while_brokers_are_silent() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:
            async with MemoryConsumer(cluster, "t") as consumer:

                def why() -> str:
                    return "; ".join(consumer.explain().reasons)

                await poll_for(consumer, lambda: "read to the end" in why())
                with cluster.hang("Fetch"):
                    await poll_for(consumer, lambda: "read to the end" not in why())
                    assert "broker 1 has not responded to a fetch that was sent" in why()
                await poll_for(consumer, lambda: "read to the end" in why())
                cluster.kill_broker(1)
                await consumer.poll(timeout_ms=5000)
                assert "read to the end" not in why()
                assert "t-0: KafkaConnectionError: " in why()
                cluster.start_broker(1)
                await poll_for(consumer, lambda: "read to the end" in why())

    run_virtual(main)


def test_explain_advises_a_fenced_member_to_subscribe_again(
    each_protocol: str,
) -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:
            async with MemoryConsumer(cluster, "t", group_instance_id="one") as consumer:
                with cluster.fail(HEARTBEATS[each_protocol], ErrorCode.FENCED_INSTANCE_ID):
                    assert await poll_for(consumer, lambda: not consumer.assignment())
                (reason,) = consumer.explain().reasons
                assert "was fenced, call subscribe() to join again" in reason
                consumer.subscribe(["t"])
                await poll_for(consumer, consumer.assignment)

    run_virtual(main)


@EACH_PROTOCOL
def test_explain_of_a_closed_consumer_keeps_its_rebalances() -> None:
    async def main() -> None:
        async with MemoryCluster(topics={"t": 1}) as cluster:
            async with MemoryConsumer(cluster, "t") as consumer:
                await poll_for(consumer, consumer.assignment)
        assert re.search("generation [12]", str(consumer.explain()))
        assert "never" not in str(consumer.explain())

    run_virtual(main)
