"""Checks of a ConsumerGroupHeartbeat request that need no group, in Kafka's order."""

from __future__ import annotations

from collections.abc import Sequence

from kohort.broker.groups._errors import GroupRequestError
from kohort.broker.groups.consumer._member import LEAVE_EPOCH, STATIC_LEAVE_EPOCH
from kohort.errors import ErrorCode
from kohort.protocol.messages import ConsumerGroupHeartbeatRequest


def validate_heartbeat(
    request: ConsumerGroupHeartbeatRequest, version: int, assignors: Sequence[str]
) -> None:
    """Raise INVALID_REQUEST or UNSUPPORTED_ASSIGNOR for a request that no group accepts."""
    if version >= 1:
        _check_filled(request.member_id, "MemberId can't be empty.")
    _check_filled(request.group_id, "GroupId can't be empty.")
    _check_filled(request.instance_id, "InstanceId can't be empty.")
    _check_filled(request.rack_id, "RackId can't be empty.")
    epoch = request.member_epoch
    if epoch == 0:
        _validate_join(request)
    elif epoch > 0 or epoch == LEAVE_EPOCH:
        _check_filled(request.member_id, "MemberId can't be empty.")
    elif epoch == STATIC_LEAVE_EPOCH:
        _check_filled(request.member_id, "MemberId can't be empty.")
        if request.instance_id is None:
            raise _invalid("InstanceId can't be null.")
    else:
        raise _invalid("MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise GroupRequestError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. "
            f"Supported assignors: {', '.join(assignors)}.",
        )


def _validate_join(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if request.topic_partitions is None or request.topic_partitions:
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise _invalid(
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null "
            "when (re-)joining."
        )


def _check_filled(value: str | None, message: str) -> None:
    # As in Kafka, a value of spaces alone counts as empty.
    if value is not None and not value.strip():
        raise _invalid(message)


def _invalid(message: str) -> GroupRequestError:
    return GroupRequestError(ErrorCode.INVALID_REQUEST, message)
