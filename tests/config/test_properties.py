"""ConsumerConfig from the dotted names of Java and librdkafka."""

from __future__ import annotations

import ctypes
import json
import logging
import math
import uuid
from pathlib import Path
from typing import Any

import pytest

from kohort.config import ConsumerConfig, reset_duration_ms
from kohort.errors import InvalidOptionError, UnknownOptionError, UnsupportedOptionError


def read(**properties: Any) -> ConsumerConfig:
    return ConsumerConfig.from_properties(
        {name.replace("_", "."): value for name, value in properties.items()}
    )


def test_text_is_read_as_java_reads_it() -> None:
    config = ConsumerConfig.from_properties(
        {
            "bootstrap.servers": "a:1,b:2",
            "group.id": "billing",
            "enable.auto.commit": " FALSE ",
            "session.timeout.ms": " 6000 ",
            "fetch.max.wait.ms": "250",
            "max.poll.records": "10",
            "isolation.level": "READ_COMMITTED",
        }
    )
    assert config.client.bootstrap_servers == (("a", 1), ("b", 2))
    assert config.group.group_id == "billing"
    assert config.group.enable_auto_commit is False
    assert config.group.session_timeout_ms == 6_000
    assert config.fetch.fetch_max_wait_ms == 250
    assert config.fetch.max_poll_records == 10
    assert config.fetch.isolation_level == "read_committed"


def test_python_values_are_taken_and_none_counts_as_not_given() -> None:
    config = ConsumerConfig.from_properties(
        {"enable.auto.commit": False, "session.timeout.ms": 6000, "group.id": None, "no.such": None}
    )
    assert config.group.enable_auto_commit is False
    assert config.group.session_timeout_ms == 6_000
    assert config.group.group_id is None


def test_an_empty_mapping_gives_the_defaults() -> None:
    assert ConsumerConfig.from_properties({}) == ConsumerConfig()


@pytest.mark.parametrize("properties", [["group.id"], [("group.id", "g")], "group.id=g", {1: 2}])
def test_what_is_no_mapping_of_names_is_a_type_error(properties: Any) -> None:
    with pytest.raises(TypeError, match=r"must be a"):
        ConsumerConfig.from_properties(properties)


def test_names_of_librdkafka_mean_the_same() -> None:
    config = ConsumerConfig.from_properties(
        {
            "metadata.broker.list": "a:1",
            "fetch.wait.max.ms": "1",
            "fetch.message.max.bytes": "2",
            "socket.timeout.ms": "3000",
            "socket.receive.buffer.bytes": "0",
            "socket.send.buffer.bytes": "4096",
            "topic.metadata.refresh.interval.ms": "5",
            "max.in.flight": "6",
            "auto.commit.enable": "0",
        }
    )
    assert config.client.bootstrap_servers == (("a", 1),)
    assert config.fetch.fetch_max_wait_ms == 1
    assert config.fetch.max_partition_fetch_bytes == 2
    assert config.client.request_timeout_ms == 3_000
    assert config.client.receive_buffer_bytes is None
    assert config.client.send_buffer_bytes == 4_096
    assert config.client.metadata_max_age_ms == 5
    assert config.client.max_in_flight_requests_per_connection == 6
    assert config.group.enable_auto_commit is False


@pytest.mark.parametrize(
    ("word", "policy"),
    [
        ("earliest", "earliest"),
        ("smallest", "earliest"),
        ("beginning", "earliest"),
        ("latest", "latest"),
        ("largest", "latest"),
        ("end", "latest"),
        ("none", "none"),
        ("error", "none"),
        ("Earliest", "earliest"),
        ("by_duration:pt1h", "by_duration:PT1H"),
    ],
)
def test_auto_offset_reset_takes_the_words_of_every_client(word: str, policy: str) -> None:
    config = ConsumerConfig.from_properties({"auto.offset.reset": word})
    assert config.fetch.auto_offset_reset == policy


@pytest.mark.parametrize(
    ("duration", "milliseconds"),
    [
        ("PT0S", 0),
        ("PT20.345S", 20_345),
        ("PT20,3456789S", 20_345),
        ("PT15M", 900_000),
        ("PT10H", 36_000_000),
        ("P2D", 172_800_000),
        ("P2DT3H4M", 183_840_000),
        ("PT-6H+7H", None),
        ("PT1H-3M", 3_420_000),
        ("-PT-6H+3M", 21_420_000),
        ("+P1D", 86_400_000),
        ("-P-1DT-0.5S", 86_400_500),
    ],
)
def test_durations_are_read_as_java_reads_them(duration: str, milliseconds: int | None) -> None:
    properties = {"auto.offset.reset": f"by_duration:{duration}"}
    if milliseconds is None:
        with pytest.raises(InvalidOptionError):
            ConsumerConfig.from_properties(properties)
        return
    config = ConsumerConfig.from_properties(properties)
    assert reset_duration_ms(config.fetch.auto_offset_reset) == milliseconds


def test_java_assignors_are_known_by_class_name() -> None:
    config = ConsumerConfig.from_properties(
        {
            "partition.assignment.strategy": "org.apache.kafka.clients.consumer.RangeAssignor, "
            "org.apache.kafka.clients.consumer.RoundRobinAssignor"
        }
    )
    assert config.group.partition_assignment_strategy == ("range", "roundrobin")
    sticky = ConsumerConfig.from_properties(
        {
            "partition.assignment.strategy": [
                "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
                "org.apache.kafka.clients.consumer.StickyAssignor",
            ]
        }
    )
    assert sticky.group.partition_assignment_strategy == ("cooperative-sticky", "sticky")
    with pytest.raises(InvalidOptionError, match=r"com\.example"):
        ConsumerConfig.from_properties({"partition.assignment.strategy": "com.example.Mine"})


@pytest.mark.parametrize(
    ("name", "data", "value"),
    [
        ("StringDeserializer", b"gr\xc3\xbcn", "grün"),
        ("IntegerDeserializer", b"\xff\xff\xff\xfe", -2),
        ("LongDeserializer", b"\0\0\0\0\0\0\1\0", 256),
        ("ShortDeserializer", b"\0\7", 7),
        ("DoubleDeserializer", b"\x3f\xf8\0\0\0\0\0\0", 1.5),
        ("FloatDeserializer", b"\x3f\xc0\0\0", 1.5),
        ("BooleanDeserializer", b"\1", True),
        ("UUIDDeserializer", b"12345678-1234-5678-1234-567812345678", uuid.UUID(int=0)),
    ],
)
def test_java_deserializers_are_known_by_class_name(name: str, data: bytes, value: Any) -> None:
    config = ConsumerConfig.from_properties(
        {"value.deserializer": f"org.apache.kafka.common.serialization.{name}"}
    )
    deserialize = config.deserialize_value
    assert deserialize is not None
    result = deserialize("t", [], data)
    assert result == (uuid.UUID(data.decode()) if isinstance(value, uuid.UUID) else value)
    assert deserialize("t", [], None) is None


def test_bytes_stay_bytes_by_javas_byte_deserializers() -> None:
    config = read(
        key_deserializer="org.apache.kafka.common.serialization.ByteArrayDeserializer",
        value_deserializer="org.apache.kafka.common.serialization.BytesDeserializer",
    )
    assert config.deserialize_key is None
    assert config.deserialize_value is None


def test_an_unknown_java_deserializer_is_refused() -> None:
    with pytest.raises(InvalidOptionError, match=r"value\.deserializer='com\.example\.Avro'"):
        read(value_deserializer="com.example.Avro")


def test_python_deserializers_are_given_beside_the_properties() -> None:
    config = ConsumerConfig.from_properties({"group.id": "g"}, value_deserializer=json.loads)
    assert config.value_deserializer is json.loads


def test_errors_use_the_names_as_they_were_given() -> None:
    with pytest.raises(InvalidOptionError, match=r"^fetch\.wait\.max\.ms='soon': expected an int"):
        ConsumerConfig.from_properties({"fetch.wait.max.ms": "soon"})
    with pytest.raises(InvalidOptionError, match=r"^enable\.auto\.commit='maybe': expected True"):
        ConsumerConfig.from_properties({"enable.auto.commit": "maybe"})
    with pytest.raises(InvalidOptionError, match=r"^session\.timeout\.ms=-1: expected an int"):
        ConsumerConfig.from_properties({"session.timeout.ms": -1})


def test_two_names_of_one_option_must_agree() -> None:
    both = {"fetch.wait.max.ms": "5", "fetch.max.wait.ms": 5}
    assert ConsumerConfig.from_properties(both).fetch.fetch_max_wait_ms == 5
    with pytest.raises(InvalidOptionError, match=r"the same as fetch\.wait\.max\.ms"):
        ConsumerConfig.from_properties({"fetch.wait.max.ms": "5", "fetch.max.wait.ms": "6"})


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("bootstrap.server", "did you mean bootstrap.servers?"),
        ("bootstrap_servers", "did you mean bootstrap.servers?"),
        ("enable.auto.ofset.store", "did you mean enable.auto.offset.store?"),
        ("max.puffer.ms", "option"),
    ],
)
def test_an_unknown_dotted_name_is_answered_with_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(UnknownOptionError, match=f"^no option is called '{name}'") as raised:
        ConsumerConfig.from_properties({name: "x"})
    assert hint in str(raised.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sasl.login.class", "hunter2"),
        ("enable.ssl.certificate.verification", "false"),
        ("enable.auto.offset.store", "false"),
        ("enable.auto.offset.store", False),
        ("enable.partition.eof", "true"),
        ("interceptor.classes", "com.example.Tap"),
        ("default.api.timeout.ms", "1"),
        ("stats_cb", print),
    ],
)
def test_property_with_effect_elsewhere_is_refused(name: str, value: Any) -> None:
    with pytest.raises(UnsupportedOptionError) as raised:
        ConsumerConfig.from_properties({name: value})
    assert str(raised.value).startswith(f"{name} is not supported: ")
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ssl.protocol", "TLSv1.3"),
        ("enable.auto.offset.store", "true"),
        ("enable.auto.offset.store", True),
        ("statistics.interval.ms", "0"),
        ("default.api.timeout.ms", "60000"),
        ("client.dns.lookup", "use_all_dns_ips"),
        ("socket.keepalive.enable", "true"),
        ("socket.keepalive.enable", False),
        ("enable.ssl.certificate.verification", "true"),
    ],
)
def test_a_property_that_is_not_built_may_have_its_default(name: str, value: Any) -> None:
    assert ConsumerConfig.from_properties({name: value}) == ConsumerConfig()


def test_options_without_a_dotted_name_are_not_properties() -> None:
    with pytest.raises(UnknownOptionError):
        ConsumerConfig.from_properties({"consumer.timeout.ms": "5"})
    assert ConsumerConfig.from_properties({}).consumer_timeout_ms == math.inf


# -- options without effect ------------------------------------------------------------------------


def librdkafka_defaults() -> dict[str, str]:
    """Return the defaults of the librdkafka that confluent-kafka has, by the library itself."""
    confluent_kafka = pytest.importorskip("confluent_kafka")
    libraries = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    found = sorted(libraries.glob("librdkafka*.so*"))
    if not found:
        pytest.skip("confluent-kafka has no librdkafka of its own here")
    library = ctypes.CDLL(str(found[0]))
    library.rd_kafka_conf_new.restype = ctypes.c_void_p
    library.rd_kafka_conf_dump.restype = ctypes.POINTER(ctypes.c_char_p)
    library.rd_kafka_conf_dump.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t)]
    count = ctypes.c_size_t()
    texts = library.rd_kafka_conf_dump(library.rd_kafka_conf_new(), ctypes.byref(count))
    pairs = [(texts[i].decode(), texts[i + 1].decode()) for i in range(0, count.value, 2)]
    # Defaults of callbacks are addresses, which no program writes.
    return {name: value for name, value in pairs if not value.startswith("0x")}


def test_all_defaults_of_librdkafka_are_accepted() -> None:
    defaults = librdkafka_defaults()
    assert len(defaults) > 100
    del defaults["sasl.kerberos.principal"]  # without Kerberos it contradicts security.protocol
    config = ConsumerConfig.from_properties(defaults)
    assert config.client.metadata_max_age_ms == 300_000
    assert config.fetch.buffer_memory == 65_536 * 1024


def test_all_defaults_of_java_are_accepted() -> None:
    path = Path(__file__).parents[1] / "data" / "java_consumer_defaults.json"
    defaults = json.loads(path.read_text())["defaults"]
    assert len(defaults) > 80
    # Without TLS a type of a store contradicts security.protocol.
    del defaults["ssl.keystore.type"], defaults["ssl.truststore.type"]
    assert ConsumerConfig.from_properties(defaults).group.session_timeout_ms == 45_000


def test_options_without_effect_are_logged_once_each(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "kohort.config"):
        config = ConsumerConfig.from_properties(
            {"queued.min.messages": "1", "debug": "all", "linger.ms": 5, "logger": logging}
        )
    assert config == ConsumerConfig()
    assert [(line.levelname, line.getMessage().partition(":")[0]) for line in caplog.records] == [
        ("DEBUG", f"{name} has no effect")
        for name in ("queued.min.messages", "debug", "linger.ms", "logger")
    ]


def test_unsupported_options_are_logged_with_unsupported_warn(
    caplog: pytest.LogCaptureFixture,
) -> None:
    properties = {
        "stats_cb": print,
        "no.such.option": "hunter2",
        "enable.auto.offset.store": "false",
        "group.id": "billing",
    }
    with caplog.at_level(logging.WARNING, "kohort.config"):
        config = ConsumerConfig.from_properties(properties, unsupported="warn")
    assert config.group.group_id == "billing"
    assert [line.getMessage().split()[0] for line in caplog.records] == [
        *("stats_cb", "no", "enable.auto.offset.store")
    ]
    assert all("ignored" in line.getMessage() for line in caplog.records)
    assert "hunter2" not in caplog.text
    with pytest.raises(UnsupportedOptionError):
        ConsumerConfig.from_properties(properties)
    with pytest.raises(InvalidOptionError, match="unsupported='no': expected 'raise' or 'warn'"):
        ConsumerConfig.from_properties(properties, unsupported="no")
    with pytest.raises(InvalidOptionError, match=r"session\.timeout\.ms"):
        ConsumerConfig.from_properties({"session.timeout.ms": "x"}, unsupported="warn")


@pytest.mark.parametrize(
    ("refresh", "cache", "age"),
    [("300000", "900000", 300_000), ("1000", "300000", 1_000), ("-1", "900000", 900_000)],
)
def test_metadata_age_is_that_of_the_refresh_when_both_are_given(
    refresh: str, cache: str, age: int
) -> None:
    config = ConsumerConfig.from_properties(
        {"topic.metadata.refresh.interval.ms": refresh, "metadata.max.age.ms": cache}
    )
    assert config.client.metadata_max_age_ms == age


@pytest.mark.parametrize(
    ("properties", "memory"),
    [
        ({"queued.max.messages.kbytes": "102400"}, 102_400 * 1024),
        ({"queued.max.messages.kbytes": 10_240}, 10_240 * 1024),
        ({"queued.max.messages.kbytes": "1", "fetch.max.bytes": "52428800"}, 52_428_800),
    ],
)
def test_queue_of_librdkafka_limits_the_buffer(properties: dict[str, Any], memory: int) -> None:
    config = ConsumerConfig.from_properties(properties)
    assert config.fetch.buffer_memory == memory
    assert config.fetch.fetch_max_bytes <= memory


@pytest.mark.parametrize("value", ["0", "-1", "many", "2097152", ""])
def test_queue_of_librdkafka_is_refused_out_of_its_range(value: str) -> None:
    with pytest.raises(InvalidOptionError, match=r"queued\.max\.messages\.kbytes"):
        ConsumerConfig.from_properties({"queued.max.messages.kbytes": value})
