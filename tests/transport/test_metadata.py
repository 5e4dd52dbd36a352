"""The snapshot of the metadata, and the changes that a response makes to it."""

from __future__ import annotations

import pytest

from kohort.errors import ErrorCode
from kohort.protocol.messages import MetadataResponse
from kohort.transport import BrokerAddress, ClusterMetadata, Leader
from kohort.transport.cluster._metadata import OLDER_RESPONSES, UNKNOWN_RESPONSES
from kohort.types import TopicPartition
from tests.transport.peer import topic_answer

T0 = TopicPartition("t", 0)


def answer(
    *topics: MetadataResponse.MetadataResponseTopic, brokers: tuple[int, ...] = (1, 2)
) -> MetadataResponse:
    return MetadataResponse(
        cluster_id="c",
        controller_id=2,
        brokers=[
            MetadataResponse.MetadataResponseBroker(
                node_id=node, host=f"b{node}", port=9092, rack="r"
            )
            for node in brokers
        ],
        topics=list(topics),
    )


def after(*answers: MetadataResponse) -> ClusterMetadata:
    snapshot = ClusterMetadata()
    for each in answers:
        snapshot = snapshot.merged(each)
    return snapshot


def test_an_answer_becomes_a_snapshot() -> None:
    snapshot = after(answer(topic_answer("t", [1, 2], epoch=4)))
    assert snapshot.cluster_id == "c"
    assert snapshot.controller == 2
    assert snapshot.brokers[1] == BrokerAddress(1, "b1", 9092, "r")
    assert snapshot.partitions_for("t") == (0, 1)
    assert snapshot.leader(T0) == Leader(1, 4)
    assert snapshot.topics["t"].partitions[1].isr == (2,)
    assert snapshot.topics["t"].is_complete
    found = snapshot.topic_by_id(b"t" + b"." * 15)
    assert found is snapshot.topics["t"]


def test_what_is_not_known_is_none_or_empty() -> None:
    snapshot = after(answer(topic_answer("t", [1])))
    assert snapshot.leader(TopicPartition("t", 5)) is None
    assert snapshot.leader(TopicPartition("u", 0)) is None
    assert snapshot.partitions_for("u") == ()
    assert snapshot.topic_by_id(b"x" * 16) is None
    assert snapshot.topic_by_id(bytes(16)) is None


def test_leader_is_none_without_one_or_if_its_broker_is_unknown() -> None:
    snapshot = after(answer(topic_answer("t", [-1, 7])))
    assert snapshot.leader(T0) is None
    assert snapshot.leader(TopicPartition("t", 1)) is None
    assert not snapshot.topics["t"].is_complete


@pytest.mark.parametrize(
    ("epochs", "leader"),
    [
        ((5, 6), Leader(2, 6)),
        ((5, 5), Leader(2, 5)),
        ((5, 4), Leader(1, 5)),
        ((5, -1), Leader(2, -1)),
        ((-1, 3), Leader(2, 3)),
    ],
)
def test_an_older_leader_epoch_never_replaces_a_newer_one(
    epochs: tuple[int, int], leader: Leader
) -> None:
    old, new = epochs
    snapshot = after(
        answer(topic_answer("t", [1], epoch=old)), answer(topic_answer("t", [2], epoch=new))
    )
    assert snapshot.leader(T0) == leader


def test_a_topic_created_anew_starts_with_its_own_epochs() -> None:
    snapshot = after(
        answer(topic_answer("t", [1], epoch=5)),
        answer(topic_answer("t", [2], epoch=0, topic_id=b"another topic id")),
    )
    assert snapshot.leader(T0) == Leader(2, 0)


def test_response_without_topic_ids_keeps_the_topic() -> None:
    snapshot = after(
        answer(topic_answer("t", [1], epoch=5)),
        answer(topic_answer("t", [2], epoch=4, topic_id=bytes(16))),
    )
    assert snapshot.leader(T0) == Leader(1, 5)


def test_topics_not_in_the_answer_are_forgotten_unless_kept() -> None:
    old = after(answer(topic_answer("t", [1])))
    new = answer(topic_answer("u", [2]))
    assert set(old.merged(new).topics) == {"u"}
    assert set(old.merged(new, keep=True).topics) == {"t", "u"}


def test_topic_that_a_response_leaves_out_counts_as_unknown() -> None:
    snapshot = after(answer(topic_answer("t", [1])))
    for _ in range(UNKNOWN_RESPONSES - 1):
        snapshot = snapshot.merged(answer(), requested=["t"])
        assert snapshot.leader(T0) == Leader(1, 0)
        assert snapshot.topics["t"].error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert snapshot.merged(answer(topic_answer("t", [1])), requested=["t"]).topics["t"].error == 0
    snapshot = snapshot.merged(answer(), requested=["t"])
    assert snapshot.leader(T0) is None


def test_an_error_that_passes_keeps_what_was_known() -> None:
    error = topic_answer("t", [], error=ErrorCode.LEADER_NOT_AVAILABLE)
    snapshot = after(answer(topic_answer("t", [1], epoch=5)), answer(error))
    assert snapshot.topics["t"].error == ErrorCode.LEADER_NOT_AVAILABLE
    assert snapshot.partitions_for("t") == (0,)
    assert not snapshot.topics["t"].is_complete


def test_topic_is_gone_after_several_unknown_topic_responses() -> None:
    known = answer(topic_answer("t", [1]))
    unknown = answer(topic_answer("t", [], error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    assert after(known, unknown, unknown).partitions_for("t") == (0,)
    gone = after(known, unknown, unknown, unknown)
    assert gone.partitions_for("t") == ()
    assert gone.topics["t"].error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert after(known, unknown, unknown, known, unknown).partitions_for("t") == (0,)


def test_topic_keeps_its_partitions_when_it_is_refused() -> None:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    snapshot = after(answer(topic_answer("t", [1])), answer(topic_answer("t", [], error=code)))
    assert snapshot.topics["t"].error == code
    assert snapshot.partitions_for("t") == (0,)
    assert snapshot.refused(["t", "u"]) == {"t"}


@pytest.mark.parametrize("code", [ErrorCode.INVALID_TOPIC_EXCEPTION])
def test_permanent_error_is_shown_and_not_refreshed_soon(code: int) -> None:
    snapshot = after(answer(topic_answer("t", [1])), answer(topic_answer("t", [], error=code)))
    assert snapshot.topics["t"].error == code
    assert snapshot.partitions_for("t") == ()
    assert snapshot.topics["t"].is_complete


def test_nonsense_in_an_answer_is_left_out() -> None:
    topic = topic_answer("t", [1])
    topic.partitions[0].partition_index = -3
    nameless = topic_answer("u", [1])
    nameless.name = None
    snapshot = after(answer(topic, nameless, brokers=(1, -5)))
    assert set(snapshot.topics) == {"t"}
    assert snapshot.partitions_for("t") == ()
    assert set(snapshot.brokers) == {1}


def test_a_snapshot_cannot_be_changed() -> None:
    snapshot = after(answer(topic_answer("t", [1])))
    with pytest.raises(AttributeError):
        snapshot.controller = 9  # type: ignore[misc]  # that is the point
    with pytest.raises(TypeError):
        snapshot.topics["x"] = snapshot.topics["t"]  # type: ignore[index]  # that is the point


@pytest.mark.parametrize(
    "named",
    [
        BrokerAddress(-1, "b9", 1),
        BrokerAddress(9, "", 1),
        BrokerAddress(9, "b9", 0),
        BrokerAddress(9, "b9", 1 << 16),
    ],
)
@pytest.mark.cases
def test_a_named_leader_that_cannot_exist_is_left_out(named: BrokerAddress) -> None:
    snapshot = after(answer(topic_answer("t", [1, 2], epoch=4)))
    assert snapshot.with_leaders({T0: Leader(named.id, 5)}, [named]) is snapshot


def test_a_newer_leader_that_was_named_is_taken_with_its_address() -> None:
    snapshot = after(answer(topic_answer("t", [1, 2], epoch=4)))
    new = snapshot.with_leaders({T0: Leader(9, 5)}, [BrokerAddress(9, "b9", 1)])
    assert new.leader(T0) == Leader(9, 5)
    assert new.brokers[9] == BrokerAddress(9, "b9", 1)
    assert new.leader(TopicPartition("t", 1)) == Leader(2, 4)
    assert new.topic_by_id(snapshot.topics["t"].topic_id) is new.topics["t"]
    assert snapshot.leader(T0) == Leader(1, 4)
    # The response of an outdated broker changes the addresses only.
    lagging = new.merged(answer(topic_answer("t", [1, 2], epoch=4), brokers=(1, 2, 9)))
    assert lagging.leader(T0) == Leader(9, 5)


@pytest.mark.parametrize(
    ("tp", "leader"),
    [
        (T0, Leader(2, 4)),
        (T0, Leader(2, 3)),
        (T0, Leader(7, 5)),
        (TopicPartition("u", 0), Leader(2, 5)),
    ],
    ids=["as old", "older", "nowhere", "of what is not known"],
)
def test_other_leaders_that_were_named_are_not_taken(tp: TopicPartition, leader: Leader) -> None:
    snapshot = after(answer(topic_answer("t", [1, 2], epoch=4)))
    assert snapshot.with_leaders({tp: leader}, [BrokerAddress(2, "elsewhere", 1)]) is snapshot


def test_leader_that_no_response_confirms_is_dropped() -> None:
    said = answer(topic_answer("t", [1, 2], epoch=4))
    snapshot = after(said).with_leaders({T0: Leader(2, (1 << 31) - 1)}, [])
    for _ in range(OLDER_RESPONSES - 1):
        snapshot = snapshot.merged(said)
        assert snapshot.leader(T0) == Leader(2, (1 << 31) - 1)
    snapshot = snapshot.merged(said)
    assert snapshot.leader(T0) == Leader(1, 4)
