"""Time from the producer's send to the return of the consumer's call.

    python -m benchmarks.latency [--rounds 5] [--records 100] [--output FOLDER]

Each client reads a topic of one partition on Apache Kafka, as the only member of a group, in a
separate process. A record is produced every 20 to 40 ms, so the topic is idle before each of them.
"wait" is a call that waits for a record. "spin" is poll(timeout_ms=0) in a loop, without any pause.
The clients take turns within each round.
"""

from __future__ import annotations

import json
import random
import statistics
import time
import uuid
from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import NamedTuple

from confluent_kafka import Producer

from benchmarks._consumers import (
    AIOKAFKA,
    CLIENTS,
    CONFLUENT,
    KAFKA_PYTHON,
    KOHORT,
    KOHORT_ASYNC,
    WAIT_MS,
)
from benchmarks._goals import Figures, Goal, goal_table
from benchmarks._measured import Task
from benchmarks._program import (
    about,
    add_names,
    brokers,
    command_of,
    parser,
    publish,
    ready,
    setting,
)
from benchmarks._raw import Link
from benchmarks._rounds import collect, table
from kohort.protocol.messages import ProduceRequest
from kohort.records import NewRecord, encode_batch
from tests.support.topics import create_topic

GAP_S = 0.02, 0.04
PRODUCE_VERSION = 8
WAIT, SPIN = "wait", "spin"
P50, P99, CPU_US, CPU, POLLS = "p50 ms", "p99 ms", "CPU us/record", "CPU, %", "polls/s"


class Case(NamedTuple):
    """Client and its way to poll."""

    client: str
    how: str


CASES = (
    *(Case(each, WAIT) for each in (KOHORT, CONFLUENT, KAFKA_PYTHON, KOHORT_ASYNC, AIOKAFKA)),
    *(Case(each, SPIN) for each in (KOHORT, CONFLUENT)),  # others make no progress without a wait
)
GOALS = (
    Goal("kohort / confluent-kafka", Case(KOHORT, WAIT), Case(CONFLUENT, WAIT), 1.0, 1.25),
    Goal("kohort async / aiokafka", Case(KOHORT_ASYNC, WAIT), Case(AIOKAFKA, WAIT), 0.8, 1.0),
    Goal("kohort, poll(timeout_ms=0) in a loop, ms", Case(KOHORT, SPIN), None, 2.0, 4.0),
)


def receive(task: Task, gaps_s: Iterable[float]) -> dict[str, float]:
    """Produce a record after each gap, and measure the time until the consumer has it."""
    command = command_of("_measured", json.dumps(task._asdict()))
    return received(command, task.bootstrap_servers, task.topic, gaps_s)


def received(
    command: Sequence[str], servers: str, topic: str, gaps_s: Iterable[float]
) -> dict[str, float]:
    """Do so with a program that receives as :class:`benchmarks._measured.Received` does."""
    with closing(Link.to(servers)) as link, ready(command) as lines:
        sent = []
        for number, gap_s in enumerate(gaps_s):
            time.sleep(gap_s)
            sent.append(produce(link, topic, b"%08d" % number))
        received = json.loads(next(lines))
    ms = sorted((at - ns) / 1e6 for at, ns in zip(received["at_ns"], sent, strict=True))
    return {
        P50: statistics.median(ms),
        P99: ms[int(len(ms) * 0.99)],
        CPU_US: received["cpu_s"] / len(ms) * 1e6,
        CPU: received["cpu_s"] / received["seconds"] * 100,
        POLLS: received["polls_per_s"],
    }


def produce(link: Link, topic: str, value: bytes) -> int:
    """Produce a record to the first partition. Return the time of sending in monotonic ns."""
    batch = encode_batch([NewRecord(time.time_ns() // 1_000_000, None, value)])
    data = ProduceRequest.PartitionProduceData(index=0, records=batch)
    named = ProduceRequest.TopicProduceData(name=topic, partition_data=[data])
    request = ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[named])
    sent = time.monotonic_ns()
    answer = link.ask(request, PRODUCE_VERSION)
    error = answer.responses[0].partition_responses[0].error_code
    if error:
        raise RuntimeError(f"{topic}: the record was refused with error {error}")
    return sent


def new_topic(servers: str, partitions: int = 1) -> str:
    """Create a topic with one record, in its first partition."""
    topic = create_topic(servers, f"one-record-{uuid.uuid4().hex[:8]}", partitions)
    # It waits for the leader, which may not know of a topic yet that the metadata has.
    producer = Producer({"bootstrap.servers": servers})
    producer.produce(topic, b"first", partition=0)
    producer.flush()
    return topic


def row(case: Case, figures: Figures) -> list[str]:
    """Return the medians of the rounds as the cells of a table."""
    p50, *others = (figures[case, name] for name in (P50, P99, CPU_US, POLLS))
    p99, cpu_us, polls = map(statistics.median, others)
    least_and_most = f"{min(p50):.2f} to {max(p50):.2f}"
    median = f"{statistics.median(p50):.2f}"
    return [*case, median, least_and_most, f"{p99:.1f}", f"{cpu_us:,.0f}", f"{polls:,.0f}"]


def main() -> None:
    arguments = parser(__doc__, rounds=5, servers=True)
    arguments.add_argument("--records", type=int, default=100)
    arguments.add_argument("--seed", type=int, default=1)
    add_names(arguments, "--clients", CLIENTS)
    args = arguments.parse_args()
    rng = random.Random(args.seed)
    cases = [case for case in CASES if case.client in args.clients]
    with brokers(args.servers) as servers:

        def measure(case: Case) -> dict[str, float]:
            wait_ms = WAIT_MS if case.how == WAIT else 0
            task = Task("received", case.client, servers, new_topic(servers), args.records)
            gaps_s = (rng.uniform(*GAP_S) for _ in range(args.records))
            return receive(task._replace(wait_ms=wait_ms), gaps_s)

        figures, _ = collect(args.rounds, cases, measure, warm_up=False)
    head = "client", "how", P50, "least and most of a round", P99, CPU_US, POLLS
    p50 = {case: figures[case, P50] for case in cases}
    publish(
        args.output,
        "latency",
        "Latency on an idle topic",
        about(__doc__),
        setting("anyio", "confluent-kafka", "aiokafka", "kafka-python"),
        table(head, "llrrrrr", (row(case, figures) for case in cases)),
        goal_table(p50, GOALS, "p50"),
    )


if __name__ == "__main__":
    main()
