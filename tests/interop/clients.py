"""Clients and what they do on the cluster. ``python -m tests.interop.clients`` writes the page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.support.jars import KAFKA_VERSION

PATH = Path(__file__).parents[2] / "docs" / "reference" / "clients.md"

_HEAD = """\
# Third-party clients on the in-process cluster

<!-- Written by `python -m tests.interop.clients`; a test compares it. -->

After this page you know which published clients work on a `kohort.testing.Cluster`, and which test
shows it. The tests use clusters of two or three brokers.

```python
from confluent_kafka import Producer

from kohort.testing import Cluster

with Cluster(topics={"orders": 1}) as cluster:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    producer.produce("orders", b"tea")
    producer.flush()
    assert [record.value for record in cluster.records("orders")] == [b"tea"]
```

`kcat::reads` stands for the test `test_reads` in `tests/interop/test_kcat.py`.
"""

Rows = Mapping[str, list[str] | str]


class Client(NamedTuple):
    """Client. ``shown`` has the tests that show each feature, or one reason why there are none."""

    name: str
    needs: str
    shown: Rows


FEATURES = (
    "produce",
    "consume in a group",
    "two members rebalance",
    "static member",
    "cooperative-sticky",
    "subscribe by expression",
    "commit and read back",
    "seek by time",
    "transactions, read_committed",
    "admin",
    "TLS and logins",
)
WAYS = ("TLS", "mTLS", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


def _python(name: str, cooperative: list[str] | str) -> Client:
    """Return a client for Python. All of these run the same tests."""
    pair = f"clients_on_cluster::two_members_share_a_group_and_read_each_record_once[{name}]"
    return Client(
        name,
        "nothing more",
        {
            "produce": [f"producers::every_codec_of_every_client_is_read[cluster-{name}]"],
            "consume in a group": [
                f"clients_on_cluster::a_member_goes_on_where_its_group_has_committed[{name}]"
            ],
            "two members rebalance": [pair],
            "static member": [
                f"groups_of_others::a_static_member_comes_back_to_what_it_had[{name}]"
            ],
            "cooperative-sticky": cooperative,
            "subscribe by expression": [
                f"readers_on_cluster::a_subscription_by_expression_finds_new_topics[{name}]"
            ],
            "commit and read back": [f"readers_on_cluster::what_it_commits_it_reads_back[{name}]"],
            "seek by time": [f"readers_on_cluster::it_reads_from_a_time_on[{name}]"],
            "transactions, read_committed": [
                f"transactions_on_cluster::exactly_what_is_committed_is_read[{version}-{name}]"
                for version in ("version-2", "version-0")
            ],
            "admin": [f"admin_on_cluster::an_admin_client_makes_shows_and_deletes[{name}]"],
            "TLS and logins": [
                f"secure_clients::client_logs_in_and_shares_a_group[{name}-{way}]" for way in WAYS
            ],
        },
    )


def _cooperative(name: str) -> list[str]:
    return [f"groups_of_others::members_rebalance_cooperatively[{name}]"]


CLIENTS = (
    _python("confluent-kafka", _cooperative("confluent-kafka")),
    _python("aiokafka", "aiokafka 0.14.0 has no cooperative assignor"),
    _python("kafka-python", _cooperative("kafka-python")),
    Client(
        f"kafka-clients {KAFKA_VERSION}",
        "Java 17 or newer, and Maven for the jars",
        {
            "produce": ["java_tools::the_console_producer_and_consumer"],
            "consume in a group": ["java_tools::the_console_producer_and_consumer"],
            "two members rebalance": ["java_groups::two_java_members_share_a_group"],
            "static member": ["groups_of_others::a_static_member_comes_back_to_what_it_had[java]"],
            "cooperative-sticky": _cooperative("java"),
            "subscribe by expression": ["java_tools::a_console_consumer_of_all_topics_that_match"],
            "commit and read back": ["java_tools::kafka_consumer_groups"],
            "seek by time": ["java_tools::a_java_consumer_goes_to_a_time"],
            "transactions, read_committed": ["java_tools::the_transactional_copier"],
            "admin": ["java_tools::kafka_topics", "java_tools::kafka_consumer_groups"],
            "TLS and logins": [
                *(
                    f"secure_clients::java_logs_in_and_shares_a_group[{way}]"
                    for way in ("mTLS", "SCRAM-SHA-512", "OAUTHBEARER")
                ),
                *(
                    f"secure_clients::java_logs_in_by_the_other_ways[{way}]"
                    for way in ("TLS", "PLAIN", "SCRAM-SHA-256")
                ),
            ],
        },
    ),
    Client(
        "franz-go",
        "Go, and runs only in `make interop`",
        {
            "produce": ["franz_go::it_produces"],
            "consume in a group": ["franz_go::two_members_share_a_group[range]"],
            "two members rebalance": ["franz_go::two_members_share_a_group[roundrobin]"],
            "static member": ["franz_go::a_static_member_comes_back_to_what_it_had"],
            "cooperative-sticky": ["franz_go::two_members_share_a_group[cooperative-sticky]"],
            "subscribe by expression": [
                "franz_go::a_subscription_by_expression_finds_new_topics",
            ],
            "commit and read back": ["franz_go::an_admin_client"],
            "seek by time": ["franz_go::it_reads_from_a_time_on"],
            "transactions, read_committed": [
                "franz_go::what_it_wrote_in_transactions_is_read_when_committed"
            ],
            "admin": ["franz_go::an_admin_client"],
            "TLS and logins": [
                f"secure_clients::franz_go_logs_in_and_shares_a_group[{way}]" for way in WAYS
            ],
        },
    ),
    Client(
        "kcat",
        "kcat, and is skipped where it is not installed",
        {
            "produce": ["kcat::kcat_writes_and_reads"],
            "consume in a group": ["kcat::kcat_is_a_member_of_a_group"],
            "two members rebalance": ["kcat::two_of_them_share_a_group[roundrobin]"],
            "static member": ["kcat::two_of_them_share_a_group[roundrobin]"],
            "cooperative-sticky": ["kcat::two_of_them_share_a_group[cooperative-sticky]"],
            "subscribe by expression": ["kcat::kcat_subscribes_by_expression"],
            "commit and read back": "kcat commits automatically and shows no committed offsets",
            "seek by time": [
                "kcat::kcat_reads_from_a_time_on",
                "kcat::kcat_finds_offsets_by_time",
            ],
            "transactions, read_committed": ["kcat::kcat_writes_and_reads_transactions"],
            "admin": "kcat lists topics and changes nothing",
            "TLS and logins": "it uses librdkafka, as confluent-kafka does",
        },
    ),
    Client(
        "Spark 4.2.0's own source and sink",
        "pyspark, Java 17 or newer, and Maven for the jars of kafka-clients 3.9.1",
        {
            "produce": ["spark_source::spark_reads_writes_and_goes_on"],
            "consume in a group": ["spark_source::spark_reads_writes_and_goes_on"],
            "two members rebalance": "each query has a separate group, executors assign manually",
            "static member": "each query has a separate group, executors assign manually",
            "cooperative-sticky": "each query has a separate group, executors assign manually",
            "subscribe by expression": ["spark_source::spark_reads_writes_and_goes_on"],
            "commit and read back": "offsets are in Spark's checkpoint; nothing is committed",
            "seek by time": ["spark_source::spark_reads_writes_and_goes_on"],
            "transactions, read_committed": ["spark_source::spark_reads_writes_and_goes_on"],
            "admin": "it has none; its driver reads topics and offsets with Java's",
            "TLS and logins": "its connections are those of kafka-clients",
        },
    ),
)
TOOLS: Rows = {
    "kafka-topics: create, describe, alter, list, delete": [
        "java_tools::kafka_topics",
        "java_tools::kafka_topics_refuses_what_kafka_refuses",
    ],
    "kafka-console-producer, kafka-console-consumer": [
        "java_tools::the_console_producer_and_consumer"
    ],
    "kafka-consumer-groups: list, describe, reset offsets, delete": [
        "java_tools::kafka_consumer_groups",
        "java_tools::kafka_consumer_groups_shows_states_members_and_refusals",
        "java_tools::consumer_groups_tool_shows_a_consumer_group",
        "java_tools::offsets_are_reset",
    ],
    "kafka-get-offsets": [
        "java_tools::kafka_get_offsets",
        "java_tools::kafka_get_offsets_by_time",
    ],
    "kafka-consumer-perf-test (ConsumerPerformance)": [
        "java_tools::verifiable_producer_and_consumer_performance_tool"
    ],
    "VerifiableProducer": ["java_tools::verifiable_producer_and_consumer_performance_tool"],
    "VerifiableConsumer": ["java_groups::two_java_members_share_a_group"],
    "TransactionalMessageCopier": ["java_tools::the_transactional_copier"],
    "kafka-streams-application-reset": ["java_tools::a_java_consumer_goes_to_a_time"],
}
TOGETHER: Rows = {
    "Java, confluent-kafka, aiokafka and kohort, while brokers are killed": [
        "mixed_group_under_failures::four_clients_in_one_group_lose_nothing",
        "mixed_group_under_failures::four_clients_in_one_group_lose_nothing_in_twenty_rounds",
    ],
    "kohort, Java, confluent-kafka and franz-go by the consumer protocol": [
        "consumer_protocol_groups::four_clients_share_a_group"
    ],
    "kohort, Java, confluent-kafka and franz-go in a share group, while members come and go": [
        "mixed_share_group::each_record_is_accepted_once_by_one_client"
    ],
    "kohort by the consumer protocol, and four others by the classic one": [
        "consumer_protocol_groups::kohort_converts_a_group_of_classic_clients"
    ],
    "confluent-kafka, aiokafka and kafka-python": [
        "clients_on_cluster::one_group_of_three_clients"
    ],
    "kohort and one other": [
        "shared_groups::kohort_and_another_client_share_a_group",
        "shared_groups::every_pair_shares_by_every_strategy",
        "java_groups::java_and_kohort_share_a_group",
    ],
    "two of kohort and two of another, while members join, leave and die": [
        "mixed_groups::members_of_two_clients_join_leave_and_are_killed",
    ],
}


def full_name(short: str) -> str:
    """Return the test's id as pytest prints it."""
    module, test = short.split("::")
    return f"tests/interop/test_{module}.py::test_{test}"


def document() -> str:
    """Return the whole page."""
    return _HEAD + "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    for client in CLIENTS:
        yield from ("", f"## {client.name}", "", f"Needs {client.needs}.", "")
        yield from _table("what", {feature: client.shown[feature] for feature in FEATURES})
    yield from ("", f"## Kafka {KAFKA_VERSION}'s command-line tools", "")
    yield from _table("tool", TOOLS)
    yield from ("", "## Several clients in one group", "")
    yield from _table("clients", TOGETHER)
    yield from ("", "Next: [conformance](conformance.md).")


def _table(heading: str, rows: Rows) -> Iterator[str]:
    yield f"| {heading} | shown by |"
    yield "|---|---|"
    for name, shown in rows.items():
        cell = f"not: {shown}" if isinstance(shown, str) else ", ".join(f"`{t}`" for t in shown)
        yield f"| {name} | {cell} |"


if __name__ == "__main__":
    PATH.write_text(document())
