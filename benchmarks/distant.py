"""Rates of reading from a broker far away, and over a slow line.

    python -m benchmarks.distant [--rounds 3] [--lines TEXT] [--output FOLDER]

Each client reads records of 1 KB from 32 partitions on Apache Kafka, as the only member of a group,
in a separate process. The clocks start with the first records and include the time in which a
client adapts. A proxy in a further process delays all bytes, and paces those of the broker. With
"send buffer", one connection has 165,000 bytes on its way at most. That is what TCP delivers with
the default of Apache Kafka, socket.send.buffer.bytes=102400. The clients take turns within each
round. The CPU time is that of the client.
"""

from __future__ import annotations

import statistics
from typing import NamedTuple

from benchmarks._goals import Figures, Goal, goal_table
from benchmarks._kafka import kafka
from benchmarks._names import ARROW, CONFLUENT, RECORDS
from benchmarks._program import (
    about,
    command_of,
    new_group,
    parser,
    publish,
    ready,
    require_kafka,
    run,
    setting,
)
from benchmarks._reading import Reading
from benchmarks._rounds import collect, table
from benchmarks._topics import Shape, fill, text
from tests.support.net import free_ports

RECORD_BYTES = 1000
SHAPE = Shape("distant", "1 KB, plain", 400_000, text(RECORD_BYTES), distinct=2_000)
PARTITIONS = 32
WIDE = 125_000_000
SEND_BUFFER = 165_000
RATE = "MB/s"


class Line(NamedTuple):
    """Line with its round trip in ms, its bytes a second and the bytes of one connection."""

    name: str
    round_trip_ms: int
    rate: int
    window: int = 0


DIRECT = Line("direct", 0, 1 << 40)
BUFFERED = Line("150 ms, send buffer", 150, WIDE, SEND_BUFFER)
NEAR = Line("50 ms, 125 MB/s", 50, WIDE)
FAR = Line("150 ms, 125 MB/s", 150, WIDE)
FARTHEST = Line("300 ms, 125 MB/s", 300, WIDE)
SLOW = Line("50 ms, 1 MB/s", 50, 1_000_000)


class Case(NamedTuple):
    """Line, client, and number of records to read."""

    line: Line
    client: str
    records: int


CASES = (
    Case(BUFFERED, ARROW, 400_000),
    Case(BUFFERED, CONFLUENT, 8_000),
    *(Case(line, client, 400_000) for line in (NEAR, FAR, FARTHEST) for client in (ARROW, RECORDS)),
    Case(FAR, CONFLUENT, 400_000),
    Case(SLOW, ARROW, 12_000),
    Case(SLOW, CONFLUENT, 12_000),
)
GOALS = tuple(
    Goal(line.name, (line, ARROW), None, goal, floor)
    for line, goal, floor in (
        (BUFFERED, 24.0, 11.0),
        (NEAR, 119.0, 80.0),
        (FAR, 119.0, 80.0),
        (FARTHEST, 106.0, 60.0),
        (SLOW, 0.9, 0.8),
    )
)


def row(case: Case, figures: Figures) -> list[str]:
    """Return the medians of the rounds as the cells of a table."""
    rates = figures[case, RATE]
    rate = statistics.median(rates)
    return [
        case.line.name,
        case.client,
        f"{rate:.2f}",
        f"{min(rates):.2f} to {max(rates):.2f}",
        f"{rate * 1e6 / case.line.rate:.2f}",
        f"{statistics.median(figures[case, 'cpu_us']):.2f}",
        f"{max(figures[case, 'peak_mb']):.0f}",
    ]


def main() -> None:
    arguments = parser(__doc__, rounds=3)
    arguments.add_argument("--lines", help="only lines with this text in their name", default="")
    args = arguments.parse_args()
    require_kafka()
    cases = [case for case in CASES if args.lines in case.line.name]
    (port,) = free_ports(1)
    near = f"127.0.0.1:{port}"
    with kafka({"advertised.listeners": f"PLAINTEXT://{near}"}) as server:
        with ready(command_of("_line", port, server.port, *DIRECT[1:])):
            fill(near, SHAPE, 1, PARTITIONS)

        def read(case: Case) -> dict[str, float]:
            with ready(command_of("_line", port, server.port, *case.line[1:])):
                asked = case.client, near, SHAPE.name, new_group(), case.records
                reading = Reading(**run("_read", *asked))
            return {**reading.figures(), RATE: reading.rate * RECORD_BYTES / 1e6}

        figures, _ = collect(args.rounds, cases, read, warm_up=False)
    head = "line", "client", RATE, "least and most of a round", "share", "CPU us/record"
    rates = {case[:2]: figures[case, RATE] for case in cases}
    publish(
        args.output,
        "distant",
        "A broker far away",
        about(__doc__),
        setting("anyio", "confluent-kafka"),
        table([*head, "peak MB"], "llrrrrr", (row(case, figures) for case in cases)),
        goal_table(rates, GOALS, "MB/s of kohort", "never below"),
    )


if __name__ == "__main__":
    main()
