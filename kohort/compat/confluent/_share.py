"""``ShareConsumer`` and ``DeserializingShareConsumer``, the preview of confluent-kafka.

The program takes whole batches, and acknowledges single messages. ``_waiting`` has the messages of
the latest batch without an acknowledgement, and ``_marked`` the offsets whose result the callback
or ``commit_sync()`` has not got yet.
"""

from __future__ import annotations

import functools
import math
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Self, TypeVar

from kohort import ShareConsumer as NativeConsumer
from kohort import TopicPartition as NativePartition
from kohort.compat._peer import peer_name
from kohort.compat.confluent._builders import KEY_DESERIALIZER, VALUE_DESERIALIZER
from kohort.compat.confluent._client_errors import ClientErrors, overdue_error
from kohort.compat.confluent._deserializing import MessageField, context_of
from kohort.compat.confluent._errors import is_of_client, to_error, to_message
from kohort.compat.confluent._options import share_options
from kohort.compat.confluent._values import (
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
    partition,
)
from kohort.errors import (
    CorruptBatchError,
    DataError,
    IllegalStateError,
    InvalidOptionError,
    KafkaTimeoutError,
    UnsupportedOptionError,
)
from kohort.errors import KafkaError as NativeError

CLOSED: Final = "Share consumer closed"
_LONGEST_WAIT_S: Final = 0.5
_COMMIT_S: Final = 60.0
_WRONG: Final = "Local: Erroneous state"
_INVALID: Final = "Local: Invalid argument or configuration"

P = ParamSpec("P")
R = TypeVar("R")
CommitCallback = Callable[[dict[TopicPartition, set[int]], KafkaException | None], object]


class AcknowledgeType(IntEnum):
    """What becomes of a message in explicit mode."""

    __module__ = "kohort.compat.confluent"

    ACCEPT = 1
    RELEASE = 2
    REJECT = 3


class IllegalStateException(RuntimeError):
    """A call that the state of a share consumer does not allow."""

    __module__ = "kohort.compat.confluent"


class ConcurrentModificationException(RuntimeError):
    """A call while another thread uses the share consumer."""

    __module__ = "kohort.compat.confluent"


class Messages(Sequence[Message]):
    """The messages of one poll."""

    __module__ = "kohort.compat.confluent"

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self._records = list(messages)

    def records(self) -> list[Message]:
        """Return the messages as a new list."""
        return list(self._records)

    def count(self) -> int:  # type: ignore[override]
        """Return the number of messages."""
        return len(self._records)

    def is_empty(self) -> bool:
        """Return True if there are no messages."""
        return not self._records

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: Any) -> Any:
        return self._records[index]

    def __iter__(self) -> Iterator[Message]:
        return iter(self._records)


if not TYPE_CHECKING:
    _MODEL = "confluent_kafka._model"
    AcknowledgeType = peer_name(_MODEL, "AcknowledgeType") or AcknowledgeType
    Messages = peer_name(_MODEL, "Messages") or Messages
    IllegalStateException = (
        peer_name("confluent_kafka.cimpl", "IllegalStateException") or IllegalStateException
    )
    ConcurrentModificationException = (
        peer_name("confluent_kafka.cimpl", "ConcurrentModificationException")
        or ConcurrentModificationException
    )


def exclusive(
    method: Callable[Concatenate[ShareConsumer, P], R],
) -> Callable[Concatenate[ShareConsumer, P], R]:
    """Refuse calls of a method by another thread, or by a callback, during a call."""

    @functools.wraps(method)
    def call(self: ShareConsumer, /, *args: P.args, **kwargs: P.kwargs) -> R:
        self._check_open()
        own = threading.get_ident()
        if not self._gate.acquire(blocking=False):
            if self._user == own:
                raise IllegalStateException(f"{method.__name__}() in a callback: {_WRONG}")
            raise ConcurrentModificationException(
                f"{method.__name__}() while another thread uses the share consumer, which is not "
                "safe for multi-threaded access: Local: Conflicting use"
            )
        self._user = own
        try:
            return method(self, *args, **kwargs)
        finally:
            self._user = 0
            self._gate.release()

    return call


class ShareConsumer:
    """ShareConsumer of confluent-kafka's shape that is kohort's inside.

    ``ShareConsumer({"bootstrap.servers": ..., "group.id": ...})``. The page docs/migration.md lists
    what differs.
    """

    __module__ = "kohort.compat.confluent"

    _closed: bool = True
    """Also of a subclass that does not call this constructor."""

    def __init__(self, config: dict[str, Any] | None = None, /, **kwargs: Any) -> None:
        if not self._closed:
            raise RuntimeError("ShareConsumer is already initialized")
        if (config is None and not kwargs) or not isinstance(config, dict | None):
            raise TypeError("expected configuration dict")
        if "on_commit" in {**(config or {}), **kwargs}:
            raise ValueError("on_commit is not supported: a share group commits no offsets")
        options = share_options({**(config or {}), **kwargs})
        self._errors = ClientErrors(options.error_cb, options.logger)
        self._credentials = options.credentials
        self._token = options.first_token
        if self._token is not None:
            weakref.finalize(self, self._token.stop)
        self._is_explicit: bool = options.keywords.get("acknowledgement") == "explicit"
        try:
            self._native = NativeConsumer(on_error=self._note_damage, **options.keywords)
        except UnsupportedOptionError as error:
            text = str(error).replace('Use start="earliest", or set', "Set")  # it has no start
            name, _, rest = text.partition(" ")
            text = f"Failed to create share consumer: {name.replace('_', '.')} {rest}"
            raise ValueError(text) from None
        except InvalidOptionError as error:
            raise ValueError(f"Failed to create share consumer: {error}") from None
        limit = options.keywords.get("max_poll_interval_ms", 300_000)
        self._poll_interval: float = limit / 1000
        self._polled_at: float = math.inf
        self._closed = False
        self._gate = threading.Lock()
        self._user = 0
        """Identifier of the thread that holds the gate, or 0."""
        self._damaged: list[Message] = []
        """Messages with the errors of data that cannot be read."""
        self._topics: list[str] = []
        self._has_begun: bool = False
        """True if the client has begun to connect."""
        self._waiting: set[tuple[NativePartition, int]] = set()
        self._marked: dict[NativePartition, set[int]] = {}
        self._callback: CommitCallback | None = None

    # -- messages -----------------------------------------------------------------------------

    @exclusive
    def poll(self, timeout: float = -1) -> Messages:
        """Return the next messages, or none after ``timeout`` seconds. -1 waits for some.

        In implicit mode it accepts the messages of the last poll. In explicit mode all of these
        must have an acknowledgement.
        """
        if not self._topics:
            raise IllegalStateException("Consumer is not subscribed to any topics")
        if self._is_explicit and self._waiting:
            raise IllegalStateException(
                "All records of the previous poll must be acknowledged in explicit mode"
            )
        self._check_interval()
        self._look_for_brokers()
        self._accept_batch()
        if self._callback is not None:
            self._report(_COMMIT_S)
        deadline = math.inf if timeout < 0 else time.monotonic() + timeout
        while True:
            left = max(0.0, deadline - time.monotonic())
            found = self._poll(min(left, _LONGEST_WAIT_S))
            if not found:
                self._look_for_brokers()
            self._polled_at = time.monotonic()
            if found or left <= 0:
                return Messages(found)

    def _check_interval(self) -> None:
        """Report once that the last poll was too long ago. The client has left its group."""
        now = time.monotonic()
        since, self._polled_at = now - self._polled_at, now
        if since > self._poll_interval:
            raise KafkaException(overdue_error(since, self._poll_interval))

    def _poll(self, seconds: float) -> list[Message]:
        if not self._native.subscription():
            time.sleep(seconds)
            return []
        try:
            batch = self._native.poll(1000 * seconds)
        except NativeError as error:
            if not is_of_client(error):
                raise KafkaException(to_error(error)) from error
            self._errors.report(to_error(error))
            time.sleep(min(seconds, 0.05))
            return []
        found, self._damaged = self._damaged, []
        for tp, records in batch.items():
            for record in records:
                self._waiting.add((tp, record.offset))
                found.append(
                    Message(
                        topic=tp.topic,
                        partition=tp.partition,
                        offset=record.offset,
                        key=record.key,
                        value=record.value,
                        headers=list(record.headers) or None,
                        timestamp=(record.timestamp_type + 1, record.timestamp),
                        leader_epoch=record.leader_epoch,
                        delivery_count=record.delivery_count,
                    )
                )
        return found

    def _note_damage(self, error: DataError) -> str:
        self._damaged.append(to_message(error))
        return "reject" if isinstance(error, CorruptBatchError) else "release"

    def _look_for_brokers(self) -> None:
        if self._has_begun:
            self._errors.look_for_brokers(self._native)

    def _accept_batch(self) -> None:
        """Note that the messages of the last poll are accepted, in implicit mode."""
        if not self._is_explicit:
            for tp, offset in self._waiting:
                self._marked.setdefault(tp, set()).add(offset)
            self._waiting.clear()

    # -- acknowledgements ---------------------------------------------------------------------

    @exclusive
    def acknowledge(self, message: Message, ack_type: int = AcknowledgeType.ACCEPT) -> None:
        """Note what becomes of a message, in explicit mode. The next poll or commit sends it."""
        if not isinstance(message, Message):
            raise TypeError(
                f"argument 1 must be confluent_kafka.cimpl.Message, not {type(message).__name__}"
            )
        place = message.topic(), message.partition(), message.offset()
        if None in place:
            raise ValueError("the message has no topic, partition or offset")
        self._acknowledge("message", *place, ack_type)

    @exclusive
    def acknowledge_offset(
        self, topic: str, partition: int, offset: int, ack_type: int = AcknowledgeType.ACCEPT
    ) -> None:
        """Note what becomes of a message that is known by its place only."""
        if not isinstance(topic, str):
            raise TypeError(f"argument 1 must be str, not {type(topic).__name__}")
        for number in (partition, offset):
            if not isinstance(number, int):
                raise TypeError(f"expected int, not {type(number).__name__}")
            if number < 0:
                raise ValueError(f"Failed to acknowledge offset: {_INVALID}")
        self._acknowledge("offset", topic, partition, offset, ack_type)

    def _acknowledge(self, what: str, topic: Any, number: Any, offset: Any, kind: Any) -> None:
        if not isinstance(kind, int):
            raise TypeError(f"ack_type must be an integer, not {type(kind).__name__}")
        if not self._is_explicit:
            raise IllegalStateException(f"Failed to acknowledge {what}: {_WRONG}")
        if kind not in (1, 2, 3):
            raise ValueError(f"Failed to acknowledge {what}: {_INVALID}")
        tp = NativePartition(topic, number)
        try:
            self._native.acknowledge(tp, offset, _KINDS[kind])
        except IllegalStateError as error:
            raise IllegalStateException(f"Failed to acknowledge {what}: {_WRONG}") from error
        self._waiting.discard((tp, offset))
        self._marked.setdefault(tp, set()).add(offset)

    @exclusive
    def commit_sync(self, timeout: float = _COMMIT_S) -> dict[TopicPartition, Any]:
        """Send the acknowledgements, and return None or an error for each partition."""
        self._look_for_brokers()
        self._accept_batch()
        return self._report(math.inf if timeout < 0 else timeout)

    @exclusive
    def commit_async(self) -> None:
        """Send the acknowledgements without a wait. The next call runs the callback."""
        self._look_for_brokers()
        self._accept_batch()
        if self._marked:
            self._native.commit_async()  # the next commit names what failed

    def _report(self, seconds: float) -> dict[TopicPartition, Any]:
        """Wait for the acknowledgements, and call the callback once for each partition."""
        limit_ms = None if math.isinf(seconds) else 1000 * seconds
        try:
            failed = self._native.commit(limit_ms)
        except NativeError as error:
            raise KafkaException(to_error(error)) from error
        marked, self._marked = self._marked, {}
        found: dict[TopicPartition, Any] = {}
        for tp in marked.keys() | failed.keys():
            errors = failed.get(tp, {})
            first = next(iter(errors.values()), None)
            named = partition(*tp)
            found[named] = None if first is None else KafkaException(_acknowledgement_error(first))
            if self._callback is not None:
                if good := marked.get(tp, set()) - errors.keys():
                    self._callback({named: good}, None)
                if errors:
                    self._callback({named: set(errors)}, found[named])
        return found

    @exclusive
    def set_acknowledgement_commit_callback(self, callback: CommitCallback | None) -> None:
        """Call a function with offsets by partition, and their error or None."""
        if callback is not None and not callable(callback):
            raise TypeError("callback must be callable or None")
        self._callback = callback

    # -- the rest -----------------------------------------------------------------------------

    @exclusive
    def subscribe(self, topics: list[str]) -> None:
        """Subscribe to topics, in place of earlier ones. An empty list is unsubscribe()."""
        if not isinstance(topics, list) or not all(isinstance(each, str) for each in topics):
            raise TypeError("expected list of topic unicode strings")
        if not topics:
            self._unsubscribe()
            return
        if not all(topics) or len(set(topics)) < len(topics):
            raise ValueError(f"Failed to subscribe: {_INVALID}")
        # Share groups have no patterns, and no topic has such a name.
        if names := [each for each in topics if not each.startswith("^")]:
            self._native.subscribe(names)
        else:
            self._unsubscribe()
        self._topics = sorted(topics)
        if names and not self._has_begun:
            self._has_begun = True
            self._poll(0.0)  # begins to connect, as librdkafka does in the background

    @exclusive
    def unsubscribe(self) -> None:
        """Leave the group."""
        self._unsubscribe()

    def _unsubscribe(self) -> None:
        self._waiting.clear()
        self._topics = []
        try:
            self._native.unsubscribe()
        except NativeError as error:
            raise KafkaException(to_error(error)) from error

    @exclusive
    def subscription(self) -> list[str]:
        """Return the subscribed topics."""
        return list(self._topics)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Log in with another user or password from the next connection on."""
        self._check_open()
        for value in (username, password):
            if not isinstance(value, str):
                raise TypeError(f"expected str, not {type(value).__name__}")
        if self._credentials is not None:
            self._credentials.pair = username, password

    def close(self) -> None:
        """Send acknowledgements, release what has none, and leave the group."""
        if not self._closed:
            self._close()

    @exclusive
    def _close(self) -> None:
        try:
            self._look_for_brokers()
            if self._marked and self._is_explicit:
                self._report(_COMMIT_S)
        finally:
            self._closed = True
            if self._token is not None:
                self._token.stop()
            self._native.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise IllegalStateException(CLOSED)


def _acknowledgement_error(error: NativeError) -> KafkaError:
    """Return the error of an acknowledgement. After the end of a lock it is the broker's code."""
    if isinstance(error, KafkaTimeoutError):
        return KafkaError(KafkaError.INVALID_RECORD_STATE, str(error))
    return to_error(error)


_KINDS: Final = {1: "accept", 2: "release", 3: "reject"}


class DeserializingShareConsumer(ShareConsumer):
    """A ShareConsumer whose poll() deserializes keys and values in place.

    The options ``key.deserializer`` and ``value.deserializer`` are callables
    ``(data, SerializationContext)``. A message that cannot be deserialized keeps its bytes, and its
    ``error()`` says why.
    """

    __module__ = "kohort.compat.confluent"

    def __init__(self, conf: dict[str, Any]) -> None:
        options = dict(conf)
        self._key_deserializer: Any = options.pop(KEY_DESERIALIZER, None)
        self._value_deserializer: Any = options.pop(VALUE_DESERIALIZER, None)
        super().__init__(options)

    def poll(self, timeout: float = -1) -> Messages:
        """Return the next messages, deserialized."""
        messages = super().poll(timeout)
        for message in messages:
            if message.error() is None:
                self._deserialize(message)
        return messages

    def _deserialize(self, message: Message) -> None:
        if message.topic() is None:
            raise TypeError("Message topic is None")
        code = KafkaError._KEY_DESERIALIZATION
        key, value = message.key(), message.value()
        try:
            if self._key_deserializer is not None:
                key = self._key_deserializer(key, context_of(message, MessageField.KEY))
            code = KafkaError._VALUE_DESERIALIZATION
            if self._value_deserializer is not None:
                value = self._value_deserializer(value, context_of(message, MessageField.VALUE))
        except Exception as error:
            message.set_error(KafkaError(code, str(error)))
            return
        message.set_key(key)
        message.set_value(value)
