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
    "Health",
    "KafkaConsumer",
    "PartitionFacts",
    "ProcessingFacts",
    "ShareFacts",
]

if TYPE_CHECKING:
    from kohort.consumer.api._async import AsyncKafkaConsumer
    from kohort.consumer.api._sync import KafkaConsumer
    from kohort.consumer.diagnosis._explanation import Explanation
    from kohort.consumer.diagnosis._facts import (
        ExplanationFacts,
        GroupFacts,
        PartitionFacts,
        ProcessingFacts,
        ShareFacts,
    )
    from kohort.consumer.diagnosis._health import Health
else:
    # A program that uses one API does not import the modules of the other.
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "AsyncKafkaConsumer": "kohort.consumer.api._async",
            "Explanation": "kohort.consumer.diagnosis._explanation",
            "ExplanationFacts": "kohort.consumer.diagnosis._facts",
            "GroupFacts": "kohort.consumer.diagnosis._facts",
            "Health": "kohort.consumer.diagnosis._health",
            "PartitionFacts": "kohort.consumer.diagnosis._facts",
            "ProcessingFacts": "kohort.consumer.diagnosis._facts",
            "ShareFacts": "kohort.consumer.diagnosis._facts",
            "KafkaConsumer": "kohort.consumer.api._sync",
        }.get,
    )
