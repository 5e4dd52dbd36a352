"""kohort's admin client on Apache Kafka: groups and offsets as Kafka's own tool shows them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple

import pytest

from kohort import (
    KafkaAdminClient,
    KafkaConsumer,
    OffsetAndMetadata,
    ShareConsumer,
    ShareRecord,
    TopicPartition,
)
from kohort.admin import ConfigResource, MemberToRemove, NewTopic, OffsetSpec, PartitionDescription
from kohort.errors import (
    GroupHasMembersError,
    GroupIdNotFoundError,
    KafkaTimeoutError,
    OffsetOutOfRangeError,
    OffsetsChangedError,
    TopicAlreadyExistsError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)
from tests.interop.brokers import Broker
from tests.interop.producers import with_confluent
from tests.interop.waiting import wait_until
from tests.support.kafka_server import KafkaServer

pytestmark = pytest.mark.real_kafka
SHARE_COMMAND = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
GROUP_COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
PARTITIONS, RECORDS = 2, 10


class Seen(NamedTuple):
    """A partition of a group, with the columns of Kafka's tool."""

    offset: str
    end: str
    lag: str
    client_id: str


class Groups(NamedTuple):
    """Groups of each kind, and the topic that they read."""

    topic: str
    names: dict[str, str]
    members: dict[str, KafkaConsumer]


@pytest.fixture
def admin(kafka: KafkaServer) -> Iterator[KafkaAdminClient]:
    with KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers) as admin:
        yield admin


@pytest.fixture
def groups(kafka: KafkaServer) -> Iterator[Groups]:
    """Ten groups: with members and empty, by both protocols, with and without lag."""
    stamp = time.time_ns()
    topic = kafka.create_topic(f"admin-{stamp}", PARTITIONS)
    for number in range(PARTITIONS):
        pairs = [(b"k", b"%d" % n) for n in range(RECORDS)]
        with_confluent(kafka.bootstrap_servers, topic, number, "none", pairs, idempotent="true")
    names: dict[str, str] = {}
    members: dict[str, KafkaConsumer] = {}
    with ExitStack() as stack:
        for protocol in ("classic", "consumer"):
            for kind in ("live", "live-behind", "empty", "empty-behind"):
                name = f"{protocol}-{kind}-{stamp}"
                names[f"{protocol} {kind}"] = name
                member = stack.enter_context(_member(kafka, topic, name, protocol))
                _commit(member, topic, 4 if "behind" in kind else RECORDS)
                if "live" in kind:
                    members[name] = member
                else:
                    member.close()
        outside = stack.enter_context(
            KafkaConsumer(bootstrap_servers=kafka.bootstrap_servers, group_id=f"outside-{stamp}")
        )
        outside.commit({TopicPartition(topic, 0): OffsetAndMetadata(3, "by hand")})
        names["offsets alone"] = f"outside-{stamp}"
        names["absent"] = f"absent-{stamp}"
        yield Groups(topic, names, members)


def _member(kafka: KafkaServer, topic: str, group: str, protocol: Any) -> KafkaConsumer:
    member = KafkaConsumer(
        topic,
        bootstrap_servers=kafka.bootstrap_servers,
        group_id=group,
        group_protocol=protocol,
        client_id=f"client-of-{protocol}",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    member.start()
    wait_until(lambda: member.poll(timeout_ms=100) is not None and len(member.assignment()) == 2)
    return member


def _commit(member: KafkaConsumer, topic: str, offset: int) -> None:
    tps = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    member.commit(dict.fromkeys(tps, offset))


def tables(output: str) -> list[dict[str, str]]:
    """Return the rows of the tables that ConsumerGroupCommand prints, by their headings."""
    rows: list[dict[str, str]] = []
    heading: list[str] = []
    for line in output.splitlines():
        words = line.split()
        if "GROUP" in words:
            heading = words
        elif heading and len(words) >= len(heading):
            rows.append(dict(zip(heading, words, strict=False)))
    return rows


def test_groups_are_those_of_kafkas_tool(
    kafka: KafkaServer, admin: KafkaAdminClient, groups: Groups
) -> None:
    names = groups.names
    server = ("--bootstrap-server", kafka.bootstrap_servers)
    existing = [name for kind, name in names.items() if kind != "absent"]
    every = [word for name in existing for word in ("--group", name)]

    listed = kafka.tool(GROUP_COMMAND, *server, "--list", "--state").stdout
    states = {
        row["GROUP"]: row["STATE"] for row in tables(listed) if row["GROUP"] in names.values()
    }
    found = admin.list_groups().raise_errors()
    assert {g.group_id: g.state for g in found if g.group_id in names.values()} == states
    assert len(states) == 9
    types = {g.group_id: g.type for g in found}
    for kind, name in names.items():
        if kind != "absent":
            assert types[name] == ("consumer" if kind.startswith("consumer") else "classic")

    done = kafka.tool(GROUP_COMMAND, *server, *every, "--describe")
    assert done.returncode == 0, done.stdout + done.stderr
    shown = done.stdout
    expected: dict[tuple[str, int], Seen] = {
        (row["GROUP"], int(row["PARTITION"])): Seen(
            row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"], row["CLIENT-ID"]
        )
        for row in tables(shown)
    }
    described = admin.describe_groups(names.values())
    lags = admin.group_lag(existing).raise_errors()
    seen: dict[tuple[str, int], Seen] = {}
    for name, lag in lags.items():
        assert lag.group == described[name]
        for tp, at in lag.partitions.raise_errors().items():
            seen[name, tp.partition] = Seen(
                "-" if at.committed is None else str(at.committed),
                str(at.end),
                "-" if at.records is None else str(at.records),
                "-" if at.owner is None else at.owner.client_id,
            )
            is_behind = bool(at.records)
            assert (at.seconds or 0) > 0 if is_behind else at.seconds == 0.0
            assert at.timestamp_type == ("CreateTime" if is_behind else None)
    assert seen == expected
    assert list(described.errors) == [names["absent"]]
    assert isinstance(described.errors[names["absent"]], GroupIdNotFoundError)


def test_offsets_of_logs_are_found_by_spec(
    kafka: KafkaServer, admin: KafkaAdminClient, groups: Groups
) -> None:
    tp = TopicPartition(groups.topic, 0)

    def found(spec: int) -> Any:
        at = admin.list_partition_offsets({tp: spec})[tp]
        return None if at is None else at.offset

    assert found(OffsetSpec.EARLIEST) == found(OffsetSpec.EARLIEST_LOCAL) == found(0) == 0
    assert found(OffsetSpec.LATEST) == RECORDS
    assert 0 <= found(OffsetSpec.MAX_TIMESTAMP) < RECORDS
    assert found(OffsetSpec.LATEST_TIERED) is None
    assert found(int(time.time() * 1000) + 3_600_000) is None


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.cases
def test_reset_and_undo_do_on_kafka_what_the_plan_says(
    kafka: KafkaServer, admin: KafkaAdminClient, groups: Groups, protocol: str
) -> None:
    group = groups.names[f"{protocol} empty-behind"]

    def offsets() -> dict[int, int]:
        found = admin.list_group_offsets(group)[group]
        return {tp.partition: at.offset for tp, at in found.items()}

    now = datetime.now(timezone(timedelta(hours=2)))
    for to, expected in (
        ("earliest", 0),
        ("latest", RECORDS),
        (7, 7),
        ("+2", 6),
        ("-1", 3),
        ("-2h", 0),
        (now + timedelta(hours=1), RECORDS),
        ({TopicPartition(groups.topic, n): 5 for n in range(PARTITIONS)}, 5),
    ):
        plan = admin.reset_group_offsets(group, to, plan=True)
        assert offsets() == {0: 4, 1: 4}
        admin.reset_group_offsets(group, plan)
        assert offsets() == {0: expected, 1: expected}
        admin.reset_group_offsets(group, plan.undo)
        assert offsets() == {0: 4, 1: 4}
    plan = admin.reset_group_offsets(group, "earliest", plan=True)
    admin.alter_group_offsets(group, {TopicPartition(groups.topic, 0): 2}).raise_errors()
    with pytest.raises(OffsetsChangedError):
        admin.reset_group_offsets(group, plan)
    live = groups.names[f"{protocol} live"]
    with pytest.raises(GroupHasMembersError, match=f"client-of-{protocol}"):
        admin.reset_group_offsets(live, "earliest")
    removed = admin.delete_group_offsets(group, [TopicPartition(groups.topic, 0)])
    assert list(removed.raise_errors()) == [TopicPartition(groups.topic, 0)]
    assert offsets() == {1: 4}
    deleted = admin.delete_groups([group, live])
    assert list(deleted) == [group]
    assert list(deleted.errors) == [live]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.cases
def test_removed_member_joins_kafka_again_as_a_new_one(
    admin: KafkaAdminClient, groups: Groups, protocol: str
) -> None:
    group = groups.names[f"{protocol} live"]
    before = admin.describe_groups(group)[group]
    [member] = before.members
    gone, nobody = MemberToRemove(member.member_id), MemberToRemove("nobody")
    found = admin.remove_group_members(group, [gone, nobody])
    assert dict(found) == {gone: None}
    assert isinstance(found.errors[nobody], UnknownMemberIdError)

    def is_new() -> bool:
        groups.members[group].poll(timeout_ms=100)
        after = admin.describe_groups(group)[group]
        if protocol == "classic":
            return after.members != () and after.members[0].member_id != member.member_id
        return bool(after.members) and (after.epoch or 0) > (before.epoch or 0)

    wait_until(is_new)


def test_records_are_deleted_and_topics_awaited_on_kafka(
    admin: KafkaAdminClient, groups: Groups
) -> None:
    one, two = (TopicPartition(groups.topic, number) for number in range(2))
    absent = TopicPartition("absent", 0)
    found = admin.delete_records({one: 4, two: RECORDS + 1, absent: 0})
    assert dict(found) == {one: 4}
    assert isinstance(found.errors[two], OffsetOutOfRangeError)
    assert isinstance(found.errors[absent], UnknownTopicOrPartitionError)
    assert dict(admin.delete_records({two: -1})) == {two: RECORDS}
    starts = admin.list_partition_offsets({one: OffsetSpec.EARLIEST, two: OffsetSpec.EARLIEST})
    assert [at and at.offset for at in starts.values()] == [4, RECORDS]
    name = f"awaited-{time.time_ns()}"
    with pytest.raises(KafkaTimeoutError, match=f"topic '{name}' does not exist"):
        admin.wait_for_topics([name], timeout_ms=200)
    admin.create_topics({name: 3}).raise_errors()
    admin.wait_for_topics([name, groups.topic])
    assert len(admin.describe_topics(name)[name].partitions) == 3


def test_start_offsets_of_a_share_group_on_kafka(
    kafka: KafkaServer, admin: KafkaAdminClient
) -> None:
    stamp = time.time_ns()
    group, topic = f"workers-{stamp}", kafka.create_topic(f"jobs-{stamp}")
    tp = TopicPartition(topic, 0)
    pairs = [(b"k", b"%d" % n) for n in range(RECORDS)]
    with_confluent(kafka.bootstrap_servers, topic, 0, "none", pairs, idempotent="true")

    def work() -> list[bytes | None]:
        """Accept what a new member gets with its first records."""
        with ShareConsumer(
            topic, bootstrap_servers=kafka.bootstrap_servers, group_id=group, start="earliest"
        ) as consumer:
            found = consumer.poll(timeout_ms=60_000)
            assert consumer.commit() == {}
        wait_until(lambda: admin.describe_groups(group)[group].members == ())
        return [record.value for records in found.values() for record in records]

    def starts() -> dict[TopicPartition, int | None]:
        found = admin.list_share_group_offsets(group)[group].raise_errors()
        return {tp: at.start for tp, at in found.items()}

    every = [value for _, value in pairs]
    assert work() == every
    assert admin.describe_groups(group)[group].type == "share"
    assert admin.group_lag(group)[group].records == 0
    before = starts()  # a broker stores an acknowledgement with the start before it

    done = admin.reset_group_offsets(group, RECORDS - 2)
    assert starts() == {tp: RECORDS - 2}
    admin.reset_group_offsets(group, done.undo)
    assert starts() == before
    admin.alter_share_group_offsets(group, {tp: 4}).raise_errors()
    assert starts() == {tp: 4}
    assert work() == every[4:]

    admin.delete_share_group_offsets(group, topic).raise_errors()
    assert starts() == {}
    admin.alter_share_group_offsets(group, {tp: None}).raise_errors()
    assert starts() == {tp: None}
    assert work() == every


def test_topics_and_settings_on_kafka(kafka: KafkaServer, admin: KafkaAdminClient) -> None:
    name = f"topics-{time.time_ns()}"
    resource = ConfigResource("topic", name)
    created = admin.create_topics({name: NewTopic(2, configs={"retention.ms": "5000"})})
    assert list(created) == [name]
    assert isinstance(admin.create_topics({name: 1}).errors[name], TopicAlreadyExistsError)
    [only] = admin.describe_cluster().brokers
    assert kafka.bootstrap_servers == f"{only.host}:{only.port}"
    assert name in admin.list_topics()
    assert admin.describe_topics(name)[name].partitions == tuple(
        PartitionDescription(number, only.id, (only.id,), (only.id,)) for number in range(2)
    )
    (admin.create_partitions({name: 3})).raise_errors()
    wait_until(lambda: len(admin.describe_topics(name)[name].partitions) == 3)
    assert admin.describe_configs([resource])[resource]["retention.ms"][:2] == ("5000", "topic")
    admin.alter_configs({resource: {"retention.ms": None}}).raise_errors()
    wait_until(
        lambda: admin.describe_configs([resource])[resource]["retention.ms"].source != "topic"
    )
    broker = ConfigResource("broker", str(only.id))
    assert admin.describe_configs([broker])[broker]["log.retention.hours"].value == "168"
    deleted = admin.delete_topics([name, "absent"])
    assert list(deleted) == [name] and list(deleted.errors) == ["absent"]
    wait_until(lambda: name not in admin.list_topics())


@pytest.mark.long  # a JVM for each state
def test_lag_of_a_share_group_is_that_of_kafkas_tool_in_each_state(
    kafka: KafkaServer, unique: Callable[[str], str]
) -> None:
    topic, group = kafka.create_topic(unique("jobs")), unique("workers")
    servers = kafka.bootstrap_servers
    broker = Broker(servers)
    compared: list[int | None] = []

    def compare() -> None:
        """Compare the start and the lag in the present state of the group."""
        done = kafka.tool(
            SHARE_COMMAND, "--bootstrap-server", servers, "--describe", "--group", group
        )
        [words] = [line.split() for line in done.stdout.splitlines() if topic in line]
        with KafkaAdminClient(bootstrap_servers=servers) as admin:
            found = admin.group_lag([group])[group].partitions[TopicPartition(topic, 0)]
        assert words[3:5] == [str(found.committed), str(found.records)]
        compared.append(found.records)

    def take() -> list[ShareRecord[Any, Any]]:
        def poll() -> list[ShareRecord[Any, Any]]:
            return [each for records in consumer.poll(timeout_ms=500).values() for each in records]

        return wait_until(poll)

    for number in range(10):
        broker.write(topic, b"%d" % number)
    with ShareConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=group,
        acknowledgement="explicit",
        acquire_mode="record_limit",
        max_poll_records=3,
        start="earliest",
    ) as consumer:
        consumer.accept(*take())
        consumer.commit()
        compare()
        first, *others = take()
        compare()
        consumer.release(first)
        consumer.accept(*others)
        consumer.commit()
        compare()
        done = 5
        while done < 10:
            records = take()
            consumer.accept(*records)
            consumer.commit()
            done += len(records)
        compare()
    for number in range(4):
        broker.write(topic, b"%d" % number)
    compare()
    assert compared == [7, 7, 5, 0, 4]
