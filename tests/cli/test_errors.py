"""``kohort errors``, and the section of each error in the docs."""

from __future__ import annotations

import re

import pytest

from kohort import errors, schemas
from kohort.cli import main
from kohort.cli._errors import explained, plain, sections
from kohort.cli._remedies import REMEDIES
from kohort.errors import ErrorCode, KafkaError, error_class
from kohort.errors import addresses as address
from tests.house._source import ROOT

PAGE = ROOT / "docs" / "reference" / "errors.md"
SPARK = {"DataLossError", "OffsetFormatError", "ReadOnlyError", "SessionStoppedError"}


def public_errors() -> dict[str, type[KafkaError]]:
    """Return the public error classes by their names."""
    modules = (errors, schemas)
    found = {name: getattr(module, name) for module in modules for name in module.__all__}
    return {
        name: each
        for name, each in found.items()
        if isinstance(each, type) and issubclass(each, KafkaError)
    }


# -- sections --------------------------------------------------------------------------------------


def test_public_errors_and_sections_are_the_same() -> None:
    assert set(REMEDIES) == set(public_errors()) | SPARK
    assert re.findall(r"^### (\w+)$", PAGE.read_text(), re.MULTILINE) == [
        section.name for section in sections()
    ]


def test_each_error_of_the_spark_source_has_a_section() -> None:
    pytest.importorskip("pyspark")
    from kohort.spark_connector import _errors as spark

    defined = {name for name, each in vars(spark).items() if _is_defined(each, spark.__name__)}
    assert defined == SPARK


def _is_defined(thing: object, module: str) -> bool:
    return isinstance(thing, type) and thing.__module__ == module


@pytest.mark.parametrize("name", [*REMEDIES])
def test_section_has_cause_and_remedy(name: str) -> None:
    if name in SPARK:
        pytest.importorskip("pyspark")
    text = explained(name)
    assert text is not None
    assert re.search(r"^Cause\. \w.+^Do\. \w", text, re.MULTILINE | re.DOTALL)
    assert "`" not in text


# -- the command -----------------------------------------------------------------------------------


def printed(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> str:
    """Return the output of ``kohort errors``."""
    assert main(["errors", *arguments]) == status
    return capsys.readouterr().out


@pytest.mark.parametrize(
    "name",
    [
        "UnknownMemberIdError",
        "unknownmemberiderror",
        "kohort.errors.UnknownMemberIdError",
        "UnknownMemberIdException",
        "UNKNOWN_MEMBER_ID",
        "25",
    ],
)
def test_command_finds_an_error_by_each_of_its_names(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = printed(capsys, name)
    assert shown.startswith("UnknownMemberIdError (not retriable): error code 25, UNKNOWN_")
    assert "max_poll_interval_ms" in shown


def test_command_takes_a_negative_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "-1").startswith("UnknownServerError")


@pytest.mark.parametrize("code", [*ErrorCode])
def test_command_knows_every_code_of_kafka(code: ErrorCode) -> None:
    by_number, by_name = explained(str(code.value)), explained(code.name)
    assert by_number == by_name is not None
    if error_class(code) is errors.BrokerResponseError:
        assert code.name in by_name
    else:
        assert by_name == explained(error_class(code).__name__)


def test_command_lists_all_names(capsys: pytest.CaptureFixture[str]) -> None:
    listed = re.findall(r"^  (\w+)$", printed(capsys), re.MULTILINE)
    assert sorted(listed) == sorted(REMEDIES)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("NoBrokerAvailable", "NoBrokersAvailable"),
        ("CommitFailed", "CommitFailedError"),
        ("UNKOWN_MEMBER_ID", "UNKNOWN_MEMBER_ID"),
    ],
)
def test_command_suggests_near_names(
    typed: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = printed(capsys, typed, status=1)
    assert shown.startswith(f"{typed!r} is neither an error of kohort nor")
    assert meant in shown.partition("Did you mean")[2]


@pytest.mark.parametrize("name", ["9999", "zebra", ""])
def test_command_names_the_list_when_nothing_is_near(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "kohort errors lists all" in printed(capsys, name, status=1)


def test_plain_text_has_no_marks() -> None:
    assert plain("See :class:`~kohort.errors.DataError` and ``on_error``.") == (
        "See kohort.errors.DataError and on_error."
    )


def test_section_has_the_address_of_a_page_when_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address, "SITE", "https://host.invalid/0.2/")
    assert "See: https://host.invalid/0.2/spark/#options" in str(explained("OffsetFormatError"))
