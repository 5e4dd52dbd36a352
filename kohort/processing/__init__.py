"""Processing of records: handlers, their order, retries, commits and hand-overs."""

from __future__ import annotations

from kohort.processing._context import HandlerContext, context
from kohort.processing._policies import GiveUp, Retry, Skip, Stop
from kohort.processing._process import process

__all__ = ["GiveUp", "HandlerContext", "Retry", "Skip", "Stop", "context", "process"]
