"""Start of a process: the import of a client, its first record, and 50 consumers at once.

    python -m benchmarks.imports [--rounds 5] [--output FOLDER]

Each figure is from a new Python process with compiled bytecode, and the clients take turns within
each round. "process" is the CPU time of a process that only imports, and "import" the CPU time of
the statement in it. "nothing" imports nothing, and "asyncio" imports asyncio and ssl. "first
record" is the time from the constructor to the first record in a new group, without the import.
"50 consumers" is the time until each of 50 in one process has a record, in separate groups. The
broker is Apache Kafka, whose initial rebalance delay is 0.
"""

from __future__ import annotations

import resource
import sys
from functools import partial

from benchmarks import _consumers as clients
from benchmarks._goals import Goal, goal_table
from benchmarks._measured import Task
from benchmarks._program import (
    about,
    add_names,
    brokers,
    measured,
    parser,
    publish,
    run_command,
    setting,
)
from benchmarks._rounds import collect, spread, table
from benchmarks.latency import new_topic

STATEMENTS = {
    clients.KOHORT: "from kohort import KafkaConsumer",
    clients.KOHORT_ASYNC: "from kohort import AsyncKafkaConsumer",
    clients.AIOKAFKA: "import aiokafka",
    clients.CONFLUENT: "import confluent_kafka",
    clients.KAFKA_PYTHON: "import kafka",
    "asyncio": "import asyncio, ssl",
    "nothing": "pass",
}
CLOCKED = "import time; began = time.process_time()\n{}\nprint(time.process_time() - began)"
MANY = 50

PROCESS, IMPORT = "process, CPU ms", "import, CPU ms"
FIRST, FIRST_CPU = "first record, ms", "first record, CPU ms"
ALL = f"{MANY} consumers, ms"
MEASURES = (PROCESS, IMPORT, FIRST, FIRST_CPU, ALL)


def goal(client: str, measure: str, aim: float, floor: float, over: str | None = None) -> Goal:
    """Return a goal of a client, as a ratio to the client ``over`` unless that is None."""
    text = f"{client}, {measure}" if over is None else f"{client} / {over}, {measure}"
    return Goal(text, (client, measure), over and (over, measure), aim, floor)


GOALS = (
    goal(clients.KOHORT, PROCESS, 0.8, 1.1, clients.AIOKAFKA),
    goal(clients.KOHORT_ASYNC, PROCESS, 0.8, 1.1, clients.AIOKAFKA),
    goal(clients.KOHORT, IMPORT, 60.0, 80.0),
    goal(clients.KOHORT, FIRST, 60.0, 100.0),
    goal(clients.KOHORT_ASYNC, FIRST, 60.0, 100.0),
    goal(clients.KOHORT, ALL, 500.0, 1000.0),
    goal(clients.KOHORT_ASYNC, ALL, 500.0, 1000.0),
)


def measure_import(name: str) -> dict[str, float]:
    """Return the milliseconds of CPU time of one process, and of its import."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    taken = run_command([sys.executable, "-c", CLOCKED.format(STATEMENTS[name])])
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    whole = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return {PROCESS: whole * 1000, IMPORT: taken * 1000}


def measure(name: str, servers: str, topic: str) -> dict[str, float]:
    """Return each figure of one client."""
    figures = measure_import(name)
    if name in clients.CLIENTS:
        first = measured(Task("first", name, servers, topic))
        many = measured(Task("idle", name, servers, topic, consumers=MANY))
        figures |= {
            FIRST: first["record_ms"],
            FIRST_CPU: first["cpu_ms"],
            ALL: many["ready_ms"],
        }
    return figures


def main() -> None:
    arguments = parser(__doc__, rounds=5, servers=True)
    add_names(arguments, "--clients", STATEMENTS)
    args = arguments.parse_args()
    with brokers(args.servers) as servers:
        run = partial(measure, servers=servers, topic=new_topic(servers))
        figures, _ = collect(args.rounds, args.clients, run, warm_up=True)
    rows = ([each, *(spread(figures[each, name]) for name in MEASURES)] for each in args.clients)
    publish(
        args.output,
        "imports",
        "Start",
        about(__doc__),
        setting("anyio", "confluent-kafka", "aiokafka", "kafka-python"),
        table(["", *MEASURES], f"l{'r' * len(MEASURES)}", rows),
        goal_table(figures, GOALS),
    )


if __name__ == "__main__":
    main()
