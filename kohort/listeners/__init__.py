"""Rebalance listeners: their base class, the ready-made ones, and how one is called."""

from __future__ import annotations

from kohort.listeners._base import (
    AsyncRebalanceListener,
    ConsumerRebalanceListener,
    RebalanceListener,
)
from kohort.listeners._logging import LoggingRebalanceListener
from kohort.listeners._ready import CommitOnRevoke, ExternalOffsets, ListenerChain

__all__ = [
    "AsyncRebalanceListener",
    "CommitOnRevoke",
    "ConsumerRebalanceListener",
    "ExternalOffsets",
    "ListenerChain",
    "LoggingRebalanceListener",
    "RebalanceListener",
]
