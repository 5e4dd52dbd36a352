"""Iteration at its quickest: one record after the other with next to nothing in between."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterator
from typing import Protocol

import anyio

from kohort.consumer._handout import Handout, Record
from kohort.consumer._work import Mailbox


class Session(Protocol):
    """How long the partitions cannot be another member's."""

    @property
    def confirmed_until(self) -> float: ...


class _NoGroup:
    confirmed_until = math.inf


def loop_clock(loop: object) -> Callable[[], float]:
    """What anyio.current_time() is in this event loop, without finding out each time."""
    if isinstance(loop, asyncio.BaseEventLoop) and type(loop).time is asyncio.BaseEventLoop.time:
        return time.monotonic
    return anyio.current_time


NO_GROUP: Session = _NoGroup()


def flow(
    handout: Handout,
    mailbox: Mailbox,
    session: Session,
    clock: Callable[[], float],
    busy: Callable[[], bool],
) -> Iterator[Record]:
    """Records that are held, until there is something else to do; each step counts as a poll().

    A step is either all of :meth:`Handout.step`, or, as long as the bell has not rung, the
    assignments that are left of it: position, what may be committed, and when it was. They need
    no lock, being one store each, while the leader epoch stays the same. ``busy`` says whether
    there is anything to do. An exception ends this iterator, as it does any generator; nothing is
    lost by it.
    """
    bell = handout.bell
    while True:
        bell.rung = False
        if busy():
            return
        given = handout.given
        try:
            record = handout.step()
            if record is None:
                return
            mailbox.last_at = clock()
        except BaseException:  # Ctrl-C on the way out
            if handout.given != given:
                handout.take_back()
            raise
        yield record
        latest = handout.latest
        if latest is None:
            continue
        held, state = latest
        epoch = state.leader_epoch
        records, index = held.records, held.index
        # The last one moves the position behind all of them: that is step()'s affair.
        last = len(records) - 1
        if state.consumed_epoch != epoch or index >= last or records[last].leader_epoch != epoch:
            continue
        while index < last and not bell.rung:
            now = clock()
            if now >= session.confirmed_until:
                break
            mailbox.last_at = now
            record = records[index]
            offset = record.offset
            # From here on nothing is called: signal handlers run in calls.
            index += 1
            held.index = index
            state.consumed = offset
            state.position = offset + 1
            yield record
