"""The membership that the options describe."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

from kohort.config import GroupConfig
from kohort.coordinator_client.assignors import (
    PartitionAssignor,
    RebalanceProtocol,
    common_protocol,
)
from kohort.coordinator_client.auto._protocol_choice import AUTO, CLASSIC, choose_by_options
from kohort.coordinator_client.auto._undecided_membership import UndecidedMembership
from kohort.coordinator_client.classic._member import MemberSettings
from kohort.coordinator_client.classic._membership import ClassicMembership
from kohort.coordinator_client.consumer._member import ConsumerMemberSettings
from kohort.coordinator_client.consumer._membership import ConsumerMembership
from kohort.coordinator_client.machine._events import Choice
from kohort.coordinator_client.machine._membership import Membership
from kohort.logs import get_logger
from kohort.transport import Backoff

logger = get_logger(__name__)


class MembershipFactory:
    """The maker of memberships of one group, by its options."""

    def __init__(
        self,
        config: GroupConfig,
        assignors: Sequence[PartitionAssignor],
        backoff: Backoff,
        rng: random.Random,
        id_source: random.Random | None,
    ) -> None:
        self._config = config
        self._assignors = assignors
        self._backoff = backoff
        self._rng = rng
        self._id_source = id_source
        self._tokens = itertools.count(1)

    def make(self) -> Membership:
        """Return the membership of the protocol that the options choose."""
        choice = choose_by_options(self._config)
        if choice is None:
            return UndecidedMembership(self._group_id, self._make_consumer, self._make_classic)
        if self._config.group_protocol == AUTO:
            logger.info(
                "[%s] group protocol %s: %s", self._group_id, choice.protocol, choice.reason
            )
        return self._make_classic() if choice.protocol == CLASSIC else self._make_consumer()

    @property
    def _group_id(self) -> str:
        return self._config.group_id or ""

    def _make_consumer(self) -> Membership:
        config = self._config
        return ConsumerMembership(
            ConsumerMemberSettings(
                group_id=self._group_id,
                static=config.group_instance_id is not None,
                session_timeout=config.consumer_session_timeout_ms / 1000,
                max_poll_interval=config.max_poll_interval_ms / 1000,
                backoff=self._backoff,
                assignor=config.group_remote_assignor,
            ),
            self._rng,
            self._tokens,
            self._id_source,
        )

    def _make_classic(self) -> Membership:
        config = self._config
        return ClassicMembership(
            MemberSettings(
                group_id=self._group_id,
                protocols=tuple(assignor.name for assignor in self._assignors),
                cooperative=common_protocol(self._assignors) is RebalanceProtocol.COOPERATIVE,
                static=config.group_instance_id is not None,
                heartbeat_interval=config.heartbeat_interval_ms / 1000,
                session_timeout=config.session_timeout_ms / 1000,
                max_poll_interval=config.max_poll_interval_ms / 1000,
                backoff=self._backoff,
            ),
            self._rng,
            self._tokens,
        )


def choice_of(membership: Membership, config: GroupConfig) -> Choice | None:
    """Return the group protocol of a membership and why, or None before its first join."""
    if isinstance(membership, UndecidedMembership):
        return membership.choice
    return choose_by_options(config)
