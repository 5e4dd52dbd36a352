"""Transactional producers, and the observable state of their transactions."""

from __future__ import annotations

import time

from kohort.protocol.messages import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    FetchResponse,
    ListOffsetsResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from tests.conformance.probes.fetching import fetch, partition
from tests.conformance.probes.list_offsets import list_offsets
from tests.conformance.session import READY_S, Session
from tests.support.transactor import Transactor

WAYS = {"old": True, "new": False}
"""Transaction versions: the one before KIP-890, and 2."""
COMMITTED = 1
PREPARING = "Prepare"


def new_topic(session: Session, label: str = "t", partitions: int = 1) -> str:
    """Create a topic of one segment.

    Markers have the present time, and records are three years old. By default a marker would begin
    another segment, at which Kafka ends a fetch.
    """
    return session.topic(label, partitions, {"segment.ms": str((1 << 63) - 1)})


def producer(session: Session, label: str = "x", *, old: bool = False) -> Transactor:
    """Return a new producer with its first id and epoch."""
    made = Transactor(session, session.transactional_id(label), old=old)
    answer = made.init()
    assert answer.error_code == 0, answer
    return made


def describe(session: Session, *names: str) -> DescribeTransactionsResponse:
    return session.ask(DescribeTransactionsRequest(transactional_ids=list(names)), 0)


def settle(session: Session, *producers: Transactor) -> None:
    """Return when all markers of ended transactions are written."""
    deadline = time.monotonic() + READY_S
    names = [one.name for one in producers]
    while any(
        state.transaction_state.startswith(PREPARING)
        for state in describe(session, *names).transaction_states
    ):
        assert time.monotonic() < deadline, f"{names} do not end"
        time.sleep(0.002)


def end(session: Session, one: Transactor, *, committed: bool) -> int:
    """End the transaction, wait until that is done, and return the error code."""
    code = one.end(committed=committed).error_code
    settle(session, one)
    return code


def fetched(
    session: Session, topic: str, offset: int = 0, *, isolation: int = COMMITTED, version: int = 12
) -> FetchResponse:
    named: str | bytes = topic if version < 13 else session.topic_id(topic)
    return fetch(
        session,
        named,
        partition(0, offset),
        version=version,
        isolation_level=isolation,
        session_epoch=-1,
    )


def ends(session: Session, topic: str) -> list[ListOffsetsResponse]:
    """Return the end of partition 0 for readers of committed records, and for all."""
    return [list_offsets(session, topic, -1, isolation=isolation) for isolation in (1, 0)]


def offsets(
    session: Session, group: str, topic: str | None, *, stable: bool, version: int = 8
) -> OffsetFetchResponse:
    """Return what is committed for partition 0 of the topic, or for everything."""
    cls = OffsetFetchRequest
    if version >= 8:
        wanted = None
        if topic is not None:
            wanted = [cls.OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
            if version >= 10:
                wanted[0].name, wanted[0].topic_id = "", session.topic_id(topic)
        asked = cls.OffsetFetchRequestGroup(group_id=group, topics=wanted)
        return session.ask(cls(groups=[asked], require_stable=stable), version)
    old = None
    if topic is not None:
        old = [cls.OffsetFetchRequestTopic(name=topic, partition_indexes=[0])]
    return session.ask(cls(group_id=group, topics=old, require_stable=stable), version)
