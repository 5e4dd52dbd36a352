"""A subclass of a consumer names the types of its records."""

from __future__ import annotations

from typing import assert_type

from kohort import ConsumerRecord, KafkaConsumer


class Orders(KafkaConsumer[str, dict[str, int]]):
    def total(self) -> int:
        return sum(sum((record.value or {}).values()) for record in self)


def first(orders: Orders) -> None:
    assert_type(next(orders), ConsumerRecord[str, dict[str, int]])
    print(orders.total())
