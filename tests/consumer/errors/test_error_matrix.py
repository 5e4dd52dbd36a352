"""The table of docs/reference/error-codes.md: each code in each API has the outcome of the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from kohort.errors import ErrorCode as E
from kohort.errors import error_name
from tests.consumer.error_matrix import (
    APIS,
    CODES,
    OF_BOTH_PROTOCOLS,
    UNKNOWN,
    outcome,
    read_tables,
    tables,
)

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "error-codes.md"
SAID = read_tables(PAGE.read_text(encoding="utf-8"))
SAMPLE = [
    E.UNKNOWN_SERVER_ERROR,
    E.OFFSET_OUT_OF_RANGE,
    E.UNKNOWN_TOPIC_OR_PARTITION,
    E.NOT_COORDINATOR,
    E.ILLEGAL_GENERATION,
    E.UNKNOWN_MEMBER_ID,
    E.REBALANCE_IN_PROGRESS,
    E.TOPIC_AUTHORIZATION_FAILED,
    E.FENCED_INSTANCE_ID,
    UNKNOWN,
]
"""One code for each outcome. The others take minutes."""


def test_the_page_has_every_code_in_every_api() -> None:
    assert set(SAID) == set(APIS)
    assert all(set(codes) == set(CODES) for codes in SAID.values())
    assert tables(SAID) in PAGE.read_text(encoding="utf-8")


@pytest.mark.cases(60)  # each is a group with a fault
@pytest.mark.parametrize("code", SAMPLE, ids=error_name)
@pytest.mark.parametrize("api", APIS)
def test_a_code_does_what_the_page_says(api: str, code: int) -> None:
    assert outcome(api, code) == SAID[api][code]


@pytest.mark.cases(20)  # each is a group with a fault
@pytest.mark.parametrize("code", SAMPLE, ids=error_name)
@pytest.mark.parametrize("api", OF_BOTH_PROTOCOLS)
def test_code_has_the_same_result_by_the_consumer_protocol(api: str, code: int) -> None:
    assert outcome(api, code, "consumer") == SAID[api][code]


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("api", OF_BOTH_PROTOCOLS)
def test_every_code_has_the_same_result_by_both_protocols(api: str) -> None:
    assert {code: outcome(api, code, "consumer") for code in CODES} == SAID[api]


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("api", APIS)
def test_every_code_does_what_the_page_says(api: str) -> None:
    assert {code: outcome(api, code) for code in CODES} == SAID[api]
