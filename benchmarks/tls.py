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

import argparse
import os
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from benchmarks import _names as names
from benchmarks._arguments import require_known, words
from benchmarks._clients import Client, clients
from benchmarks._goals import verdict
from benchmarks._kafka import secure_kafka
from benchmarks._machine import Others, cpu_of, hardware, versions
from benchmarks._reading import CA_VARIABLE, Reading
from benchmarks._rounds import short, turns
from benchmarks._topics import LARGE, PLAIN, SHAPES, Filled, fill
from benchmarks.fetch import RESULTS, Progress
from tests.support.jars import KAFKA_VERSION, missing_kafka

CLIENTS = (names.LIMIT, names.RECORDS, names.ARROW, names.ASYNC_POLL, names.TUNED, names.AIOKAFKA)
TOPICS = (LARGE, PLAIN)
VALUE_BYTES = {LARGE: 1024, PLAIN: 100}
PACKAGES = ("anyio", "confluent-kafka", "aiokafka")
LISTENERS = ("PLAINTEXT", "SSL")


class Way(NamedTuple):
    """Client that reads a topic over a listener."""

    client: str
    topic: str
    listener: str


Readings = Mapping[Way, list[Reading]]
BrokerSeconds = Mapping[Way, list[float]]
"""CPU seconds of the broker during each reading."""


class Goal(NamedTuple):
    """Goal for a ratio of rates. The rate of ``way`` is divided by that of ``over``."""

    text: str
    way: Way
    over: Way
    goal: float
    floor: float


GOALS = (
    Goal(
        "objects, 1 KB over TLS / confluent-kafka tuned over TLS",
        Way(names.RECORDS, LARGE, "SSL"),
        Way(names.TUNED, LARGE, "SSL"),
        1.4,
        1.2,
    ),
    Goal(
        "async objects, 1 KB over TLS / aiokafka over TLS",
        Way(names.ASYNC_POLL, LARGE, "SSL"),
        Way(names.AIOKAFKA, LARGE, "SSL"),
        3,
        3,
    ),
    Goal(
        "objects, 100 B over TLS / plaintext",
        Way(names.RECORDS, PLAIN, "SSL"),
        Way(names.RECORDS, PLAIN, "PLAINTEXT"),
        0.85,
        0.75,
    ),
)
CPU_GOAL, CPU_FLOOR = 0.6, 0.8
"""CPU seconds of the reader for each GB over TLS, beyond those over plaintext."""


def median(readings: Readings, way: Way, field: str) -> float | None:
    """Return the median of a field of Reading. None means that the way was not measured."""
    done = readings.get(way)
    return statistics.median(getattr(each, field) for each in done) if done else None


def added_cpu(readings: Readings, client: str, topic: str) -> float | None:
    """Return the CPU seconds that TLS costs the reader for each GB of values."""
    plain, tls = (median(readings, Way(client, topic, each), "cpu_us") for each in LISTENERS)
    if plain is None or tls is None:
        return None
    return (tls - plain) * 1e-6 / VALUE_BYTES[topic] * 1e9


def goals_table(readings: Readings) -> str:
    """Return Markdown with the goal and the floor of each figure."""
    lines = ["| measure | figure | goal | floor | |", "|---|---:|---:|---:|---|"]
    for goal in GOALS:
        ours = median(readings, goal.way, "rate")
        theirs = median(readings, goal.over, "rate")
        if ours and theirs:
            lines.append(_row(goal.text, ours / theirs, goal.goal, goal.floor))
    added = added_cpu(readings, names.RECORDS, LARGE)
    if added is not None:
        text = "CPU seconds that TLS adds for each GB, objects of 1 KB"
        lines.append(_row(text, added, CPU_GOAL, CPU_FLOOR))
    return "\n".join(lines)


def _row(text: str, value: float, goal: float, floor: float) -> str:
    return f"| {text} | {short(value)} | {goal:g} | {floor:g} | {verdict(value, goal, floor)} |"


def rates_table(readings: Readings, topic: str, broker_s: BrokerSeconds | None = None) -> str:
    """Return the rates and CPU times of all clients that read a topic, as Markdown."""
    lines = [
        "| client | plaintext, thousand records/s | TLS | TLS / plaintext "
        "| CPU us/record, plaintext | TLS | added CPU, s/GB | of the limit, TLS "
        "| broker's CPU, s/GB, plaintext | TLS |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    most = median(readings, Way(names.LIMIT, topic, "SSL"), "rate")
    for client in CLIENTS:
        rates = [median(readings, Way(client, topic, each), "rate") for each in LISTENERS]
        cpus = [median(readings, Way(client, topic, each), "cpu_us") for each in LISTENERS]
        plain, tls = rates
        if plain is None or tls is None:
            continue
        added = added_cpu(readings, client, topic)
        cells = [
            client,
            f"{plain / 1000:,.0f}",
            f"{tls / 1000:,.0f}",
            f"{tls / plain:.2f}",
            *(f"{cpu:.3f}" for cpu in cpus),
            "" if added is None else f"{added:.2f}",
            "" if most is None else f"{tls / most:.2f}",
            *(_of_broker(readings, broker_s or {}, Way(client, topic, each)) for each in LISTENERS),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _of_broker(readings: Readings, broker_s: BrokerSeconds, way: Way) -> str:
    """Return the CPU seconds of the broker for each GB of values."""
    if not (seconds := broker_s.get(way)):
        return ""
    size = readings[way][0].records * VALUE_BYTES[way.topic]
    return f"{statistics.median(seconds) / size * 1e9:.2f}"


def text_of(
    readings: Readings,
    filled: Mapping[str, Filled],
    rounds: int,
    broker_s: BrokerSeconds | None = None,
) -> str:
    """Return the page of results."""
    sizes = ", ".join(f"{name} {each.records:,}" for name, each in filled.items())
    return "\n\n".join(
        [
            "# Topics read over TLS",
            "; ".join([hardware(), *versions(*PACKAGES, java=True)])
            + f"; Apache Kafka {KAFKA_VERSION} on the same machine. Tuned: "
            "`fetch.queue.backoff.ms=1`. Rate and CPU count after the first batch.",
            f"Four partitions. Records of each topic: {sizes}. Medians of {rounds} rounds.",
            goals_table(readings),
            *(
                f"## {SHAPES[topic].text}\n\n{rates_table(readings, topic, broker_s)}"
                for topic in TOPICS
                if topic in filled
            ),
        ]
    )


def measure(
    found: list[Client],
    filled: Mapping[str, Filled],
    servers: Mapping[str, str],
    rounds: int,
    broker_cpu: Callable[[], float],
) -> tuple[dict[Way, list[Reading]], dict[Way, list[float]]]:
    """Read all topics by all clients over both listeners, in turn."""
    by_name = {client.name: client for client in found}
    ways = [Way(name, topic, each) for topic in filled for name in by_name for each in LISTENERS]
    for topic in filled:  # the JVM compiles its code while it sends the first responses
        for each in LISTENERS:
            _over(found[0], each, servers).read(servers[each], filled[topic])
    readings: defaultdict[Way, list[Reading]] = defaultdict(list)
    broker_s: defaultdict[Way, list[float]] = defaultdict(list)
    progress = Progress(rounds * len(ways), None)
    for number, way in turns(rounds, ways, warm_up=False):
        client = _over(by_name[way.client], way.listener, servers)
        before = broker_cpu()
        reading = client.read(servers[way.listener], filled[way.topic])
        broker_s[way].append(broker_cpu() - before)
        readings[way].append(reading)
        progress.tell(f"round {number}, {way.topic}, {way.listener}, {way.client}", reading)
    return dict(readings), dict(broker_s)


def _over(client: Client, listener: str, servers: Mapping[str, str]) -> Client:
    """Return the client with the environment that a listener needs."""
    if listener != "SSL":
        return client
    return client._replace(env={**client.env, CA_VARIABLE: servers["cafile"]})


def main() -> None:
    """Measure, print the tables and write them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="factor of the topics' sizes")
    parser.add_argument("--clients", type=words, default=list(CLIENTS), help=", ".join(CLIENTS))
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder for the results")
    args = parser.parse_args()
    require_known(parser, args.clients, CLIENTS)
    if (reason := missing_kafka()) is not None:
        raise SystemExit(f"not measured: {reason}")
    with tempfile.TemporaryDirectory() as folder, secure_kafka() as server:
        found, missing = clients(args.clients, Path(folder))
        for name, why in missing.items():
            print(f"{name} is not measured: {why}")
        servers = {each: server.bootstrap_servers_of(each) for each in LISTENERS}
        servers["cafile"] = server.certificates.ca
        filled = {
            topic: fill(server.bootstrap_servers, SHAPES[topic], args.scale) for topic in TOPICS
        }
        os.sync()
        others = Others()
        readings, broker_s = measure(
            found, filled, servers, args.rounds, lambda: cpu_of(server.pid)
        )
        text = text_of(readings, filled, args.rounds, broker_s)
        text += f"\n\nOther processes took {others.share():.0f} % of the processors."
    print(f"\n{text}")
    args.output.mkdir(parents=True, exist_ok=True)
    (args.output / "tls.md").write_text(text + "\n")
    print(f"written to {args.output}")


if __name__ == "__main__":
    main()
