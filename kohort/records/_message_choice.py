"""Choice of the class of messages, which is compiled if the decoder of records is.

The API of confluent-kafka and share consumers import this module, and no others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.records._decoder_choice import COMPILED, compiled_module

if TYPE_CHECKING:
    from kohort.records._message import (
        MessageRecord,
        as_message_type,
        learn_locks,
        lock_records,
        mark_open,
        turn_into,
    )

__all__ = [
    "MessageRecord",
    "as_message_type",
    "learn_locks",
    "lock_records",
    "mark_open",
    "turn_into",
]

if not TYPE_CHECKING:
    _messages = compiled_module("_message_c") if COMPILED else None
    if _messages is None:
        from kohort.records import _message as _messages
    MessageRecord, turn_into = _messages.MessageRecord, _messages.turn_into
    as_message_type = _messages.as_message_type
    learn_locks, lock_records = _messages.learn_locks, _messages.lock_records
    mark_open = _messages.mark_open
