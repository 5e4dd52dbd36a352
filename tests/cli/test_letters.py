"""``kohort produce`` and ``kohort dead-letters`` on a cluster."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kohort import ConsumerRecord, KafkaConsumer, TopicPartition
from kohort.cli import _dead_letters, main
from kohort.errors import ErrorCode
from kohort.processing import DeadLetters, process
from kohort.testing import Cluster, ProducerRecord

Record = ConsumerRecord[Any, Any]
DLQ = "dlq.billing"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(topics={"orders": 3, "one": 1, DLQ: 1}) as cluster:
        yield cluster


class Input:
    """A standard input with these bytes."""

    def __init__(self, data: bytes) -> None:
        self.buffer = io.BufferedReader(io.BytesIO(data))


def run(cluster: Cluster, *arguments: str) -> int:
    return main([*arguments, "--bootstrap-servers", cluster.bootstrap_servers])


def values(cluster: Cluster, topic: str) -> list[bytes | None]:
    return [record.value for record in cluster.records(topic)]


def test_lines_of_a_file_become_records(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "lines.txt"
    file.write_bytes(b"a\r\nb\n\nlast")
    assert run(cluster, "produce", "one", str(file), "--header", "source=shop") == 0
    assert values(cluster, "one") == [b"a", b"b", b"", b"last"]
    assert cluster.records("one")[0].headers == (("source", b"shop"),)
    assert capsys.readouterr().out == "4 records produced to one\n"


def test_keys_decide_the_partition_unless_it_is_given(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = b"".join(b"k%d:v:%d\n" % (n, n) for n in range(20))
    monkeypatch.setattr(sys, "stdin", Input(lines))
    assert run(cluster, "produce", "orders", "--key-separator", ":") == 0
    placed = {record.key: record.partition for record in cluster.records("orders")}
    assert len(placed) == 20
    cluster.create_topic("same", 3)
    cluster.produce("same", [(f"k{n}", "") for n in range(20)])
    assert placed == {record.key: record.partition for record in cluster.records("same")}
    monkeypatch.setattr(sys, "stdin", Input(lines))
    arguments = ["produce", "orders", "--key-separator", ":", "--partition", "2"]
    assert run(cluster, *arguments) == 0
    assert len(cluster.records("orders", 2)) >= 20


def test_json_lines_have_all_fields(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        {"value": "text", "key": "k", "headers": {"a": "1", "b": None}, "partition": 1},
        {"value": None, "key": {"id": 7}, "headers": [["a", "1"], ["a", "2"]], "partition": 1},
        {"value": {"ä": [1]}, "timestamp": 1_700_000_000_000, "partition": 1},
    ]
    data = "".join(json.dumps(line) + "\n" for line in lines).encode()
    monkeypatch.setattr(sys, "stdin", Input(data))
    assert run(cluster, "produce", "orders", "--json") == 0
    first, second, third = cluster.records("orders", 1)
    assert (first.key, first.value) == (b"k", b"text")
    assert first.headers == (("a", b"1"), ("b", None))
    assert (second.key, second.value) == (b'{"id": 7}', None)
    assert second.headers == (("a", b"1"), ("a", b"2"))
    assert (third.value, third.timestamp) == ('{"ä": [1]}'.encode(), 1_700_000_000_000)


@pytest.mark.parametrize(
    ("arguments", "line", "message"),
    [
        (["--json"], b"{", "line 2 is no record of orders"),
        (["--json"], b"[1]", "it is not a JSON object"),
        (["--json"], b'{"valeu": 1}', "unknown field 'valeu'"),
        (["--json"], b'{"headers": 1}', "headers must be"),
        (["--json"], b'{"partition": -1}', "partition must be"),
        (["--json"], b'{"partition": 9}', "partition 9 is not one of 0 to 2"),
        (["--json"], b'{"timestamp": "now"}', "timestamp must be"),
        (["--key-separator", ":"], b"none", "it has no ':'"),
    ],
)
def test_a_wrong_line_ends_the_command(
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    line: bytes,
    message: str,
) -> None:
    monkeypatch.setattr(sys, "stdin", Input(b'{"key": ":"}\n' + line + b"\n{}\n"))
    assert run(cluster, "produce", "orders", *arguments) == 1
    assert message in capsys.readouterr().err
    assert len(cluster.records("orders")) == 1


def test_an_unknown_topic_and_a_refusal_are_errors(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", Input(b"a\n"))
    assert run(cluster, "produce", "absent") == 1
    assert "absent" in capsys.readouterr().err
    cluster.fail("Produce", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    monkeypatch.setattr(sys, "stdin", Input(b"a\n"))
    assert run(cluster, "produce", "one") == 1
    assert "producing to one-0 failed" in capsys.readouterr().err


def test_options_come_from_a_file_of_properties(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"bootstrap.servers={cluster.bootstrap_servers}\nacks=all\n")
    monkeypatch.setattr(sys, "stdin", Input(b"a\n"))
    assert main(["produce", "one", "--properties", str(file)]) == 0
    assert values(cluster, "one") == [b"a"]


def bury(cluster: Cluster, *bad: str) -> None:
    """Process the topic "orders" until the value "end", and let these values fail."""

    def handler(record: Record) -> None:
        if record.value == b"end":
            consumer.wakeup()
        elif (record.value or b"").decode() in bad:
            raise ValueError(f"bad {(record.value or b'').decode()}")

    consumer = KafkaConsumer(
        "orders",
        bootstrap_servers=cluster.bootstrap_servers,
        group_id="billing",
        auto_offset_reset="earliest",
    )
    process(consumer, handler, failed=DeadLetters(DLQ))


def test_letters_are_listed_by_cause(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.produce("orders", ["a", "b", "c", "end"], partition=1)
    bury(cluster, "a", "c")
    cluster.produce(DLQ, ["no letter"])
    assert run(cluster, "dead-letters", DLQ) == 0
    assert capsys.readouterr().out == (
        "      2  orders in billing: builtins.ValueError\n"
        "         first orders-1 offset 0: bad a\n"
        "         last  orders-1 offset 2: bad c\n"
        "      1  without the headers of a dead letter\n"
    )
    assert run(cluster, "dead-letters", DLQ, "--json") == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["value"] for line in lines] == ["a", "c", "no letter"]
    assert lines[0]["origin"]["offset"] == 0
    assert lines[0]["headers"] == []
    assert lines[2]["origin"] is None


def test_a_replay_returns_each_letter_once(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = ProducerRecord(b"a", key=b"\xff", headers=[("shop", b"1")], partition=2)
    cluster.produce("orders", [bad, ProducerRecord(b"end", partition=2)])
    bury(cluster, "a")
    cluster.fail("Produce", ErrorCode.NOT_ENOUGH_REPLICAS)
    cluster.disconnect("Produce", after=True)
    assert run(cluster, "dead-letters", DLQ, "--replay") == 0
    assert capsys.readouterr().out == "1 letter replayed\n"
    before, _, after = cluster.records("orders", 2)
    assert (after.key, after.value, after.headers) == (before.key, before.value, before.headers)
    assert after.timestamp == before.timestamp
    assert run(cluster, "dead-letters", DLQ, "--replay") == 0
    assert capsys.readouterr().out == "0 letters replayed\n"
    assert run(cluster, "dead-letters", DLQ) == 0
    assert capsys.readouterr().out == f"{DLQ} has no dead letters to replay\n"
    assert run(cluster, "dead-letters", DLQ, "--replay", "--again") == 0
    assert capsys.readouterr().out == "1 letter replayed\n"


def test_a_failed_replay_leaves_the_committed_offset(cluster: Cluster) -> None:
    cluster.produce("orders", ["a", "b", "c", "end"])
    bury(cluster, "a", "b", "c")
    assert run(cluster, "dead-letters", DLQ, "--replay") == 0
    before = cluster.committed("kohort-dead-letters")
    assert [each.offset for each in before.values()] == [3]
    cluster.fail("Produce", ErrorCode.INVALID_RECORD)
    assert run(cluster, "dead-letters", DLQ, "--replay", "--again") == 1
    assert cluster.committed("kohort-dead-letters") == before


def test_replay_that_cannot_produce_a_letter_repeats_none_before_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Cluster(topics={"orders": 1, DLQ: 1}, auto_create_topics=False) as cluster:
        for offset, topic in enumerate(["orders", "orders", "gone", "orders"]):
            place = [("topic", topic), ("partition", "0"), ("offset", str(offset))]
            headers = [(f"__dlq.errors.{name}", value.encode()) for name, value in place]
            cluster.produce(DLQ, [ProducerRecord(b"%d" % offset, headers=headers)])
        for _ in range(2):
            assert run(cluster, "dead-letters", DLQ, "--replay", "--timeout", "1") == 1
            said = capsys.readouterr().err
            assert f"{DLQ}-0 offset 2 cannot be replayed. Letters before it are replayed" in said
            assert values(cluster, "orders") == [b"0", b"1"]
        command = said.split("To leave it out: kohort ")[1].split(". The cause")[0]
        assert run(cluster, *command.split()) == 0
        assert run(cluster, "dead-letters", DLQ, "--replay") == 0
        assert values(cluster, "orders") == [b"0", b"1", b"3"]


def test_a_replay_commits_no_partition_before_it_has_read_it(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_dead_letters, "POLL_RECORDS", 1)
    cluster.add_partitions(DLQ, 2)
    headers = [("__dlq.errors.topic", b"one"), ("__dlq.errors.partition", b"0")]
    for partition in range(2):
        cluster.produce(DLQ, [ProducerRecord(b"v", headers=headers)] * 2, partition=partition)
    assert run(cluster, "dead-letters", DLQ, "--replay") == 0
    ends = {TopicPartition(DLQ, partition): 2 for partition in range(2)}
    found = []

    def note(call: Any) -> None:
        [topic] = call.message.topics
        found.append({each.partition_index: each.committed_offset for each in topic.partitions})

    with cluster.on("OffsetCommit", note):
        assert run(cluster, "dead-letters", DLQ, "--replay", "--again") == 0
    assert found[0] == {0: 2, 1: 2}
    assert sorted(str(each) for each in found[1:]) == ["{0: 1}", "{0: 2}", "{1: 1}", "{1: 2}"]
    committed = cluster.committed("kohort-dead-letters")
    assert {tp: each.offset for tp, each in committed.items()} == ends


def test_letters_of_a_broker_are_replayed(cluster: Cluster) -> None:
    names = ["topic", "partition", "offset", "group", "delivery.count", "message"]
    texts = ["orders", "1", "7", "share", "5", "expired"]
    pairs = zip(names, texts, strict=True)
    headers = [(f"__dlq.errors.{name}", text.encode()) for name, text in pairs]
    cluster.produce(DLQ, [ProducerRecord(b"v", key=b"k", headers=[("own", b"x"), *headers])])
    assert run(cluster, "dead-letters", DLQ, "--replay") == 0
    [record] = cluster.records("orders", 1)
    assert (record.key, record.value, record.headers) == (b"k", b"v", (("own", b"x"),))


def test_a_letter_that_failed_twice_returns_to_the_first_letters(cluster: Cluster) -> None:
    def failure(topic: str, text: str) -> list[tuple[str, bytes]]:
        return [
            ("__dlq.errors.topic", topic.encode()),
            ("__dlq.errors.partition", b"0"),
            ("__dlq.errors.message", text.encode()),
            ("kohort.exception", b"builtins.ValueError"),
        ]

    first, second = failure("orders", "first"), failure("one", "second")
    cluster.produce(DLQ, [ProducerRecord(b"v", headers=[*first, *second])])
    assert run(cluster, "dead-letters", DLQ, "--replay") == 0
    [record] = cluster.records("one")
    assert record.headers == tuple(first)


def test_letters_without_their_value_are_left_out(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    headers = [
        ("__dlq.errors.topic", b"orders"),
        ("__dlq.errors.partition", b"0"),
        ("kohort.value.omitted", b"9"),
    ]
    cluster.produce(
        DLQ,
        [ProducerRecord(None, headers=headers), ProducerRecord(b"no letter"), ProducerRecord(None)],
    )
    assert run(cluster, "dead-letters", DLQ, "--replay") == 1
    captured = capsys.readouterr()
    assert captured.out == "0 letters replayed\n"
    assert f"{DLQ}-0 offset 0 is not replayed: it was too large" in captured.err
    for offset in (1, 2):
        assert f"{DLQ}-0 offset {offset} is not replayed: it has not the headers" in captured.err
    assert cluster.records("orders") == []


def test_letters_that_a_broker_has_not_copied_are_left_out(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    headers = [
        ("__dlq.errors.topic", b"orders"),
        ("__dlq.errors.partition", b"0"),
        ("__dlq.errors.message", b"Offset \x1b[31mrejected"),
    ]
    tombstone = ProducerRecord(None, key=b"k", headers=headers)
    cluster.produce(DLQ, [ProducerRecord(None, headers=headers), tombstone])
    assert run(cluster, "dead-letters", DLQ, "--replay") == 1
    captured = capsys.readouterr()
    assert captured.out == "1 letter replayed\n"
    assert f"{DLQ}-0 offset 0 is not replayed: the broker has copied neither" in captured.err
    assert [(each.key, each.value) for each in cluster.records("orders")] == [(b"k", None)]
    assert run(cluster, "dead-letters", DLQ, "--again") == 0
    assert "\x1b" not in capsys.readouterr().out


def test_an_unknown_topic_of_letters_is_an_error(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(cluster, "dead-letters", "absent") == 1
    assert "kohort dead-letters: topic 'absent' does not exist" in capsys.readouterr().err
