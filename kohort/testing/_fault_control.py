"""Faults on demand: what a test says to have its clients meet them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

import anyio

from kohort.errors import ErrorCode, InvalidOptionError, broker_error
from kohort.testing._corruption import damage
from kohort.testing._failures import check_failable
from kohort.testing._faults import Action, Call, FaultHandler, Outcome, Rule, api_keys
from kohort.testing._send_rate import SendRate
from kohort.types import TopicPartition

if TYPE_CHECKING:
    from kohort.testing._core import ClusterCore

T = TypeVar("T")


class Fault:
    """Something that was asked for, until :meth:`stop` or the end of its ``with`` block."""

    def __init__(self, stop: Callable[[], None], hits: Callable[[], int]) -> None:
        self._stop = stop
        self._hits = hits

    @property
    def hits(self) -> int:
        """How many requests it has met."""
        return self._hits()

    def stop(self) -> None:
        """End it. Requests that it holds go on; the second time does nothing."""
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
    """The methods of a cluster that make faults.

    ``api`` is Kafka's name, such as "JoinGroup", or a key; None is all of them. ``node`` and
    ``client_id`` narrow it to one broker and to the clients of that ``client.id``. ``times`` is how
    many requests are met, None for all until it is stopped; ``chance`` how likely each is, by the
    cluster's seed. Where several meet one request, they act in the order they were made.
    """

    @abstractmethod
    def _call(self, function: Callable[[ClusterCore], T]) -> T:
        """Run a function on the cluster where the cluster runs."""

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
        """Have requests seen by ``handler(call)`` before their broker.

        The handler, plain or async, returns an answer (a response of :mod:`kohort.protocol`, or
        ``call.error(code)``), ``Action.DROP``, or None to pass; it may take its time, and have the
        answer made with ``await call.proceed()`` to look at it, change it or keep it back. It runs
        in the cluster's event loop and must not block it. ``keep``: for all requests, for so many,
        or (False) for one; those that it passes do not count.
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
            raise InvalidOptionError(f"once at least, and a chance in 0..1: {limit}, {chance}")
        if not callable(handler):
            raise InvalidOptionError(f"a handler is a function of the call, not {handler!r}")

        def add(core: ClusterCore) -> Rule:
            self._check_node(core, node)
            return core.faults.add(
                Rule(handler, keys, node, client_id, chance, limit, holds_responses)
            )

        rule = self._call(add)
        return Fault(
            lambda: self._call(lambda core: core.faults.stop(rule)),
            lambda: rule.hits,
        )

    @staticmethod
    def _check_node(core: ClusterCore, node: int | None) -> None:
        ids = [each.id for each in core.all_nodes]
        if node is not None and node not in ids:
            raise InvalidOptionError(f"node={node}: there is no such broker, only {ids}")

    def stop_faults(self) -> None:
        """End all of them but damage to records."""
        self._call(lambda core: core.faults.stop_all())

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
        """Answer with an error, for everything that the request asks; it is not carried out."""
        if not isinstance(error, int):
            raise InvalidOptionError(f"error={error!r}: give one of kohort.errors.ErrorCode")
        keys = api_keys(api)
        for key in keys or ():
            check_failable(key)
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
        """Let requests wait; ``(least, most)`` for different times, by the seed."""
        least, most = seconds if isinstance(seconds, Sequence) else (seconds, seconds)
        if not 0 <= least <= most:
            raise InvalidOptionError(f"seconds={seconds}: 0 or more, the least first")
        rng = self._call(lambda core: core.faults.rng)

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
        """End the connection instead of answering; ``after`` the request was carried out."""

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
        """Neither answer nor carry out; when it is stopped the connections end."""
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
        """Let nothing through between clients and a broker, in silence.

        What was sent meanwhile arrives when it is over, in both directions.
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
        """Send answers slowly, and in pieces of 1 to ``piece`` bytes, by the seed."""
        if piece < 1 or bytes_per_second < 0:
            raise InvalidOptionError(f"piece={piece}, bytes_per_second={bytes_per_second}")
        pace = SendRate(piece, bytes_per_second)

        async def slow_down(call: Call) -> Outcome:
            call.pace = pace
            return await call.proceed()

        return self._add_rule(slow_down, api_keys(api), node=node, client_id=client_id)

    def lag(self, partition: TopicPartition, node: int, *, in_sync: bool = False) -> Fault:
        """Let a follower copy nothing more; to stop it is to let it catch up.

        It leaves the ISR. If it is made the leader all the same, by ``move_leader`` or because the
        topic has ``unclean.leader.election.enable``, what it has not copied is lost. ``in_sync``:
        it copies on and stays in the ISR, but does not learn how much is committed.
        """

        def fall_behind(core: ClusterCore) -> Callable[[], None]:
            found = core.topics.partition(partition.topic, partition.partition)
            if found is None:
                raise broker_error(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {partition}"
                )
            return core.start_lag(found, node, in_sync=in_sync)

        catch_up = self._call(fall_behind)
        return Fault(lambda: self._call(lambda _: catch_up()), lambda: 0)

    def corrupt(self, partition: TopicPartition, offset: int, how: str = "crc") -> Fault:
        """Damage the stored batch that holds the offset; to stop it is to repair it.

        ``how``: "crc" and "flip" (bits are wrong), "records" (the CRC is right, but they do not
        decode), "codec" (one that nobody knows), "magic", "length" and "oversize".
        """

        def damage_batch(core: ClusterCore) -> Callable[[], None]:
            found = core.topics.partition(partition.topic, partition.partition)
            batch = None if found is None else found.log.raw_batch(offset)
            if batch is None:
                raise broker_error(
                    ErrorCode.OFFSET_OUT_OF_RANGE, f"{partition} has no record at {offset}"
                )
            return damage(batch, how)

        repair = self._call(damage_batch)
        return Fault(lambda: self._call(lambda _: repair()), lambda: 0)
