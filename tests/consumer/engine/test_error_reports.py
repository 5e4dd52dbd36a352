"""The errors that the engine reports to the caller."""

from __future__ import annotations

from kohort.consumer.engine._error_reports import ErrorReports
from kohort.errors import IllegalStateError, KafkaError


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


def test_the_end_of_the_cluster_client_is_not_reported() -> None:
    reports = ErrorReports(lambda: None)
    reports.report(IllegalStateError("the cluster client is not running"))
    assert not reports.waiting


def test_errors_are_dropped_while_others_are_reported_and_taken() -> None:
    class Changing(type):
        def __instancecheck__(cls, error: object) -> bool:  # runs while drop() looks for errors
            reports.waiting.append(KafkaError("later"))
            return error in (first, second)

    class Dropped(KafkaError, metaclass=Changing):
        pass

    reports = ErrorReports(lambda: None)
    first, second = KafkaError("first"), KafkaError("second")
    reports.waiting.extend([first, second])
    reports.drop(Dropped)
    assert [str(error) for error in reports.waiting] == ["later", "later"]


def test_an_error_is_dropped_that_the_caller_takes_out() -> None:
    class Taken(type):
        def __instancecheck__(cls, error: object) -> bool:
            reports.waiting.popleft()
            return True

    class Dropped(KafkaError, metaclass=Taken):
        pass

    reports = ErrorReports(lambda: None)
    reports.waiting.append(KafkaError("taken"))
    reports.drop(Dropped)
    assert not reports.waiting
