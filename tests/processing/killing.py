"""Processes that run process() until a signal ends them, and a witness of what they handled."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.interop.waiting import wait_until

WORKER = """
import os, random, sys, time
from kohort import KafkaConsumer
from kohort.processing import process

servers, topic, path, drain = sys.argv[1:]
log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
rng = random.Random(os.getpid())

def note(word, record):
    os.write(log, b"%s %d %d %d\\n" % (word, os.getpid(), record.partition, record.offset))

def handler(record):
    note(b"begin", record)
    time.sleep(rng.uniform(0, 0.02))  # the work
    note(b"end", record)

consumer = KafkaConsumer(
    topic, bootstrap_servers=servers, group_id=topic, auto_offset_reset="earliest",
    group_protocol="classic", session_timeout_ms=6000, heartbeat_interval_ms=500,
    partition_assignment_strategy=["cooperative-sticky"],
)
process(consumer, handler, order="key", concurrency=8, drain=float(drain))
"""
_OF_A_GROUP = WORKER[WORKER.index("consumer = KafkaConsumer(") :]
SHARE_WORKER = WORKER.replace("import KafkaConsumer", "import ShareConsumer").replace(
    _OF_A_GROUP,
    """
def counted(record):
    note(b"delivery-%d" % record.delivery_count, record)
    handler(record)

consumer = ShareConsumer(topic, bootstrap_servers=servers, group_id=topic, start="earliest")
process(consumer, counted, concurrency=8, drain=float(drain))
""",
)
"""The same worker in a share group. It also notes which delivery of a record it was."""
DELIVERIES = 5
"""Deliveries of a record in a share group, by default."""
DRAIN_S = 60.0
LEAVE_S = 1.0
"""Most seconds from the end of the drain to the end of the process."""
LIMIT_S = 300.0
AMOUNTS = (0, 20, 60)
"""Records that are handled between the start of a member and a kill, in turn. With 0 the new member
is killed amid its rebalance, before its first assignment. Otherwise the oldest one is."""

Place = tuple[int, int]
"""Partition and offset."""


@dataclass
class Workers:
    """Members of one group, each in a process."""

    folder: Path
    servers: str
    topic: str
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)
    program: str = WORKER

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def start(self) -> None:
        arguments = [self.servers, self.topic, str(self.log), str(DRAIN_S)]
        command = [sys.executable, "-c", self.program, *arguments]
        self.running.append(subprocess.Popen(command, cwd=self.folder))

    def events(self, word: str) -> list[tuple[int, Place]]:
        """Return the process and the place of each event."""
        text = self.log.read_text() if self.log.exists() else ""
        lines = text[: text.rfind("\n") + 1].splitlines()  # the last one may be half written
        rows = (line.split() for line in lines)
        return [
            (int(pid), (int(partition), int(offset)))
            for found, pid, partition, offset in rows
            if found == word
        ]

    def wait_for(self, events: int) -> None:
        """Wait until this number of handlers has ended."""
        wait_until(lambda: len(self.events("end")) >= events, deadline_s=LIMIT_S)

    def begun(self, process: subprocess.Popen[bytes]) -> list[Place]:
        """Return the records whose handlers began in a process."""
        return [place for pid, place in self.events("begin") if pid == process.pid]

    def check_exit(self, process: subprocess.Popen[bytes]) -> None:
        """Check that a process ends well, and in time, after SIGTERM.

        One that had not come to process() had no handler of the signal.
        """
        status = process.wait(DRAIN_S + LEAVE_S)
        assert status == 0 or (status == -signal.SIGTERM and not self.begun(process))

    def stop(self) -> None:
        """Let the remaining processes leave. Kill them if they do not."""
        try:
            for process in self.running:
                process.terminate()
            for process in self.running:
                self.check_exit(process)
        finally:
            for process in self.running:
                process.kill()
                process.wait()


@dataclass
class Kills:
    """What a run has shown."""

    begun: Counter[Place]
    ended: set[Place]
    may_repeat: Counter[Place]
    """Records that killed processes had begun, and whose offsets were not committed."""


def run_kills(
    workers: Workers,
    number: signal.Signals,
    times: int,
    produce: Callable[[], int],
    committed: Callable[[], Mapping[int, int]],
) -> Kills:
    """End a process ``times`` times under load, until all that was produced is handled.

    ``produce`` returns the number of new records, and ``committed`` the offsets by partition.
    """
    produced = 0
    may_repeat: Counter[Place] = Counter()
    try:
        workers.start()
        for turn in range(times):
            produced += produce()
            workers.start()
            amount = AMOUNTS[turn % len(AMOUNTS)]
            goal = min(produced, len(workers.events("end")) + amount)
            workers.wait_for(goal)
            victim = workers.running.pop(0 if amount else -1)
            victim.send_signal(number)
            if number == signal.SIGTERM:
                workers.check_exit(victim)
            else:
                victim.wait(LIMIT_S)
                at = committed()
                may_repeat.update(
                    {place for place in workers.begun(victim) if place[1] >= at.get(place[0], 0)}
                )
        wait_until(
            lambda: len({place for _, place in workers.events("end")}) >= produced,
            deadline_s=LIMIT_S,
        )
    finally:
        workers.stop()
    begun_at_all = Counter(place for _, place in workers.events("begin"))
    ended = {place for _, place in workers.events("end")}
    assert len(ended) == produced
    return Kills(begun_at_all, ended, may_repeat)


def check_kills(kills: Kills) -> None:
    """Check that only records in flight at a kill were handled again."""
    assert kills.ended == set(kills.begun)
    repeated = Counter({place: count - 1 for place, count in kills.begun.items() if count > 1})
    assert repeated - kills.may_repeat == Counter()
