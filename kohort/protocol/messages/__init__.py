"""Messages, one file per API. A file is imported when one of its messages is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kohort.types import lazy_names

if TYPE_CHECKING:
    from kohort.protocol.messages.add_offsets_to_txn import (
        AddOffsetsToTxnRequest,
        AddOffsetsToTxnResponse,
    )
    from kohort.protocol.messages.add_partitions_to_txn import (
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnResponse,
    )
    from kohort.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
    from kohort.protocol.messages.alter_partition_reassignments import (
        AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsResponse,
    )
    from kohort.protocol.messages.alter_replica_log_dirs import (
        AlterReplicaLogDirsRequest,
        AlterReplicaLogDirsResponse,
    )
    from kohort.protocol.messages.alter_share_group_offsets import (
        AlterShareGroupOffsetsRequest,
        AlterShareGroupOffsetsResponse,
    )
    from kohort.protocol.messages.alter_user_scram_credentials import (
        AlterUserScramCredentialsRequest,
        AlterUserScramCredentialsResponse,
    )
    from kohort.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
    from kohort.protocol.messages.consumer_group_describe import (
        ConsumerGroupDescribeRequest,
        ConsumerGroupDescribeResponse,
    )
    from kohort.protocol.messages.consumer_group_heartbeat import (
        ConsumerGroupHeartbeatRequest,
        ConsumerGroupHeartbeatResponse,
    )
    from kohort.protocol.messages.consumer_group_records import (
        ConsumerGroupCurrentMemberAssignmentKey,
        ConsumerGroupCurrentMemberAssignmentValue,
        ConsumerGroupMemberMetadataKey,
        ConsumerGroupMemberMetadataValue,
        ConsumerGroupMetadataKey,
        ConsumerGroupMetadataValue,
        ConsumerGroupPartitionMetadataKey,
        ConsumerGroupPartitionMetadataValue,
        ConsumerGroupRegularExpressionKey,
        ConsumerGroupRegularExpressionValue,
        ConsumerGroupTargetAssignmentMemberKey,
        ConsumerGroupTargetAssignmentMemberValue,
        ConsumerGroupTargetAssignmentMetadataKey,
        ConsumerGroupTargetAssignmentMetadataValue,
    )
    from kohort.protocol.messages.consumer_protocol import (
        ConsumerProtocolAssignment,
        ConsumerProtocolSubscription,
    )
    from kohort.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
    from kohort.protocol.messages.create_delegation_token import (
        CreateDelegationTokenRequest,
        CreateDelegationTokenResponse,
    )
    from kohort.protocol.messages.create_partitions import (
        CreatePartitionsRequest,
        CreatePartitionsResponse,
    )
    from kohort.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
    from kohort.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
    from kohort.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
    from kohort.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
    from kohort.protocol.messages.delete_share_group_offsets import (
        DeleteShareGroupOffsetsRequest,
        DeleteShareGroupOffsetsResponse,
    )
    from kohort.protocol.messages.delete_share_group_state import (
        DeleteShareGroupStateRequest,
        DeleteShareGroupStateResponse,
    )
    from kohort.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
    from kohort.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
    from kohort.protocol.messages.describe_client_quotas import (
        DescribeClientQuotasRequest,
        DescribeClientQuotasResponse,
    )
    from kohort.protocol.messages.describe_cluster import (
        DescribeClusterRequest,
        DescribeClusterResponse,
    )
    from kohort.protocol.messages.describe_configs import (
        DescribeConfigsRequest,
        DescribeConfigsResponse,
    )
    from kohort.protocol.messages.describe_delegation_token import (
        DescribeDelegationTokenRequest,
        DescribeDelegationTokenResponse,
    )
    from kohort.protocol.messages.describe_groups import (
        DescribeGroupsRequest,
        DescribeGroupsResponse,
    )
    from kohort.protocol.messages.describe_log_dirs import (
        DescribeLogDirsRequest,
        DescribeLogDirsResponse,
    )
    from kohort.protocol.messages.describe_producers import (
        DescribeProducersRequest,
        DescribeProducersResponse,
    )
    from kohort.protocol.messages.describe_quorum import (
        DescribeQuorumRequest,
        DescribeQuorumResponse,
    )
    from kohort.protocol.messages.describe_share_group_offsets import (
        DescribeShareGroupOffsetsRequest,
        DescribeShareGroupOffsetsResponse,
    )
    from kohort.protocol.messages.describe_topic_partitions import (
        DescribeTopicPartitionsRequest,
        DescribeTopicPartitionsResponse,
    )
    from kohort.protocol.messages.describe_transactions import (
        DescribeTransactionsRequest,
        DescribeTransactionsResponse,
    )
    from kohort.protocol.messages.describe_user_scram_credentials import (
        DescribeUserScramCredentialsRequest,
        DescribeUserScramCredentialsResponse,
    )
    from kohort.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
    from kohort.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
    from kohort.protocol.messages.expire_delegation_token import (
        ExpireDelegationTokenRequest,
        ExpireDelegationTokenResponse,
    )
    from kohort.protocol.messages.fetch import FetchRequest, FetchResponse
    from kohort.protocol.messages.find_coordinator import (
        FindCoordinatorRequest,
        FindCoordinatorResponse,
    )
    from kohort.protocol.messages.group_records import GroupMetadataKey, GroupMetadataValue
    from kohort.protocol.messages.headers import RequestHeader, ResponseHeader
    from kohort.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
    from kohort.protocol.messages.incremental_alter_configs import (
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
    )
    from kohort.protocol.messages.init_producer_id import (
        InitProducerIdRequest,
        InitProducerIdResponse,
    )
    from kohort.protocol.messages.initialize_share_group_state import (
        InitializeShareGroupStateRequest,
        InitializeShareGroupStateResponse,
    )
    from kohort.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
    from kohort.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
    from kohort.protocol.messages.list_config_resources import (
        ListConfigResourcesRequest,
        ListConfigResourcesResponse,
    )
    from kohort.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
    from kohort.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
    from kohort.protocol.messages.list_partition_reassignments import (
        ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsResponse,
    )
    from kohort.protocol.messages.list_transactions import (
        ListTransactionsRequest,
        ListTransactionsResponse,
    )
    from kohort.protocol.messages.metadata import MetadataRequest, MetadataResponse
    from kohort.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
    from kohort.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
    from kohort.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
    from kohort.protocol.messages.offset_for_leader_epoch import (
        OffsetForLeaderEpochRequest,
        OffsetForLeaderEpochResponse,
    )
    from kohort.protocol.messages.offset_records import (
        LegacyOffsetCommitKey,
        LegacyOffsetCommitValue,
        OffsetCommitKey,
        OffsetCommitValue,
    )
    from kohort.protocol.messages.produce import ProduceRequest, ProduceResponse
    from kohort.protocol.messages.read_share_group_state import (
        ReadShareGroupStateRequest,
        ReadShareGroupStateResponse,
    )
    from kohort.protocol.messages.read_share_group_state_summary import (
        ReadShareGroupStateSummaryRequest,
        ReadShareGroupStateSummaryResponse,
    )
    from kohort.protocol.messages.renew_delegation_token import (
        RenewDelegationTokenRequest,
        RenewDelegationTokenResponse,
    )
    from kohort.protocol.messages.sasl_authenticate import (
        SaslAuthenticateRequest,
        SaslAuthenticateResponse,
    )
    from kohort.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
    from kohort.protocol.messages.share_acknowledge import (
        ShareAcknowledgeRequest,
        ShareAcknowledgeResponse,
    )
    from kohort.protocol.messages.share_fetch import ShareFetchRequest, ShareFetchResponse
    from kohort.protocol.messages.share_group_describe import (
        ShareGroupDescribeRequest,
        ShareGroupDescribeResponse,
    )
    from kohort.protocol.messages.share_group_heartbeat import (
        ShareGroupHeartbeatRequest,
        ShareGroupHeartbeatResponse,
    )
    from kohort.protocol.messages.share_group_records import (
        ShareGroupCurrentMemberAssignmentKey,
        ShareGroupCurrentMemberAssignmentValue,
        ShareGroupMemberMetadataKey,
        ShareGroupMemberMetadataValue,
        ShareGroupMetadataKey,
        ShareGroupMetadataValue,
        ShareGroupStatePartitionMetadataKey,
        ShareGroupStatePartitionMetadataValue,
        ShareGroupTargetAssignmentMemberKey,
        ShareGroupTargetAssignmentMemberValue,
        ShareGroupTargetAssignmentMetadataKey,
        ShareGroupTargetAssignmentMetadataValue,
    )
    from kohort.protocol.messages.share_state_records import (
        ShareSnapshotKey,
        ShareSnapshotValue,
        ShareUpdateKey,
        ShareUpdateValue,
    )
    from kohort.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
    from kohort.protocol.messages.transaction_records import TransactionLogKey, TransactionLogValue
    from kohort.protocol.messages.txn_offset_commit import (
        TxnOffsetCommitRequest,
        TxnOffsetCommitResponse,
    )
    from kohort.protocol.messages.write_share_group_state import (
        WriteShareGroupStateRequest,
        WriteShareGroupStateResponse,
    )
    from kohort.protocol.messages.write_txn_markers import (
        WriteTxnMarkersRequest,
        WriteTxnMarkersResponse,
    )

__all__ = [
    "AddOffsetsToTxnRequest",
    "AddOffsetsToTxnResponse",
    "AddPartitionsToTxnRequest",
    "AddPartitionsToTxnResponse",
    "AlterConfigsRequest",
    "AlterConfigsResponse",
    "AlterPartitionReassignmentsRequest",
    "AlterPartitionReassignmentsResponse",
    "AlterReplicaLogDirsRequest",
    "AlterReplicaLogDirsResponse",
    "AlterShareGroupOffsetsRequest",
    "AlterShareGroupOffsetsResponse",
    "AlterUserScramCredentialsRequest",
    "AlterUserScramCredentialsResponse",
    "ApiVersionsRequest",
    "ApiVersionsResponse",
    "ConsumerGroupCurrentMemberAssignmentKey",
    "ConsumerGroupCurrentMemberAssignmentValue",
    "ConsumerGroupDescribeRequest",
    "ConsumerGroupDescribeResponse",
    "ConsumerGroupHeartbeatRequest",
    "ConsumerGroupHeartbeatResponse",
    "ConsumerGroupMemberMetadataKey",
    "ConsumerGroupMemberMetadataValue",
    "ConsumerGroupMetadataKey",
    "ConsumerGroupMetadataValue",
    "ConsumerGroupPartitionMetadataKey",
    "ConsumerGroupPartitionMetadataValue",
    "ConsumerGroupRegularExpressionKey",
    "ConsumerGroupRegularExpressionValue",
    "ConsumerGroupTargetAssignmentMemberKey",
    "ConsumerGroupTargetAssignmentMemberValue",
    "ConsumerGroupTargetAssignmentMetadataKey",
    "ConsumerGroupTargetAssignmentMetadataValue",
    "ConsumerProtocolAssignment",
    "ConsumerProtocolSubscription",
    "CreateAclsRequest",
    "CreateAclsResponse",
    "CreateDelegationTokenRequest",
    "CreateDelegationTokenResponse",
    "CreatePartitionsRequest",
    "CreatePartitionsResponse",
    "CreateTopicsRequest",
    "CreateTopicsResponse",
    "DeleteAclsRequest",
    "DeleteAclsResponse",
    "DeleteGroupsRequest",
    "DeleteGroupsResponse",
    "DeleteRecordsRequest",
    "DeleteRecordsResponse",
    "DeleteShareGroupOffsetsRequest",
    "DeleteShareGroupOffsetsResponse",
    "DeleteShareGroupStateRequest",
    "DeleteShareGroupStateResponse",
    "DeleteTopicsRequest",
    "DeleteTopicsResponse",
    "DescribeAclsRequest",
    "DescribeAclsResponse",
    "DescribeClientQuotasRequest",
    "DescribeClientQuotasResponse",
    "DescribeClusterRequest",
    "DescribeClusterResponse",
    "DescribeConfigsRequest",
    "DescribeConfigsResponse",
    "DescribeDelegationTokenRequest",
    "DescribeDelegationTokenResponse",
    "DescribeGroupsRequest",
    "DescribeGroupsResponse",
    "DescribeLogDirsRequest",
    "DescribeLogDirsResponse",
    "DescribeProducersRequest",
    "DescribeProducersResponse",
    "DescribeQuorumRequest",
    "DescribeQuorumResponse",
    "DescribeShareGroupOffsetsRequest",
    "DescribeShareGroupOffsetsResponse",
    "DescribeTopicPartitionsRequest",
    "DescribeTopicPartitionsResponse",
    "DescribeTransactionsRequest",
    "DescribeTransactionsResponse",
    "DescribeUserScramCredentialsRequest",
    "DescribeUserScramCredentialsResponse",
    "ElectLeadersRequest",
    "ElectLeadersResponse",
    "EndTxnRequest",
    "EndTxnResponse",
    "ExpireDelegationTokenRequest",
    "ExpireDelegationTokenResponse",
    "FetchRequest",
    "FetchResponse",
    "FindCoordinatorRequest",
    "FindCoordinatorResponse",
    "GroupMetadataKey",
    "GroupMetadataValue",
    "HeartbeatRequest",
    "HeartbeatResponse",
    "IncrementalAlterConfigsRequest",
    "IncrementalAlterConfigsResponse",
    "InitProducerIdRequest",
    "InitProducerIdResponse",
    "InitializeShareGroupStateRequest",
    "InitializeShareGroupStateResponse",
    "JoinGroupRequest",
    "JoinGroupResponse",
    "LeaveGroupRequest",
    "LeaveGroupResponse",
    "LegacyOffsetCommitKey",
    "LegacyOffsetCommitValue",
    "ListConfigResourcesRequest",
    "ListConfigResourcesResponse",
    "ListGroupsRequest",
    "ListGroupsResponse",
    "ListOffsetsRequest",
    "ListOffsetsResponse",
    "ListPartitionReassignmentsRequest",
    "ListPartitionReassignmentsResponse",
    "ListTransactionsRequest",
    "ListTransactionsResponse",
    "MetadataRequest",
    "MetadataResponse",
    "OffsetCommitKey",
    "OffsetCommitRequest",
    "OffsetCommitResponse",
    "OffsetCommitValue",
    "OffsetDeleteRequest",
    "OffsetDeleteResponse",
    "OffsetFetchRequest",
    "OffsetFetchResponse",
    "OffsetForLeaderEpochRequest",
    "OffsetForLeaderEpochResponse",
    "ProduceRequest",
    "ProduceResponse",
    "ReadShareGroupStateRequest",
    "ReadShareGroupStateResponse",
    "ReadShareGroupStateSummaryRequest",
    "ReadShareGroupStateSummaryResponse",
    "RenewDelegationTokenRequest",
    "RenewDelegationTokenResponse",
    "RequestHeader",
    "ResponseHeader",
    "SaslAuthenticateRequest",
    "SaslAuthenticateResponse",
    "SaslHandshakeRequest",
    "SaslHandshakeResponse",
    "ShareAcknowledgeRequest",
    "ShareAcknowledgeResponse",
    "ShareFetchRequest",
    "ShareFetchResponse",
    "ShareGroupCurrentMemberAssignmentKey",
    "ShareGroupCurrentMemberAssignmentValue",
    "ShareGroupDescribeRequest",
    "ShareGroupDescribeResponse",
    "ShareGroupHeartbeatRequest",
    "ShareGroupHeartbeatResponse",
    "ShareGroupMemberMetadataKey",
    "ShareGroupMemberMetadataValue",
    "ShareGroupMetadataKey",
    "ShareGroupMetadataValue",
    "ShareGroupStatePartitionMetadataKey",
    "ShareGroupStatePartitionMetadataValue",
    "ShareGroupTargetAssignmentMemberKey",
    "ShareGroupTargetAssignmentMemberValue",
    "ShareGroupTargetAssignmentMetadataKey",
    "ShareGroupTargetAssignmentMetadataValue",
    "ShareSnapshotKey",
    "ShareSnapshotValue",
    "ShareUpdateKey",
    "ShareUpdateValue",
    "SyncGroupRequest",
    "SyncGroupResponse",
    "TransactionLogKey",
    "TransactionLogValue",
    "TxnOffsetCommitRequest",
    "TxnOffsetCommitResponse",
    "WriteShareGroupStateRequest",
    "WriteShareGroupStateResponse",
    "WriteTxnMarkersRequest",
    "WriteTxnMarkersResponse",
]

_FILES = {
    "ConsumerGroup": "consumer_group_records",
    "ConsumerProtocol": "consumer_protocol",
    "Group": "group_records",
    "LegacyOffset": "offset_records",
    "Offset": "offset_records",
    "RequestHeader": "headers",
    "ResponseHeader": "headers",
    "ShareSnapshot": "share_state_records",
    "ShareUpdate": "share_state_records",
    "ShareGroup": "share_group_records",
    "TransactionLog": "transaction_records",
}
"""Files of the other messages, by the beginning of their names."""


def _file(name: str) -> str:
    api = name.removesuffix("Request").removesuffix("Response")
    if api != name:
        return "".join(f"_{each.lower()}" if each.isupper() else each for each in api)[1:]
    return next(file for start, file in _FILES.items() if name.startswith(start))


if not TYPE_CHECKING:  # mypy would accept every name
    # A consumer uses a fourth of the messages, and to define all takes a tenth of its start.
    __getattr__, __dir__ = lazy_names(
        __name__, lambda name: f"{__name__}.{_file(name)}" if name in __all__ else None
    )
