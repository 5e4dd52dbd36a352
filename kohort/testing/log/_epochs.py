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
        """A leader begins here; an epoch that wrote nothing keeps its entry all the same."""
        if epoch > self.latest:
            self._starts.append((epoch, start_offset))

    def epoch_of(self, offset: int) -> int:
        """The epoch that an offset belongs to, -1 if none."""
        return next((epoch for epoch, start in reversed(self._starts) if start <= offset), -1)

    def end_offset(self, epoch: int, log_start: int, log_end: int) -> tuple[int, int]:
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
                return found, max(start, log_start)
            found = known
        return UNDEFINED
