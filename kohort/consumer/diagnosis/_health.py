"""The result of health(): may the process go on, and is its consumer at work.

Health is a judgement of the facts that explain() has, and adds none to them. Platforms restart a
process that is not live, and hold back a rollout while it is not ready. A restart is a rebalance
for all members of the group, so the rules are narrow:

1. ``live`` is False only where a restart helps. The engine has ended by an error or from outside.
   An error left the block of the consumer. process() has failed, or one of its handlers does not
   return. No call polls for ``max_poll_interval_ms``. A closed consumer is live, because the
   program has closed it.
2. No state of the cluster or of the group makes ``live`` False. Those are for example a rebalance,
   brokers that are away, a missing right, and lag. A restart changes none of them.
3. A call that waits inside poll() polls, also while a listener runs.
4. ``ready`` is True from the first completed assignment, of partitions or of none, to the beginning
   of the stop. Later rebalances do not change it, and neither do brokers that go away. Partitions
   of assign() are assigned when a broker has responded.
5. ``ready`` is False while ``live`` is, and while process() retries a record for ``stuck_after``.
6. ``reasons`` is empty if both are True. Before the first assignment it has those of explain().
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kohort.types import NamedTuple, escaped

if TYPE_CHECKING:
    from kohort.consumer.diagnosis._explanation import Explanation
    from kohort.consumer.diagnosis._facts import ExplanationFacts


class Health(NamedTuple):
    """Answers for the liveness and readiness probes of a platform, from ``health()``."""

    live: bool
    """False only if a restart of the process helps."""
    ready: bool
    """True from the first assignment to the beginning of the stop."""
    reasons: tuple[str, ...]
    """The reasons why one of the two is False; empty if both are True."""

    def as_dict(self) -> dict[str, bool | list[str]]:
        """Return the fields as plain values that json.dumps() accepts."""
        return {"live": self.live, "ready": self.ready, "reasons": list(self.reasons)}


Health.__module__ = "kohort"


def assess(
    explanation: Explanation, *, has_assignment: bool, ending: bool, failure: str | None
) -> Health:
    """Return the health of a consumer by the rules at the top of the module.

    ``ending`` is True from the beginning of close(). ``failure`` names the error that left the
    block of the consumer.
    """
    facts = explanation.as_dict()
    fatal = list(_fatal(facts, failure))
    if facts["state"] in ("not started", "running"):
        unready = list(_unready(facts, has_assignment=has_assignment, ending=ending))
    else:
        unready = [] if fatal else ["the consumer is closed"]
    reasons = tuple(dict.fromkeys(fatal + unready))
    return Health(not fatal, not reasons, reasons)


def _fatal(facts: ExplanationFacts, failure: str | None) -> Iterator[str]:
    """Yield the reasons for a restart."""
    state, processing = facts["state"], facts["processing"]
    if processing is not None and processing["failure"] is not None:
        yield f"process() has ended with {escaped(processing['failure'])}"
    elif state == "closed" and failure is not None:
        yield f"the block of the consumer has ended with {failure}"
    elif state not in ("not started", "running", "closed"):
        yield from facts["reasons"]
    elif state != "closed":
        yield from () if processing is None else processing["stuck"]
        yield from _silence(facts)


def _silence(facts: ExplanationFacts) -> Iterator[str]:
    """Yield a sentence if no call has polled for ``max_poll_interval_ms``."""
    poll = facts["poll"]
    limit, ago = poll["max_poll_interval_ms"] / 1000, poll["last_seconds_ago"]
    if facts["subscription"]["mode"] == "none" or poll["inside"] or ago is None:
        return
    if ago >= limit:
        yield f"no call of poll() for {ago:.0f} s, and max_poll_interval_ms allows {limit:g} s"


def _unready(facts: ExplanationFacts, *, has_assignment: bool, ending: bool) -> Iterator[str]:
    """Yield the reasons why a live consumer is not at work."""
    mode, processing = facts["subscription"]["mode"], facts["processing"]
    if mode == "manual":
        has_assignment = facts["cluster"]["reached"]
    if ending:
        yield "the consumer is being closed"
    elif processing is not None and processing["stopping"]:
        yield "process() is about to stop"
    elif facts["state"] == "not started" or mode == "none" or not has_assignment:
        yield from facts["reasons"] or ["the first assignment is not complete"]
    if processing is not None:
        yield from processing["waiting"]
