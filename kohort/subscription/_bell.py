"""A flag for who goes on in a tight loop until something is to be looked at."""

from __future__ import annotations

import os
from weakref import WeakSet

_bells: WeakSet[Bell] = WeakSet()


class Bell:
    """Whoever loops clears it first, then looks at everything, and goes on until it has rung.

    To ring is one store, so any thread and any signal handler may. In the child of a fork every
    bell has rung.
    """

    __slots__ = ("__weakref__", "rung")

    def __init__(self) -> None:
        self.rung = True
        _bells.add(self)

    def ring(self) -> None:
        self.rung = True


def _ring_all() -> None:
    for bell in list(_bells):
        bell.ring()


os.register_at_fork(after_in_child=_ring_all)
