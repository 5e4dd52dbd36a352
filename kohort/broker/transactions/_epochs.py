"""A producer id with its epoch."""

from __future__ import annotations

from kohort.types import NamedTuple

NO_PRODUCER_ID = -1
NO_EPOCH = -1
LAST_EPOCH = (1 << 15) - 2
"""Last epoch of a producer; one more is reserved for fencing."""


class ProducerEpoch(NamedTuple):
    """Producer id and epoch; both are -1 if there is none."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH

    @property
    def is_exhausted(self) -> bool:
        """True if there is no next epoch, so that the producer needs a new id."""
        return self.epoch >= LAST_EPOCH

    @property
    def next(self) -> ProducerEpoch:
        return self._replace(epoch=self.epoch + 1)
