"""Back-offs before retries."""

from __future__ import annotations

import random
from collections.abc import Collection
from typing import Generic, TypeVar

from kohort.transport import Backoff

Key = TypeVar("Key")


class _Retry:
    __slots__ = ("at", "epoch", "failures", "is_denied")

    def __init__(self, epoch: int, failures: int, at: float, *, is_denied: bool = False) -> None:
        self.epoch = epoch
        self.failures = failures
        self.at = at
        self.is_denied = is_denied


class Retries(Generic[Key]):
    """Back-offs by key. A success ends the back-off of its key.

    A failure counts for one epoch of the key only. After a seek, a partition has no back-off.
    """

    def __init__(
        self, backoff: Backoff, rng: random.Random, denied_backoff: Backoff | None = None
    ) -> None:
        self._backoff = backoff
        self._denied_backoff = denied_backoff or backoff
        self._rng = rng
        self.failures: dict[Key, _Retry] = {}
        """The latest failure of each key that has not succeeded since."""

    def failed(self, key: Key, now: float, epoch: int = 0) -> float:
        """Note a failure, and return the time of the next retry."""
        retry = self.failures.get(key)
        failures = retry.failures + 1 if retry is not None and retry.epoch == epoch else 1
        at = now + self._backoff.delay(failures, self._rng)
        self.failures[key] = _Retry(epoch, failures, at)
        return at

    def note_denied(self, key: Key, now: float, epoch: int = 0) -> bool:
        """Note a missing right, with longer back-offs, and return True if it is new."""
        retry = self.failures.get(key)
        known = retry is not None and retry.epoch == epoch and retry.is_denied
        failures = retry.failures + 1 if retry is not None and known else 1
        at = now + self._denied_backoff.delay(failures, self._rng)
        self.failures[key] = _Retry(epoch, failures, at, is_denied=True)
        return not known

    def not_before(self, key: Key, epoch: int = 0) -> float:
        """Return the earliest time for a retry, or 0 without a back-off."""
        retry = self.failures.get(key)
        return retry.at if retry is not None and retry.epoch == epoch else 0.0

    def succeeded(self, key: Key) -> None:
        """Forget the failures of a key."""
        self.failures.pop(key, None)

    def keep_only(self, keys: Collection[Key]) -> None:
        """Forget all other keys."""
        for key in [key for key in self.failures if key not in keys]:
            del self.failures[key]
