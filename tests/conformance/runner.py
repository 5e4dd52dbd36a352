"""Runner of the probes on both clusters."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

from tests.conformance.probe import Probe
from tests.conformance.session import Target


class Results(NamedTuple):
    """Observations of a probe on both clusters."""

    kafka: dict[str, Any]
    cluster: dict[str, Any]


class Runner:
    """Runner that runs each probe on both clusters at the same time."""

    def __init__(self, kafka: Target, cluster: Target, pool: ThreadPoolExecutor) -> None:
        self._targets = kafka, cluster
        self._pool = pool
        self._running: dict[str, list[Future[dict[str, Any]]]] = {}

    def start(self, probe: Probe) -> None:
        """Start the probe, unless it was started."""
        if probe.name not in self._running:
            self._running[probe.name] = [
                self._pool.submit(probe.run, target) for target in self._targets
            ]

    def results(self, probe: Probe) -> Results:
        """Return the observations."""
        self.start(probe)
        return Results(*[future.result() for future in self._running[probe.name]])
