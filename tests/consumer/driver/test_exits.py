"""Processes that end without close(): their consumers leave the group, and nothing is printed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kohort.testing import Cluster

PATIENCE_S = 90.0
"""Seconds until a process has ended."""
PATIENT = {"request_timeout_ms": 300_000, "session_timeout_ms": 300_000}
"""Options of consumers whose requests would hold up a process for longer than that."""

IMPORTS = """
import asyncio, atexit, logging, os, sys, threading
from kohort import AsyncKafkaConsumer, KafkaConsumer
from kohort.compat.aiokafka import AIOKafkaConsumer
from kohort.compat.kafka_python import KafkaConsumer as KafkaPythonConsumer
from kohort.testing import Cluster

"""
WITHOUT_HURRY = """
from kohort.consumer.driver import _life
from kohort.consumer.engine import _engine

_life.EXIT_SECONDS = _engine.LAST_REQUEST_SECONDS = 30.0
"""
"""A busy machine takes longer to leave a group than an ending process waits."""
JOINED = """
options = {options!r}

def joined(consumer):
    while not consumer.assignment():
        consumer.poll(timeout_ms=50)
    return consumer

async def ajoined(consumer):
    while not consumer.assignment():
        await consumer.poll(timeout_ms=50)
    return consumer
"""

HEAD = IMPORTS + WITHOUT_HURRY + JOINED
SYNC = "consumer = joined(KafkaConsumer({topic!r}, **options))\n"
ASYNC = """
async def main():
    global consumer
    consumer = await ajoined(AsyncKafkaConsumer({topic!r}, **options))
    {end}

"""
IN_THREAD = """
joined_now = threading.Event()

async def main():
    global consumer
    consumer = await ajoined(AsyncKafkaConsumer({topic!r}, **options))
    joined_now.set()
    await asyncio.sleep(600)

threading.Thread(target=lambda: asyncio.run(main()), daemon=True).start()
joined_now.wait()
"""
POLLING = """
waiting = threading.Event()
consumer = joined(KafkaConsumer({topic!r}, **options))

def poll():
    waiting.set()
    while True:
        consumer.poll(timeout_ms=100)

threading.Thread(target=poll, daemon=True).start()
waiting.wait()
"""
AIO = """
async def main():
    global consumer
    consumer = AIOKafkaConsumer({topic!r}, bootstrap_servers=options["bootstrap_servers"],
                                group_id=options["group_id"])
    await consumer.start()

"""

PROGRAMS = {
    "sync, end of main": (SYNC, 0),
    "sync, sys.exit": (SYNC + "sys.exit(3)", 3),
    "sync, exception": (SYNC + "raise ZeroDivisionError", 1),
    "sync, cycle": (
        SYNC + "sys.modules['kept'] = kept = type(sys)('kept')\nkept.me = kept\n"
        "kept.consumer = consumer",
        0,
    ),
    "sync, dropped": (SYNC + "del consumer", 0),
    "sync, in mid-poll": (POLLING, 0),
    "sync, closed": (SYNC + "consumer.close()", 0),
    "kafka-python": ("consumer = joined(KafkaPythonConsumer({topic!r}, **options))\n", 0),
    "async, asyncio.run": (ASYNC.replace("{end}", "pass") + "asyncio.run(main())", 0),
    "async, exception": (
        ASYNC.replace("{end}", "raise ZeroDivisionError") + "asyncio.run(main())",
        1,
    ),
    "async, sys.exit": (ASYNC.replace("{end}", "sys.exit(3)") + "asyncio.run(main())", 3),
    "async, open loop": (
        ASYNC.replace("{end}", "pass")
        + "loop = asyncio.new_event_loop()\nloop.run_until_complete(main())",
        0,
    ),
    "async, closed loop": (
        ASYNC.replace("{end}", "pass")
        + "loop = asyncio.new_event_loop()\nloop.run_until_complete(main())\n"
        "loop.close()",
        0,
    ),
    "async, loop in a thread": (IN_THREAD, 0),
    "aiokafka": (AIO + "asyncio.run(main())", 0),
}


@pytest.mark.cases(3)  # each is a process
@pytest.mark.parametrize("protocol", ["consumer", pytest.param("classic", marks=pytest.mark.long)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_process_leaves_its_group_when_it_ends(
    cluster: Cluster,
    tmp_path: Path,
    topic: str,
    group: str,
    options: dict[str, Any],
    protocol: str,
    name: str,
) -> None:
    code, status = PROGRAMS[name]
    given = {
        "bootstrap_servers": cluster.bootstrap_servers,
        "group_id": group,
        "auto_offset_reset": "earliest",
    }
    if name not in ("kafka-python", "aiokafka"):
        given["group_protocol"] = protocol
    code = HEAD.format(options=given) + code.format(topic=topic)
    ended = run(tmp_path, code)
    assert ended.returncode == status, ended.stderr
    shown = [line for line in ended.stderr.splitlines() if "ZeroDivisionError" not in line]
    assert status == 1 or not shown, ended.stderr
    assert ended.stderr.count("Traceback") == (status == 1), ended.stderr
    assert cluster.group(group).state == "Empty"


def run(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    path = folder / "program.py"
    path.write_text(code)
    return subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, timeout=90, check=False
    )


def test_a_static_member_stays_when_its_process_ends(
    cluster: Cluster, tmp_path: Path, topic: str, group: str
) -> None:
    given = {
        "bootstrap_servers": cluster.bootstrap_servers,
        "group_id": group,
        "group_instance_id": "one",
    }
    ended = run(tmp_path, HEAD.format(options=given) + SYNC.format(topic=topic))
    assert (ended.returncode, ended.stderr) == (0, "")
    assert [each.group_instance_id for each in cluster.group(group).members] == ["one"]


def test_process_exit_commits_nothing_and_calls_no_listener(
    cluster: Cluster, tmp_path: Path, topic: str, group: str
) -> None:
    cluster.produce(topic, [b"read, and not processed"], partition=0)
    given = {
        "bootstrap_servers": cluster.bootstrap_servers,
        "group_id": group,
        "auto_offset_reset": "earliest",
    }
    ended = run(tmp_path, HEAD.format(options=given) + LISTENING.format(topic=topic))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    assert cluster.group(group).state == "Empty"
    assert cluster.committed(group) == {}


LISTENING = """
class Listener:
    def on_partitions_assigned(self, partitions):
        pass

    def on_partitions_revoked(self, partitions):
        print("revoked", flush=True)

    on_partitions_lost = on_partitions_revoked

consumer = KafkaConsumer(**options)
consumer.subscribe([{topic!r}], listener=Listener())
while not consumer.poll(timeout_ms=100):
    pass
"""


@pytest.mark.parametrize("end", ["sys.exit(0)", "os._exit(0)"])
def test_exit_of_a_forked_child_leaves_its_parents_group_alone(
    cluster: Cluster, tmp_path: Path, topic: str, group: str, end: str
) -> None:
    given = {"bootstrap_servers": cluster.bootstrap_servers, "group_id": group}
    fork = f"""
child = os.fork()
if not child:
    {end}
os.waitpid(child, 0)
print(len(consumer.assignment()), consumer.poll(timeout_ms=100), flush=True)
sys.stdin.read()
"""
    code = HEAD.format(options=given) + SYNC.format(topic=topic) + fork
    path = tmp_path / "program.py"
    path.write_text(code)
    with subprocess.Popen(
        [sys.executable, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "2 {}\n"
        assert len(cluster.group(group).members) == 1
        generation = cluster.group(group).generation
        process.communicate(timeout=90)
    assert process.returncode == 0
    assert generation > 0 and cluster.group(group).state == "Empty"


UNANSWERED = """
from kohort.consumer.driver import _life
_life.EXIT_SECONDS = 30.0
logging.basicConfig(format="%(message)s")
logging.getLogger("kohort.consumer").setLevel(logging.INFO)
loop = asyncio.new_event_loop()

async def main():
    global consumer
    consumer = await ajoined(AsyncKafkaConsumer({topic!r}, client_id="exits", **options))

loop.run_until_complete(main())
options["group_id"] += "-sync"  # the first member does not run, so it releases no partition
other = joined(KafkaConsumer({topic!r}, client_id="exits", **options))
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_process_ends_soon_when_no_broker_answers(
    cluster: Cluster, tmp_path: Path, topic: str, group: str
) -> None:
    given = {"bootstrap_servers": cluster.bootstrap_servers, "group_id": group, **PATIENT}
    path = tmp_path / "program.py"
    head = IMPORTS + JOINED
    path.write_text(head.format(options=given) + UNANSWERED.format(topic=topic))
    with subprocess.Popen(
        [sys.executable, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        with cluster.network_partition(client_id="exits"):
            _, errors = process.communicate(timeout=PATIENCE_S)
            assert process.returncode == 0
            assert errors.count("did not respond within 0.7 s to the request to leave") == 2
            assert len(cluster.group(group).members) == 1
            assert len(cluster.group(f"{group}-sync").members) == 1


def test_an_ended_process_needs_no_thread_to_look_a_broker_up(tmp_path: Path) -> None:
    """An exiting interpreter refuses the thread that asks the resolver."""
    with Cluster(topics={"orders": 1}, advertised_host="localhost") as cluster:
        given = {"bootstrap_servers": cluster.bootstrap_servers, "group_id": "g"}
        code = PROGRAMS["async, open loop"][0].format(topic="orders")
        ended = run(tmp_path, HEAD.format(options=given) + code)
        assert (ended.returncode, ended.stderr) == (0, "")
        assert cluster.group("g").state == "Empty"
