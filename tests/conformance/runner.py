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
        self._running: dict[tuple[str, int], list[Future[dict[str, Any]]]] = {}

    def start(self, probe: Probe, attempt: int = 0) -> None:
        """Start the probe, unless it was started."""
        if (probe.name, attempt) not in self._running:
            self._running[probe.name, attempt] = [
                self._pool.submit(probe.run, target, attempt) for target in self._targets
            ]

    def results(self, probe: Probe, attempt: int = 0) -> Results:
        """Return the observations. A further attempt is a separate run."""
        self.start(probe, attempt)
        return Results(*[future.result() for future in self._running[probe.name, attempt]])
