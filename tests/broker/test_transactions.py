"""Transactions by the raw protocol: epochs, markers, the stable offset, and fenced producers."""

from __future__ import annotations

from typing import Any

import pytest

from kohort.protocol.messages import (
    AddPartitionsToTxnRequest,
    ApiVersionsRequest,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    FetchRequest,
    FetchResponse,
    FindCoordinatorRequest,
    ListOffsetsRequest,
    ListTransactionsRequest,
    OffsetFetchRequest,
    WriteTxnMarkersRequest,
)
from kohort.records import ControlType, control_type, split_batches
from kohort.testing import Cluster
from tests.broker.raw import Raw, find_coordinator
from tests.support import transactor

NAME = "payments"


class Transactor(transactor.Transactor):
    """A transactional producer of partition 0 of "t" and group "g" that returns single fields."""

    def __init__(self, raw: Raw, *, old: bool = False, name: str = NAME) -> None:
        raw.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=[name]), 6)
        super().__init__(raw, name, old=old)

    def added(self, partition: int = 0, version: int = 3) -> int:
        """Add the partition and return the error code."""
        topics = self.add(("t", partition), version=version).results_by_topic_v3_and_below
        return topics[0].results_by_partition[0].partition_error_code

    def wrote(self, value: bytes, version: int | None = None) -> int:
        """Write the value and return the error code."""
        answer = self.write("t", value, version=version)
        return answer.responses[0].partition_responses[0].error_code

    def committed(self, offset: int, version: int | None = None, **other: Any) -> int:
        """Commit the offset and return the error code."""
        request = self.commit_offset("g", "t", offset, version=version, **other)
        return request.topics[0].partitions[0].error_code


@pytest.fixture(params=["old", "new"])
def producer(request: pytest.FixtureRequest, raw: Raw) -> Transactor:
    one = Transactor(raw, old=request.param == "old")
    assert one.init().error_code == 0
    return one


def fetch(raw: Raw, offset: int = 0, *, isolation: int = 1) -> FetchResponse.PartitionData:
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=isolation,
        session_epoch=-1,
        topics=[
            FetchRequest.FetchTopic(
                topic="t",
                partitions=[
                    FetchRequest.FetchPartition(
                        partition=0, fetch_offset=offset, partition_max_bytes=1 << 20
                    )
                ],
            )
        ],
    )
    return raw.ask(request, 12).responses[0].partitions[0]


def values(data: FetchResponse.PartitionData) -> list[bytes | None]:
    return [
        record.value
        for batch in split_batches(data.records or b"")
        if not batch.header.is_control
        for record in batch.records()
    ]


def end_offset(raw: Raw, isolation: int) -> int:
    request = ListOffsetsRequest(
        isolation_level=isolation,
        topics=[
            ListOffsetsRequest.ListOffsetsTopic(
                name="t",
                partitions=[
                    ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
                ],
            )
        ],
    )
    return raw.ask(request, 7).topics[0].partitions[0].offset


def committed(raw: Raw, *, stable: bool, everything: bool = False) -> list[tuple[int, int]]:
    """Return error and offset of each partition in the response."""
    group = OffsetFetchRequest.OffsetFetchRequestGroup(
        group_id="g",
        topics=None
        if everything
        else [OffsetFetchRequest.OffsetFetchRequestTopics(name="t", partition_indexes=[0])],
    )
    response = raw.ask(OffsetFetchRequest(groups=[group], require_stable=stable), 8)
    return [
        (partition.error_code, partition.committed_offset)
        for topic in response.groups[0].topics
        for partition in topic.partitions
    ]


def described(raw: Raw) -> tuple[str, int, list[str]]:
    response = raw.ask(DescribeTransactionsRequest(transactional_ids=[NAME]), 0)
    (state,) = response.transaction_states
    return state.transaction_state, state.producer_epoch, [t.topic for t in state.topics]


def test_what_is_open_is_not_stable(raw: Raw, producer: Transactor) -> None:
    producer.begin("t", b"a", b"b")
    data = fetch(raw)
    assert (data.last_stable_offset, data.high_watermark, data.records) == (0, 2, b"")
    assert values(fetch(raw, isolation=0)) == [b"a", b"b"]
    assert (end_offset(raw, 1), end_offset(raw, 0)) == (0, 2)
    assert described(raw) == ("Ongoing", producer.epoch, ["t"])
    assert producer.end(committed=True).error_code == 0
    data = fetch(raw)
    assert (data.last_stable_offset, data.high_watermark) == (3, 3)
    assert (values(data), data.aborted_transactions) == ([b"a", b"b"], [])
    assert described(raw) == ("CompleteCommit", producer.epoch, [])


def test_what_is_aborted_is_listed(raw: Raw, producer: Transactor) -> None:
    for committed in (False, True, False):
        producer.begin("t", b"x")
        assert producer.end(committed=committed).error_code == 0
    aborted = fetch(raw).aborted_transactions or []
    assert [(a.producer_id, a.first_offset) for a in aborted] == [
        (producer.producer_id, 0),
        (producer.producer_id, 4),
    ]
    later = fetch(raw, 3).aborted_transactions or []
    assert [a.first_offset for a in later] == [4]
    assert fetch(raw, isolation=0).aborted_transactions is None


def test_markers_are_control_batches_as_kafka_writes_them(raw: Raw, producer: Transactor) -> None:
    producer.begin("t", b"x")
    producer.end(committed=True)
    _, marker = split_batches(fetch(raw).records or b"")
    marker.check_crc()
    header = marker.header
    assert (header.attributes, header.base_sequence, header.count) == (0x30, -1, 1)
    assert (header.producer_id, header.producer_epoch) == (producer.producer_id, producer.epoch)
    (record,) = marker.records()
    assert control_type(record.key) == ControlType.COMMIT
    assert record.value == b"\0\0" + bytes(4)


def test_transaction_version_2_has_a_new_epoch_with_each_end(raw: Raw) -> None:
    producer = Transactor(raw)
    assert producer.init().producer_epoch == 0
    producer.begin("t", b"x")
    before = producer.epoch
    assert producer.end(committed=True).producer_epoch == before + 1
    assert producer.end(committed=False).producer_epoch == before + 2  # no transaction was open
    assert producer.end(committed=True).error_code == 48
    producer.begin("t", b"y")
    producer.end(committed=True)
    producer.epoch -= 1
    assert producer.end(committed=True).producer_epoch == before + 3  # a retry
    producer.epoch -= 1
    assert producer.end(committed=False).error_code == 48


def test_before_that_the_epoch_stays(raw: Raw) -> None:
    producer = Transactor(raw, old=True)
    producer.init()
    assert producer.end(committed=False).error_code == 48
    producer.begin("t", b"x")
    for _ in range(2):
        answer = producer.end(committed=True)
        assert (answer.error_code, producer.epoch) == (0, 0)
    assert producer.end(committed=False).error_code == 48
    producer.begin("t", b"y")
    assert values(fetch(raw)) == [b"x"]


def test_partitions_must_be_in_the_transaction_before_version_12(raw: Raw) -> None:
    producer = Transactor(raw, old=True)
    producer.init()
    assert producer.wrote(b"x", version=11) == 120
    assert producer.wrote(b"x", version=9) == 48
    assert producer.added(7) == 3
    assert producer.added() == 0
    assert producer.wrote(b"x", version=9) == 0


@pytest.mark.parametrize("version", range(4))
def test_partitions_are_added_in_every_version_for_producers(raw: Raw, version: int) -> None:
    producer = Transactor(raw, old=True)
    producer.init()
    assert producer.added(version=version) == 0
    producer.epoch += 1
    assert producer.added(version=version) == (90 if version >= 2 else 47)
    producer.producer_id += 1
    assert producer.added(version=version) == 49
    producer.name = "nobody"
    assert producer.added(version=version) == 49
    producer.name = ""
    assert producer.added(version=version) == 42


@pytest.mark.parametrize("version", [4, 5])
def test_brokers_ask_whether_partitions_are_in(raw: Raw, version: int) -> None:
    producer = Transactor(raw)
    producer.init()
    producer.begin("t", b"x")

    def ask(only: bool, *partitions: int) -> list[int]:
        cls = AddPartitionsToTxnRequest
        asked = cls.AddPartitionsToTxnTransaction(
            transactional_id=NAME,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            verify_only=only,
            topics=[cls.AddPartitionsToTxnTopic(name="t", partitions=list(partitions))],
        )
        (result,) = raw.ask(cls(transactions=[asked]), version).results_by_transaction
        return [p.partition_error_code for p in result.topic_results[0].results_by_partition]

    assert ask(True, 0, 1) == [0, 120]
    assert ask(False, 1, 5) == [55, 3]
    assert ask(False, 1) == [0]
    assert ask(True, 1) == [0]


def test_a_new_producer_fences_the_one_before(raw: Raw) -> None:
    first, second = Transactor(raw), Transactor(raw)
    find_coordinator(raw)
    first.init()
    first.begin("t", b"lost")
    assert second.init().error_code == 51
    assert described(raw)[0] == "CompleteAbort"
    assert second.init().producer_epoch == 2
    assert second.producer_id == first.producer_id
    assert first.wrote(b"late") == 47
    assert first.end(committed=True).error_code == 90
    assert first.committed(1) == 47
    second.begin("t", b"x")
    second.end(committed=True)
    data = fetch(raw)
    assert [a.first_offset for a in data.aborted_transactions or []] == [0]


def test_a_producer_brings_its_epoch_to_get_the_next(raw: Raw) -> None:
    producer = Transactor(raw)
    producer.init()
    assert producer.init(keep=True).producer_epoch == 1
    producer.epoch = 0
    assert producer.init(keep=True).producer_epoch == 1  # a retry
    producer.init()
    producer.epoch = 0
    assert producer.init(keep=True).error_code == 90
    producer.producer_id += 1000
    assert producer.init(keep=True).error_code == 90
    producer.producer_id = -1
    assert producer.init(keep=True).error_code == 42
    assert producer.init(timeout_ms=0).error_code == 50
    assert producer.init(timeout_ms=900_001).error_code == 50


def test_a_transaction_that_takes_too_long_is_aborted(cluster: Cluster, raw: Raw) -> None:
    producer = Transactor(raw)
    producer.init(timeout_ms=50)
    producer.begin("t", b"slow")
    cluster.wait_until(lambda: end_offset(raw, 1) == 2)
    assert producer.end(committed=True).error_code == 48
    assert producer.wrote(b"late") == 47
    assert described(raw)[0] == "CompleteAbort"


def test_offsets_count_when_the_transaction_is_committed(raw: Raw, producer: Transactor) -> None:
    find_coordinator(raw)
    for expected, commits in ((-1, False), (5, True), (5, False)):
        if producer.old:
            assert producer.add_offsets("g").error_code == 0
        assert producer.committed(5 if commits else 9) == 0
        before = -1 if expected < 0 or commits else 5
        assert committed(raw, stable=True) == [(88, -1)]
        assert committed(raw, stable=False) == [(0, before)]
        assert len(committed(raw, stable=True, everything=True)) == (before > 0)
        assert producer.end(committed=commits).error_code == 0
        assert committed(raw, stable=True) == [(0, expected)]


def test_offsets_before_version_5_must_be_announced(raw: Raw) -> None:
    find_coordinator(raw)
    producer = Transactor(raw, old=True)
    producer.init()
    assert producer.committed(1, version=3) == 48
    assert producer.committed(1, version=4) == 120
    assert producer.committed(1, version=5) == 0


def test_offsets_are_those_of_a_member_if_it_says_so(raw: Raw) -> None:
    find_coordinator(raw)
    producer = Transactor(raw)
    producer.init()
    assert producer.committed(1, generation_id_or_member_epoch=3, member_id="m") == 22
    assert producer.committed(1) == 0
    assert producer.committed(1, generation_id_or_member_epoch=3, member_id="m") == 25


@pytest.mark.parametrize("version", [1, 2])
def test_markers_of_an_admin_end_what_hangs(raw: Raw, version: int) -> None:
    producer = Transactor(raw)
    producer.init()
    producer.begin("t", b"hanging")
    cls = WriteTxnMarkersRequest
    marker = cls.WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        transaction_result=False,
        topics=[cls.WritableTxnMarkerTopic(name="t", partition_indexes=[0, 9])],
    )
    (answer,) = raw.ask(cls(markers=[marker]), version).markers
    assert [p.error_code for p in answer.topics[0].partitions] == [0, 3]
    assert fetch(raw).last_stable_offset == 2


def test_transactions_are_listed_by_state_age_and_name(raw: Raw) -> None:
    for name in ("one", "two"):
        producer = Transactor(raw, name=name)
        producer.init()
    producer.begin("t", b"x")

    def names(request: ListTransactionsRequest, version: int = 2) -> list[str]:
        return sorted(s.transactional_id for s in raw.ask(request, version).transaction_states)

    assert names(ListTransactionsRequest(), 0) == ["one", "two"]
    assert names(ListTransactionsRequest(state_filters=["Ongoing"])) == ["two"]
    assert names(ListTransactionsRequest(state_filters=["Nonsense"])) == []
    assert names(ListTransactionsRequest(producer_id_filters=[producer.producer_id])) == ["two"]
    assert names(ListTransactionsRequest(transactional_id_pattern="o.*")) == ["one"]
    assert raw.ask(ListTransactionsRequest(transactional_id_pattern="("), 2).error_code == 128
    assert raw.ask(ListTransactionsRequest(state_filters=["No"]), 2).unknown_state_filters == ["No"]


def test_producers_of_a_partition_are_described(raw: Raw) -> None:
    producer = Transactor(raw)
    producer.init()
    producer.begin("t", b"x", b"y")
    topic = DescribeProducersRequest.TopicRequest(name="t", partition_indexes=[0, 9])
    first, none = raw.ask(DescribeProducersRequest(topics=[topic]), 0).topics[0].partitions
    (state,) = first.active_producers
    assert (state.producer_id, state.producer_epoch) == (producer.producer_id, 0)
    assert (state.last_sequence, state.current_txn_start_offset) == (1, 0)
    assert none.error_code == 3


def test_unknown_transactions_are_not_described(raw: Raw) -> None:
    Transactor(raw)
    response = raw.ask(DescribeTransactionsRequest(transactional_ids=["nobody", ""]), 0)
    assert [state.error_code for state in response.transaction_states] == [105, 42]


@pytest.mark.parametrize("level", range(3))
def test_the_transaction_version_is_a_feature_of_the_cluster(level: int) -> None:
    with Cluster(transaction_version=level) as cluster, Raw(cluster) as raw:
        request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
        response = raw.ask(request, 3)
        levels = {f.name: f.max_version_level for f in response.finalized_features}
        del levels["group.version"], levels["metadata.version"], levels["share.version"]
        assert levels == ({"transaction.version": level} if level else {})


def test_a_coordinator_that_moves_goes_on_with_what_is_open() -> None:
    with Cluster(brokers=2, topics={"t": 1}) as cluster:

        def lead(topic: str) -> None:
            for index in range(50):
                cluster.move_leader(topic, index, to=moved)

        moved = 1
        cluster.move_leader("t", 0, to=1)
        with Raw(cluster) as first, Raw(cluster, 2) as second:
            producer = Transactor(first)
            find_coordinator(first)
            lead("__transaction_state")
            lead("__consumer_offsets")
            producer.init()
            producer.begin("t", b"x")
            assert producer.committed(7) == 0
            moved = 2
            lead("__transaction_state")
            lead("__consumer_offsets")
            assert producer.end(committed=True).error_code == 16
            assert committed(second, stable=True) == [(88, -1)]
            producer.asker = second
            assert described(second)[0] == "Ongoing"
            assert producer.end(committed=True).error_code == 0
            assert committed(second, stable=True) == [(0, 7)]
            assert values(fetch(first)) == [b"x"]


@pytest.mark.parametrize("moves", [False, True])
def test_offsets_that_were_written_last_count(moves: bool) -> None:
    """The transaction that ends last does not decide, also after the coordinator has moved."""
    with Cluster(brokers=2, topics={"t": 1}) as cluster, Raw(cluster) as raw:
        find_coordinator(raw)
        first, second = (Transactor(raw, name=name) for name in ("first", "second"))
        for topic in ("__transaction_state", "__consumer_offsets"):
            for index in range(50):
                cluster.move_leader(topic, index, to=1)
        for one, offset in ((first, 5), (second, 6)):
            assert one.init().error_code == 0
            assert one.committed(offset) == 0
        assert second.end(committed=True).error_code == 0
        if moves:
            for to in (2, 1):
                for index in range(50):
                    cluster.move_leader("__consumer_offsets", index, to=to)
        assert committed(raw, stable=True) == [(88, -1)]
        assert committed(raw, stable=False) == [(0, 6)]
        assert first.end(committed=True).error_code == 0
        assert committed(raw, stable=True) == [(0, 6)]
