"""ACLs of a cluster, changed by tests and by requests."""

from __future__ import annotations

from typing import Any

import pytest

from kohort.errors import IllegalStateError, InvalidOptionError
from kohort.protocol.messages import (
    CreateAclsRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
    MetadataRequest,
)
from kohort.testing import Acl, Authorization, Cluster, Security
from tests.broker.raw import Raw

ANYBODY = "User:ANONYMOUS"
TOPIC_AUTHORIZATION_FAILED = 29


def secured(**options: Any) -> Cluster:
    security = Security(listeners=["PLAINTEXT"], authorization=Authorization(**options))
    return Cluster(topics={"t": 1}, security=security)


def error_of(raw: Raw, topic: str = "t") -> int:
    """Return the error code of a topic's metadata."""
    asked = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)])
    return raw.ask(asked, 12).topics[0].error_code


def test_granted_right_counts_until_it_is_stopped() -> None:
    with secured() as cluster, Raw(cluster) as raw:
        assert error_of(raw) == TOPIC_AUTHORIZATION_FAILED
        granted = cluster.grant(ANYBODY, "READ", topic="t")
        assert error_of(raw) == 0
        granted.stop()
        assert error_of(raw) == TOPIC_AUTHORIZATION_FAILED


def test_revoked_right_comes_back_when_it_is_stopped() -> None:
    with secured() as cluster, Raw(cluster) as raw:
        cluster.grant(ANYBODY, "READ", "WRITE", topic="t")
        with cluster.revoke(ANYBODY, topic="t"):
            assert cluster.acls == []
            assert error_of(raw) == TOPIC_AUTHORIZATION_FAILED
        assert error_of(raw) == 0
        cluster.revoke(ANYBODY, "write")
        assert cluster.acls == [Acl(ANYBODY, "READ", "TOPIC", "t")]


def test_denial_wins_until_it_is_stopped() -> None:
    with secured() as cluster, Raw(cluster) as raw:
        cluster.grant(ANYBODY, "ALL", topic="*")
        with cluster.deny(ANYBODY, "DESCRIBE", topic="t", is_prefix=True):
            assert error_of(raw) == TOPIC_AUTHORIZATION_FAILED
        assert error_of(raw) == 0


def test_stopped_grant_keeps_rights_that_were_there() -> None:
    with secured() as cluster:
        cluster.grant(ANYBODY, "READ", group="g")
        cluster.grant(ANYBODY, "READ", group="g").stop()
        assert cluster.acls == [Acl(ANYBODY, "READ", "GROUP", "g")]


def test_super_users_need_no_rights() -> None:
    with secured(super_users=[ANYBODY]) as cluster, Raw(cluster) as raw:
        assert error_of(raw) == 0


def test_resources_without_acls_are_open_if_so_set() -> None:
    with secured(allow_everyone_if_no_acl_found=True) as cluster, Raw(cluster) as raw:
        assert error_of(raw) == 0
        cluster.grant("User:bob", "READ", topic="t")
        assert error_of(raw) == TOPIC_AUTHORIZATION_FAILED


def test_grant_is_refused_when_there_is_no_authorizer() -> None:
    with Cluster() as cluster, pytest.raises(IllegalStateError, match="has no authorizer"):
        cluster.grant(ANYBODY, "READ", topic="t")


def test_grant_is_refused_when_it_names_two_resources() -> None:
    with secured() as cluster:
        with pytest.raises(InvalidOptionError, match="give one of"):
            cluster.grant(ANYBODY, "READ", topic="t", group="g")
        with pytest.raises(InvalidOptionError, match="at least one operation"):
            cluster.grant(ANYBODY, topic="t")


def test_super_user_without_a_type_is_refused() -> None:
    with pytest.raises(InvalidOptionError, match="'admin' is no principal"):
        Authorization(super_users=["admin"])


def test_refused_change_of_acls_names_the_request() -> None:
    with secured() as cluster, Raw(cluster) as raw:
        creation = CreateAclsRequest.AclCreation(
            resource_type=2, resource_name="t", principal="User:bob", host="*", operation=3
        )
        created = raw.ask(CreateAclsRequest(creations=[creation]), 3).results[0]
        assert (created.error_code, created.error_message) == (
            31,
            "Request CreateAclsRequest is not authorized.",
        )
        chosen = DeleteAclsRequest.DeleteAclsFilter(operation=1, permission_type=1)
        deleted = raw.ask(DeleteAclsRequest(filters=[chosen]), 3).filter_results[0]
        assert (deleted.error_code, deleted.error_message) == (
            31,
            "Request DeleteAclsRequest is not authorized.",
        )


def test_requests_change_acls() -> None:
    with secured(super_users=[ANYBODY]) as cluster, Raw(cluster) as raw:
        creation = CreateAclsRequest.AclCreation(
            resource_type=2,
            resource_name="t",
            principal="User:bob",
            host="*",
            operation=3,
            permission_type=3,
        )
        created = raw.ask(CreateAclsRequest(creations=[creation]), 3)
        assert created.results[0].error_code == 0
        assert cluster.acls == [Acl("User:bob", "READ", "TOPIC", "t")]
        every = {"pattern_type_filter": 1, "operation": 1, "permission_type": 1}
        describe = DescribeAclsRequest(
            resource_type_filter=2,
            resource_name_filter=None,
            principal_filter="User:bob",
            host_filter=None,
            **every,
        )
        (resource,) = raw.ask(describe, 3).resources
        assert (resource.resource_name, resource.acls[0].operation) == ("t", 3)
        chosen = DeleteAclsRequest.DeleteAclsFilter(
            resource_type_filter=1,
            resource_name_filter=None,
            principal_filter=None,
            host_filter=None,
            **every,
        )
        deleted = raw.ask(DeleteAclsRequest(filters=[chosen]), 3)
        assert len(deleted.filter_results[0].matching_acls) == 1
        assert cluster.acls == []
