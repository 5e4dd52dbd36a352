"""Members of one group, each polled in a separate thread, with the records that each has read."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Any, TypeVar

from tests.interop.franz import Franz
from tests.interop.java_peer import Java
from tests.interop.ownership import Change, overlaps
from tests.interop.peer_process import PeerProcess
from tests.interop.peers import Make, Peer, Read, Settings
from tests.interop.waiting import DEADLINE_S, look_again_soon, wait_until

T = TypeVar("T")
Process = Java | PeerProcess | Franz
"""Peers in separate processes, which may be killed."""


class Member:
    """Consumer that is polled until it leaves."""

    def __init__(self, make: Make, settings: Settings) -> None:
        self.name = settings.client_id
        self.reads: list[Read] = []
        self.owned: frozenset[int] = frozenset()
        self.failure: BaseException | None = None
        self._calls: queue.SimpleQueue[tuple[Callable[[Any], Any], Future[Any]]]
        self._calls = queue.SimpleQueue()
        self._leaving = threading.Event()
        self._killed = False
        self._created_at = time.time()
        self._ended_at: float | None = None
        self._peer: Peer | None = None
        self._thread = threading.Thread(
            target=self._run, args=(make, settings), name=self.name, daemon=True
        )
        self._thread.start()

    @property
    def changes(self) -> list[Change]:
        """Partitions that it got and gave up. A killed member gave up everything by its death."""
        changes = [] if self._peer is None else list(self._peer.changes)
        if self._ended_at is not None:
            owned = {change.partition for change in changes}
            changes += [Change(self._ended_at, False, partition) for partition in owned]
        return changes

    def call(self, function: Callable[[Any], T]) -> T:
        """Run ``function(peer)`` between two polls, in the member's thread."""
        future: Future[T] = Future()
        self._calls.put((function, future))
        return future.result(DEADLINE_S)

    @property
    def started_at(self) -> float:
        """Time when the client was created, in seconds since 1970. A JVM's start is left out."""
        peer = self._peer
        return self._created_at if not isinstance(peer, Java) else peer.started_at

    @property
    def owned_now(self) -> frozenset[int]:
        """Partitions by the member's callbacks, also during a poll."""
        owned: set[int] = set()
        for change in self.changes:
            (owned.add if change.is_gain else owned.discard)(change.partition)
        return frozenset(owned)

    def start_leaving(self) -> None:
        """Let it commit, leave and close, and return immediately."""
        self._leaving.set()

    def leave(self) -> None:
        """Commit, leave and close. Raise any error that the member had."""
        self._leaving.set()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive(), f"{self.name} does not end"
        if self.failure is not None:
            raise self.failure

    def kill(self) -> None:
        """End it as a crash would. Only a peer in a separate process supports that."""
        self._killed = True
        self.leave()

    def _run(self, make: Make, settings: Settings) -> None:
        try:
            peer = self._peer = make(settings)
            try:
                while not self._leaving.is_set():
                    self.reads += peer.poll_once()
                    self.owned = peer.assignment()
                    self._answer(peer)
            finally:
                if self._killed:
                    assert isinstance(peer, Process)
                    peer.kill()
                    self._ended_at = time.time()
                else:
                    peer.close()
                self.owned = frozenset()
            if isinstance(peer, Process):  # which it read until it ended
                self.reads += peer.poll_once()
        except BaseException as error:
            self.failure = error

    def _answer(self, peer: Peer) -> None:
        while not self._calls.empty():
            function, future = self._calls.get()
            try:
                future.set_result(function(peer))
            except BaseException as error:
                future.set_exception(error)


class Members:
    """Members that a test has started. All end with the ``with`` block."""

    def __init__(self) -> None:
        self.all: list[Member] = []

    def join(self, make: Make, settings: Settings) -> Member:
        """Start one more member and return immediately."""
        member = Member(make, settings)
        self.all.append(member)
        return member

    def wait_until(
        self, predicate: Callable[[], T], meanwhile: Callable[[], object] = look_again_soon
    ) -> T:
        """Wait as :func:`tests.interop.waiting.wait_until` does. Raise errors of members
        immediately.
        """

        def look() -> T:
            for member in self.all:
                if member.failure is not None:
                    raise member.failure
            return predicate()

        return wait_until(look, meanwhile, explain=self.__str__)

    def count(self) -> int:
        """Return the number of different records that all members have read."""
        return len({read[:2] for member in self.all for read in list(member.reads)})

    def overlaps(self) -> list[str]:
        """Return a sentence for each time that a partition had two owners."""
        return overlaps({f"{n} {m.name}": m.changes for n, m in enumerate(self.all)})

    def leave(self) -> None:
        """Let all of them leave, the latest first."""
        for member in reversed(self.all):
            member.leave()

    def __str__(self) -> str:
        return "; ".join(f"{m.name} owns {sorted(m.owned)}, read {len(m.reads)}" for m in self.all)

    def __enter__(self) -> Members:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for member in reversed(self.all):
            if error is None:
                member.leave()
            else:
                member._leaving.set()


def shares(members: Iterable[Member], sizes: Iterable[int]) -> Callable[[], bool]:
    """Return a predicate: the members own ``sizes`` partitions, and none of them twice."""
    members, sizes = list(members), list(sizes)

    def look() -> bool:
        owned = [member.owned for member in members]
        union = frozenset[int]().union(*owned)
        return [len(some) for some in owned] == sizes and len(union) == sum(sizes)

    return look


def fair(members: Iterable[Member], partitions: int) -> Callable[[], bool]:
    """Return a predicate: each partition has one owner, and shares differ by at most one."""
    members = list(members)

    def look() -> bool:
        owned = [member.owned for member in members]
        sizes = sorted(map(len, owned))
        union = frozenset[int]().union(*owned)
        return sum(sizes) == len(union) == partitions and sizes[-1] - sizes[0] <= 1

    return look


def assert_read_once(members: Iterable[Member], written: Mapping[tuple[int, int], bytes]) -> None:
    """Check that exactly one member read each written record, with the right value."""
    readers: dict[tuple[int, int], list[str]] = {}
    values: dict[tuple[int, int], bytes] = {}
    for member in members:
        for partition, offset, value in member.reads:
            readers.setdefault((partition, offset), []).append(member.name)
            values[partition, offset] = value
    missing = sorted(written.keys() - readers.keys())
    assert missing == [], f"{len(missing)} of {len(written)} records were not read"
    twice = {place: names for place, names in sorted(readers.items()) if len(names) > 1}
    problem = f"{len(twice)} of {len(written)} records were read more than once"
    assert twice == {}, f"{problem}: {list(twice.items())[:5]}"
    assert values == dict(written)
