"""Options of the source: names in any case, checked values, errors for unknown names."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kohort import TopicPartition
from kohort.config import GroupConfig
from kohort.errors import InvalidOptionError, UnknownOptionError, UnsupportedOptionError
from kohort.spark_connector._consumers import make_consumer
from kohort.spark_connector._offsets import COMMITTED, EARLIEST, LATEST
from kohort.spark_connector.options import _option_values
from kohort.spark_connector.options._options import MAX_POLL_INTERVAL_MS, SourceOptions

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
    assert parse(subscribe=" a ,, b,").topics == ("a", "b")
    address = {"kafka.bootstrap.servers": "h:1"}
    by_pattern = SourceOptions.parse(address | {"subscribePattern": "a.*"}, streaming=True)
    assert by_pattern.pattern == "a.*"
    assigned = SourceOptions.parse(address | {"assign": '{"a": [2, 0]}'}, streaming=True)
    assert assigned.assigned == (TopicPartition("a", 0), TopicPartition("a", 2))


@pytest.mark.parametrize(
    "text",
    [
        "a|ab",
        "(?i)orders.*",
        "(?i)(?s)ORD|or.*",
        "(?xi)  ord  # the beginning\n .* # and the rest",
        " (?x) a b",
        "# all that\n(?x)(?i)orders",
        "(?i:ORD)ers",
        "(?m)^orders$",
        r"(?a)\w+",
        r"(o)r\1?ders",
        "[(?i)]",
    ],
)
def test_a_pattern_means_the_same_with_and_without_a_group(text: str) -> None:
    names = [
        "a",
        "ab",
        "abc",
        "orders",
        "ORDERS",
        "orders-eu",
        "\N{LATIN SMALL LETTER E WITH ACUTE}",
    ]
    names += ["(", "orders\n", "orders\nx", "OR", "ORDersx", " ab"]
    try:
        alone = re.compile(text)
    except re.error:
        with pytest.raises(ValueError, match="not a regular expression"):
            _option_values.pattern(text)
        return
    for name in names:
        assert bool(_option_values.anchored(text).match(name)) == bool(alone.fullmatch(name)), name


def test_positions() -> None:
    assert parse(startingOffsets="committed", **{"kafka.group.id": "g"}).starting == COMMITTED
    options = parse(startingOffsets='{"t": {"0": 3, "1": -2}}', endingOffsets='{"t": {"0": -1}}')
    assert options.starting == {TopicPartition("t", 0): 3, TopicPartition("t", 1): EARLIEST}
    assert options.ending == {TopicPartition("t", 0): LATEST}


def test_numbers() -> None:
    options = parse(
        minPartitions="4",
        maxTasks="2",
        executorCores="48",
        maxRecordsPerPartition="1000",
        **{"kafkaConsumer.pollTimeoutMs": "500"},
    )
    assert (options.min_partitions, options.max_tasks, options.executor_cores) == (4, 2, 48)
    assert (options.max_records_per_partition, options.poll_timeout_ms) == (1000, 500)
    assert parse(True, maxOffsetsPerTrigger="10").max_offsets_per_trigger == 10


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"kafka.bootstrap.servers": " "}, "kafka.bootstrap.servers is missing"),
        ({"subscribePattern": "x"}, "exactly one of the options"),
        ({"subscribe": " , "}, "subscribe: set topic names"),
        ({"startingOffsets": "first"}, "startingOffsets: 'first' is not earliest, latest"),
        ({"startingOffsets": '{"t": {"0": -3}}'}, "startingOffsets: t-0: -3 is out of range"),
        ({"startingOffsets": '{"t"'}, "startingOffsets: not valid JSON"),
        ({"startingOffsets": '{"t": "first"}'}, "t: 'first' is not earliest, latest or offsets"),
        (
            {"startingOffsets": "committed"},
            "startingOffsets=committed requires option kafka.group.id",
        ),
        ({"endingOffsets": "earliest"}, "endingOffsets has to be latest or offsets as JSON"),
        ({"endingOffsets": '{"t": {"0": -2}}'}, "can only be a start"),
        ({"endingOffsets": '{"t": "earliest"}'}, "can only be a start"),
        ({"failOnDataLoss": "yes"}, "failOnDataLoss: 'yes' is neither true nor false"),
        ({"minPartitions": "0"}, "minPartitions: '0' is not a number above 0"),
        ({"maxTasks": "-1"}, "maxTasks: '-1'"),
        ({"maxTasks": "1.5"}, "maxTasks: '1.5'"),
        ({"maxTasks": "9" * 30}, "is not a number above 0"),
        ({"maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger is for streams"),
        ({"kafka.group.id": ""}, "kafka.group.id is empty"),
        ({"startingTimestamp": "-1"}, "startingTimestamp: '-1' is not a time in milliseconds"),
        ({"startingTimestamp": "2026-01-01"}, "is not a time in milliseconds since 1970 UTC"),
        ({"startingTimestamp": "9" * 99}, "is not a time in milliseconds"),
        ({"startingOffsetsByTimestamp": "{}"}, "the JSON names no partition"),
        ({"startingOffsetsByTimestamp": '{"t": {"0": -1}}'}, "t-0: -1 is out of range"),
        ({"endingOffsetsByTimestamp": '{"t": 1}'}, "endingOffsetsByTimestamp: the partitions"),
        ({"startingOffsetsByTimestampStrategy": "earliest"}, "is not error or latest"),
        (
            {"startingTimestamp": "2", "endingTimestamp": "1"},
            "startingTimestamp=2 is later than endingTimestamp=1",
        ),
        ({"fetchOffset.numRetries": "-1"}, "fetchOffset.numRetries: '-1' is not a number"),
        ({"minOffsetsPerTrigger": "5"}, "minOffsetsPerTrigger is for streams"),
        ({"maxTriggerDelay": "5m"}, "maxTriggerDelay is for streams"),
        ({"kafka.group.id": "g", "rebalanceWait": "5m"}, "rebalanceWait is for streams"),
    ],
)
def test_a_wrong_value_is_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        parse(**given)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"maxTriggerDelay": "5 minutes"}, "'5 minutes' is not a duration such as"),
        ({"maxTriggerDelay": "-1s"}, "'-1s' is not a duration"),
        ({"maxTriggerDelay": "9" * 12 + "d"}, "is not a duration"),
        (
            {"minOffsetsPerTrigger": "6", "maxOffsetsPerTrigger": "5"},
            "minOffsetsPerTrigger=6 is more than maxOffsetsPerTrigger=5",
        ),
        ({"minOffsetsPerTrigger": "0"}, "'0' is not a number above 0"),
        ({"rebalanceWait": "10s"}, "rebalanceWait is for members of a group. Set kafka.group.id"),
        ({"rebalanceListener": "a:B"}, "rebalanceListener is for members of a group"),
        ({"groupOffsetReset": "honor"}, "groupOffsetReset is for members of a group"),
        (
            {"kafka.group.id": "g", "rebalanceWait": "5m"},
            "300 s is not below the 300 s of option kafka.max.poll",
        ),
        ({"kafka.group.id": "g", "rebalanceListener": "a.B"}, "'a.B' is not of the form package"),
        ({"kafka.group.id": "g", "rebalanceListener": "a:b:c"}, "is not of the form package.mod"),
        (
            {"kafka.group.id": "g", "groupOffsetReset": "no"},
            "'no' is not checkpoint or honor or group",
        ),
        ({"endingTimestamp": "1"}, "endingTimestamp is for batches"),
        ({"endingOffsetsByTimestamp": '{"t": {"0": 1}}'}, "endingOffsetsByTimestamp is for batch"),
    ],
)
def test_a_wrong_value_for_a_stream_is_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        parse(True, **given)
    assert said in str(caught.value)


def test_offsets_by_time() -> None:
    options = parse(
        startingTimestamp="1000",
        startingOffsetsByTimestamp='{"t": {"0": 2000}}',
        startingOffsetsByTimestampStrategy="LATEST",
        endingTimestamp="3000",
        endingOffsetsByTimestamp='{"t": {"0": 4000}}',
    )
    assert (options.starting_timestamp, options.ending_timestamp) == (1000, 3000)
    assert options.starting_by_timestamp == {TopicPartition("t", 0): 2000}
    assert options.ending_by_timestamp == {TopicPartition("t", 0): 4000}
    assert options.strategy == "latest"
    assert parse().strategy == "error"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1500", 1.5),
        ("500us", 0.0005),
        ("250ms", 0.25),
        (" 10S ", 10),
        ("10 s", 10),
        ("15m", 900),
        ("2min", 120),
        ("1h", 3600),
        ("2d", 172_800),
    ],
)
def test_durations_are_written_as_in_spark(text: str, seconds: float) -> None:
    assert parse(True, maxTriggerDelay=text).max_trigger_delay_s == pytest.approx(seconds)


def test_default_of_the_poll_interval_is_that_of_a_consumer() -> None:
    """The connector imports nothing but kohort's public names, so it repeats the number."""
    assert GroupConfig().max_poll_interval_ms == MAX_POLL_INTERVAL_MS


def test_options_of_a_member() -> None:
    group = {"kafka.group.id": "g"}
    options = parse(True, **group)
    assert options.is_member
    assert (options.rebalance_wait_s, options.rebalance_listener) == (30, None)
    assert options.group_offset_reset == "checkpoint"
    short = parse(True, **group, **{"kafka.max.poll.interval.ms": "20000"})
    assert short.rebalance_wait_s == 10
    chosen = parse(
        True,
        **group,
        rebalanceWait="2m",
        rebalanceListener="my.package:Listeners.First",
        groupOffsetReset="Honor",
    )
    assert (chosen.rebalance_wait_s, chosen.group_offset_reset) == (120, "honor")
    assert chosen.rebalance_listener == "my.package:Listeners.First"
    assert not parse(True).is_member
    address = {"kafka.bootstrap.servers": "h:1", "assign": '{"a": [0]}'}
    assert not SourceOptions.parse(address | group, streaming=True).is_member


def test_options_of_sparks_own_source_without_effect_are_allowed() -> None:
    options = parse(groupIdPrefix="mine-", **{"fetchOffset.numRetries": "3"})
    assert options.group_id is None
    assert (options.lookup_retries, options.lookup_retry_interval_s) == (3, 1)
    assert parse(**{"fetchOffset.retryIntervalMs": "20"}).lookup_retry_interval_s == 0.02


def test_nothing_to_read_is_refused() -> None:
    with pytest.raises(InvalidOptionError, match="exactly one of the options subscribe"):
        SourceOptions.parse({"kafka.bootstrap.servers": "h:1"}, streaming=None)
    for wrong, said in (("(", "not a regular expression"), ("", "set a regular expression")):
        given = {"kafka.bootstrap.servers": "h:1", "subscribePattern": wrong}
        with pytest.raises(InvalidOptionError, match=f"subscribePattern: {said}"):
            SourceOptions.parse(given, streaming=None)


def test_a_stream_has_no_end() -> None:
    with pytest.raises(InvalidOptionError, match="endingOffsets is for batches"):
        parse(True, endingOffsets="latest")


def test_options_of_either_kind_pass_before_query_kind_is_known() -> None:
    parse(None, endingOffsets="latest")
    parse(None, maxOffsetsPerTrigger="5")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("subscribe2", "did you mean subscribe?"),
        ("startingoffset", "did you mean startingOffsets?"),
        ("bootstrap.servers", "did you mean kafka.bootstrap.servers?"),
        ("session.timeout.ms", "have the prefix kafka., as in kafka.session.timeout.ms"),
        ("path", "load() takes no path"),
        ("topic", "kohort does not write"),
        ("zzz", "the options are subscribe, subscribePattern"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(name: str, said: str) -> None:
    with pytest.raises(UnknownOptionError) as caught:
        parse(**{name: "1"})
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("auto.offset.reset", "startingOffsets"),
        ("key.deserializer", "key and value are bytes"),
        ("value.deserializer", "key and value are bytes"),
        ("enable.auto.commit", "after Spark has finished a batch"),
        ("interceptor.classes", "an interceptor needs a JVM"),
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


def test_consumer_gets_properties_and_its_errors_name_the_prefix() -> None:
    with pytest.raises(UnknownOptionError, match=r"did you mean group.id\?.*prefix kafka\."):
        make_consumer({"bootstrap.servers": "h:1", "group.idd": "g"}, group=True)
    with pytest.raises(InvalidOptionError, match=r"prefix kafka\."):
        make_consumer({"bootstrap.servers": "h:1", "fetch.max.bytes": "many"}, group=True)
    with pytest.raises(UnsupportedOptionError, match=r"^kafka\.enable\.partition\.eof is not"):
        make_consumer({"bootstrap.servers": "h:1", "enable.partition.eof": "true"}, group=True)


OF_A_TABLE: list[dict[str, str]] = [
    {"provider": "kohort", "owner": "root", "option.subscribe": "orders"},
    {"owner": "root"},
    {"option.kafka.bootstrap.servers": "localhost:9092"},
    {"serialization.format": "1"},
    {"location": "file:/tmp/orders", "path": "file:/tmp/orders", "provider": "kohort"},
    {"is_managed_location": "true"},
]


@pytest.mark.parametrize("added", OF_A_TABLE)
def test_table_properties_are_refused_with_what_works_instead(added: dict[str, str]) -> None:
    with pytest.raises(UnsupportedOptionError) as caught:
        SourceOptions.parse(LEAST | added, streaming=None)
    said = str(caught.value)
    assert "Spark keeps no options of a table" in said
    assert "CREATE TEMPORARY VIEW" in said
    assert "WITH" in said


def test_no_options_at_all_name_what_a_table_needs() -> None:
    with pytest.raises(InvalidOptionError) as caught:
        SourceOptions.parse({}, streaming=False)
    said = str(caught.value)
    assert "kafka.bootstrap.servers" in said
    assert "CREATE TEMPORARY VIEW" in said


@pytest.mark.parametrize("name", ["path", "paths"])
def test_paths_are_refused_with_the_option_that_names_topics(name: str) -> None:
    with pytest.raises(UnknownOptionError, match=r"takes no path\. Name the topic in option"):
        parse(**{name: "orders"})
