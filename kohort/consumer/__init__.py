"""The consumer: the engine, where all parts are put together, and its two faces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kohort.consumer._sync import KafkaConsumer

__all__ = ["AsyncKafkaConsumer", "KafkaConsumer"]

if TYPE_CHECKING:
    from kohort.consumer._async import AsyncKafkaConsumer
else:

    def __getattr__(name: str) -> Any:
        # Programs that use the sync API only do not import the modules of the async API.
        if name != "AsyncKafkaConsumer":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from kohort.consumer._async import AsyncKafkaConsumer

        globals()[name] = AsyncKafkaConsumer
        return AsyncKafkaConsumer

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
