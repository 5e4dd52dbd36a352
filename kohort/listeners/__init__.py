"""Rebalance listeners: their base class, the ready-made ones, and how one is called."""

from __future__ import annotations

from kohort.listeners._base import ConsumerRebalanceListener
from kohort.listeners._dispatch import (
    CallbackName,
    acall_listener,
    call_listener,
    check_listener,
    is_awaited,
)
from kohort.listeners._logging import LoggingRebalanceListener
from kohort.listeners._ready import CommitOnRevoke, ExternalOffsets, ListenerChain

__all__ = [
    "CallbackName",
    "CommitOnRevoke",
    "ConsumerRebalanceListener",
    "ExternalOffsets",
    "ListenerChain",
    "LoggingRebalanceListener",
    "acall_listener",
    "call_listener",
    "check_listener",
    "is_awaited",
]
