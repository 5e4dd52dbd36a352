"""The errors that the engine reports to the caller."""

from __future__ import annotations

from kohort.consumer._error_reports import ErrorReports
from kohort.errors import KafkaError


def test_an_error_is_reported_while_the_caller_takes_another_out() -> None:
    class Taken(KafkaError):
        def __str__(self) -> str:  # runs while report() compares
            if reports.waiting:
                reports.waiting.popleft()
            return f"taken {id(self)}"

    reports = ErrorReports(lambda: None)
    reports.waiting.extend([Taken(), KafkaError("another")])
    later = Taken()
    reports.report(later)
    assert later in reports.waiting


def test_the_same_error_is_kept_once() -> None:
    reports = ErrorReports(lambda: None)
    for text in ("one", "one", "two"):
        reports.report(KafkaError(text))
    assert [str(error) for error in reports.waiting] == ["one", "two"]
