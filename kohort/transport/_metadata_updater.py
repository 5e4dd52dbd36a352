"""Keeping the metadata: the first contact, refreshes when told stale or old, and who is told."""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import TypeAlias

import anyio

from kohort.config import ClientConfig
from kohort.errors import (
    ErrorCode,
    IllegalStateError,
    KafkaConnectionError,
    KafkaError,
    broker_error,
)
from kohort.protocol import messages
from kohort.transport._backoff import Backoff
from kohort.transport._metadata import BrokerAddress, ClusterMetadata, Leader
from kohort.transport._nodes import Node, Nodes
from kohort.transport._printable import address, reason
from kohort.transport._refusals import copy_of, is_refusal
from kohort.transport._repeatable_event import RepeatableEvent
from kohort.types import TopicPartition, escaped

logger = logging.getLogger("kohort.transport")

MetadataCallback: TypeAlias = Callable[[ClusterMetadata, ClusterMetadata], None]
MIN_BOOTSTRAP_SECONDS = 0.1
"""Less would fail before the nearest broker could answer."""

REFUSED_SECONDS = 1.0
"""Pause before the first refresh after a topic was refused; later pauses are longer."""

RequestMetadata: TypeAlias = (
    "Callable[[messages.MetadataRequest], Awaitable[messages.MetadataResponse]]"
)


class MetadataUpdater:
    """Holds the snapshot and refreshes it, one request at a time."""

    def __init__(
        self,
        config: ClientConfig,
        nodes: Nodes,
        request_metadata: RequestMetadata,
        rng: random.Random,
    ) -> None:
        self.snapshot = ClusterMetadata()
        self.bootstrapped = False
        self._config = config
        self._nodes = nodes
        self._rebootstraps = config.metadata_recovery_strategy == "rebootstrap"
        self._request_metadata = request_metadata
        self._rng = rng
        self._backoff = Backoff.from_ms(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._callbacks: list[MetadataCallback] = []
        self._wanted: frozenset[str] | None = frozenset()
        self._requested_number = 1  # the refresh that is wanted, by number
        self._started_number = 0  # the latest one that was sent
        self._completed_number = 0  # the latest one that was answered
        self._not_before = 0.0  # a stale snapshot is not refreshed faster than this
        self._due = 0.0
        self._incomplete = 0  # answers in a row that left something open
        self._refused_topics: frozenset[str] = frozenset()
        self._refused_responses = 0  # answers in a row that refused these
        self._due_changed = RepeatableEvent()  # for the task that refreshes
        self._updated = RepeatableEvent()  # for those who wait for a refresh
        self._unreachable = 0  # windows of bootstrap_timeout_ms that ended in vain
        self._warned = False
        self._stopped = False

    # -- what is wanted -----------------------------------------------------------------------

    def want_topics(self, names: Collection[str] | None) -> None:
        """Keep metadata of these topics, None: of all."""
        wanted = None if names is None else frozenset(names)
        if wanted == self._wanted:
            return
        known = wanted is not None and wanted <= self.snapshot.topics.keys()
        self._wanted = wanted
        if not known:
            self._not_before = 0.0
            self.request_refresh()

    def request_refresh(self) -> int:
        """The snapshot is stale. Returns the number of the refresh that will do."""
        self._requested_number = max(self._requested_number, self._started_number + 1)
        self._due_changed.set()
        return self._requested_number

    async def wait_refreshed(self) -> None:
        """Return after a refresh that begins from now on; as wait_bootstrapped() at the start."""
        number = self.request_refresh()
        await self.wait_bootstrapped()
        while self._completed_number < number:
            await self._wait_updated()

    async def wait_bootstrapped(self, known: KafkaError | None = None) -> None:
        """Return after the first answer; see _bootstrap_error() for the end of the bootstrap time.

        Raises the refusal of all bootstrap servers at once, unless it says the same as ``known``.
        """
        before = self._unreachable
        while not self.bootstrapped:
            refused = self._bootstrap_refusal()
            if refused is not None:
                if known is None or str(known) != str(refused):
                    raise copy_of(refused)
            elif self._unreachable != before:
                raise self._bootstrap_error()
            await self._wait_updated()

    async def wait_reached(self) -> None:
        """Do as wait_bootstrapped() does, and wait while the bootstrap servers refuse, too."""
        before = self._unreachable
        while not self.bootstrapped:
            if self._unreachable != before and self._bootstrap_refusal() is None:
                raise self._bootstrap_error()
            await self._wait_updated()

    def _bootstrap_refusal(self) -> KafkaError | None:
        return self._nodes.refusals.of_all(self._nodes.bootstrap)

    async def _wait_updated(self) -> None:
        if self._stopped:
            raise IllegalStateError("the cluster client is closed")
        await self._updated.wait()

    def stop(self) -> None:
        """There will be no more answers; who waits for one hears that."""
        self._stopped = True
        self._updated.set()

    def on_change(self, callback: MetadataCallback) -> None:
        """Call it with (old, new) after each answer, in the task of the refresh."""
        self._callbacks.append(callback)

    # -- refreshing ---------------------------------------------------------------------------

    async def run(self) -> None:
        """Refresh until closed; never raises."""
        failures = 0
        in_vain_since: float | None = None
        while True:
            await self._wait_due()
            self._started_number, wanted = self._requested_number, self._wanted
            if in_vain_since is None:
                in_vain_since = anyio.current_time()
            response: messages.MetadataResponse | None = None
            try:
                with anyio.CancelScope(deadline=self._give_up_at(in_vain_since)):
                    response = await self._fetch(wanted)
            except IllegalStateError:
                return  # closed
            except KafkaError as error:
                failures += 1
                level = logging.INFO if failures == 1 else logging.DEBUG
                logger.log(level, "the metadata could not be refreshed: %s", reason(error))
                await anyio.sleep(self._backoff.delay(failures, self._rng))
                continue
            in_vain_since = None
            if response is None:
                self._rebootstrap(
                    "no known broker gave any metadata for "
                    f"{self._config.metadata_recovery_rebootstrap_trigger_ms} ms"
                )
                continue
            failures = 0
            self._completed_number = self._started_number
            self._apply(self.snapshot.merged(response))
            self._schedule_next()

    def _give_up_at(self, in_vain_since: float) -> float:
        """When the known brokers are given up (KIP-1102)."""
        if not self._rebootstraps or not self.snapshot.brokers:
            return math.inf
        trigger = self._config.metadata_recovery_rebootstrap_trigger_ms / 1000
        return in_vain_since + max(trigger, self._backoff.initial)

    def _rebootstrap(self, why: str) -> None:
        """Forget the brokers; the bootstrap servers are asked next."""
        logger.warning("starting again from the bootstrap servers (%s): %s", self._addresses(), why)
        self.snapshot = self.snapshot.without_brokers()
        self._nodes.forget_brokers()

    async def _wait_due(self) -> None:
        while True:
            at = self._due
            if self._completed_number < self._requested_number:
                at = min(at, self._not_before)
            if anyio.current_time() >= at:
                self._requested_number = max(self._requested_number, self._completed_number + 1)
                return
            with anyio.CancelScope(deadline=at):
                await self._due_changed.wait()

    def _schedule_next(self) -> None:
        """When the next refresh is due; soon if the brokers are still finding out themselves."""
        now = anyio.current_time()
        max_age = max(self._config.metadata_max_age_ms / 1000, self._backoff.initial)
        if all(topic.is_complete for topic in self.snapshot.topics.values()):
            self._incomplete = 0
            self._due = now + self._refresh_interval(max_age)
        else:
            self._incomplete += 1
            self._due = now + self._backoff.delay(self._incomplete, self._rng)
        self._not_before = now + self._backoff.delay(1, self._rng)
        if self._wanted is not None and not self._wanted <= self.snapshot.topics.keys():
            self._not_before = 0.0  # more was wanted while this one was on its way

    def _refresh_interval(self, max_age: float) -> float:
        """Seconds to the next refresh; fewer after a topic was refused, as rights may follow."""
        refused = self.snapshot.refused(self._wanted or ())
        if refused != self._refused_topics:
            self._refused_topics, self._refused_responses = refused, 0
        if not refused:
            return max_age
        self._refused_responses += 1
        backoff = Backoff(min(REFUSED_SECONDS, max_age), max_age)
        return backoff.delay(self._refused_responses, self._rng)

    async def fetch_topics(
        self, names: Collection[str] | None, *, may_create: bool = True
    ) -> ClusterMetadata:
        """Ask for these topics (None: all) now, for as long as it takes.

        Returns a snapshot with all of them; those without an error are in ``snapshot`` too, until
        the next refresh of the wanted ones. Without ``may_create`` asking creates no topic,
        whatever the configuration says.
        """
        failures = 0
        while True:
            await self.wait_bootstrapped()
            try:
                response = await self._fetch(
                    None if names is None else frozenset(names), may_create=may_create
                )
            except KafkaError as error:
                if not error.retriable:
                    raise
                failures += 1
                await anyio.sleep(self._backoff.delay(failures, self._rng))
                continue
            fetched = self.snapshot.merged(response, keep=names is not None)
            response.topics = [
                topic
                for topic in response.topics
                if not topic.error_code or topic.name in self.snapshot.topics
            ]
            self._apply(self.snapshot.merged(response, keep=True))
            return fetched

    def learn_leaders(
        self, leaders: Mapping[TopicPartition, Leader], brokers: Iterable[BrokerAddress]
    ) -> None:
        """Take leaders that a broker named beside an error, if they are newer (KIP-951)."""
        new = self.snapshot.with_leaders(leaders, brokers)
        if new is not self.snapshot:
            self._apply(new)

    async def _fetch(
        self, names: frozenset[str] | None, *, may_create: bool = True
    ) -> messages.MetadataResponse:
        topics = (
            None
            if names is None
            else [
                messages.MetadataRequest.MetadataRequestTopic(name=name) for name in sorted(names)
            ]
        )
        # A request for all topics creates none, whatever it says.
        create = (self._config.allow_auto_create_topics and may_create) or names is None
        response = await self._request_metadata(
            messages.MetadataRequest(topics=topics, allow_auto_topic_creation=create)
        )
        if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED and self._rebootstraps:
            self._rebootstrap("a broker asks for it")
        if response.error_code:
            raise broker_error(response.error_code)
        if not response.brokers:
            raise KafkaConnectionError("the metadata names no brokers: the broker is starting")
        return response

    def _apply(self, new: ClusterMetadata) -> None:
        old, self.snapshot = self.snapshot, new
        if old.cluster_id is not None and old.cluster_id != new.cluster_id:
            logger.warning(
                "the cluster is another one now: it was %s, it is %s",
                escaped(old.cluster_id),
                escaped(str(new.cluster_id)),
            )
        if not self.bootstrapped:
            self.bootstrapped = True
            self._nodes.refusals.keep(())  # some bootstrap servers may refuse; others do not
            if self._warned:
                logger.info("the cluster is reached, brokers: %s", sorted(new.brokers))
        self._nodes.set_brokers(new.brokers)
        self._nodes.clear_answered_login_refusals()
        self._updated.set()
        for callback in self._callbacks:
            try:
                callback(old, new)
            except Exception:
                # A bug of the listener's; the metadata must go on being refreshed.
                logger.exception("a metadata listener raised")

    # -- the first contact --------------------------------------------------------------------

    async def watch_bootstrap(self) -> None:
        """Fail who waits for the first contact at the end of each bootstrap_timeout_ms."""
        window = max(self._config.bootstrap_timeout_ms / 1000, MIN_BOOTSTRAP_SECONDS)
        while not self.bootstrapped:
            await anyio.sleep(window)
            self._unreachable += 1
            self._updated.set()

    def node_failed(self, node: Node, error: KafkaError, lost: bool) -> None:
        """A connection failed; the log hears of it once for each row of failures."""
        text = reason(error)
        if is_refusal(error):
            if self._nodes.refusals.add(node.broker.id, node.peer, error):
                logger.warning("%s: %s", type(error).__name__, text)
                if self.bootstrapped:
                    self._nodes.refusals.on_new(error)
            self._updated.set()
        elif self.bootstrapped:
            level = logging.WARNING if lost and node.failures == 1 else logging.DEBUG
            logger.log(level, "broker %d: %s", node.broker.id, text)
            if lost:
                self.request_refresh()
        elif self._warned:
            logger.debug("bootstrap server: %s", text)
        else:
            self._warned = True
            logger.warning(
                "no bootstrap server is reached yet, trying on (%s): %s", self._addresses(), text
            )

    def _addresses(self) -> str:
        return ", ".join(address(*server) for server in self._config.bootstrap_servers)

    def _bootstrap_error(self) -> KafkaError:
        from kohort.transport._unreached import unreached  # for this error alone

        return unreached(self._nodes, self._config)
