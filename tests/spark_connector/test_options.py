"""Options of the source: names in any case, values checked, nothing ignored."""

from __future__ import annotations

from typing import Any

import pytest

from kohort import TopicPartition
from kohort.errors import InvalidOptionError, UnknownOptionError, UnsupportedOptionError
from kohort.spark_connector._consumers import make_consumer
from kohort.spark_connector._offsets import EARLIEST, LATEST
from kohort.spark_connector._options import COMMITTED, UNSUPPORTED, SourceOptions

LEAST = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}


def parse(streaming: bool | None = False, /, **given: Any) -> SourceOptions:
    return SourceOptions.parse(LEAST | given, streaming=streaming)


def test_the_least_is_an_address_and_what_to_read() -> None:
    options = parse()
    assert options.properties == {"bootstrap.servers": "localhost:9092"}
    assert options.topics == ("orders",)
    assert (options.starting, options.ending) == (EARLIEST, LATEST)
    assert options.fail_on_data_loss
    assert not options.include_headers


def test_a_stream_starts_at_the_latest_as_sparks_own_source_does() -> None:
    assert parse(True).starting == LATEST


def test_names_are_taken_in_any_case() -> None:
    given = {"STARTINGOFFSETS": "Latest", "FailOnDataLoss": "FALSE", "Kafka.Group.Id": "g"}
    options = parse(**given, includeHEADERS="true")
    assert options.starting == LATEST
    assert not options.fail_on_data_loss
    assert options.include_headers
    assert options.group_id == "g"


def test_what_to_read() -> None:
    assert parse(subscribe="a, b,a").topics == ("a", "b")
    address = {"kafka.bootstrap.servers": "h:1"}
    by_pattern = SourceOptions.parse(address | {"subscribePattern": "a.*"}, streaming=True)
    assert by_pattern.pattern == "a.*"
    assigned = SourceOptions.parse(address | {"assign": '{"a": [2, 0]}'}, streaming=True)
    assert assigned.assigned == (TopicPartition("a", 0), TopicPartition("a", 2))


def test_positions() -> None:
    assert parse(startingOffsets="committed", **{"kafka.group.id": "g"}).starting == COMMITTED
    options = parse(startingOffsets='{"t": {"0": 3, "1": -2}}', endingOffsets='{"t": {"0": -1}}')
    assert options.starting == {TopicPartition("t", 0): 3, TopicPartition("t", 1): EARLIEST}
    assert options.ending == {TopicPartition("t", 0): LATEST}


def test_numbers() -> None:
    options = parse(
        minPartitions="4",
        maxTasks="2",
        maxRecordsPerPartition="1000",
        **{"kafkaConsumer.pollTimeoutMs": "500"},
    )
    assert (options.min_partitions, options.max_tasks) == (4, 2)
    assert (options.max_records_per_partition, options.poll_timeout_ms) == (1000, 500)
    assert parse(True, maxOffsetsPerTrigger="10").max_offsets_per_trigger == 10


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"kafka.bootstrap.servers": " "}, "kafka.bootstrap.servers is missing"),
        ({"subscribePattern": "x"}, "exactly one of the options"),
        ({"subscribe": "a,,b"}, "subscribe: names of topics are needed"),
        ({"startingOffsets": "first"}, "startingOffsets: 'first' is not earliest, latest"),
        ({"startingOffsets": '{"t": {"0": -3}}'}, "startingOffsets: t-0: -3 is out of range"),
        ({"startingOffsets": '{"t"'}, "startingOffsets: it is not JSON"),
        ({"startingOffsets": "committed"}, "needs the option kafka.group.id"),
        ({"endingOffsets": "earliest"}, "endingOffsets is latest, or offsets as JSON"),
        ({"endingOffsets": '{"t": {"0": -2}}'}, "can only be a start"),
        ({"failOnDataLoss": "yes"}, "failOnDataLoss: 'yes' is neither true nor false"),
        ({"minPartitions": "0"}, "minPartitions: '0' is not a number above 0"),
        ({"maxTasks": "-1"}, "maxTasks: '-1'"),
        ({"maxTasks": "1.5"}, "maxTasks: '1.5'"),
        ({"maxTasks": "9" * 30}, "is not a number above 0"),
        ({"maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger is for streams"),
        ({"kafka.group.id": ""}, "kafka.group.id is empty"),
    ],
)
def test_a_wrong_value_is_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        parse(**given)
    assert said in str(caught.value)


def test_nothing_to_read_is_refused() -> None:
    with pytest.raises(InvalidOptionError, match="exactly one of the options subscribe"):
        SourceOptions.parse({"kafka.bootstrap.servers": "h:1"}, streaming=None)
    for wrong, said in (("(", "not a regular expression"), ("", "a regular expression is needed")):
        given = {"kafka.bootstrap.servers": "h:1", "subscribePattern": wrong}
        with pytest.raises(InvalidOptionError, match=f"subscribePattern: {said}"):
            SourceOptions.parse(given, streaming=None)


def test_a_stream_has_no_end() -> None:
    with pytest.raises(InvalidOptionError, match="endingOffsets is for batches"):
        parse(True, endingOffsets="latest")


def test_before_the_kind_of_query_is_known_either_kinds_options_pass() -> None:
    parse(None, endingOffsets="latest")
    parse(None, maxOffsetsPerTrigger="5")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("subscribe2", "did you mean subscribe?"),
        ("startingoffset", "did you mean startingOffsets?"),
        ("bootstrap.servers", "did you mean kafka.bootstrap.servers?"),
        ("session.timeout.ms", "carry a prefix, as in kafka.session.timeout.ms"),
        ("path", "load() takes no path"),
        ("zzz", "there are subscribe, subscribePattern"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(name: str, said: str) -> None:
    with pytest.raises(UnknownOptionError) as caught:
        parse(**{name: "1"})
    assert said in str(caught.value)


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_a_known_name_that_is_not_built_is_never_ignored(name: str) -> None:
    with pytest.raises(UnsupportedOptionError, match=f"option {name}: "):
        parse(**{name.upper(): "1"})


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("auto.offset.reset", "startingOffsets"),
        ("key.deserializer", "read as bytes"),
        ("value.deserializer", "read as bytes"),
        ("enable.auto.commit", "when Spark has finished a batch"),
        ("interceptor.classes", "no JVM"),
    ],
)
def test_options_that_would_break_the_promises_are_rejected(name: str, said: str) -> None:
    with pytest.raises(UnsupportedOptionError, match=f"kafka.{name} cannot be set: .*{said}"):
        parse(**{f"kafka.{name}": "x"})


def test_what_cannot_be_read_may_be_skipped_but_not_waited_for() -> None:
    assert parse(**{"kafka.on.error": "skip"}).properties["on.error"] == "skip"
    with pytest.raises(UnsupportedOptionError, match=r"kafka\.on\.error cannot be pause"):
        parse(**{"kafka.on.error": "Pause"})


def test_secrets_are_not_shown() -> None:
    assert "hunter2" not in repr(parse(**{"kafka.sasl.password": "hunter2"}))


def test_properties_go_to_the_consumer_whose_errors_name_the_prefix() -> None:
    with pytest.raises(UnknownOptionError, match=r"did you mean group.id\?.*prefix kafka\."):
        make_consumer({"bootstrap.servers": "h:1", "group.idd": "g"}, group=True)
    with pytest.raises(InvalidOptionError, match=r"prefix kafka\."):
        make_consumer({"bootstrap.servers": "h:1", "fetch.max.bytes": "many"}, group=True)
    with pytest.raises(UnsupportedOptionError, match=r"prefix kafka\."):
        make_consumer({"bootstrap.servers": "h:1", "security.protocol": "SSL"}, group=True)
