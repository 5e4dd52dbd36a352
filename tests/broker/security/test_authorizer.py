"""Decisions by ACLs, by the rules of Kafka's StandardAuthorizer."""

from __future__ import annotations

import pytest

from kohort.broker.security import (
    Acl,
    AclFilter,
    AclOperation,
    Authorizer,
    PatternType,
    ResourceType,
)
from kohort.errors import InvalidOptionError

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
BOB, HOST = "User:bob", "127.0.0.1"


def allows(
    acls: list[Acl],
    operation: str = "READ",
    name: str = "orders",
    *,
    principal: str = BOB,
    host: str = HOST,
    super_users: tuple[str, ...] = (),
    default: bool = False,
) -> bool:
    authorizer = Authorizer(acls, super_users, allow_everyone_if_no_acl_found=default)
    return authorizer.allows(principal, host, AclOperation[operation], TOPIC, name)


def test_literal_acl_allows_one_topic() -> None:
    acls = [Acl(BOB, "READ", "TOPIC", "orders")]
    assert allows(acls)
    assert not allows(acls, name="orders-2")
    assert not allows(acls, operation="WRITE")
    assert not allows(acls, principal="User:alice")
    assert not allows([Acl(BOB, "READ", "GROUP", "orders")])


@pytest.mark.parametrize("name", ["orders", "orders-2", "orders.x"])
def test_prefixed_acl_allows_names_that_begin_so(name: str) -> None:
    assert allows([Acl(BOB, "READ", "TOPIC", "ord", pattern="PREFIXED")], name=name)
    assert not allows([Acl(BOB, "READ", "TOPIC", "x", pattern="PREFIXED")], name=name)


def test_literal_star_allows_every_name() -> None:
    assert allows([Acl(BOB, "READ", "TOPIC", "*")])
    assert not allows([Acl(BOB, "READ", "TOPIC", "*", pattern="PREFIXED")])


def test_principal_star_is_everybody() -> None:
    assert allows([Acl("User:*", "READ", "TOPIC", "orders")], principal="User:ANONYMOUS")


def test_host_has_to_match() -> None:
    acls = [Acl(BOB, "READ", "TOPIC", "orders", host="10.0.0.1")]
    assert allows(acls, host="10.0.0.1")
    assert not allows(acls)


def test_deny_wins_over_every_allow() -> None:
    denied = Acl(BOB, "READ", "TOPIC", "ord", pattern="PREFIXED", permission="DENY")
    acls = [Acl(BOB, "ALL", "TOPIC", "orders"), denied]
    assert not allows(acls)
    assert not allows(acls[::-1])
    assert allows(acls, operation="WRITE")


@pytest.mark.parametrize("operation", ["READ", "WRITE", "DELETE", "ALTER", "DESCRIBE", "ALL"])
def test_operations_imply_describe(operation: str) -> None:
    assert allows([Acl(BOB, operation, "TOPIC", "orders")], operation="DESCRIBE")


@pytest.mark.parametrize("operation", ["CREATE", "ALTER_CONFIGS", "DESCRIBE_CONFIGS"])
def test_other_operations_do_not_imply_describe(operation: str) -> None:
    assert not allows([Acl(BOB, operation, "TOPIC", "orders")], operation="DESCRIBE")


def test_alter_configs_implies_describe_configs() -> None:
    acls = [Acl(BOB, "ALTER_CONFIGS", "TOPIC", "orders")]
    assert allows(acls, operation="DESCRIBE_CONFIGS")
    acls = [Acl(BOB, "ALTER", "TOPIC", "orders")]
    assert not allows(acls, operation="DESCRIBE_CONFIGS")


def test_denied_read_does_not_deny_describe() -> None:
    denied = Acl(BOB, "READ", "TOPIC", "orders", permission="DENY")
    assert allows([Acl(BOB, "DESCRIBE", "TOPIC", "orders"), denied], operation="DESCRIBE")


def test_super_user_may_do_what_is_denied() -> None:
    denied = Acl("User:*", "ALL", "TOPIC", "*", permission="DENY")
    assert allows([denied], super_users=(BOB,))


def test_default_counts_only_where_no_acl_is() -> None:
    assert allows([], default=True)
    other = Acl("User:alice", "READ", "TOPIC", "orders")
    assert not allows([other], default=True)
    assert allows([other], name="payments", default=True)


def test_new_acl_counts_at_once() -> None:
    authorizer = Authorizer()
    acl = Acl(BOB, "READ", "TOPIC", "orders")

    def may_read() -> bool:
        return authorizer.allows(BOB, HOST, AclOperation.READ, TOPIC, "orders")

    assert not may_read()
    assert authorizer.add([acl, acl]) == [acl]
    assert may_read()
    authorizer.remove([acl])
    assert not may_read()


@pytest.mark.parametrize(
    ("acls", "expected"),
    [
        ([], False),
        ([Acl(BOB, "WRITE", "TOPIC", "orders")], True),
        ([Acl(BOB, "READ", "TOPIC", "orders")], False),
        ([Acl(BOB, "WRITE", "TOPIC", "*")], True),
        ([Acl(BOB, "WRITE", "TOPIC", "o", pattern="PREFIXED")], True),
        ([Acl("User:alice", "WRITE", "TOPIC", "orders")], False),
    ],
)
def test_some_topic_is_allowed_by_any_pattern(acls: list[Acl], expected: bool) -> None:
    assert Authorizer(acls).allows_some(BOB, HOST, AclOperation.WRITE, TOPIC) is expected


@pytest.mark.parametrize(
    ("denied", "expected"),
    [
        (Acl(BOB, "WRITE", "TOPIC", "orders", permission="DENY"), False),
        (Acl(BOB, "WRITE", "TOPIC", "or", pattern="PREFIXED", permission="DENY"), False),
        (Acl(BOB, "ALL", "TOPIC", "*", permission="DENY"), False),
        (Acl(BOB, "WRITE", "TOPIC", "other", permission="DENY"), True),
    ],
)
def test_some_topic_is_denied_by_wider_denials(denied: Acl, expected: bool) -> None:
    authorizer = Authorizer([Acl(BOB, "WRITE", "TOPIC", "orders"), denied])
    assert authorizer.allows_some(BOB, HOST, AclOperation.WRITE, TOPIC) is expected


@pytest.mark.parametrize(
    ("kind", "name", "bits"), [(TOPIC, "t", 3576), (GROUP, "g", 3400), (CLUSTER, "c", 8096)]
)
def test_super_user_has_all_operations_of_a_resource(
    kind: ResourceType, name: str, bits: int
) -> None:
    assert Authorizer(super_users=[BOB]).operations(BOB, HOST, kind, name) == bits


def test_operations_are_those_that_are_allowed() -> None:
    authorizer = Authorizer([Acl(BOB, "READ", "TOPIC", "t")])
    assert authorizer.operations(BOB, HOST, TOPIC, "t") == (1 << 3) | (1 << 8)


LITERAL = Acl(BOB, "READ", "TOPIC", "orders")
STAR = Acl(BOB, "READ", "TOPIC", "*")
PREFIXED = Acl(BOB, "READ", "TOPIC", "ord", pattern="PREFIXED")


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        (PatternType.ANY, None, [LITERAL, STAR, PREFIXED]),
        (PatternType.ANY, "orders", [LITERAL]),
        (PatternType.MATCH, "orders", [LITERAL, STAR, PREFIXED]),
        (PatternType.MATCH, "payments", [STAR]),
        (PatternType.LITERAL, None, [LITERAL, STAR]),
        (PatternType.PREFIXED, "ord", [PREFIXED]),
        (PatternType.PREFIXED, "orders", []),
    ],
)
def test_filter_selects_by_pattern(
    pattern: PatternType, name: str | None, expected: list[Acl]
) -> None:
    wanted = AclFilter(resource_type=TOPIC, resource_name=name, pattern=pattern)
    assert Authorizer([LITERAL, STAR, PREFIXED]).find(wanted) == expected


@pytest.mark.parametrize(
    ("wanted", "selected"),
    [
        (AclFilter(principal="User:alice"), False),
        (AclFilter(principal=BOB, host="*"), True),
        (AclFilter(host=HOST), False),
        (AclFilter(operation=AclOperation.DESCRIBE), False),
        (AclFilter(operation=AclOperation.READ), True),
        (AclFilter(resource_type=GROUP), False),
    ],
)
def test_filter_selects_by_every_field(wanted: AclFilter, selected: bool) -> None:
    assert wanted.matches(LITERAL) is selected


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("bob", "READ", "TOPIC", "t"), "no colon"),
        ((BOB, "LOOK", "TOPIC", "t"), "'LOOK' is no AclOperation"),
        ((BOB, "ANY", "TOPIC", "t"), "Invalid operation"),
        ((BOB, "READ", "ANY", "t"), "Invalid resourceType"),
        ((BOB, "READ", "TOPIC", ""), "should not be empty"),
        ((BOB, "READ", "CLUSTER", "x"), "kafka-cluster"),
    ],
)
def test_acl_is_refused_when_it_cannot_be(arguments: tuple[str, ...], text: str) -> None:
    with pytest.raises(InvalidOptionError, match=text):
        Acl(*arguments)
