"""ClusterClient: requests to the brokers of a cluster, and its metadata.

``run()`` owns every task of the transport. Nodes has the brokers, with a back-off and connections
for each. A node has one connection for each purpose, so fetches and the coordinator do not wait for
each other. The first request opens it, and a task serves it until it ends. MetadataUpdater
refreshes the snapshot. Bootstrap addresses are nodes with negative ids.

A request to a node takes these steps, all within one timeout:

1. It waits for the end of the node's back-off, and then for a connection.
2. A connection without a response for long, and without requests in flight, may be dead.
   ``is_alive()`` checks it, and a new one replaces a dead one. So the request is sent once.
3. The connection sends the request with the time that is left.

A request to any broker goes to the node with the fewest requests in flight. Of these, connected
ones come first, then those that were idle longest. It opens connections side by side. The next
broker is tried when one has failed or has not responded for half a second. The first open
connection ends the other attempts. Before the first contact only a look-up of a coordinator is
sent, right after the first request for metadata. Its response waits for the first contact.

The client uses bootstrap addresses at the start, and while every known broker is in back-off
(KIP-899). The connection of the first contact becomes that of the broker with the same address. The
client forgets the known brokers if they return no metadata for
``metadata_recovery_rebootstrap_trigger_ms``, or request it (KIP-1102).

Invariants:

1. All of it belongs to one event loop, so it has no locks. Other threads only read ``metadata``,
   ``bootstrapped`` and ``line()``, and release a lease.
2. A back-off begins before callers of failed requests continue. So a caller that retries at once
   does not spin.
3. A close by this client begins no back-off. A broker that accepts and closes each time keeps its
   count of failures, because only a response resets it.
4. A SecurityError of a connection is a refusal, because the same settings fail again. Callers of
   ``request()`` get a KafkaConnectionError instead. The back-off is then 1 to 30 s.
5. Before the first contact ``wait_bootstrapped()`` raises a refusal of all bootstrap servers. Later
   ``on_refusal()`` reports each cause once.
6. The last reference to a closed client frees it without the garbage collector. So parts call their
   owner through ``weak_callback()``, and ``start_soon()`` starts the tasks. Log calls pass
   ``str(error)``, because handlers may keep records, and a traceback refers to everything.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import anyio

from kohort.config import ClientConfig, SecurityConfig
from kohort.errors import (
    IllegalStateError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
)
from kohort.logs import get_logger
from kohort.protocol import Request, Response, VersionRange, messages
from kohort.transport._backoff import SYSTEM_RNG
from kohort.transport._printable import in_seconds, reason
from kohort.transport.cluster._metadata import BrokerAddress, ClusterMetadata, Leader
from kohort.transport.cluster._metadata_refresh import MetadataCallback, MetadataUpdater
from kohort.transport.cluster._nodes import Nodes
from kohort.transport.connection._connection import BrokerConnection
from kohort.transport.connection._frames import Leased
from kohort.transport.connection._response_reader import Line
from kohort.transport.network._bytes import Connect
from kohort.transport.network._lifetimes import start_soon, weak_callback
from kohort.transport.network._loop import OneShot
from kohort.transport.network._tcp import TcpConnector
from kohort.types import TopicPartition

if TYPE_CHECKING:
    from kohort.config import ConsumerConfig
    from kohort.security import TlsContexts
    from kohort.transport.cluster._tls_connector import TlsConnector
    from kohort.transport.network._attempts import Attempt

logger = get_logger("kohort.transport")

R = TypeVar("R", bound=Response)

METADATA_MIN_VERSION = 4
"""First version with a flag that forbids the creation of topics (Kafka 0.11)."""
CLOSE_SECONDS = 2.0
BROKER_STAGGER = 0.5
"""Seconds until another broker is tried beside one whose connection is not open yet."""
MOST_BROKERS = 20
"""Brokers that are tried at a time."""
LONGEST_CHECK = 5.0
"""Longest time in seconds to check a connection that was unused for long."""


def _nothing() -> None:
    pass


def is_end_of_client(error: BaseException) -> bool:
    """True if an error says that the cluster client has ended with its owner.

    The owner reports why it ended. No other part reports this error.
    """
    return isinstance(error, IllegalStateError)


class ClusterClient:
    """The client of a cluster, which the other packages send their requests with.

    run() has to be running. All methods belong to its event loop. Only reading ``metadata`` and
    ``bootstrapped``, and releasing a lease, are safe from other threads.
    """

    def __init__(
        self,
        config: ClientConfig,
        *,
        connect: Connect | None = None,
        connect_encrypts: bool = False,
        rng: random.Random | None = None,
        security: SecurityConfig | None = None,
        wall_clock: Callable[[], float] | None = None,
    ) -> None:
        """Create a client. ``security`` is PLAINTEXT by default.

        A ``connect`` hook replaces TCP. With ``connect_encrypts`` it replaces TLS as well.

        Raises InvalidOptionError for TLS files that do not load, and for options without a login.
        """
        rng = rng or SYSTEM_RNG
        security = security or SecurityConfig()
        self._config = config
        self._security = security
        self.contexts: TlsContexts | None = None
        """SSL contexts of the connections, or None without TLS or if a hook encrypts."""
        self.proxy: str | None = None if security.proxy.url is None else str(security.proxy.url)
        """The proxy without its credentials, or None."""
        if security.proxy.url is not None and connect is None:
            from kohort.transport.network._proxy import ProxyConnector  # few consumers need it

            connect = ProxyConnector(config, security.proxy)
        self._connect_encrypts = connect_encrypts
        self._tls: TlsConnector | None = None
        if security.uses_tls and not connect_encrypts:
            from kohort.security import TlsContexts
            from kohort.transport.cluster._tls_connector import TlsConnector

            self.contexts = TlsContexts(security)
            connect = self._tls = TlsConnector(config, self.contexts, connect)
        self._nodes = Nodes(config, connect or TcpConnector(config), rng, security, wall_clock)
        self._metadata_updater = MetadataUpdater(
            config, self._nodes, weak_callback(self._request_metadata), rng
        )
        self._nodes.on_failure = weak_callback(self._metadata_updater.node_failed)
        self._scope: anyio.CancelScope | None = None
        self._ended: OneShot | None = None
        self._closed = False

    @classmethod
    def of(cls, config: ConsumerConfig, rng: random.Random) -> ClusterClient:
        """Return the client that a consumer's options describe. Raises as the constructor does."""
        return cls(
            config.client,
            connect=config.connect,
            connect_encrypts=config.connect_encrypts,
            rng=rng,
            security=config.security,
            wall_clock=config.wall_clock,
        )

    # -- life ---------------------------------------------------------------------------------

    async def run(self, started: Callable[[], None] = _nothing) -> None:
        """Run the tasks of the transport until cancelled or closed. Call it once.

        Call ``started`` when the tasks run, so that requests may be sent.
        """
        if self._ended is not None or self._closed:
            raise IllegalStateError("a cluster client runs once")
        self._ended = OneShot()
        try:
            async with anyio.create_task_group() as tasks:
                self._scope = tasks.cancel_scope
                self._nodes.start(tasks)
                start_soon(tasks, self._metadata_updater.run)
                start_soon(tasks, self._metadata_updater.watch_bootstrap)
                start_soon(tasks, self._nodes.close_idle)
                started()
                try:
                    await anyio.sleep_forever()
                finally:
                    self._stop()
        finally:
            self._ended.set()

    def _stop(self) -> None:
        self._closed = True
        self._nodes.stop()
        self._metadata_updater.stop()

    async def aclose(self) -> None:
        """End run() and close all connections within two seconds. Idempotent."""
        self._stop()
        if self._scope is not None and self._ended is not None:
            self._scope.cancel()
            with anyio.move_on_after(CLOSE_SECONDS):
                await self._ended.wait()

    # -- metadata -----------------------------------------------------------------------------

    @property
    def metadata(self) -> ClusterMetadata:
        """The latest snapshot. It is empty before the first contact."""
        return self._metadata_updater.snapshot

    @property
    def bootstrapped(self) -> bool:
        """True once the cluster was reached."""
        return self._metadata_updater.bootstrapped

    def want_topics(self, names: Collection[str] | None) -> None:
        """Keep metadata of these topics, or of all topics if None."""
        self._metadata_updater.want_topics(names)

    def request_refresh(self) -> None:
        """Request a refresh of stale metadata, at most one every ``retry_backoff_ms``."""
        self._metadata_updater.request_refresh()

    async def wait_refreshed(self) -> None:
        """Wait for a refresh that begins after the call. Raises as wait_bootstrapped() does."""
        await self._metadata_updater.wait_refreshed()

    async def wait_bootstrapped(self, known: KafkaError | None = None) -> None:
        """Wait for the first contact with the cluster.

        Raises NoBrokersAvailable after each ``bootstrap_timeout_ms`` without contact. Raises a
        SecurityError as soon as every bootstrap server refuses this client for good, unless the
        error has the text of ``known``.
        """
        await self._metadata_updater.wait_bootstrapped(known)

    def on_refusal(
        self, new: Callable[[KafkaError], None], over: Callable[[KafkaError], None]
    ) -> None:
        """Call ``new`` with the error when brokers refuse this client for another cause.

        Call ``over`` with the same error when no broker refuses it for that cause any longer.
        wait_bootstrapped() raises refusals before the first contact instead.
        """
        self._nodes.refusals.on_new = new
        self._nodes.refusals.on_over = over

    @property
    def principal(self) -> str | None:
        """The user of the latest login, or the subject of the client certificate.

        Before the first login it is the user of the options. None if nothing names it.
        """
        if self._security.uses_sasl:
            return self._nodes.principal or self._security.sasl.sasl_plain_username
        if self.contexts is None or self.contexts.certificate is None:
            return None
        return self.contexts.certificate.subject or None

    @property
    def encrypted_by(self) -> str | None:
        """``kohort`` or ``connect``, which encrypts the connections, or None without encryption."""
        if self._connect_encrypts or (self._tls is not None and self._tls.found_encrypted):
            return "connect"
        return None if self._tls is None else "kohort"

    @property
    def api_versions(self) -> Mapping[int, VersionRange]:
        """Versions of each API that the broker of the latest connection serves."""
        return self._nodes.api_versions

    @property
    def refusals(self) -> list[str]:
        """Current refusals of brokers, a text for each cause."""
        return self._nodes.refusals.texts()

    @property
    def last_error(self) -> str | None:
        """The latest failure of a connection, or None."""
        return self._nodes.last_error(None).removeprefix(": ") or None

    @property
    def unreachable(self) -> dict[int, str]:
        """The error of each broker that cannot be connected to, as a clause."""
        return self._nodes.unreachable()

    def close_connection(self, node: int, purpose: str, /) -> None:
        """Close the connection to a node for ``purpose``, unless a request uses it."""
        self._nodes.close_unused(node, purpose)

    def line(self, node: int, /) -> Line | None:
        """Return the measured line to a broker, or None for an unknown broker.

        Any thread may call it.
        """
        return self._nodes.line(node)

    def credentials_obstacle(self, now: float) -> str | None:
        """Return the reason why logins wait for credentials at ``now``, or None."""
        error = self._nodes.credentials_obstacle(now)
        return None if error is None else f"{type(error).__name__}: {error}"

    async def fetch_topics(
        self, names: Collection[str] | None, /, *, may_create: bool = True
    ) -> ClusterMetadata:
        """Request the metadata of these topics, or of all if None, and retry without limit.

        Returns a snapshot with all of them, errors included. ``metadata`` has those without an
        error until the next refresh of the wanted topics. Without ``may_create`` the request
        creates no topic, whatever the configuration says.
        """
        return await self._metadata_updater.fetch_topics(names, may_create=may_create)

    def learn_leaders(
        self, leaders: Mapping[TopicPartition, Leader], brokers: Iterable[BrokerAddress]
    ) -> None:
        """Add newer leaders that a broker named with an error to ``metadata``.

        ``brokers`` has their addresses (KIP-951).
        """
        self._metadata_updater.learn_leaders(leaders, brokers)

    def on_metadata_change(self, callback: MetadataCallback) -> None:
        """Call the callback with (old, new) after each response, even without a change."""
        self._metadata_updater.on_change(callback)

    # -- requests -----------------------------------------------------------------------------

    def least_loaded_node(self) -> int | None:
        """Return the node with the fewest requests in flight.

        Among these, silent nodes come last, and connected ones first, then the one that was idle
        longest. Nodes in back-off are left out. None is returned if no node is left. Before the
        first contact, and while no broker can be reached, the node is a bootstrap address with a
        negative id.
        """
        return self._nodes.least_loaded()

    async def request(
        self,
        message: Request[R],
        *,
        node: int | None = None,
        purpose: str = "",
        timeout_ms: int | None = None,
        max_version: int | None = None,
        min_version: int | None = None,
    ) -> R:
        """Send a request to a node over its connection for ``purpose`` and return the response.

        ``node``: None sends to the least loaded node. A missing connection is opened after the
        node's back-off. All of that takes ``timeout_ms`` at most, by default
        ``request_timeout_ms``. Raises KafkaTimeoutError, KafkaConnectionError, ProtocolError,
        UnsupportedVersionError, NoBrokersAvailable before the first contact, and IllegalStateError
        when closed. The caller checks the error codes in the response.
        """
        is_lookup = isinstance(message, messages.FindCoordinatorRequest)
        connection, left = await self._connected(node, purpose, timeout_ms, may_be_early=is_lookup)
        deadline = anyio.current_time() + left if is_lookup else math.inf
        response = await connection.request(
            message, timeout=left, min_version=min_version, max_version=max_version
        )
        if isinstance(response, messages.FindCoordinatorResponse):
            if not self.bootstrapped:
                with anyio.CancelScope(deadline=deadline):
                    await self._metadata_updater.wait_reached()
                if not self.bootstrapped:
                    raise KafkaTimeoutError(
                        "the coordinator was found, but no broker has sent metadata in time"
                        f"{self._nodes.last_error(None)}"
                    )
            self._learn(response)
        return response

    def prepare(self, node: int, purpose: str, /) -> None:
        """Begin to open the connection to a node for a purpose, because a request will need it.

        Do nothing if there is one, or if the node is unknown. A failure begins its back-off.
        """
        self._nodes.prepare(node, purpose)

    async def request_alone(
        self,
        message: Request[R],
        *,
        node: int,
        timeout_ms: int,
        max_version: int | None = None,
        min_version: int | None = None,
    ) -> R:
        """Send a request to a known node over a connection for it alone.

        It works in any event loop, also after the end of run(). Raises as request() does.
        """
        known = self._nodes.brokers.get(node)
        if known is None:
            raise KafkaConnectionError(f"broker {node} is not among the known brokers")
        connection = await self._nodes.open_alone(known.broker)
        async with anyio.create_task_group() as tasks:
            start_soon(tasks, connection.run)
            try:
                response = await connection.request(
                    message,
                    timeout=timeout_ms / 1000,
                    min_version=min_version,
                    max_version=max_version,
                )
            finally:
                connection.abort()
                tasks.cancel_scope.cancel()
        return response

    async def request_leased(
        self,
        message: Request[R],
        *,
        node: int | None = None,
        purpose: str = "",
        timeout_ms: int | None = None,
        max_version: int | None = None,
        min_version: int | None = None,
        on_response: Callable[[Leased[R]], None] | None = None,
    ) -> Leased[R]:
        """Send a request as request() does, for a large response.

        See :meth:`BrokerConnection.request_leased`.
        """
        connection, left = await self._connected(node, purpose, timeout_ms)
        return await connection.request_leased(
            message,
            timeout=left,
            min_version=min_version,
            max_version=max_version,
            on_response=on_response,
        )

    async def _connected(
        self,
        node: int | None,
        purpose: str,
        timeout_ms: int | None,
        *,
        may_be_early: bool = False,
    ) -> tuple[BrokerConnection, float]:
        """Return a connection, and the seconds that are left for the request.

        ``may_be_early``: a request to any broker may follow the first request for metadata at once.
        """
        timeout = (self._config.request_timeout_ms if timeout_ms is None else timeout_ms) / 1000
        if node is not None and (found := self._nodes.open_connection(node, purpose)) is not None:
            if not found.is_silent(self._nodes.longest_silence):
                return found, timeout
        deadline = anyio.current_time() + timeout
        connection: BrokerConnection | None = None
        with anyio.CancelScope(deadline=deadline):
            if node is None:
                if may_be_early:
                    connection = await self._metadata_updater.wait_contact()
                else:
                    await self._metadata_updater.wait_reached()
                connection = connection or await self._any_connection(purpose, timeout)
            else:
                connection = await self._known_connection(node, purpose, timeout)
        if connection is None:
            target = "any broker" if node is None else f"broker {node}"
            raise KafkaTimeoutError(
                f"no connection to {target} within {in_seconds(timeout)}"
                f"{self._nodes.last_error(node)}"
            )
        return connection, max(deadline - anyio.current_time(), 0.0)

    async def _known_connection(self, node: int, purpose: str, timeout: float) -> BrokerConnection:
        while True:
            if not self._nodes.knows(node):
                self._metadata_updater.request_refresh()
            connection = await self._nodes.connection(node, purpose)
            if await self._is_usable(connection, timeout):
                return connection

    async def _is_usable(self, connection: BrokerConnection, timeout: float) -> bool:
        """Check a connection that was unused for long, with a share of the time of a request.

        A load balancer may have forgotten it, and a request over it would get no response. This
        way the request is sent once, and a new connection still has most of its time.
        """
        if not connection.is_silent(self._nodes.longest_silence):
            return True
        return await connection.is_alive(min(timeout / 4, LONGEST_CHECK))

    async def _any_connection(self, purpose: str, timeout: float) -> BrokerConnection:
        """Return a connection to any broker. A failure starts the back-off of its node.

        Connections that take long are opened side by side. The first one that is open is returned.
        """
        while True:
            node = await self._nodes.wait_least_loaded()
            connection = self._nodes.open_connection(node, purpose)
            if connection is None:
                connection = await self._first_open(purpose)
            if connection is not None and await self._is_usable(connection, timeout):
                return connection

    async def _first_open(self, purpose: str) -> BrokerConnection | None:
        from kohort.transport.network._attempts import first_success  # not before the first contact

        nodes, tried = self._nodes, set[int]()
        opening: set[int] = set()

        async def attempt(node: int) -> BrokerConnection | None:
            opening.add(node)
            try:
                return await nodes.connection(node, purpose)
            except IllegalStateError:
                raise
            except KafkaError as error:
                logger.debug("%s", reason(error))
                return None
            finally:
                opening.discard(node)

        async def next_attempt() -> Attempt[BrokerConnection] | None:
            node = await nodes.wait_least_loaded()
            if node in opening:
                return None
            tried.add(node)
            return partial(attempt, node)

        found = await first_success(
            next_attempt, _keep_open, stagger=BROKER_STAGGER, at_most=MOST_BROKERS
        )
        if found is not None:
            nodes.stop_opening(tried, purpose)
        return found

    async def _request_metadata(
        self, message: messages.MetadataRequest
    ) -> messages.MetadataResponse:
        timeout_ms = self._config.request_timeout_ms
        if not self.bootstrapped:
            # A server that never responds must not use up the time of the others.
            timeout_ms = min(timeout_ms, self._config.socket_connection_setup_timeout_ms)
        connection = await self._any_connection("", timeout_ms / 1000)
        self._metadata_updater.note_contact(connection)
        return await connection.request(
            message, timeout=timeout_ms / 1000, min_version=METADATA_MIN_VERSION
        )

    def _learn(self, response: messages.FindCoordinatorResponse) -> None:
        """Add the coordinators of a response, which the metadata may not have yet."""
        found = [(response.node_id, response.host, response.port)]
        found += [(each.node_id, each.host, each.port) for each in response.coordinators]
        for node_id, host, port in found:
            if node_id >= 0 and host:
                self._nodes.add_broker(BrokerAddress(node_id, host, port))


def _keep_open(connection: BrokerConnection) -> None:
    """Leave a second connection that opened at the same time to its next request."""
