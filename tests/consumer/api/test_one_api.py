"""KafkaConsumer and AsyncKafkaConsumer are one API, once with ``await``."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from kohort import AsyncKafkaConsumer, KafkaConsumer

WAITS = frozenset(
    {
        "beginning_offsets",
        "bootstrap",
        "close",
        "commit",
        "committed",
        "end_offsets",
        "offsets_for_times",
        "partitions_for_topic",
        "poll",
        "poll_arrow",
        "poll_batches",
        "position",
        "seek_to_committed",
        "start",
        "topic_ids",
        "topics",
        "unsubscribe",
    }
)
"""Methods that may wait for a broker, a listener or the consumer thread: awaited on asyncio."""

PLAIN = frozenset(
    {
        "assign",
        "assignment",
        "bootstrap_connected",
        "commit_async",
        "enforce_rebalance",
        "explain",
        "from_properties",
        "group_metadata",
        "health",
        "highwater",
        "known_partitions",
        "lag",
        "last_poll_timestamp",
        "last_stable_offset",
        "metric_samples",
        "metrics",
        "pause",
        "paused",
        "positions",
        "resume",
        "seek",
        "seek_to_beginning",
        "seek_to_end",
        "subscribe",
        "subscription",
        "wakeup",
    }
)
"""Methods that never wait. They are plain functions in both classes."""

OTHER_RESULTS = {
    "commit_async": ("Future[None]", "AsyncCommitFuture"),
    "from_properties": ("Any", "Any"),
}
"""Results that differ: the future to wait for and the future to await."""

OTHER_TYPES = {"listener": ("RebalanceListener | None", "AsyncRebalanceListener | None")}
"""Parameters whose types differ, because methods of a listener may be coroutines."""


def public_methods(cls: type[Any]) -> Iterator[tuple[str, Any]]:
    for name, member in inspect.getmembers(cls, callable):
        if not name.startswith("_"):
            yield name, member


def parameters(function: Any) -> list[tuple[str, Any, Any]]:
    found = inspect.signature(function).parameters.values()
    return [(each.name, each.kind, each.default) for each in found]


def test_both_classes_have_the_methods_of_the_table() -> None:
    for cls in (KafkaConsumer, AsyncKafkaConsumer):
        assert {name for name, _ in public_methods(cls)} == WAITS | PLAIN


def test_methods_that_wait_are_coroutine_functions() -> None:
    for name, member in public_methods(AsyncKafkaConsumer):
        assert inspect.iscoroutinefunction(member) == (name in WAITS), name
    for name, member in public_methods(KafkaConsumer):
        assert not inspect.iscoroutinefunction(member), name


@pytest.mark.parametrize("name", sorted(WAITS | PLAIN))
def test_methods_have_the_same_parameters_and_results(name: str) -> None:
    plain, awaited = getattr(KafkaConsumer, name), getattr(AsyncKafkaConsumer, name)
    assert parameters(plain) == parameters(awaited)
    for parameter in inspect.signature(plain).parameters:
        types = [
            inspect.signature(each).parameters[parameter].annotation for each in (plain, awaited)
        ]
        expected = OTHER_TYPES.get(parameter, (types[0], types[0]))
        assert tuple(types) == expected, parameter
    results = [inspect.signature(each).return_annotation for each in (plain, awaited)]
    assert tuple(results) == OTHER_RESULTS.get(name, (results[0], results[0]))


@pytest.mark.parametrize("name", sorted(WAITS | PLAIN))
def test_methods_have_the_same_docstring(name: str) -> None:
    plain, awaited = getattr(KafkaConsumer, name), getattr(AsyncKafkaConsumer, name)
    assert inspect.getdoc(plain)
    assert inspect.getdoc(plain) == inspect.getdoc(awaited)


class Closing(KafkaConsumer[bytes, bytes]):
    """A consumer whose own close() does more."""

    calls = 0

    def close(self, *args: Any, **options: Any) -> None:
        self.calls += 1
        super().close(*args, **options)


def test_a_block_ends_by_the_close_of_a_subclass() -> None:
    with Closing("orders", bootstrap_servers="localhost:1") as consumer:
        pass
    assert consumer.calls == 1
