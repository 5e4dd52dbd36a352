"""Cost of consumers that have nothing to read, and of the first record.

    python -m benchmarks.idle [--rounds 5] [--short] [--output FOLDER]

Each measurement is a separate process on Apache Kafka, and the clients take turns within each
round. "CPU" is that of the process while 1 or 50 consumers wait for records in calls of one second.
Each is in a separate group. "MB each" is what 50 consumers need beyond the resident memory of a
process with 1, divided by 49. "first record" is the time from the constructor to the first record
in a new group. It does not include the import, which benchmarks.imports measures. The group's
initial rebalance delay is 0. "kept" is the resident memory after reading 480 MB, less that before
the consumer was created.
"""

from __future__ import annotations

from functools import partial

from benchmarks._consumers import CLIENTS, KOHORT, KOHORT_ASYNC
from benchmarks._goals import Goal, goal_table
from benchmarks._measured import Task
from benchmarks._program import about, add_names, brokers, measured, parser, publish, setting
from benchmarks._rounds import collect, spread, table
from benchmarks._topics import LARGE, SHAPES, Filled, fill
from benchmarks.latency import new_topic

MANY = 50
SECONDS, SHORT_SECONDS = 15, 5
READ_MB = 480

ONE_CPU, MANY_CPU = "CPU of 1 consumer, %", "CPU of 50 consumers, %"
SWITCHES, EACH_MB = "context switches of 50 a second", "MB each of 50"
FIRST, KEPT = "first record, ms", "kept after 480 MB, MB"
MEASURES = (ONE_CPU, MANY_CPU, SWITCHES, EACH_MB, FIRST, KEPT)
GOALS = tuple(
    Goal(f"{client}, {measure}", (client, measure), None, goal, floor)
    for client, measure, goal, floor in (
        (KOHORT, MANY_CPU, 2.5, 4.0),
        (KOHORT_ASYNC, MANY_CPU, 2.5, 4.0),
        (KOHORT_ASYNC, EACH_MB, 0.2, 0.35),
        (KOHORT, FIRST, 60.0, 100.0),
        (KOHORT, KEPT, 20.0, 30.0),
    )
)


def measure(
    client: str, servers: str, topic: str, filled: Filled | None, seconds: int
) -> dict[str, float]:
    """Measure all figures of a client once."""
    idle = Task("idle", client, servers, topic, seconds=seconds)
    one, many = measured(idle), measured(idle._replace(consumers=MANY))
    first = Task("first", client, servers, topic)
    figures = {
        ONE_CPU: one["cpu_percent"],
        MANY_CPU: many["cpu_percent"],
        SWITCHES: many["switches_per_s"],
        EACH_MB: (many["mb"] - one["mb"]) / (MANY - 1),
        FIRST: measured(first)["record_ms"],
    }
    if filled is not None:
        all_records = first._replace(topic=filled.topic, records=filled.records)
        figures[KEPT] = measured(all_records)["mb"]
    return figures


def main() -> None:
    arguments = parser(__doc__, rounds=5, servers=True)
    arguments.add_argument("--short", action="store_true", help="5 s each, without 480 MB")
    add_names(arguments, "--clients", CLIENTS)
    args = arguments.parse_args()
    with brokers(args.servers) as servers:
        topic = new_topic(servers)
        shape = SHAPES[LARGE]
        filled = None if args.short else fill(servers, shape, READ_MB * 1000 / shape.records)
        seconds = SHORT_SECONDS if args.short else SECONDS
        run = partial(measure, servers=servers, topic=topic, filled=filled, seconds=seconds)
        figures, _ = collect(args.rounds, args.clients, run, warm_up=False)
    rows = ([name, *(spread(figures[each, name]) for each in args.clients)] for name in MEASURES)
    publish(
        args.output,
        "idle",
        "Idle consumers",
        about(__doc__),
        setting("anyio", "confluent-kafka", "aiokafka", "kafka-python"),
        table(["", *args.clients], f"l{'r' * len(args.clients)}", rows),
        goal_table(figures, GOALS),
    )


if __name__ == "__main__":
    main()
