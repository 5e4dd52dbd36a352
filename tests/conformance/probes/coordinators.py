"""FindCoordinator."""

from __future__ import annotations

from kohort.protocol.messages import FindCoordinatorRequest
from tests.conformance.probe import Observations, probe
from tests.conformance.session import Session

GROUP, TRANSACTION, SHARE = 0, 1, 2


@probe("3")
def find_the_coordinator_of_a_group(session: Session) -> Observations:
    """Every version; up to 3 the message of a good answer is NONE, later it is empty."""
    group = session.group()
    for version in range(7):
        request = FindCoordinatorRequest(key=group)
        if version >= 4:
            request = FindCoordinatorRequest(coordinator_keys=[group])
        yield f"version {version}", session.ask(request, version)


@probe("3")
def find_several_coordinators(session: Session) -> Observations:
    """From version 4 on a request has many keys, also the same one twice, or none."""
    a, b = session.group("a"), session.group("b")
    for keys in ([a, b], [a, a], []):
        request = FindCoordinatorRequest(coordinator_keys=keys)
        yield f"{len(keys)} keys {len(set(keys))}", session.ask(request, 4)


@probe("3")
def find_the_coordinator_of_an_empty_key(session: Session) -> Observations:
    """An empty group id has a coordinator like any other."""
    for version in (0, 3):
        yield f"version {version}", session.ask(FindCoordinatorRequest(key=""), version)
    for version in (4, 6):
        request = FindCoordinatorRequest(coordinator_keys=[""])
        yield f"version {version}", session.ask(request, version)


@probe("3")
def find_coordinators_of_unknown_kinds(session: Session) -> Observations:
    """A key type that is not known, and share groups where they are not."""
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
    """A key of type 2 is group:topic-id:partition, anything else is error 42."""
    for key in ("k", "g:t:0", ""):
        request = FindCoordinatorRequest(coordinator_keys=[key], key_type=SHARE)
        yield f"key {key!r}", session.ask(request, 6)
