"""Notes of errors, which name the section of the docs at the end of a traceback."""

from __future__ import annotations

import copy
import pickle
import traceback

import pytest

import kohort
from kohort import errors
from kohort.errors import ErrorCode, error_class
from kohort.errors import addresses as address


class DomainError(errors.DataError):
    """Error of a program that builds on one of kohort."""


def test_traceback_ends_with_the_section_and_str_is_the_message() -> None:
    error = errors.NoBrokersAvailable("no bootstrap server could be reached")
    assert str(error) == "no bootstrap server could be reached"
    assert error.args == ("no bootstrap server could be reached",)
    shown = traceback.format_exception_only(error)
    assert shown[-1] == "More: kohort errors NoBrokersAvailable\n"


def test_traceback_has_the_address_when_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address, "SITE", "https://host.invalid/0.2/")
    error = errors.NoBrokersAvailable("x")
    root = "https://host.invalid/0.2"
    assert error.__notes__ == [f"More: {root}/reference/errors/#nobrokersavailable"]
    assert address.page_address("poison.md") == f"{root}/poison/"


def test_site_is_the_one_of_this_version() -> None:
    version = ".".join(kohort.__version__.split(".")[:2])
    assert not address.SITE or address.SITE.endswith(f"/{version}/")


def test_note_of_a_subclass_names_the_nearest_section() -> None:
    assert DomainError("x").__notes__ == ["More: kohort errors DataError"]


@pytest.mark.parametrize("code", [code for code in ErrorCode if code])
def test_error_of_each_code_has_one_note(code: ErrorCode) -> None:
    error = errors.broker_error(code)
    assert error.__notes__ == [f"More: kohort errors {error_class(code).__name__}"]


def test_copies_of_an_error_have_the_same_notes() -> None:
    error = errors.RecordDeserializationError("x", offset=3)
    error.add_note("while reading orders")
    notes = ["More: kohort errors RecordDeserializationError", "while reading orders"]
    for each in (error, copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert each.__notes__ == notes
        assert (str(each), each.offset) == ("x", 3)
