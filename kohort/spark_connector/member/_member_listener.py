"""Rebalance listener of a group member, which also calls the user's listener."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any, Protocol

from kohort import ConsumerRebalanceListener, RebalanceListenerError, TopicPartition
from kohort.errors import InvalidOptionError


class MemberCallbacks(Protocol):
    """Rebalance callbacks of the group member."""

    def on_assigned(self, partitions: frozenset[TopicPartition]) -> None: ...
    def on_revoked(self, partitions: frozenset[TopicPartition]) -> None: ...
    def on_lost(self, partitions: frozenset[TopicPartition]) -> None: ...


class MemberListener(ConsumerRebalanceListener):
    """Listener that calls the member first and then the user's listener.

    If the user's listener raises, the query fails with that error.
    """

    def __init__(
        self, member: MemberCallbacks, fail: Callable[[Exception], None], user: Any
    ) -> None:
        self._member = member
        self._fail = fail
        self._user = user

    def on_partitions_revoked(self, revoked: frozenset[TopicPartition], rebalance: Any) -> None:
        self._member.on_revoked(revoked)
        self._call_user("on_partitions_revoked", revoked, rebalance)

    def on_partitions_assigned(self, assigned: frozenset[TopicPartition], rebalance: Any) -> None:
        self._member.on_assigned(assigned)
        self._call_user("on_partitions_assigned", assigned, rebalance)

    def on_partitions_lost(self, lost: frozenset[TopicPartition], rebalance: Any) -> None:
        self._member.on_lost(lost)
        self._call_user("on_partitions_lost", lost, rebalance)

    def _call_user(
        self,
        callback: str,
        partitions: frozenset[TopicPartition],
        rebalance: Any,
    ) -> None:
        if self._user is None:
            return
        try:
            method = getattr(self._user, callback)
            if "rebalance" in inspect.signature(method).parameters:
                method(partitions, rebalance=rebalance)
            else:
                method(partitions)
        except Exception as error:
            wrapped = RebalanceListenerError(
                f"rebalanceListener {type(self._user).__name__}.{callback} raised "
                f"{type(error).__name__}: {error}",
                callback=callback,
                partitions=partitions,
            )
            wrapped.__cause__ = error
            self._fail(wrapped)


def user_listener(path: str | None) -> Any:
    """Return an instance of ``package.module:Name``, or None without a path.

    Raise InvalidOptionError if that fails.
    """
    if path is None:
        return None
    module, _, name = path.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)()
    except Exception as error:
        raise InvalidOptionError(
            f"option rebalanceListener: {path} cannot be created on the driver because of "
            f"{type(error).__name__}, {error}"
        ) from error
    if not isinstance(found, ConsumerRebalanceListener):
        raise InvalidOptionError(
            f"option rebalanceListener: {path} is not a kohort.ConsumerRebalanceListener"
        )
    return found


def partitions_text(partitions: frozenset[TopicPartition]) -> str:
    """Return partitions as ``orders-0, orders-1``, or ``nothing`` if there are none."""
    return ", ".join(f"{topic}-{number}" for topic, number in sorted(partitions)) or "nothing"
