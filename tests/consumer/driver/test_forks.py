"""Consumers that a process makes before fork(), and that its children use."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kohort import TopicPartition
from kohort.testing import Cluster

CHILDREN = 3
PARTITIONS = 6
RECORDS = 60

MAKE = """
import asyncio, multiprocessing, os, select, sys
from kohort import AsyncKafkaConsumer, KafkaConsumer

def say(*words):
    os.write(1, (" ".join(words) + "\\n").encode())

def is_over():  # the test closes standard input
    return bool(select.select([0], [], [], 0)[0])

consumer = {kind}({topic!r}, **{options!r})
"""

SYNC = """
def member():
    with consumer:
        while not consumer.assignment():
            consumer.poll(timeout_ms=50)
        say("member", consumer.group_metadata().member_id)
        while not is_over():
            for records in consumer.poll(timeout_ms=50).values():
                for record in records:
                    say("record", record.value.decode())
"""

ASYNC = """
async def amember():
    async with consumer:
        while not consumer.assignment():
            await consumer.poll(timeout_ms=50)
        say("member", consumer.group_metadata().member_id)
        while not is_over():
            for records in (await consumer.poll(timeout_ms=50)).values():
                for record in records:
                    say("record", record.value.decode())

def member():
    asyncio.run(amember())
"""

FORK = """
children = []
for _ in range({children}):
    child = os.fork()
    if not child:
        status = 1
        try:
            member()
            status = 0
        finally:
            os._exit(status)
    children.append(child)
sys.exit(any(os.waitpid(child, 0)[1] for child in children))
"""

POOL = """
context = multiprocessing.get_context("fork")
children = [context.Process(target=member) for _ in range({children})]
for child in children:
    child.start()
for child in children:
    child.join()
sys.exit(any(child.exitcode for child in children))
"""


@pytest.fixture
def wide_topic(cluster: Cluster, topic: str) -> str:
    """A topic with more partitions than there are children."""
    name = f"wide-{topic}"
    cluster.create_topic(name, PARTITIONS)
    return name


def started(folder: Path, code: str) -> subprocess.Popen[str]:
    path = folder / "program.py"
    path.write_text(code)
    return subprocess.Popen(
        [sys.executable, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def lines(process: subprocess.Popen[str], word: str, count: int) -> Iterator[str]:
    """Yield what follows the word in the next lines of the children."""
    assert process.stdout is not None
    while count:
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        kind, _, rest = line.strip().partition(" ")
        if kind == word:
            count -= 1
            yield rest


@pytest.mark.cases(2)  # each is a process with children
@pytest.mark.parametrize("protocol", ["auto", "consumer", "classic"])
@pytest.mark.parametrize(
    ("kind", "read", "split"),
    [
        ("KafkaConsumer", SYNC, FORK),
        ("KafkaConsumer", SYNC, POOL),
        ("AsyncKafkaConsumer", ASYNC, FORK),
    ],
)
def test_each_child_is_a_member_that_reads_its_own_partitions(
    cluster: Cluster,
    tmp_path: Path,
    wide_topic: str,
    group: str,
    options: dict[str, Any],
    protocol: str,
    kind: str,
    read: str,
    split: str,
) -> None:
    given = {**options, "group_id": group, "group_protocol": protocol}
    code = MAKE.format(kind=kind, topic=wide_topic, options=given) + read
    process = started(tmp_path, code + split.format(children=CHILDREN))
    try:
        assert len(set(lines(process, "member", CHILDREN))) == CHILDREN
        cluster.wait_until(lambda: is_divided(cluster, group), timeout=90)
        for number in range(RECORDS):
            cluster.produce(wide_topic, [str(number)], partition=number % PARTITIONS)
        expected = list(map(str, range(RECORDS)))
        assert sorted(lines(process, "record", RECORDS), key=int) == expected
        rest, errors = process.communicate(timeout=90)
    finally:
        process.kill()
    assert (process.returncode, rest) == (0, ""), errors
    assert cluster.committed(group)[TopicPartition(wide_topic, 0)].offset == RECORDS // PARTITIONS


def is_divided(cluster: Cluster, group: str) -> bool:
    """Return True if each child has its share of the partitions."""
    now = cluster.group(group)
    owned = [len(partitions) for partitions in now.assignment.values()]
    return now.is_stable and owned == [PARTITIONS // CHILDREN] * CHILDREN


JITTER = """
import json, os
from kohort import AsyncKafkaConsumer, KafkaConsumer
from kohort.transport import Backoff

consumers = [
    make("orders", bootstrap_servers="localhost:1", group_id="g")
    for make in (KafkaConsumer, AsyncKafkaConsumer)
]

def pauses():
    backoff = Backoff(1, 60)
    return [
        backoff.delay(3, rng)
        for engine in [each._driver.engine for each in consumers]
        for rng in (engine.cluster._nodes._rng, engine.coordinator._coordinator._rng)
    ]

for _ in range(2):
    child = os.fork()
    if not child:
        print(json.dumps(pauses()), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
print(json.dumps(pauses()), flush=True)
"""


def test_children_of_a_fork_pause_for_different_times(tmp_path: Path) -> None:
    said, errors = started(tmp_path, JITTER).communicate(timeout=90)
    first, second, parent = said.splitlines()
    assert len({first, second, parent}) == 3, errors
    for pauses in zip(*map(json.loads, (first, second, parent)), strict=True):
        assert len(set(pauses)) == 3


USED = """
import asyncio, os, sys
from kohort import AsyncKafkaConsumer, KafkaConsumer
from kohort.compat.kafka_python import KafkaConsumer as KafkaPythonConsumer
from kohort.errors import ForkedConsumerError

options = dict(bootstrap_servers={servers!r}, group_id="{group}", auto_offset_reset="earliest")
sync, compat = KafkaConsumer({topic!r}, **options), KafkaPythonConsumer({topic!r}, **options)
sync.poll()
loop = asyncio.new_event_loop()
consumer = AsyncKafkaConsumer({topic!r}, **options)
loop.run_until_complete(consumer.poll())

def text(call):
    try:
        call()
    except Exception as error:
        return str(error)
    return "nothing"

child = os.fork()
if not child:
    calls = [
        sync.poll,
        sync.commit,
        compat.poll,
        consumer.assignment,
        lambda: asyncio.run(consumer.poll()),
        lambda: asyncio.run(consumer.commit()),
    ]
    said = list(map(text, calls))
    sync.close()
    compat.close()
    asyncio.run(consumer.close())
    print(*said, sep="\\n", flush=True)
    os._exit(0)
os.waitpid(child, 0)
sync.close()
compat.close()
loop.run_until_complete(consumer.close())
loop.close()
print("parent", flush=True)
"""


def test_a_used_consumer_is_refused_in_a_child(
    cluster: Cluster, tmp_path: Path, topic: str, group: str
) -> None:
    code = USED.format(servers=cluster.bootstrap_servers, topic=topic, group=group)
    said, errors = started(tmp_path, code).communicate(timeout=90)
    *refused, end = said.splitlines()
    assert end == "parent", errors
    assert len(refused) == 6
    assert {"started before fork()" in each for each in refused} == {True}, refused


FORKED_IN_C = """
import ctypes, os, sys
from kohort.consumer.driver._life import ConsumerLife
from kohort.errors import ForkedConsumerError

def is_refused(check):
    try:
        check()
    except ForkedConsumerError:
        return True
    return False

used, made = ConsumerLife(), ConsumerLife()
used.pid = os.getpid()
child = ctypes.PyDLL(None).fork()
if not child:
    made.pid = os.getpid()
    said = [is_refused(check) for life in (used, made) for check in (
        life.check_process, life.check_usable, life.check_usable_for_mark
    )]
    print(*said, used, made, sep=", ", flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""


def test_a_child_of_a_fork_in_c_is_recognized(tmp_path: Path) -> None:
    said, errors = started(tmp_path, FORKED_IN_C).communicate(timeout=90)
    # A mark sends nothing. The poll after it is refused.
    refused = "True, True, False, False, False, False"
    assert said == f"{refused}, of another process, running\n", errors
