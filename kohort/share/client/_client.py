"""The requests of one share consumer: its membership, its fetches and its acknowledgements.

Theory of operation. Tasks run in the event loop of the engine. One carries out the commands of the
membership. One looks at every leader after an event or at a time, and begins what is due. A poll
does that itself. Each leader has a task that makes its requests. A fetch is due while a poll waits
and nothing is buffered. A poll of another thread needs no task: it asks for a look and sleeps.
Acknowledgements are due if a commit waits for them, if they were refused together, after a third of
the lock, or in its last third. A fetch takes the acknowledgements of its leader along.

Invariants:

1. A leader has one request of this member in flight, because both kinds count one session.
2. Nothing is fetched ahead of a poll, so no lock runs in vain. A response that comes after a poll,
   as it does after one without a wait, is kept for the next one. That is for half of its lock at
   most, and it is released unseen after that.
3. A deadline counts from the sending of the fetch or renewal, never from its response.
4. A lost session or connection loses all locks of its leader here, and the next request opens a
   session. So this member never acknowledges a record that the leader may have given to another.
5. ``close()`` sends what is marked, closes each session, and then leaves. The end of a session
   releases the rest of its partitions. Locks of forgotten partitions are released before.
6. Nothing is due for long without a look. What makes something due before the next look notifies
   the task that looks. A mark does so in the last third of its lock only. So the next look has a
   time while a leader holds records for this member, also records that are buffered or decoded now.
   A mark that was due in between has a sixth of its lock left then.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio

from kohort.coordinator_client.machine._error_code_actions import error_for
from kohort.errors import (
    ErrorCode,
    KafkaError,
    UnsupportedVersionError,
    broker_error,
)
from kohort.fetcher import denied_topics_error
from kohort.logs import error_text, get_logger
from kohort.protocol import ApiKey
from kohort.protocol.messages import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from kohort.share.client._commits import Commits
from kohort.share.client._leader_task import LeaderTask
from kohort.share.client._leaders import AssignedLeaders
from kohort.share.client._locks import SEND_SHARE, Fetched, Locks
from kohort.share.client._member import TICK, ShareMember
from kohort.share.client._messages import (
    WITH_MODES,
    acknowledge_request,
    acquired_ranges,
    fetch_request,
)
from kohort.share.client._settings import ShareSettings
from kohort.share.client._statistics import ShareStatistics
from kohort.share.machine._acquired import DISCONNECTED, AckUnit
from kohort.share.machine._membership import (
    IdPartition,
    Retry,
    ShareMembership,
    Subscribe,
)
from kohort.share.machine._session import LAST_EPOCH, ShareSession
from kohort.transport import (
    BrokerAddress,
    Leader,
    OneShot,
    TaskSignal,
    callback_loop,
    start_soon,
    with_principal,
)
from kohort.types import TopicPartition

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from kohort.consumer.engine._engine import Engine

logger = get_logger("kohort.share")

PURPOSE: Final = "share"
"""The connection of the sessions. Their locks end with it."""
WAIT_SHARE: Final = 0.25
"""Longest wait of a fetch, as a share of the lock."""
LEAST_LOCK: Final = 1.0
"""Shortest lock in seconds that brokers allow. It counts until a response names the group's."""
QUICK_SECONDS: Final = 0.01
QUICK_FACTOR: Final = 3
"""All fetches ask for what the caller finishes in this time, up to a multiple of the option.

A request takes some milliseconds, so slower callers gain nothing. By default, brokers lock 2,000
records of a partition. So three times 500 leave room for another member.
"""
PAUSE: Final = 0.1
"""Seconds without a fetch from a leader that returned an error."""


def _nothing() -> None:
    pass


class ShareClient:
    """The requests of one share consumer. It belongs to the event loop of its engine."""

    def __init__(self, engine: Engine, settings: ShareSettings, locks: Locks) -> None:
        self._engine = engine
        self._cluster = engine.cluster
        self._settings = settings
        self.statistics: ShareStatistics = ShareStatistics()
        loop = callback_loop()
        self._signal = TaskSignal(loop)
        self.member: ShareMember = ShareMember(
            engine, settings, self.statistics, self._report, self._signal.notify
        )
        self.membership: ShareMembership = self.member.membership
        self.locks: Locks = locks
        locks.clock = engine.callback_queue.clock  # that of the loop, which runs now
        self.errors: deque[KafkaError] = deque()
        """Errors that the next polls raise."""
        self._leaders = AssignedLeaders(self._cluster, self.membership)
        self._sessions: dict[int, ShareSession] = {}
        self._leader_tasks: dict[int, LeaderTask] = {}
        self._pauses: dict[int, float] = {}
        self._limit: int | None = None
        """Most records that all fetches in flight may acquire together; None for the option."""
        self._asked: dict[int, int] = {}
        """Most records of each fetch in flight."""
        self._latest = -1
        """The leader that got the latest fetch."""
        self._waiting = 0
        self.wanted_until: float = -math.inf
        """Time until which a poll of another thread waits for records, set by that thread."""
        self.notify_caller: Callable[[], object] = _nothing
        """Wakes a poll of another thread, which then finds records or makes a call."""
        self.limit: int | None = None
        """Most records of that poll; None for the option."""
        self._longest_wait_ms = int(1000 * LEAST_LOCK * WAIT_SHARE)
        """Longest wait of a fetch."""
        self._is_asked = False
        """True if a poll that did not wait asks for a fetch, whose records a later poll takes."""
        self._looks_at = math.inf
        """When the next look at all leaders comes without an event."""
        self._has_begun = self._is_reached = False
        self.topics: frozenset[str] = frozenset()
        """Topics to join with, from the first contact with the cluster on."""
        self._started = OneShot(loop)
        self._answer_signal = TaskSignal(loop)
        """Notified after each response, for the calls that wait."""
        self.commits: Commits = Commits(engine, locks, self._signal, self._answer_signal)
        self._tasks: TaskGroup | None = None

    # -- state --------------------------------------------------------------------------------

    def session_nodes(self) -> list[int]:
        """Return the leaders that have a session of this member."""
        return sorted(node for node, each in tuple(self._sessions.items()) if each.is_open)

    @property
    def is_idle(self) -> bool:
        """True if the latest response of every leader had no records."""
        found = [each.acquired for each in tuple(self._sessions.values()) if each.is_open]
        return bool(found) and all(acquired == 0 for acquired in found)

    @property
    def is_running(self) -> bool:
        """True from the start of its tasks until the end of the engine. Any thread may read it."""
        return self._tasks is not None

    # -- calls --------------------------------------------------------------------------------

    async def start(self) -> None:
        """Run until the end of the engine. Return when calls are possible."""
        if not self._has_begun:
            self._has_begun, self._is_reached = True, self._cluster.bootstrapped
            self._cluster.on_metadata_change(lambda old, new: self._on_metadata())
            self._engine.errors.on_report = self._notify_callers
            self._engine.run_beside(self._run)
        if not self._started.is_set:
            await self._started.wait()

    def subscribe(self, topics: frozenset[str]) -> None:
        """Join with these topics, or leave without any. The first contact comes before."""
        self.topics = topics
        if self._is_reached and topics != self.membership.topics:
            self._engine.want_topics(topics)
            self.member.apply(Subscribe(topics))

    def _on_metadata(self) -> None:
        if not self._is_reached:
            self._is_reached = True
            # The next poll should not raise an error of an outage that is over.
            self._engine.errors.drop_outages()
            self.subscribe(self.topics)
        self._signal.notify()

    async def wait(self, timeout: float, limit: int | None = None) -> None:
        """Fetch until records are buffered, an error is known, or the time has passed.

        With ``limit``, fetches acquire at most as many records, all leaders together.
        """
        self._limit = limit
        self._is_asked = False
        if self.membership.has_failed:
            self.member.apply(Retry())
        clock = self.locks.clock
        deadline = clock() + timeout
        has_waited = False
        self._waiting += 1
        try:
            while True:
                event = self._answer_signal.event()
                if self._has_answer():
                    break
                self._is_asked = timeout <= TICK
                if self._tasks is not None:
                    self._advance()
                left = deadline - clock()
                if left <= TICK:
                    break
                await event.wait(left)
                has_waited = True
        finally:
            self._waiting -= 1
        if not has_waited:
            await anyio.lowlevel.checkpoint()  # polls without a wait must not stop other tasks

    def look(self) -> None:
        """Look at all leaders, because a mark is due before the next look would come."""
        self._signal.notify()

    def look_for_poll(self) -> None:
        """Begin what is due for a poll of another thread, or notify it that nothing is.

        It makes a call then, which does all else. This runs in a callback, where anyio starts no
        tasks. So the task that looks does what needs new ones.
        """
        is_member = self.membership.topics == self.topics and not self.membership.has_failed
        if self._tasks is None or not is_member or self._has_answer():
            self.notify_caller()
        else:
            self._is_asked = False
            wanted, tasks = self._leaders.current(), self._leader_tasks.keys()
            if (
                wanted is None
                or self.commits.has_requests
                or not tasks >= wanted.keys() | self._sessions.keys()
            ):
                self._signal.notify()
            else:
                self._advance()

    def _has_answer(self) -> bool:
        """Return True if a poll has nothing to wait for."""
        return bool(
            self.locks.has_buffered
            or self.errors
            or self._engine.errors.waiting
            or self._engine.callback_queue.is_wakeup_requested
        )

    def _notify_callers(self) -> None:
        self._answer_signal.notify()
        if self._has_answer():
            self.notify_caller()

    def interrupt(self) -> None:
        """Let the waiting calls look at their conditions again."""
        self._notify_callers()

    async def close(self, timeout: float) -> None:
        """Send what is marked, release the rest, and leave the group."""
        self.member.is_closing = True
        self.locks.release_buffered()
        with anyio.move_on_after(timeout):
            self.commits.running += 1
            with anyio.move_on_after(timeout / 2):
                await self.commits.settle()
            while any(each.is_open or each.is_busy for each in self._sessions.values()):
                event = self._answer_signal.event()
                for node, session in self._sessions.items():
                    if session.is_open and not session.is_busy:
                        # The end of the session releases what is locked in its partitions only.
                        self.locks.release_rest(node, session.held)
                        closes = not self.locks.has_marks(node)
                        self._send_acknowledgements(node, session, closes=closes)
                await event.wait()
            if self.membership.topics:
                self.membership.handle(Subscribe(frozenset()), self.locks.clock())
                await self.member.leave()

    # -- the membership -----------------------------------------------------------------------

    async def _run(self) -> None:
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            self.commits.open()
            self.member.begin(tasks)
            self._started.set()
            try:
                await self._keep_fetching()
            finally:
                self._tasks = None
                self.notify_caller()
                self.member.end()
                self.commits.close()

    def _report(self, error: KafkaError) -> None:
        self.errors.append(with_principal(error, self._cluster.principal))
        self._notify_callers()

    # -- the leaders --------------------------------------------------------------------------

    async def _keep_fetching(self) -> None:
        while True:
            event = self._signal.event()
            self._advance()
            left = self._next_look()
            self._looks_at = math.inf if left is None else self.locks.clock() + left
            await event.wait(left)
            self._looks_at = math.inf

    def _next_look(self) -> float | None:
        """Return the seconds until marks or buffered fetches may be due without any event."""
        now = self.locks.clock()
        paused = [until - now for until in self._pauses.values() if until > now + TICK]
        if self.locks.has_records:
            paused.append(self.locks.seconds / 6)
        return min(paused, default=None)

    def _looks_in_time(self, node: int) -> bool:
        """Return True if the next look comes before anything is due after a fetch from a leader."""
        if not self.locks.has_buffered or self._looks_at == math.inf:
            return False
        now, left = self.locks.clock(), self._next_look()
        assert left is not None, "the buffered fetch needs a look"
        is_due = self.locks.has_marks(node, older_than=now - self.locks.seconds * SEND_SHARE)
        return not is_due and self._looks_at <= now + left

    def _advance(self) -> None:
        """Send what is due to each leader, and begin the commits that were requested."""
        assert self._tasks is not None
        self.commits.begin(self._tasks)
        if self.member.is_closing and not self.commits.running:
            return
        locks = self.locks
        now = locks.clock()
        locks.release_stale(now)
        wanted = self._leaders.by_node()
        if now < self.wanted_until:
            self._limit = self.limit  # a poll of another thread, which sets the limit first
        is_wanted = self._waiting or self._is_asked or now < self.wanted_until
        fetches = is_wanted and not locks.has_buffered and not self.member.is_closing
        is_exact = self._settings.acquire_mode == "record_limit"
        busy_elsewhere = is_exact and any(each.is_busy for each in self._sessions.values())
        nodes = wanted.keys() | locks.nodes() | self._sessions.keys()
        # The next leader comes first, so that none waits for ever.
        for node in sorted(nodes, key=lambda each: (each <= self._latest, each)):
            session = self._sessions.get(node)
            if session is None:
                session = self._sessions[node] = ShareSession()
            if session.is_busy:
                continue
            due = None if self.commits.running else now - locks.seconds * SEND_SHARE
            may_fetch = fetches and node in wanted and self._pauses.get(node, now) <= now + TICK
            if self._limit is not None:
                may_fetch = may_fetch and self._room() > 0
            elif busy_elsewhere:
                may_fetch = False
            if may_fetch:
                busy_elsewhere, self._latest, self._is_asked = is_exact, node, False
                self._send_fetch(node, session, wanted[node])
            elif session.is_open and locks.has_marks(node, older_than=due):
                self._send_acknowledgements(node, session)
            elif node not in wanted and node not in locks.nodes():
                if session.is_open:
                    self._send_acknowledgements(node, session, closes=True)
                elif self._pauses.get(node, now) <= now + TICK:
                    self._forget(node)

    def _forget(self, node: int) -> None:
        """Keep nothing of a broker that leads no partition of this member."""
        del self._sessions[node]
        self._pauses.pop(node, None)
        if (task := self._leader_tasks.pop(node, None)) is not None:
            task.end()

    def _wanted_records(self, session: ShareSession) -> int:
        """Return how many records a fetch asks for. A request costs the same for many records."""
        most = self._settings.max_records
        if (session.acquired or 0) < most or self._settings.acquire_mode == "record_limit":
            return most
        finished = min(self.locks.finished_in(QUICK_SECONDS), QUICK_FACTOR * most)
        return max(most, finished // len(self._sessions))

    def _room(self) -> int:
        """Return how many more records the fetches in flight may ask for."""
        assert self._limit is not None
        return self._limit - sum(self._asked.values())

    def _send_acknowledgements(
        self, node: int, session: ShareSession, *, closes: bool = False
    ) -> None:
        units = self.locks.take_units(node, with_renewals=self._may_renew)
        if not units and not closes:
            self._answer_signal.notify()  # all locks have expired
            return
        self._start_acknowledging(node, session, units, closes=closes)

    def _start_acknowledging(
        self,
        node: int,
        session: ShareSession,
        units: dict[IdPartition, AckUnit],
        *,
        closes: bool = False,
    ) -> None:
        epoch = session.acknowledge(closes=closes)
        message = acknowledge_request(self._settings.group_id, self.member.id, epoch, units)
        self._begin(node, partial(self._acknowledge, node, session, message, units))

    def _send_fetch(self, node: int, session: ShareSession, wanted: frozenset[IdPartition]) -> None:
        units: dict[IdPartition, AckUnit] = {}
        may_renew = self._may_renew
        if session.is_open:
            units = self.locks.take_units(node, with_renewals=may_renew)
            if any(unit.has_renewals for unit in units.values()):
                # A ShareFetch with renewals returns no records, so they go on their own.
                self._start_acknowledging(node, session, units)
                return
        request = session.fetch(wanted, units)
        # Acknowledgements wait behind a fetch, and the locks of what it gets count from now.
        settings = self._settings
        if self._longest_wait_ms < settings.max_wait_ms:
            settings = settings._replace(max_wait_ms=self._longest_wait_ms)
        if self._limit is None:
            asked = self._wanted_records(session)
        else:
            # An idle leader reserves one record only, so the others may use the rest.
            is_idle = session.acquired == 0 and len(self._sessions) > 1
            asked = self._asked[node] = 1 if is_idle else self._room()
            settings = settings._replace(acquire_mode="record_limit")
        message = fetch_request(settings, self.member.id, request, units, may_renew, asked)
        self._begin(node, partial(self._fetch, node, session, message, units))

    def _begin(self, node: int, request: Callable[[], Awaitable[None]]) -> None:
        task = self._leader_tasks.get(node)
        if task is None:
            assert self._tasks is not None
            task = self._leader_tasks[node] = LeaderTask()
            start_soon(self._tasks, task.run)
        task.begin(request)

    @property
    def _may_renew(self) -> bool:
        """True unless the brokers lack the requests with renewals and modes of acquiring."""
        served = self._cluster.api_versions.get(ApiKey.SHARE_ACKNOWLEDGE)
        return served is None or served.last >= WITH_MODES

    async def _fetch(
        self,
        node: int,
        session: ShareSession,
        message: ShareFetchRequest,
        units: dict[IdPartition, AckUnit],
    ) -> None:
        clock = self.locks.clock
        sent_at = clock()
        try:
            response = await self._cluster.request(
                message,
                node=node,
                purpose=PURPOSE,
                timeout_ms=message.max_wait_ms + self._settings.request_timeout_ms,
                min_version=WITH_MODES
                if message.share_acquire_mode and self._limit is None
                else None,
            )
        except KafkaError as error:
            self.statistics.failed_fetches += 1
            self._lost(node, session, error)
        else:
            self.statistics.fetches.add(clock() - sent_at)
            self.statistics.failed_fetches += response.error_code != 0
            self._fetched(node, session, units, response, sent_at)
        finally:
            self._asked.pop(node, None)
            session.is_busy = False
            if self.commits.running or not self._looks_in_time(node):
                self._signal.notify()
            self._notify_callers()

    def _fetched(
        self,
        node: int,
        session: ShareSession,
        units: dict[IdPartition, AckUnit],
        response: ShareFetchResponse,
        sent_at: float,
    ) -> None:
        code, message = response.error_code, response.error_message
        if not self._is_good(node, session, code, message):
            self._fail_units(node, units, code, message)
            return
        locks = self.locks
        self._learn_lock(response.acquisition_lock_timeout_ms)
        session.acquired = 0
        self._answered(
            node,
            units,
            (
                (
                    (topic.topic_id, each.partition_index),
                    each.acknowledge_error_code,
                    each.acknowledge_error_message,
                )
                for topic in response.responses
                for each in topic.partitions
            ),
        )
        for topic in response.responses:
            for each in topic.partitions:
                key = topic.topic_id, each.partition_index
                if each.error_code:
                    self._partition_failed(node, key, each, response.node_endpoints)
                elif each.acquired_records and each.records is not None:
                    name = self._cluster.metadata.topic_by_id(topic.topic_id)
                    if name is None:
                        continue  # the topic was deleted, and its locks with it
                    ranges = acquired_ranges(each.acquired_records)
                    partition = TopicPartition(name.name, each.partition_index)
                    self.statistics.bytes_fetched += len(each.records)
                    fetched = Fetched(
                        key,
                        partition,
                        node,
                        ranges,
                        memoryview(each.records),
                        sent_at,
                        sent_at + locks.seconds,
                    )
                    session.acquired += fetched.size
                    locks.add(fetched)

    def _learn_lock(self, lock_ms: int) -> None:
        """Note the duration of a lock. It is 0 if the version of a response has no field for it."""
        if lock_ms > 0:
            self.locks.seconds = lock_ms / 1000
            self._longest_wait_ms = int(lock_ms * WAIT_SHARE)

    def _partition_failed(
        self,
        node: int,
        key: IdPartition,
        partition: ShareFetchResponse.PartitionData,
        endpoints: list[ShareFetchResponse.NodeEndpoint],
    ) -> None:
        code = partition.error_code
        self._pauses[node] = self.locks.clock() + PAUSE
        topic = self._cluster.metadata.topic_by_id(key[0])
        if code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
            self.locks.void_partition(node, key, code, partition.error_message)
            leader = partition.current_leader
            if topic is not None and endpoints:
                learned = Leader(leader.leader_id, leader.leader_epoch)
                self._cluster.learn_leaders(
                    {TopicPartition(topic.name, key[1]): learned}, map(BrokerAddress.of, endpoints)
                )
            self._cluster.request_refresh()
        elif code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            self._pauses[node] = self.locks.clock() + self.membership.interval
            names = () if topic is None else (topic.name,)
            place = "a topic without metadata" if topic is None else f"{topic.name}-{key[1]}"
            advice = "The client retries"  # other topics of the leader pause, too
            self._report(denied_topics_error(f"fetching {place}", names, "READ", advice=advice))
        else:
            logger.debug("[%s] %s: %s", self._settings.group_id, key, broker_error(code))
            self._cluster.request_refresh()

    def _is_good(self, node: int, session: ShareSession, code: int, message: str | None) -> bool:
        """Note the code of a whole response. Return False if its partitions mean nothing."""
        if not session.answered(code):
            logger.info(
                "[%s] the session at broker %d begins again: %s",
                self._settings.group_id,
                node,
                broker_error(code),
            )
            self.locks.void(node, code, message)
            if code not in (
                ErrorCode.SHARE_SESSION_NOT_FOUND,
                ErrorCode.INVALID_SHARE_SESSION_EPOCH,
            ):
                self._pauses[node] = self.locks.clock() + PAUSE
            return False
        if code:
            self._pauses[node] = self.locks.clock() + max(PAUSE, self.membership.interval / 5)
            api = ApiKey.SHARE_FETCH
            self._report(error_for(api, code, self._settings.group_id, message))
        return code == 0

    def _answered(
        self,
        node: int,
        units: dict[IdPartition, AckUnit],
        answers: Iterable[tuple[IdPartition, int, str | None]],
    ) -> None:
        """Note the answer to each unit. One that the response does not name has failed."""
        left = dict(units)
        for key, code, message in answers:
            if left.pop(key, None) is not None:
                self.locks.answered(node, key, code, message)
        unnamed = "the response does not name the partition"
        if left:
            self._fail_units(node, left, ErrorCode.UNKNOWN_SERVER_ERROR, unnamed)

    def _fail_units(
        self, node: int, units: dict[IdPartition, AckUnit], code: int, message: str | None
    ) -> None:
        for key in units:
            self.locks.answered(node, key, code, message)

    def _lost(self, node: int, session: ShareSession, error: KafkaError) -> None:
        logger.log(
            logging.INFO if session.is_open else logging.DEBUG,  # once while a broker is away
            "[%s] the session at broker %d is lost: %s",
            self._settings.group_id,
            node,
            error_text(error),
        )
        session.reset()
        self.locks.void(node, DISCONNECTED)
        self._pauses[node] = self.locks.clock() + PAUSE
        if isinstance(error, UnsupportedVersionError):
            self._report(error)
        self._cluster.request_refresh()

    async def _acknowledge(
        self,
        node: int,
        session: ShareSession,
        message: ShareAcknowledgeRequest,
        units: dict[IdPartition, AckUnit],
    ) -> None:
        try:
            response = await self._cluster.request(
                message,
                node=node,
                purpose=PURPOSE,
                timeout_ms=self._settings.request_timeout_ms,
                min_version=WITH_MODES if message.is_renew_ack else None,
            )
        except KafkaError as error:
            self._lost(node, session, error)
        else:
            self._acknowledged(node, session, units, response)
            if message.share_session_epoch == LAST_EPOCH:
                session.reset()
                self.locks.void(node, DISCONNECTED)
        finally:
            session.is_busy = False
            self._signal.notify()
            self._answer_signal.notify()

    def _acknowledged(
        self,
        node: int,
        session: ShareSession,
        units: dict[IdPartition, AckUnit],
        response: ShareAcknowledgeResponse,
    ) -> None:
        if not self._is_good(node, session, response.error_code, response.error_message):
            self._fail_units(node, units, response.error_code, response.error_message)
            return
        self._learn_lock(response.acquisition_lock_timeout_ms)
        answers = [
            ((topic.topic_id, each.partition_index), each.error_code, each.error_message)
            for topic in response.responses
            for each in topic.partitions
        ]
        self._answered(node, units, answers)
        if any(code for _, code, _ in answers):
            self._cluster.request_refresh()
