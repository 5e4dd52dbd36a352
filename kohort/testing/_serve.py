"""A cluster in the foreground, for a shell."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from kohort.errors import InvalidOptionError
from kohort.testing._cluster import Cluster
from kohort.testing._given_configs import RESERVED, effective_configs
from kohort.testing._properties import read_properties


def serve(
    *,
    host: str = "127.0.0.1",
    port: int = 9092,
    brokers: int = 1,
    topics: Mapping[str, int | None] | None = None,
    default_partitions: int = 1,
    advertised_host: str | None = None,
    auto_create_topics: bool = True,
    configs: Mapping[str, str] | None = None,
    properties: str | os.PathLike[str] | None = None,
    seed: int = 0,
    prepare: Callable[[Cluster], object] = lambda _: None,
) -> int:
    """Run a cluster until Ctrl-C or SIGTERM; the exit status, 0.

    The first broker is at ``port``, the others behind it; 0 is for free ones. ``prepare`` is
    called with the cluster before it says on standard output where it listens. Must be called in
    the main thread, as signals come there.

    ``properties`` is a file like Kafka's ``server.properties``; ``configs`` go before it.
    InvalidOptionError for a file that cannot be read and for what :class:`Cluster` does not take.
    What the file sets and a parameter of this function decides, such as ``listeners``, is left out
    with a line on standard error; so is said what changes nothing in this cluster.
    """
    given = {**_from_file(properties), **(configs or {})}
    _note("shown by DescribeConfigs and without effect here", given.keys() - effective_configs())
    stop = threading.Event()
    handlers = {
        number: signal.signal(number, lambda *_: stop.set())
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        with Cluster(
            brokers,
            topics,
            host=host,
            ports=port or None,
            default_partitions=default_partitions,
            advertised_host=advertised_host,
            auto_create_topics=auto_create_topics,
            configs=given,
            seed=seed,
        ) as cluster:
            prepare(cluster)
            print(f"listening on {cluster.bootstrap_servers}", flush=True)
            stop.wait()
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    return 0


def _from_file(path: str | os.PathLike[str] | None) -> dict[str, str]:
    """The configs of a file that the cluster takes."""
    if path is None:
        return {}
    try:
        found = read_properties(Path(path).read_text())
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise InvalidOptionError(f"properties: {path} cannot be read: {reason}") from error
    _note(f"left out of {path}, as the cluster sets them itself", found.keys() & RESERVED.keys())
    return {name: value for name, value in found.items() if name not in RESERVED}


def _note(what: str, names: Iterable[str]) -> None:
    if listed := ", ".join(sorted(names)):
        print(f"{what}: {listed}", file=sys.stderr, flush=True)
