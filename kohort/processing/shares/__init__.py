"""process() for share consumers: its core, and what its processors add to those of consumers."""

from kohort.processing.shares._in_tasks import AsyncShareProcessor
from kohort.processing.shares._in_threads import ThreadShareProcessor

__all__ = ["AsyncShareProcessor", "ThreadShareProcessor"]
