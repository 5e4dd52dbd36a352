"""Databases for tests of stored offsets, and a connection that dies at a chosen statement."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from anyio.lowlevel import checkpoint

from kohort.processing import SqlOffsets


@dataclass
class Database:
    """A database with the table ``results``, and how to connect to it."""

    connect: Callable[[], Any]
    mark: str = "?"

    @property
    def insert(self) -> str:
        """The statement for one result: partition, offset and value."""
        return f"INSERT INTO results VALUES ({self.mark}, {self.mark}, {self.mark})"

    def rows(self, text: str) -> list[tuple[Any, ...]]:
        """Return what a query returns in a new connection."""
        connection = self.connect()
        try:
            cursor = connection.cursor()
            cursor.execute(text)
            return [tuple(row) for row in cursor.fetchall()]
        finally:
            connection.close()

    def change(self, text: str) -> None:
        """Run one statement, and commit."""
        connection = self.connect()
        try:
            cursor = connection.cursor()
            cursor.execute(text)
            connection.commit()
            cursor.close()
        finally:
            connection.close()

    def results(self) -> list[tuple[int, int]]:
        """Return partition and offset of each result, sorted."""
        return sorted(self.rows("SELECT part, place FROM results"))

    def next_offsets(self) -> dict[int, int]:
        """Return the stored offset of each partition."""
        return dict(self.rows("SELECT partition_id, next_offset FROM kohort_offsets"))


def create(database: Database) -> Database:
    """Create the table of the results. A result that is stored twice is found as two rows."""
    database.change("CREATE TABLE results (part INTEGER, place BIGINT, value VARCHAR(100))")
    return database


def sqlite_at(path: Path) -> Database:
    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(path, check_same_thread=False, timeout=60)
        connection.execute("PRAGMA synchronous = OFF")  # no test cuts the power
        return connection

    return create(Database(connect))


def duckdb_at(path: Path) -> Database:
    duckdb = pytest.importorskip("duckdb")
    return create(Database(lambda: duckdb.connect(str(path))))


@dataclass
class Postgres(Database):
    """A PostgreSQL server, which can go away and come back."""

    address: str = ""
    """The connection string."""
    start: Callable[[], None] = lambda: None
    stop: Callable[[], None] = lambda: None


@contextmanager
def postgres() -> Iterator[Postgres]:
    """Start a PostgreSQL server that listens on a socket file only."""
    psycopg = pytest.importorskip("psycopg")
    if (initdb := shutil.which("initdb")) is None:
        pytest.skip("PostgreSQL is not installed")
    programs = Path(initdb).resolve().parent
    user = "postgres" if os.geteuid() == 0 else None  # the server refuses to run as root

    def run(program: str, *arguments: str) -> None:
        command = [str(programs / program), "-D", data, *arguments]
        subprocess.run(command, check=True, user=user, cwd=folder, stdout=subprocess.DEVNULL)

    with TemporaryDirectory(prefix="kohort") as folder:
        if user is not None:
            shutil.chown(folder, user)
        data, log = f"{folder}/data", f"{folder}/log"
        run("initdb", "-A", "trust", "-U", "kohort", "--no-sync")
        options = f"-k {folder} -c listen_addresses= -F"
        address = f"host={folder} user=kohort dbname=postgres"
        server = Postgres(
            lambda: psycopg.connect(address),
            "%s",
            address,
            start=lambda: run("pg_ctl", "start", "-w", "-t", "120", "-l", log, "-o", options),
            stop=lambda: run("pg_ctl", "stop", "-m", "immediate"),
        )
        server.start()
        try:
            create(server)
            yield server
        finally:
            with suppress(subprocess.CalledProcessError):  # it may be stopped
                server.stop()


class Killed(Exception):
    """The process of a connection is dead."""


class Gaps:
    """Asynchronous connections to SQLite, all of which die at the ``at``-th call of a method.

    The call at which they die does not happen. A dead connection is closed without a commit, and
    all its later calls raise.
    """

    def __init__(self, database: Database, at: int | None = None) -> None:
        self._database = database
        self._at = at
        self.calls: list[str] = []
        self._open: list[sqlite3.Connection] = []
        self.cursors: list[sqlite3.Cursor] = []
        self.is_dead = False

    def store(self) -> SqlOffsets:
        return SqlOffsets(self.connect, paramstyle="qmark")

    def step(self, name: str) -> None:
        if not self.is_dead:
            self.calls.append(name)
            if self._at is None or len(self.calls) <= self._at:
                return
            self.is_dead = True
            dead: list[Any] = [*self.cursors, *self._open]
            for each in dead:
                with suppress(sqlite3.ProgrammingError):  # it is closed
                    each.close()
        raise Killed(f"at {name}")

    async def before_transaction(self) -> None:
        """Wait before a transaction begins. Here, other tasks run."""
        await checkpoint()

    async def connect(self) -> AsyncConnection:
        self.step("connect")
        raw = self._database.connect()
        self._open.append(raw)
        return AsyncConnection(self, raw)


class AsyncConnection:
    """A connection, or a cursor of it, whose methods are coroutines."""

    def __init__(self, gaps: Gaps, raw: Any) -> None:
        self._gaps = gaps
        self._raw = raw

    @property
    def rowcount(self) -> int:
        count: int = self._raw.rowcount
        return count

    async def cursor(self) -> AsyncConnection:
        await self._gaps.before_transaction()
        self._gaps.step("cursor")
        cursor = self._raw.cursor()
        self._gaps.cursors.append(cursor)
        return AsyncConnection(self._gaps, cursor)

    async def execute(self, text: str, *values: Any) -> None:
        self._gaps.step(text.partition(" ")[0])
        self._raw.execute(text, *values)

    async def fetchall(self) -> list[Any]:
        self._gaps.step("fetchall")
        rows: list[Any] = self._raw.fetchall()
        return rows

    async def commit(self) -> None:
        self._gaps.step("commit")
        self._raw.commit()

    async def rollback(self) -> None:
        self._gaps.step("rollback")
        self._raw.rollback()

    async def close(self) -> None:
        self._gaps.step("close")
        self._raw.close()
