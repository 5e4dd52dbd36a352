"""Offsets as JSON: kohort reads back what it writes, and rejects everything else."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort import TopicPartition
from kohort.errors import KafkaError
from kohort.spark_connector._errors import OffsetFormatError
from kohort.spark_connector._offsets import (
    StreamOffset,
    flat,
    nested,
    parse_offsets,
    parse_partitions,
    parse_timestamps,
)
from kohort.spark_connector._ranges import OffsetRange, SkippedData

ID = "00112233-4455-6677-8899-aabbccddeeff"
QUERY = "0123456789abcdef" * 2
ENDS = {"orders": {"0": 200, "2": 5, "10": 9}, "a": {"1": 4}}
GOOD = {
    "v": 1,
    "from": {"orders": {"0": 100, "2": 5, "10": 7}, "a": {"1": 0}},
    "to": ENDS,
    "ids": {"orders": ID},
    "query": QUERY,
}
"""An offset of version 1."""
KEPT = {
    "v": 2,
    "from": {"a": {"1": 0}, "orders": {"0": 100, "10": 7}},
    "ids": {"orders": ID},
    "query": QUERY,
}
LOST = {"orders": {"0": {"from": 3, "to": 9, "reason": "gone"}, "7": {"from": 0, "reason": "x"}}}
ONLY_ENDS = {"orders": {"0": 5, "1": 0}}
"""An offset of Spark's own source."""


def offset(kept: object = KEPT, more: object = (), **ends: Any) -> dict[str, Any]:
    """Return an offset of version 2."""
    return {**(ends or ENDS), f"kohort:{json.dumps(kept)}": more or {}}


def test_an_offset_holds_both_ends_of_every_range() -> None:
    read = StreamOffset.from_json(offset())
    assert read == StreamOffset.from_json(GOOD)
    assert read.ranges() == [
        OffsetRange("a", 1, 0, 4),
        OffsetRange("orders", 0, 100, 200),
        OffsetRange("orders", 2, 5, 5),
        OffsetRange("orders", 10, 7, 9),
    ]


def test_the_text_is_always_the_same() -> None:
    text = json.dumps(StreamOffset.from_json(GOOD).to_json())
    kept = (
        '{"v":2,"from":{"a":{"1":0},"orders":{"0":100,"10":7}},'
        f'"ids":{{"orders":"{ID}"}},"query":"{QUERY}"}}'
    )
    assert text == (
        '{"a": {"1": 4}, "orders": {"0": 200, "2": 5, "10": 9}, '
        f"{json.dumps('kohort:' + kept)}: {{}}}}"
    )
    assert json.dumps(StreamOffset.from_json(json.loads(text)).to_json()) == text
    shuffled = {"query": QUERY, "to": GOOD["to"], "ids": GOOD["ids"], "v": 1, "from": GOOD["from"]}
    assert json.dumps(StreamOffset.from_json(shuffled).to_json()) == text


def test_losses_of_a_batch_are_read_back() -> None:
    read = StreamOffset.from_json(offset(KEPT | {"lost": LOST}))
    assert list(read.lost) == [
        SkippedData(TopicPartition("orders", 0), 3, 9, "gone"),
        SkippedData(TopicPartition("orders", 7), 0, None, "x"),
    ]
    assert StreamOffset.from_json(read.to_json()) == read


def test_state_of_a_query_is_read_back() -> None:
    assert not StreamOffset.from_json(offset()).has_state
    read = StreamOffset.from_json(offset(KEPT | {"state": True}))
    assert read.has_state
    assert StreamOffset.from_json(read.to_json()) == read


def test_offset_of_other_source_is_read_from_checkpoints_only() -> None:
    with pytest.raises(OffsetFormatError, match="another source"):
        StreamOffset.from_json(ONLY_ENDS)
    read = StreamOffset.from_checkpoint(ONLY_ENDS)
    assert nested(read.end) == nested(read.start) == ONLY_ENDS
    assert StreamOffset.from_checkpoint(offset()) == StreamOffset.from_json(offset())
    for other in ({}, {"offset": 5}, {"orders": {"0": "5"}}, {"a/b": {"0": 5}}):
        with pytest.raises(OffsetFormatError):
            StreamOffset.from_checkpoint(other)


def test_the_offset_before_any_batch_is_empty() -> None:
    assert StreamOffset.from_json(StreamOffset().to_json()) == StreamOffset()
    assert StreamOffset.from_json({"v": 1, "from": {}, "to": {}}) == StreamOffset()


@settings(deadline=None)
@given(
    st.dictionaries(
        st.tuples(st.text("aZ9._-", min_size=1, max_size=5), st.integers(0, (1 << 31) - 1)),
        st.tuples(st.integers(0, 1 << 40), st.integers(0, 1 << 40)),
        max_size=5,
    )
)
def test_what_is_written_is_read_back(ranges: dict[tuple[str, int], tuple[int, int]]) -> None:
    start = {TopicPartition(*tp): at for tp, (at, _) in ranges.items()}
    end = {TopicPartition(*tp): at + size for tp, (at, size) in ranges.items()}
    offset = StreamOffset(start, end)
    assert StreamOffset.from_json(json.loads(json.dumps(offset.to_json()))) == offset


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "an offset has to be an object, not None"),
        ([], "an offset has to be an object"),
        ({}, "an offset has version None instead of 1 or 2"),
        ({"orders": {"0": 100}}, "The checkpoint was written by another source"),
        (GOOD | {"v": 2}, "version 2 instead of 1 or 2"),
        (GOOD | {"v": True}, "version True instead of 1 or 2"),
        (GOOD | {"v": "1"}, "version '1' instead of 1 or 2"),
        (GOOD | {"ids": {"orders": "x"}}, "orders: 'x' is not the id of a topic"),
        (GOOD | {"ids": {"b": ID}}, "topic 'b' has an id but no partition"),
        (GOOD | {"ids": []}, "ids have to be a JSON object"),
        ({"v": 1, "from": {"t/u": {"0": 0}}, "to": {}}, "'t/u' is not a topic's name"),
        (GOOD | {"query": None}, "None is not the id of a query"),
        (GOOD | {"query": QUERY[1:]}, "is not the id of a query"),
        (GOOD | {"more": 1}, "an offset has to have from, to, v, not"),
        ({"v": 1, "from": {}}, "an offset has to have from, to, v, not"),
        (GOOD | {"from": {}}, "a-1 has one end only"),
        (GOOD | {"to": {"orders": {"0": 1}}}, "one end only"),
        ({"v": 1, "from": {"t": {"0": 5}}, "to": {"t": {"0": 4}}}, "t-0 goes from 5 back to 4"),
        ({"v": 1, "from": {"t": {"0": -1}}, "to": {"t": {"0": 4}}}, "t-0: -1 is out of range"),
        ({"v": 1, "from": {"t": {"0": 0}}, "to": {"t": {"0": 1 << 63}}}, "is out of range"),
        ({"v": 1, "from": {"t": {"0": 0.0}}, "to": {"t": {"0": 1}}}, "0.0 is not an offset"),
        ({"v": 1, "from": {"t": {"0": True}}, "to": {"t": {"0": 1}}}, "True is not an offset"),
        ({"v": 1, "from": {"t": {"00": 0}}, "to": {"t": {"00": 1}}}, "'00' is not a partition"),
        ({"v": 1, "from": {"t": {"-1": 0}}, "to": {"t": {"-1": 1}}}, "'-1' is not a partition"),
        ({"v": 1, "from": {"t": {"2147483648": 0}}, "to": {}}, "is not a partition"),
        ({"v": 1, "from": {"": {"0": 0}}, "to": {}}, "'' is not a topic's name"),
        ({"v": 1, "from": {"t": [0]}, "to": {}}, "have to be a JSON object"),
        ({"v": 1, "from": "t", "to": {}}, "have to be a JSON object"),
        (offset(KEPT | {"v": 3}), "version 3 instead of 1 or 2"),
        (offset(KEPT | {"v": 1}), "version 1 instead of 1 or 2"),
        (offset(KEPT | {"to": {}}), "an offset has to have from, v, not"),
        (offset(KEPT | {"ids": {"b": ID}}), "topic 'b' has an id but no partition"),
        (offset(KEPT | {"query": "q"}), "'q' is not the id of a query"),
        (offset(KEPT | {"state": False}), "state is False instead of true"),
        (offset(KEPT | {"lost": []}), "losses have to be a JSON object"),
        (offset(KEPT | {"lost": {"a": {"1": {"from": 1}}}}), "is not a loss"),
        (offset(KEPT | {"lost": {"a": {"1": {"from": -1, "reason": ""}}}}), "-1 is out of range"),
        (
            offset(KEPT | {"lost": {"a": {"1": {"from": 1, "to": None, "reason": ""}}}}),
            "a-1: None is not an offset",
        ),
        (offset(a={"1": 4}), "orders-0 has one end only"),
        (offset(KEPT | {"from": {"a": {"1": 5}}}), "a-1 goes from 5 back to 4"),
        (offset(orders={"0": -1}), "orders-0: -1 is out of range"),
        (offset([]), "the fields of an offset have to be a JSON object"),
        (offset(more={"0": 1}), "one name kohort:..., for an empty object"),
        (offset() | {"kohort:": {}}, "one name kohort:..., for an empty object"),
        ({"kohort:{": {}}, "not valid JSON"),
    ],
)
def test_any_other_offset_is_refused(value: Any, said: str) -> None:
    with pytest.raises(OffsetFormatError) as caught:
        StreamOffset.from_json(value)
    assert said in str(caught.value)
    assert isinstance(caught.value, KafkaError)


def _mutate(text: str, rng: random.Random) -> str:
    characters = list(text)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(characters))
        match rng.randrange(4):
            case 0:
                characters[at] = rng.choice('{}[]",:0129-.eE truefalsn\u00e9\\')
            case 1:
                del characters[at : at + rng.randrange(1, 12)]
            case 2:
                characters[at:at] = rng.choice(("9" * 30, "-", '"0":', "{", "null", "NaN", "1e999"))
            case _:
                characters[at:at] = characters[rng.randrange(len(characters)) :][:20]
        if not characters:
            break
    return "".join(characters)


def _values(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every place in a value that can be replaced: its container and its key."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], (dict, list)):
            yield from _values(value[key])


def _replace(value: Any, rng: random.Random) -> Any:
    """Return the value with one random change."""
    changed = copy.deepcopy(value)
    container, key = rng.choice(list(_values(changed)))
    match rng.randrange(3):
        case 0:
            container[key] = rng.choice(ODD)
        case 1:
            del container[key]
        case _ if isinstance(container, dict):
            container[rng.choice(("0", "-1", "00", "x", "", "ids", "a/b", "\ud800"))] = 7
        case _:
            container.append(7)
    return changed


def _deep(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


ODD: tuple[Any, ...] = (
    *(
        None,
        True,
        -1,
        0,
        1.0,
        1e999,
        float("nan"),
        1 << 63,
        10**4000,
        "",
        "7",
        "\ud800",
        "x" * 10_000,
    ),
    *([], {}, {"0": 1}, {"orders": {}}, {"orders": None}, [{"orders": {"0": 1}}], _deep(5000)),
)

READERS: dict[str, tuple[Any, Callable[[str], object]]] = {
    "offsets": (
        {"t": {"0": 23, "1": -1, "12": -2}, "u-1": {"0": 5}},
        lambda text: nested(parse_offsets(text)),
    ),
    "times": (
        {"t": {"0": 1_700_000_000_000}, "u": {"0": 5, "3": 0}},
        lambda text: nested(parse_timestamps(text)),
    ),
    "partitions": ({"t": [0, 1, 12], "u": [3]}, parse_partitions),
}


@pytest.mark.parametrize(
    "good", [GOOD, offset(KEPT | {"lost": LOST})], ids=["version 1", "version 2"]
)
@pytest.mark.parametrize("seed", range(2))
def test_mutated_checkpoint_is_read_as_is_or_raises_format_error(
    seed: int, good: dict[str, Any]
) -> None:
    rng = random.Random(seed)
    refused = 0
    for number in range(2_500):
        if number % 2:
            value = _replace(good, rng)
        else:
            try:
                value = json.loads(_mutate(json.dumps(good), rng))
            except (ValueError, RecursionError):
                refused += 1  # by Spark, which parses the text
                continue
        try:
            read = StreamOffset.from_json(value)
        except OffsetFormatError as error:
            refused += 1
            assert len(str(error).encode()) < 1000
        else:
            assert StreamOffset.from_json(read.to_json()) == read
            assert nested(read.end) == _without_empty(value.get("to", value))
            assert all(each.size >= 0 for each in read.ranges())
    assert refused > 1_000


@pytest.mark.parametrize("kind", READERS)
def test_mutated_json_of_an_option_is_read_as_it_is_or_refused(kind: str) -> None:
    good, read = READERS[kind]
    rng = random.Random(kind)
    refused = 0
    for number in range(2_000):
        if number % 2:
            value = _replace(good, rng)
            try:
                text = json.dumps(value)
            except (ValueError, RecursionError):
                continue
        else:
            text = _mutate(json.dumps(good), rng)
        try:
            found = read(text)
        except OffsetFormatError as error:
            refused += 1
            assert len(str(error).encode()) < 1000
        else:
            said = _without_empty(json.loads(text))
            assert found == (said if kind != "partitions" else _flat(said))


def _without_empty(value: dict[str, Any]) -> dict[str, Any]:
    """Return the value without topics without partitions and without empty lists of ids."""
    return {name: each for name, each in value.items() if each != {} and each != []}


def _flat(value: dict[str, list[int]]) -> list[TopicPartition]:
    return sorted(
        TopicPartition(topic, each) for topic, numbers in value.items() for each in numbers
    )


def test_offset_of_progress_is_accepted_as_an_option() -> None:
    text = json.dumps(StreamOffset.from_json(offset()).to_json())
    assert parse_offsets(text) == flat(ENDS, minimum=0)


def test_offsets_of_an_option() -> None:
    assert parse_offsets('{"t": {"0": 23, "1": -1}, "u": {"0": -2}}') == {
        TopicPartition("t", 0): 23,
        TopicPartition("t", 1): -1,
        TopicPartition("u", 0): -2,
    }
    assert parse_partitions('{"t": [1, 0]}') == [TopicPartition("t", 0), TopicPartition("t", 1)]


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "{}", '{"t": {}}', "null", '{"t": {"0": -3}}', '{"t": {"0": 1.5}}'),
        '{"t": {"0": NaN}}',
        '{"t": {"0": 1, "0": 2}}',
        '{"t": {"0": 1}, "t": {"1": 1}}',
        '{"t": {"x": 1}}',
        '{"t": {"\u0661": 1}}',
        '{"t": {"0": "1"}}',
        "[" * 100_000,
        '{"t": {"0": ' + "9" * 5000 + "}}",
    ],
)
def test_offsets_of_an_option_are_read_strictly(text: str) -> None:
    with pytest.raises(OffsetFormatError):
        parse_offsets(text)


@pytest.mark.parametrize(
    "text", ["", "{}", '{"t": []}', '{"t": 0}', '{"t": [0, 0]}', '{"t": ["0"]}', '{"t": [true]}']
)
def test_partitions_of_an_option_are_read_strictly(text: str) -> None:
    with pytest.raises(OffsetFormatError):
        parse_partitions(text)
