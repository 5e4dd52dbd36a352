"""The parts of a consumer, as metrics() and explain() read them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kohort.config import ConsumerConfig
from kohort.consumer.engine._callback_queue import CallbackQueue
from kohort.consumer.engine._error_reports import ErrorReports
from kohort.consumer.engine._requests import CommitStatistics
from kohort.consumer.engine._topics import TopicChecks
from kohort.fetcher import Fetcher
from kohort.subscription import SubscriptionState
from kohort.transport import ClusterClient
from kohort.types import NamedTuple, TopicPartition

if TYPE_CHECKING:
    from kohort.consumer.engine._open_transactions import OpenTransactions
    from kohort.coordinator_client import CoordinatorClient


class ConsumerParts(NamedTuple):
    """The parts of a consumer, with the state of its engine now."""

    config: ConsumerConfig
    subscription: SubscriptionState
    cluster: ClusterClient
    fetcher: Fetcher
    coordinator: CoordinatorClient | None
    callback_queue: CallbackQueue
    errors: ErrorReports
    commit_statistics: CommitStatistics
    topic_checks: TopicChecks
    open_transactions: OpenTransactions | None
    """The watch of a reader of committed records."""
    position_failure: str | None
    """The error of the latest look-up of positions, which is repeated, or None."""
    iterated_timestamp: Callable[[TopicPartition, int], int | None]
    """The timestamp of a record that was drained for iteration, and not returned yet."""
    ended: bool
    """True if the engine has ended, by close() or by an unexpected error."""
    failure: Exception | None
    """The unexpected error that ended the engine."""
