"""``kohort dead-letters``: the dead letters of a topic by their cause, and their replay.

The headers are those of Kafka's share groups (KIP-1191), so letters of brokers are read as well.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, Any

from kohort.cli.common import _client
from kohort.cli.common._client import CommandError
from kohort.types import NamedTuple, escaped

if TYPE_CHECKING:
    from kohort import (
        AsyncKafkaConsumer,
        ConsumerRecord,
        KafkaError,
        OffsetAndMetadata,
        TopicPartition,
    )
    from kohort.producer import RecordProducer

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]
    Record = ConsumerRecord[bytes, bytes]

PREFIX = "__dlq.errors."
NAMES = frozenset(
    f"{PREFIX}{name}"
    for name in ("topic", "partition", "offset", "group", "delivery.count", "message")
)
OWN_NAMES = frozenset({"kohort.exception", "kohort.value.omitted", "kohort.batch"})
"""The headers that kohort adds to those of Kafka."""
POLL_RECORDS = 500
DESCRIPTION = """\
List the dead letters of a topic, by the topic and the group that they come from and by their error.
With --replay each letter returns to the topic and the partition of its record, without the headers
of a dead letter. The offsets of a group say which letters are replayed, so a second run goes on
after the first one. A crash between a letter and its commit replays up to 500 letters twice.
"""


class Origin(NamedTuple):
    """The place and the failure of a record, by the headers of its letter."""

    topic: str
    partition: int
    offset: int
    group: str
    attempts: str
    message: str
    exception: str


def add_to(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "dead-letters",
        help="list failed records in a topic of dead letters, and replay them",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("topic", metavar="TOPIC", help="topic of the dead letters")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--json", action="store_true", help="print a JSON object for each letter")
    kind.add_argument(
        "--replay", action="store_true", help="send the letters back to the topics of their records"
    )
    parser.add_argument(
        "--group",
        default="kohort-dead-letters",
        help="group whose offsets say which letters are replayed (%(default)s)",
    )
    parser.add_argument(
        "--again", action="store_true", help="begin with the first letter, also after a replay"
    )
    _client.add_to(parser, time_for="the delivery of a record")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """List or replay. Return 1 on failure, and if a letter could not be replayed."""
    import anyio

    def command() -> int:
        return anyio.run(_run, options, _client.partitions_of(options))

    return _client.run("dead-letters", command)


async def _run(options: argparse.Namespace, partitions: list[int]) -> int:
    from kohort import AsyncKafkaConsumer, TopicPartition  # other commands load no client

    given = {
        "group.id": options.group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": "false",
    }
    consumer = AsyncKafkaConsumer.from_properties(
        _client.properties_of(options) | given, unsupported="warn"
    )
    async with consumer:
        tps = [TopicPartition(options.topic, number) for number in partitions]
        consumer.assign(tps)
        if options.again:
            consumer.seek_to_beginning(*tps)
        if options.replay:
            return await _replay(options, consumer, tps)
        return await _list(options, consumer, tps)


async def _letters(
    consumer: AsyncKafkaConsumer[bytes, bytes], tps: list[TopicPartition]
) -> AsyncIterator[list[Record]]:
    """Yield the letters from the positions to the present ends of the partitions."""
    ends = await consumer.end_offsets(tps)
    while any([await consumer.position(tp) < ends[tp] for tp in tps]):
        polled = await consumer.poll(timeout_ms=1000, max_records=POLL_RECORDS)
        if polled:
            yield [record for records in polled.values() for record in records]


async def _list(
    options: argparse.Namespace,
    consumer: AsyncKafkaConsumer[bytes, bytes],
    tps: list[TopicPartition],
) -> int:
    counts: dict[tuple[str, str, str], list[Origin]] = {}
    others = 0
    async for letters in _letters(consumer, tps):
        for letter in letters:
            origin = origin_of(letter)
            if options.json:
                print(json.dumps(_as_json(letter, origin), ensure_ascii=False))
            elif origin is None:
                others += 1
            else:
                cause = origin.exception or origin.message
                seen = counts.setdefault((origin.topic, origin.group, cause), [])
                seen.append(origin)
    if options.json:
        return 0
    if not counts and not others:
        print(f"{options.topic} has no dead letters{'' if options.again else ' to replay'}")
    for (topic, group, cause), seen in sorted(counts.items(), key=lambda each: -len(each[1])):
        first, last = seen[0], seen[-1]
        print(escaped(f"{len(seen):7,}  {topic} in {group}: {cause}"))
        for place, at in [("first", first), ("last ", last)][: len(seen)]:
            text = f"{place} {topic}-{at.partition} offset {at.offset}: {at.message}"
            print(f"         {escaped(text)}")
    if others:
        print(f"{others:7,}  without the headers of a dead letter")
    return 0


async def _replay(
    options: argparse.Namespace,
    consumer: AsyncKafkaConsumer[bytes, bytes],
    tps: list[TopicPartition],
) -> int:
    from kohort import KafkaError, OffsetAndMetadata, TopicPartition

    producer = _client.producer_of(consumer)
    replayed = left_out = 0
    # A group that refuses the commit of a replay refuses this one, which changes no offset.
    # With --again, the positions are before the committed offsets.
    committed = await consumer.committed(tps, metadata=True)
    known = {tp: offset for tp, offset in committed.items() if offset is not None}
    await consumer.commit({**await _positions(consumer, tps), **known})
    async for letters in _letters(consumer, tps):
        posted = []
        failed: dict[TopicPartition, tuple[int, KafkaError]] = {}
        """The first letter of each partition that cannot be produced, and the error."""
        for letter in letters:
            tp = TopicPartition(letter.topic, letter.partition)
            if tp in failed:
                continue  # the next run replays it, in the order of the letters
            origin = origin_of(letter)
            reason = (
                "it has not the headers of a dead letter" if origin is None else _obstacle(letter)
            )
            if origin is None or reason:
                left_out += 1
                place = f"{letter.topic}-{letter.partition} offset {letter.offset}"
                print(f"{place} is not replayed: {reason}", file=sys.stderr)
                continue
            try:
                posted.append((tp, letter.offset, await _post(options, producer, letter, origin)))
            except KafkaError as error:
                failed[tp] = letter.offset, error
        for tp, offset, each in posted:
            try:
                await each.wait()
            except KafkaError as error:
                if tp not in failed or offset < failed[tp][0]:
                    failed[tp] = offset, error
            else:
                replayed += 1
        # With --again, the positions of other partitions may be before the committed offsets.
        read = {TopicPartition(letter.topic, letter.partition) for letter in letters}
        places = await _positions(consumer, read)
        for tp, (offset, _) in failed.items():
            places[tp] = OffsetAndMetadata(max(offset, known[tp].offset if tp in known else 0), "")
        await consumer.commit(places)
        if failed:
            tp, (offset, cause) = min(failed.items())
            raise _not_replayed(options, tp, offset, cause) from cause
    print(f"{replayed} {'letter' if replayed == 1 else 'letters'} replayed")
    return 1 if left_out else 0


def _not_replayed(
    options: argparse.Namespace, tp: TopicPartition, offset: int, cause: KafkaError
) -> CommandError:
    following = (
        ". The next run begins with it. To leave it out: kohort groups reset "
        f"{options.group} --partition {tp.topic}:{tp.partition} --to +1 --execute"
    )
    return CommandError(
        f"{tp.topic}-{tp.partition} offset {offset} cannot be replayed. Letters before it "
        f"are replayed{'' if options.again else following}. The cause: {cause}"
    )


async def _positions(
    consumer: AsyncKafkaConsumer[bytes, bytes], tps: Iterable[TopicPartition]
) -> dict[TopicPartition, OffsetAndMetadata]:
    from kohort import OffsetAndMetadata

    return {tp: OffsetAndMetadata(await consumer.position(tp), "") for tp in tps}


async def _post(
    options: argparse.Namespace, producer: RecordProducer, letter: Record, origin: Origin
) -> Any:
    from kohort.producer import NewRecord

    partitions = await producer.partition_count(origin.topic, options.timeout)
    record = NewRecord(letter.timestamp, letter.key, letter.value, own_headers(letter))
    return producer.post(
        origin.topic, origin.partition % partitions, record, timeout=options.timeout
    )


def origin_of(letter: Record) -> Origin | None:
    """Return the origin of a letter, or None without the headers of topic and partition.

    A record that has failed twice has the headers of both failures. The last ones count.
    """
    found = {name: (value or b"").decode(errors="replace") for name, value in letter.headers}
    topic, partition = found.get(f"{PREFIX}topic"), found.get(f"{PREFIX}partition", "")
    offset = found.get(f"{PREFIX}offset", "")
    if not topic or not _is_number(partition):
        return None
    return Origin(
        topic,
        int(partition),
        int(offset) if _is_number(offset) else -1,
        found.get(f"{PREFIX}group", ""),
        found.get(f"{PREFIX}delivery.count", ""),
        found.get(f"{PREFIX}message", ""),
        found.get("kohort.exception", ""),
    )


def own_headers(letter: Record) -> tuple[tuple[str, bytes | None], ...]:
    """Return the headers that the record had before its last failure."""
    kept: list[tuple[str, bytes | None]] = []
    removed: set[str] = set()
    for name, value in reversed(letter.headers):
        if name in NAMES | OWN_NAMES and name not in removed:
            removed.add(name)
        else:
            kept.append((name, value))
    return tuple(reversed(kept))


def _obstacle(letter: Record) -> str:
    names = {name for name, _ in letter.headers}
    if "kohort.value.omitted" in names:
        return "it was too large, so it has no value. Read the record at its offset"
    if letter.key is None and letter.value is None and "kohort.exception" not in names:
        return (
            "the broker has copied neither key nor value. Read the record at its offset. "
            "errors.deadletterqueue.copy.record.enable of the group copies later ones"
        )
    return "it is a corrupt batch" if "kohort.batch" in names else ""


def _is_number(text: str) -> bool:
    return text.isdecimal() and text.isascii() and len(text) < 19


def _as_json(letter: Record, origin: Origin | None) -> dict[str, Any]:
    return {
        "topic": letter.topic,
        "partition": letter.partition,
        "offset": letter.offset,
        "timestamp": letter.timestamp,
        "key": _text(letter.key),
        "value": _text(letter.value),
        "headers": [[name, _text(value)] for name, value in own_headers(letter)],
        "origin": None if origin is None else origin._asdict(),
    }


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="backslashreplace")
