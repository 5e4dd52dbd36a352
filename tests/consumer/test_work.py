"""The mailbox: what the core leaves for the caller."""

from __future__ import annotations

import time

from kohort.consumer._callback_queue import CoreLink, Mailbox
from kohort.errors import KafkaError


def test_an_error_is_reported_while_the_caller_takes_another_out() -> None:
    class Taken(KafkaError):
        def __str__(self) -> str:  # what the caller's thread may do in the midst of it
            if mailbox.errors:
                mailbox.errors.popleft()
            return f"taken {id(self)}"

    mailbox = Mailbox(CoreLink(), lambda: None, time.monotonic)
    mailbox.errors.extend([Taken(), KafkaError("another")])
    later = Taken()
    mailbox.report(later)
    assert later in mailbox.errors


def test_the_same_error_is_kept_once() -> None:
    mailbox = Mailbox(CoreLink(), lambda: None, time.monotonic)
    for text in ("one", "one", "two"):
        mailbox.report(KafkaError(text))
    assert [str(error) for error in mailbox.errors] == ["one", "two"]
