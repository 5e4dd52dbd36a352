"""Probes, their register, and the comparison of their observations."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.conformance.session import Session, Target
from tests.conformance.wire import ConnectionClosed

Observations = Iterator[tuple[str, object]]
Function = Callable[[Session], Observations]


@dataclass(frozen=True)
class Probe:
    """Probe. ``rows`` are the rows of the table that it tests. ``slow`` probes wait
    for the broker.
    """

    name: str
    module: str
    about: str
    rows: tuple[str, ...]
    slow: bool
    function: Function
    secured: bool = False
    """True if it runs on the secured clusters."""
    variant: str = ""
    """Name of the further pair of clusters that it runs on, or ""."""
    cold: bool = False
    """True if it runs before any other request to these clusters."""

    def run(self, target: Target) -> dict[str, Any]:
        """Return the observations by label. An error of the probe is an observation, too."""
        session = Session(target, self.name)
        seen: dict[str, Any] = {}
        try:
            for label, value in self.function(session):
                assert label not in seen, f"{self.name} sees two things as {label!r}"
                seen[label] = session.plain(value)
        except ConnectionClosed:
            seen["the connection"] = "closed"
        except Exception:
            seen["failed"] = traceback.format_exc(limit=-4)
        finally:
            session.close()
        return seen


PROBES: dict[str, Probe] = {}


def add_probe(
    name: str,
    about: str,
    function: Function,
    *rows: str,
    slow: bool = False,
    secured: bool = False,
    variant: str = "",
    cold: bool = False,
    module: str,
) -> None:
    """Register a probe of a family that is created in a loop."""
    assert name not in PROBES, f"two probes are called {name}"
    PROBES[name] = Probe(
        name, module.rpartition(".")[2], about, rows, slow, function, secured, variant, cold
    )


def probe(
    *rows: str,
    slow: bool = False,
    secured: bool = False,
    variant: str = "",
    cold: bool = False,
) -> Callable[[Function], Function]:
    """Register a generator of (label, observation), with the first line of its docstring."""

    def register(function: Function) -> Function:
        about = (function.__doc__ or "").splitlines()[0]
        module = function.__module__
        add_probe(
            function.__name__,
            about,
            function,
            *rows,
            slow=slow,
            secured=secured,
            variant=variant,
            cold=cold,
            module=module,
        )
        return function

    return register


MAX_SHOWN = 400


@dataclass(frozen=True)
class Difference:
    """Difference. ``path`` has label and fields, such as ``first.topics[0].error_code``."""

    path: str
    kafka: object
    cluster: object

    def __str__(self) -> str:
        kafka, cluster = (repr(value)[:MAX_SHOWN] for value in (self.kafka, self.cluster))
        return f"{self.path}\n    Kafka:   {kafka}\n    cluster: {cluster}"


MISSING = "nothing"


def differences(kafka: Any, cluster: Any, path: str = "") -> Iterator[Difference]:
    """Yield the differences of two observations, each at its deepest place."""
    if isinstance(kafka, dict) and isinstance(cluster, dict):
        for key in {**kafka, **cluster}:
            below = f"{path}.{key}" if path else str(key)
            yield from differences(kafka.get(key, MISSING), cluster.get(key, MISSING), below)
    elif isinstance(kafka, list) and isinstance(cluster, list):
        for index in range(max(len(kafka), len(cluster))):
            mine = kafka[index] if index < len(kafka) else MISSING
            yours = cluster[index] if index < len(cluster) else MISSING
            yield from differences(mine, yours, f"{path}[{index}]")
    elif kafka != cluster:
        yield Difference(path, kafka, cluster)
