"""Kafka's command-line tools for users, ACLs and delegation tokens on the in-process cluster."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kohort.testing import Acl, Authorization, Cluster, Security
from tests.interop.securing import MODULES
from tests.support.java_tools import ToolError, run_tool

pytestmark = pytest.mark.real_kafka
ACLS = "org.apache.kafka.tools.AclCommand"
CONFIGS = "org.apache.kafka.tools.ConfigCommand"
TOKENS = "org.apache.kafka.tools.DelegationTokenCommand"
USERS = ("admin", "alice", "bob")
Tool = Callable[..., str]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    security = Security(
        ["SASL_SSL"],
        {user: f"{user}-secret" for user in USERS},
        authorization=Authorization(super_users=["User:admin"]),
    )
    with Cluster(topics={"orders": 1}, security=security) as running:
        yield running


@pytest.fixture
def tool(cluster: Cluster, tmp_path: Path) -> Tool:
    """Function that runs a tool as a user."""

    def run(main_class: str, user: str, *args: object) -> str:
        file = tmp_path / f"{user}.properties"
        file.write_text(
            "security.protocol=SASL_SSL\n"
            "sasl.mechanism=SCRAM-SHA-512\n"
            "ssl.truststore.type=PEM\n"
            f"ssl.truststore.location={cluster.ssl_cafile}\n"
            f"sasl.jaas.config={MODULES}.scram.ScramLoginModule required "
            f'username="{user}" password="{user}-secret";\n'
        )
        bootstrap = "--bootstrap-server", cluster.bootstrap_servers
        return run_tool(main_class, *bootstrap, "--command-config", file, *args)

    return run


def test_kafka_configs_changes_and_lists_scram_users(tool: Tool) -> None:
    carol = "--entity-type", "users", "--entity-name", "carol"
    password = "SCRAM-SHA-512=[iterations=8192,password=carol-secret]"
    tool(CONFIGS, "admin", "--alter", *carol, "--add-config", password)
    described = tool(CONFIGS, "admin", "--describe", "--entity-type", "users")
    assert "'carol' are SCRAM-SHA-512=iterations=8192" in described
    assert "'bob' are SCRAM-SHA-256=iterations=4096, SCRAM-SHA-512=iterations=4096" in described
    with pytest.raises(ToolError, match="ClusterAuthorizationException"):
        tool(CONFIGS, "bob", "--describe", "--entity-type", "users")


@pytest.mark.long  # each tool is a further JVM
def test_kafka_acls_adds_lists_and_removes_acls(cluster: Cluster, tool: Tool) -> None:
    bob, orders = ("--allow-principal", "User:bob"), ("--topic", "orders")
    tool(ACLS, "admin", "--add", *bob, "--consumer", *orders, "--group", "billing")
    assert set(cluster.acls) == {
        Acl("User:bob", "READ", "TOPIC", "orders"),
        Acl("User:bob", "DESCRIBE", "TOPIC", "orders"),
        Acl("User:bob", "READ", "GROUP", "billing"),
    }
    assert "operation=READ, permissionType=ALLOW" in tool(ACLS, "admin", "--list", *orders)
    with pytest.raises(ToolError, match="is not authorized"):
        tool(ACLS, "bob", "--list")
    tool(ACLS, "admin", "--remove", "--force", *orders)
    assert cluster.acls == [Acl("User:bob", "READ", "GROUP", "billing")]


@pytest.mark.long
def test_kafka_delegation_tokens_creates_and_expires_tokens(tool: Tool) -> None:
    life = "--max-life-time-period", -1
    created = tool(TOKENS, "alice", "--create", *life, "--renewer-principal", "User:bob")
    found = re.search(r"\S+ +(\S{86}==) +User:alice", created)
    assert found is not None
    hmac = "--hmac", found[1]
    listed = "--describe", "--owner-principal", "User:alice"
    assert found[1] in tool(TOKENS, "bob", *listed)
    tool(TOKENS, "bob", "--renew", "--renew-time-period", 3_600_000, *hmac)
    with pytest.raises(ToolError, match="DelegationTokenOwnerMismatchException"):
        tool(TOKENS, "admin", "--expire", "--expiry-time-period", -1, *hmac)
    tool(TOKENS, "alice", "--expire", "--expiry-time-period", -1, *hmac)
    assert "Total number of tokens : 0" in tool(TOKENS, "alice", *listed)
