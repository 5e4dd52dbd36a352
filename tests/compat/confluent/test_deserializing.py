"""Deserializing consumers, and those for asyncio."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import confluent_kafka
import confluent_kafka.aio
import confluent_kafka.serialization
import pytest

import kohort.compat.confluent as package
from kohort.testing import Cluster, ProducerRecord
from tests.compat.confluent.kit import LIMIT_S
from tests.compat.kit import public_names

AIO = package.aio


def options(cluster: Cluster, group: str, **more: Any) -> dict[str, Any]:
    """Return the options of a consumer that reads from the beginning."""
    return {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 50,
        **more,
    }


def decode(data: bytes | None, context: Any) -> str:
    """Return text; of a value with its field and topic."""
    if data == b"bad":
        raise LookupError("no schema")
    return f"{context.field}:{context.topic[:5]}:{(data or b'').decode()}"


def write(cluster: Cluster, topic: str, *values: bytes) -> None:
    """Write values with a key to the first partition."""
    cluster.produce(topic, [ProducerRecord(value, key=b"k", partition=0) for value in values])


def test_poll_deserializes_and_errors_have_the_message(
    client: Any, cluster: Cluster, own_topic: str, group: str
) -> None:
    write(cluster, own_topic, b"tea", b"bad")
    decoders = {"key.deserializer": decode, "value.deserializer": decode}
    consumer = client.DeserializingConsumer(
        options(cluster, group, **decoders, **{"enable.partition.eof": True})
    )
    consumer.assign([client.TopicPartition(own_topic, 0)])
    message = consumer.poll(LIMIT_S)
    assert (message.key(), message.value()) == ("key:topic:k", "value:topic:tea")
    with pytest.raises(client.KafkaException) as raised:
        consumer.poll(LIMIT_S)
    error: Any = raised.value
    assert type(error).__name__ == "ValueDeserializationError"
    assert error.code == client.KafkaError._VALUE_DESERIALIZATION
    assert (error.kafka_message.value(), str(error.exception)) == (b"bad", "no schema")
    with pytest.raises(client.KafkaException) as raised:
        consumer.poll(LIMIT_S)
    assert type(raised.value).__name__ == "ConsumeError"
    assert raised.value.args[0] == client.KafkaError._PARTITION_EOF
    with pytest.raises(NotImplementedError):
        consumer.consume()
    consumer.close()


def test_errors_are_those_of_confluent_kafka() -> None:
    for name in ("ConsumeError", "KeyDeserializationError", "ValueDeserializationError"):
        assert getattr(package, name) is getattr(confluent_kafka.error, name)
    serialization: Any = confluent_kafka.serialization
    assert package.SerializationError is serialization.SerializationError


def test_aio_classes_have_their_methods_and_places() -> None:
    peer = confluent_kafka.aio
    assert public_names(AIO.AIOConsumer) == public_names(peer.AIOConsumer)
    before = {name: getattr(peer, name) for name in AIO.__all__}
    try:
        package.install()
        assert {name: getattr(peer, name) for name in AIO.__all__} == {
            name: getattr(AIO, name) for name in AIO.__all__
        }
        assert vars(confluent_kafka)["DeserializingConsumer"] is package.DeserializingConsumer
    finally:
        package.uninstall()
    assert {name: getattr(peer, name) for name in AIO.__all__} == before


@pytest.fixture(params=["kohort", pytest.param("confluent-kafka", marks=pytest.mark.long)])
def aio(request: pytest.FixtureRequest) -> Any:
    """The classes for asyncio, of kohort and of confluent-kafka."""
    return AIO if request.param == "kohort" else confluent_kafka.aio


def run(body: Callable[[], Awaitable[None]]) -> None:
    """Run a coroutine function with a time limit."""
    asyncio.run(asyncio.wait_for(body(), LIMIT_S))


def test_callbacks_are_coroutines_that_await_the_consumer(
    aio: Any, cluster: Cluster, own_topic: str, group: str
) -> None:
    write(cluster, own_topic, b"a", b"b", b"c")
    calls: list[Any] = []

    async def on_assign(consumer: Any, partitions: list[Any]) -> None:
        for each in partitions:
            each.offset = 1
        await consumer.assign(partitions)
        calls.append((consumer, partitions))

    async def on_revoke(consumer: Any, partitions: list[Any]) -> None:
        await consumer.commit(asynchronous=False)

    async def body() -> None:
        consumer = aio.AIOConsumer(options(cluster, group))
        await consumer.subscribe([own_topic], on_assign=on_assign, on_revoke=on_revoke)
        found = await consumer.consume(2, LIMIT_S)
        assert [each.value() for each in found] == [b"b", b"c"]
        assert calls[0][0] is consumer
        assert await consumer.poll(0.1) is None
        await consumer.close()
        with pytest.raises(RuntimeError, match="Consumer closed"):
            await consumer.poll(0)
        tp = confluent_kafka.TopicPartition(own_topic, 0)
        async with aio.AIOConsumer(options(cluster, group)) as other:
            [at] = await other.committed([tp])
            assert at.offset == 3

    run(body)


def test_cancelled_calls_lose_no_message(
    cluster: Cluster, own_topic: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(cluster, own_topic, *(b"%d" % number for number in range(20)))
    taken, cancelled = threading.Event(), threading.Event()

    async def body() -> None:
        consumer = AIO.AIOConsumer(options(cluster, group))
        tp = confluent_kafka.TopicPartition(own_topic, 0)
        await consumer.assign([tp])
        original = consumer._consumer.consume

        def consume(count: int, timeout: float) -> Any:
            found = original(count, timeout)
            taken.set()
            assert cancelled.wait(LIMIT_S)
            return found

        with monkeypatch.context() as patch:
            patch.setattr(consumer._consumer, "consume", consume)
            waiting = asyncio.create_task(consumer.consume(7, LIMIT_S))
            assert await asyncio.to_thread(taken.wait, LIMIT_S)
            waiting.cancel()
            cancelled.set()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        assert (await consumer.position([tp]))[0].offset == confluent_kafka.OFFSET_INVALID
        found = await consumer.consume(20, LIMIT_S)
        assert [each.value() for each in found] == [b"%d" % number for number in range(20)]
        await consumer.close()

    run(body)


def test_async_deserializers_are_awaited(
    aio: Any, cluster: Cluster, own_topic: str, group: str
) -> None:
    write(cluster, own_topic, b"a", b"bad")

    async def decode_later(data: bytes | None, context: Any) -> str:
        return decode(data, context)

    async def body() -> None:
        made = aio.AsyncDeserializingConsumer(
            options(
                cluster, group, **{"value.deserializer": decode_later, "key.deserializer": decode}
            )
        )
        consumer = await made
        await consumer.assign([confluent_kafka.TopicPartition(own_topic, 0)])
        [message] = await consumer.consume(1, LIMIT_S)
        assert (message.key(), message.value()) == ("key:topic:k", "value:topic:a")
        with pytest.raises(confluent_kafka.error.ValueDeserializationError):
            await consumer.poll(LIMIT_S)
        await consumer.close()

    run(body)


class Decoder:
    """A deserializer of a builder, which notes the id of the cluster and its end."""

    def __init__(self, closed: list[str], name: str) -> None:
        self._closed, self._name = closed, name
        self.resolver: Any = None

    def set_cluster_id_resolver(self, resolver: Any) -> None:
        self.resolver = resolver

    set_async_cluster_id_resolver = set_cluster_id_resolver

    def __call__(self, data: bytes | None, context: Any) -> str:
        return decode(data, context)

    def close(self) -> None:
        self._closed.append(self._name)


class Builder:
    """A builder as those of ``schema_registry``: it takes its options and leaves the others."""

    def __init__(self, closed: list[str]) -> None:
        self.closed = closed
        self.built: list[Decoder] = []

    def build(self, conf: dict[str, Any], is_key: bool) -> Any:
        if "registry.bad" in conf:
            raise LookupError("no registry")
        assert conf.pop("registry.url") == "http://registry"
        self.built.append(Decoder(self.closed, "key" if is_key else "value"))
        return self.built[-1], conf


def test_builders_make_deserializers_that_close_with_the_consumer(
    client: Any, cluster: Cluster, own_topic: str, group: str
) -> None:
    write(cluster, own_topic, b"tea")
    builder = Builder([])
    given = options(cluster, group, **{"registry.url": "http://registry"})
    builders = {"key.deserializer.builder": builder, "value.deserializer.builder": builder}
    with client.DeserializingConsumer({**given, **builders}) as consumer:
        consumer.assign([client.TopicPartition(own_topic, 0)])
        message = consumer.poll(LIMIT_S)
        assert (message.key(), message.value()) == ("key:topic:k", "value:topic:tea")
        assert builder.built[0].resolver() == consumer.cluster_id(timeout=LIMIT_S)
        assert builder.closed == []
    assert builder.closed == ["key", "value"]
    consumer.close()
    assert builder.closed == ["key", "value"]


def test_failed_builders_close_what_was_built(client: Any, cluster: Cluster, group: str) -> None:
    builder, given = Builder([]), options(cluster, group, **{"registry.url": "http://registry"})

    class Failing(Builder):
        def build(self, conf: dict[str, Any], is_key: bool) -> Any:
            return super().build({**conf, "registry.bad": True}, is_key)

    with pytest.raises(LookupError, match="no registry"):
        client.DeserializingConsumer(
            {
                **given,
                "key.deserializer.builder": builder,
                "value.deserializer.builder": Failing([]),
            }
        )
    assert builder.closed == ["key"]
    both = {"key.deserializer": decode, "key.deserializer.builder": builder}
    with pytest.raises(ValueError, match=r"both key\.deserializer and key\.deserializer\.builder"):
        client.DeserializingConsumer({**given, **both})


def test_async_builders_are_awaited(aio: Any, cluster: Cluster, own_topic: str, group: str) -> None:
    write(cluster, own_topic, b"a")
    closed: list[str] = []

    class AsyncDecoder(Decoder):
        async def aclose(self) -> None:
            closed.append("aclose")

    class AsyncBuilder(Builder):
        async def build(self, conf: dict[str, Any], is_key: bool) -> Any:
            _, left = super().build(conf, is_key)
            self.built.append(AsyncDecoder(closed, "never"))
            return self.built[-1], left

    async def body() -> None:
        builder = AsyncBuilder(closed)
        given = options(cluster, group, **{"registry.url": "http://registry"})
        consumer = await aio.AsyncDeserializingConsumer(
            {**given, "value.deserializer.builder": builder}
        )
        await consumer.assign([confluent_kafka.TopicPartition(own_topic, 0)])
        [message] = await consumer.consume(1, LIMIT_S)
        assert message.value() == "value:topic:a"
        found = await consumer.cluster_id(timeout=LIMIT_S)
        assert await builder.built[-1].resolver() == found
        await consumer.close()
        await consumer.close()
        assert closed == ["aclose"]

    run(body)
