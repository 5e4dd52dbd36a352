"""Calls of listeners: kohort's, and those written for other clients."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import anyio
import pytest

from kohort.errors import RebalanceListenerError
from kohort.listeners import ConsumerRebalanceListener, ListenerChain, RebalanceContext
from kohort.listeners._dispatch import CallbackName, acall_listener, call_listener, check_listener
from kohort.types import TopicPartition

A = TopicPartition("orders", 0)
PARTITIONS = [TopicPartition("orders", 1), TopicPartition("orders", 0)]
CALLBACKS: tuple[CallbackName, ...] = (
    "on_partitions_revoked",
    "on_partitions_assigned",
    "on_partitions_lost",
)


class Recorder(ConsumerRebalanceListener):
    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    def on_partitions_revoked(self, revoked: frozenset[TopicPartition]) -> None:
        self.calls.append(("revoked", revoked))

    def on_partitions_assigned(self, assigned: frozenset[TopicPartition]) -> None:
        self.calls.append(("assigned", assigned))


class AsyncRecorder(Recorder):
    async def _later(self, name: str, partitions: Any) -> None:
        await anyio.lowlevel.checkpoint()
        self.calls.append((name, partitions))

    def on_partitions_revoked(self, revoked: frozenset[TopicPartition]) -> Any:
        return self._later("revoked", revoked)


class Coroutines(ConsumerRebalanceListener):
    async def on_partitions_revoked(self, revoked: frozenset[TopicPartition]) -> None:
        await anyio.lowlevel.checkpoint()

    async def on_partitions_assigned(self, assigned: frozenset[TopicPartition]) -> None:
        raise LookupError("no such state")


class Raising(ConsumerRebalanceListener):
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def on_partitions_revoked(self, revoked: frozenset[TopicPartition]) -> None:
        raise self.error


class DuckWithoutLost:
    """A listener like those for aiokafka, without a callback for lost partitions."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        self.calls.append("revoked")

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self.calls.append("assigned")


def test_the_callback_gets_a_set_of_partitions() -> None:
    listener = Recorder()
    assert call_listener(listener, "on_partitions_assigned", PARTITIONS) is None
    ((name, partitions),) = listener.calls
    assert name == "assigned"
    assert partitions == set(PARTITIONS)
    assert ("orders", 0) in partitions
    assert len(partitions) == 2
    assert isinstance(partitions, frozenset)


@pytest.mark.parametrize("callback", CALLBACKS)
def test_the_base_class_does_nothing(callback: CallbackName) -> None:
    assert call_listener(ConsumerRebalanceListener(), callback, PARTITIONS) is None


def test_lost_calls_revoked_unless_the_listener_defines_lost() -> None:
    listener = Recorder()
    assert call_listener(listener, "on_partitions_lost", PARTITIONS) is None
    assert listener.calls == [("revoked", frozenset(PARTITIONS))]


def test_a_listener_without_lost_gets_revoked() -> None:
    listener = DuckWithoutLost()
    assert call_listener(listener, "on_partitions_lost", PARTITIONS) is None
    assert listener.calls == ["revoked"]


def test_what_a_callback_raises_is_returned_wrapped() -> None:
    original = ValueError("the disk is full")
    error = call_listener(Raising(original), "on_partitions_revoked", PARTITIONS)
    assert isinstance(error, RebalanceListenerError)
    assert error.__cause__ is original
    assert error.callback == "on_partitions_revoked"
    assert error.partitions == frozenset(PARTITIONS)
    assert str(error) == (
        "Raising.on_partitions_revoked raised ValueError: the disk is full "
        "(partitions: orders-0, orders-1)"
    )


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), SystemExit(3), GeneratorExit()])
def test_what_is_no_error_passes_through(stop: BaseException) -> None:
    with pytest.raises(type(stop)) as raised:
        call_listener(Raising(stop), "on_partitions_revoked", PARTITIONS)
    assert raised.value is stop


def test_a_coroutine_method_cannot_be_called_synchronously() -> None:
    error = call_listener(Coroutines(), "on_partitions_revoked", PARTITIONS)
    assert isinstance(error, RebalanceListenerError)
    assert isinstance(error.__cause__, TypeError)
    assert "AsyncKafkaConsumer" in str(error)


@pytest.mark.anyio
async def test_plain_methods_serve_the_asynchronous_consumer() -> None:
    listener = Recorder()
    assert await acall_listener(listener, "on_partitions_revoked", PARTITIONS) is None
    assert listener.calls == [("revoked", frozenset(PARTITIONS))]


@pytest.mark.anyio
async def test_coroutine_methods_are_awaited() -> None:
    listener = AsyncRecorder()
    assert await acall_listener(listener, "on_partitions_revoked", PARTITIONS) is None
    assert await acall_listener(listener, "on_partitions_lost", PARTITIONS) is None
    assert [name for name, _ in listener.calls] == ["revoked", "revoked"]


@pytest.mark.anyio
async def test_what_a_coroutine_raises_is_returned_wrapped() -> None:
    error = await acall_listener(Coroutines(), "on_partitions_assigned", [])
    assert isinstance(error, RebalanceListenerError)
    assert isinstance(error.__cause__, LookupError)
    assert str(error).endswith("(partitions: none)")


@pytest.mark.anyio
async def test_cancellation_of_a_callback_is_no_error_of_the_listener() -> None:
    class Sleeper(ConsumerRebalanceListener):
        async def on_partitions_revoked(self, revoked: frozenset[TopicPartition]) -> None:
            await anyio.sleep_forever()

    outcome: Any = "cancelled"
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.lowlevel.checkpoint)
            scope.cancel()
            outcome = await acall_listener(Sleeper(), "on_partitions_revoked", PARTITIONS)
    assert outcome == "cancelled"
    assert scope.cancelled_caught


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("listener", [Recorder(), DuckWithoutLost(), AsyncRecorder()])
def test_anything_with_the_two_methods_is_a_listener(listener: Any, asynchronous: bool) -> None:
    check_listener(listener, asynchronous=asynchronous)


def test_coroutine_methods_are_for_the_async_consumer_only() -> None:
    check_listener(Coroutines(), asynchronous=True)
    with pytest.raises(TypeError, match=r"Coroutines.on_partitions_revoked is a coroutine"):
        check_listener(Coroutines())


def test_a_class_or_an_object_without_the_methods_is_no_listener() -> None:
    with pytest.raises(TypeError, match="Pass an instance"):
        check_listener(Recorder)
    with pytest.raises(TypeError, match=r"no method on_partitions_revoked\(\)"):
        check_listener(object())
    with pytest.raises(TypeError, match="listener"):
        check_listener(print)


def ported(base: type[Any], calls: list[Any]) -> Any:
    """Return a listener of an application that has only changed its consumer's import."""
    callbacks = {
        "on_partitions_revoked": lambda self, revoked: calls.append(revoked),
        "on_partitions_assigned": lambda self, assigned: calls.append(assigned),
    }
    return type("Ported", (base,), callbacks)()


@pytest.mark.parametrize("client", ["kafka", "aiokafka"])
def test_listeners_of_kafka_python_and_aiokafka_serve_unchanged(client: str) -> None:
    base = pytest.importorskip(client).ConsumerRebalanceListener
    calls: list[Any] = []
    listener = ported(base, calls)
    check_listener(listener)
    for callback in CALLBACKS:
        assert call_listener(listener, callback, PARTITIONS) is None
    assert calls == [frozenset(PARTITIONS)] * 3


@pytest.mark.anyio
async def test_async_listeners_of_kafka_python_serve_async_consumer() -> None:
    base = pytest.importorskip("kafka").AsyncConsumerRebalanceListener
    calls: list[Any] = []

    async def callback(self: Any, partitions: Any) -> None:
        calls.append(partitions)

    methods = {"on_partitions_revoked": callback, "on_partitions_assigned": callback}
    listener = type("Ported", (base,), methods)()
    check_listener(listener, asynchronous=True)
    assert await acall_listener(listener, "on_partitions_lost", PARTITIONS) is None
    assert calls == [frozenset(PARTITIONS)]
    with pytest.raises(TypeError, match="AsyncKafkaConsumer"):
        check_listener(listener)


# -- the context of a rebalance --------------------------------------------------------------------

CONTEXT = RebalanceContext("group_changed", "the group rebalances", 5.0)


class BothForms(ConsumerRebalanceListener):
    """A listener with the parameter in one method, and no method for lost partitions."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def on_partitions_assigned(self, assigned: frozenset[TopicPartition]) -> None:
        self.seen.append(assigned)

    def on_partitions_revoked(
        self, revoked: frozenset[TopicPartition], rebalance: RebalanceContext
    ) -> None:
        self.seen.append((revoked, rebalance))


def test_only_methods_with_the_parameter_get_the_context() -> None:
    listener = BothForms()
    check_listener(listener)
    for callback in CALLBACKS:
        assert call_listener(listener, callback, [A], CONTEXT) is None
    only = frozenset([A])
    assert listener.seen == [(only, CONTEXT), only, (only, CONTEXT)]


def test_a_chain_passes_the_context_on() -> None:
    first, second = BothForms(), BothForms()
    assert call_listener(ListenerChain(first, second), "on_partitions_lost", [A], CONTEXT) is None
    assert first.seen == second.seen == [(frozenset([A]), CONTEXT)]


def test_a_method_that_cannot_be_called_is_refused() -> None:
    class Wrong:
        def on_partitions_assigned(self, assigned: object, generation: int) -> None: ...
        def on_partitions_revoked(self, revoked: object) -> None: ...

    class NoParameter:
        def on_partitions_assigned(self, assigned: object) -> None: ...
        def on_partitions_revoked(self) -> None: ...

    for listener, method in ((Wrong(), "assigned"), (NoParameter(), "revoked")):
        with pytest.raises(TypeError, match=rf"on_partitions_{method}\(.* cannot be called"):
            check_listener(listener)
