"""Leader epochs: which offsets were written under which leader (KIP-101)."""

from __future__ import annotations

UNDEFINED = (-1, -1)


class EpochCache:
    """(epoch, start offset) pairs; each leader adds its own when it takes over."""

    __slots__ = ("_starts",)

    def __init__(self) -> None:
        self._starts: list[tuple[int, int]] = []

    @property
    def latest(self) -> int:
        """The leader's epoch, -1 before the first one."""
        return self._starts[-1][0] if self._starts else -1

    def assign(self, epoch: int, start_offset: int) -> None:
        """A leader begins here; epochs before it that wrote nothing are forgotten, as in Kafka."""
        if epoch > self.latest:
            self.truncate_end(start_offset)
            self._starts.append((epoch, start_offset))

    def truncate_end(self, offset: int) -> None:
        """The log ends at the offset now: epochs that began there or later are not in it."""
        while self._starts and self._starts[-1][1] >= offset:
            del self._starts[-1]

    def truncate_start(self, offset: int) -> None:
        """The log starts at the offset now, in the middle of the first epoch that is left."""
        before = [epoch for epoch, start in self._starts if start <= offset]
        if before:
            self._starts[: len(before)] = [(before[-1], offset)]

    def epoch_of(self, offset: int) -> int:
        """The epoch that an offset belongs to, -1 if none."""
        return next((epoch for epoch, start in reversed(self._starts) if start <= offset), -1)

    def end_offset(self, epoch: int, log_end: int) -> tuple[int, int]:
        """(largest epoch not over ``epoch``, offset behind its last record); -1, -1 if unknown.

        Of an epoch before all that are known it is that epoch itself, and where the log begins.
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
