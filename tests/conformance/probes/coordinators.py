"""Coordinators of groups and of other keys."""

from __future__ import annotations

from kohort.protocol.messages import FindCoordinatorRequest
from tests.conformance.probe import Observations, probe
from tests.conformance.session import Session

GROUP, TRANSACTION, SHARE = 0, 1, 2


@probe("3")
def find_the_coordinator_of_a_group(session: Session) -> Observations:
    """Send FindCoordinator in every version. Up to 3 a good response has the message NONE."""
    group = session.group()
    for version in range(7):
        request = FindCoordinatorRequest(key=group)
        if version >= 4:
            request = FindCoordinatorRequest(coordinator_keys=[group])
        yield f"version {version}", session.ask(request, version)


@probe("3")
def find_several_coordinators(session: Session) -> Observations:
    """Send many keys from version 4 on, the same key twice, and none."""
    a, b = session.group("a"), session.group("b")
    for keys in ([a, b], [a, a], []):
        request = FindCoordinatorRequest(coordinator_keys=keys)
        yield f"{len(keys)} keys {len(set(keys))}", session.ask(request, 4)


@probe("3")
def find_the_coordinator_of_an_empty_key(session: Session) -> Observations:
    """Look up an empty group id, which has a coordinator like any other."""
    for version in (0, 3):
        yield f"version {version}", session.ask(FindCoordinatorRequest(key=""), version)
    for version in (4, 6):
        request = FindCoordinatorRequest(coordinator_keys=[""])
        yield f"version {version}", session.ask(request, version)


@probe("3")
def find_coordinators_of_unknown_kinds(session: Session) -> Observations:
    """Send an unknown key type, and share groups where they are not supported."""
    for version in (1, 3, 4, 5, 6):
        for kind in (3, -1, 127, SHARE):
            if version == 6 and kind == SHARE:
                continue
            request = FindCoordinatorRequest(key="k", key_type=kind)
            if version >= 4:
                request = FindCoordinatorRequest(coordinator_keys=["k"], key_type=kind)
            yield f"type {kind} version {version}", session.ask(request, version)


@probe("3")
def find_the_coordinator_of_a_share_partition(session: Session) -> Observations:
    """Send keys of type 2 as group:topic-id:partition. Other forms are error 42."""
    for key in ("k", "g:t:0", ""):
        request = FindCoordinatorRequest(coordinator_keys=[key], key_type=SHARE)
        yield f"key {key!r}", session.ask(request, 6)
