"""OpenTelemetry: figures of consumers, and spans of their polls, handlers and commits.

Names are those of the semantic conventions for messaging. They are still in development, and have
no name for lag, so those begin with ``kohort.``.
"""

from __future__ import annotations

from kohort.otel._calls import instrument
from kohort.otel._figures import observe
from kohort.otel._handlers import traced

__all__ = ["instrument", "observe", "traced"]
