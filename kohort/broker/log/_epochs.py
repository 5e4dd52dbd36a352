"""Leader epochs and the offsets that were written in them (KIP-101)."""

from __future__ import annotations

UNDEFINED = (-1, -1)


class EpochCache:
    """Leader epochs with their start offsets; each new leader appends one."""

    __slots__ = ("_starts",)

    def __init__(self) -> None:
        self._starts: list[tuple[int, int]] = []

    @property
    def latest(self) -> int:
        """The latest leader epoch, -1 before the first one."""
        return self._starts[-1][0] if self._starts else -1

    def assign(self, epoch: int, start_offset: int) -> None:
        """Start an epoch. Epochs before it without records are removed, as in Kafka."""
        if epoch > self.latest:
            self.truncate_end(start_offset)
            self._starts.append((epoch, start_offset))

    def truncate_end(self, offset: int) -> None:
        """Remove the epochs that start at the new end of the log or later."""
        while self._starts and self._starts[-1][1] >= offset:
            del self._starts[-1]

    def truncate_start(self, offset: int) -> None:
        """Move the start of the first remaining epoch to the new start of the log."""
        before = [epoch for epoch, start in self._starts if start <= offset]
        if before:
            self._starts[: len(before)] = [(before[-1], offset)]

    def epoch_of(self, offset: int) -> int:
        """Return the epoch of an offset, -1 if there is none."""
        return next((epoch for epoch, start in reversed(self._starts) if start <= offset), -1)

    def end_offset(self, epoch: int, log_end: int) -> tuple[int, int]:
        """Return the largest epoch up to ``epoch`` and its end offset; -1, -1 if unknown.

        The end offset is the offset after the epoch's last record. For an epoch before all known
        ones the result is that epoch and the start of the log.
        """
        if epoch == UNDEFINED[0] or epoch > self.latest:
            return UNDEFINED
        if epoch == self.latest:
            return epoch, log_end
        found = epoch
        for known, start in self._starts:
            if known > epoch:
                return found, start
            found = known
        return UNDEFINED
