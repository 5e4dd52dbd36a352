"""Where the simulated process() puts its results: a topic of dead letters, and a database."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel

from kohort.errors import ErrorCode
from kohort.testing import Action, Call, MemoryCluster

DLQ = "dlq"
Place = tuple[int, int]
"""Partition and offset."""
Row = tuple[str, str, int]
"""The key of a stored offset: group, topic and partition."""


class LetterBox:
    """The topic of dead letters, its faults, and what is in it."""

    def __init__(self, cluster: MemoryCluster, rng: random.Random, faults: float) -> None:
        self._cluster = cluster
        self._rng = rng
        self._faults = faults
        self._in_row: Counter[tuple[str | None, int]] = Counter()
        self._known = 0
        self.counts: Counter[Place] = Counter()
        """Number of letters of each record."""
        self.writers: defaultdict[Place, set[str | None]] = defaultdict(set)
        """The clients that wrote letters of each record."""
        self.forgiven: Counter[Place] = Counter()
        """Number of them before the records are to be handled again."""
        self.on_letter: Callable[[Place, Any], None] = lambda place, letter: None
        self.on_response: Callable[[Place], None] = lambda place: None

    async def produce(self, call: Call) -> Any:
        """Answer a request to Produce: refuse it, lose it, lose its response, or none of these.

        A client has at most two faults in a row, so a letter is written within the drain.
        """
        at = call.client_id, call.message.topic_data[0].partition_data[0].index
        fault = self._rng.random() < self._faults and self._in_row[at] < 2
        self._in_row[at] = self._in_row[at] + 1 if fault else 0
        kind = self._rng.choice(["refuse", "lose", "lose the response"]) if fault else ""
        if kind == "refuse":
            return call.error(ErrorCode.NOT_ENOUGH_REPLICAS)
        if kind == "lose":
            return Action.DROP
        await call.proceed()
        places = self._note(call.client_id)
        if kind:
            return Action.DROP
        for place in places:
            self.on_response(place)
        return None

    def forgive(self) -> None:
        """Expect another letter of each record."""
        self.forgiven = Counter(self.counts)

    def _note(self, client_id: str | None) -> list[Place]:
        """Count new letters. Return the records of all letters."""
        letters = self._cluster.records(DLQ)
        if len(letters) > self._known:
            self._known = len(letters)
            found: Counter[Place] = Counter()
            for letter in letters:
                headers = dict(letter.headers)
                place = (
                    int(headers["__dlq.errors.partition"] or b""),
                    int(headers["__dlq.errors.offset"] or b""),
                )
                found[place] += 1
                if found[place] > self.counts[place]:
                    self.counts[place] += 1
                    self.writers[place].add(client_id)
                    self.on_letter(place, letter)
        return list(self.counts)


class MemoryDatabase:
    """Two tables with transactions as in PostgreSQL (READ COMMITTED), and its connections.

    A transaction that updates a row waits for another one that has, and looks at the row again
    after it. Commits fail at times: then nothing is stored, or everything is stored and the program
    gets an error. Until the time ``away_until`` every statement and every commit fails.
    """

    def __init__(self, rng: random.Random, faults: float) -> None:
        self.rng = rng
        self.faults = faults
        self.has_table = False
        self.offsets: dict[Row, tuple[str, int]] = {}
        self.results: Counter[Place] = Counter()
        self.away_until = 0.0
        self.locks: dict[Row, anyio.Lock] = defaultdict(anyio.Lock)
        self.on_stored: Callable[[Row, int, int], None] = lambda row, begin, end: None
        """Called when the offset of a row is replaced."""
        self.on_failed: Callable[[Place], None] = lambda place: None
        """Called with the first record after a stored offset that could not be replaced."""

    async def connect(self) -> MemoryConnection:
        return MemoryConnection(self)

    @property
    def is_away(self) -> bool:
        return anyio.current_time() < self.away_until

    def note_failed(self, row: Row) -> None:
        if row in self.offsets:
            self.on_failed((row[2], self.offsets[row][1]))


class MemoryConnection:
    """A connection, which is its only cursor, too."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._database = database
        self._locks: list[anyio.Lock] = []
        self._offsets: dict[Row, tuple[str, int]] = {}
        self._results: list[Place] = []
        self._rows: list[tuple[Any, ...]] = []
        self._is_broken = False
        self.rowcount = -1

    async def cursor(self) -> MemoryConnection:
        return self

    async def execute(self, text: str, values: tuple[Any, ...] = ()) -> None:
        """Run one of the statements of SqlOffsets, or the insertion of a result."""
        database = self._database
        if self._is_broken or database.is_away:
            if text.startswith("UPDATE"):
                database.note_failed(values[1:4])
            raise OSError("the connection is broken")
        await anyio.lowlevel.checkpoint()
        if text.startswith("CREATE"):
            if database.has_table:
                raise OSError("the table exists")
            database.has_table = True
        elif "results" in text:
            self._results.append(values)
        elif not database.has_table:
            raise OSError("no such table")
        elif text.startswith("SELECT"):
            group, *topics = values
            self._rows = [
                (topic, partition, offset, topic_id)
                for (of, topic, partition), (topic_id, offset) in database.offsets.items()
                if of == group and topic in topics
            ]
        elif text.startswith("INSERT"):
            group, topic, partition, topic_id, offset = values
            await self._lock((group, topic, partition))
            if (group, topic, partition) in database.offsets:
                raise OSError("the row exists")
            self._offsets[group, topic, partition] = topic_id, offset
        else:
            assert text.startswith("UPDATE")
            end, group, topic, partition, topic_id, *expected = values
            row = group, topic, partition
            await self._lock(row)
            found = database.offsets.get(row)
            matches = found is not None and found[0] == topic_id and found[1] in (*expected, None)
            if not expected:  # a planted bug has left the condition out
                matches = found is not None
            self.rowcount = int(matches)
            if matches:
                self._offsets[row] = topic_id, end

    async def _lock(self, row: Row) -> None:
        lock = self._database.locks[row]
        await lock.acquire()
        self._locks.append(lock)

    async def fetchall(self) -> list[tuple[Any, ...]]:
        return self._rows

    async def commit(self) -> None:
        database, rng = self._database, self._database.rng
        fault = rng.random() < database.faults and bool(self._offsets)
        is_applied = not fault or rng.random() < 0.5
        await anyio.sleep(rng.uniform(0, 0.05))
        if database.is_away:
            fault, is_applied = True, False
        if not is_applied:
            for row in self._offsets:
                database.note_failed(row)
        else:
            for row, (topic_id, offset) in self._offsets.items():
                before = database.offsets.get(row)
                database.offsets[row] = topic_id, offset
                if before is not None:
                    database.on_stored(row, before[1], offset)
            database.results.update(self._results)
        self._end()
        if fault:
            self._is_broken = True
            raise OSError("the connection broke during the commit")

    async def rollback(self) -> None:
        self._end()

    async def close(self) -> None:
        self._end()

    def _end(self) -> None:
        self._offsets, self._results = {}, []
        while self._locks:
            self._locks.pop().release()
