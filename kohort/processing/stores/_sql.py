"""Results and offsets in one transaction of a database, over any connection of DB-API 2.0.

The offset is replaced first, and the handler is called after it:

    UPDATE ... SET next_offset = :end WHERE ... AND next_offset = :begin
    handler(load, cursor)
    COMMIT

So a refused owner never calls its handler. The first statement of a transaction writes. So SQLite
takes its write lock at once, and PostgreSQL lets a second owner wait for the row of the first one.
After the wait it reads the row again, finds another offset, and changes nothing.
"""

from __future__ import annotations

import inspect
import re
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from kohort import TopicPartition
from kohort.errors import ConfigurationError, OffsetConflictError
from kohort.processing.stores._session import StoredOffset
from kohort.processing.stores._steps import Steps

MARKS = {
    "qmark": "?",
    "format": "%s",
    "pyformat": "%s",
    "numeric": ":{}",
    "numeric_dollar": "${}",
    "named": ":{}",
}
"""The mark of a parameter by the ``paramstyle`` of a DB-API module."""
_COLUMNS = (
    "group_name VARCHAR(255) NOT NULL",
    "topic VARCHAR(249) NOT NULL",
    "partition_id INTEGER NOT NULL",
    "topic_id VARCHAR(36) NOT NULL",
    "next_offset BIGINT NOT NULL",
    "PRIMARY KEY (group_name, topic, partition_id)",
)
_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)?", re.ASCII)
_CONFLICTS = {"40001", "40P01"}
"""SQLSTATEs of transactions that lost against another one: serialization and deadlock."""


@dataclass(frozen=True)
class SqlOffsets:
    """A table of a database that has the offsets beside the results, for ``process(offsets=)``.

    ``connect()`` returns a new connection of any DB-API module, such as sqlite3, psycopg or duckdb.
    Its transactions must not commit automatically. Several threads use a connection, one at a time.

    The handler gets a cursor as its second argument, and writes its results with it. They are
    committed together with the offset, or not at all. So each record has its effect exactly once.

    With AsyncKafkaConsumer a plain handler runs in a thread. A coroutine function needs a
    ``connect()`` whose result is awaited, and a connection whose methods are coroutines.

    ``table`` is created if it is missing. ``paramstyle`` is that of the DB-API module, if it cannot
    be found by the type of the connection.
    """

    connect: Callable[[], Any]
    table: str = "kohort_offsets"
    paramstyle: str | None = None

    def __post_init__(self) -> None:
        if not callable(self.connect):
            raise ConfigurationError(
                f"SqlOffsets({self.connect!r}) is wrong: use a function that returns a new "
                "connection"
            )
        if not isinstance(self.table, str) or not _NAME.fullmatch(self.table):
            raise ConfigurationError(
                f"SqlOffsets(table={self.table!r}) is wrong: use a name, or a schema, a dot and a "
                "name"
            )
        if self.paramstyle is not None and self.paramstyle not in MARKS:
            raise ConfigurationError(
                f"SqlOffsets(paramstyle={self.paramstyle!r}) is wrong: use one of "
                f"{', '.join(MARKS)}"
            )


class SqlSession:
    """The connections of one call of process(), and its statements. It is a StoreSession."""

    has_cursor = True

    def __init__(self, offsets: SqlOffsets, group: str, *, is_async: bool) -> None:
        self._connect = offsets.connect
        self._table = offsets.table
        self._paramstyle = offsets.paramstyle
        self._group = group
        self._is_async = is_async
        self._idle: deque[Any] = deque()
        self._is_closed = False
        self._is_checked = False
        self._has_table = False

    # -- the methods of a StoreSession ------------------------------------------------------------

    def read(self, tps: Iterable[TopicPartition]) -> Steps[dict[TopicPartition, StoredOffset]]:
        """Return the stored offsets of those partitions that have one. Create a missing table."""
        wanted = {(tp.topic, tp.partition): tp for tp in tps}
        topics = sorted({tp.topic for tp in wanted.values()})
        try:
            rows = yield from self._select(topics)
        except Exception as error:
            if self._has_table or isinstance(error, ConfigurationError):
                raise
            try:
                yield from self._create()
            except Exception as refused:
                # Another process may have created the table meanwhile.
                try:
                    rows = yield from self._select(topics)
                except Exception:
                    raise refused from error
            else:
                rows = yield from self._select(topics)
        self._has_table = True
        return {
            wanted[topic, partition]: StoredOffset(int(offset), topic_id)
            for topic, partition, offset, topic_id in rows
            if (topic, partition) in wanted
        }

    def begin(self, tp: TopicPartition, at: StoredOffset) -> Steps[None]:
        """Store the first offset of a partition, unless it has one."""
        row = (self._group, tp.topic, tp.partition, at.topic_id, at.offset)
        text = (
            f"INSERT INTO {self._table} (group_name, topic, partition_id, topic_id, next_offset) "
            "VALUES (?, ?, ?, ?, ?)"
        )

        def insert(cursor: Any) -> Steps[None]:
            yield cursor.execute(*self._statement(text, row))

        try:
            yield from self._in_transaction(insert)
        except Exception:
            # A duplicate has a different error in each module, so the row itself decides.
            if tp not in (yield from self.read([tp])):
                raise

    def write(
        self, tp: TopicPartition, at: StoredOffset, end: int, work: Callable[[Any], Any] | None
    ) -> Steps[None]:
        """Replace the offset, and call ``work`` with the cursor, in one transaction."""
        text = (
            f"UPDATE {self._table} SET next_offset = ? WHERE group_name = ? AND topic = ? "
            "AND partition_id = ? AND topic_id = ? AND next_offset = ?"
        )
        row = (end, self._group, tp.topic, tp.partition, at.topic_id, at.offset)

        def replace(cursor: Any) -> Steps[None]:
            yield cursor.execute(*self._statement(text, row))
            changed = cursor.rowcount
            if changed < 0:  # DuckDB returns the number as a row
                (changed,) = yield cursor.fetchone()
            if changed != 1:
                raise self._conflict(tp, at)
            if work is not None:
                yield work(cursor)

        try:
            yield from self._in_transaction(replace)
        except Exception as error:
            if _lost_against_another(error):
                raise self._conflict(tp, at) from error
            raise

    def close(self) -> Steps[None]:
        """Close the connections that no transaction uses. The others close at their end."""
        self._is_closed = True
        while self._idle:
            yield from _discard(self._idle.popleft())

    # -- transactions -----------------------------------------------------------------------------

    def _select(self, topics: list[str]) -> Steps[list[tuple[Any, ...]]]:
        marks = ", ".join("?" * len(topics))
        text = (
            f"SELECT topic, partition_id, next_offset, topic_id FROM {self._table} "
            f"WHERE group_name = ? AND topic IN ({marks})"
        )

        def select(cursor: Any) -> Steps[list[tuple[Any, ...]]]:
            yield cursor.execute(*self._statement(text, (self._group, *topics)))
            return list((yield cursor.fetchall()))

        rows: list[tuple[Any, ...]] = yield from self._in_transaction(select)
        return rows

    def _create(self) -> Steps[None]:
        def create(cursor: Any) -> Steps[None]:
            yield cursor.execute(f"CREATE TABLE {self._table} ({', '.join(_COLUMNS)})")

        yield from self._in_transaction(create)

    def _in_transaction(self, body: Callable[[Any], Steps[Any]]) -> Steps[Any]:
        """Run steps with a cursor, and commit. A connection whose transaction failed is closed."""
        connection = yield from self._take()
        cursor: Any = None
        try:
            if _module_of(connection) == "duckdb":
                cursor = connection  # each of its cursors has a separate transaction
                connection.begin()
            else:
                cursor = yield connection.cursor()
            result = yield from body(cursor)
            yield connection.commit()
            if cursor is not connection:
                yield cursor.close()
        except BaseException:
            if cursor is not None and cursor is not connection:
                with suppress(Exception):
                    yield cursor.close()
            yield from _discard(connection)
            raise
        self._idle.append(connection)
        if self._is_closed:
            yield from self.close()
        return result

    def _take(self) -> Steps[Any]:
        try:
            return self._idle.popleft()
        except IndexError:
            pass
        connection = self._connect()
        if inspect.isawaitable(connection) != self._is_async:
            if inspect.iscoroutine(connection):
                connection.close()
            raise ConfigurationError(
                "process(offsets=SqlOffsets(connect)) with a coroutine function as handler needs "
                "an asynchronous connection, and with a plain function a synchronous one. "
                f"connect() returned {connection!r}. A plain function runs in a thread, so it "
                "does not block the event loop"
            )
        connection = yield connection
        if not self._is_checked:
            yield from self._check(connection)
        return connection

    # -- what modules differ in -------------------------------------------------------------------

    def _statement(self, text: str, values: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
        mark = MARKS[self._paramstyle or "qmark"]
        pieces = text.split("?")
        joined = pieces[0] + "".join(
            mark.format(number) + piece for number, piece in enumerate(pieces[1:], 1)
        )
        return joined, values

    def _check(self, connection: Any) -> Steps[None]:
        """Find the style of parameters. Refuse connections without transactions."""
        module = _module_of(connection)
        style = getattr(sys.modules.get(module), "paramstyle", None)
        self._paramstyle = self._paramstyle or (style if style in MARKS else None)
        wrong = None
        if self._paramstyle is None:
            wrong = (
                f"does not know how the module {module} writes parameters. Set "
                'SqlOffsets(paramstyle="qmark"), or another style of DB-API 2.0'
            )
        elif getattr(connection, "autocommit", None) is True or (
            "sqlite" in module and connection.isolation_level is None
        ):
            wrong = (
                "needs a connection without autocommit, because it commits results and offset "
                "together"
            )
        elif not self._is_async and (error := _error_in_thread(connection)) is not None:
            wrong = (
                f"uses a connection in several threads, one at a time, and {error}. Use "
                "sqlite3.connect(path, check_same_thread=False)"
            )
        if wrong is not None:
            yield from _discard(connection)
            raise ConfigurationError(f"process(offsets=SqlOffsets(connect)) {wrong}")
        self._is_checked = True

    def _conflict(self, tp: TopicPartition, at: StoredOffset) -> OffsetConflictError:
        return OffsetConflictError(
            f"{tp.topic}-{tp.partition}: the table {self._table} does not have the offset "
            f"{at.offset} for group {self._group!r}, or another transaction is replacing it. "
            "Nothing was stored",
            topic_partition=tp,
            expected=at.offset,
        )


def _module_of(connection: Any) -> str:
    """Return the name of the DB-API module of a connection."""
    return type(connection).__module__.partition(".")[0].lstrip("_")


def _discard(connection: Any) -> Steps[None]:
    """Roll back and close a connection, also one in an unknown state.

    SQLite keeps a closed connection, its transaction and its locks alive while a cursor has a
    statement. The traceback of an error may hold such a cursor. So the cursor was closed before.
    """
    with suppress(Exception):
        yield connection.rollback()
    with suppress(Exception):
        yield connection.close()


def _lost_against_another(error: Exception) -> bool:
    """True if the database refused a transaction because of another one at the same time."""
    state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    return state in _CONFLICTS or type(error).__name__ == "TransactionException"


def _error_in_thread(connection: Any) -> Exception | None:
    """Return the error of a connection that another thread uses, or None."""
    found: list[Exception] = []

    def use() -> None:
        try:
            connection.cursor().close()
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    return found[0] if found else None
