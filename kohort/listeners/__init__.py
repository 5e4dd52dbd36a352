"""Rebalance listeners: the base class, ready-made listeners, and the functions that call them."""

from __future__ import annotations

from kohort.listeners._base import (
    AsyncRebalanceListener,
    ConsumerRebalanceListener,
    RebalanceListener,
)
from kohort.listeners._ready import (
    CommitOnRevoke,
    ExternalOffsets,
    ListenerChain,
    LoggingRebalanceListener,
)
from kohort.types import RebalanceCause, RebalanceContext

__all__ = [
    "AsyncRebalanceListener",
    "CommitOnRevoke",
    "ConsumerRebalanceListener",
    "ExternalOffsets",
    "ListenerChain",
    "LoggingRebalanceListener",
    "RebalanceCause",
    "RebalanceContext",
    "RebalanceListener",
]
