"""Nodes: the brokers with their connections by purpose, back-off, and load.

:mod:`kohort.transport.cluster._node_choice` chooses one of them for a request to any broker.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import anyio

from kohort.config import ClientConfig, SecurityConfig
from kohort.errors import (
    BrokerResponseError,
    CredentialsUnavailableError,
    IllegalStateError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    MessageDecodeError,
    SecurityError,
    TlsVerificationError,
    WrongListenerError,
)
from kohort.logs import get_logger
from kohort.protocol import VersionRange
from kohort.transport._backoff import Backoff
from kohort.transport._printable import address, reason
from kohort.transport.cluster._metadata import BrokerAddress
from kohort.transport.cluster._node_choice import least_loaded
from kohort.transport.cluster._refusals import BrokerRefusals, copy_of, is_refusal
from kohort.transport.connection._connection import BrokerConnection
from kohort.transport.connection._pool import BufferPool
from kohort.transport.connection._response_reader import Line, SilenceLog
from kohort.transport.connection._versions import BrokerVersions, Greeting, Greetings
from kohort.transport.network._bytes import Connect
from kohort.transport.network._lifetimes import start_soon
from kohort.transport.network._loop import OneShot, TaskSignal

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from kohort.security import Mechanism

logger = get_logger("kohort.transport")

REFUSED_BACKOFF = Backoff(1.0, 30.0)
"""Pauses before another connection to a broker that refused this client."""
LONGEST_SILENCE = 15.0
"""Seconds without a response after which an unused connection may be dead."""
LEAST_SILENCE = 4.0
"""The same for a short request timeout. It is above the default interval of heartbeats."""
PROBE_PAUSE = 3.0
"""Seconds without other connections to a broker while its listener is probed."""

PROBE_INTERVAL = 30.0
"""Seconds between two probes of a listener that closes connections."""


class PurposeConnection:
    """A node's connection for one purpose, which is opening, open or closed."""

    __slots__ = ("broker", "connection", "error", "node", "opened", "scope", "waiters")

    def __init__(self, node: Node) -> None:
        self.node = node
        """The node that has it, which changes when a bootstrap address becomes a broker."""
        self.broker = node.broker
        self.connection: BrokerConnection | None = None
        self.error: KafkaError | None = None
        self.opened = OneShot()
        self.scope = anyio.CancelScope()
        self.waiters = 0

    @property
    def load(self) -> int:
        """Number of requests in flight, and of those that wait for the connection to open."""
        return self.waiters + (0 if self.connection is None else self.connection.in_flight)


class Node:
    """A broker. Bootstrap addresses are nodes too, with negative ids."""

    __slots__ = (
        "broker",
        "connections",
        "error",
        "failures",
        "last_used",
        "line",
        "logged",
        "not_before",
        "probe_at",
        "prober",
        "reached",
        "silence",
        "wants_login",
    )

    def __init__(self, broker: BrokerAddress) -> None:
        self.broker = broker
        self.connections: dict[str, PurposeConnection] = {}
        self.failures = 0
        self.not_before = -math.inf
        self.logged = -math.inf
        """``not_before`` of the logged failure. Connections that fail together share it."""
        self.error: KafkaError | None = None
        """The latest failure, or None once a connection is open."""
        self.last_used = -math.inf
        self.silence = SilenceLog()
        self.line = Line()
        self.reached = False
        """True after the first handshake at this address."""
        self.probe_at = -math.inf
        """Earliest time of the next probe for a listener that requires a login."""
        self.prober: PurposeConnection | None = None
        """The lost connection whose task probes whether the listener requires a login."""
        self.wants_login: KafkaError | None = None
        """The refusal of a listener that closed because it requires a login."""

    @property
    def peer(self) -> str:
        return address(self.broker.host, self.broker.port)

    @property
    def load(self) -> int:
        return sum(entry.load for entry in self.connections.values())

    @property
    def is_connected(self) -> bool:
        """True if its connection without a special purpose is open."""
        entry = self.connections.get("")
        return entry is not None and entry.connection is not None

    def is_silent(self, seconds: float) -> bool:
        """True if it has open connections, and none of them got a response for that time."""
        connections = [c for e in self.connections.values() if (c := e.connection) is not None]
        return bool(connections) and all(each.is_silent(seconds) for each in connections)

    @property
    def versions(self) -> BrokerVersions | None:
        """The versions of an open connection to its address, or None if there is none."""
        for entry in self.connections.values():
            connection = entry.connection
            if connection is not None and connection.failure is None:
                return connection.versions if entry.broker == self.broker else None
        return None

    @property
    def idle_since(self) -> float:
        """Time of its last use, or minus infinity."""
        connections = (entry.connection for entry in self.connections.values())
        return max((c.last_used for c in connections if c is not None), default=self.last_used)


class Nodes:
    """All nodes of a cluster. start() gets the task group for the connections."""

    def __init__(
        self,
        config: ClientConfig,
        connect: Connect,
        rng: random.Random,
        security: SecurityConfig,
        wall_clock: Callable[[], float] | None = None,
    ) -> None:
        self.on_failure: Callable[[Node, KafkaError, bool], None] = lambda *_: None
        """Callback (node, error, lost), where ``lost`` is True if requests were lost."""
        self.refusals = BrokerRefusals()
        self.principal: str | None = None
        """The user of the latest SASL login."""
        self.api_versions: Mapping[int, VersionRange] = {}
        """Versions of each API that the broker of the latest connection serves."""
        self.greetings = Greetings()
        self._common: BrokerVersions | None = None
        """The versions that all brokers of the cluster serve, if they are known."""
        self._config = config
        self._security = security
        self._connect = connect
        self.mechanism: Mechanism | None = None
        """SASL mechanism of the connections, or None without SASL."""
        if security.uses_sasl:
            from kohort.security import mechanism_of  # only listeners with SASL need it

            self.mechanism = mechanism_of(security, clock=wall_clock)
        self._rng = rng
        self._backoff = Backoff.from_ms(
            config.reconnect_backoff_ms, config.reconnect_backoff_max_ms
        )
        self._pool = BufferPool()
        self.longest_silence = min(
            LONGEST_SILENCE, max(config.request_timeout_ms / 2000, LEAST_SILENCE)
        )
        """Seconds without a response after which an unused connection is checked."""
        self._tasks: TaskGroup | None = None
        self.changed = TaskSignal()
        """Signal that nodes came, failed, or were probed."""
        self.bootstrap = {
            -index: Node(BrokerAddress(-index, host, port))
            for index, (host, port) in enumerate(config.bootstrap_servers, 1)
        }
        self.brokers: dict[int, Node] = {}

    def start(self, tasks: TaskGroup) -> None:
        """Allow connections, and run them in this task group."""
        self._tasks = tasks

    def stop(self) -> None:
        """Close all connections, open no more, and end all waits."""
        self._tasks = None
        for node in [*self.brokers.values(), *self.bootstrap.values()]:
            self._close(node.connections.values())
        self.changed.notify()

    def _running(self) -> TaskGroup:
        if self._tasks is None:
            raise IllegalStateError("the cluster client is not running")
        return self._tasks

    # -- known nodes ------------------------------------------------------------------------

    def set_brokers(self, brokers: Mapping[int, BrokerAddress]) -> None:
        """Take over the brokers of the metadata.

        A broker with a new address loses its connections. A removed broker keeps them until they
        close.
        """
        for broker in brokers.values():
            self.add_broker(broker, known=True)
            self._adopt_connection(self.brokers[broker.id])
        for node_id in [id for id in self.brokers if id not in brokers]:
            if not self.brokers[node_id].connections:
                del self.brokers[node_id]
                self.refusals.remove(node_id)
        if brokers:
            # New connections to other addresses of the same brokers use their ids.
            for node in self.bootstrap.values():
                self._close(entry for entry in node.connections.values() if not entry.load)
        self.changed.notify()

    def _adopt_connection(self, node: Node) -> None:
        """Move the connection of a bootstrap server to the broker that has the same address.

        A new one would take two round trips, and the first requests wait for it.
        """
        for server in self.bootstrap.values():
            entry = server.connections.get("")
            if server.peer != node.peer or entry is None or entry.connection is None:
                continue
            if "" not in node.connections and entry.connection.failure is None:
                node.connections[""] = server.connections.pop("")
                node.line, node.silence, node.reached = server.line, server.silence, True
                server.failures, server.last_used = 0, entry.connection.last_used  # it responded
                entry.node, entry.broker = node, node.broker
                self._watch_silence(node, entry.connection)
                return

    def add_broker(self, broker: BrokerAddress, *, known: bool = False) -> None:
        """Add a broker. Only with ``known`` does a new address replace that of the metadata."""
        node = self.brokers.get(broker.id)
        if node is None:
            self.brokers[broker.id] = Node(broker)
        elif known:
            moved = (node.broker.host, node.broker.port) != (broker.host, broker.port)
            node.broker = broker
            if moved:
                logger.info("broker %d is now at %s", broker.id, node.peer)
                self._close(node.connections.values())
                node.connections.clear()
                node.failures, node.not_before = 0, -math.inf
                node.reached, node.wants_login, node.line = False, None, Line()
                self.refusals.remove(broker.id)

    def forget_brokers(self) -> None:
        """Forget all brokers, so that only bootstrap addresses are left."""
        for node in self.brokers.values():
            self._close(node.connections.values())
        self.brokers.clear()
        self._common = None
        self.refusals.keep(self.bootstrap.keys())
        self.changed.notify()

    def line(self, node_id: int) -> Line | None:
        """Return the measured line to a node, or None for an unknown node. Any thread may call."""
        node = self.brokers.get(node_id)
        return None if node is None else node.line

    def knows(self, node_id: int) -> bool:
        """Return True if the node is known."""
        return node_id in self.brokers or node_id in self.bootstrap

    def last_error(self, node_id: int | None) -> str:
        """Return the latest error of a node, or of any node if None, as the end of a sentence."""
        nodes = [*self.brokers.values(), *self.bootstrap.values()]
        for node in nodes:
            if node.error is not None and node_id in (None, node.broker.id):
                return f": {reason(node.error)}"
        return ""

    def unreachable(self) -> dict[int, str]:
        """Return the error of each broker that cannot be connected to, as a clause.

        A single lost connection is left out, because brokers close idle ones. So are refusals.
        """
        return {
            number: reason(node.error)
            for number, node in self.brokers.items()
            if node.error is not None
            and not is_refusal(node.error)
            and (node.failures > 1 or not node.reached)
        }

    def credentials_obstacle(self, now: float) -> CredentialsUnavailableError | None:
        """Return the reason why logins wait for credentials, or None."""
        return None if self.mechanism is None else self.mechanism.credentials_obstacle(now)

    # -- choosing -----------------------------------------------------------------------------

    def least_loaded(self) -> int | None:
        """Return the node for a request to any broker, or None if no node is left."""
        return least_loaded(
            self.brokers.values(),
            self.bootstrap.values(),
            anyio.current_time(),
            self._rng,
            longest_silence=self.longest_silence,
            may_rebootstrap=self._config.metadata_recovery_strategy == "rebootstrap",
        )

    async def wait_least_loaded(self) -> int:
        """Return least_loaded(), after the end of the first back-off if necessary."""
        while (node_id := self.least_loaded()) is None:
            self._running()
            nodes = [*self.brokers.values(), *self.bootstrap.values()]
            now = anyio.current_time()
            ends = [node.not_before for node in nodes if node.not_before > now]
            with anyio.CancelScope(deadline=min(ends, default=now)):
                await self.changed.wait()
        return node_id

    # -- connections --------------------------------------------------------------------------

    def open_connection(self, node_id: int, purpose: str) -> BrokerConnection | None:
        """Return the connection to a node for a purpose, or None unless it is open."""
        node = self.brokers.get(node_id) or self.bootstrap.get(node_id)
        entry = None if node is None else node.connections.get(purpose)
        return None if entry is None else entry.connection

    async def connection(self, node_id: int, purpose: str) -> BrokerConnection:
        """Return the connection to a node for a purpose. Open it after the back-off if necessary.

        Raises as BrokerConnection.open() does, and KafkaConnectionError for an unknown node. A
        SecurityError becomes a KafkaConnectionError, because callers retry and :attr:`refusals`
        reports it. So does the refusal of a broker that is another one.
        """
        node = self.brokers.get(node_id) or self.bootstrap.get(node_id)
        if node is None:
            raise KafkaConnectionError(f"broker {node_id} is not among the known brokers")
        entry = node.connections.get(purpose)
        if entry is None:
            entry = self._begin(node, purpose)
        if entry.connection is None:
            entry.waiters += 1
            try:
                await entry.opened.wait()
            finally:
                entry.waiters -= 1
        if entry.connection is None:
            error = entry.error or KafkaConnectionError(
                f"no connection to {node.peer}: it was closed while it opened"
            )
            if isinstance(error, SecurityError | BrokerResponseError | MessageDecodeError):
                raise KafkaConnectionError(str(error)) from error
            raise type(error)(*error.args) from error
        return entry.connection

    def close_unused(self, node_id: int, purpose: str) -> None:
        """Close the connection to a node for a purpose, unless a request uses it."""
        node = self.brokers.get(node_id)
        entry = None if node is None else node.connections.get(purpose)
        if entry is not None and not entry.load:
            self._close([entry])

    def _begin(self, node: Node, purpose: str) -> PurposeConnection:
        """Begin to open a connection."""
        tasks = self._running()
        entry = node.connections[purpose] = PurposeConnection(node)
        start_soon(tasks, self._serve, purpose, entry)
        return entry

    def prepare(self, node_id: int, purpose: str) -> None:
        """Begin to open a connection to a known broker, unless there is one."""
        node = self.brokers.get(node_id)
        if node is not None and self._tasks is not None and purpose not in node.connections:
            self._begin(node, purpose)

    def stop_opening(self, node_ids: Iterable[int], purpose: str) -> None:
        """Close the connections to these nodes that are opening and have no waiting caller."""
        for node_id in node_ids:
            node = self.brokers.get(node_id) or self.bootstrap.get(node_id)
            entry = None if node is None else node.connections.get(purpose)
            if entry is not None and entry.connection is None and not entry.waiters:
                self._close([entry])

    async def _serve(self, purpose: str, entry: PurposeConnection) -> None:
        """Open a connection and keep it running until it ends."""
        try:
            with entry.scope:
                await anyio.sleep_until(entry.node.not_before)
                await self._open_and_run(purpose, entry)
        finally:
            if entry.node.prober is entry:
                entry.node.prober = None
                self.changed.notify()
            _forget(purpose, entry)
            entry.opened.set()

    async def _open_and_run(self, purpose: str, entry: PurposeConnection) -> None:
        node = entry.node
        try:
            connection = await self.open_alone(
                entry.broker, node.line, partial(self._known_versions, node)
            )
        except KafkaError as error:
            entry.error = self._explained(node, error)
            self._failed(node, entry.error)
            return
        # The back-off must begin before callers of failed requests can retry.
        self._watch_silence(node, connection)
        node.silence.note(_named(node), None)
        connection.call_on_close(lambda: self._closed(purpose, entry, connection))
        entry.connection = connection
        entry.opened.set()
        node.error = None
        connection.call_on_confirmation(lambda: self._confirmed(entry, connection))
        if connection.logins is not None:
            self.principal = connection.logins.session.principal or None
        if node.wants_login is None:
            self.refusals.remove(node.broker.id)
        logger.debug("connected to %s", connection.peer)
        await connection.run()
        if _closed_at_first_request(connection):
            await self._probe_for_login(entry)

    def _confirmed(self, entry: PurposeConnection, connection: BrokerConnection) -> None:
        """Take over the versions that the broker of a connection has sent."""
        entry.node.reached = True
        versions = connection.versions
        is_common = versions.is_common and not connection.is_misjudged
        self._common = versions if is_common else None
        self.api_versions = versions.by_api
        self.greetings.note_served(versions)

    def _known_versions(self, node: Node, greeting: Greeting) -> BrokerVersions | None:
        """Return versions that a broker serves for certain, or None.

        Those of the whole cluster count for the first connection to an address only. After a
        failure, a handshake finds out whether the broker is the one that it should be. So it does
        after a lowered greeting, and if the greeting names the broker. One of another cluster
        would refuse that greeting, but execute the requests behind it.
        """
        if (known := node.versions) is not None:
            return known
        if greeting != Greeting() or self._common is None:
            return None
        if node.broker.id < 0 or node.reached or node.failures:
            return None
        return self._common.at(node.peer)

    @staticmethod
    def _watch_silence(node: Node, connection: BrokerConnection) -> None:
        connection.call_on_silence(partial(node.silence.note, _named(node)))

    async def open_alone(
        self,
        broker: BrokerAddress,
        line: Line | None = None,
        known_versions: Callable[[Greeting], BrokerVersions | None] = lambda _: None,
    ) -> BrokerConnection:
        """Return a connection that the caller runs and closes. Raises as its open() does."""
        config = self._config
        return await BrokerConnection.open(
            self._connect,
            broker.host,
            broker.port,
            client_id=config.client_id,
            timeout=config.socket_connection_setup_timeout_ms / 1000,
            pool=self._pool,
            max_frame=config.receive_message_max_bytes,
            max_in_flight=config.max_in_flight_requests_per_connection,
            mechanism=self.mechanism,
            rng=self._rng,
            greetings=self.greetings,
            node_id=broker.id,
            line=line,
            known_versions=known_versions,
        )

    async def _probe_for_login(self, entry: PurposeConnection) -> None:
        """Probe whether a listener that closed at the first request requires a login."""
        node, broker = entry.node, entry.broker
        now = anyio.current_time()
        if self._needs_probe(node):
            from kohort.transport.cluster._probe import (  # seldom needed
                offered_mechanisms,
                wants_login,
            )

            node.prober, node.probe_at = entry, now + PROBE_INTERVAL
            backoff_ends, node.not_before = node.not_before, now + PROBE_PAUSE
            offered = await offered_mechanisms(self._connect, broker.host, broker.port)
            node.not_before = backoff_ends
            if offered:
                node.wants_login = wants_login(node.peer, offered, tls=self._security.uses_tls)
        if node.wants_login is not None:
            node.not_before = anyio.current_time()  # instead of the shorter back-off
            self._failed(node, copy_of(node.wants_login))

    def _needs_probe(self, node: Node) -> bool:
        """True if a probe may show that the listener requires a login."""
        return (
            not self._security.uses_sasl
            and node.wants_login is None
            and node.probe_at <= anyio.current_time()
        )

    def clear_answered_login_refusals(self) -> None:
        """Remove refusals for a missing login from nodes that respond without one now.

        The refusal of a login or of TLS ends with the next connection, because older connections
        may still respond.
        """
        for node in [*self.brokers.values(), *self.bootstrap.values()]:
            if node.wants_login is None:
                continue
            connections = node.connections.values()
            if any(
                entry.connection is not None and entry.connection.response_count
                for entry in connections
            ):
                node.wants_login = None
                self.refusals.remove(node.broker.id)

    def _explained(self, node: Node, error: KafkaError) -> KafkaError:
        """Name advertised.listeners where only the broker's own metadata gave the address."""
        place = node.broker.host, node.broker.port
        if node.broker.id < 0 or node.reached or place in self._config.bootstrap_servers:
            return error
        if isinstance(error, TlsVerificationError | WrongListenerError):
            return type(error)(
                f"{error}. Broker {node.broker.id} gives this address in its metadata "
                "(advertised.listeners)"
            )
        if type(error) not in (KafkaConnectionError, KafkaTimeoutError):
            return error
        return type(error)(
            f"{error}. Broker {node.broker.id} gives this address in its metadata and was never "
            "reached there: check that it runs, and its advertised.listeners"
        )

    def _closed(self, purpose: str, entry: PurposeConnection, connection: BrokerConnection) -> None:
        node = entry.node
        node.last_used = max(node.last_used, connection.last_used)
        _forget(purpose, entry)
        # A broker that accepts and then closes each time must not reset its back-off.
        if connection.response_count:
            node.failures = 0
        if connection.failure is not None and not connection.closed_by_us:
            # The probe follows. Until its end the failure is not the whole reason.
            if _closed_at_first_request(connection) and self._needs_probe(node):
                node.prober = entry
            failure = self._explained(node, connection.failure)
            self._failed(node, failure, lost=connection.lost_requests > 0)

    def _failed(self, node: Node, error: KafkaError, *, lost: bool = True) -> None:
        now = anyio.current_time()
        node.error = error
        refused = is_refusal(error)
        if now >= node.not_before:  # else it failed together with another connection to the node
            node.failures += 1
            backoff = REFUSED_BACKOFF if refused else self._backoff
            node.not_before = now + backoff.delay(node.failures, self._rng)
        self.changed.notify()
        self.on_failure(node, error, lost)

    def _close(self, connections: Iterable[PurposeConnection]) -> None:
        for entry in list(connections):
            if entry.connection is not None:
                entry.connection.abort()
            entry.scope.cancel()
            entry.opened.set()

    async def close_idle(self) -> None:
        """Close connections idle for ``connections_max_idle_ms``, until cancelled."""
        longest = self._config.connections_max_idle_ms
        if longest is None:
            return
        limit = longest / 1000
        while True:
            now = anyio.current_time()
            next_look = now + limit
            for node in [*self.brokers.values(), *self.bootstrap.values()]:
                for entry in list(node.connections.values()):
                    if entry.connection is None or entry.load:
                        continue
                    if entry.connection.last_used + limit <= now:
                        logger.debug("closing the idle connection to %s", entry.connection.peer)
                        self._close([entry])
                    else:
                        next_look = min(next_look, entry.connection.last_used + limit)
            await anyio.sleep_until(next_look)


def _closed_at_first_request(connection: BrokerConnection) -> bool:
    """True if the broker closed the connection in place of its first response.

    One that serves other versions has closed because of these.
    """
    return bool(
        connection.lost_requests
        and not (connection.response_count or connection.closed_by_us or connection.is_misjudged)
    )


def _forget(purpose: str, entry: PurposeConnection) -> None:
    if entry.node.connections.get(purpose) is entry:
        del entry.node.connections[purpose]


def _named(node: Node) -> str:
    return f"broker {node.broker.id} at {node.peer}"
