"""The engine, which connects transport, group, fetcher and subscription.

It runs in one task of one event loop, and does all I/O of a consumer. A driver chooses that loop:
the caller's for the async API, and that of the consumer thread for the sync API. ``run()`` starts
these tasks in this order:

1. ClusterClient, for connections and metadata. The others start after it.
2. TopicWatch, which applies the subscription to the metadata.
3. PositionFinder, which looks up first positions.
4. Fetcher, which fetches ahead of the caller.
5. CoordinatorClient, in a group. It sends heartbeats and watches ``max_poll_interval_ms``.
6. AutoCommit, which commits at intervals, if that is enabled.
7. OpenTransactions, for readers of committed records, and the report of statistics, if requested.
8. The tasks of RecordProducer, once process() has a dead letter.
9. The tasks of ShareClient, in a share consumer. Its engine has no group and no subscription.

close() first awaits ``leave()``, while the caller runs the last callbacks. Then it cancels
``run()``, which ends all tasks. Commits in progress fail, a waiting caller is notified, and the
fetcher and the connections close. A group member that has not left sends a last request over a new
connection.

The rest runs on the caller's side. ``poll()`` drains the buffer, decodes batches and checks their
CRCs. It runs deserializers, listeners and the user's assignors.

Invariants:

1. Methods are called in the engine's event loop, unless they say "from any thread". Other threads
   may use only the subscription and the callback queue.
2. No listener, deserializer or assignor of the user runs in a task of the engine. The engine posts
   a callback to the CallbackQueue and awaits its end.
3. The lock of the subscription guards the positions and the queues of the buffer.
4. A part takes the other parts that it uses. It refers to the engine weakly, so that a closed
   consumer is freed at once.
5. An unexpected error ends the engine and stays in ``failure``. Each later call that needs the
   engine raises.
6. ``metrics()`` and ``explain()`` read ``parts``. They and ``lag()`` send no request.
7. The last request of a consumer that was not closed comes without callbacks and commits.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import anyio

from kohort.config import ConsumerConfig
from kohort.consumer.engine._autocommit import AutoCommit
from kohort.consumer.engine._callback_queue import CallbackQueue, CallersLoop
from kohort.consumer.engine._error_reports import ErrorReports
from kohort.consumer.engine._group_adapter import GroupAdapter
from kohort.consumer.engine._positions import FirstPositionRules, PositionFinder
from kohort.consumer.engine._requests import ClusterRequests, OffsetRequests
from kohort.consumer.engine._topics import TopicChecks, TopicEvents, TopicWatch
from kohort.errors import ConsumerClosedError, IllegalStateError, KafkaError
from kohort.fetcher import LOGGED_POLICIES, Fetcher, FetcherEvents, FetcherOptions
from kohort.logs import error_text, get_logger
from kohort.subscription import OffsetReset, SubscriptionState
from kohort.transport import (
    SYSTEM_RNG,
    Backoff,
    ClusterClient,
    OneShot,
    start_soon,
    weak_callback,
)
from kohort.types import RebalanceContext, TopicPartition

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from kohort.consumer.engine._open_transactions import OpenTransactions
    from kohort.consumer.engine._parts import ConsumerParts
    from kohort.coordinator_client import CoordinatorClient
    from kohort.producer import RecordProducer

logger = get_logger("kohort.consumer")

LeaveCause: TypeAlias = Literal["closed", "unsubscribed", "failed"]
LEAVE_REASONS: dict[LeaveCause, str] = {
    "closed": "the consumer was closed",
    "unsubscribed": "the consumer unsubscribed",
    "failed": "the consumer did not start",
}
LAST_REQUEST_SECONDS = 0.7
"""Maximum seconds for leaving the group when the process or its event loop ends."""
DISCONNECT_SECONDS = 0.5
"""Maximum seconds for closing the connections. After that, the end of the task aborts them."""


class Engine:
    """The part of a consumer that both APIs share and that does all I/O."""

    def __init__(
        self,
        config: ConsumerConfig,
        *,
        notify: Callable[[], None],
        clock: Callable[[], float],
        subscription: SubscriptionState | None = None,
        report_stats: Callable[[Callable[[], ConsumerParts]], Awaitable[None]] | None = None,
    ) -> None:
        rng = config.rng or SYSTEM_RNG
        client, group = config.client, config.group
        # The parts refer to the engine weakly, so that a closed consumer is freed immediately.
        engine = weakref.proxy(self)
        self.config = config
        self._report_stats = report_stats
        self.subscription = subscription or SubscriptionState(
            OffsetReset.from_option(config.fetch.auto_offset_reset)
        )
        self.callback_queue = CallbackQueue(CallersLoop(), notify, clock, self.subscription.wake_up)
        self.cluster = ClusterClient.of(config, rng)
        self.errors = ErrorReports(
            notify,
            lambda: engine.cluster.principal,
            logs_refusals=config.fetch.on_error in LOGGED_POLICIES,
        )
        self.cluster.on_refusal(self.errors.report, self.errors.withdraw)
        self.group_adapter = GroupAdapter(
            self.callback_queue,
            self.subscription,
            self.errors,
            on_assignment=lambda: engine._on_group_assignment(),
            refresh_topics=lambda: engine._topics.refresh_pattern(),
            rebalance_context=lambda is_lost: engine._rebalance_context(is_lost),
            look_ahead=lambda partitions: engine._look_ahead(partitions),
        )
        self.coordinator: CoordinatorClient | None = None
        if group.group_id is not None:
            # It takes a fifth of the import time, and many consumers have no group.
            from kohort.coordinator_client import CoordinatorClient, resolve_assignors

            self.coordinator = CoordinatorClient(
                self.cluster,
                group,
                resolve_assignors(group.partition_assignment_strategy),
                self.group_adapter,
                rng=config.rng,
                on_group_topics=lambda topics: engine._topics.wake(),
                history=self.subscription.history,
            )
        first_positions = FirstPositionRules(self.subscription, config.fetch)
        self.fetcher = Fetcher(
            self.cluster,
            self.subscription,
            FetcherOptions.of(
                config, config.wall_clock or time.time, rng, first_positions.rule_for
            ),
            FetcherEvents(
                on_ready=notify,
                notify_waiting_caller=self.callback_queue.notify_waiting_caller,
                on_room=weak_callback(self.wake_fetcher),
                may_deliver=partial(_may_deliver, self.callback_queue, self.coordinator),
            ),
        )
        self.cluster_requests = ClusterRequests(
            self.cluster,
            timeout=client.request_timeout_ms / 1000,
            retry_pause=client.retry_backoff_ms / 1000,
            hides_internal_topics=config.exclude_internal_topics,
        )
        self.offset_requests = OffsetRequests(
            self.cluster_requests, self.subscription, self.fetcher, self.coordinator
        )
        self.auto_commit = AutoCommit(
            group, self.cluster, self.subscription, self.offset_requests, self.callback_queue
        )
        self.positions = PositionFinder(
            config,
            self.subscription,
            first_positions,
            self.offset_requests,
            self.fetcher,
            self.group_adapter,
            self.errors,
            notify,
        )
        self._topic_checks = TopicChecks(
            self.cluster,
            self.subscription,
            self.errors,
            may_create=client.allow_auto_create_topics,
        )
        self._topics = TopicWatch(
            self.cluster,
            self.cluster_requests,
            self.subscription,
            self.coordinator,
            first_positions.baseline,
            self._topic_checks,
            self.errors,
            TopicEvents(
                notify=notify,
                wake_fetcher=self.fetcher.wake,
                on_assignment=self.positions.wake,
                on_recreated=weak_callback(self._on_recreated),
                commit_replaced=self.auto_commit.commit_replaced,
            ),
        )
        self._open_transactions = self._transaction_watch()
        self._tasks: TaskGroup | None = None
        self._producer: RecordProducer | None = None
        self.iterated_timestamp: Callable[[TopicPartition, int], int | None] = lambda tp, at: None
        """The timestamp of a record that was drained for iteration, and not returned yet."""
        self.failure: Exception | None = None
        """The unexpected error that ended the engine."""
        self.ended = False
        """True if the engine has ended, by close() or by an unexpected error."""
        self.leave_group: bool | None = None
        """The argument of close(), if the engine ends before the steps of leaving have begun."""
        self._has_left_at_once = False

    def _transaction_watch(self) -> OpenTransactions | None:
        """Return the watch of open transactions, which only readers of committed records need."""
        if self.config.fetch.isolation_level != "read_committed":
            return None
        from kohort.consumer.engine._open_transactions import OpenTransactions

        return OpenTransactions(
            self.cluster,
            self.subscription,
            wall_clock=self.config.wall_clock or time.time,
            timeout_ms=self.config.client.request_timeout_ms,
        )

    # -- life ---------------------------------------------------------------------------------

    async def run(self, started: Callable[[], None]) -> None:
        """Run until cancelled. An unexpected error also ends it and is kept in :attr:`failure`."""
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                self.offset_requests.use_tasks(tasks)
                self._topics.want_first_topics()
                has_cluster = OneShot()
                start_soon(tasks, self.cluster.run, has_cluster.set)
                await has_cluster.wait()
                start_soon(tasks, self._topics.run)
                start_soon(tasks, self.positions.run)
                start_soon(tasks, self.fetcher.run)
                if self.coordinator is not None:
                    start_soon(tasks, self.coordinator.run)
                if self.auto_commit.is_enabled:
                    start_soon(tasks, self.auto_commit.run)
                if self._open_transactions is not None:
                    start_soon(tasks, self._open_transactions.run)
                if self._report_stats is not None:
                    start_soon(tasks, self._report_stats, lambda: self.parts)
                started()
                await anyio.sleep_forever()
        except Exception as error:
            logger.critical("internal error in kohort: the consumer has ended", exc_info=error)
            self.failure = error
        finally:
            self.ended = True
            self._tasks = self._producer = None
            self.offset_requests.end_commits()
            self.callback_queue.notify()
            self.fetcher.close()
            with anyio.CancelScope(shield=True), anyio.move_on_after(DISCONNECT_SECONDS):
                await self.cluster.aclose()
            if self.coordinator is not None:
                # The event loop ends, nothing refers to the consumer, or a callback took all the
                # time of close(). The tasks of the connections may have been cancelled, too, so
                # that the last request needs a new one.
                with anyio.CancelScope(shield=True):
                    await self.leave_at_once(self.cluster.request_alone)

    def check_running(self) -> None:
        """Raise IllegalStateError if the engine has ended."""
        if self.ended:
            raise IllegalStateError(
                "internal error in kohort: close this consumer and create a new one"
                if self.failure is not None
                else "the consumer's background task or thread was ended from outside: close this "
                "consumer and create a new one"
            ) from self.failure

    @property
    def parts(self) -> ConsumerParts:
        """The parts that metrics() and explain() read."""
        from kohort.consumer.engine._parts import ConsumerParts

        return ConsumerParts(
            self.config,
            self.subscription,
            self.cluster,
            self.fetcher,
            self.coordinator,
            self.callback_queue,
            self.errors,
            self.offset_requests.statistics,
            self._topic_checks,
            self._open_transactions,
            self.positions.failure,
            self.iterated_timestamp,
            self.ended,
            self.failure,
        )

    # -- records ------------------------------------------------------------------------------

    def may_deliver(self) -> bool:
        """Return False if the session may have expired, so that others may own the partitions.

        After a suspension, for example, another member may have read the buffered records.
        """
        return _may_deliver(self.callback_queue, self.coordinator)

    def wake_fetcher(self) -> None:
        """Plan the next fetches, from any thread."""
        self.callback_queue.engine_loop.call_soon(self.fetcher.wake)

    def run_beside(self, function: Callable[[], Awaitable[None]]) -> None:
        """Run a task until the end of the engine. Raise ConsumerClosedError after the end."""
        start_soon(self._running_tasks(), function)

    def want_topics(self, topics: frozenset[str]) -> None:
        """Keep metadata of these topics besides those of the subscription."""
        self._topics.want_others(topics)

    def _running_tasks(self) -> TaskGroup:
        if self._tasks is None:
            raise ConsumerClosedError("the consumer is closed")
        return self._tasks

    def producer(self) -> RecordProducer:
        """Return the producer of dead letters. Raise ConsumerClosedError after the end."""
        if self._producer is None:
            tasks = self._running_tasks()
            from kohort.producer import RecordProducer  # few consumers produce

            client = self.config.client
            self._producer = RecordProducer(
                self.cluster,
                tasks,
                rng=self.config.rng or SYSTEM_RNG,
                backoff=Backoff.from_ms(client.retry_backoff_ms, client.retry_backoff_max_ms),
                request_timeout_ms=client.request_timeout_ms,
                wall_clock=self.config.wall_clock or time.time,
            )
        return self._producer

    # -- subscription -------------------------------------------------------------------------

    def _on_recreated(self, topics: Collection[str]) -> None:
        for topic in topics:
            self.offset_requests.statistics.forget_topic(topic)
        self.positions.wake()

    def _on_group_assignment(self) -> None:
        """Look positions up, and request the metadata of topics that the brokers have chosen."""
        self._topics.wake()
        self.positions.wake()

    async def _look_ahead(self, partitions: frozenset[TopicPartition]) -> None:
        """Look up offsets of partitions that the group is about to assign."""
        self.fetcher.expect(partitions)
        if not self.group_adapter.has_listener:  # a listener may commit first
            await self.positions.look_ahead(partitions)

    def note_subscribe(self, *, has_listener: bool) -> None:
        """Note a call of subscribe(), from any thread."""
        self.group_adapter.has_listener = has_listener
        self._topics.note_subscribe()

    def note_rejoin(self, reason: str) -> None:
        """Note a call of enforce_rebalance(), from any thread."""
        self._topics.note_rejoin(reason)

    def apply_new_subscription(self) -> None:
        """Apply a call of subscribe() or assign()."""
        self._topics.renew()
        self.positions.wake()

    def apply_subscription(self) -> None:
        """Apply a change of the subscription or assignment to topics, positions and fetches."""
        self._topics.wake()
        self.positions.wake()

    @property
    def has_first_assignment(self) -> bool:
        """True if the subscription has had its first assignment."""
        if self.coordinator is None:
            return self._topics.has_assigned_all
        return self.group_adapter.rebalance_count > 0

    def _rebalance_context(self, is_lost: bool) -> RebalanceContext:
        assert self.coordinator is not None  # only a group calls the listener
        return self.coordinator.rebalance_context(is_lost=is_lost)

    # -- leaving ------------------------------------------------------------------------------

    @property
    def is_in_group(self) -> bool:
        """True while there is a membership, until leaving the group has finished."""
        if self.coordinator is None:
            return False
        return self.coordinator.snapshot().is_subscribed

    async def leave(
        self, cause: LeaveCause, timeout: float, *, leave_group: bool | None = None
    ) -> None:
        """Leave the group, if there is one, while the caller runs the callbacks.

        ``leave_group`` is as for :meth:`CoordinatorClient.leave`. The consumer joins no group until
        :meth:`finish_leave`. A failure is only logged, because the session expires in any case.
        """
        self._topics.hold()
        if self.coordinator is None:
            return
        try:
            with anyio.move_on_after(timeout):
                reason = LEAVE_REASONS[cause]
                await self.coordinator.leave(reason, timeout, leave_group=leave_group, cause=cause)
        except KafkaError as error:
            logger.info(
                "[%s] leaving the group failed: %s", self.config.group.group_id, error_text(error)
            )

    async def leave_at_once(self, send: Callable[..., Awaitable[Any]] | None = None) -> None:
        """Leave the group without callbacks and commits, because there is no time for them.

        ``send`` is as for :meth:`CoordinatorClient.leave_at_once`. Nothing is raised. A member that
        has left sends nothing.
        """
        if self.coordinator is None or self._has_left_at_once:
            return
        self._has_left_at_once = True
        try:
            with anyio.move_on_after(LAST_REQUEST_SECONDS) as scope:
                await self.coordinator.leave_at_once(
                    2 * LAST_REQUEST_SECONDS, send, leave_group=self.leave_group
                )
            if scope.cancelled_caught:
                logger.info(
                    "[%s] the broker did not respond within %g s to the request to leave. The "
                    "process ends, so the session may have to expire. close() waits longer",
                    self.config.group.group_id,
                    LAST_REQUEST_SECONDS,
                )
        except Exception as error:  # an exiting interpreter refuses threads, for example
            logger.debug("[%s] leaving failed: %s", self.config.group.group_id, error_text(error))

    def finish_leave(self) -> None:
        """Finish :meth:`leave` after the subscription was removed or replaced."""
        self.auto_commit.drop_replaced()
        self._topics.release()
        self.positions.wake()


def _may_deliver(callback_queue: CallbackQueue, coordinator: CoordinatorClient | None) -> bool:
    return coordinator is None or callback_queue.clock() < coordinator.confirmed_until
