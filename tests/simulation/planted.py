"""Planted bugs: each is active in the client within a block."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch
from weakref import WeakKeyDictionary

from kohort.consumer.driver._async_callbacks import AsyncCallbacks
from kohort.consumer.driver._task_driver import TaskDriver
from kohort.consumer.engine._autocommit import AutoCommit
from kohort.coordinator_client._watched_topics import BrokerRacks
from kohort.coordinator_client.classic._exchange import GroupExchange
from kohort.coordinator_client.classic._heartbeats import Heartbeats
from kohort.coordinator_client.classic._membership import ClassicMembership
from kohort.coordinator_client.consumer._reconciliation import Reconciliation
from kohort.coordinator_client.machine._commands import CallRevoked
from kohort.coordinator_client.offsets import _offsets
from kohort.coordinator_client.offsets._commit_rules import READ_REJECTIONS
from kohort.coordinator_client.offsets._offset_messages import fetched_offsets
from kohort.errors import KafkaConnectionError, KafkaError
from kohort.fetcher.requests._connections import NodeConnections
from kohort.fetcher.requests._planning import FetchPlanner
from kohort.fetcher.requests._request import PartitionRequest
from kohort.fetcher.requests._sizes import FetchSizes
from kohort.security.oauth._tokens import Token
from kohort.subscription import NO_ID, Recreation, SubscriptionState, TopicHistory
from kohort.transport import BrokerConnection, OneShot
from kohort.transport.cluster._nodes import Nodes
from kohort.transport.cluster._refusals import is_refusal
from kohort.transport.connection._login_renewal import Logins
from kohort.transport.connection._response_reader import ResponseReader
from kohort.types import TopicPartition


@contextmanager
def commit_before_processing() -> Iterator[None]:
    """Count records as processed when a poll returns them, so that they are committed too early."""
    poll: Callable[..., Any] = TaskDriver._poll

    async def poll_and_count(driver: TaskDriver, *args: Any) -> Any:
        records = await poll(driver, *args)
        driver.engine.auto_commit.note_consumed()
        return records

    with patch.object(TaskDriver, "_poll", poll_and_count):
        yield


@contextmanager
def deliver_after_revoke() -> Iterator[None]:
    """Keep and deliver revoked partitions until the next assignment."""

    def keep(
        state: SubscriptionState, partitions: Iterable[TopicPartition]
    ) -> frozenset[TopicPartition]:
        return frozenset()

    with (
        patch.object(SubscriptionState, "revoke", keep),
        patch.object(SubscriptionState, "mark_pending_revocation", keep),
    ):
        yield


@contextmanager
def heartbeat_with_an_old_generation() -> Iterator[None]:
    """Send heartbeats with the generation before this one, if there was one."""
    start: Callable[..., None] = Heartbeats.start
    send: Callable[..., None] = ClassicMembership._send_heartbeat
    seen: dict[Heartbeats, list[int]] = {}

    def started(heartbeats: Heartbeats, now: float) -> None:
        seen.setdefault(heartbeats, []).append(heartbeats._member.generation)
        start(heartbeats, now)

    def sent(membership: ClassicMembership, now: float) -> None:
        member = membership.member
        right = member.generation
        member.generation = seen.get(membership.heartbeats, [right])[-2:][0]
        try:
            send(membership, now)
        finally:
            member.generation = right

    with (
        patch.object(Heartbeats, "start", started),
        patch.object(ClassicMembership, "_send_heartbeat", sent),
    ):
        yield


@contextmanager
def rebalance_in_polls_only() -> Iterator[None]:
    """Do nothing for the group without polls, as if returned records waited to be processed."""
    with patch.object(AsyncCallbacks, "_may_run_unpolled", lambda consumer: False):
        yield


@contextmanager
def rebalance_while_records_are_held() -> Iterator[None]:
    """Give up partitions whose returned records are not processed yet."""
    check: Callable[..., bool] = AsyncCallbacks._may_run_unpolled

    def forget_first(consumer: AsyncCallbacks) -> bool:
        consumer._engine.callback_queue.has_returned_records = False
        return check(consumer)

    with patch.object(AsyncCallbacks, "_may_run_unpolled", forget_first):
        yield


@contextmanager
def read_on_in_recreated_topics() -> Iterator[None]:
    """Keep the positions of the old topic after a topic was recreated."""
    note: Callable[..., list[Recreation]] = TopicHistory.note_ids

    def noted(history: TopicHistory, ids: Mapping[str, bytes]) -> list[Recreation]:
        note(history, ids)
        history._former.clear()
        history._deleted_offsets.clear()
        return []

    def unbound(
        state: SubscriptionState, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, bytes]:
        return dict.fromkeys(partitions, NO_ID)

    bind: Callable[..., None] = SubscriptionState._bind

    def bound(
        state: SubscriptionState, tp: TopicPartition, partition: Any, topic_id: bytes
    ) -> None:
        bind(state, tp, partition, NO_ID)

    with (
        patch.object(TopicHistory, "note_ids", noted),
        patch.object(SubscriptionState, "topic_ids", unbound),
        patch.object(SubscriptionState, "_bind", bound),
    ):
        yield


@contextmanager
def commit_unchanged_offsets_once() -> Iterator[None]:
    """Commit offsets of an assign() when they change, and never again."""
    make: Callable[..., None] = AutoCommit.__init__

    def made(commits: AutoCommit, *parts: Any) -> None:
        make(commits, *parts)
        commits._again_after = math.inf

    with patch.object(AutoCommit, "__init__", made):
        yield


@contextmanager
def lose_answers_at_logins() -> Iterator[None]:
    """Lose the responses to requests that are in flight when a session is renewed."""
    renew: Callable[[Logins, BrokerConnection], Awaitable[None]] = Logins._renew

    async def renewed(logins: Logins, connection: BrokerConnection) -> None:
        for pending in logins._pipeline.sent:
            pending.done = OneShot()
        await renew(logins, connection)

    with patch.object(Logins, "_renew", renewed):
        yield


@contextmanager
def connect_again_at_the_end_of_sessions() -> Iterator[None]:
    """Replace a connection instead of renewing its session, so that a fetch is lost."""

    async def refused(logins: Logins, connection: BrokerConnection) -> None:
        raise KafkaConnectionError("not renewed")

    with patch.object(Logins, "_renew", refused):
        yield


@contextmanager
def give_up_refused_brokers() -> Iterator[None]:
    """Stop connecting to a broker that has refused a login or TLS once."""
    fail: Callable[..., None] = Nodes._failed

    def failed(nodes: Nodes, node: Any, error: KafkaError, *, lost: bool = True) -> None:
        fail(nodes, node, error, lost=lost)
        if is_refusal(error):
            node.not_before = math.inf

    with patch.object(Nodes, "_failed", failed):
        yield


@contextmanager
def keep_expired_tokens() -> Iterator[None]:
    """Keep every token, even after it has expired."""
    with (
        patch.object(Token, "is_fresh", lambda token, now: True),
        patch.object(Token, "is_sendable", lambda token, now: True),
    ):
        yield


@contextmanager
def reset_on_refused_fetches() -> Iterator[None]:
    """Take a refused read of committed offsets for an answer: nothing is committed."""
    fetch: Callable[..., tuple[int, dict[TopicPartition, Any]]] = fetched_offsets

    def fetched(
        response: Any, group_id: str, requested: Iterable[TopicPartition], ids: Any
    ) -> tuple[int, dict[TopicPartition, Any]]:
        code, found = fetch(response, group_id, requested, ids)
        return (0, dict.fromkeys(requested)) if code in READ_REJECTIONS else (code, found)

    with patch.object(_offsets, "fetched_offsets", fetched):
        yield


@contextmanager
def withhold_too_late() -> Iterator[None]:
    """Deliver records until the callback of the revocation, which may be long after its answer."""
    with patch.object(Reconciliation, "withhold", lambda reconciliation: None):
        yield


@contextmanager
def acknowledge_before_the_callback_ends() -> Iterator[None]:
    """Report the partitions as given up when the callback of the revocation begins."""
    call: Callable[..., Iterator[float | None]] = Reconciliation._call_back

    def call_back(reconciliation: Reconciliation, command: Any) -> Iterator[float | None]:
        if isinstance(command, CallRevoked):
            reconciliation._member.owned -= command.partitions
            reconciliation._heartbeats.acknowledge()
        yield from call(reconciliation, command)

    with patch.object(Reconciliation, "_call_back", call_back):
        yield


@contextmanager
def keep_an_old_assignment() -> Iterator[None]:
    """Keep what a static member is assigned, even if it subscribes to other topics."""

    def keep(exchange: GroupExchange, partitions: Iterable[TopicPartition]) -> None:
        """Accept partitions, or the lack of them."""

    with (
        patch.object(GroupExchange, "_reject_or_ignore", keep),
        patch.object(GroupExchange, "_watch_missing", keep),
    ):
        yield


@contextmanager
def forget_the_racks_of_absent_brokers() -> Iterator[None]:
    """Take an absent broker for one without a rack, so that the racks of its replicas change."""
    note: Callable[..., None] = BrokerRacks._note

    def noted(racks: BrokerRacks, metadata: Any) -> None:
        racks._racks.clear()
        racks._unknown.clear()
        note(racks, metadata)

    with patch.object(BrokerRacks, "_note", noted):
        yield


@contextmanager
def reset_on_absent_offsets() -> Iterator[None]:
    """Take a partition that a response leaves out for one without a committed offset."""
    fetch: Callable[..., tuple[int, dict[TopicPartition, Any]]] = fetched_offsets

    def fetched(
        response: Any, group_id: str, requested: Iterable[TopicPartition], ids: Any
    ) -> tuple[int, dict[TopicPartition, Any]]:
        code, found = fetch(response, group_id, requested, ids)
        return code, dict.fromkeys(requested) | found

    with patch.object(_offsets, "fetched_offsets", fetched):
        yield


@contextmanager
def end_slow_responses() -> Iterator[None]:
    """Count the time of a request from its sending, whatever bytes of its response come."""
    with patch.object(ResponseReader, "is_receiving", lambda reader, pending, now: False):
        yield


@contextmanager
def request_more_than_the_line_delivers() -> Iterator[None]:
    """Choose the size of a fetch without regard to the rate of the line."""
    with patch.object(FetchSizes, "response_bytes", FetchSizes._broker_bytes):
        yield


@contextmanager
def fetch_over_two_connections() -> Iterator[None]:
    """Take partitions in flight for free ones when parallel connections get their shares."""
    plan: Callable[..., Any] = FetchPlanner._plan_parallel

    def planned(planner: FetchPlanner, *args: Any) -> Any:
        with patch.object(planner, "_in_flight", lambda request, node: False):
            return plan(planner, *args)

    with patch.object(FetchPlanner, "_plan_parallel", planned):
        yield


@contextmanager
def keep_partitions_of_parallel_connections() -> Iterator[None]:
    """Fetch what is behind over parallel connections, also after a revocation."""
    find: Callable[..., Iterator[PartitionRequest]] = NodeConnections.requests_behind
    kept: WeakKeyDictionary[NodeConnections, dict[TopicPartition, PartitionRequest]]
    kept = WeakKeyDictionary()

    def found(
        connections: NodeConnections, ready: Mapping[TopicPartition, PartitionRequest]
    ) -> Iterator[PartitionRequest]:
        requests = kept.setdefault(connections, {})
        requests |= {each.topic_partition: each for each in find(connections, ready)}
        return iter(list(requests.values()))

    with patch.object(NodeConnections, "requests_behind", found):
        yield


@contextmanager
def throttle_one_connection() -> Iterator[None]:
    """Fetch over parallel connections during the throttle time of another one."""
    plan: Callable[..., Any] = FetchPlanner._plan_parallel

    def planned(planner: FetchPlanner, connections: NodeConnections, *args: Any) -> Any:
        until, connections.not_before = connections.not_before, 0.0
        try:
            return plan(planner, connections, *args)
        finally:
            connections.not_before = until

    with patch.object(FetchPlanner, "_plan_parallel", planned):
        yield


BUGS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "commit before processing": commit_before_processing,
    "deliver after revoke": deliver_after_revoke,
    "heartbeat with an old generation": heartbeat_with_an_old_generation,
    "read on in recreated topics": read_on_in_recreated_topics,
    "commit unchanged offsets once": commit_unchanged_offsets_once,
    "rebalance in polls only": rebalance_in_polls_only,
    "rebalance while records are held": rebalance_while_records_are_held,
    "lose answers at logins": lose_answers_at_logins,
    "connect again at the end of sessions": connect_again_at_the_end_of_sessions,
    "give up refused brokers": give_up_refused_brokers,
    "keep expired tokens": keep_expired_tokens,
    "reset on refused fetches": reset_on_refused_fetches,
    "withhold too late": withhold_too_late,
    "acknowledge before the callback ends": acknowledge_before_the_callback_ends,
    "keep an old assignment": keep_an_old_assignment,
    "forget the racks of absent brokers": forget_the_racks_of_absent_brokers,
    "reset on absent offsets": reset_on_absent_offsets,
    "end slow responses": end_slow_responses,
    "request more than the line delivers": request_more_than_the_line_delivers,
    "fetch over two connections": fetch_over_two_connections,
    "keep partitions of parallel connections": keep_partitions_of_parallel_connections,
    "throttle one connection": throttle_one_connection,
}
EPOCH_BUGS = {
    "reset on refused fetches",
    "withhold too late",
    "acknowledge before the callback ends",
}
"""Bugs in members of the consumer protocol."""
