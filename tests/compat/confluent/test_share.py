"""ShareConsumer and DeserializingShareConsumer, beside those of confluent-kafka."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest

import kohort.compat.confluent as package
from kohort import TopicPartition
from kohort.testing import Cluster
from tests.compat.confluent.kit import LIMIT_S
from tests.compat.kit import public_names
from tests.interop.waiting import wait_until

JOBS = TopicPartition("jobs", 0)
EACH_CLASS = pytest.mark.parametrize(
    "cls", [package.ShareConsumer, confluent_kafka.cimpl.ShareConsumer], ids=["kohort", "peer"]
)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(topics={"jobs": 1}) as cluster:
        cluster._call(
            lambda server: server.state.configs.groups.change(
                "workers", {"share.auto.offset.reset": "earliest"}
            )
        )
        cluster.produce("jobs", ["1", "two", "3"])
        yield cluster


def options(cluster: Cluster, **more: Any) -> dict[str, Any]:
    return {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "workers", **more}


def read(consumer: Any, count: int) -> list[Any]:
    """Poll until this many messages have come. Only for one batch or implicit mode."""
    found: list[Any] = []
    deadline = time.monotonic() + LIMIT_S
    while len(found) < count:
        assert time.monotonic() < deadline
        found += consumer.poll(0.5)
    return found


def test_classes_have_the_methods_of_confluent_kafka(alone: Any) -> None:
    assert public_names(package.ShareConsumer) == public_names(confluent_kafka.cimpl.ShareConsumer)
    assert public_names(alone.Messages) >= public_names(confluent_kafka._model.Messages)
    for name, theirs in (
        ("Messages", confluent_kafka._model.Messages),
        ("IllegalStateException", confluent_kafka.IllegalStateException),
    ):
        assert getattr(package, name) is theirs
    peer = confluent_kafka._model.AcknowledgeType
    assert {each.name: each.value for each in alone.AcknowledgeType} == {
        each.name: each.value for each in peer
    }


@EACH_CLASS
def test_explicit_acknowledgements_have_their_effect(cls: Any, cluster: Cluster) -> None:
    called: list[Any] = []
    kinds = package.AcknowledgeType
    with cls(options(cluster, **{"share.acknowledgement.mode": "explicit"})) as consumer:
        with pytest.raises(package.IllegalStateException):
            consumer.poll(0.1)
        consumer.subscribe(["jobs"])
        consumer.set_acknowledgement_commit_callback(lambda *given: called.append(given))
        first, second, third = read(consumer, 3)
        assert (first.value(), first.delivery_count(), first.error()) == (b"1", 1, None)
        with pytest.raises(package.IllegalStateException):
            consumer.poll(0.1)
        consumer.acknowledge(first)
        consumer.acknowledge(second, kinds.REJECT)
        consumer.acknowledge_offset("jobs", 0, third.offset(), kinds.RELEASE)
        for wrong in (4, 9):
            with pytest.raises(ValueError, match="Invalid argument"):
                consumer.acknowledge(first, wrong)
        found = consumer.commit_sync(30)
        assert {(tp.topic, tp.partition): error for tp, error in found.items()} == {JOBS: None}
        assert consumer.commit_sync(30) == {}
        with pytest.raises(package.IllegalStateException):
            consumer.acknowledge(first)
        offsets: set[int] = set()
        for given, error in called:
            assert error is None
            offsets |= {offset for each in given.values() for offset in each}
        assert offsets == {0, 1, 2}
        (again,) = read(consumer, 1)
        assert (again.value(), again.delivery_count()) == (b"3", 2)
        consumer.acknowledge(again)
    with pytest.raises(package.IllegalStateException, match="closed"):
        consumer.poll(0.1)
    state = cluster.share_state("workers")[JOBS]
    assert state.start == 3


@EACH_CLASS
def test_callback_cannot_call_the_consumer(cls: Any, cluster: Cluster) -> None:
    raised: list[str] = []
    with cls(options(cluster, **{"share.acknowledgement.mode": "explicit"})) as consumer:
        calls = {
            "poll": lambda: consumer.poll(0),
            "subscribe": lambda: consumer.subscribe(["jobs"]),
            "unsubscribe": consumer.unsubscribe,
            "commit_sync": lambda: consumer.commit_sync(1),
            "set": lambda: consumer.set_acknowledgement_commit_callback(None),
            "close": consumer.close,
        }

        def callback(*_: Any) -> None:
            for name, call in calls.items():
                with pytest.raises(package.IllegalStateException):
                    call()
                raised.append(name)

        consumer.subscribe(["jobs"])
        consumer.set_acknowledgement_commit_callback(callback)
        for each in read(consumer, 3):
            consumer.acknowledge(each)
        consumer.commit_sync(30)
        assert raised == list(calls)
        consumer.set_acknowledgement_commit_callback(None)
        assert consumer.subscription() == ["jobs"]


@EACH_CLASS
def test_polls_without_a_timeout_return_messages(cls: Any, cluster: Cluster) -> None:
    with cls(options(cluster)) as consumer:
        consumer.subscribe(["jobs"])
        found: list[bytes] = []
        deadline = time.monotonic() + LIMIT_S
        while len(found) < 3 and time.monotonic() < deadline:
            found += [each.value() for each in consumer.poll(0)]
        assert found == [b"1", b"two", b"3"]


@EACH_CLASS
def test_second_thread_is_refused_during_a_call(cls: Any, cluster: Cluster) -> None:
    with cls(options(cluster)) as consumer:
        consumer.subscribe(["jobs"])
        stop = threading.Event()

        def poll() -> None:
            while not stop.is_set():
                with contextlib.suppress(package.ConcurrentModificationException):
                    consumer.poll(0.2)

        thread = threading.Thread(target=poll)
        thread.start()
        try:
            deadline = time.monotonic() + LIMIT_S
            with pytest.raises(package.ConcurrentModificationException):
                while time.monotonic() < deadline:
                    consumer.commit_async()
        finally:
            stop.set()
            thread.join()


@EACH_CLASS
def test_the_next_poll_accepts_in_implicit_mode(cls: Any, cluster: Cluster) -> None:
    with cls(options(cluster)) as consumer:
        consumer.subscribe(["jobs"])
        (first, *_) = read(consumer, 3)
        with pytest.raises(package.IllegalStateException):
            consumer.acknowledge(first)
        consumer.commit_sync(30)
        cluster.produce("jobs", ["4"])
        assert [each.value() for each in read(consumer, 1)] == [b"4"]
    with cls(options(cluster)) as consumer:
        consumer.subscribe(["jobs"])
        (again,) = read(consumer, 1)
        assert (again.value(), again.delivery_count()) == (b"4", 2)


@pytest.mark.parametrize(
    "cls",
    [package.DeserializingShareConsumer, confluent_kafka.DeserializingShareConsumer],
    ids=["kohort", "peer"],
)
def test_values_are_deserialized_or_keep_their_bytes(cls: Any, cluster: Cluster) -> None:
    with cls(options(cluster, **{"value.deserializer": lambda data, _: int(data)})) as consumer:
        consumer.subscribe(["jobs"])
        one, two, three = read(consumer, 3)
        assert (one.value(), three.value()) == (1, 3)
        assert two.value() == b"two"
        assert two.error().code() == package.KafkaError._VALUE_DESERIALIZATION


@EACH_CLASS
@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"group.id": None}, ValueError),
        ({"enable.auto.commit": True}, ValueError),
        ({"auto.offset.reset": "earliest"}, ValueError),
        ({"group.protocol": "classic"}, ValueError),
        ({"no.such.thing": "1"}, package.KafkaException),
    ],
)
def test_wrong_options_raise_the_same(cls: Any, given: dict[str, Any], error: type) -> None:
    values = {"bootstrap.servers": "localhost:1", "group.id": "workers", **given}
    with pytest.raises(error) as caught:
        cls({name: value for name, value in values.items() if value is not None})
    name = next(iter(given))
    assert name in str(caught.value)
    assert "start=" not in str(caught.value), "it is no option of confluent-kafka"


@EACH_CLASS
def test_wrong_calls_raise_the_same(cls: Any) -> None:
    consumer = cls({"bootstrap.servers": "localhost:1", "group.id": "workers"})
    assert consumer.subscription() == []
    for topics, error in (("x", TypeError), (["x", "x"], ValueError), ([""], ValueError)):
        with pytest.raises(error):
            consumer.subscribe(topics)
    with pytest.raises(TypeError):
        consumer.acknowledge(1)
    with pytest.raises(package.IllegalStateException):
        consumer.acknowledge_offset("x", 0, 1)
    with pytest.raises(TypeError):
        consumer.set_acknowledgement_commit_callback(1)
    assert consumer.commit_sync(0.1) == {}
    consumer.commit_async()
    consumer.close()
    with pytest.raises(package.IllegalStateException, match="Share consumer closed"):
        consumer.subscription()


@EACH_CLASS
def test_wrong_places_are_refused(cls: Any) -> None:
    settings = {"bootstrap.servers": "localhost:1", "group.id": "workers"}
    with cls({**settings, "share.acknowledgement.mode": "explicit"}) as consumer:
        for wrong in ("0", None, 1.5):
            with pytest.raises(TypeError):
                consumer.acknowledge_offset("jobs", wrong, 0)
            with pytest.raises(TypeError):
                consumer.acknowledge_offset("jobs", 0, wrong)
        for place in ((-1, 0), (0, -1)):
            with pytest.raises(ValueError, match="Invalid argument"):
                consumer.acknowledge_offset("jobs", *place)
        with pytest.raises(RuntimeError, match="already initialized"):
            consumer.__init__(settings)


@EACH_CLASS
@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"on_commit": print}, "on_commit is not supported"),
        (
            {"security.protocol": "ssl", "ssl.ca.location": "/none"},
            "Failed to create share consumer",
        ),
    ],
)
def test_wrong_settings_are_refused(cls: Any, more: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cls({"bootstrap.servers": "localhost:1", "group.id": "workers", **more})


def test_a_late_poll_reports_that_the_interval_was_exceeded(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = package.ShareConsumer(options(cluster))
    consumer.subscribe(["jobs"])
    read(consumer, 3)
    monkeypatch.setattr(consumer, "_polled_at", consumer._polled_at - 1000)
    with pytest.raises(package.KafkaException) as raised:
        consumer.poll(0)
    assert raised.value.args[0].code() == package.KafkaError._MAX_POLL_EXCEEDED
    cluster.produce("jobs", ["4"])
    assert [each.value() for each in read(consumer, 1)] == [b"4"]
    consumer.close()


@EACH_CLASS
@pytest.mark.parametrize("call", ["poll", "commit_sync", "commit_async"])
def test_each_call_reports_errors_of_the_client(cls: Any, call: str) -> None:
    errors: list[Any] = []
    consumer = cls(
        {"bootstrap.servers": "localhost:1", "group.id": "workers", "error_cb": errors.append}
    )
    consumer.subscribe(["jobs"])
    calls = {
        "poll": lambda: consumer.poll(0.1),
        "commit_sync": lambda: consumer.commit_sync(0.1),
        "commit_async": consumer.commit_async,
    }

    def has_reported() -> bool:
        calls[call]()
        return bool(errors)

    wait_until(has_reported)
    error = package.KafkaError
    assert errors[0].code() in (error._TRANSPORT, error._ALL_BROKERS_DOWN)
    consumer.close()


def test_close_reports_errors_of_the_client() -> None:
    errors: list[Any] = []
    settings = {"bootstrap.servers": "localhost:1", "group.id": "workers"}
    consumer = package.ShareConsumer({**settings, "error_cb": errors.append})
    consumer.subscribe(["jobs"])
    assert errors == []
    wait_until(lambda: consumer._native.explain().as_dict()["cluster"]["last_error"])
    consumer.close()
    [error] = errors
    assert error.code() == package.KafkaError._TRANSPORT


def test_errors_of_the_client_are_logged_without_error_cb(
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = {"bootstrap.servers": "localhost:1", "group.id": "workers"}
    logger = logging.getLogger("share")
    with package.ShareConsumer({**settings, "logger": logger}) as consumer:
        consumer.subscribe(["jobs"])

        def are_logged(*texts: str) -> bool:
            assert list(consumer.poll(0.1)) == []
            logged = [each.getMessage() for each in caplog.records if each.name == "share"]
            return all(any(text in each for each in logged) for text in texts)

        wait_until(lambda: are_logged("_TRANSPORT", "no bootstrap server could be reached"))


@EACH_CLASS
def test_name_with_a_caret_is_no_pattern(cls: Any, cluster: Cluster) -> None:
    with cls(options(cluster)) as consumer:
        consumer.subscribe(["^jobs"])
        assert consumer.subscription() == ["^jobs"]
        assert list(consumer.poll(0.1)) == []
        consumer.subscribe(["^jobs", "jobs"])
        assert sorted(consumer.subscription()) == ["^jobs", "jobs"]
        assert len(read(consumer, 3)) == 3


@EACH_CLASS
def test_token_is_replaced_before_its_end_without_a_poll(cls: Any) -> None:
    calls: list[str] = []

    def oauth_cb(config: str) -> tuple[str, float]:
        calls.append(config)
        return "token", time.time() + 2

    consumer = cls(
        {
            "bootstrap.servers": "localhost:1",
            "group.id": "workers",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": oauth_cb,
        }
    )
    assert len(calls) == 1
    wait_until(lambda: len(calls) > 1)
    consumer.close()


@EACH_CLASS
def test_message_without_a_topic_is_a_type_error(cls: Any) -> None:
    own = cls is package.ShareConsumer
    module: Any = package if own else confluent_kafka
    settings = {"bootstrap.servers": "localhost:1", "group.id": "workers"}
    consumer = module.DeserializingShareConsumer(settings)
    message = module.Message(topic=None, value=b"v")
    with pytest.raises(TypeError, match="Message topic is None"):
        consumer._deserialize(message)
    consumer.close()
