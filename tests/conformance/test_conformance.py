"""Every probe has the same observations on Apache Kafka and on the in-process cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from _pytest.mark import ParameterSet

from kohort.broker.apis import SERVED
from tests.conformance.clusters import load_probes
from tests.conformance.known import gone, unexplained
from tests.conformance.probe import PROBES, Probe, differences
from tests.conformance.random_groups import RandomGroup
from tests.conformance.runner import Runner
from tests.conformance.wire import ASKED

load_probes()

pytestmark = pytest.mark.timeout(600)  # the slow probes wait for minutes, side by side

SHORT = 2
"""Number of quick probes of each module, and of random groups, outside the full matrix."""
PLAIN = [probe for probe in PROBES.values() if not probe.secured and not probe.variant]
VARIED = [name for name, probe in PROBES.items() if probe.variant]
SECURED = [name for name, probe in PROBES.items() if probe.secured]


def plain_cases() -> Iterator[ParameterSet]:
    """Yield the names of probes on the usual clusters, most of them marked as long."""
    counts = Counter[str]()
    for probe in PLAIN:
        is_short = not probe.slow and counts[probe.module] < SHORT
        counts[probe.module] += is_short
        yield pytest.param(probe.name, marks=[] if is_short else pytest.mark.long)


@pytest.mark.cases(12)
@pytest.mark.real_kafka
@pytest.mark.parametrize("name", list(plain_cases()))
def test_the_answers_are_the_same(name: str, runner: Runner) -> None:
    _compare(name, runner)


@pytest.mark.long
@pytest.mark.real_kafka
@pytest.mark.parametrize("name", SECURED)
def test_secured_answers_are_the_same(name: str, secured_runner: Runner) -> None:
    _compare(name, secured_runner)


@pytest.mark.long
@pytest.mark.real_kafka
@pytest.mark.parametrize("name", VARIED)
def test_answers_under_other_settings_are_the_same(
    name: str, variant_runners: dict[str, Runner]
) -> None:
    _compare(name, variant_runners[PROBES[name].variant])


def _compare(name: str, runner: Runner) -> None:
    if problem := _problem(name, runner):
        pytest.fail(problem, pytrace=False)


def _problem(name: str, runner: Runner) -> str:
    """Return the problem with the observations, "" for none."""
    kafka, cluster = runner.results(PROBES[name])
    if "failed" in kafka:
        return f"the probe fails on Apache Kafka:\n{kafka['failed']}"
    found = list(differences(kafka, cluster))
    if strange := unexplained(name, found):
        shown = "\n".join(str(one) for one in strange[:20])
        return f"{len(strange)} differences that are not known:\n{shown}"
    if missing := gone(name, found):
        return f"known differences that do not occur: {missing}"
    return ""


STEPS = 100


@pytest.mark.real_kafka
@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[pytest.mark.long] * (seed >= SHORT)) for seed in range(20)]
)
def test_random_groups_get_the_same_answers(seed: int, runner: Runner) -> None:
    probe = Probe(
        f"random_group_{seed}",
        module=__name__,
        about="",
        rows=(),
        slow=False,
        function=lambda session: RandomGroup(session, seed).run(STEPS),
    )
    kafka, cluster = runner.results(probe)
    found = [str(one) for one in differences(kafka, cluster)]
    if found or "failed" in kafka:
        pytest.fail("\n".join(found[:20]) or kafka["failed"], pytrace=False)


@pytest.mark.long
@pytest.mark.real_kafka
def test_every_version_of_every_api_is_asked_for(runner: Runner, secured_runner: Runner) -> None:
    usual = [probe for probe in PROBES.values() if not probe.variant]
    for probe in usual:
        (secured_runner if probe.secured else runner).start(probe)
    for probe in usual:
        (secured_runner if probe.secured else runner).results(probe)
    missing = {
        f"{served.key.name} {version}"
        for key, served in SERVED.items()
        for version in range(served.versions.first, served.versions.last + 1)
        if (key, version) not in ASKED
    }
    assert missing == set()
