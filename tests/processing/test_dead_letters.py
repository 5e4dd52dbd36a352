"""failed=DeadLetters(...): the letters of AsyncKafkaConsumer, on the virtual clock."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from kohort import AsyncKafkaConsumer, ConsumerRecord, TopicPartition
from kohort.errors import ConfigurationError, ErrorCode
from kohort.processing import Batch, DeadLetter, DeadLetters, GiveUp, Retry, SqlOffsets, process
from kohort.testing import Action, Call, ProducerRecord
from tests.processing.kit import World, in_world, processing, until
from tests.processing.sinks import MemoryDatabase

Record = ConsumerRecord[Any, Any]

pytestmark = pytest.mark.parametrize("backend", ["asyncio", "trio"])

DLQ = "dlq.billing"


def fail_on(*values: object) -> Callable[[Record], Any]:
    async def handler(record: Record) -> None:
        if record.value in values:
            raise ValueError(f"bad value {record.value}")

    return handler


def in_letters(backend: str, main: Callable[[World], Any], **options: Any) -> None:
    """Run with a second topic for the letters."""

    async def with_topic(world: World) -> None:
        world.cluster.create_topic(DLQ, options.get("letters", 1))
        await main(world)

    in_world(backend, with_topic, partitions=options.get("partitions", 1))


def letters(world: World) -> list[ConsumerRecord[bytes, bytes]]:
    return world.cluster.records(DLQ)


def waiting(consumer: AsyncKafkaConsumer[Any, Any]) -> list[str]:
    """Return the reasons of explain() that name a letter."""
    return [reason for reason in consumer.explain().reasons if "dead letter" in reason]


def headers(record: Record) -> dict[str, str]:
    return {name: (value or b"").decode() for name, value in record.headers}


def test_a_letter_has_bytes_headers_and_timestamp(backend: str) -> None:
    async def main(world: World) -> None:
        world.cluster.produce("orders", ["fine"])
        bad = ProducerRecord(b"7", key=b"k\xff", headers=[("shop", b"1"), ("none", None)])
        world.cluster.produce("orders", [bad])
        consumer = world.consumer(
            key_deserializer=lambda data: data and data.decode("latin-1"),
            value_deserializer=lambda data: {"value": data},
        )
        handler = fail_on({"value": b"7"})
        async with processing(
            consumer, handler, failed=DeadLetters(DLQ), retry=Retry(3, first=0.1)
        ):
            await until(lambda: world.committed() == 2)
        [letter] = letters(world)
        [_, source] = world.cluster.records("orders")
        assert (letter.key, letter.value) == (b"k\xff", b"7")
        assert letter.timestamp == source.timestamp
        assert letter.headers == (
            ("shop", b"1"),
            ("none", None),
            ("__dlq.errors.topic", b"orders"),
            ("__dlq.errors.partition", b"0"),
            ("__dlq.errors.offset", b"1"),
            ("__dlq.errors.group", b"g"),
            ("__dlq.errors.delivery.count", b"3"),
            ("__dlq.errors.message", b"bad value {'value': b'7'}"),
            ("kohort.exception", b"builtins.ValueError"),
        )

    in_letters(backend, main)


def test_each_failed_record_has_one_letter(backend: str) -> None:
    async def main(world: World) -> None:
        for number in range(60):
            world.produce(str(number), key=str(number % 7), partition=number % 3)
        bad = [str(number).encode() for number in range(0, 60, 4)]

        async def disturb(call: Call) -> Any:
            await call.proceed()
            return Action.DROP

        world.cluster.on("Produce", disturb, keep=3)
        world.cluster.fail("Produce", ErrorCode.NOT_ENOUGH_REPLICAS, times=4)
        consumer = world.consumer()
        async with processing(consumer, fail_on(*bad), failed=DeadLetters(DLQ), order="key"):
            await until(
                lambda: [world.committed(partition) for partition in range(3)] == [20, 20, 20]
            )
        found = letters(world)
        assert sorted(letter.value or b"" for letter in found) == sorted(bad)
        for letter in found:
            assert int(headers(letter)["__dlq.errors.partition"]) % 2 == letter.partition

    in_letters(backend, main, partitions=3, letters=2)


def test_a_record_is_done_after_its_letter_only(backend: str) -> None:
    async def main(world: World) -> None:
        world.produce("bad", "good")
        fault = world.cluster.on("Produce", lambda call: call.error(ErrorCode.NOT_ENOUGH_REPLICAS))
        async with processing(world.consumer(), fail_on(b"bad"), failed=DeadLetters(DLQ)):
            await anyio.sleep(40)
            assert world.committed() == 0
            fault.stop()
            await until(lambda: world.committed() == 2)
        assert len(letters(world)) == 1

    in_letters(backend, main)


def test_a_delivery_that_fails_is_repeated(backend: str, caplog: pytest.LogCaptureFixture) -> None:
    async def main(world: World) -> None:
        world.produce("bad")
        fault = world.cluster.on(
            "Produce", lambda call: call.error(ErrorCode.TOPIC_AUTHORIZATION_FAILED), keep=3
        )
        with caplog.at_level(logging.WARNING, "kohort.processing"):
            async with processing(world.consumer(), fail_on(b"bad"), failed=DeadLetters(DLQ)):
                await until(lambda: world.committed() == 1)
        assert fault.hits == 3
        assert len(letters(world)) == 1
        assert "producing to dlq.billing-0 failed" in caplog.text

    in_letters(backend, main)


def test_a_stop_leaves_a_record_without_a_letter_to_the_next_owner(backend: str) -> None:
    async def main(world: World) -> None:
        world.produce("bad")
        fault = world.cluster.on("Produce", lambda call: call.error(ErrorCode.NOT_ENOUGH_REPLICAS))
        async with processing(world.consumer(), fail_on(b"bad"), failed=DeadLetters(DLQ), drain=2):
            await anyio.sleep(20)
        assert world.committed() == 0
        assert letters(world) == []
        fault.stop()
        async with processing(world.consumer(), fail_on(b"bad"), failed=DeadLetters(DLQ)):
            await until(lambda: world.committed() == 1)
        assert len(letters(world)) == 1

    in_letters(backend, main)


def test_the_letter_of_give_up_names_the_cause(backend: str) -> None:
    async def main(world: World) -> None:
        async def handler(record: Record) -> None:
            raise GiveUp from KeyError("card")

        world.produce("a")
        async with processing(world.consumer(), handler, failed=DeadLetters(DLQ), retry=Retry(9)):
            await until(lambda: world.committed() == 1)
        found = headers(letters(world)[0])
        assert found["__dlq.errors.delivery.count"] == "1"
        assert found["__dlq.errors.message"] == "'card'"
        assert found["kohort.exception"] == "builtins.KeyError"

    in_letters(backend, main)


def test_a_letter_that_is_too_large_comes_without_its_value(backend: str) -> None:
    async def main(world: World) -> None:
        world.cluster.create_topic("small", 1, configs={"max.message.bytes": "700"})
        world.cluster.produce("orders", [("k", "x" * 600)])

        async def handler(record: Record) -> None:
            raise ValueError("bad")

        async with processing(world.consumer(), handler, failed=DeadLetters("small")):
            await until(lambda: world.committed() == 1)
        [letter] = world.cluster.records("small")
        assert (letter.key, letter.value) == (b"k", None)
        assert headers(letter)["kohort.value.omitted"] == "600"
        assert headers(letter)["__dlq.errors.offset"] == "0"

    in_letters(backend, main)


def test_a_missing_topic_is_an_error_at_the_start(backend: str) -> None:
    async def main(world: World) -> None:
        with pytest.raises(ConfigurationError, match=r"'absent' of DeadLetters does not exist"):
            await process(
                world.consumer(), fail_on(), failed=DeadLetters("absent"), handle_signals=False
            )

    in_letters(backend, main)


def test_a_missing_topic_is_created_on_demand(backend: str) -> None:
    async def main(world: World) -> None:
        world.produce("bad")
        policy = DeadLetters("made", create=True)
        async with processing(world.consumer(), fail_on(b"bad"), failed=policy):
            await until(lambda: world.committed() == 1)
        assert len(world.cluster.records("made")) == 1

    in_letters(backend, main)


def test_records_of_a_batch_have_letters_of_their_own(backend: str) -> None:
    async def main(world: World) -> None:
        async def handler(records: list[Record]) -> None:
            if any(record.value == b"bad" for record in records):
                raise ValueError("bad")

        world.produce("a", "bad", "c")
        batch = Batch(3, 1.0, split=True)
        async with processing(world.consumer(), handler, failed=DeadLetters(DLQ), batch=batch):
            await until(lambda: world.committed() == 3)
        assert [letter.value for letter in letters(world)] == [b"bad"]

    in_letters(backend, main)


def test_a_record_that_does_not_deserialize_has_a_letter(backend: str) -> None:
    async def main(world: World) -> None:
        world.cluster.produce("orders", [("k", "1"), ("k", "two"), ("k", "3")])
        handled: list[object] = []

        async def handler(record: Record) -> None:
            handled.append(record.value)

        world.cluster.fail("Produce", ErrorCode.TOPIC_AUTHORIZATION_FAILED, times=2)
        consumer = world.consumer(value_deserializer=int)
        async with processing(consumer, handler, failed=DeadLetters(DLQ)):
            await until(lambda: world.committed() == 3)
        assert handled == [1, 3]
        [letter] = letters(world)
        assert (letter.key, letter.value) == (b"k", b"two")
        found = headers(letter)
        assert (found["__dlq.errors.offset"], found["__dlq.errors.delivery.count"]) == ("1", "1")
        assert found["kohort.exception"] == "builtins.ValueError"

    in_letters(backend, main)


def test_a_corrupt_batch_has_a_letter_with_its_bytes(backend: str) -> None:
    async def main(world: World) -> None:
        world.produce("a")
        world.produce("b")
        world.produce("c")
        world.cluster.corrupt(TopicPartition("orders", 0), 1)
        handled: list[object] = []

        async def handler(record: Record) -> None:
            handled.append(record.value)

        async with processing(world.consumer(), handler, failed=DeadLetters(DLQ)):
            await until(lambda: world.committed() == 3)
        assert handled == [b"a", b"c"]
        [letter] = letters(world)
        assert b"b" in (letter.value or b"")
        assert headers(letter)["kohort.batch"] == "2"
        assert headers(letter)["__dlq.errors.offset"] == "1"

    in_letters(backend, main)


def test_a_record_is_named_while_its_letter_is_not_acknowledged(
    backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(world: World) -> None:
        fault = world.cluster.fail("Produce", ErrorCode.NOT_ENOUGH_REPLICAS, times=None)
        world.produce("bad")
        consumer = world.consumer()
        policy = DeadLetters(DLQ, timeout=30)
        start = anyio.current_time()
        async with processing(consumer, fail_on(b"bad"), failed=policy, stuck_after=100):
            await anyio.sleep_until(start + 5)
            assert waiting(consumer) == []
            await anyio.sleep_until(start + 20)
            [reason] = waiting(consumer)
            assert reason.startswith("orders-0 offset 0: in flight for ")
            assert reason.endswith(f"its dead letter for the topic '{DLQ}' is not acknowledged")
            await anyio.sleep_until(start + 60)
            [reason] = waiting(consumer)
            assert "The latest attempt raised KafkaTimeoutError: producing to" in reason
            assert consumer.health().ready
            await anyio.sleep_until(start + 110)
            health = consumer.health()
            assert health.live and not health.ready
            assert list(health.reasons) == waiting(consumer)
            [warning] = [text for text in caplog.messages if "is not acknowledged" in text]
            assert warning.endswith("The commit of the partition waits for it")
            fault.stop()
            await until(lambda: world.committed() == 1)
            await anyio.sleep(2)
            assert waiting(consumer) == [] and consumer.health().ready

    with caplog.at_level(logging.WARNING, "kohort.processing"):
        in_letters(backend, main)


def test_a_letter_that_takes_long_is_no_reason_for_a_restart(backend: str) -> None:
    async def main(world: World) -> None:
        world.cluster.fail("Produce", ErrorCode.NOT_ENOUGH_REPLICAS, times=None)
        world.produce("bad")
        consumer = world.consumer()
        policy = DeadLetters(DLQ, timeout=1000)
        async with processing(consumer, fail_on(b"bad"), failed=policy, stuck_after=20, drain=0):
            await anyio.sleep(60)
            health = consumer.health()
            assert health.live and not health.ready

    in_letters(backend, main)


def test_a_producer_of_the_program_that_hangs_is_stuck(backend: str) -> None:
    async def main(world: World) -> None:
        async def send(letter: DeadLetter) -> None:
            await anyio.sleep_forever()

        world.produce("bad")
        consumer = world.consumer()
        policy = DeadLetters(DLQ, send=send)
        async with processing(consumer, fail_on(b"bad"), failed=policy, stuck_after=20, drain=0):
            await anyio.sleep(30)
            health = consumer.health()
            assert not health.live and health.reasons[0].endswith("failed= has not returned")

    in_letters(backend, main)


@pytest.mark.parametrize("order", ["partition", "key", "none"])
def test_data_that_cannot_be_read_has_one_letter_when_members_change(
    backend: str, order: Any
) -> None:
    """The letter is written in the order of the records, so a new owner knows that it exists."""

    async def main(world: World) -> None:
        async def handler(record: Record) -> None:
            await anyio.sleep(5)

        world.cluster.produce("orders", [("a", "1"), ("b", "2"), ("c", "three"), ("a", "4")])
        options: Any = {"failed": DeadLetters(DLQ), "order": order, "drain": 0}
        async with processing(world.consumer(value_deserializer=int), handler, **options):
            await anyio.sleep(4)
        async with processing(world.consumer(value_deserializer=int), handler, **options):
            await until(lambda: world.committed() == 4)
        assert [letter.value for letter in letters(world)] == [b"three"]

    in_letters(backend, main)


@pytest.mark.parametrize("columns", [False, True])
def test_data_that_cannot_be_read_is_not_in_a_batch(backend: str, columns: bool) -> None:
    async def main(world: World) -> None:
        batches: list[int] = []

        async def handler(records: Any) -> None:
            batches.append(len(records))

        for value in "abcde":
            world.produce(value)
        world.cluster.corrupt(TopicPartition("orders", 0), 2)
        batch = Batch(4, seconds=1, columns=columns)
        async with processing(world.consumer(), handler, failed=DeadLetters(DLQ), batch=batch):
            await until(lambda: world.committed() == 5)
        assert batches == [2, 2]
        assert [headers(letter)["kohort.batch"] for letter in letters(world)] == ["3"]

    in_letters(backend, main)


def test_a_letter_is_written_once_when_the_database_fails_after_it(backend: str) -> None:
    async def main(world: World) -> None:
        database = MemoryDatabase(random.Random(1), faults=0)

        async def handler(record: Record, cursor: Any) -> None:
            database.faults = 1
            raise ValueError

        def on_stored(row: Any, begin: int, end: int) -> None:
            database.faults = 0

        database.on_stored = on_stored
        world.produce("bad")
        options: Any = {"offsets": SqlOffsets(database.connect, paramstyle="qmark")}
        async with processing(world.consumer(), handler, failed=DeadLetters(DLQ), **options):
            await until(lambda: world.committed() == 1)
        assert len(letters(world)) == 1

    in_letters(backend, main)


def test_data_that_cannot_be_read_is_named_until_its_letter(backend: str) -> None:
    async def main(world: World) -> None:
        fault = world.cluster.fail("Produce", ErrorCode.TOPIC_AUTHORIZATION_FAILED, times=None)
        world.cluster.produce("orders", ["1", "two", "3"])
        consumer = world.consumer(value_deserializer=int)
        policy = DeadLetters(DLQ)
        async with processing(consumer, fail_on(), failed=policy, stuck_after=60):
            await anyio.sleep(30)
            [reason] = waiting(consumer)
            assert reason.startswith("orders-0 offset 1: in flight for ")
            assert "is not acknowledged. The latest attempt raised TopicAuth" in reason
            assert consumer.health().ready
            await anyio.sleep(60)
            assert consumer.health() == (True, False, tuple(waiting(consumer)))
            fault.stop()
            await until(lambda: world.committed() == 3)
            await anyio.sleep(2)
            assert waiting(consumer) == [] and consumer.health().ready

    in_letters(backend, main)


@pytest.mark.parametrize("seed", range(4))
def test_each_failed_record_has_one_letter_while_members_change(backend: str, seed: int) -> None:
    """Members come and leave, requests fail and get lost, and no letter is missing or double."""

    async def main(world: World) -> None:
        rng = random.Random(seed)

        async def disturb(call: Call) -> Any:
            if rng.random() < 0.2:
                return call.error(ErrorCode.NOT_ENOUGH_REPLICAS)
            if rng.random() < 0.3:
                if rng.random() < 0.5:
                    await call.proceed()
                return Action.DROP
            return None

        async def handler(record: Record) -> None:
            await anyio.sleep(rng.uniform(0, 0.2))
            if (record.value or b"").startswith(b"bad"):
                raise ValueError(record.value)

        world.cluster.on("Produce", disturb)
        bad: list[bytes] = []
        policy = DeadLetters(DLQ)
        retry = Retry(2, first=0.1)
        async with processing(world.consumer(), handler, failed=policy, order="key", retry=retry):
            for number in range(120):
                value = f"{rng.choice(['bad', 'good'])}{number}"
                bad += [value.encode()] if value.startswith("bad") else []
                world.produce(value, key=str(number % 9), partition=number % 3)
            for _ in range(4):
                async with processing(
                    world.consumer(), handler, failed=policy, order="key", retry=retry
                ):
                    await anyio.sleep(rng.uniform(1, 10))
            await until(lambda: [world.committed(number) for number in range(3)] == [40] * 3)
        assert sorted(letter.value or b"" for letter in letters(world)) == sorted(bad)

    in_letters(backend, main, partitions=3, letters=3)


@pytest.mark.parametrize("is_coroutine", [False, True])
def test_a_producer_of_the_program_gets_the_letters(backend: str, is_coroutine: bool) -> None:
    async def main(world: World) -> None:
        sent: list[DeadLetter] = []
        failures = [OSError("away")]

        def send(letter: DeadLetter) -> None:
            if failures:
                raise failures.pop()
            sent.append(letter)

        async def send_later(letter: DeadLetter) -> None:
            await anyio.sleep(1)
            send(letter)

        world.cluster.produce("orders", [("k", "7")])
        policy = DeadLetters("elsewhere", send=send_later if is_coroutine else send)
        consumer = world.consumer(value_deserializer=int)
        async with processing(consumer, fail_on(7), failed=policy):
            await until(lambda: world.committed() == 1)
        [letter] = sent
        assert (letter.topic, letter.key, letter.value) == ("elsewhere", b"k", b"7")
        assert letter.source_partition == 0

    in_letters(backend, main)


@pytest.mark.parametrize(
    "make",
    [
        lambda: DeadLetters(""),
        lambda: DeadLetters(7),  # type: ignore[arg-type]
        lambda: DeadLetters("t", timeout=0),
        lambda: DeadLetters("t", create="yes"),  # type: ignore[arg-type]
        lambda: DeadLetters("t", send="x"),  # type: ignore[arg-type]
        lambda: DeadLetters("t", send=print, create=True),
    ],
)
def test_wrong_options_are_refused(backend: str, make: Callable[[], object]) -> None:
    with pytest.raises(ConfigurationError, match=r"DeadLetters"):
        make()
