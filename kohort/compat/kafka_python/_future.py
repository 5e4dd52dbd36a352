"""Result of ``commit_async()``, in the shape of ``kafka.future.Future``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from kohort.compat._peer import peer_name
from kohort.logs import get_logger

logger = get_logger("kohort.compat")


class Future:
    """Result that arrives later; its callbacks run on the thread that brings it."""

    def __init__(self) -> None:
        self.is_done: bool = False
        self.value: Any = None
        self.exception: BaseException | None = None
        self._callbacks: list[tuple[Callable[[Any], Any], bool]] = []

    def succeeded(self) -> bool:
        """True if there is a value."""
        return self.is_done and self.exception is None

    def failed(self) -> bool:
        """True if there is an error."""
        return self.is_done and self.exception is not None

    def retriable(self) -> bool:
        """True if there is an error after which the same call may work."""
        return self.is_done and bool(getattr(self.exception, "retriable", False))

    def success(self, value: Any) -> Future:
        """Set the value and run the callbacks."""
        self.value = value
        return self._finish()

    def failure(self, e: BaseException | type[BaseException]) -> Future:
        """Set the error and run the callbacks for errors."""
        self.exception = e() if isinstance(e, type) else e
        return self._finish()

    def add_callback(self, f: Callable[..., Any], *args: Any, **kwargs: Any) -> Future:
        """Call ``f(*args, value)`` when there is a value."""
        return self._add(partial(f, *args, **kwargs), failed=False)

    def add_errback(self, f: Callable[..., Any], *args: Any, **kwargs: Any) -> Future:
        """Call ``f(*args, error)`` when there is an error."""
        return self._add(partial(f, *args, **kwargs), failed=True)

    def add_both(self, f: Callable[..., Any], *args: Any, **kwargs: Any) -> Future:
        """Call ``f(*args, result)`` in both cases."""
        return self.add_callback(f, *args, **kwargs).add_errback(f, *args, **kwargs)

    def chain(self, future: Future) -> Future:
        """Pass the result on to another future."""
        return self.add_callback(future.success).add_errback(future.failure)

    def _add(self, call: Callable[[Any], Any], *, failed: bool) -> Future:
        self._callbacks.append((call, failed))
        return self._run_callbacks()

    def _finish(self) -> Future:
        self.is_done = True
        return self._run_callbacks()

    def _run_callbacks(self) -> Future:
        # pop() is atomic: the thread that ends the commit and the caller's may both come here.
        while self.is_done and self._callbacks:
            try:
                call, failed = self._callbacks.pop(0)
            except IndexError:
                break
            if failed == self.failed():
                try:
                    call(self.exception if failed else self.value)
                except Exception:
                    logger.exception("a callback of commit_async() raised")
        return self


if not TYPE_CHECKING:
    Future = peer_name("kafka.future", "Future") or Future
