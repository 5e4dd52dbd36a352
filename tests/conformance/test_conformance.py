"""Every probe sees the same on Apache Kafka and on the in-process cluster."""

from __future__ import annotations

import pytest

from kohort.testing.apis import SERVED
from tests.conformance.clusters import load_probes
from tests.conformance.known import gone, unexplained
from tests.conformance.probe import PROBES, differences
from tests.conformance.runner import Runner
from tests.conformance.wire import ASKED

load_probes()


@pytest.mark.real_kafka
@pytest.mark.parametrize("name", PROBES)
def test_the_answers_are_the_same(name: str, runner: Runner) -> None:
    kafka, cluster = runner.results(PROBES[name])
    assert "failed" not in kafka, kafka["failed"]
    found = list(differences(kafka, cluster))
    strange = unexplained(name, found)
    shown = "\n".join(str(one) for one in strange[:20])
    assert not strange, f"{len(strange)} differences that are not explained:\n{shown}"
    assert gone(name, found) == [], "listed as differences, and not there any more"


@pytest.mark.real_kafka
def test_every_version_of_every_api_is_asked_for(runner: Runner) -> None:
    for probe in PROBES.values():
        runner.start(probe)
    for probe in PROBES.values():
        runner.results(probe)
    missing = {
        f"{served.key.name} {version}"
        for key, served in SERVED.items()
        for version in range(served.versions.first, served.versions.last + 1)
        if (key, version) not in ASKED
    }
    assert missing == set()
