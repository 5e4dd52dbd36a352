"""The way to the group's coordinator: find it, ask it, and notice when it is another."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

import anyio

from kohort.coordinator_client._cluster_view import GroupCluster
from kohort.coordinator_client._error_actions import CoordinatorAction, action_for, error_for
from kohort.errors import (
    KafkaError,
    KafkaTimeoutError,
    MessageEncodeError,
    ProtocolError,
    TransportError,
    UnsupportedVersionError,
    error_name,
)
from kohort.protocol import ApiKey, Request, Response
from kohort.protocol.messages import FindCoordinatorRequest, FindCoordinatorResponse
from kohort.transport import Backoff, RepeatedLog, escaped, with_principal

logger = logging.getLogger(__name__)

R = TypeVar("R", bound=Response)

PURPOSE = "coordinator"
"""The connection for heartbeats, offsets and leaving."""
JOIN_PURPOSE = "coordinator-join"
"""The connection for JoinGroup and SyncGroup. The coordinator parks these until the other members
are there, and whatever is behind them on their connection waits as long. So one that is given up
unanswered leaves its connection behind, too: the next goes over another, with a number."""

_GROUP = 0
_NO_NODE = -1


class RequestForm(NamedTuple, Generic[R]):
    """A request as a range of versions has it."""

    message: Request[R]
    min_version: int | None = None
    max_version: int | None = None


class CoordinatorConnection:
    """Requests to the coordinator of one group. ``request_timeout`` (seconds) is for finding it."""

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
        self._find_lock = anyio.Lock()
        self._repeats = RepeatedLog(logger)
        self._abandoned_joins = 0
        self.on_found: Callable[[], None] = lambda: None
        """Called whenever the coordinator was found, before the requests that waited for it."""
        self.lookup_failure: str | None = None
        """What stood in the way of finding the coordinator, last; None when it was found."""
        self.node: int | None = None
        """The coordinator, as far as is known."""

    def drop(self, reason: str, node: int | None = None) -> None:
        """Look the coordinator up before the next request; ``node``: only if it is that one."""
        if self.node is None or node not in (None, self.node):
            return
        text = f"[{self._group_id}] coordinator {self.node} is given up: {escaped(reason)}"
        self._repeats.log("given up", logging.INFO, text)
        self.node = None

    async def request(
        self, forms: Sequence[RequestForm[R]], *, timeout: float, waits_for_members: bool = False
    ) -> R:
        """Ask the coordinator, found first if need be, for an answer within ``timeout`` seconds.

        ``waits_for_members``: the answer may wait for other members. Finding the coordinator may
        take as long as it takes. A transport error or a timeout makes it unknown.
        """
        node = await self.find()
        purpose = PURPOSE
        if waits_for_members:
            purpose = (
                f"{JOIN_PURPOSE}-{self._abandoned_joins}" if self._abandoned_joins else JOIN_PURPOSE
            )
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
        for key in ("given up", "found"):
            self._repeats.ended(key)
        return response

    async def find(self) -> int:
        """The coordinator's node id. Retries what may pass; raises what will not."""
        async with self._find_lock:
            attempt = 0
            while self.node is None:
                try:
                    failure = await self._find_once()
                except ProtocolError:
                    raise
                except (TransportError, KafkaTimeoutError) as error:
                    failure = str(error)
                self.lookup_failure = failure or None
                if failure:
                    logger.debug("[%s] no coordinator yet: %s", self._group_id, failure)
                    attempt += 1
                    await anyio.sleep(self._backoff.delay(attempt, self._rng))
            return self.node

    async def _find_once(self) -> str:
        """Ask once; returns what stands in the way, or "" when the node is known."""
        forms = [
            RequestForm(FindCoordinatorRequest(coordinator_keys=[self._group_id]), min_version=4),
            RequestForm(FindCoordinatorRequest(key=self._group_id, key_type=_GROUP), max_version=3),
        ]
        response = await self._send(forms, None, "", self._request_timeout)
        code, node = _read_coordinator(response, self._group_id)
        match action_for(ApiKey.FIND_COORDINATOR, code):
            case CoordinatorAction.PROCEED if node > _NO_NODE:
                text = f"[{self._group_id}] node {node} coordinates the group"
                self._repeats.log("found", logging.INFO, text)
                self.node = node
                self.on_found()
                return ""
            case CoordinatorAction.FAIL:
                raise with_principal(
                    error_for(ApiKey.FIND_COORDINATOR, code, self._group_id),
                    self._cluster.principal,
                )  # a local would hold its frame
            case _:
                return error_name(code)

    async def _send(
        self, forms: Sequence[RequestForm[R]], node: int | None, purpose: str, timeout: float
    ) -> R:
        """Send the first form that the broker has a version for."""
        refusal: KafkaError = UnsupportedVersionError("no form of the request to send")
        for form in forms:
            try:
                return await self._cluster.request(
                    form.message,
                    node=node,
                    purpose=purpose,
                    timeout_ms=max(1, round(timeout * 1000)),
                    min_version=form.min_version,
                    max_version=form.max_version,
                )
            except UnsupportedVersionError as error:
                refusal = error
        raise refusal


def _read_coordinator(response: FindCoordinatorResponse, group_id: str) -> tuple[int, int]:
    """(error code, node id) of the answer, in either form."""
    for coordinator in response.coordinators:
        if coordinator.key == group_id:
            return coordinator.error_code, coordinator.node_id
    if response.coordinators:
        return 0, _NO_NODE
    return response.error_code, response.node_id
