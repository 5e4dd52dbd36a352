"""The classes look like confluent-kafka's, and take their place in it."""

from __future__ import annotations

import logging
import pickle
import time
import uuid
from typing import Any

import confluent_kafka
import pytest

import kohort.compat.confluent as package
from kohort.testing import Cluster, ProducerRecord
from tests.compat.confluent.conftest import MakeConsumer
from tests.compat.confluent.kit import read
from tests.compat.kit import public_names
from tests.interop.waiting import wait_until


def test_consumer_has_the_methods_of_confluent_kafka() -> None:
    assert public_names(package.Consumer) == public_names(confluent_kafka.cimpl.Consumer)


def test_messages_have_the_methods_of_confluent_kafka(alone: Any) -> None:
    peer = public_names(confluent_kafka.Message)
    assert public_names(alone.Message) == peer
    assert peer <= public_names(alone._values.ConsumedMessage)


def test_own_errors_have_the_codes_of_confluent_kafka(alone: Any) -> None:
    peer = confluent_kafka.KafkaError
    names = [name for name in dir(peer) if name.lstrip("_").isupper()]
    assert {name: getattr(alone.KafkaError, name) for name in names} == {
        name: getattr(peer, name) for name in names
    }
    for code in (peer._PARTITION_EOF, peer.UNKNOWN_TOPIC_OR_PART, peer._STATE):
        assert alone.KafkaError(code).name() == peer(code).name()
        assert hash(alone.KafkaError(code)) == hash(peer(code))
        assert alone.KafkaError(code) == code == peer(code)
    error = alone.KafkaError(peer._FATAL, "why", fatal=True, retriable=True)
    assert (error.str(), error.fatal(), error.retriable()) == ("why", True, True)
    assert repr(error) == repr(peer(peer._FATAL, "why", fatal=True, retriable=True))


def test_classes_are_those_of_confluent_kafka_where_it_is_installed() -> None:
    for name in ("KafkaError", "KafkaException", "Message", "TopicPartition", "ThrottleEvent"):
        assert getattr(package, name) is getattr(confluent_kafka, name)
    assert package.Producer is confluent_kafka.Producer


def test_names_of_confluent_kafka_are_missing_without_it(alone: Any) -> None:
    with pytest.raises(AttributeError, match="Install confluent-kafka"):
        alone.Producer  # noqa: B018
    with pytest.raises(ImportError):
        alone.install()


def test_install_replaces_the_class_until_uninstall() -> None:
    peer: Any = confluent_kafka.Consumer
    try:
        package.install()
        assert vars(confluent_kafka)["Consumer"] is package.Consumer
        assert vars(confluent_kafka.cimpl)["Consumer"] is package.Consumer
    finally:
        package.uninstall()
    assert confluent_kafka.Consumer is confluent_kafka.cimpl.Consumer is peer


def test_messages_are_instances_of_message(
    client: Any, cluster: Cluster, own_topic: str, make: MakeConsumer
) -> None:
    one = ProducerRecord(b"value", key=b"key", headers=[("a", b"1")], timestamp=5, partition=0)
    cluster.produce(own_topic, [one, ProducerRecord(None, partition=0)])
    consumer = make()
    consumer.assign([client.TopicPartition(own_topic, 0)])
    first, second = read(consumer, 2)
    assert isinstance(first, client.Message)
    assert (first.topic(), first.partition(), first.offset()) == (own_topic, 0, 0)
    assert (first.key(), first.value(), first.headers()) == (b"key", b"value", [("a", b"1")])
    assert first.timestamp() == (client.TIMESTAMP_CREATE_TIME, 5)
    assert (first.error(), first.latency(), first.leader_epoch()) == (None, None, 0)
    assert (len(first), len(second)) == (5, 0)
    assert (second.key(), second.value(), second.headers()) == (None, None, None)
    with pytest.raises(TypeError):
        hash(first)


def test_messages_can_be_changed_compared_and_pickled(
    client: Any, cluster: Cluster, own_topic: str, make: MakeConsumer
) -> None:
    cluster.produce(own_topic, [ProducerRecord(b"value", partition=0)])
    consumer = make()
    consumer.assign([client.TopicPartition(own_topic, 0)])
    [message] = read(consumer, 1)
    if client is not confluent_kafka and client is not package:
        copy = client.Message(*message._arguments())
    else:
        copy = pickle.loads(pickle.dumps(message))
    assert type(copy) is client.Message
    assert message == copy
    error = client.KafkaError(client.KafkaError._APPLICATION)
    message.set_topic("other")
    message.set_key("key")
    message.set_value({"item": "tea"})
    message.set_headers([("b", None)])
    message.set_error(error)
    assert (message.topic(), message.key(), message.value()) == ("other", "key", {"item": "tea"})
    assert (message.headers(), message.error()) == ([("b", None)], error)
    assert message != copy


def test_a_message_of_ones_own_has_the_given_parts(client: Any) -> None:
    assert client.Message().partition() is None
    message = client.Message("t", 1, 2, b"k", b"v", [("h", b"1")], None, (1, 5), 0.5, 3)
    assert (message.topic(), message.partition(), message.offset()) == ("t", 1, 2)
    assert (message.key(), message.value(), message.headers()) == (b"k", b"v", [("h", b"1")])
    assert (message.timestamp(), message.latency(), message.leader_epoch()) == ((1, 5), 0.5, 3)
    assert message == client.Message("t", 1, 2, b"k", b"v", [("h", b"1")], None, (1, 5), 0.5, 3)


def test_partitions_are_compared_by_topic_and_number(client: Any) -> None:
    make = client.TopicPartition
    assert make("a", 1) == make("a", 1, 5)
    assert make("a", 1) < make("a", 2) < make("b", 0)
    assert len({make("a", 1), make("a", 1, 7)}) == 1
    assert (make("a").partition, make("a").offset, make("a").error) == (-1, -1001, None)


def test_wrong_configurations_raise_as_in_confluent_kafka(client: Any, cluster: Cluster) -> None:
    base = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g"}
    with pytest.raises(TypeError, match="expected configuration dict"):
        client.Consumer()
    with pytest.raises(ValueError, match=r"group\.id must be set"):
        client.Consumer({"bootstrap.servers": cluster.bootstrap_servers})
    with pytest.raises(TypeError, match="expected error_cb property as a callable"):
        client.Consumer({**base, "error_cb": 3})
    for wrong in ({"foo.bar": 1}, {"session.timeout.ms": "abc"}):
        with pytest.raises(client.KafkaException) as raised:
            client.Consumer({**base, **wrong})
        error = raised.value.args[0]
        assert error.code() == client.KafkaError._INVALID_ARG
        assert next(iter(wrong)) in error.str()


def test_names_and_values_of_librdkafka_are_taken_as_they_are(
    client: Any, make: MakeConsumer
) -> None:
    logger = logging.getLogger("test")
    properties = {"log_level": 6, "client.id": uuid.UUID(int=7), "enable.auto.commit": "false"}
    base = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}
    client.Consumer(
        {**base, **properties, "default.topic.config": {"auto.offset.reset": "end"}}
    ).close()
    consumer = client.Consumer({**base, **properties}, logger=logger)
    consumer.close()
    with pytest.raises(ValueError, match=r"group\.id must be set"):
        client.Consumer(bootstrap_servers="127.0.0.1:1", group_id="g")


def test_closed_consumer_raises_runtime_error(client: Any, make: MakeConsumer) -> None:
    consumer = make()
    tp = client.TopicPartition("t", 0, 0)
    consumer.close()
    consumer.close()
    for call in (
        lambda: consumer.subscribe(["t"]),
        consumer.unsubscribe,
        lambda: consumer.poll(0),
        lambda: consumer.consume(1, 0),
        lambda: consumer.assign([tp]),
        lambda: consumer.incremental_assign([tp]),
        lambda: consumer.incremental_unassign([tp]),
        consumer.unassign,
        consumer.assignment,
        consumer.commit,
        lambda: consumer.store_offsets(offsets=[tp]),
        lambda: consumer.committed([tp]),
        lambda: consumer.position([tp]),
        lambda: consumer.seek(tp),
        lambda: consumer.pause([tp]),
        lambda: consumer.resume([tp]),
        lambda: consumer.get_watermark_offsets(tp),
        lambda: consumer.offsets_for_times([tp]),
        consumer.list_topics,
        consumer.memberid,
        consumer.consumer_group_metadata,
    ):
        with pytest.raises(RuntimeError, match="closed"):
            call()


def test_first_token_is_that_of_the_new_consumer(client: Any) -> None:
    calls: list[str] = []

    def oauth_cb(config: str) -> tuple[str, float]:
        calls.append(config)
        return "token", time.time() + 300

    options = {
        "bootstrap.servers": "localhost:1",
        "group.id": "billing",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.config": "scope=orders",
    }
    client.Consumer({**options, "oauth_cb": oauth_cb}).close()
    assert calls == ["scope=orders"]

    def short(config: str) -> tuple[str, float]:
        calls.append(config)
        return "token", time.time() + 2

    consumer = client.Consumer({**options, "oauth_cb": short})
    wait_until(lambda: len(calls) >= 4)
    consumer.close()
    for wrong in (lambda _: "token", lambda _: [][0]):
        with pytest.raises(client.KafkaException) as caught:
            client.Consumer({**options, "oauth_cb": wrong})
        assert caught.value.args[0].code() == client.KafkaError.SASL_AUTHENTICATION_FAILED
