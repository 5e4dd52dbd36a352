"""The heartbeats of one share consumer.

A task carries out the commands of the membership. The machine decides what is sent and when. A
caller that is silent for ``max_poll_interval_ms`` leaves the group, so that its partitions go to
other members. It keeps its locks, and its next poll joins again.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

import anyio

from kohort.coordinator_client import CoordinatorConnection, RequestForm
from kohort.coordinator_client.consumer._member import new_member_id
from kohort.coordinator_client.machine._error_code_actions import error_for
from kohort.coordinator_client.machine._poll_interval import PollInterval
from kohort.errors import (
    BrokerResponseError,
    ErrorCode,
    KafkaError,
    KafkaTimeoutError,
    UnsupportedVersionError,
)
from kohort.logs import error_text, get_logger
from kohort.protocol import ApiKey
from kohort.protocol.messages import ShareGroupHeartbeatResponse
from kohort.share.client._messages import heartbeat_answer, heartbeat_request
from kohort.share.client._settings import ShareSettings
from kohort.share.client._statistics import ShareStatistics
from kohort.share.machine._membership import (
    LEAVE_EPOCH,
    Answered,
    Assign,
    DropCoordinator,
    Fail,
    MemberEvent,
    SendHeartbeat,
    SendLeave,
    ShareMembership,
    Subscribe,
    Tick,
    Unanswered,
)
from kohort.transport import SYSTEM_RNG, Backoff, TaskSignal, start_soon

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from kohort.consumer.engine._engine import Engine

logger = get_logger("kohort.share")

TICK = 0.001
"""Seconds that a timer may come too early, because clocks round."""


class ShareMember:
    """The member of the group that a share consumer is. It belongs to the loop of its engine.

    ``report`` gets the errors that polls raise. ``assigned`` is called after each assignment.
    """

    def __init__(
        self,
        engine: Engine,
        settings: ShareSettings,
        statistics: ShareStatistics,
        report: Callable[[KafkaError], None],
        assigned: Callable[[], None],
    ) -> None:
        client = engine.config.client
        rng: random.Random = engine.config.rng or SYSTEM_RNG
        backoff = Backoff.from_ms(client.retry_backoff_ms, client.retry_backoff_max_ms)
        self._engine = engine
        self._cluster = engine.cluster
        self._settings = settings
        self._statistics = statistics
        self._report = report
        self._assigned = assigned
        self._request_seconds = client.request_timeout_ms / 1000
        self.coordinator: CoordinatorConnection = CoordinatorConnection(
            self._cluster,
            settings.group_id,
            backoff,
            rng,
            request_timeout=self._request_seconds,
        )
        self.id: str = new_member_id(SYSTEM_RNG)
        self.membership: ShareMembership = ShareMembership(
            lambda failures: backoff.delay(failures, rng)
        )
        self.is_closing: bool = False
        """True if no more heartbeats are sent, except the one that leaves."""
        self.has_left_silent: bool = False
        """True if it left because its caller was silent, and has not joined or left since."""
        self._poll_interval = PollInterval(settings.group_id, settings.max_poll_interval)
        self._signal = TaskSignal()
        self._tasks: TaskGroup | None = None

    def begin(self, tasks: TaskGroup) -> None:
        """Send heartbeats from tasks of this group, until :meth:`end`."""
        self._tasks = tasks
        start_soon(tasks, self._run)

    def end(self) -> None:
        """Send nothing more."""
        self._tasks = None

    async def _run(self) -> None:
        while True:
            event = self._signal.event()
            # A client that closes sends no heartbeats, so none is due.
            deadline = None if self.is_closing else self._next_deadline()
            now = anyio.current_time()
            if deadline is not None and deadline <= now + TICK:
                self._leave_if_overdue(now + TICK)
                self.apply(Tick())
                continue
            await event.wait(None if deadline is None else deadline - now)

    def _next_deadline(self) -> float | None:
        due = self.membership.next_deadline()
        if not self._has_interval():
            return due
        overdue = self._poll_interval.deadline()
        return overdue if due is None else min(due, overdue)

    def _leave_if_overdue(self, now: float) -> None:
        if self._has_interval() and self._poll_interval.check(now) is not None:
            self.apply(Subscribe(frozenset()))
            self.has_left_silent = True

    def _has_interval(self) -> bool:
        """Note the latest poll. Return True if the next one is due for a member to stay."""
        last_poll = self._engine.callback_queue.last_poll()
        if not self.membership.topics or last_poll is None:
            return False
        self._poll_interval.note_poll(last_poll)
        return True

    def apply(self, event: MemberEvent) -> None:
        """Give an event to the membership, and begin to carry out its commands."""
        if self.is_closing and not isinstance(event, Answered | Unanswered):
            return
        now = anyio.current_time()
        if isinstance(event, Subscribe):
            self.has_left_silent = False
        if isinstance(event, Tick):
            now += TICK
        for command in self.membership.handle(event, now):
            match command:
                case SendHeartbeat() if self._tasks is not None:
                    start_soon(self._tasks, self._heartbeat, command)
                case SendLeave():
                    if self._tasks is not None:
                        start_soon(self._tasks, self.leave)
                case Assign(partitions):
                    self._statistics.rebalances += 1
                    logger.info(
                        "[%s] assigned %d partitions", self._settings.group_id, len(partitions)
                    )
                    metadata = self._cluster.metadata
                    if any(metadata.topic_by_id(each) is None for each, _ in partitions):
                        self._cluster.request_refresh()
                    self._assigned()
                case DropCoordinator():
                    self.coordinator.drop("it does not coordinate the group")
                case Fail(code, message):
                    api, group_id = ApiKey.SHARE_GROUP_HEARTBEAT, self._settings.group_id
                    failure = error_for(api, code, group_id, message)
                    self._statistics.last_failure = str(failure)
                    self._report(failure)
        self._signal.notify()

    async def _heartbeat(self, command: SendHeartbeat) -> None:
        sent_at = anyio.current_time()
        try:
            await self._set_start()
            response = await self.coordinator.request(
                [self._heartbeat_form(command.epoch, command.topics)],
                timeout=self._request_seconds,
            )
        except UnsupportedVersionError as error:
            self.apply(Answered(ErrorCode.UNSUPPORTED_VERSION, 0, 0.0, None, str(error)))
        except BrokerResponseError as error:
            # Only the look-up raises it, for an error that does not pass.
            self.apply(Answered(error.code, 0, 0.0, None, None))
        except KafkaError as error:
            logger.debug("[%s] no heartbeat: %s", self._settings.group_id, error_text(error))
            self.apply(Unanswered())
        else:
            self._statistics.heartbeats += 1
            self._statistics.last_heartbeat = sent_at
            self.apply(heartbeat_answer(response))

    def _heartbeat_form(
        self, epoch: int, topics: frozenset[str] | None
    ) -> RequestForm[ShareGroupHeartbeatResponse]:
        return RequestForm(heartbeat_request(self._settings, self.id, epoch, topics))

    async def leave(self) -> None:
        """Send the heartbeat that leaves. Errors are only logged."""
        try:
            await self.coordinator.request(
                [self._heartbeat_form(LEAVE_EPOCH, frozenset())], timeout=self._request_seconds
            )
        except KafkaError as error:
            logger.info(
                "[%s] leaving the group failed: %s", self._settings.group_id, error_text(error)
            )

    async def _set_start(self) -> None:
        """Set where the group begins, unless it is set. A first fetch would fix the start."""
        if self._settings.start is None:
            return
        from kohort.share.client._group_config import set_start

        group_id = self._settings.group_id
        try:
            await set_start(self._engine, group_id, self._settings.start, self._request_seconds)
        except UnsupportedVersionError:
            raise
        except BrokerResponseError as error:
            self._report(error)
            raise KafkaTimeoutError("the start of the group is not set yet") from error
        self._settings = self._settings._replace(start=None)
