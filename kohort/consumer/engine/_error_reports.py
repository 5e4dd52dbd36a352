"""The errors that the engine reports to the caller."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from kohort.errors import KafkaError, NoBrokersAvailable, SecurityError
from kohort.logs import error_text, get_logger
from kohort.transport import is_end_of_client, with_principal

logger = get_logger("kohort.consumer")

E = TypeVar("E", bound=BaseException)

MAX_ERRORS = 32
"""Maximum number of errors kept for the next poll(). The oldest are dropped first."""


class ErrorReports:
    """The reported errors, of which each poll() raises one.

    Appending to and popping from a deque is atomic, so neither side takes a lock.
    """

    def __init__(
        self,
        notify: Callable[[], None],
        principal: Callable[[], str | None] = lambda: None,
        *,
        logs_refusals: bool = False,
    ) -> None:
        self._notify = notify
        self._principal = principal
        """Function that returns the principal, which authorization errors name."""
        self._logs_refusals = logs_refusals
        self._group_failure: Exception | None = None
        self.waiting: deque[Exception] = deque(maxlen=MAX_ERRORS)
        self.on_report: Callable[[], object] | None = None
        """Function called after each report, in the event loop of the engine."""

    def report(self, error: Exception) -> None:
        """Let the caller's next poll() raise an error. Equal errors are reported once."""
        if not is_end_of_client(error):  # check_running() says why it ended
            self._add(error)

    def report_refusal(self, error: KafkaError) -> None:
        """Let poll() raise an authorization error, or only log it, as ``on_error`` says."""
        if self._logs_refusals:
            logger.warning("%s", error_text(self._named(error)))
        else:
            self.report(error)

    def report_group_failure(self, error: Exception) -> None:
        """Report the error that ended the membership of the group."""
        self._group_failure = self._add(error)

    def raise_group_failure(self) -> None:
        """Raise the error that ended the membership, unless poll() did or it is retriable."""
        error = self._group_failure
        if error is None or error not in self.waiting or getattr(error, "retriable", False):
            return
        with suppress(ValueError):  # another task or thread has raised it
            self.waiting.remove(error)
            raise error

    def _add(self, error: Exception) -> Exception:
        """Report an error, and return it as poll() raises it."""
        error = self._named(error)
        # A copy, because the other thread may add or remove an error while they are compared.
        for other in tuple(self.waiting):
            if _are_equal(error, other):
                error = other
                break
        else:
            self.waiting.append(error)
        self._notify()
        if self.on_report is not None:
            self.on_report()
        return error

    def _named(self, error: E) -> E:
        """Return an authorization error with the principal in it, other errors unchanged."""
        return with_principal(error, self._principal())

    def drop(self, kind: type[Exception]) -> None:
        """Drop the reported errors of a type, because their cause is over."""
        self._remove(lambda error: isinstance(error, kind))

    def drop_outages(self) -> None:
        """Drop what was reported while no broker could be reached, because one has been."""
        self._remove(lambda error: isinstance(error, (NoBrokersAvailable, SecurityError)))

    def withdraw(self, error: Exception) -> None:
        """Drop a reported error whose cause is over, if it was not raised yet."""
        self._remove(lambda other: _are_equal(other, error))

    def _remove(self, is_over: Callable[[Exception], bool]) -> None:
        # A copy, because the other thread may report or raise an error meanwhile.
        for error in tuple(self.waiting):
            if is_over(error):
                with suppress(ValueError):  # the other thread has removed it
                    self.waiting.remove(error)


def _are_equal(one: Exception, other: Exception) -> bool:
    return type(one) is type(other) and str(one) == str(other)
