"""Member of a group, as an assignor sees it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from kohort.types import NamedTuple

Assignment: TypeAlias = dict[bytes, frozenset[int]]
"""Partitions by topic id."""


class MemberSpec(NamedTuple):
    """Member of a group with its present target assignment.

    ``instance_id`` is None for a dynamic member. ``subscribed`` has topic ids.
    """

    instance_id: str | None
    subscribed: frozenset[bytes]
    target: Mapping[bytes, frozenset[int]]
