"""The assignment of a classic group, as DescribeGroups describes it."""

from __future__ import annotations

from collections import defaultdict

from kohort.coordinator_client._consumer_protocol import PROTOCOL_TYPE, read_assignment
from kohort.coordinator_client.assignors import ClusterTopics
from kohort.errors import MessageDecodeError
from kohort.protocol.messages import DescribeGroupsResponse

_STABLE = "Stable"


def described_assignment(
    response: DescribeGroupsResponse, topics: frozenset[str]
) -> ClusterTopics | None:
    """Return which of these topics the members have, with their partitions.

    Return None for a group that is not stable or not of classic consumers, and for an error code.
    A response without the group says nothing, either.
    """
    if not response.groups:
        return None
    numbers: defaultdict[str, set[int]] = defaultdict(set)
    for group in response.groups:
        if group.error_code or (group.group_state, group.protocol_type) != (_STABLE, PROTOCOL_TYPE):
            return None
        for member in group.members:
            try:
                assignment = read_assignment(member.member_assignment)
            except MessageDecodeError:
                return None
            for topic, number in assignment.partitions:
                if topic not in topics:
                    continue
                numbers[topic].add(number)
    return ClusterTopics({topic: len(each) for topic, each in numbers.items()})
