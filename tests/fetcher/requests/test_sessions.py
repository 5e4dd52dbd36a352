"""Fetch sessions: the client's requests, and the in-process broker's reading of them."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kohort.broker._fetch_sessions import NO_SESSION, FetchKey, FetchSessions, ServedFetch, in_order
from kohort.config import FetchConfig
from kohort.errors import ErrorCode
from kohort.fetcher.requests._request import PartitionRequest, fetch_request, partitions_of
from kohort.fetcher.requests._sessions import SESSION_ERRORS, FetchSession, UpToDatePartitions
from kohort.protocol import decode, encode
from kohort.protocol.messages import FetchRequest, FetchResponse
from kohort.subscription import Watermarks
from kohort.types import TopicPartition

IDS = {"t": b"t" * 16, "u": b"u" * 16}
PARTITIONS = [TopicPartition(topic, number) for topic in ("t", "u") for number in range(4)]
T0, T1, *_ = PARTITIONS


def fetch_of(tp: TopicPartition, offset: int = 0, epoch: int = 1, **more: Any) -> PartitionRequest:
    more.setdefault("topic_id", IDS[tp.topic])
    return PartitionRequest(tp, epoch, offset, 0, 1000, **more)


class Broker:
    """The broker's sessions, and one client's session on it."""

    def __init__(self, version: int = 18, *, enabled: bool = True) -> None:
        self.version = version
        self.sessions = FetchSessions(random.Random(5))
        self.connection = FetchSession(enabled=enabled)
        self.request = FetchRequest()
        self.high_watermarks: dict[TopicPartition, int] = {}

    def send(self, *requests: PartitionRequest) -> ServedFetch:
        """Send the partitions in a request. Check the broker's plan against them and return it."""
        self.requests = {each.topic_partition: each for each in requests}
        plan = self.connection.plan(requests)
        version = min(self.version, plan.max_version)
        sent = encode(fetch_request(FetchConfig(), plan, 500, 1 << 20), version)
        self.request = decode(FetchRequest, version, sent)
        understood = self.sessions.plan(self.request, version)
        if not understood.error:
            by_id = version >= 13
            assert {each.key: each.offset for each in understood.session.partitions.values()} == {
                FetchKey(
                    "" if by_id else one.topic_partition.topic,
                    one.topic_id if by_id else bytes(16),
                    one.topic_partition.partition,
                ): one.offset
                for one in requests
            }
        return understood

    def answer(self, plan: ServedFetch) -> dict[TopicPartition, Watermarks]:
        response = FetchResponse(error_code=plan.error, session_id=plan.session.id)
        names = {id: name for name, id in IDS.items()}
        results = []
        for wanted in in_order(plan.session.partitions.values()):
            name = wanted.key.topic or names[wanted.key.topic_id]
            tp = TopicPartition(name, wanted.key.partition)
            data = FetchResponse.PartitionData(
                partition_index=tp.partition,
                high_watermark=self.high_watermarks.get(tp, 0),
                records=b"",
            )
            results.append((wanted, data))
        for wanted, data in self.sessions.changed_results(plan, results):
            response.responses.append(
                FetchResponse.FetchableTopicResponse(
                    topic=wanted.key.topic,
                    topic_id=wanted.key.topic_id or bytes(16),
                    partitions=[data],
                )
            )
        if response.error_code:
            self.connection.restart(response.error_code)
            return {}
        return dict(
            self.connection.note_response(
                response.session_id, partitions_of(response, self.requests)
            )
        )

    def fetch(self, *requests: PartitionRequest) -> dict[TopicPartition, Watermarks]:
        return self.answer(self.send(*requests))

    @property
    def named(self) -> dict[tuple[str | bytes, int], int]:
        """The partitions that the latest request names, and their offsets."""
        return {
            (topic.topic or bytes(topic.topic_id), each.partition): each.fetch_offset
            for topic in self.request.topics
            for each in topic.partitions
        }

    @property
    def place(self) -> tuple[bool, int]:
        return self.request.session_id != 0, self.request.session_epoch


@pytest.mark.parametrize("version", [7, 12, 18])
def test_only_changes_are_sent_once_there_is_a_session(version: int) -> None:
    broker = Broker(version)

    def key(tp: TopicPartition) -> tuple[str | bytes, int]:
        return (tp.topic if version < 13 else IDS[tp.topic]), tp.partition

    assert broker.fetch(fetch_of(T0), fetch_of(T1)) == {}
    assert broker.place == (False, 0)
    assert broker.named == {key(T0): 0, key(T1): 0}
    broker.high_watermarks[T0] = 7
    assert broker.fetch(fetch_of(T0, 3), fetch_of(T1)) == {T1: Watermarks(0, -1, -1)}
    assert broker.place == (True, 1)
    assert broker.named == {key(T0): 3}
    assert broker.fetch(fetch_of(T0, 3)) == {T0: Watermarks(7, -1, -1)}
    assert broker.place == (True, 2)
    assert broker.named == {}
    [forgotten] = broker.request.forgotten_topics_data
    assert forgotten.partitions == [1]
    assert broker.fetch(fetch_of(T0, 3), fetch_of(T1, 9)) == {T0: Watermarks(7, -1, -1)}
    assert broker.named == {key(T1): 9}
    assert len(broker.sessions) == 1


def test_a_new_epoch_of_ours_alone_is_no_change() -> None:
    broker = Broker()
    broker.fetch(fetch_of(T0, epoch=1))
    assert broker.fetch(fetch_of(T0, epoch=2)) == {T0: Watermarks(0, -1, -1)}
    assert broker.named == {}


@pytest.mark.parametrize("code", SESSION_ERRORS)
def test_full_request_replaces_the_session_after_an_error(code: ErrorCode) -> None:
    broker = Broker()
    broker.fetch(fetch_of(T0), fetch_of(T1))
    plan = broker.send(fetch_of(T0), fetch_of(T1))
    plan.error = code
    broker.answer(plan)
    assert not broker.connection.is_incremental
    broker.fetch(fetch_of(T0), fetch_of(T1))
    assert broker.place == (code != ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)
    assert len(broker.named) == 2
    broker.fetch(fetch_of(T0), fetch_of(T1))
    assert broker.place == (True, 1)
    assert len(broker.sessions) == 1 + (code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND)


def test_an_answer_that_was_lost_ends_the_session_on_both_sides() -> None:
    broker = Broker()
    broker.fetch(fetch_of(T0))
    broker.send(fetch_of(T0, 5))
    broker.connection.restart()
    broker.fetch(fetch_of(T0, 5))
    assert broker.place == (True, 0)
    assert len(broker.sessions) == 1


def test_broker_without_room_for_a_session_gets_full_requests() -> None:
    broker = Broker()
    for _ in range(3):
        plan = broker.send(fetch_of(T0), fetch_of(T1))
        plan.session.id = NO_SESSION
        assert broker.answer(plan) == {}
        assert len(broker.named) == 2
        assert broker.place == (False, 0)


def test_a_topic_made_anew_begins_another_session() -> None:
    broker = Broker()
    broker.fetch(fetch_of(T0), fetch_of(T1))
    IDS["t"], before = b"T" * 16, IDS["t"]
    try:
        broker.fetch(fetch_of(T0), fetch_of(T1))
    finally:
        IDS["t"] = before
    assert broker.place == (True, 0)
    assert set(broker.named) == {(b"T" * 16, 0), (b"T" * 16, 1)}


def test_partitions_are_asked_apart_when_their_topic_ids_differ() -> None:
    broker = Broker()
    broker.send(fetch_of(T0, 5, topic_id=b"n" * 16), fetch_of(T1, 7))
    assert broker.named == {(b"n" * 16, 0): 5, (IDS["t"], 1): 7}


def test_a_topic_without_an_id_has_all_of_them_asked_by_name() -> None:
    broker = Broker()
    broker.fetch(fetch_of(T0), fetch_of(T1))
    other = fetch_of(TopicPartition("u", 0), topic_id=bytes(16))
    broker.fetch(fetch_of(T0), other)
    assert broker.place == (True, 0)
    assert set(broker.named) == {("t", 0), ("u", 0)}
    broker.fetch(fetch_of(T0), other)
    assert broker.place == (True, 1)
    broker.fetch(fetch_of(T0))
    assert broker.place == (True, 0)
    assert set(broker.named) == {(IDS["t"], 0)}


def test_without_sessions_everything_is_asked_for_each_time() -> None:
    broker = Broker(enabled=False)
    for _ in range(2):
        assert broker.fetch(fetch_of(T0), fetch_of(T1)) == {}
        assert broker.place == (False, -1)
        assert len(broker.named) == 2
    assert len(broker.sessions) == 0


@pytest.mark.parametrize("version", [12, 18])
@pytest.mark.parametrize("seed", range(20))
def test_both_sides_agree_whatever_happens(seed: int, version: int) -> None:
    rng, broker = random.Random(seed), Broker(version)
    for _ in range(100):
        requests = [
            fetch_of(tp, rng.randrange(3), rng.randrange(2))
            for tp in rng.sample(PARTITIONS, rng.randint(1, len(PARTITIONS)))
        ]
        for tp in PARTITIONS:
            if rng.random() < 0.3:
                broker.high_watermarks[tp] = rng.randrange(3)
        plan = broker.send(*requests)
        what = rng.random()
        if what < 0.05:
            broker.connection.restart()
        elif what < 0.1:
            broker.sessions = FetchSessions(rng)
            broker.answer(plan)
        else:
            quiet = broker.answer(plan)
            for tp, watermarks in quiet.items():
                assert watermarks.high_watermark == broker.high_watermarks.get(tp, 0)
            if broker.request.session_epoch > 0 and not plan.error:
                assert broker.connection.is_incremental


class CountingView(UpToDatePartitions):
    """A view that counts the partitions that are looked up in it."""

    looked_up = 0

    def __contains__(self, tp: object) -> bool:
        self.looked_up += 1
        return super().__contains__(tp)


def test_full_responses_cost_nothing_for_left_out_partitions() -> None:
    partitions = [TopicPartition("t", number) for number in range(1000)]
    session, known = FetchSession(), Watermarks(7, 7, 0)
    session.plan([fetch_of(tp) for tp in partitions])
    watermarks = dict.fromkeys(partitions, known)
    assert len(session.newly_up_to_date(CountingView(watermarks, ()), (), had_room=False)) == 1000
    for number in range(3):
        changed = partitions[number : number + 2]
        session.update({tp: fetch_of(tp, number + 1) for tp in changed})
        view = CountingView(watermarks, changed[:1])
        due = session.newly_up_to_date(view, changed[:1], had_room=False)
        assert set(due) == {*changed[1:], *partitions[max(number - 1, 0) : number]}
        assert view.looked_up <= 8
    view = CountingView(watermarks, ())
    assert len(session.newly_up_to_date(view, (), had_room=True)) == 1000
    assert not session.newly_up_to_date(view, (), had_room=True)
