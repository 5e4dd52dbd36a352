"""The session at a leader: its epochs, and what each request adds and forgets."""

from __future__ import annotations

import pytest

from kohort.errors import ErrorCode
from kohort.share.machine._session import LAST_EPOCH, SessionRequest, ShareSession

A, B, C = (b"a" * 16, 0), (b"a" * 16, 1), (b"c" * 16, 0)
NONE: frozenset[tuple[bytes, int]] = frozenset()


def opened(*partitions: tuple[bytes, int]) -> ShareSession:
    """Return a session after its first response."""
    session = ShareSession()
    wanted = frozenset(partitions)
    assert session.fetch(wanted, ()) == SessionRequest(0, wanted, NONE)
    assert session.answered(0)
    return session


def test_a_session_names_each_change_once() -> None:
    session = opened(A, B)
    assert session.fetch(frozenset({A, B}), ()) == SessionRequest(1, NONE, NONE)
    session.answered(0)
    assert session.fetch(frozenset({B, C}), ()) == SessionRequest(2, frozenset({C}), frozenset({A}))
    session.answered(0)
    assert session.held == {B, C}


def test_a_partition_that_was_named_for_acknowledgements_is_forgotten_again() -> None:
    session = opened(A)
    assert session.fetch(frozenset({A}), [B]) == SessionRequest(1, frozenset({B}), NONE)
    session.answered(0)
    assert session.held == {A, B}
    assert session.fetch(frozenset({A}), ()) == SessionRequest(2, NONE, frozenset({B}))


def test_both_kinds_of_requests_count_the_epoch() -> None:
    session = opened(A)
    assert session.acknowledge() == 1
    session.answered(0)
    assert session.fetch(frozenset({A}), ()).epoch == 2
    session.answered(ErrorCode.INVALID_REQUEST)  # the leader has counted it
    assert session.acknowledge() == 3
    session.answered(0)
    assert session.acknowledge(closes=True) == LAST_EPOCH


def test_a_failed_fetch_changes_no_partition() -> None:
    session = opened(A)
    session.fetch(frozenset({A, B}), ())
    session.answered(ErrorCode.INVALID_REQUEST)
    assert session.fetch(frozenset({A, B}), ()).added == {B}


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_a_mismatch_heals_with_a_new_session(code: int) -> None:
    session = opened(A, B)
    session.fetch(frozenset({A, B}), ())
    assert not session.answered(code)
    assert not session.is_open
    assert session.fetch(frozenset({A, B}), ()) == SessionRequest(0, frozenset({A, B}), NONE)


def test_the_epoch_wraps_to_one() -> None:
    session = opened(A)
    session.epoch = 0x7FFF_FFFF
    assert session.acknowledge() == 0x7FFF_FFFF
    session.answered(0)
    assert session.acknowledge() == 1
