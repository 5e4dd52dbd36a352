"""The sync and async consumers, and the engine that both run."""
# Private: see docs/reference/api.md for the public names.

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.types import lazy_names

__all__ = [
    "AsyncKafkaConsumer",
    "Explanation",
    "ExplanationFacts",
    "GroupFacts",
    "KafkaConsumer",
    "PartitionFacts",
]

if TYPE_CHECKING:
    from kohort.consumer._async import AsyncKafkaConsumer
    from kohort.consumer._explanation import Explanation
    from kohort.consumer._facts import ExplanationFacts, GroupFacts, PartitionFacts
    from kohort.consumer._sync import KafkaConsumer
else:
    # A program that uses one API does not import the modules of the other.
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "AsyncKafkaConsumer": "kohort.consumer._async",
            "Explanation": "kohort.consumer._explanation",
            "ExplanationFacts": "kohort.consumer._facts",
            "GroupFacts": "kohort.consumer._facts",
            "PartitionFacts": "kohort.consumer._facts",
            "KafkaConsumer": "kohort.consumer._sync",
        }.get,
    )
