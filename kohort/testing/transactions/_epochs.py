"""A producer id with its epoch, and how it goes on."""

from __future__ import annotations

from typing import NamedTuple

NO_PRODUCER_ID = -1
NO_EPOCH = -1
LAST_EPOCH = (1 << 15) - 2
"""One is left over, for fencing."""


class ProducerEpoch(NamedTuple):
    """Both are -1 where there is none."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH

    @property
    def is_exhausted(self) -> bool:
        """There is no next epoch: a new producer id is needed."""
        return self.epoch >= LAST_EPOCH

    @property
    def next(self) -> ProducerEpoch:
        return self._replace(epoch=self.epoch + 1)
