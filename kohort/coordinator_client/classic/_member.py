"""The settings and the data of a classic member, without I/O and without a clock."""

from __future__ import annotations

import random
from typing import Any

from kohort.coordinator_client.machine._member import (
    NO_GENERATION,
    NO_PARTITIONS,
    CommonMemberData,
    CommonSettings,
)


class MemberSettings(CommonSettings):
    """The configuration of a classic membership. Times are in seconds."""

    def __init__(
        self,
        *,
        protocols: tuple[str, ...],
        cooperative: bool = False,
        heartbeat_interval: float,
        **common: Any,
    ) -> None:
        super().__init__(**common)
        self.protocols = protocols
        """Names of the assignors, in order of preference."""
        self.cooperative = cooperative
        self.heartbeat_interval = heartbeat_interval


class MemberData(CommonMemberData):
    """The data of one classic member, shared by the parts of its membership."""

    settings: MemberSettings

    def __init__(self, settings: MemberSettings, rng: random.Random) -> None:
        super().__init__(settings, rng)
        self.owned_generation = NO_GENERATION
        """The generation that the next JoinGroup keeps if the coordinator revokes partitions.

        A classic rebalance starts from what its members own. A consumer group (KIP-848) that serves
        classic members keeps its own records instead, and may be in a later epoch. It takes owned
        partitions away in the epoch that the member has, and only then moves the member.
        """
        self.assigned = NO_PARTITIONS
        """The latest assignment. An eager member gives it up before it gets the next one."""
