"""Rebalance listeners: their base class, the ready-made one, and how one is called."""

from __future__ import annotations

from kohort.listeners._base import ConsumerRebalanceListener
from kohort.listeners._dispatch import CallbackName, acall_listener, call_listener, check_listener
from kohort.listeners._logging import LoggingRebalanceListener

__all__ = [
    "CallbackName",
    "ConsumerRebalanceListener",
    "LoggingRebalanceListener",
    "acall_listener",
    "call_listener",
    "check_listener",
]
