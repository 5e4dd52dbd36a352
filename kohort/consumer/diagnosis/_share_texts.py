"""The part of explain() that only share consumers have."""

from __future__ import annotations

from collections.abc import Iterator

from kohort.consumer.diagnosis._facts import ShareFacts
from kohort.transport import counted


def share_reasons(shares: ShareFacts) -> Iterator[str]:
    """Yield the reasons why a member of a share group gets no records."""
    if not shares["partitions"]:
        yield (
            "this member was assigned no partitions: the coordinator has not prepared them yet, or "
            "the topics do not exist"
        )
    elif not shares["nothing_available"] or shares["buffered"]:
        return
    elif not shares["acquired"] and shares["start"] is None:
        yield (
            "no record was acquired yet: a share group begins with records that are produced after "
            'its first fetch. Use start="earliest", or set share.auto.offset.reset of the group'
        )
    elif count := shares["unacknowledged"]:
        yield (
            f"no other record is available, and {counted(count, 'record')} of this consumer "
            f"{'waits' if count == 1 else 'wait'} for accept(), release() or reject()"
        )
    else:
        yield "no record is available: all are done, or locked by other members"


def share_lines(shares: ShareFacts) -> Iterator[str]:
    """Yield the lines on partitions and locks."""
    yield f"assigned partitions: {', '.join(shares['partitions']) or 'none'}"
    deadline = shares["first_deadline_seconds"]
    yield (
        f"locks of {shares['lock_seconds']:g} s: {counted(shares['locked'], 'record')}, of which "
        f"{shares['buffered']} wait for a poll and {shares['unacknowledged']} for an "
        "acknowledgement" + ("" if deadline is None else f", the first lock {_end_text(deadline)}")
    )
    yield (
        f"acquired {shares['acquired']}, acknowledged {shares['acknowledged']}, "
        f"acknowledgements that failed {shares['failed']}"
    )


def _end_text(seconds: float) -> str:
    return f"ends in {seconds:.1f} s" if seconds > 0 else f"ended {-seconds:.1f} s ago"
