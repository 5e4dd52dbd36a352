"""Every probe has the same observations on Apache Kafka and on the in-process cluster."""

from __future__ import annotations

import pytest

from kohort.broker.apis import SERVED
from tests.conformance.clusters import load_probes
from tests.conformance.known import gone, unexplained
from tests.conformance.probe import PROBES, differences
from tests.conformance.runner import Runner
from tests.conformance.wire import ASKED

load_probes()

ATTEMPTS = 3
"""Number of runs of a failed probe. Some probes depend on time, and a busy machine delays them."""


PLAIN = [name for name, probe in PROBES.items() if not probe.secured]
SECURED = [name for name, probe in PROBES.items() if probe.secured]


@pytest.mark.real_kafka
@pytest.mark.parametrize("name", PLAIN)
def test_the_answers_are_the_same(name: str, runner: Runner) -> None:
    _compare(name, runner)


@pytest.mark.real_kafka
@pytest.mark.parametrize("name", SECURED)
def test_secured_answers_are_the_same(name: str, secured_runner: Runner) -> None:
    _compare(name, secured_runner)


def _compare(name: str, runner: Runner) -> None:
    problem = ""
    for attempt in range(ATTEMPTS):
        problem = _problem(name, runner, attempt)
        if not problem:
            return
    pytest.fail(problem, pytrace=False)


def _problem(name: str, runner: Runner, attempt: int) -> str:
    """Return the problem with the observations, "" for none."""
    kafka, cluster = runner.results(PROBES[name], attempt)
    if "failed" in kafka:
        return f"the probe fails on Apache Kafka:\n{kafka['failed']}"
    found = list(differences(kafka, cluster))
    if strange := unexplained(name, found):
        shown = "\n".join(str(one) for one in strange[:20])
        return f"{len(strange)} differences that are not known:\n{shown}"
    if missing := gone(name, found):
        return f"known differences that do not occur: {missing}"
    return ""


@pytest.mark.real_kafka
def test_every_version_of_every_api_is_asked_for(runner: Runner, secured_runner: Runner) -> None:
    for probe in PROBES.values():
        (secured_runner if probe.secured else runner).start(probe)
    for probe in PROBES.values():
        (secured_runner if probe.secured else runner).results(probe)
    missing = {
        f"{served.key.name} {version}"
        for key, served in SERVED.items()
        for version in range(served.versions.first, served.versions.last + 1)
        if (key, version) not in ASKED
    }
    assert missing == set()
