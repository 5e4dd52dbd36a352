"""Programs with gevent's threads and sockets: they can have any number of consumers."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kohort.testing import Cluster

PROGRAM = """
from gevent import monkey

monkey.patch_all()
import sys, time

sys.path[:] = {path!r}
import gevent
from kohort import KafkaConsumer

def member(group):
    return KafkaConsumer({topic!r}, bootstrap_servers={servers!r}, group_id=group,
                         auto_offset_reset="earliest")

def read(consumer, count):
    records = []
    while len(records) < count:
        for part in consumer.poll(timeout_ms=500).values():
            records += part
    return [record.value for record in records]

{body}
print("done", flush=True)
"""

AT_ONCE = """
one, two = member("one"), member("two")
assert read(one, 2) == read(two, 2) == [b"a", b"b"]
one.commit()
one.close()
two.commit()  # the event loop lives on
three = member("one")
three.poll(timeout_ms=200)
two.close()
three.close()
"""

IN_GREENLETS = """
jobs = [gevent.spawn(lambda name: read(member(name), 2), str(number)) for number in range(5)]
gevent.joinall(jobs, raise_error=True)
assert all(job.value == [b"a", b"b"] for job in jobs)
"""

BESIDE_OTHERS = """
ticks = 0

def tick():
    global ticks
    while True:
        gevent.sleep(0.01)
        ticks += 1

gevent.spawn(tick)
with member("one") as consumer:
    read(consumer, 2)
    before = ticks
    consumer.poll(timeout_ms=500)
    assert ticks > before + 5
"""


AFTER_AN_EXIT = """
one, two = member("one"), member("two")
assert read(one, 2) == read(two, 2) == [b"a", b"b"]
future = one.commit_async()
future.add_done_callback(lambda future: sys.exit())
future.result(60)
for consumer in (one, two):
    for _ in range(3):
        consumer.commit()
    consumer.close()
"""


@pytest.mark.cases(2)  # each is a process
@pytest.mark.parametrize("body", [AT_ONCE, IN_GREENLETS, BESIDE_OTHERS, AFTER_AN_EXIT])
def test_consumers_work_when_gevent_has_patched_threads(
    cluster: Cluster, topic: str, body: str
) -> None:
    pytest.importorskip("gevent")
    cluster.produce(topic, [b"a", b"b"], partition=0)
    program = PROGRAM.format(
        path=sys.path, topic=topic, servers=cluster.bootstrap_servers, body=body
    )
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (0, "done\n"), ended.stderr


@pytest.mark.parametrize(
    "patch", ["patch_all(thread=False)", "patch_all(socket=False, thread=False)", "patch_socket()"]
)
def test_consumer_raises_when_gevent_patched_all_but_threads(patch: str) -> None:
    pytest.importorskip("gevent")
    body = """
import kohort
try:
    member("one").poll()
except kohort.errors.IllegalStateError as error:
    assert "patch_all() without thread=False" in str(error)
else:
    raise AssertionError("it did not raise")
"""
    program = PROGRAM.replace("patch_all()", patch).format(
        path=sys.path, topic="t", servers="127.0.0.1:1", body=body
    )
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (0, "done\n"), ended.stderr


WITH_CLUSTERS = """
import sys

sys.path[:] = {path!r}
{before}
from kohort import KafkaConsumer
from kohort.testing import Cluster
{after}

def read(cluster, group):
    with KafkaConsumer("t", bootstrap_servers=cluster.bootstrap_servers, group_id=group,
                       auto_offset_reset="earliest") as consumer:
        return [next(consumer).value for _ in range(2)]

with Cluster(topics={{"t": 1}}) as one:
    one.produce("t", [b"a", b"b"])
    assert read(one, "g") == [b"a", b"b"]
    one.on("Metadata", lambda call: one.topics and None)  # in the greenlet of the cluster
    with Cluster(topics={{"t": 1}}) as two:
        two.produce("t", [b"c", b"d"])
        assert read(two, "g") == [b"c", b"d"]
    assert read(one, "other") == [b"a", b"b"]
with Cluster(topics={{"t": 1}}) as three:  # the consumers' event loop lives on
    three.produce("t", [b"e", b"f"])
    assert read(three, "g") == [b"e", b"f"]
print("done", flush=True)
"""
PATCH = "from gevent import monkey; monkey.patch_all()"


@pytest.mark.parametrize(("before", "after"), [(PATCH, ""), ("", PATCH)])
def test_clusters_and_consumers_share_a_process(before: str, after: str) -> None:
    pytest.importorskip("gevent")
    ended = subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore",
            "-c",
            WITH_CLUSTERS.format(path=sys.path, before=before, after=after),
        ],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (0, "done\n"), ended.stderr
