"""Scripts that ran on Apache Kafka 4.4.0, repeated on the cluster: equal ranges, codes and records.

Each step of a trace has its time, what was asked and what Kafka answered. The cluster runs on a
virtual clock, so seconds of locks cost nothing.
"""

from __future__ import annotations

import json
import struct
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import anyio
import pytest

from kohort.broker.log import Marker
from kohort.protocol import decode
from kohort.protocol import messages as m
from kohort.records import NewRecord, encode_batch
from kohort.testing import MemoryCluster
from tests.broker.share.members import SHARE_STATE, Connection, Member, ack_codes
from tests.support.virtual import run_virtual

CONFIGS = {
    "share.coordinator.state.topic.num.partitions": 1,
    "share.coordinator.snapshot.update.records.per.snapshot": 25,
    "group.share.min.record.lock.duration.ms": 1000,
    "group.share.min.session.timeout.ms": 1000,
    "group.share.min.heartbeat.interval.ms": 100,
    "errors.deadletterqueue.auto.create.topics.enable": "true",
}

Step = dict[str, Any]

NOT_CACHED = "Batch record not found. The request batch offsets are not found in the cache."
NOT_HERE = "This server does not host this topic-partition."
PAST = "Batch record not found. The first offset in request is past acquired records."

# Where this cluster is not Kafka: (trace, number of the step) -> the result of this cluster.
DIFFERENCES: dict[tuple[str, int], Any] = {
    # Kafka's handler crashes there and answers -1.
    ("ack1", 12): {"error": 0, "parts": [[0, 42, PAST]]},
    ("ack1", 13): {"error": 0, "parts": [[0, 121, NOT_CACHED]]},
    # Kafka has begun to load partition 1 by the fetch before.
    ("sess1", 16): {"error": 0, "parts": [[0, 0, None], [1, 3, NOT_HERE]]},
}
PLACES_DIFFER = {"life1": 19}
"""Trace -> first step in which the order of Java's hashes decides who gets which partitions."""
PARKED = {
    ("wake1", 3): 1.008,
    ("wake1", 5): 0.437,
    ("wake1", 8): 0.011,
    ("wake1", 13): 1.078,
}
"""Fetches that waited beside other steps -> how long they took"""
READ_BYTES = {"compact1": 250}
"""Trace -> bytes of a read, where Kafka's ended with a segment"""
LASTS = {"wake1": 15}
"""Trace -> number of steps that do not depend on how fast Kafka ends locks one by one"""
DISCONNECTED = {("sess1", 15): "B", ("wake1", 21): "A"}
"""Steps before which the connection of a member ends"""


@cache
def traces() -> dict[str, dict[str, Any]]:
    path = Path(__file__).parents[2] / "data" / "share_traces.json"
    return {trace["trace"]: trace for trace in json.loads(path.read_text())["traces"]}


class Replay:
    """One trace on one cluster."""

    def __init__(self, cluster: MemoryCluster, trace: dict[str, Any]) -> None:
        self.cluster = cluster
        self.name: str = trace["trace"]
        self.trace = trace
        self.members: dict[str, Member] = {}
        self.started = 0.0
        self.sequence = 0
        self.parked: dict[int, Any] = {}
        self.ended: dict[int, anyio.Event] = defaultdict(anyio.Event)

    async def run(self) -> None:
        configs = {
            name: value for name, value in self.trace["group_configs"].items() if value is not None
        }
        self.cluster._call(lambda server: server.state.configs.groups.change(self.name, configs))
        if self.name != "life1":
            await self.member("A").join()
            self.started = anyio.current_time() - self.trace["steps"][0]["t"]
        else:
            await Connection(self.cluster).ask(
                m.FindCoordinatorRequest(key_type=0, coordinator_keys=[self.name]), 4
            )
        if self.name not in LASTS:
            await self.take_all()
            return
        async with anyio.create_task_group() as tasks:
            for (name, number), lasts in PARKED.items():
                if name == self.name:
                    tasks.start_soon(self.fetch_in_background, number, lasts)
            await self.take_all()

    async def take_all(self) -> None:
        for number, step in enumerate(self.trace["steps"][: LASTS.get(self.name)]):
            await self.take(number, step)

    def member(self, name: str) -> Member:
        if name not in self.members:
            member = self.members[name] = Member(self.cluster, self.name, name, self.name)
            member.topic_id = self.cluster._call(
                lambda server: server.state.topics.get(self.name).id  # type: ignore[union-attr]
            )
        return self.members[name]

    async def until(self, seconds: float) -> None:
        await anyio.sleep(max(0.0, self.started + seconds - anyio.current_time()))

    async def take(self, number: int, step: Step) -> None:
        if (self.name, number) in DISCONNECTED:
            member = self.members[DISCONNECTED[self.name, number]]
            await member.disconnect()
        if (self.name, number) in BEFORE:
            await BEFORE[self.name, number](self)
        handler = getattr(self, f"on_{step['op'].partition(' ')[0]}")
        if step["op"] not in ("fetch", "persisted", "dlq_records"):
            await self.until(step["t"])
        got = await handler(step)
        expected = DIFFERENCES.get((self.name, number), step.get("result"))
        if got is not None:
            wanted = _normal(expected)
            if number >= PLACES_DIFFER.get(self.name, 1 << 30):
                got.pop("assignment", None)
                wanted.pop("assignment", None)
            assert got == wanted, (number, step)

    async def fetch_in_background(self, number: int, lasts: float) -> None:
        """Send a fetch that waits beside other steps, and keep its result."""
        step = self.trace["steps"][number]
        arg = step["arg"]
        await self.until(step["t"] - lasts)
        response = await self.member(arg["member"]).fetch(wait_ms=arg["max_wait_ms"])
        self.parked[number] = _fetched(response)
        self.ended[number].set()

    async def on_parked_fetch(self, step: Step) -> Any:
        number = self.trace["steps"].index(step)
        await self.ended[number].wait()
        (entry,) = step["result"]["result"]
        assert self.parked[number] == [{"partition": entry["p"], "acquired": entry["acq"]}]

    async def on_broker_stopped(self, step: Step) -> None:
        self.cluster.kill_broker(1)
        for member in self.members.values():
            await member.disconnect()

    async def on_broker_started(self, step: Step) -> None:
        self.cluster.start_broker(1)

    async def on_x(self, step: Step) -> None:
        """Do nothing: the fetch of another member that waited is not in the trace."""

    async def on_assigned(self, step: Step) -> None:
        pass

    async def on_left(self, step: Step) -> None:
        """Do nothing: the log was compacted before."""

    async def on_sleep(self, step: Step) -> None:
        await anyio.sleep(step["arg"])

    async def on_produce(self, step: Step) -> None:
        arg = step["arg"]
        if isinstance(arg, dict):
            self.append(arg["partition"], arg["records"])

    def append(self, partition: int, count: int, **options: Any) -> None:
        records = [NewRecord(0, b"kk", b"p%d" % number) for number in range(count)]
        batch = encode_batch(records, **options)
        self.cluster._append(self.name, partition, batch)

    async def on_fetch(self, step: Step) -> Any:
        arg, result = step["arg"], step["result"]
        member = self.member(arg["member"])
        if result and result[0] == "ERR":
            listed = [0]
        else:
            listed = [data["partition"] for data in result] or [0]
        wait = arg.get("wait", 500)
        has_data = result and result[0] != "ERR" and any(each.get("acquired") for each in result)
        lasts = 0.02 if has_data or (result and result[0] == "ERR") else wait / 1000
        await self.until(step["t"] - lasts)
        response = await member.fetch(
            _acks(arg["acks"]),
            epoch=arg.get("epoch"),
            partitions=listed,
            max_records=arg.get("max_records", 500),
            batch_size=arg.get("batch", 500),
            wait_ms=wait,
            min_bytes=arg.get("minb", 1),
            max_bytes=READ_BYTES.get(self.name, arg.get("maxb", 50 << 20)),
            mode=arg.get("mode", 0),
            renew=arg.get("renew", False),
        )
        return _fetched(response)

    async def on_ack(self, step: Step) -> Any:
        arg = step["arg"]
        response = await self.member(arg["member"]).acknowledge(
            _acks(arg["acks"]),
            epoch=arg.get("epoch"),
            renew=arg.get("renew", False),
            version=arg.get("version", 2),
        )
        return {
            "error": response.error_code,
            "parts": sorted([number, *found] for number, found in ack_codes(response).items()),
        }

    async def on_hb(self, step: Step) -> Any:
        arg, result = step["arg"], step["result"]
        if isinstance(arg, str):
            arg = (
                {"member": arg[0], "epoch": 0, "topics": [self.name]}
                if "joins" in arg
                else {"member": arg}
            )
        member = self.member(arg["member"])
        response = await member.heartbeat(
            epoch=arg.get("epoch"), topics=arg.get("topics"), rack=arg.get("rack")
        )
        if "memberEpoch" not in result:
            found: dict[str, Any] = {"error": response.error_code}
            if "msg" in result:
                found["msg"] = response.error_message
            if "epoch" in result:
                found["epoch"] = response.member_epoch
            return found
        return _heartbeat(response)

    async def on_leave(self, step: Step) -> None:
        await self.member(step["arg"]).heartbeat(epoch=-1)

    async def on_delete_records(self, step: Step) -> None:
        cls = m.DeleteRecordsRequest
        topic = cls.DeleteRecordsTopic(
            name=self.name,
            partitions=[cls.DeleteRecordsPartition(partition_index=0, offset=step["arg"])],
        )
        await Connection(self.cluster).ask(cls(topics=[topic], timeout_ms=1000), 2)

    async def on_create_partitions(self, step: Step) -> None:
        self.cluster.add_partitions(self.name, step["arg"])

    async def on_delete_topic(self, step: Step) -> None:
        self.cluster.delete_topic(self.name)

    async def on_disconnect(self, step: Step) -> None:
        await self.member(step["arg"]).disconnect()

    async def on_describe(self, step: Step) -> Any:
        request = m.ShareGroupDescribeRequest(group_ids=[self.name])
        (group,) = (await Connection(self.cluster).ask(request, 1)).groups
        return {
            "state": group.group_state,
            "epoch": group.group_epoch,
            "members": len(group.members),
        }

    async def on_txn(self, step: Step) -> None:
        verb, _, count = step["arg"].partition(" ")
        if count:
            self.append(
                0,
                int(count),
                producer_id=7,
                producer_epoch=0,
                base_sequence=self.sequence,
                transactional=True,
            )
            self.sequence += int(count)
        partition = self.cluster._read(lambda state: state.topics.partition(self.name, 0))
        assert partition is not None
        if verb != "open":
            marker = Marker(7, 0, committed=verb == "commit", coordinator_epoch=0)
            self.cluster._read(
                lambda state: state.transaction_router.write_marker(partition, marker)
            )

    async def on_dlq_records(self, step: Step) -> None:
        name = self.trace["group_configs"]["errors.deadletterqueue.topic.name"]
        written = [
            {
                "partition": record.partition,
                "offset": record.offset,
                "key_hex": None if record.key is None else record.key.hex(),
                "value_hex": None if record.value is None else record.value.hex(),
                "headers": [[header, (value or b"").decode()] for header, value in record.headers],
            }
            for record in self.cluster.records(name)
        ]
        expected = [{**record} for record in step["records"]]
        for record in expected:
            del record["timestamp"]
        assert written == expected

    async def on_persisted(self, step: Step) -> Any:
        found = [{"type": kind, "value": value} for kind, value in stored(self.cluster)]
        assert found == [_without_times(record) for record in step["records"]]


async def _b_joins(replay: Replay) -> None:
    await replay.until(3.1)
    await replay.member("B").heartbeat(epoch=0, topics=[replay.name])


async def _partitions_grow(replay: Replay) -> None:
    replay.cluster.add_partitions(replay.name, 2)
    assert (await replay.member("A").heartbeat()).member_epoch == 4


async def _two_aborted(replay: Replay) -> None:
    await replay.on_txn({"arg": "abort 2"})


async def _alter_start(replay: Replay) -> None:
    cls = m.AlterShareGroupOffsetsRequest
    partition = cls.AlterShareGroupOffsetsRequestPartition
    topic = cls.AlterShareGroupOffsetsRequestTopic
    topics = [
        topic(
            topic_name=replay.name,
            partitions=[
                partition(partition_index=0, start_offset=7),
                partition(partition_index=9, start_offset=1),
            ],
        ),
        topic(topic_name="nope", partitions=[partition(partition_index=0, start_offset=7)]),
    ]
    response = await Connection(replay.cluster).ask(cls(group_id=replay.name, topics=topics), 0)
    assert response.error_code == 0
    codes = [[each.error_code for each in topic.partitions] for topic in response.responses]
    assert codes == [[0, 3], [3]]


async def _delete_starts(replay: Replay) -> None:
    cls = m.DeleteShareGroupOffsetsRequest
    topic = cls.DeleteShareGroupOffsetsRequestTopic
    topics = [topic(topic_name=replay.name), topic(topic_name="nope")]
    response = await Connection(replay.cluster).ask(cls(group_id=replay.name, topics=topics), 0)
    assert [topic.error_code for topic in response.responses] == [0, 3]


async def _delete_group(replay: Replay) -> None:
    request = m.DeleteGroupsRequest(groups_names=[replay.name])
    response = await Connection(replay.cluster).ask(request, 2)
    assert response.results[0].error_code == 0


async def _keys(replay: Replay) -> None:
    for keys in ("abc", "adb", "caa", "bc", "x"):
        records = [NewRecord(0, key.encode(), b"v") for key in keys]
        replay.cluster._append(replay.name, 0, encode_batch(records))
    topic = replay.cluster._read(lambda state: state.topics.get(replay.name))
    assert topic is not None
    topic.configs["cleanup.policy"] = "compact"
    replay.cluster.compact(replay.name)
    assert [each.offset for each in replay.cluster.records(replay.name)] == [4, 8, 9, 10, 11]


async def _six(replay: Replay) -> None:
    replay.append(0, 6)


async def _plain_topic(replay: Replay) -> None:
    replay.cluster.create_topic("dlq.two", 1)


async def _letter_topic(replay: Replay) -> None:
    topic = replay.cluster._read(lambda state: state.topics.get("dlq.two"))
    assert topic is not None
    topic.configs["errors.deadletterqueue.group.enable"] = "true"


BEFORE = {
    ("dlq1", 0): _six,
    ("dlq2", 0): _plain_topic,
    ("dlq2", 4): _letter_topic,
    ("txn2", 0): _two_aborted,
    ("life1", 35): _alter_start,
    ("life1", 36): _delete_starts,
    ("life1", 37): _delete_group,
    ("compact1", 1): _keys,
    ("expire1", 3): _b_joins,
    ("init1", 4): _partitions_grow,
}
"""What happened between two steps"""


def stored(cluster: MemoryCluster) -> list[tuple[int, Any]]:
    """Return type and value of each record of ``__share_group_state``."""
    found = []
    for record in cluster.records(SHARE_STATE):
        assert record.key is not None
        (kind,) = struct.unpack_from(">h", record.key)
        value = None
        if record.value is not None:
            cls = (m.ShareSnapshotValue, m.ShareUpdateValue)[kind]
            value = _plain(decode(cls, 0, bytes(record.value)[2:]))
        found.append((kind, value))
    return found


def _plain(value: Any) -> dict[str, Any]:
    plain = {
        "snapshotEpoch": value.snapshot_epoch,
        "leaderEpoch": value.leader_epoch,
        "startOffset": value.start_offset,
        "stateBatches": [
            [each.first_offset, each.last_offset, each.delivery_state, each.delivery_count]
            for each in value.state_batches
        ],
    }
    if value.delivery_complete_count != -1:
        plain["deliveryCompleteCount"] = value.delivery_complete_count
    if isinstance(value, m.ShareSnapshotValue):
        plain["stateEpoch"] = value.state_epoch
    return plain


def _without_times(record: Mapping[str, Any]) -> dict[str, Any]:
    value = record["value"]
    if value is not None:
        value = {name: each for name, each in value.items() if not name.endswith("Timestamp")}
        value["stateBatches"] = [
            [each["firstOffset"], each["lastOffset"], each["deliveryState"], each["deliveryCount"]]
            for each in value["stateBatches"]
        ]
    return {"type": record["type"], "value": value}


def _heartbeat(response: m.ShareGroupHeartbeatResponse) -> dict[str, Any]:
    found: dict[str, Any] = {
        "errorCode": response.error_code,
        "memberEpoch": response.member_epoch,
    }
    if response.error_message is not None:
        found["errorMessage"] = response.error_message
    if response.member_id is not None:
        found["memberId"] = response.member_id
    if response.heartbeat_interval_ms:
        found["heartbeatIntervalMs"] = response.heartbeat_interval_ms
    if response.assignment is not None:
        found["assignment"] = [
            len(each.partitions) for each in response.assignment.topic_partitions
        ]
    return found


def _acks(given: Mapping[str, Any] | None) -> dict[int, Any]:
    return {int(partition): batches for partition, batches in (given or {}).items()}


def _fetched(response: m.ShareFetchResponse) -> Any:
    if response.error_code:
        return ["ERR", response.error_code]
    found = []
    for topic in response.responses:
        for data in topic.partitions:
            entry: dict[str, Any] = {"partition": data.partition_index}
            if data.error_code:
                entry["error"] = data.error_code
            if data.acquired_records:
                entry["acquired"] = [
                    [each.first_offset, each.last_offset, each.delivery_count]
                    for each in data.acquired_records
                ]
            found.append(entry)
    return sorted(found, key=lambda entry: entry["partition"])


def _normal(result: Any) -> Any:
    """Return a recorded result in the form in which the cluster's are compared."""
    if isinstance(result, list):
        if result and result[0] == "ERR":
            return result[:2]
        keep = ("partition", "error", "acquired")
        return sorted(
            ({name: each[name] for name in keep if name in each} for each in result),
            key=lambda entry: entry["partition"],
        )
    if isinstance(result, dict) and result.get("assignment") is not None:
        topics = result["assignment"]["topicPartitions"]
        return {**result, "assignment": [len(each["partitions"]) for each in topics]}
    if isinstance(result, dict) and "parts" in result:
        return {"error": result["error"], "parts": sorted(result["parts"])}
    return result


SCRIPTED = (
    *("ack1", "own1", "exp1", "renew1", "renew2", "mode1", "mode2", "thr1", "sess1", "lock1"),
    *("txn1", "del1", "tdel1", "init1", "expire1", "life1", "wake1", "rst1", "txn2", "defl1"),
    *("compact1", "dlq1", "dlq2", "dlq3"),
)


@pytest.mark.cases
@pytest.mark.parametrize("name", SCRIPTED)
def test_a_trace_has_the_results_of_apache_kafka(name: str) -> None:
    trace = traces()[name]

    async def main() -> None:
        topics = {name: trace["partitions"]}
        async with MemoryCluster(topics=topics, configs=CONFIGS) as cluster:
            await Replay(cluster, trace).run()

    run_virtual(main)
