"""Fault injection: methods of a cluster that make requests fail, wait or get other responses."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

import anyio

from kohort.broker.log._corruption import damage
from kohort.broker.requests._failures import check_failable
from kohort.broker.requests._faults import (
    Action,
    Call,
    FaultHandler,
    Outcome,
    Rule,
    SendRate,
    api_keys,
)
from kohort.broker.security import KINDS, TlsFault
from kohort.errors import ErrorCode, InvalidOptionError, broker_error
from kohort.protocol.messages import SaslAuthenticateRequest, SaslAuthenticateResponse
from kohort.types import TopicPartition

if TYPE_CHECKING:
    from kohort.broker._cluster_server import ClusterServer

T = TypeVar("T")

_WRONG_PASSWORD = "Authentication failed: Invalid username or password"
_SIGNATURE = re.compile(rb"v=.")
_FORGERIES: dict[str, Callable[[bytes], bytes]] = {
    "signature": lambda token: _SIGNATURE.sub(
        lambda found: b"v=B" if found[0] == b"v=A" else b"v=A", token
    ),
    "no_signature": lambda token: b"" if token.startswith(b"v=") else token,
    "iterations": lambda token: re.sub(rb",i=\d+$", b",i=1", token),
    "many_iterations": lambda token: re.sub(rb",i=\d+$", b",i=100000000", token),
    "nonce": lambda token: re.sub(rb"^r=[^,]*", b"r=another", token),
    "salt": lambda token: re.sub(rb",s=[^,]*", b",s=*", token),
}


class Fault:
    """An injected fault, active until :meth:`stop` or the end of its ``with`` block."""

    def __init__(self, stop: Callable[[], None], hits: Callable[[], int]) -> None:
        self._stop = stop
        self._hits = hits

    @property
    def hits(self) -> int:
        """Number of requests that the fault has changed."""
        return self._hits()

    def stop(self) -> None:
        """End the fault and release the requests that it delays; a second call does nothing."""
        self._stop()

    def __enter__(self) -> Fault:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


class FaultControl(ABC):
    """Methods of a cluster that inject faults.

    ``api`` is Kafka's name, such as "JoinGroup", or a key; None selects all APIs. ``node`` selects
    one broker, and ``client_id`` the clients of that ``client.id``. ``times`` is the number of
    requests that the fault changes, None for all until it is stopped. ``chance`` is the probability
    for each request, by the cluster's random seed. Faults that select the same request act in the
    order of their creation.
    """

    _has_certificates = True
    """True if the cluster creates certificates; False if connections only raise the errors
    of TLS.
    """

    @abstractmethod
    def _call(self, function: Callable[[ClusterServer], T]) -> T:
        """Run a function on the cluster in the cluster's event loop."""

    def _check_failable(self, key: int) -> None:
        """Raise InvalidOptionError for an API that :meth:`fail` does not support."""
        check_failable(key)

    def on(
        self,
        api: str | int | None,
        handler: FaultHandler,
        *,
        keep: bool | int = True,
        node: int | None = None,
        client_id: str | None = None,
        chance: float = 1.0,
    ) -> Fault:
        """Call ``handler(call)`` for each request before its broker handles it.

        The handler is a sync or async function. It returns a response of :mod:`kohort.protocol`,
        ``call.error(code)``, ``Action.DROP``, or None to pass the request on. An async handler may
        wait. ``await call.proceed()`` returns the broker's response, which the handler may change
        or delay. The handler runs in the cluster's event loop and must not block it.

        ``keep`` is True for all requests, a number of requests, or False for one. Requests that the
        handler passes on do not count.
        """
        remaining = (math.inf if keep else 1) if isinstance(keep, bool) else keep
        return self._add_rule(
            handler,
            api_keys(api),
            node=node,
            client_id=client_id,
            chance=chance,
            remaining=remaining,
        )

    def _add_rule(
        self,
        handler: FaultHandler,
        keys: frozenset[int] | None,
        *,
        node: int | None = None,
        client_id: str | None = None,
        chance: float = 1.0,
        remaining: float | None = math.inf,
        holds_responses: bool = False,
    ) -> Fault:
        limit = math.inf if remaining is None else remaining
        if limit < 1 or not 0 <= chance <= 1:
            raise InvalidOptionError(
                f"times={limit}, chance={chance}: times must be at least 1, and chance 0 to 1"
            )
        if not callable(handler):
            raise InvalidOptionError(f"handler={handler!r}: must be a function that takes the call")

        def add(server: ClusterServer) -> Rule:
            self._check_node(server, node)
            return server.dispatcher.faults.add(
                Rule(handler, keys, node, client_id, chance, limit, holds_responses)
            )

        rule = self._call(add)
        return Fault(
            lambda: self._call(lambda server: server.dispatcher.faults.stop(rule)),
            lambda: rule.hits,
        )

    @staticmethod
    def _check_node(server: ClusterServer, node: int | None) -> None:
        ids = [each.id for each in server.state.all_nodes]
        if node is not None and node not in ids:
            raise InvalidOptionError(
                f"node={node}: the cluster has no such broker. Choose one of {ids}"
            )

    def stop_faults(self) -> None:
        """End all faults except damage to records."""

        def stop(server: ClusterServer) -> None:
            server.dispatcher.faults.stop_all()
            server.state.security.stop_tls_faults()

        self._call(stop)

    def fail(
        self,
        api: str | int,
        error: ErrorCode,
        *,
        times: int | None = 1,
        node: int | None = None,
        client_id: str | None = None,
        chance: float = 1.0,
    ) -> Fault:
        """Respond with an error for all parts of the request, which is not executed."""
        if not isinstance(error, int):
            raise InvalidOptionError(
                f"error={error!r}: must be a member of kohort.errors.ErrorCode"
            )
        keys = api_keys(api)
        for key in keys or ():
            self._check_failable(key)
        return self._add_rule(
            lambda call: call.error(error),
            keys,
            node=node,
            client_id=client_id,
            chance=chance,
            remaining=times,
        )

    def delay(
        self,
        api: str | int | None,
        seconds: float | Sequence[float],
        *,
        times: int | None = None,
        node: int | None = None,
        client_id: str | None = None,
        chance: float = 1.0,
    ) -> Fault:
        """Delay requests; ``(least, most)`` are the bounds of random delays, by the seed."""
        least, most = seconds if isinstance(seconds, Sequence) else (seconds, seconds)
        if not 0 <= least <= most:
            raise InvalidOptionError(
                f"seconds={seconds}: must be 0 or more, with the lower bound first"
            )
        rng = self._call(lambda server: server.dispatcher.faults.rng)

        async def wait(call: Call) -> Outcome:
            await anyio.sleep(rng.uniform(least, most))
            return await call.proceed()

        return self._add_rule(
            wait, api_keys(api), node=node, client_id=client_id, chance=chance, remaining=times
        )

    def disconnect(
        self,
        api: str | int | None = None,
        *,
        after: bool = False,
        times: int | None = 1,
        node: int | None = None,
        client_id: str | None = None,
        chance: float = 1.0,
    ) -> Fault:
        """Close the connection without a response, with ``after`` once the request was executed."""

        async def drop(call: Call) -> Outcome:
            if after:
                await call.proceed()
            return Action.DROP

        return self._add_rule(
            drop, api_keys(api), node=node, client_id=client_id, chance=chance, remaining=times
        )

    def hang(
        self,
        api: str | int | None = None,
        *,
        times: int | None = None,
        node: int | None = None,
        client_id: str | None = None,
        chance: float = 1.0,
    ) -> Fault:
        """Hold requests without executing them; stopping the fault closes their connections."""
        stopped = self._call(lambda _: anyio.Event())

        async def wait(_: Call) -> Outcome:
            await stopped.wait()
            return Action.DROP

        fault = self._add_rule(
            wait, api_keys(api), node=node, client_id=client_id, chance=chance, remaining=times
        )

        def stop() -> None:
            fault.stop()
            self._call(lambda _: stopped.set())

        return Fault(stop, lambda: fault.hits)

    def network_partition(self, *, client_id: str | None = None, node: int | None = None) -> Fault:
        """Hold back all bytes between clients and a broker, without closing connections.

        Stopping the fault delivers them in both directions.
        """
        ended = self._call(lambda _: anyio.Event())

        async def wait(call: Call) -> Outcome:
            await ended.wait()
            return await call.proceed()

        fault = self._add_rule(wait, None, node=node, client_id=client_id, holds_responses=True)

        def stop() -> None:
            fault.stop()
            self._call(lambda _: ended.set())

        return Fault(stop, lambda: fault.hits)

    def slow(
        self,
        bytes_per_second: float = 0.0,
        *,
        piece: int = 1024,
        api: str | int | None = None,
        node: int | None = None,
        client_id: str | None = None,
    ) -> Fault:
        """Send responses slowly, in pieces of 1 to ``piece`` bytes, by the seed."""
        if piece < 1 or bytes_per_second < 0:
            raise InvalidOptionError(
                f"piece={piece}, bytes_per_second={bytes_per_second}: piece must be at least 1, "
                "and bytes_per_second 0 or more"
            )
        pace = SendRate(piece, bytes_per_second)

        async def slow_down(call: Call) -> Outcome:
            call.pace = pace
            return await call.proceed()

        return self._add_rule(slow_down, api_keys(api), node=node, client_id=client_id)

    def lag(self, partition: TopicPartition, node: int, *, in_sync: bool = False) -> Fault:
        """Stop a follower from copying records; stopping the fault lets it catch up.

        The follower leaves the ISR. It may still become the leader, by ``move_leader`` or by
        ``unclean.leader.election.enable``. Then the records that it has not copied are lost. With
        ``in_sync`` it copies records and stays in the ISR, but does not learn the high watermark.
        """

        def fall_behind(server: ClusterServer) -> Callable[[], None]:
            found = server.state.topics.partition(partition.topic, partition.partition)
            if found is None:
                raise broker_error(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {partition}"
                )
            return server.state.start_lag(found, node, in_sync=in_sync)

        catch_up = self._call(fall_behind)
        return Fault(lambda: self._call(lambda _: catch_up()), lambda: 0)

    def corrupt(self, partition: TopicPartition, offset: int, how: str = "crc") -> Fault:
        """Damage the stored batch that contains the offset; stopping the fault repairs it.

        ``how``: "crc" and "flip" change bits, "records" has a valid CRC but does not decode,
        "codec" is an unknown codec. The others are "magic", "length" and "oversize".
        """

        def damage_batch(server: ClusterServer) -> Callable[[], None]:
            found = server.state.topics.partition(partition.topic, partition.partition)
            batch = None if found is None else found.log.raw_batch(offset)
            if batch is None:
                raise broker_error(
                    ErrorCode.OFFSET_OUT_OF_RANGE, f"{partition} has no record at {offset}"
                )
            return damage(batch, how)

        repair = self._call(damage_batch)
        return Fault(lambda: self._call(lambda _: repair()), lambda: 0)

    # TLS and logins

    def fail_login(
        self,
        message: str = _WRONG_PASSWORD,
        *,
        after: int = 0,
        times: int | None = 1,
        node: int | None = None,
        client_id: str | None = None,
    ) -> Fault:
        """Fail ``times`` logins with SASL_AUTHENTICATION_FAILED, after the first ``after`` ones."""
        if after < 0:
            raise InvalidOptionError(f"after={after}: must be 0 or more")
        seen = 0

        def refuse(call: Call) -> Outcome:
            nonlocal seen
            if call.login_steps > 0:  # a later step of a login that was not refused
                return None
            seen += 1
            if seen <= after:
                return None
            return SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=message
            )

        keys = frozenset([SaslAuthenticateRequest.api_key])
        return self._add_rule(refuse, keys, node=node, client_id=client_id, remaining=times)

    def forge_scram(
        self, how: str = "signature", *, times: int | None = None, node: int | None = None
    ) -> Fault:
        """Forge the brokers' messages of SCRAM. A client has to refuse them.

        ``how`` names the wrong part:

        - "signature", "no_signature": the broker does not prove that it knows the password
        - "iterations", "many_iterations": the number of iterations is 1 or 100 million
        - "nonce": it does not begin with the client's nonce
        - "salt": it is not base64
        """
        if how not in _FORGERIES:
            raise InvalidOptionError(f"how={how!r}: choose one of {', '.join(_FORGERIES)}")
        forge = _FORGERIES[how]

        async def forge_response(call: Call) -> Outcome:
            response = await call.proceed()
            assert isinstance(response, SaslAuthenticateResponse)
            response.auth_bytes = forge(bytes(response.auth_bytes))
            return response

        return self._add_rule(
            forge_response, api_keys("SaslAuthenticate"), node=node, remaining=times
        )

    def serve_certificate(self, kind: str, *, node: int | None = None) -> Fault:
        """Show another certificate on new TLS connections.

        ``kind`` is "expired", "not_yet_valid", "wrong_host", "revoked" (by ``ssl_crlfile``) or
        "unknown_ca".
        """
        if kind not in KINDS:
            raise InvalidOptionError(f"kind={kind!r}: choose one of {', '.join(KINDS)}")
        return self._add_tls(TlsFault(kind, node))

    def slow_handshake(self, seconds: float = float("inf"), *, node: int | None = None) -> Fault:
        """Delay the broker's first byte on new TLS connections, at most until the fault is
        stopped.
        """
        if not seconds >= 0:
            raise InvalidOptionError(f"seconds={seconds}: must be 0 or more")
        return self._add_tls(TlsFault("slow", node, seconds))

    def answer_plainly(self, *, node: int | None = None) -> Fault:
        """Send bytes that are not TLS to new TLS connections."""
        return self._add_tls(TlsFault("plain", node))

    def _add_tls(self, fault: TlsFault) -> Fault:
        def add(server: ClusterServer) -> None:
            self._check_node(server, fault.node)
            if not any(listener.uses_tls for listener in server.state.config.listeners):
                raise InvalidOptionError("the cluster has no listener with TLS")
            if fault.kind in KINDS and self._has_certificates:  # errors are raised here
                for listener in server.state.config.listeners:
                    server.state.security.context(listener, fault)
            server.state.security.add_tls_fault(fault)

        self._call(add)
        return Fault(
            lambda: self._call(lambda server: server.state.security.stop_tls_fault(fault)),
            lambda: fault.hits,
        )
