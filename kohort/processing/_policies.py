"""What a program says about its handler: retries, batches, and the outcomes that it raises."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kohort.errors import ConfigurationError


class Skip(Exception):
    """Raised by a handler: the record counts as done, without a retry and without a failure."""


class GiveUp(Exception):
    """Raised by a handler: the record has failed for good, so it goes to ``failed`` at once."""


class Stop(Exception):
    """Raised by a handler: process() stops as after a signal, and this record is not done."""


@dataclass(frozen=True)
class Retry:
    """The retries of a record whose handler raised: how often, when, and after which errors.

    ``attempts`` counts the first call, too. None retries without limit, for instance while a
    database is away. The first retry comes after ``first`` seconds, each later one after
    ``factor`` times the pause before, at most ``longest`` seconds. ``on`` has the types of errors
    to retry. Give a list of Retry to ``retry=`` to distinguish errors: the first that matches
    decides.

    Only the lane of the record waits. Other lanes use the slot meanwhile.
    """

    attempts: int | None = 3
    first: float = 1.0
    factor: float = 2.0
    longest: float = 60.0
    on: type[Exception] | tuple[type[Exception], ...] = Exception

    def __post_init__(self) -> None:
        types = self.on if isinstance(self.on, tuple) else (self.on,)
        if self.attempts is not None and (type(self.attempts) is not int or self.attempts < 1):
            raise ConfigurationError(
                f"Retry(attempts={self.attempts!r}) is wrong: use an int of at least 1, or None"
            )
        if self.first < 0 or self.factor < 1 or self.longest < 0:
            raise ConfigurationError(
                f"{self} is wrong: first and longest must not be negative, and factor must be at "
                "least 1"
            )
        if not types or not all(
            isinstance(each, type) and issubclass(each, Exception) for each in types
        ):
            raise ConfigurationError(
                f"Retry(on={self.on!r}) is wrong: use a class of exceptions or a tuple of them"
            )

    def pause(self, attempt: int) -> float | None:
        """Return the seconds after this failed attempt, counted from 1; None to give up."""
        if self.attempts is not None and attempt >= self.attempts:
            return None
        pause = self.first
        for _ in range(attempt - 1):
            pause *= self.factor
            if pause >= self.longest:
                break
        return min(pause, self.longest)


def pause_after(retries: Iterable[Retry], error: Exception, attempt: int) -> float | None:
    """Return the pause of the first retry for this type of error; None to give up."""
    for retry in retries:
        if isinstance(error, retry.on):
            return retry.pause(attempt)
    return None


@dataclass(frozen=True)
class Batch:
    """Batches in place of single records: a handler gets records of one partition, in order.

    A batch has at most ``rows`` records. A smaller one is ready ``seconds`` after its first record
    came. It is done or fails as a whole. With ``columns=True`` it is a ``pyarrow.Table`` with the
    columns of ``poll_arrow()`` and a list of records otherwise.

    With ``split=True`` a batch that has used up its retries is halved, and the halves are tried,
    until the bad record stands alone.
    """

    rows: int = 500
    seconds: float = 1.0
    columns: bool = False
    split: bool = False

    def __post_init__(self) -> None:
        if type(self.rows) is not int or self.rows < 1:
            raise ConfigurationError(
                f"Batch(rows={self.rows!r}) is wrong: use an int of at least 1"
            )
        if self.seconds < 0:
            raise ConfigurationError(
                f"Batch(seconds={self.seconds!r}) is wrong: use a number that is not negative"
            )
