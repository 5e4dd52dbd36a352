"""The sync share consumer. Its driver runs the engine in a daemon thread.

Written by ``python -m tools.sync_api`` from ``_async.py``. Change that file instead. Only the
docstring of the class is written here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack, cast

from kohort.config import CLOSE_TIMEOUT, ConsumerConfig, conceal_properties, conceal_secrets
from kohort.consumer.api import _arguments
from kohort.consumer.driver._commit_future import CommitFuture
from kohort.consumer.driver._life import CloseRequest
from kohort.consumer.driver._thread_driver import ThreadDriver
from kohort.consumer.engine._observed import Observed
from kohort.errors import DataError, DeserializerNotReadyError, KafkaError
from kohort.share import _base
from kohort.share._record import ShareRecord
from kohort.types import LazyModule, TopicPartition

if TYPE_CHECKING:
    import pyarrow

    from kohort import _options
    from kohort.consumer.api import _typing
else:
    pyarrow = LazyModule("pyarrow")
    _options = LazyModule("kohort._options")
    _typing = LazyModule("kohort.consumer.api._typing")


class ShareConsumer(_base.ShareBase):
    """A client that takes records of a share group, as many workers share a queue (KIP-932).

    ``with ShareConsumer("jobs", bootstrap_servers="localhost:9092", group_id="workers")``

    A group may have more members than partitions. Each record is locked for one member until it is
    acknowledged, or until its lock expires and the group delivers it again. With the default
    ``acknowledgement="implicit"``, the next poll(), commit() or step of an iteration accepts what
    the call before it returned. An exception in a ``with`` block releases it. With ``"explicit"``
    you call accept(), release(), reject() or renew() for each record.

    ``acquire_mode="record_limit"`` makes ``max_poll_records`` exact (KIP-1206). ``on_error`` says
    what becomes of data that cannot be read: ``reject``, ``release`` or ``raise``. It may be a
    function of the error that returns one of these or ``accept``.

    A group begins with records that are produced after its first fetch. ``start="earliest"`` sets
    the group to begin with all records, unless the group has a setting. Other options are those of
    a connection, ``group_id``, the deserializers and some limits of fetches.

    One thread at a time may poll. Every call has a time limit, also if the client's thread does not
    respond.
    """

    __module__ = "kohort"

    _close_hint = "call close(), or use a with block"

    if TYPE_CHECKING:
        _driver: ThreadDriver

    def __init__(
        self,
        *topics: str,
        acknowledgement: Literal["implicit", "explicit"] = "implicit",
        acquire_mode: Literal["batch_optimized", "record_limit"] = "batch_optimized",
        on_error: Literal["reject", "release", "raise"] | Callable[[DataError], str] = "reject",
        start: Literal["earliest"] | None = None,
        key_deserializer: _typing.Deserializer[Any] | None = None,
        value_deserializer: _typing.Deserializer[Any] | None = None,
        **options: Unpack[_options.ShareOptions],
    ) -> None:
        configs = cast("dict[str, Any]", options)
        conceal_secrets(configs)
        configs["key_deserializer"] = key_deserializer
        configs["value_deserializer"] = value_deserializer
        config = _base.share_config(configs)
        self._set_up(topics, config, acknowledgement, acquire_mode, on_error, start)

    @classmethod
    def from_properties(
        cls,
        properties: Mapping[str, Any],
        *topics: str,
        on_error: Literal["reject", "release", "raise"] | Callable[[DataError], str] = "reject",
        start: Literal["earliest"] | None = None,
        key_deserializer: _typing.Deserializer[Any] | None = None,
        value_deserializer: _typing.Deserializer[Any] | None = None,
        unsupported: Literal["raise", "warn"] = "raise",
    ) -> Self:
        """Return a share consumer with the dotted names of Java and librdkafka as options.

        ``share.acknowledgement.mode`` and ``share.acquire.mode`` are those of Java. Other rules and
        errors are those of :meth:`~kohort.KafkaConsumer.from_properties`.
        """
        modes = _base.share_modes(properties)  # their values are no secrets
        properties = conceal_properties(properties)
        deserializers = key_deserializer, value_deserializer
        return cls._from_properties(
            properties, topics, modes, *deserializers, on_error, start, unsupported
        )

    @staticmethod
    def _make_driver(config: ConsumerConfig) -> ThreadDriver:
        return ThreadDriver(config)

    # -- start and close ----------------------------------------------------------------------

    def start(self) -> None:
        """Connect to the cluster. The first poll does so as well, and joins the group.

        Raises NoBrokersAvailable if no bootstrap server was reachable for ``bootstrap_timeout_ms``,
        and SecurityError if all of them reject TLS or the login.
        """
        self._driver.start()

    def wakeup(self) -> None:
        """Let a waiting poll() or iteration raise WakeupError, or the next one if none waits.

        It may be called from any thread and from a signal handler. No record is lost.
        """
        self._driver.wakeup()
        self._answered.notify()  # a poll that waits in another thread, without the event loop
        client = self._client
        if client is not None:
            self._driver.call_threadsafe(client.interrupt)

    def close(self, timeout_ms: float | None = None) -> None:
        """Send acknowledgements, release what is not finished, and leave the group.

        It takes at most ``timeout_ms`` milliseconds, by default 5,000. In implicit mode, it
        accepts the records that an iteration has passed. It releases the current record of an
        iteration, and the records of the last poll(), because it cannot know whether they are
        processed. Call commit() first to accept them.
        """
        timeout = _arguments.timeout_seconds(timeout_ms, 1000 * CLOSE_TIMEOUT)
        assert timeout is not None
        life = self._driver.life
        try:
            if self._client is not None and life.is_of_this_process and not life.is_ending:
                self._release_current()
                self._release_queued()
                plan = self._plan(lambda client: client.close(timeout * 0.7), timeout)
                self._driver.call(plan)
        except KafkaError as error:
            _base.logger.info("closing %r: %s", self, str(error))
        finally:
            self._locks.close_ranges()
            self._driver.close(CloseRequest(False, timeout, None))

    def __enter__(self) -> Self:
        self._driver.enter_block()
        return self

    def __exit__(self, exc_type: type[BaseException] | None, *exc_info: object) -> None:
        self._note_left(exc_type)
        try:
            self.close()
        finally:
            self._driver.leave_block()

    # -- records ------------------------------------------------------------------------------

    def poll(self, timeout_ms: float = 0) -> dict[TopicPartition, list[ShareRecord[Any, Any]]]:
        """Return acquired records by partition, or ``{}`` if none arrive in ``timeout_ms``.

        Each record is locked for this consumer until its ``lock_deadline``. In implicit mode, the
        next poll() accepts the records of this one. In explicit mode, records stay locked until
        they are acknowledged.

        ``max_poll_records`` is a soft limit, because brokers lock whole batches. A caller that
        finishes all records within some milliseconds gets up to three times as many. With
        ``acquire_mode="record_limit"`` the limit is exact. Records are fetched while a poll
        waits, so use a timeout of at least a few hundred milliseconds. Without a timeout, a poll
        begins a fetch, and a later one returns its records.

        Raises errors of the group, NoBrokersAvailable, WakeupError and other KafkaErrors. With
        ``on_error="raise"`` also DataError. You can continue to poll after each of them.
        """
        timeout, _ = _arguments.poll_arguments(timeout_ms, None)
        self._check_subscribed()
        self._finish_returned()
        found = self._queued_by_partition() if self._queue else {}
        if not found:
            with self._observed_poll() as block:
                self._wait(timeout)
                found = self._taken()
                block.found = Observed(found.keys(), sum(map(len, found.values())), found)
        self._returned = found
        return found

    def poll_arrow(self, timeout_ms: float = 0) -> pyarrow.RecordBatch:
        """Return acquired records as one ``pyarrow.RecordBatch``, maybe with no rows.

        The columns are those of :meth:`~kohort.KafkaConsumer.poll_arrow`, ``delivery_count`` and
        ``lock_deadline``, which are the attributes of a :class:`~kohort.ShareRecord`. It returns
        about 4 MiB, or one larger batch. In implicit mode, the next poll accepts all rows. In
        explicit mode, use :meth:`acknowledge` for each of them.

        Deserializers do not run. The first call warns if one is set. Records that an iteration has
        still to return are released. Raises ImportError without pyarrow, and the errors of
        :meth:`poll`.
        """
        return self._poll_rows(timeout_ms)

    def _poll_rows(self, timeout_ms: float) -> pyarrow.RecordBatch:
        # Imports come before the poll, so that Ctrl-C interrupts none of them after records came.
        from kohort.consumer.driver._tables import require_pyarrow, warn_of_deserializers

        require_pyarrow()
        from kohort.share import _rows  # noqa: F401

        timeout, _ = _arguments.poll_arguments(timeout_ms, None)
        self._check_subscribed()
        warn_of_deserializers(self._driver.config, self._driver.engine.fetcher.buffer)
        self._finish_returned()
        self._release_queued()
        with self._observed_poll() as block:
            self._wait(timeout)
            rows = self._take_rows()
            partitions = {tp for tp, _ in self._returned_rows}
            block.found = Observed(partitions, rows.num_rows)
            return rows

    def _wait(self, timeout: float) -> None:
        """Wait for records or an error, and run the callbacks of commits."""
        if (left := self._left_of_wait(timeout)) is not None:
            self._driver.call(self._wait_plan(left))
        self._driver.run_commit_callbacks()

    def __iter__(self) -> Self:
        self._driver.life.check_usable()
        self._release_current()
        return self

    def __next__(self) -> ShareRecord[Any, Any]:
        """Return the next record. In implicit mode, this accepts the record before it."""
        self._check_subscribed()
        self._finish_returned()
        while (record := self._next_queued()) is None:
            with self._polling():
                self._wait(1.0)
                self._extend_queue(self._taken())
        self._current = record
        return record

    def _taken(self) -> dict[TopicPartition, list[ShareRecord[Any, Any]]]:
        """Return the buffered records. A deserializer that needs I/O gets it first."""
        while True:
            try:
                return self._take()
            except DeserializerNotReadyError as error:
                self._driver.make_ready(error)

    # -- subscription -------------------------------------------------------------------------

    def unsubscribe(self, timeout_ms: float | None = None) -> None:
        """Send acknowledgements and leave the group. Unfinished records stay locked.

        Raises as :meth:`commit` does.
        """
        self._driver.life.check_usable()
        if self._client is not None and self._topics:
            self._driver.call(self._commit_plan(timeout_ms))
        self._topics = frozenset()
        if self._client is not None:
            self._driver.call(self._commit_plan(timeout_ms))

    # -- committing ---------------------------------------------------------------------------

    def commit(
        self, timeout_ms: float | None = None
    ) -> dict[TopicPartition, dict[int, KafkaError]]:
        """Send the acknowledgements, and return the error of each offset that failed.

        The result is empty if all went well. It has the failures since the last commit(), also
        those of acknowledgements that a poll has sent. In implicit mode, it first accepts the
        records of the last poll() and the current record of an iteration. The default of
        ``timeout_ms`` is ``request_timeout_ms``. Raises KafkaTimeoutError.
        """
        self._driver.life.check_usable()
        self._note_call()
        self._finish_returned()
        if self._client is not None:
            self._driver.call(self._commit_plan(timeout_ms))
        self._driver.run_commit_callbacks()
        return self._locks.take_failures()

    def commit_async(self, callback: _base.ShareCommitCallback | None = None) -> Future[None]:
        """Begin a commit and return its future, without a wait.

        A later poll(), commit() or close() calls ``callback(failed, error)``. ``failed`` is what
        :meth:`commit` returns, and ``error`` is what it raises, or None. Without a callback the
        next commit() names the offsets that failed. Raises IllegalStateError before the first
        poll().

        ShareConsumer returns a concurrent.futures.Future, AsyncShareConsumer one to await.
        """
        future = CommitFuture.of_call(self._driver.request_seconds)
        self._start_commit(future.finish, callback)
        return future
