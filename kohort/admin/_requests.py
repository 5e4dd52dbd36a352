"""The requests of an admin client, and the repetition of those that failed temporarily."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn, Self, TypeVar

import anyio

from kohort.admin._results import AdminResults
from kohort.consumer.engine._requests import TimeLimit
from kohort.coordinator_client import CoordinatorConnection
from kohort.errors import (
    BrokerResponseError,
    ErrorCode,
    GroupAuthorizationFailedError,
    KafkaError,
    KafkaTimeoutError,
    ProtocolError,
    UnknownTopicOrPartitionError,
    broker_error,
    error_name,
)
from kohort.transport import SYSTEM_RNG, Backoff, escaped, in_seconds, start_soon, with_principal

if TYPE_CHECKING:
    from kohort.consumer.engine._engine import Engine

K = TypeVar("K")
V = TypeVar("V")

GROUPS_AT_A_TIME = 32
"""Groups whose requests are in flight together."""
LOOKS = 5
"""Responses that must report a topic as unknown, because brokers learn of it one by one."""


class AdminRequests:
    """The requests of one call, with its timeout. It belongs to the event loop of the engine."""

    def __init__(self, engine: Engine, seconds: float) -> None:
        config = engine.config
        self.cluster = engine.cluster
        self.rng = config.rng or SYSTEM_RNG
        self.backoff = Backoff.from_ms(
            config.client.retry_backoff_ms, config.client.retry_backoff_max_ms
        )
        self.request_seconds = config.client.request_timeout_ms / 1000
        self._limit = seconds
        self._until = anyio.current_time() + seconds
        self._coordinators: dict[str, CoordinatorConnection] = {}

    @classmethod
    async def begin(cls, engine: Engine, seconds: float) -> Self:
        """Return the requests of a call after the first contact with the cluster.

        Raise NoBrokersAvailable, a SecurityError, or KafkaTimeoutError after ``seconds``.
        """
        requests = cls(engine, seconds)
        await engine.cluster_requests.wait_bootstrapped(seconds)
        return requests

    @property
    def left(self) -> float:
        """The seconds that are left of the timeout."""
        return max(0.0, self._until - anyio.current_time())

    @property
    def milliseconds(self) -> int:
        """The time in ms that a broker may take for one request."""
        return max(1, round(min(self.left, self.request_seconds) * 1000))

    def time_limit(self, text: str) -> TimeLimit:
        """Return a context with the time that is left. KafkaTimeoutError begins with ``text``."""
        return TimeLimit(self.left, text)

    async def each(
        self,
        keys: Iterable[K],
        attempt: Callable[[Sequence[K]], Awaitable[Mapping[K, V | KafkaError]]],
        what: str,
        looks: float = LOOKS,
    ) -> AdminResults[K, V]:
        """Repeat an attempt for the keys without a final result until the timeout.

        A key that the attempt leaves out is requested again. An error of the attempt is that of
        all its keys. ``what`` begins the text of a timeout. A topic that is unknown for ``looks``
        attempts is an error.
        """
        remaining = list(dict.fromkeys(keys))
        values: dict[K, V] = {}
        errors: dict[K, KafkaError] = {}
        latest: dict[K, KafkaError] = {}
        failures = 0
        with anyio.move_on_after(self.left):
            while remaining:
                try:
                    found = await attempt(remaining)
                except KafkaError as error:
                    found = dict.fromkeys(remaining, error)
                failures += 1
                for key in [key for key in remaining if key in found]:
                    result = found[key]
                    if isinstance(result, KafkaError):
                        if _passes(result, failures < looks):
                            latest[key] = result
                            continue
                        errors[key] = with_principal(result, self.cluster.principal)
                    else:
                        values[key] = result
                    remaining.remove(key)
                if remaining:
                    if any(_needs_metadata(each) for each in latest.values()):
                        self.cluster.request_refresh()
                    await anyio.sleep(self.backoff.delay(failures, self.rng))
        for key in remaining:
            errors[key] = self._timed_out(what, latest.get(key))
        return AdminResults(values, errors)

    def _timed_out(self, what: str, cause: KafkaError | None) -> KafkaTimeoutError:
        latest = "" if cause is None else f"; the latest error was: {cause}"
        error = KafkaTimeoutError(
            f"{what} did not succeed within {in_seconds(self._limit)}{latest}"
        )
        error.__cause__ = cause
        return error

    # -- groups -------------------------------------------------------------------------------

    async def group(
        self,
        group_id: str,
        request: Callable[[CoordinatorConnection], Awaitable[V]],
        what: str,
        operation: str,
    ) -> V:
        """Return the result of a request to the coordinator of a group, or raise its error.

        ``operation`` is the right that the request needs.
        """
        coordinator = self.coordinator(group_id)

        async def attempt(_: Sequence[str]) -> Mapping[str, V | KafkaError]:
            try:
                return {group_id: await request(coordinator)}
            except KafkaError as error:
                note_error(coordinator, error)
                raise_with_operation(error, what, group_id, operation)

        results = await self.each([group_id], attempt, f"{what} of group {escaped(group_id)!r}")
        error = results.errors.get(group_id)
        if isinstance(error, KafkaTimeoutError) and coordinator.lookup_failure is not None:
            raise KafkaTimeoutError(
                f"{error}: no coordinator was found: {coordinator.lookup_failure}"
            ) from error.__cause__
        return results[group_id]

    def coordinator(self, group_id: str) -> CoordinatorConnection:
        """Return the connection to the coordinator of a group."""
        if group_id not in self._coordinators:
            self._coordinators[group_id] = CoordinatorConnection(
                self.cluster,
                group_id,
                self.backoff,
                self.rng,
                request_timeout=self.request_seconds,
            )
        return self._coordinators[group_id]

    async def groups(
        self, group_ids: Iterable[str], request: Callable[[str], Awaitable[V]]
    ) -> AdminResults[str, V]:
        """Return the results of a request for each group, or its errors."""
        values: dict[str, V] = {}
        errors: dict[str, KafkaError] = {}
        at_a_time = anyio.Semaphore(GROUPS_AT_A_TIME)

        async def one(group_id: str) -> None:
            async with at_a_time:
                try:
                    values[group_id] = await request(group_id)
                except KafkaError as error:
                    errors[group_id] = error

        wanted = list(dict.fromkeys(group_ids))
        async with anyio.create_task_group() as tasks:
            for group_id in wanted:
                start_soon(tasks, one, group_id)
        return AdminResults(
            {each: values[each] for each in wanted if each in values},
            {each: errors[each] for each in wanted if each in errors},
        )


def note_error(coordinator: CoordinatorConnection, error: KafkaError | None) -> None:
    """Look the coordinator up again if the error says that it has moved."""
    if isinstance(error, BrokerResponseError) and error.refresh_coordinator:
        coordinator.drop(str(error))


def raise_with_operation(error: KafkaError, what: str, group_id: str, operation: str) -> NoReturn:
    """Raise an error that names the right of the request, which implies that of the look-up."""
    if not isinstance(error, GroupAuthorizationFailedError):
        raise error
    raise group_error(what, group_id, error.code, operation) from error


def group_error(
    what: str,
    group_id: str,
    code: int,
    operation: str,
    message: str | None = None,
    others: str = "of another type",
) -> BrokerResponseError:
    """Return the error of a group. ``operation`` is the right that the request needs.

    ``others`` are the groups that the request does not take, although they exist.
    """
    if code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
        return GroupAuthorizationFailedError(
            f"{what} failed with {error_name(code)}: this client needs {operation} on group "
            f"{group_id!r}. Grant it",
            group_id=group_id,
            operation=operation,
        )
    if code == ErrorCode.GROUP_ID_NOT_FOUND:
        return broker_error(code, f"group {escaped(group_id)!r} does not exist, or is {others}")
    said = f" The broker's message is: {escaped(message)}" if message else ""
    return broker_error(code, f"{what} failed for group {group_id!r}: {broker_error(code)}{said}")


def _passes(error: KafkaError, may_appear: bool) -> bool:
    """True if the request may succeed when it is repeated. ``may_appear`` is about topics."""
    if isinstance(error, UnknownTopicOrPartitionError):
        return may_appear
    if isinstance(error, BrokerResponseError) and error.code == ErrorCode.NOT_CONTROLLER:
        return True
    return error.retriable and not isinstance(error, ProtocolError)


def _needs_metadata(error: KafkaError) -> bool:
    return isinstance(error, BrokerResponseError) and error.refresh_metadata
