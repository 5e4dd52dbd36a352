"""Lists of state batches: neighbours joined, and later batches merged over earlier ones."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from kohort.broker.share._values import StateBatch


def joined(batches: Iterable[StateBatch]) -> list[StateBatch]:
    """Return batches in order of their offsets, with equal neighbours as one batch."""
    found: list[StateBatch] = []
    for batch in sorted(batches):
        before = found[-1] if found else None
        if before is not None and before.last + 1 == batch.first and before[2:] == batch[2:]:
            found[-1] = before._replace(last=batch.last)
        else:
            found.append(batch)
    return found


def merged(
    present: Iterable[StateBatch], changes: Iterable[StateBatch], start: int
) -> list[StateBatch]:
    """Return the present batches with the changes, without the offsets below ``start``.

    The present batches are in order and do not overlap. Where a change overlaps one of them, the
    one with the higher count wins, then the one with the higher state. The work depends on the
    number of batches, not on their offsets.
    """
    pieces = [
        batch._replace(first=max(batch.first, start)) for batch in present if batch.last >= start
    ]
    for given in changes:
        change = given._replace(first=max(given.first, start))
        if change.first > change.last:
            continue
        begin = bisect_left(pieces, change.first, key=lambda piece: piece.last)
        end = bisect_right(pieces, change.last, begin, key=lambda piece: piece.first)
        kept: list[StateBatch] = []
        # The parts of the change where no present batch wins.
        won = [(change.first, change.last)]
        for piece in pieces[begin:end]:
            if (piece.deliveries, piece.state) > (change.deliveries, change.state):
                kept.append(piece)
                won = _without(won, piece)
                continue
            if piece.first < change.first:
                kept.append(piece._replace(last=change.first - 1))
            if piece.last > change.last:
                kept.append(piece._replace(first=change.last + 1))
        kept += [change._replace(first=first, last=last) for first, last in won]
        pieces[begin:end] = sorted(kept)
    return joined(pieces)


def _without(parts: list[tuple[int, int]], piece: StateBatch) -> list[tuple[int, int]]:
    found = []
    for first, last in parts:
        if first < piece.first:
            found.append((first, min(last, piece.first - 1)))
        if last > piece.last:
            found.append((max(first, piece.last + 1), last))
    return [(first, last) for first, last in found if first <= last]
