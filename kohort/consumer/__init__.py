"""The consumer: the engine, where all parts are put together, and its two faces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["AsyncKafkaConsumer", "KafkaConsumer"]

if TYPE_CHECKING:
    from kohort.consumer._async import AsyncKafkaConsumer
    from kohort.consumer._sync import KafkaConsumer
else:

    def __getattr__(name: str) -> Any:
        # A program that uses one API does not import the modules of the other.
        if name == "AsyncKafkaConsumer":
            from kohort.consumer._async import AsyncKafkaConsumer as found
        elif name == "KafkaConsumer":
            from kohort.consumer._sync import KafkaConsumer as found
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = found
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
