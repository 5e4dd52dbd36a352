"""Records of one partition that are given one by one without the lock, until something happens."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from typing import Any, Protocol
from weakref import WeakSet

from kohort.subscription._partition import PartitionState


class Bell:
    """Rings at whatever may change who gets which record.

    Whoever goes on in a tight loop clears it first, then looks at everything, and goes on until it
    has rung. To ring is one store, so any thread and any signal handler may. In the child of a
    fork every bell has rung.
    """

    __slots__ = ("__weakref__", "rung")

    def __init__(self) -> None:
        self.rung = True
        _bells.add(self)

    def ring(self) -> None:
        self.rung = True


_bells: WeakSet[Bell] = WeakSet()


def _ring_all() -> None:
    for bell in list(_bells):
        bell.ring()


os.register_at_fork(after_in_child=_ring_all)


class Session(Protocol):
    """How long the partitions cannot be another member's."""

    @property
    def confirmed_until(self) -> float: ...


class _NoGroup:
    confirmed_until = math.inf


NO_GROUP: Session = _NoGroup()


class Run:
    """What the caller takes by itself, until the bell has rung or the session is in doubt.

    All that a step changes is ``given``; what follows from it, :meth:`fold` writes down.
    """

    __slots__ = ("bell", "given", "records", "session", "state")

    def __init__(
        self,
        bell: Bell,
        session: Session,
        state: PartitionState | None,
        records: Iterator[Any],
    ) -> None:
        self.bell = bell
        self.session = session
        self.state = state
        self.records = records
        self.given: Any = None
        """The record that was taken last; the caller is done with those before it."""

    def fold(self) -> None:
        """Have the partition's state as it is after ``given``. The caller holds the lock."""
        state, given = self.state, self.given
        if state is not None and given is not None:
            state.position = given.offset + 1
            state.consumed, state.consumed_epoch = given.offset, state.leader_epoch


NO_RUN = Run(Bell(), NO_GROUP, None, iter(()))
