"""Fetch: limits, waits, errors, sessions."""

from __future__ import annotations

import threading
import time

import pytest

from kohort.protocol.messages import (
    DeleteRecordsRequest,
    FetchResponse,
    MetadataRequest,
)
from kohort.records import split_batches
from kohort.testing import Cluster
from tests.broker.fetch_messages import data, request
from tests.broker.raw import Raw


def topic_id(raw: Raw, name: str = "t") -> bytes:
    topics = raw.ask(MetadataRequest(topics=None), 12).topics
    return next(bytes(topic.topic_id) for topic in topics if topic.name == name)


def values(entry: FetchResponse.PartitionData) -> list[bytes | None]:
    assert entry.records is not None
    return [r.value for batch in split_batches(entry.records) for r in batch.records()]


@pytest.mark.parametrize("version", range(4, 19))
def test_records_come_in_every_version(cluster: Cluster, raw: Raw, version: int) -> None:
    cluster.produce("t", ["a", "b"], partition=0)
    response = raw.ask(request((0, 0), (1, 0), id=topic_id(raw)), version)
    entry = data(response)[0]
    assert values(entry) == [b"a", b"b"]
    assert (entry.high_watermark, entry.last_stable_offset) == (2, 2)
    assert entry.aborted_transactions is None
    assert (response.error_code, response.session_id) == (0, 0)
    assert values(data(response)[1]) == []


def test_aborted_transactions_are_listed_for_read_committed(raw: Raw) -> None:
    assert data(raw.ask(request((0, 0), isolation=1), 12))[0].aborted_transactions == []


@pytest.mark.parametrize("offset", [-1, 1, 6])
def test_response_to_offset_out_of_range_has_only_the_error(
    cluster: Cluster, raw: Raw, offset: int
) -> None:
    cluster.produce("t", [b"x"] * 5, partition=0)
    raw.ask(
        DeleteRecordsRequest(
            topics=[
                DeleteRecordsRequest.DeleteRecordsTopic(
                    name="t", partitions=[DeleteRecordsRequest.DeleteRecordsPartition(offset=2)]
                )
            ]
        ),
        2,
    )
    entry = data(raw.ask(request((0, offset), max_wait_ms=5000), 12))[0]
    assert (entry.error_code, entry.high_watermark) == (1, -1)
    assert (entry.last_stable_offset, entry.log_start_offset) == (-1, -1)
    assert entry.records == b"", "not null"


def test_other_errors_of_a_partition(raw: Raw) -> None:
    assert data(raw.ask(request((9, 0)), 12))[9].error_code == 3
    assert data(raw.ask(request((0, 0), topic="nosuch"), 12))[0].error_code == 3
    assert data(raw.ask(request((0, 0), id=b"x" * 16), 13))[0].error_code == 100
    assert data(raw.ask(request((0, 0), epoch=9), 12))[0].error_code == 75
    assert data(raw.ask(request((0, 0), epoch=0), 12))[0].error_code == 0


def test_a_broker_that_does_not_lead_says_who_does() -> None:
    one = Cluster(brokers=2, topics={"t": 2}, replication_factor=1)
    with one as cluster, Raw(cluster, 1) as raw:
        metadata = raw.ask(MetadataRequest(topics=None), 12).topics[0]
        index = next(p.partition_index for p in metadata.partitions if p.leader_id == 2)
        response = raw.ask(request((index, 0), id=bytes(metadata.topic_id)), 16)
        entry = data(response)[index]
        assert (entry.error_code, entry.current_leader.leader_id) == (6, 2)
        assert [node.node_id for node in response.node_endpoints] == [2]


def test_at_the_end_of_the_log_it_waits_and_then_answers_nothing(raw: Raw) -> None:
    started = time.monotonic()
    entry = data(raw.ask(request((0, 0), max_wait_ms=200), 12))[0]
    assert time.monotonic() - started >= 0.19
    assert (entry.error_code, entry.records, entry.high_watermark) == (0, b"", 0)


def test_a_wait_ends_when_a_record_comes(cluster: Cluster, raw: Raw) -> None:
    raw.send(request((0, 0), (1, 0), max_wait_ms=20_000), 12)
    assert not raw.has_answer(0.05)
    cluster.produce("t", ["x"], partition=1)
    _, response = raw.receive()
    assert isinstance(response, FetchResponse)
    assert values(data(response)[1]) == [b"x"]


def test_fetch_waits_for_min_bytes_until_max_wait(cluster: Cluster, raw: Raw) -> None:
    cluster.produce("t", ["x"], partition=0)
    raw.send(request((0, 0), max_wait_ms=3_000, min_bytes=100_000), 12)
    assert not raw.has_answer(0.05)
    cluster.produce("t", ["y"], partition=0)
    _, response = raw.receive()
    assert isinstance(response, FetchResponse)
    assert values(data(response)[0]) == [b"x", b"y"]


def test_min_bytes_that_are_there_are_not_waited_for(cluster: Cluster, raw: Raw) -> None:
    cluster.produce("t", [b"x" * 1000] * 200, partition=0)
    entry = data(raw.ask(request((0, 0), max_wait_ms=20_000, min_bytes=100_000), 12))[0]
    assert entry.records


def test_a_wait_ends_when_the_topic_is_deleted(cluster: Cluster, raw: Raw) -> None:
    # Longer than the socket's timeout, so the response cannot come from the end of the wait.
    raw.send(request((0, 0), max_wait_ms=60_000), 12)
    assert not raw.has_answer(0.05)
    cluster.delete_topic("t")
    _, response = raw.receive()
    assert isinstance(response, FetchResponse)
    assert data(response)[0].error_code == 3


def test_limits_count_but_never_hold_back_the_first_batch(cluster: Cluster, raw: Raw) -> None:
    for partition in (0, 1):
        for _ in range(4):
            cluster.produce("t", [b"x" * 1000], partition=partition)

    def sizes(**limits: int) -> list[int]:
        got = data(raw.ask(request((0, 0), (1, 0), **limits), 12))  # type: ignore[arg-type]
        return [len(values(got[partition])) for partition in (0, 1)]

    assert sizes() == [4, 4]
    assert sizes(max_bytes=1) == [1, 0]
    assert sizes(partition_max_bytes=1) == [1, 0]
    assert sizes(partition_max_bytes=2500) == [2, 2]
    assert sizes(max_bytes=3500) == [3, 0]
    assert sizes(max_bytes=5500) == [4, 1]


def test_a_batch_is_whole_also_when_asked_for_from_its_middle(cluster: Cluster, raw: Raw) -> None:
    cluster.produce("t", ["a", "b", "c"], partition=0)
    assert values(data(raw.ask(request((0, 2)), 12))[0]) == [b"a", b"b", b"c"]


def test_a_session_tells_only_what_has_changed(cluster: Cluster, raw: Raw) -> None:
    cluster.produce("t", ["a"], partition=0)
    first = raw.ask(request((0, 0), (1, 0), session=(0, 0)), 12)
    assert first.session_id > 0
    assert set(data(first)) == {0, 1}
    session = first.session_id
    second = raw.ask(request((0, 1), session=(session, 1)), 12)
    assert data(second) == {}
    cluster.produce("t", ["b"], partition=1)
    third = raw.ask(request(session=(session, 2)), 12)
    assert (third.session_id, set(data(third))) == (session, {1})
    assert values(data(third)[1]) == [b"b"]
    fourth = raw.ask(request(session=(session, 3)), 12)
    assert set(data(fourth)) == {1}, "it did not say that it has read it"
    fifth = raw.ask(request((1, 1), session=(session, 4)), 12)
    assert data(fifth) == {}


def test_an_error_is_told_in_each_answer_of_a_session(raw: Raw) -> None:
    session = raw.ask(request((0, 0), (9, 0), session=(0, 0)), 12).session_id
    for epoch in (1, 2, 3):
        assert {
            p: e.error_code for p, e in data(raw.ask(request(session=(session, epoch)), 12)).items()
        } == {9: 3}


def test_fetch_session_ends_with_its_last_forgotten_partition(raw: Raw) -> None:
    session = raw.ask(request((0, 5), (1, 5), session=(0, 0)), 12).session_id
    again = raw.ask(request(session=(session, 1), forgotten=(0,)), 12)
    assert set(data(again)) == {1}
    ended = raw.ask(request(session=(session, 2), forgotten=(1,)), 12)
    assert (ended.session_id, data(ended)) == (0, {})
    assert raw.ask(request(session=(session, 3)), 12).error_code == 70


def test_sessions_that_are_not_there_or_at_another_epoch(raw: Raw) -> None:
    unknown = raw.ask(request((0, 0), session=(123, 1)), 12)
    assert (unknown.error_code, unknown.session_id, unknown.responses) == (70, 0, [])
    session = raw.ask(request((0, 0), session=(0, 0)), 12).session_id
    assert raw.ask(request(session=(session, 5)), 12).error_code == 71
    assert raw.ask(request(session=(session, 1)), 12).error_code == 0, "and goes on"
    assert raw.ask(request(id=topic_id(raw), session=(session, 2)), 13).error_code == 106


def test_a_session_can_be_closed_and_replaced(raw: Raw) -> None:
    session = raw.ask(request((0, 0), session=(0, 0)), 12).session_id
    other = raw.ask(request((0, 0), session=(session, 0)), 12).session_id
    assert other not in (0, session)
    assert raw.ask(request(session=(session, 1)), 12).error_code == 70
    closed = raw.ask(request(session=(other, -1)), 12)
    assert (closed.error_code, closed.session_id) == (0, 0)
    assert raw.ask(request(session=(other, 1)), 12).error_code == 70


def test_sessions_go_by_topic_ids_from_version_13_on(cluster: Cluster, raw: Raw) -> None:
    cluster.produce("t", ["a"], partition=0)
    known = topic_id(raw)
    first = raw.ask(request((0, 0), id=known, session=(0, 0)), 18)
    assert bytes(first.responses[0].topic_id) == known
    second = raw.ask(request(id=known, session=(first.session_id, 1), forgotten=(0,)), 18)
    assert second.session_id == 0


def test_partitions_that_gave_data_let_the_others_go_first(cluster: Cluster, raw: Raw) -> None:
    cluster.produce("t", [b"x" * 1000], partition=0)
    cluster.produce("t", [b"x" * 1000], partition=1)
    first = raw.ask(request((0, 0), (1, 0), session=(0, 0), max_bytes=1), 12)
    assert [p for p, entry in data(first).items() if entry.records] == [0]
    for epoch, turn in ((1, 0), (2, 1), (3, 0)):
        answer = raw.ask(request(session=(first.session_id, epoch), max_bytes=1), 12)
        assert [p for p, entry in data(answer).items() if entry.records] == [turn]


def test_many_waits_on_one_partition_all_end(cluster: Cluster) -> None:
    connections = [Raw(cluster) for _ in range(20)]
    for raw in connections:
        raw.send(request((0, 0), max_wait_ms=20_000), 12)
    threading.Thread(target=cluster.produce, args=("t", ["x"])).start()
    for raw in connections:
        _, response = raw.receive()
        assert isinstance(response, FetchResponse)
        assert values(data(response)[0]) == [b"x"]
        raw.close()
