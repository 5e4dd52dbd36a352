"""The engine: where transport, group, fetcher and subscription are put together.

It runs in one task of one event loop; which loop that is, is the face's affair. Everything here is
called from within that loop, but for what the subscription and the mailbox allow from outside.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import anyio

from kohort.config import ConsumerConfig
from kohort.consumer._host import Host
from kohort.consumer._positions import PositionFinder
from kohort.consumer._topics import TopicWatch
from kohort.consumer._work import CoreLink, Mailbox
from kohort.coordinator_client import CoordinatorClient, resolve_assignors
from kohort.errors import IllegalStateError, KafkaError, KafkaTimeoutError
from kohort.fetcher import EARLIEST, LATEST, Fetcher
from kohort.subscription import OffsetReset, SubscriptionMode, SubscriptionState
from kohort.transport import ClusterClient, Connect
from kohort.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

logger = logging.getLogger("kohort.consumer")

__all__ = ["EARLIEST", "LATEST", "Engine"]


class Engine:
    """The core of one consumer."""

    def __init__(
        self,
        config: ConsumerConfig,
        *,
        notify: Callable[[], None],
        clock: Callable[[], float],
        connect: Connect | None = None,
        rng: random.Random | None = None,
    ) -> None:
        rng = rng or random.Random()
        self.config = config
        self.mailbox = Mailbox(CoreLink(), notify, clock)
        self.subscription = SubscriptionState(OffsetReset(config.fetch.auto_offset_reset))
        self.cluster = ClusterClient(config.client, connect=connect, rng=rng)
        self.fetcher = Fetcher(
            self.cluster,
            self.subscription,
            config.fetch,
            on_ready=notify,
            on_room=lambda: self.mailbox.core.call_soon(self.fetcher.wake),
            key_deserializer=config.deserialize_key,
            value_deserializer=config.deserialize_value,
            rng=rng,
        )
        self.host = Host(
            self.mailbox,
            self.subscription,
            has_listener=lambda: self.listener is not None,
            on_assignment=self._on_assignment,
            on_failure=self.mailbox.report,
        )
        self.coordinator: CoordinatorClient | None = None
        if config.group.group_id is not None:
            assignors = resolve_assignors(config.group.partition_assignment_strategy)
            self.coordinator = CoordinatorClient(
                self.cluster,
                config.group,
                assignors,
                self.host,
                rng=rng,
                on_group_topics=lambda topics: self._topics.wake(),
            )
        self.listener: Any = None
        self.consumed: dict[TopicPartition, OffsetAndMetadata] = {}
        """The positions as of the latest entry into poll(): what automatic commits commit."""
        self._positions = PositionFinder(self)
        self._topics = TopicWatch(self)

    # -- life ---------------------------------------------------------------------------------

    async def run(self, started: Callable[[], None]) -> None:
        """Run until cancelled."""
        try:
            async with anyio.create_task_group() as tasks:
                await tasks.start(self.cluster.run)
                tasks.start_soon(self._topics.run)
                tasks.start_soon(self._positions.run)
                tasks.start_soon(self.fetcher.run)
                if self.coordinator is not None:
                    tasks.start_soon(self.coordinator.run)
                    if self.config.group.auto_commit:
                        tasks.start_soon(self._commit_at_intervals)
                started()
                await anyio.sleep_forever()
        finally:
            self.fetcher.close()
            with anyio.CancelScope(shield=True), anyio.move_on_after(1):
                await self.cluster.aclose()

    def _on_assignment(self) -> None:
        self._positions.wake()
        self.fetcher.wake()

    def subscription_changed(self) -> None:
        """The caller subscribed, assigned or unsubscribed."""
        self._topics.wake()
        self._on_assignment()

    async def bootstrap(self, timeout: float | None) -> None:
        """Wait until the cluster's metadata is there. KafkaTimeoutError, NoBrokersAvailable."""
        with _deadline(timeout, "the cluster's metadata did not come"):
            await self.cluster.wait_bootstrapped()

    # -- offsets ------------------------------------------------------------------------------

    def _group(self) -> CoordinatorClient:
        if self.coordinator is None:
            raise IllegalStateError("this needs a group: give the consumer a group_id")
        return self.coordinator

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout: float | None
    ) -> None:
        """Commit these, in the group's current generation."""
        if offsets:
            await self._group().commit(offsets, timeout=self._seconds(timeout))

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout: float | None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed; None where nothing is."""
        return await self._group().committed(frozenset(partitions), timeout=self._seconds(timeout))

    async def offsets_at(
        self, timestamps: Mapping[TopicPartition, int], timeout: float | None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The offsets at timestamps, or at the ends of the log."""
        return await self.fetcher.list_offsets(timestamps, timeout=self._seconds(timeout))

    async def end_of(
        self, partitions: Iterable[TopicPartition], end: int, timeout: float | None
    ) -> dict[TopicPartition, int]:
        """The first (:data:`EARLIEST`) or next (:data:`LATEST`) offsets of partitions."""
        found = await self.offsets_at(dict.fromkeys(partitions, end), timeout)
        return {tp: at.offset for tp, at in found.items() if at is not None}

    async def position(self, tp: TopicPartition, timeout: float | None) -> int:
        """The position, looked up if need be. NotAssignedError, KafkaTimeoutError."""
        with _deadline(timeout, f"the position of {tp.topic}-{tp.partition} did not come"):
            return await self._positions.find(tp)

    def _seconds(self, timeout: float | None) -> float:
        return self.config.client.request_timeout_ms / 1000 if timeout is None else timeout

    # -- topics -------------------------------------------------------------------------------

    async def partitions_of(self, topic: str, timeout: float | None) -> frozenset[int]:
        """The partitions of a topic, asked for if they are not known; empty if there is none."""
        with _deadline(self._seconds(timeout), f"no metadata of topic {topic!r}"):
            return await self._topics.partitions_of(topic)

    async def all_topics(self, timeout: float | None) -> frozenset[str]:
        """The names of all topics of the cluster, asked for anew."""
        with _deadline(self._seconds(timeout), "the list of topics did not come"):
            return await self._topics.all_topics()

    # -- automatic commits --------------------------------------------------------------------

    def note_consumed(self) -> None:
        """The caller came into poll(): it is done with everything that it was given before."""
        self.consumed = self.subscription.positions_for_commit()

    async def _commit_at_intervals(self) -> None:
        interval = max(self.config.group.auto_commit_interval_ms, 10) / 1000
        done: dict[TopicPartition, OffsetAndMetadata] = {}
        while True:
            await anyio.sleep(interval)
            owned = self.subscription.assigned()
            offsets = {
                tp: at for tp, at in self.consumed.items() if tp in owned and done.get(tp) != at
            }
            try:
                await self.commit(offsets, None)
            except KafkaError as error:
                logger.warning("automatic commit failed: %s", error)
            else:
                done = {tp: at for tp, at in {**done, **offsets}.items() if tp in owned}

    # -- leaving ------------------------------------------------------------------------------

    @property
    def subscribed(self) -> bool:
        """True if the group, or the subscription without one, decides what is assigned."""
        return self.subscription.mode in (SubscriptionMode.TOPICS, SubscriptionMode.PATTERN)

    def membership_lost(self) -> bool:
        """True if what is assigned is no longer this member's."""
        return (
            self.coordinator is not None
            and self.subscribed
            and self.coordinator.generation().generation_id < 0
        )

    async def leave(self, reason: str, timeout: float) -> None:
        """Leave the group, if in one. Never raises: the session's end does it otherwise."""
        if self.coordinator is None:
            return
        try:
            with anyio.move_on_after(timeout):
                await self.coordinator.leave(reason, timeout)
        except KafkaError as error:
            logger.info("could not leave the group: %s", error)


class _deadline:
    """A time limit that raises KafkaTimeoutError and says what did not come."""

    def __init__(self, seconds: float | None, what: str) -> None:
        self._seconds = seconds
        self._what = what

    def __enter__(self) -> None:
        self._scope = anyio.fail_after(self._seconds)
        self._scope.__enter__()

    def __exit__(self, *exc_info: Any) -> bool | None:
        try:
            return self._scope.__exit__(*exc_info)
        except TimeoutError as error:
            raise KafkaTimeoutError(f"{self._what} within {self._seconds} s") from error
