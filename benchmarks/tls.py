"""Topics read over TLS: kohort compared with its own plaintext rate and with other clients.

    python -m benchmarks.tls [--rounds 5] [--scale 1] [--clients A,B] [--output FOLDER]

Apache Kafka is started with a plaintext and a TLS listener, and filled over the first. Each client
reads each topic over both, as the only member of a new group. Each commits automatically, checks
CRCs and reads all four fields of every record. The broker's certificate is verified. The limit is a
blocking socket that reads only the lengths of batches. All readings take turns within each round;
benchmarks/fetch.py lists what is counted. The CPU time of the broker is measured, too, because it
shares the processors with the reader. Both together limit the rate over TLS.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from benchmarks import _names as names
from benchmarks._clients import Client, clients
from benchmarks._consumers import CA_VARIABLE
from benchmarks._goals import Figures, Goal, goal_table
from benchmarks._kafka import FastSecureKafka, node
from benchmarks._machine import cpu_of, load_of
from benchmarks._program import add_names, parser, publish, require_kafka, setting
from benchmarks._rounds import collect, table
from benchmarks._topics import LARGE, PLAIN, SHAPES, Filled, fill

CLIENTS = (names.LIMIT, names.RECORDS, names.ARROW, names.ASYNC_POLL, names.TUNED, names.AIOKAFKA)
TOPICS = (LARGE, PLAIN)
VALUE_BYTES = {LARGE: 1024, PLAIN: 100}
LISTENERS = ("PLAINTEXT", "SSL")
ADDED = "added CPU"
"""CPU seconds of the reader for each GB over TLS, beyond those over plaintext."""
BROKER = "CPU of the broker"
"""CPU seconds of the broker for each GB."""


class Way(NamedTuple):
    """Client that reads a topic over a listener."""

    client: str
    topic: str
    listener: str


def _rate(client: str, topic: str, listener: str = "SSL") -> tuple[Way, str]:
    return Way(client, topic, listener), "rate"


OURS, PLAINTEXT = _rate(names.RECORDS, LARGE), _rate(names.RECORDS, PLAIN, "PLAINTEXT")
THEIRS, AIOKAFKA = _rate(names.TUNED, LARGE), _rate(names.AIOKAFKA, LARGE)
ASYNC, ADDED_CPU = _rate(names.ASYNC_POLL, LARGE), (names.RECORDS, LARGE, ADDED)
GOALS = (
    Goal("objects, 1 KB over TLS / confluent-kafka tuned over TLS", OURS, THEIRS, 1.4, 1.2),
    Goal("async objects, 1 KB over TLS / aiokafka over TLS", ASYNC, AIOKAFKA, 3, 3),
    Goal("objects, 100 B over TLS / plaintext", _rate(names.RECORDS, PLAIN), PLAINTEXT, 0.85, 0.75),
    Goal("CPU seconds that TLS adds for each GB, objects of 1 KB", ADDED_CPU, None, 0.6, 0.8),
)


def with_added(figures: Figures) -> dict[object, list[float]]:
    """Return the figures with the CPU time that TLS adds for each client and topic."""
    found = {key: list(values) for key, values in figures.items()}
    for client in CLIENTS:
        for topic in TOPICS:
            plain, tls = (found.get((Way(client, topic, each), "cpu_us")) for each in LISTENERS)
            if plain and tls:
                added = statistics.median(tls) - statistics.median(plain)
                found[client, topic, ADDED] = [added * 1e3 / VALUE_BYTES[topic]]
    return found


def rows(figures: Figures, topic: str) -> Iterator[list[str]]:
    """Yield the rates and CPU times of all clients that read a topic."""

    def shown(key: object, digits: int, unit: float = 1) -> str:
        values = figures.get(key)
        return f"{statistics.median(values) / unit:,.{digits}f}" if values else ""

    def ratio(key: object, over: object) -> str:
        found = Goal("", key, over, 0, 0).figure(figures)
        return f"{found.value:.2f}" if found else ""

    limit = Way(names.LIMIT, topic, "SSL"), "rate"
    for client in CLIENTS:
        plain, tls = (Way(client, topic, each) for each in LISTENERS)
        if (plain, "rate") in figures and (tls, "rate") in figures:
            yield [
                client,
                shown((plain, "rate"), 0, 1000),
                shown((tls, "rate"), 0, 1000),
                ratio((tls, "rate"), (plain, "rate")),
                shown((plain, "cpu_us"), 3),
                shown((tls, "cpu_us"), 3),
                shown((client, topic, ADDED), 2),
                ratio((tls, "rate"), limit),
                shown((plain, BROKER), 2),
                shown((tls, BROKER), 2),
            ]


def rates_table(figures: Figures, topic: str) -> str:
    """Return the rates and CPU times of all clients that read a topic, as Markdown."""
    head = (
        "client",
        "plaintext, thousand records/s",
        "TLS",
        "TLS / plaintext",
        "CPU us/record, plaintext",
        "TLS",
        "added CPU, s/GB",
        "of the limit, TLS",
        "broker's CPU, s/GB, plaintext",
        "TLS",
    )
    return table(head, f"l{'r' * 9}", rows(figures, topic))


def measure(
    found: list[Client],
    filled: Mapping[str, Filled],
    servers: Mapping[str, str],
    rounds: int,
    broker_cpu: Callable[[], float],
) -> tuple[dict[object, list[float]], list[float]]:
    """Read all topics by all clients over both listeners, in turn.

    Return the figures, and the load of other processes at each reading.
    """
    by_name = {client.name: client for client in found}
    ways = [Way(name, topic, each) for topic in filled for name in by_name for each in LISTENERS]
    for topic in filled:  # the JVM compiles its code while it sends the first responses
        for each in LISTENERS:
            _over(found[0], each, servers).read(servers[each], filled[topic])

    def read(way: Way) -> dict[str, float]:
        client = _over(by_name[way.client], way.listener, servers)
        before = broker_cpu()
        reading = client.read(servers[way.listener], filled[way.topic])
        broker_s = (broker_cpu() - before) * 1e9 / reading.records / VALUE_BYTES[way.topic]
        return {**reading.figures(), BROKER: broker_s}

    figures, others = collect(rounds, ways, read, warm_up=False)
    return with_added(figures), others


def _over(client: Client, listener: str, servers: Mapping[str, str]) -> Client:
    """Return the client with the environment that a listener needs."""
    if listener != "SSL":
        return client
    return client._replace(env={**client.env, CA_VARIABLE: servers["cafile"]})


def main() -> None:
    """Measure, print the tables and write them."""
    arguments = parser(__doc__, rounds=5)
    arguments.add_argument("--scale", type=float, default=1.0, help="factor of the topics' sizes")
    add_names(arguments, "--clients", CLIENTS)
    args = arguments.parse_args()
    require_kafka()
    with tempfile.TemporaryDirectory() as folder, node(FastSecureKafka) as server:
        server.start()
        found, missing = clients(args.clients, Path(folder))
        servers = {each: server.bootstrap_servers_of(each) for each in LISTENERS}
        servers["cafile"] = server.certificates.ca
        filled = {
            topic: fill(server.bootstrap_servers, SHAPES[topic], args.scale) for topic in TOPICS
        }
        os.sync()
        done, shares = measure(found, filled, servers, args.rounds, lambda: cpu_of(server.pid))
    sizes = ", ".join(f"{name} {each.records:,}" for name, each in filled.items())
    publish(
        args.output,
        "tls",
        "Topics read over TLS",
        f"{setting('anyio', 'confluent-kafka', 'aiokafka')} Tuned: `fetch.queue.backoff.ms=1`. "
        "Rate and CPU count after the first batch.",
        f"Four partitions. Records of each topic: {sizes}. Medians of {args.rounds} rounds.",
        *(f"Not measured: {name}: {why}." for name, why in missing.items()),
        goal_table(done, GOALS, floor="floor"),
        *(f"## {SHAPES[topic].text}\n\n{rates_table(done, topic)}" for topic in TOPICS),
        load_of(shares),
    )


if __name__ == "__main__":
    main()
