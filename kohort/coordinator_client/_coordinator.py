"""The connection to the group's coordinator, including its lookup and its changes."""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import cached_property, partial
from typing import Generic, TypeVar

import anyio

from kohort.coordinator_client._cluster_view import GroupCluster
from kohort.coordinator_client.machine._error_code_actions import (
    CoordinatorAction,
    action_for,
    error_for,
)
from kohort.errors import (
    KafkaError,
    KafkaTimeoutError,
    MessageEncodeError,
    ProtocolError,
    TransportError,
    UnsupportedVersionError,
    error_name,
)
from kohort.logs import PlacedText, get_logger
from kohort.protocol import ApiKey, Request, Response
from kohort.protocol.messages import FindCoordinatorRequest, FindCoordinatorResponse
from kohort.transport import Backoff, RepeatedLog, escaped, with_principal
from kohort.types import NamedTuple

logger = get_logger(__name__)

R = TypeVar("R", bound=Response)

PURPOSE = "coordinator"
"""The connection for heartbeats, offsets and leaving."""
JOIN_PURPOSE = "coordinator-join"
"""The connection for JoinGroup and SyncGroup.

The coordinator delays these responses until the other members have joined. Later requests on the
same connection wait for that. So after a cancelled JoinGroup or SyncGroup the next one uses a new
connection, which has a number in its purpose.
"""

_GROUP = 0
_NO_NODE = -1


class RequestForm(NamedTuple, Generic[R]):
    """A request in the form of a range of versions."""

    message: Request[R]
    min_version: int | None = None
    max_version: int | None = None


class CoordinatorConnection:
    """The requests to one group's coordinator. ``request_timeout`` limits a lookup, in seconds."""

    def __init__(
        self,
        cluster: GroupCluster,
        group_id: str,
        backoff: Backoff,
        rng: random.Random,
        *,
        request_timeout: float,
    ) -> None:
        self._cluster = cluster
        self._group_id = group_id
        self._backoff = backoff
        self._request_timeout = request_timeout
        self._rng = rng
        self._repeats = RepeatedLog(logger)
        self._abandoned_joins = 0
        self.on_found: Callable[[], None] = lambda: None
        """A callback for each successful lookup, called before the waiting requests are sent."""
        self.lookup_failure: str | None = None
        """The reason why the latest lookup failed; None if it succeeded."""
        self.node: int | None = None
        """Node id of the coordinator, or None if it is unknown."""

    @cached_property
    def _find_lock(self) -> anyio.Lock:
        """The lock of lookups, made in the event loop. The constructor may be called on another."""
        return anyio.Lock()

    def drop(self, reason: str, node: int | None = None) -> None:
        """Forget the coordinator, so that the next request looks it up.

        With ``node``, forget it only if it is that node.
        """
        if self.node is None or node not in (None, self.node):
            return
        text = f"[{self._group_id}] coordinator {self.node} is unavailable: {escaped(reason)}"
        self._repeats.log("unavailable", logging.INFO, PlacedText(text, group=self._group_id))
        self.node = None

    async def request(
        self,
        forms: Sequence[RequestForm[R]],
        *,
        timeout: float,
        purpose: str = PURPOSE,
        waits_for_members: bool = False,
    ) -> R:
        """Send a request to the coordinator and return its response within ``timeout`` seconds.

        Look the coordinator up first if it is unknown; that has no time limit. A transport error or
        a timeout makes it unknown again. With ``waits_for_members`` the response may wait for other
        members, so the request uses the connection of ``JOIN_PURPOSE``. Meanwhile that of
        ``PURPOSE`` opens for the next requests.
        """
        node = await self.find()
        if waits_for_members:
            purpose = (
                f"{JOIN_PURPOSE}-{self._abandoned_joins}" if self._abandoned_joins else JOIN_PURPOSE
            )
        if purpose != PURPOSE:
            self._cluster.prepare(node, PURPOSE)
        try:
            response = await self._send(forms, node, purpose, timeout)
        except anyio.get_cancelled_exc_class():
            if waits_for_members:
                self._abandoned_joins += 1
            raise
        except MessageEncodeError:
            raise
        except (TransportError, KafkaTimeoutError) as error:
            self.drop(str(error), node)
            raise
        for key in ("unavailable", "found"):
            self._repeats.ended(key)
        return response

    async def find(self) -> int:
        """Return the coordinator's node id. Retry temporary errors and raise the others."""
        if self.node is not None:
            return self.node
        async with self._find_lock:
            attempt = 0
            while self.node is None:
                try:
                    cause = await self._find_once()
                except ProtocolError:
                    raise
                except (TransportError, KafkaTimeoutError) as error:
                    cause = str(error)
                self.lookup_failure = cause or None
                if cause:
                    logger.debug("[%s] no coordinator yet: %s", self._group_id, cause)
                    attempt += 1
                    await anyio.sleep(self._backoff.delay(attempt, self._rng))
            return self.node

    async def _find_once(self) -> str:
        """Look the coordinator up once. Return the reason of a failure, or "" on success."""
        forms = [
            RequestForm(FindCoordinatorRequest(coordinator_keys=[self._group_id]), min_version=4),
            RequestForm(FindCoordinatorRequest(key=self._group_id, key_type=_GROUP), max_version=3),
        ]
        response = await self._send(forms, None, "", self._request_timeout)
        code, node = _read_coordinator(response, self._group_id)
        match action_for(ApiKey.FIND_COORDINATOR, code):
            case CoordinatorAction.PROCEED if node > _NO_NODE:
                text = f"[{self._group_id}] node {node} coordinates the group"
                self._repeats.log("found", logging.INFO, PlacedText(text, group=self._group_id))
                self.node = node
                self.on_found()
                return ""
            case CoordinatorAction.FAIL:
                raise with_principal(
                    error_for(ApiKey.FIND_COORDINATOR, code, self._group_id),
                    self._cluster.principal,
                )  # a local variable with the error would form a reference cycle with the frame
            case CoordinatorAction.PROCEED:
                return "the response to FindCoordinator names no coordinator of the group"
            case _:
                return error_name(code)

    async def _send(
        self, forms: Sequence[RequestForm[R]], node: int | None, purpose: str, timeout: float
    ) -> R:
        return await send_supported(
            forms, partial(self._cluster.request, node=node, purpose=purpose), timeout
        )


async def send_supported(
    forms: Sequence[RequestForm[R]], send: Callable[..., Awaitable[R]], timeout: float
) -> R:
    """Send the first form with a version that the broker supports."""
    unsupported: KafkaError = UnsupportedVersionError("the request has no supported form")
    for form in forms:
        try:
            return await send(
                form.message,
                timeout_ms=max(1, round(timeout * 1000)),
                min_version=form.min_version,
                max_version=form.max_version,
            )
        except UnsupportedVersionError as error:
            unsupported = error
    raise unsupported


def _read_coordinator(response: FindCoordinatorResponse, group_id: str) -> tuple[int, int]:
    """Return (error code, node id) from either form of the response."""
    for coordinator in response.coordinators:
        if coordinator.key == group_id:
            return coordinator.error_code, coordinator.node_id
    if response.coordinators:
        return 0, _NO_NODE
    return response.error_code, response.node_id
