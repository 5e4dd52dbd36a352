"""Kafka's own unchanged command-line tools on the in-process cluster."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator

import pytest

from kohort.testing import Cluster, ProducerRecord
from kohort.types import TopicPartition
from tests.interop.brokers import Broker
from tests.interop.waiting import wait_until
from tests.support.java_tools import RunningTool, ToolError, java_command, run_tool

pytestmark = pytest.mark.real_kafka
TOOLS = "org.apache.kafka.tools."
TOPICS, OFFSETS = TOOLS + "TopicCommand", TOOLS + "GetOffsetShell"
GROUPS = TOOLS + "consumer.group.ConsumerGroupCommand"
PRODUCER, CONSUMER = TOOLS + "ConsoleProducer", TOOLS + "consumer.ConsoleConsumer"
Tool = Callable[..., str]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3) as running:
        yield running


@pytest.fixture
def tool(cluster: Cluster) -> Tool:
    """Function that runs a tool on the cluster and returns its output."""

    def run(main_class: str, *args: object, stdin: str = "") -> str:
        bootstrap = "--bootstrap-server", cluster.bootstrap_servers
        return run_tool(main_class, *bootstrap, *args, stdin=stdin)

    return run


def rows(table: str) -> list[dict[str, str]]:
    """Return a table that ConsumerGroupCommand prints, by its headings."""
    lines = [line.split() for line in table.splitlines() if line.strip()]
    heading = next(n for n, words in enumerate(lines) if "GROUP" in words)
    return [dict(zip(lines[heading], words, strict=False)) for words in lines[heading + 1 :]]


def fill(cluster: Cluster, group: str | None = None) -> None:
    """Write 30 records to the three partitions of "orders". The group has read all of them."""
    cluster.create_topic("orders", 3)
    cluster.produce("orders", [f"order {n}" for n in range(30)])
    if group is not None:
        consume = ["--topic", "orders", "--from-beginning", "--max-messages", 30]
        run_tool(
            CONSUMER, "--bootstrap-server", cluster.bootstrap_servers, *consume, "--group", group
        )


@pytest.mark.long  # each tool is a further JVM
def test_kafka_topics(cluster: Cluster, tool: Tool) -> None:
    create = ["--create", "--topic", "orders", "--partitions", 3, "--replication-factor", 2]
    assert "Created topic orders." in tool(
        TOPICS, *create, "--config", "message.timestamp.type=LogAppendTime"
    )
    assert cluster.topics == {"orders": 3}
    described = tool(TOPICS, "--describe", "--topic", "orders")
    assert re.search(r"PartitionCount: 3\s+ReplicationFactor: 2", described)
    assert "message.timestamp.type=LogAppendTime" in described
    leaders = re.findall(r"Partition: (\d)\s+Leader: (\d)", described)
    assert [(int(p), int(node)) for p, node in leaders] == [
        (p, cluster.leader("orders", p)) for p in range(3)
    ]
    tool(TOPICS, "--alter", "--topic", "orders", "--partitions", 5)
    assert cluster.topics == {"orders": 5}
    assert tool(TOPICS, "--list", "--exclude-internal").split() == ["orders"]
    tool(TOPICS, "--delete", "--topic", "orders")
    assert cluster.topics == {}


@pytest.mark.long
def test_kafka_topics_refuses_what_kafka_refuses(cluster: Cluster, tool: Tool) -> None:
    cluster.create_topic("orders", 3)
    for arguments, refusal in (
        (["--create", "--topic", "orders"], "TopicExistsException"),
        (["--create", "--topic", "o", "--partitions", 0], "greater than 0|larger than 0"),
        (["--create", "--topic", "o", "--replication-factor", 9], "InvalidReplicationFactor"),
        (["--create", "--topic", "o", "--config", "segment.bytes=x"], "[Ii]nvalid value"),
        (["--alter", "--topic", "orders", "--partitions", 2], "InvalidPartitions"),
        (["--delete", "--topic", "none"], "does not exist"),
    ):
        with pytest.raises(ToolError, match=refusal):
            tool(TOPICS, *arguments)
    assert cluster.topics == {"orders": 3}


def test_the_console_producer_and_consumer(cluster: Cluster, tool: Tool) -> None:
    cluster.create_topic("orders", 3)
    lines = [f"key-{n}\torder {n}" for n in range(20)]
    tool(
        PRODUCER,
        *("--topic", "orders", "--compression-codec", "zstd"),
        *("--reader-property", "parse.key=true"),
        stdin="\n".join(lines) + "\n",
    )
    stored = {(record.key, record.value) for record in cluster.records("orders")}
    assert stored == {(b"key-%d" % n, b"order %d" % n) for n in range(20)}
    printed = tool(
        CONSUMER,
        *("--topic", "orders", "--group", "shop", "--from-beginning", "--max-messages", 20),
        *("--formatter-property", "print.key=true"),
    )
    assert sorted(printed.splitlines()) == sorted(lines)
    assert sum(at.offset for at in cluster.committed("shop").values()) == 20


def test_kafka_consumer_groups(cluster: Cluster, tool: Tool) -> None:
    fill(cluster, "shop")
    assert tool(GROUPS, "--list").split() == ["shop"]
    cluster.produce("orders", ["one more"], partition=1)
    described = rows(tool(GROUPS, "--describe", "--group", "shop"))
    assert sorted((row["PARTITION"], row["CURRENT-OFFSET"], row["LAG"]) for row in described) == [
        ("0", "10", "0"),
        ("1", "10", "1"),
        ("2", "10", "0"),
    ]
    reset = ["--reset-offsets", "--group", "shop", "--topic", "orders:1,2", "--shift-by", -4]
    planned = rows(tool(GROUPS, *reset, "--dry-run"))
    assert sorted((row["PARTITION"], row["NEW-OFFSET"]) for row in planned) == [
        ("1", "6"),
        ("2", "6"),
    ]
    tool(GROUPS, *reset, "--execute")
    committed = {place.partition: at.offset for place, at in cluster.committed("shop").items()}
    assert committed == {0: 10, 1: 6, 2: 6}
    tool(GROUPS, "--delete", "--group", "shop")
    assert cluster.group("shop").state == "Dead"
    assert cluster.committed("shop") == {}


@pytest.mark.long
def test_kafka_consumer_groups_shows_states_members_and_refusals(
    cluster: Cluster, tool: Tool
) -> None:
    fill(cluster)
    config = ["--command-property", "client.id=console"]
    console = RunningTool(
        *java_command(CONSUMER, "--bootstrap-server", cluster.bootstrap_servers),
        *("--topic", "orders", "--group", "shop", "--from-beginning", *config),
    )
    try:
        wait_until(lambda: len(console.lines) == 30)
        (state,) = rows(tool(GROUPS, "--describe", "--group", "shop", "--state"))
        assert state["ASSIGNMENT-STRATEGY"] == "range"
        assert (state["STATE"], state["#MEMBERS"]) == ("Stable", "1")
        (member,) = rows(tool(GROUPS, "--describe", "--group", "shop", "--members", "--verbose"))
        assert (member["CLIENT-ID"], member["#PARTITIONS"]) == ("console", "3")
        assert rows(tool(GROUPS, "--list", "--state", "Stable"))
        reset = ["--reset-offsets", "--group", "shop", "--all-topics", "--to-earliest"]
        assert "inactive" in tool(GROUPS, *reset, "--execute")
        assert "GroupNotEmptyException" in tool(GROUPS, "--delete", "--group", "shop")
    finally:
        console.end()
    assert "DOES_NOT" not in tool(GROUPS, "--describe", "--group", "shop")
    delete = ["--delete-offsets", "--group", "shop", "--topic", "orders:0"]
    tool(GROUPS, *delete)
    assert TopicPartition("orders", 0) not in cluster.committed("shop")
    assert "GroupIdNotFoundException" in tool(GROUPS, "--describe", "--group", "nobody")


@pytest.mark.long  # each tool is a further JVM
def test_consumer_groups_tool_shows_a_consumer_group(
    quick_broker: Broker, unique: Callable[[str], str]
) -> None:
    topic, group = quick_broker.create_topic(unique("orders"), 3), unique("shop")
    bootstrap = ("--bootstrap-server", quick_broker.bootstrap_servers)
    own = ("client.id=console", "group.protocol=consumer")
    properties = [word for one in own for word in ("--command-property", one)]
    console = RunningTool(
        *java_command(CONSUMER, *bootstrap),
        *("--topic", topic, "--group", group, "--from-beginning", *properties),
    )

    def describe(*more: str) -> dict[str, str]:
        """Return the only row, without the columns of ids and addresses."""
        printed = run_tool(GROUPS, *bootstrap, "--describe", "--group", group, *more, "--verbose")
        (row,) = rows(printed)
        return {k: v for k, v in row.items() if k not in ("CONSUMER-ID", "COORDINATOR", "(ID)")}

    def listed(kind: str) -> list[dict[str, str]]:
        found = rows(run_tool(GROUPS, *bootstrap, "--list", "--type", kind))
        return [row for row in found if row["GROUP"] == group]

    try:
        quick_broker.write(topic, b"order", partition=1)
        wait_until(lambda: console.lines)
        assert listed("consumer") == [{"GROUP": group, "TYPE": "Consumer"}]
        assert listed("classic") == []
        assert describe("--members") == {
            "GROUP": group,
            "HOST": "/127.0.0.1",
            "CLIENT-ID": "console",
            "#PARTITIONS": "3",
            "CURRENT-EPOCH": "2",
            "CURRENT-ASSIGNMENT": f"{topic}:0,1,2",
            "TARGET-EPOCH": "2",
            "TARGET-ASSIGNMENT": f"{topic}:0,1,2",
        }
        assert describe("--state") == {
            "GROUP": group,
            "ASSIGNMENT-STRATEGY": "uniform",
            "STATE": "Stable",
            "GROUP-EPOCH": "2",
            "TARGET-ASSIGNMENT-EPOCH": "2",
            "#MEMBERS": "1",
        }
        refused = run_tool(GROUPS, *bootstrap, "--delete", "--group", group)
        assert "GroupNotEmptyException" in refused
    finally:
        console.end()
    state = describe("--state")
    assert (state["STATE"], state["GROUP-EPOCH"], state["#MEMBERS"]) == ("Empty", "3", "0")
    run_tool(GROUPS, *bootstrap, "--delete", "--group", group)
    assert listed("consumer") == []


@pytest.mark.parametrize(
    ("to", "expected"),
    [
        ("--to-earliest", 0),
        ("--to-latest", 10),
        ("--to-offset=3", 3),
        ("--to-datetime=2000-01-01T00:00:00.000", 0),
        ("--to-current", 10),
    ],
)
@pytest.mark.long
def test_offsets_are_reset(cluster: Cluster, tool: Tool, to: str, expected: int) -> None:
    fill(cluster, "shop")
    reset = ["--reset-offsets", "--group", "shop", "--topic", "orders"]
    tool(GROUPS, *reset, *to.split("="), "--execute")
    assert [at.offset for at in cluster.committed("shop").values()] == [expected] * 3


@pytest.mark.long  # each tool is a further JVM
def test_kafka_get_offsets(cluster: Cluster, tool: Tool) -> None:
    fill(cluster)
    cluster.produce("orders", ["x"] * 2, partition=2)
    answer = tool(OFFSETS, "--topic-partitions", "orders:1-")
    assert answer.split() == ["orders:1:10", "orders:2:12"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("moment", "offset"), [("earliest", 0), ("latest", 5), ("max-timestamp", 4)]
)
def test_kafka_get_offsets_by_time(cluster: Cluster, tool: Tool, moment: str, offset: int) -> None:
    cluster.create_topic("orders")
    for _ in range(5):
        seen = cluster.produce("orders", ["x"])[0]
        cluster.wait_until(lambda seen=seen: later_than(cluster, seen.offset))  # type: ignore[misc]
    assert tool(OFFSETS, "--topic", "orders", "--time", moment).split() == [f"orders:0:{offset}"]


def later_than(cluster: Cluster, offset: int) -> bool:
    """True if the clock shows another millisecond than that of the record."""
    return time.time() * 1000 >= cluster.records("orders")[offset].timestamp + 1


@pytest.mark.long  # each tool is a further JVM
def test_verifiable_producer_and_consumer_performance_tool(cluster: Cluster, tool: Tool) -> None:
    cluster.create_topic("numbers", 3)
    lines = tool(TOOLS + "VerifiableProducer", "--topic", "numbers", "--max-messages", 5000)
    events = [json.loads(line) for line in lines.splitlines()]
    (summary,) = (event for event in events if event["name"] == "tool_data")
    assert (summary["sent"], summary["acked"]) == (5000, 5000)
    values = [int(record.value or b"") for record in cluster.records("numbers")]
    assert sorted(values) == list(range(5000))
    performance = [TOOLS + "ConsumerPerformance", "--topic", "numbers", "--group", "fast"]
    printed = tool(*performance, "--num-records", 5000, "--hide-header")
    assert printed.split(", ")[4] == "5000"


@pytest.mark.long  # each tool is a further JVM
def test_the_transactional_copier(cluster: Cluster, tool: Tool) -> None:
    """It reads in a group and writes in transactions with the group's offsets. Some are aborted."""
    cluster.create_topic("orders", 1)
    cluster.create_topic("copy", 2)
    cluster.produce("orders", [f"order {n}" for n in range(30)])
    run_tool(
        TOOLS + "TransactionalMessageCopier",
        *("--broker-list", cluster.bootstrap_servers),
        *("--input-topic", "orders", "--input-partition", 0, "--output-topic", "copy"),
        *("--consumer-group", "copier", "--transactional-id", "copier", "--transaction-size", 3),
        *("--max-messages", 30, "--enable-random-aborts", "--group-mode", "--use-group-metadata"),
    )
    copied = ["--topic", "copy", "--from-beginning", "--max-messages", 30]
    printed = tool(CONSUMER, *copied, "--isolation-level", "read_committed")
    assert sorted(printed.splitlines()) == sorted(f"order {n}" for n in range(30))
    assert [at.offset for at in cluster.committed("copier").values()] == [30]


@pytest.mark.long  # each tool is a further JVM
def test_a_java_consumer_goes_to_a_time(cluster: Cluster, tool: Tool) -> None:
    """The tool that resets an application's topics seeks with a consumer, and commits."""
    cluster.create_topic("orders", 2)
    for n in range(8):  # one record for each of four days
        when = 1_700_000_000_000 + n // 2 * 86_400_000
        cluster.produce("orders", [ProducerRecord(b"x", partition=n % 2, timestamp=when)])
    tool(
        TOOLS + "StreamsResetter",
        *("--application-id", "app", "--input-topics", "orders"),
        *("--to-datetime", "2023-11-16T00:00:00.000Z"),
    )
    assert [at.offset for at in cluster.committed("app").values()] == [2, 2]


@pytest.mark.long
def test_a_console_consumer_of_all_topics_that_match(cluster: Cluster) -> None:
    """It also finds topics that are created later."""
    for name in ("eu-orders", "eu-returns", "us-orders"):
        cluster.produce(name, [f"from {name}"])
    console = RunningTool(
        *java_command(CONSUMER, "--bootstrap-server", cluster.bootstrap_servers),
        *("--include", "eu-.*", "--from-beginning", "--group", "eu"),
        *("--command-property", "metadata.max.age.ms=300"),
    )
    try:
        wait_until(lambda: len(console.lines) == 2)
        cluster.produce("eu-stock", ["from eu-stock"])
        wait_until(lambda: len(console.lines) == 3)
    finally:
        console.end()
    assert sorted(console.lines) == [f"from eu-{name}" for name in ("orders", "returns", "stock")]
    assert {place.topic for place in cluster.committed("eu")} == {
        "eu-orders",
        "eu-returns",
        "eu-stock",
    }
