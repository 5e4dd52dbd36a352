"""Offsets as JSON, in options and in Spark's checkpoints.

An offset has the form of the offsets of Spark's own Kafka source, and one more name::

    {"orders": {"0": 200}, "kohort:{...}": {}}

The offsets are the ends of the batch. Programs that parse those of Spark's own source find one more
topic, which has no partitions. Its name cannot be that of a topic. It holds as JSON what a replay
of the batch needs in addition::

    {"v": 2, "from": {"orders": {"0": 100}}, "ids": {...}, "query": "..."}

``from`` holds the starts of ranges that are not empty. ``ids`` holds the topic ids if brokers have
them: a recreated topic has another id. ``query`` is the id of the checkpoint, created with its
first batch. It distinguishes a batch without partitions from the beginning, and a query from others
with the same offsets. ``lost`` holds losses that the driver found when it planned the batch, if the
query has rows for them. ``state`` is true if the query is known to keep state. Checkpoints of
kohort 0.2 and older have version 1, which is read as well::

    {"v": 1, "from": {"orders": {"0": 100}}, "to": {"orders": {"0": 200}}}

A checkpoint of Spark's own source has the ends only.
"""

from __future__ import annotations

import json
import re
import reprlib
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kohort import TopicPartition
from kohort.spark_connector._errors import OffsetFormatError
from kohort.spark_connector._ranges import OffsetRange, SkippedData

Offsets = Mapping[TopicPartition, int]

EARLIEST = -2
LATEST = -1
"""Value that stands for the latest offset in options, as EARLIEST for the earliest."""
COMMITTED = -3
"""Value that stands for the group's committed offset. It does not occur in JSON."""

ALL_PARTITIONS = -1
"""Partition that stands for all partitions of a topic in options."""
POSITIONS = {"earliest": EARLIEST, "latest": LATEST}

METADATA = "kohort/"
"""Prefix of the metadata of each commit, before the query id. Other commits do not have it."""
VERSION = 2
KEPT = "kohort:"
"""Start of the name that holds all but the ends. No name of a topic has a colon."""
MAX_OFFSET = (1 << 63) - 1
MAX_PARTITION = (1 << 31) - 1
_NUMBER = re.compile("0|[1-9][0-9]{0,9}")
_TOPIC = re.compile("[A-Za-z0-9._-]{1,249}")
_ID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_QUERY = re.compile("[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """Start and end of a micro-batch in the same partitions, and their topic ids."""

    start: Offsets = field(default_factory=dict)
    end: Offsets = field(default_factory=dict)
    ids: Mapping[str, str] = field(default_factory=dict)
    query: str | None = None
    lost: Sequence[SkippedData] = ()
    """Losses that were found when the batch was planned, at most one of each partition.

    Those of the batch before are not new.
    """
    has_state: bool = False
    """True if a listener has reported that the query keeps state."""

    @property
    def is_first(self) -> bool:
        """True before the first batch, when the options decide where partitions start."""
        return not self.end and self.query is None

    def is_after_any(self, positions: Offsets) -> bool:
        """True if one of these positions is before the end of its partition."""
        return any(at < self.end.get(tp, 0) for tp, at in positions.items())

    def ranges(self) -> list[OffsetRange]:
        """Return the ranges of the batch, including empty ones."""
        return [OffsetRange(*tp, self.start[tp], self.end[tp]) for tp in sorted(self.end)]

    def new_losses(self, before: StreamOffset) -> list[SkippedData]:
        """Return the losses that the batch before does not have."""
        return [each for each in self.lost if each not in before.lost]

    def to_json(self) -> dict[str, Any]:
        """Return the form that Spark stores. Spark compares its text, so the order is fixed."""
        starts = {tp: at for tp, at in self.start.items() if at != self.end[tp]}
        kept: dict[str, Any] = {"v": VERSION, "from": nested(starts)}
        if self.ids:
            kept["ids"] = {name: self.ids[name] for name in sorted(self.ids)}
        if self.query is not None:
            kept["query"] = self.query
        if self.lost:
            kept["lost"] = _lost_to_json(self.lost)
        if self.has_state:
            kept["state"] = True
        return {**nested(self.end), KEPT + json.dumps(kept, separators=(",", ":")): {}}

    @classmethod
    def from_json(cls, value: object) -> StreamOffset:
        """Read what to_json() of this version or of version 1 writes.

        Raise OffsetFormatError for anything else.
        """
        if not isinstance(value, dict):
            raise OffsetFormatError(f"an offset has to be an object, not {short(value)}")
        ends, kept = _ends_and_kept(value)
        end, start = flat(ends, minimum=0), flat(kept["from"], minimum=0)
        if kept["v"] == VERSION:
            start = end | start
        if start.keys() != end.keys():
            wrong = min(start.keys() ^ end.keys())
            raise OffsetFormatError(f"{wrong.topic}-{wrong.partition} has one end only")
        for tp, first in start.items():
            if first > end[tp]:
                raise OffsetFormatError(
                    f"{tp.topic}-{tp.partition} goes from {first} back to {end[tp]}"
                )
        query = kept.get("query")
        if "query" in kept and not (isinstance(query, str) and _QUERY.fullmatch(query)):
            raise OffsetFormatError(f"{short(query)} is not the id of a query")
        has_state = "state" in kept
        if has_state and kept["state"] is not True:
            raise OffsetFormatError(f"state is {short(kept['state'])} instead of true")
        ids = _ids(kept.get("ids", {}), {tp.topic for tp in end})
        return cls(start, end, ids, query, _lost(kept.get("lost", {})), has_state)

    @classmethod
    def from_checkpoint(cls, value: object) -> StreamOffset:
        """Read what from_json() reads, and offsets of Spark's own source.

        Those have no starts, so the ranges of the result are empty.
        """
        if not has_ends_only(value):
            return cls.from_json(value)
        ends = flat(value, minimum=0)
        return cls(ends, ends)

    def after(self, before: StreamOffset) -> StreamOffset:
        """Return the batch from the end of another offset up to this one, for Spark's own source.

        It reads partitions that are new from their beginning. Raise OffsetFormatError without a
        batch before.
        """
        if not before.end:
            raise OffsetFormatError(
                "the first batch of this checkpoint is unfinished, and Spark's own source does not "
                'store its start there. Let format("kafka") finish it, or set another '
                "checkpointLocation"
            )
        starts = {tp: min(before.end.get(tp, 0), at) for tp, at in self.end.items()}
        return StreamOffset(starts, self.end)


def is_planned_end(offsets: dict[str, Any]) -> bool:
    """True for the end of a batch of version 2, False for other offsets of partitions."""
    return any(name.startswith(KEPT) for name in offsets)


def has_ends_only(value: object) -> bool:
    """True for an offset in a checkpoint of Spark's own source."""
    return (
        isinstance(value, dict)
        and bool(value)
        and not is_planned_end(value)
        and all(isinstance(each, dict) for each in value.values())
    )


def _ends_and_kept(value: dict[str, Any]) -> tuple[object, dict[str, Any]]:
    """Return the ends of an offset, and the fields from which the rest of it is read."""
    names = [name for name in value if name.startswith(KEPT)]
    if not names:
        kept, supported, fields = value, 1, {"v", "from", "to"}
    elif len(names) == 1 and value[names[0]] == {}:
        kept = _object(_parse(names[0].removeprefix(KEPT)), "the fields of an offset")
        supported, fields = VERSION, {"v", "from"}
    else:
        raise OffsetFormatError(f"an offset has to have one name {KEPT}..., for an empty object")
    version = kept.get("v")
    if isinstance(version, bool) or version != supported:
        raise OffsetFormatError(
            f"an offset has version {short(version)} instead of 1 or {VERSION}. The checkpoint was "
            "written by another source or by a newer kohort"
        )
    if kept.keys() - {"ids", "query", "lost", "state"} != fields:
        raise OffsetFormatError(
            f"an offset has to have {', '.join(sorted(fields))}, not {short(sorted(kept))}"
        )
    if not names:
        return value["to"], kept
    return {name: each for name, each in value.items() if name != names[0]}, kept


def new_query_id() -> str:
    """Return a new id for a checkpoint."""
    return uuid.uuid4().hex


def nested(offsets: Offsets) -> dict[str, dict[str, int]]:
    """Return ``{topic: {partition: offset}}``, sorted."""
    result: dict[str, dict[str, int]] = {}
    for tp in sorted(offsets):
        result.setdefault(tp.topic, {})[str(tp.partition)] = offsets[tp]
    return result


def flat(value: object, *, minimum: int) -> dict[TopicPartition, int]:
    """Return the inverse of :func:`nested`.

    Raise OffsetFormatError for offsets below ``minimum``.
    """
    result: dict[TopicPartition, int] = {}
    for topic, partitions in _object(value, "topics").items():
        for number, offset in _object(partitions, f"the partitions of {short(topic)}").items():
            tp = TopicPartition(_topic(topic), _partition(number))
            _check_offset(topic, number, offset, minimum)
            result[tp] = offset
    return result


def _check_offset(topic: str, number: object, offset: object, minimum: int) -> None:
    if not isinstance(offset, int) or isinstance(offset, bool):
        raise OffsetFormatError(f"{topic}-{number}: {short(offset)} is not an offset")
    if not minimum <= offset <= MAX_OFFSET:
        raise OffsetFormatError(f"{topic}-{number}: {short(offset)} is out of range")


def parse_offsets(text: str) -> dict[TopicPartition, int]:
    """Parse ``{"topic": {"0": 23, "1": -1}, "other": "earliest"}``.

    -2 is the earliest offset and -1 the latest. A word for a topic gives ALL_PARTITIONS.
    """
    topics = dict(_object(_parse(text), "topics"))
    words = {name: topics.pop(name) for name in list(topics) if isinstance(topics[name], str)}
    found = flat(topics, minimum=EARLIEST)
    for topic, word in words.items():
        if (position := POSITIONS.get(word.lower())) is None:
            raise OffsetFormatError(f"{topic}: {short(word)} is not earliest, latest or offsets")
        found[TopicPartition(_topic(topic), ALL_PARTITIONS)] = position
    if not found:
        raise OffsetFormatError("the JSON names no partition")
    return found


def with_all_partitions(
    given: Offsets, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """Replace ALL_PARTITIONS of a topic by those of ``partitions``, if it has any there."""
    found = dict(given)
    for tp in given:
        if tp.partition == ALL_PARTITIONS:
            of_topic = [each for each in partitions if each.topic == tp.topic]
            if of_topic:
                found |= dict.fromkeys(of_topic, found.pop(tp))
    return found


def parse_timestamps(text: str) -> dict[TopicPartition, int]:
    """Parse ``{"topic": {"0": 1700000000000}}``, in milliseconds since 1970 UTC."""
    found = flat(_parse(text), minimum=0)
    if not found:
        raise OffsetFormatError("the JSON names no partition")
    return found


def parse_partitions(text: str) -> list[TopicPartition]:
    """Parse ``{"topic": [0, 1]}``."""
    result: list[TopicPartition] = []
    for topic, numbers in _object(_parse(text), "topics").items():
        if not isinstance(numbers, list):
            raise OffsetFormatError(f"the partitions of {short(topic)} have to be a list")
        for number in numbers:
            if not isinstance(number, int) or isinstance(number, bool):
                raise OffsetFormatError(f"{topic}: {short(number)} is not a partition")
            result.append(TopicPartition(_topic(topic), _partition(str(number))))
    if not result:
        raise OffsetFormatError("the JSON names no partition")
    if len(set(result)) != len(result):
        raise OffsetFormatError("a partition occurs twice")
    return sorted(result)


def _ids(value: object, topics: Collection[str]) -> dict[str, str]:
    ids = _object(value, "ids")
    for topic, each in ids.items():
        if topic not in topics:
            raise OffsetFormatError(f"topic {short(topic)} has an id but no partition")
        if not isinstance(each, str) or not _ID.fullmatch(each):
            raise OffsetFormatError(f"{topic}: {short(each)} is not the id of a topic")
    return ids


def _lost_to_json(lost: Sequence[SkippedData]) -> dict[str, dict[str, Any]]:
    result: dict[str, dict[str, Any]] = {}
    for each in sorted(lost):
        place = {"from": each.offset, "to": each.next_offset, "reason": each.reason}
        if each.next_offset is None:
            del place["to"]
        result.setdefault(each.topic_partition.topic, {})[str(each.topic_partition.partition)] = (
            place
        )
    return result


def _lost(value: object) -> tuple[SkippedData, ...]:
    """Return the inverse of _lost_to_json()."""
    places = {
        TopicPartition(_topic(topic), _partition(number)): _object(each, f"a loss of {topic}")
        for topic, partitions in _object(value, "losses").items()
        for number, each in _object(partitions, f"the losses of {short(topic)}").items()
    }
    found = []
    for tp, each in places.items():
        reason = each.get("reason")
        if each.keys() - {"to"} != {"from", "reason"} or not isinstance(reason, str):
            raise OffsetFormatError(f"{short(each)} is not a loss")
        for offset in (each["from"], each.get("to", 0)):
            _check_offset(tp.topic, tp.partition, offset, 0)
        found.append(SkippedData(tp, each["from"], each.get("to"), reason))
    return tuple(found)


def _parse(text: str) -> object:
    try:
        return json.loads(text, object_pairs_hook=_no_duplicates, parse_constant=_no_constants)
    except RecursionError:
        raise OffsetFormatError("the JSON is nested too deeply") from None
    except OffsetFormatError:
        raise
    except ValueError as error:
        raise OffsetFormatError(f"not valid JSON: {error}") from None


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise OffsetFormatError("a name occurs twice")
    return result


def _no_constants(name: str) -> object:
    raise OffsetFormatError(f"{name} is not an offset")


def _object(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise OffsetFormatError(f"{what} have to be a JSON object, not {short(value)}")
    return value


def _topic(name: object) -> str:
    if not isinstance(name, str) or not _TOPIC.fullmatch(name):
        raise OffsetFormatError(f"{short(name)} is not a topic's name")
    return name


def _partition(number: object) -> int:
    if not isinstance(number, str) or not _NUMBER.fullmatch(number):
        raise OffsetFormatError(f"{short(number)} is not a partition")
    if int(number) > MAX_PARTITION:
        raise OffsetFormatError(f"{short(number)} is not a partition")
    return int(number)


_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxlong = _REPR.maxother = 61


def short(value: object) -> str:
    """Return the repr of a value of any type and length, cut to 60 characters."""
    text = _REPR.repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
