"""The callback queue, which holds errors and callbacks for the caller."""

from __future__ import annotations

import time

from kohort.consumer._callback_queue import CallbackQueue, EngineLoop
from kohort.errors import KafkaError


def test_an_error_is_reported_while_the_caller_takes_another_out() -> None:
    class Taken(KafkaError):
        def __str__(self) -> str:  # runs while report() compares
            if callback_queue.errors:
                callback_queue.errors.popleft()
            return f"taken {id(self)}"

    callback_queue = CallbackQueue(EngineLoop(), lambda: None, time.monotonic)
    callback_queue.errors.extend([Taken(), KafkaError("another")])
    later = Taken()
    callback_queue.report(later)
    assert later in callback_queue.errors


def test_the_same_error_is_kept_once() -> None:
    callback_queue = CallbackQueue(EngineLoop(), lambda: None, time.monotonic)
    for text in ("one", "one", "two"):
        callback_queue.report(KafkaError(text))
    assert [str(error) for error in callback_queue.errors] == ["one", "two"]
