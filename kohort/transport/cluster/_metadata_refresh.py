"""MetadataUpdater: the first contact with the cluster, and refreshes of its metadata."""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias

import anyio

from kohort.config import ClientConfig
from kohort.errors import (
    CredentialsUnavailableError,
    ErrorCode,
    IllegalStateError,
    KafkaConnectionError,
    KafkaError,
    NoBrokersAvailable,
    RebootstrapRequiredError,
    broker_error,
)
from kohort.logs import get_logger
from kohort.protocol import messages
from kohort.transport._backoff import Backoff
from kohort.transport._printable import address, reason
from kohort.transport.cluster._metadata import BrokerAddress, ClusterMetadata, Leader
from kohort.transport.cluster._nodes import Node, Nodes
from kohort.transport.cluster._refresh_schedule import RefreshSchedule
from kohort.transport.cluster._refusals import copy_of, is_refusal
from kohort.transport.network._loop import TaskSignal
from kohort.types import TopicPartition, escaped


def unreached(nodes: Nodes, config: ClientConfig) -> KafkaError:
    """Return NoBrokersAvailable with the failed step of each bootstrap server.

    If all of them wait for credentials, return a CredentialsUnavailableError. Then the brokers are
    up, and the source of the credentials is not.
    """
    missing = nodes.credentials_obstacle(anyio.current_time())
    errors = {node.peer: node.error or missing for node in nodes.bootstrap.values()}
    texts = [
        f"{peer}: no response" if error is None else reason(error) for peer, error in errors.items()
    ]
    time = f" for {config.bootstrap_timeout_ms} ms" if config.bootstrap_timeout_ms else ""
    waits = [each for each in errors.values() if isinstance(each, CredentialsUnavailableError)]
    if waits and len(waits) == len(errors):
        causes = dict.fromkeys(
            _without_peer(peer, text) for peer, text in zip(errors, texts, strict=True)
        )
        found: KafkaError = _kind(waits)(
            f"no login at {', '.join(errors)}{time}: {'; '.join(causes)}"
        )
    else:
        causes_text = "; ".join(texts)
        end = "" if causes_text.endswith("?") else "."
        found = NoBrokersAvailable(
            f"no bootstrap server could be reached{time}: {causes_text}{end} "
            "Check bootstrap_servers and that the brokers are up"
        )
    found.__cause__ = waits[0] if waits else None
    return found


def _without_peer(peer: str, text: str) -> str:
    return text.removeprefix(f"{peer}: ")


def _kind(errors: list[CredentialsUnavailableError]) -> type[CredentialsUnavailableError]:
    """Return the class of the errors if all have the same one."""
    kinds = {type(error) for error in errors}
    return kinds.pop() if len(kinds) == 1 else CredentialsUnavailableError


if TYPE_CHECKING:
    from kohort.transport.connection._connection import BrokerConnection

logger = get_logger("kohort.transport")

MetadataCallback: TypeAlias = Callable[[ClusterMetadata, ClusterMetadata], None]
MIN_BOOTSTRAP_SECONDS = 0.1
"""Shortest bootstrap timeout, since a broker needs some time to respond."""

RequestMetadata: TypeAlias = (
    "Callable[[messages.MetadataRequest], Awaitable[messages.MetadataResponse]]"
)


class MetadataUpdater:
    """The keeper of the snapshot. It refreshes the snapshot with one request at a time."""

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
        self._request_metadata = request_metadata
        self._rng = rng
        self._backoff = Backoff.from_ms(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._callbacks: list[MetadataCallback] = []
        self._wanted: frozenset[str] | None = frozenset()
        self._schedule = RefreshSchedule(config, self._backoff, rng)
        self._updated = TaskSignal()  # for callers that wait
        self._contact: BrokerConnection | None = None
        """The connection of the latest request, until the first response."""
        self._unreachable = 0  # bootstrap timeouts without contact
        self._warned = False
        self._stopped = False

    # -- what is wanted -----------------------------------------------------------------------

    def want_topics(self, names: Collection[str] | None) -> None:
        """Keep metadata of these topics, or of all topics if None."""
        wanted = None if names is None else frozenset(names)
        if wanted == self._wanted:
            return
        known = wanted is not None and wanted <= self.snapshot.topics.keys()
        self._wanted = wanted
        if not known:
            self._schedule.request_now()

    def request_refresh(self) -> int:
        """Request a refresh of the stale snapshot, and return the number of that refresh."""
        return self._schedule.request()

    async def wait_refreshed(self) -> None:
        """Wait for a refresh that begins after the call. Raises as wait_bootstrapped() does."""
        number = self.request_refresh()
        await self.wait_bootstrapped()
        while not self._schedule.has_completed(number):
            await self._wait_updated()

    async def wait_bootstrapped(self, known: KafkaError | None = None) -> None:
        """Wait for the first response.

        Raises _bootstrap_error() at the end of each bootstrap timeout. Raises the refusal of all
        bootstrap servers at once, unless it has the text of ``known``.
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
        """Wait as wait_bootstrapped() does, but also while the bootstrap servers refuse."""
        await self._wait_reached(lambda: False)

    async def wait_contact(self) -> BrokerConnection | None:
        """Wait for the first request, and return its connection, or None after its response.

        Raises as wait_reached() does.
        """
        await self._wait_reached(lambda: self._contact is not None and not self._contact.failure)
        return self._contact

    async def _wait_reached(self, is_enough: Callable[[], bool]) -> None:
        before = self._unreachable
        while not self.bootstrapped and not is_enough():
            if self._unreachable != before and self._bootstrap_refusal() is None:
                raise self._bootstrap_error()
            await self._wait_updated()

    def note_contact(self, connection: BrokerConnection) -> None:
        """Note the connection of a request for metadata, until the first response."""
        if not self.bootstrapped:
            self._contact = connection
            self._updated.notify()

    def _bootstrap_refusal(self) -> KafkaError | None:
        return self._nodes.refusals.of_all(self._nodes.bootstrap)

    async def _wait_updated(self) -> None:
        if self._stopped:
            raise IllegalStateError("the cluster client is closed")
        await self._updated.wait()

    def stop(self) -> None:
        """End the wait of all callers, because no more responses come."""
        self._stopped = True
        self._updated.notify()

    def on_change(self, callback: MetadataCallback) -> None:
        """Call the callback with (old, new) after each response, in the task of the refresh."""
        self._callbacks.append(callback)

    # -- refreshing ---------------------------------------------------------------------------

    async def run(self) -> None:
        """Refresh until closed. Never raises."""
        failures = 0
        in_vain_since: float | None = None
        while True:
            await self._schedule.wait_due()
            self._schedule.begin()
            wanted = self._wanted
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
                    "no known broker returned metadata for "
                    f"{self._config.metadata_recovery_rebootstrap_trigger_ms} ms"
                )
                continue
            failures = 0
            self._schedule.complete()
            self._apply(self.snapshot.merged(response, requested=wanted))
            self._schedule.set_next(self.snapshot, self._wanted)

    @property
    def _may_rebootstrap(self) -> bool:
        return self._config.metadata_recovery_strategy == "rebootstrap"

    def _give_up_at(self, in_vain_since: float) -> float:
        """Return the time at which the client rebootstraps (KIP-1102)."""
        if not self._may_rebootstrap or not self.snapshot.brokers:
            return math.inf
        trigger = self._config.metadata_recovery_rebootstrap_trigger_ms / 1000
        return in_vain_since + max(trigger, self._backoff.initial)

    def _rebootstrap(self, why: str) -> None:
        """Forget the brokers. The next request goes to a bootstrap server."""
        logger.warning("starting again from the bootstrap servers %s: %s", self._addresses(), why)
        self.snapshot = self.snapshot.without_brokers()
        self._nodes.greetings.cluster_id = None  # the next metadata may be of another cluster
        self._nodes.forget_brokers()

    async def fetch_topics(
        self, names: Collection[str] | None, *, may_create: bool = True
    ) -> ClusterMetadata:
        """Request the metadata of these topics, or of all if None, and retry without limit.

        Returns a snapshot with all of them. ``snapshot`` has those without an error until the next
        refresh of the wanted topics. Without ``may_create`` the request creates no topic, whatever
        the configuration says.
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
        """Add newer leaders that a broker named with an error to the snapshot (KIP-951)."""
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
        # A request for all topics creates none, even with the flag.
        create = (self._config.allow_auto_create_topics and may_create) or names is None
        response = await self._request_metadata(
            messages.MetadataRequest(topics=topics, allow_auto_topic_creation=create)
        )
        if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED and self._may_rebootstrap:
            self._rebootstrap("a broker requested it")
        if response.error_code:
            raise broker_error(response.error_code)
        if not response.brokers:
            raise KafkaConnectionError("the metadata names no brokers, so the broker is starting")
        return response

    def _apply(self, new: ClusterMetadata) -> None:
        old, self.snapshot = self.snapshot, new
        if old.cluster_id is not None and old.cluster_id != new.cluster_id:
            logger.warning(
                "the cluster has another id: it was %s and is now %s",
                escaped(old.cluster_id),
                escaped(str(new.cluster_id)),
            )
        if not self.bootstrapped:
            self.bootstrapped, self._contact = True, None
            self._nodes.refusals.keep(())  # some bootstrap servers may have refused before
            if self._warned:
                logger.info("the cluster is reached with brokers %s", sorted(new.brokers))
        if self._may_rebootstrap and self._config.metadata_cluster_check_enable:
            self._nodes.greetings.cluster_id = new.cluster_id
        self._nodes.set_brokers(new.brokers)
        self._nodes.clear_answered_login_refusals()
        self._updated.notify()
        for callback in self._callbacks:
            try:
                callback(old, new)
            except Exception:
                # A bug of the callback must not end the refreshes.
                logger.exception("a metadata callback raised")

    # -- the first contact --------------------------------------------------------------------

    async def watch_bootstrap(self) -> None:
        """Wake callers of wait_bootstrapped() at the end of each bootstrap_timeout_ms."""
        seconds = self._config.bootstrap_timeout_ms / 1000
        while not self.bootstrapped:
            if seconds:
                await anyio.sleep(max(seconds, MIN_BOOTSTRAP_SECONDS))
            else:
                await self._wait_all_failed()
            self._unreachable += 1
            self._updated.notify()

    async def _wait_all_failed(self) -> None:
        """Wait until each bootstrap server failed once, or had the time of a request for that."""
        nodes = self._nodes.bootstrap.values()
        before = {node: node.failures for node in nodes}
        with anyio.move_on_after(len(before) * self._config.request_timeout_ms / 1000):
            while any(node.failures == before[node] or node.prober for node in nodes):
                await self._nodes.changed.wait()

    def node_failed(self, node: Node, error: KafkaError, lost: bool) -> None:
        """Note a failed connection, and log the first failure of each series."""
        text = reason(error)
        if isinstance(error, RebootstrapRequiredError):
            if self._may_rebootstrap and self.snapshot.brokers:
                self._rebootstrap(text)
                self.request_refresh()
        elif is_refusal(error):
            if self._nodes.refusals.add(node.broker.id, node.peer, error):
                logger.warning("%s: %s", type(error).__name__, text)
                if self.bootstrapped:
                    self._nodes.refusals.on_new(error)
            self._updated.notify()
        elif self.bootstrapped:
            is_new = lost and node.failures == 1 and node.logged != node.not_before
            if is_new:
                node.logged = node.not_before
            level = logging.WARNING if is_new else logging.DEBUG
            logger.log(level, "broker %d: %s", node.broker.id, text)
            if lost:
                self.request_refresh()
        else:
            if self._warned:
                logger.debug("bootstrap server: %s", text)
            else:
                self._warned = True
                servers = self._addresses()
                logger.warning("no bootstrap server of %s is reached yet: %s", servers, text)
            self._updated.notify()

    def _addresses(self) -> str:
        return ", ".join(address(*server) for server in self._config.bootstrap_servers)

    def _bootstrap_error(self) -> KafkaError:
        return unreached(self._nodes, self._config)
