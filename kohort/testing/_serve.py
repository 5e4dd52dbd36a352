"""A cluster in the foreground, for a shell."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Mapping

from kohort.testing._cluster import Cluster


def serve(
    *,
    host: str = "127.0.0.1",
    port: int = 9092,
    brokers: int = 1,
    topics: Mapping[str, int] | None = None,
    default_partitions: int = 1,
    advertised_host: str | None = None,
    auto_create_topics: bool = True,
    seed: int = 0,
    prepare: Callable[[Cluster], object] = lambda _: None,
) -> int:
    """Run a cluster until Ctrl-C or SIGTERM; the exit status, 0.

    The first broker is at ``port``, the others behind it; 0 is for free ones. ``prepare`` is
    called with the cluster before it says on standard output where it listens. Must be called in
    the main thread, as signals come there.
    """
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
            seed=seed,
        ) as cluster:
            prepare(cluster)
            print(f"listening on {cluster.bootstrap_servers}", flush=True)
            stop.wait()
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    return 0
