"""ACLs of a cluster without an authorizer. ``rights.py`` probes clusters that have one."""

from __future__ import annotations

from kohort.protocol.messages import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from tests.conformance.probe import Observations, probe
from tests.conformance.session import Session


@probe("3")
def acls_without_an_authorizer(session: Session) -> Observations:
    """Send DescribeAcls, CreateAcls and DeleteAcls where ACLs are off."""
    for version in (1, 2, 3):
        describe = DescribeAclsRequest(
            resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1
        )
        yield f"describe {version}", session.ask(describe, version)
        creation = CreateAclsRequest.AclCreation(
            resource_type=2,
            resource_name=session.name("t"),
            principal="User:bob",
            host="*",
            operation=3,
            permission_type=3,
        )
        yield (
            f"create {version}",
            session.ask(CreateAclsRequest(creations=[creation, creation]), version),
        )
        chosen = DeleteAclsRequest.DeleteAclsFilter(
            resource_type_filter=2,
            resource_name_filter=session.name("t"),
            principal_filter=None,
            host_filter=None,
            operation=3,
            permission_type=3,
        )
        yield f"delete {version}", session.ask(DeleteAclsRequest(filters=[chosen]), version)
