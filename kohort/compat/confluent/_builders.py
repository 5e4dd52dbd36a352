"""Deserializers of a configuration, ready or made by a builder of ``schema_registry``.

Work is a generator of what builders and ``close()`` return, which may be awaitable. So the same
text serves the consumers with and without asyncio.
"""

from __future__ import annotations

import inspect
from collections.abc import Generator
from typing import Any

KEY_DESERIALIZER, VALUE_DESERIALIZER = "key.deserializer", "value.deserializer"
Steps = Generator[Any, Any, None]


class Deserializers:
    """The deserializers of a consumer, and its other options."""

    key: Any = None
    value: Any = None

    def __init__(self, conf: dict[str, Any]) -> None:
        self.options = dict(conf)
        """The options of the consumer, after :meth:`build` without those that a builder took."""
        self._found: list[tuple[Any, Any]] = []
        for name in (KEY_DESERIALIZER, VALUE_DESERIALIZER):
            ready = self.options.pop(name, None)
            builder = self.options.pop(f"{name}.builder", None)
            if ready is not None and builder is not None:
                raise ValueError(
                    f"Cannot configure both {name} and {name}.builder; use one or the other"
                )
            self._found.append((ready, builder))
        self._owned: list[Any] = []

    def build(self) -> Steps:
        """Build the deserializers. After an error :meth:`close` closes those that were built."""
        given, ready = dict(self.options), []
        for is_key, (deserializer, builder) in zip((True, False), self._found, strict=True):
            if builder is not None:
                deserializer, left = yield builder.build(dict(given), is_key)
                self._owned.append(deserializer)
                self.options = {name: value for name, value in left.items() if name in self.options}
            ready.append(deserializer)
        self.key, self.value = ready

    def set_resolver(self, name: str, resolver: Any) -> None:
        """Pass a function that returns the id of the cluster to deserializers that take one."""
        for each in (self.key, self.value):
            setter = getattr(each, name, None)
            if callable(setter):
                setter(resolver)

    def close(self) -> Steps:
        """Close what builders made, all of it. Raises the first error."""
        owned, self._owned = self._owned, []
        failed: BaseException | None = None
        for each in owned:
            close = getattr(each, "aclose", None) or getattr(each, "close", None)
            try:
                if close is not None:
                    yield close()
            except Exception as error:
                failed = failed or error
        if failed is not None:
            raise failed


def run(steps: Steps) -> None:
    """Run work whose results are not awaitable."""
    try:
        result = next(steps)
        while True:
            result = steps.send(result)
    except StopIteration:
        pass


async def run_awaited(steps: Steps) -> None:
    """Run work, and await what is awaitable."""
    try:
        result = next(steps)
        while True:
            try:
                result = await awaited(result)
            except Exception as error:
                result = steps.throw(error)
            else:
                result = steps.send(result)
    except StopIteration:
        pass


async def awaited(result: Any) -> Any:
    """Return a result, awaited if it is awaitable."""
    return await result if inspect.isawaitable(result) else result
