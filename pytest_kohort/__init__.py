"""Pytest plugin with a Kafka cluster as a fixture.

It is a package without imports of kohort, because pytest loads it in every run. kohort is imported
when the fixture is first used.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

if TYPE_CHECKING:
    from kohort.testing import Cluster
    from pytest_kohort._failures import FailureReport

MARKER = "kafka_cluster"
_REPORT: pytest.StashKey[FailureReport] = pytest.StashKey()


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, which ``--strict-markers`` requires."""
    config.addinivalue_line(
        "markers",
        f"{MARKER}(brokers=1, topics={{}}, ...): the cluster of the fixture kafka_cluster, "
        "with the arguments of kohort.testing.Cluster",
    )


@pytest.fixture
def kafka_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Yield a :class:`kohort.testing.Cluster` for one test, with the arguments of its markers."""
    from kohort.errors import InvalidOptionError
    from kohort.testing import Cluster

    options = _options(request.node)
    _check(options, list(inspect.signature(Cluster).parameters))
    try:
        cluster = Cluster(**options)
    except (InvalidOptionError, TypeError) as error:
        _wrong(str(error))
    from pytest_kohort._failures import FailureReport

    with cluster:
        report = request.node.stash[_REPORT] = FailureReport(cluster)
        with report.observe():
            yield cluster


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the explanations of consumers and the timelines of groups to a failed test."""
    found = yield
    report = item.stash.get(_REPORT, None)
    if report is not None and found.failed and call.when == "call":
        found.sections += report.sections()
    return found


def _options(node: pytest.Item) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for marker in node.iter_markers(MARKER):
        if marker.args:
            _wrong("takes only keyword arguments, such as topics={'orders': 3}")
        # iter_markers() yields the nearest marker first, which has precedence.
        options = {**marker.kwargs, **options}
    return options


def _check(options: dict[str, Any], known: list[str]) -> None:
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"the arguments are {', '.join(known)}"
            _wrong(f"has no argument {name!r}: {hint}")
    brokers, topics = options.get("brokers", 1), options.get("topics", {})
    if not _is_whole(brokers) or brokers < 1:
        _wrong(f"brokers={brokers!r} is not a whole number of at least 1")
    if not isinstance(topics, Mapping) or not all(
        isinstance(name, str) and _is_whole(count) for name, count in topics.items()
    ):
        _wrong(f"topics={topics!r} is not a dict of partition counts such as {{'orders': 3}}")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _wrong(what: str) -> NoReturn:
    # Without a traceback, because the fault is in the marker.
    pytest.fail(f"@pytest.mark.{MARKER}: {what}", pytrace=False)
