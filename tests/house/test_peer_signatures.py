"""The drop-ins have kafka-python's and aiokafka's methods.

kohort's own consumers have them, too, or docs/migration.md says why not.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import kohort
import kohort.compat.aiokafka
import kohort.compat.kafka_python
import kohort.errors
from kohort.config import OPTIONS, UNSUPPORTED
from kohort.errors import ConfigurationError

PAGE = Path(__file__).parents[2] / "docs" / "migration.md"
NO_METHOD = "-"


class Row(NamedTuple):
    client: str
    name: str
    there: str
    here: str
    why: str


class Client(NamedTuple):
    theirs: type[Any]
    ours: type[Any]
    drop_in: type[Any]
    keywords: dict[str, Any]


def rows(heading: str) -> list[Row]:
    """Return the table under a heading of the migration page, without its backticks."""
    section = PAGE.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    cells = [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines]
    return [Row(*each) for each in cells[2:]]


def public_methods(cls: type[Any]) -> Iterator[tuple[str, Any]]:
    for name, member in inspect.getmembers(cls, inspect.isfunction):
        if not name.startswith("_"):
            yield name, member


def shape(function: Any) -> str:
    """Return names, kinds and defaults of the parameters, without self and annotations.

    The format is ``(a, *b, c=None)``, after ``await`` for a coroutine function.
    """
    parameters = list(inspect.signature(function).parameters.values())[1:]
    bare = [each.replace(annotation=inspect.Parameter.empty) for each in parameters]
    awaited = "await " if inspect.iscoroutinefunction(function) else ""
    return f"{awaited}{inspect.Signature(bare)}"


@pytest.fixture(scope="module", params=["kafka-python", "aiokafka"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def client(name: str) -> Client:
    if name == "kafka-python":
        theirs = pytest.importorskip("kafka").KafkaConsumer
        drop_in: type[Any] = kohort.compat.kafka_python.KafkaConsumer
        return Client(theirs, kohort.KafkaConsumer, drop_in, dict(theirs.DEFAULT_CONFIG))
    theirs = pytest.importorskip("aiokafka").AIOKafkaConsumer
    parameters = inspect.signature(theirs).parameters.values()
    keywords = {each.name: each.default for each in parameters if each.kind is each.KEYWORD_ONLY}
    drop_in = kohort.compat.aiokafka.AIOKafkaConsumer
    return Client(theirs, kohort.AsyncKafkaConsumer, drop_in, keywords)


def test_every_method_is_there_with_the_same_parameters(name: str, client: Client) -> None:
    listed = {row.name: row for row in rows("Methods that differ") if row.client == name}
    for method, theirs in public_methods(client.theirs):
        ours = getattr(client.ours, method, None)
        here = NO_METHOD if ours is None else shape(ours)
        if here != shape(theirs):
            assert method in listed, f"{method}{here} is {method}{shape(theirs)} in {name}"
            row = listed.pop(method)
            assert (row.there, row.here) == (shape(theirs), here)
            assert row.why
    assert not listed, "these do not differ (any more)"


def test_drop_in_has_their_methods_and_no_others(client: Client) -> None:
    theirs = {method: shape(function) for method, function in public_methods(client.theirs)}
    ours = {method: shape(function) for method, function in public_methods(client.drop_in)}
    assert ours == theirs


def test_context_manager_and_iteration_are_there(client: Client) -> None:
    for method in vars(client.theirs):
        if re.fullmatch(r"__a?(enter|exit|iter|next)__", method):
            assert hasattr(client.ours, method), method
            assert hasattr(client.drop_in, method), method


def shown(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def test_every_keyword_has_their_default_or_says_why_not(name: str, client: Client) -> None:
    listed = {row.name: row for row in rows("Keywords that differ") if row.client == name}
    for keyword, theirs in client.keywords.items():
        row = listed.pop(keyword, None)
        if keyword in UNSUPPORTED:
            if row is None:
                UNSUPPORTED[keyword].check(theirs)
            else:
                with pytest.raises(ConfigurationError):
                    UNSUPPORTED[keyword].check(theirs)
            continue
        option = OPTIONS[keyword]
        same = option.check(theirs) == option.check(option.default)
        assert same or row is not None, f"{keyword}={theirs!r} there, {option.shown_default} here"
        if row is None:
            continue
        assert row.why
        if isinstance(theirs, (str, int, float, type(None))):
            assert row.there == shown(theirs)
        if not same:
            assert row.here == option.shown_default
        else:
            assert keyword == "rebalance_timeout_ms", "the default does not differ (any more)"
    assert not listed, "these are not among their keywords (any more)"


def test_their_defaults_can_be_given_to_our_constructor(name: str, client: Client) -> None:
    refused = {
        row.name
        for row in rows("Keywords that differ")
        if row.client == name and row.here == "refused"
    }
    keywords = {each: value for each, value in client.keywords.items() if each not in refused}
    consumer = client.ours(**keywords)
    assert consumer.assignment() == set()
    assert math.isinf(OPTIONS["consumer_timeout_ms"].default)


def test_errors_that_are_called_otherwise_exist() -> None:
    section = PAGE.read_text(encoding="utf-8").split("\n## Errors that are called otherwise\n")[1]
    names = re.findall(r"\| `(\w+)` \|$", section, re.MULTILINE)
    assert len(names) > 10
    for error in names:
        assert issubclass(getattr(kohort.errors, error), kohort.errors.KafkaError)
