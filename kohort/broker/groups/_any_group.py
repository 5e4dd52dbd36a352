"""The groups of all protocols that a coordinator has in one table."""

from __future__ import annotations

from typing import TypeAlias

from kohort.broker.groups._group import ClassicGroup
from kohort.broker.groups.consumer._group import ConsumerGroup

AnyGroup: TypeAlias = ClassicGroup | ConsumerGroup
