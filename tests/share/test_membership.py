"""The membership in a share group: what it sends, and how it reacts to each response."""

from __future__ import annotations

import pytest

from kohort.errors import ErrorCode
from kohort.share.machine._membership import (
    FIRST_INTERVAL,
    FOLLOW_UP,
    Answered,
    Assign,
    DropCoordinator,
    Fail,
    MemberCommand,
    MemberEvent,
    Retry,
    SendHeartbeat,
    SendLeave,
    ShareMembership,
    Subscribe,
    Tick,
    Unanswered,
)

TOPICS = frozenset({"jobs"})
PARTITIONS = frozenset({(b"i" * 16, 0), (b"i" * 16, 1)})
INTERVAL = 5.0
BACKOFF = 0.5


class Script:
    """A membership on a clock that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0
        self.member = ShareMembership(lambda failures: BACKOFF * failures)

    def __call__(self, event: MemberEvent) -> list[MemberCommand]:
        return self.member.handle(event, self.now)

    def tick(self) -> list[MemberCommand]:
        """Go to the next deadline."""
        deadline = self.member.next_deadline()
        assert deadline is not None
        self.now = deadline
        return self(Tick())

    def joined(self) -> None:
        """Join, with two partitions."""
        assert self(Subscribe(TOPICS)) == [SendHeartbeat(0, TOPICS)]
        assert self(Answered(0, 2, INTERVAL, PARTITIONS)) == [Assign(PARTITIONS)]


def test_a_member_joins_with_its_topics_and_then_leaves_them_out() -> None:
    script = Script()
    script.joined()
    assert script.member.next_deadline() == script.now + INTERVAL
    assert script.tick() == [SendHeartbeat(2, None)]
    assert script.member.next_deadline() is None  # one is in flight
    assert script(Answered(0, 2, INTERVAL, None)) == []
    assert script.member.assignment == PARTITIONS


def test_a_member_without_partitions_asks_again_soon() -> None:
    script = Script()
    script(Subscribe(TOPICS))
    pauses = []
    for _ in range(4):
        script(Answered(0, 2, INTERVAL, frozenset()))
        before = script.now
        assert script.tick() == [SendHeartbeat(2, None)]
        pauses.append(script.now - before)
    assert pauses == pytest.approx([FOLLOW_UP, 2 * FOLLOW_UP, 4 * FOLLOW_UP, 8 * FOLLOW_UP])
    for _ in range(9):
        script(Answered(0, 2, INTERVAL, frozenset()))
        before = script.now
        script.tick()
    assert script.now - before == pytest.approx(INTERVAL / 5)


def test_changed_topics_are_sent_at_once_and_until_they_are_accepted() -> None:
    script = Script()
    script.joined()
    more = TOPICS | {"other"}
    assert script(Subscribe(more)) == [SendHeartbeat(2, more)]
    assert script(Unanswered()) == []
    assert script.tick() == [SendHeartbeat(2, more)]
    script(Answered(0, 3, INTERVAL, None))
    assert script.tick() == [SendHeartbeat(3, None)]


def test_topics_that_change_while_a_heartbeat_is_in_flight_follow_it() -> None:
    script = Script()
    assert script(Subscribe(TOPICS)) == [SendHeartbeat(0, TOPICS)]
    more = TOPICS | {"other"}
    assert script(Subscribe(more)) == []
    assert script(Answered(0, 2, INTERVAL, PARTITIONS)) == [
        Assign(PARTITIONS),
        SendHeartbeat(2, more),
    ]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
    ],
)
def test_a_member_that_was_removed_joins_again_at_once(code: int) -> None:
    script = Script()
    script.joined()
    script.tick()
    assert script(Answered(code, 0, 0.0, None)) == [
        Assign(frozenset()),
        SendHeartbeat(0, TOPICS),
    ]


@pytest.mark.parametrize(
    ("code", "drops"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, False),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, True),
        (ErrorCode.NOT_COORDINATOR, True),
    ],
)
def test_a_coordinator_that_moves_is_asked_again_after_growing_pauses(
    code: int, drops: bool
) -> None:
    script = Script()
    script.joined()
    for failures in (1, 2):
        script.tick()
        assert script(Answered(code, 0, 0.0, None)) == [DropCoordinator()] * drops
        assert script.member.next_deadline() == script.now + BACKOFF * failures
    assert script.member.assignment == PARTITIONS


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.GROUP_ID_NOT_FOUND,  # when it joins: a group of another type
    ],
)
def test_a_final_error_is_reported_and_the_next_poll_tries_again(code: int) -> None:
    script = Script()
    script(Subscribe(TOPICS))
    assert script(Answered(code, 0, 0.0, None, "why")) == [Fail(code, "why")]
    assert script.member.next_deadline() is None
    assert script(Tick()) == []
    assert script(Retry()) == [SendHeartbeat(0, TOPICS)]


def test_a_refused_topic_is_reported_and_the_membership_goes_on() -> None:
    script = Script()
    script.joined()
    script.tick()
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert script(Answered(code, 0, 0.0, None)) == [Fail(code, None)]
    assert script.tick() == [SendHeartbeat(2, TOPICS)]


def test_no_topics_end_the_membership_also_while_a_heartbeat_is_in_flight() -> None:
    script = Script()
    script.joined()
    script.tick()
    assert script(Subscribe(frozenset())) == [SendLeave(), Assign(frozenset())]
    assert script(Answered(0, 2, INTERVAL, PARTITIONS)) == []
    assert not script.member.is_member
    assert script.member.assignment == frozenset()
    assert script.member.next_deadline() is None
    assert script(Subscribe(TOPICS)) == [SendHeartbeat(0, TOPICS)]


def test_the_first_interval_is_the_brokers_default() -> None:
    assert ShareMembership(lambda failures: 0.0).interval == FIRST_INTERVAL
