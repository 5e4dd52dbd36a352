"""The principal that explain() names for every login, with the permissions that it lacks."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kohort import KafkaConsumer, OffsetAndMetadata, TopicPartition
from kohort.errors import GroupAuthorizationFailedError, TopicAuthorizationFailedError
from kohort.testing import Authorization, Cluster, Listener, Security


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    listeners = (Listener("SSL", client_auth="required"), "SASL_PLAINTEXT")
    security = Security(listeners, {"alice": "alice-secret"}, authorization=Authorization())
    with Cluster(topics={"orders": 1}, security=security) as cluster:
        yield cluster


def by_certificate(cluster: Cluster) -> dict[str, Any]:
    client = cluster.client_certificate("reader")
    return {
        "security_protocol": "SSL",
        "ssl_cafile": cluster.ssl_cafile,
        "ssl_certfile": client.certfile,
        "ssl_keyfile": client.keyfile,
    }


def by_password(cluster: Cluster) -> dict[str, Any]:
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_credentials": lambda: ("alice", "alice-secret"),
    }


def by_token(cluster: Cluster) -> dict[str, Any]:
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauthbearer_unsecured": True,
        "sasl_oauthbearer_unsecured_claims": {"sub": "carol"},
    }


@pytest.mark.parametrize(
    ("way", "principal"),
    [(by_certificate, "reader"), (by_password, "alice"), (by_token, "carol")],
)
def test_explain_names_the_principal(cluster: Cluster, way: Any, principal: str) -> None:
    given = way(cluster)
    servers = cluster.bootstrap_servers_of(given["security_protocol"])
    with KafkaConsumer("orders", bootstrap_servers=servers, **given) as consumer:
        deadline = time.monotonic() + 120
        with pytest.raises(TopicAuthorizationFailedError) as raised:
            while time.monotonic() < deadline:
                consumer.poll(timeout_ms=100)
        explanation = consumer.explain()
    [right] = explanation.as_dict()["missing_rights"]
    assert right["principal"] is not None
    assert principal in right["principal"]
    assert f"{right['principal']} needs DESCRIBE on topic orders" in str(explanation)
    assert f" as {right['principal']}" in str(explanation)
    assert raised.value.principal == right["principal"]
    assert f": {right['principal']} needs DESCRIBE on topic 'orders'" in str(raised.value)


def test_errors_of_fetches_groups_and_commits_name_the_principal(cluster: Cluster) -> None:
    given = by_password(cluster) | {
        "bootstrap_servers": cluster.bootstrap_servers_of("SASL_PLAINTEXT"),
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
    }
    alice, tp = "User:alice", TopicPartition("readable", 0)
    cluster.create_topic("readable", 1)
    cluster.produce("readable", [b"1"])
    cluster.grant(alice, "DESCRIBE", topic="readable")
    found: list[TopicAuthorizationFailedError | GroupAuthorizationFailedError] = []
    with KafkaConsumer(group_id="g", **given) as consumer:
        consumer.assign([tp])
        deadline = time.monotonic() + 120
        while {type(each) for each in found} != {
            TopicAuthorizationFailedError,
            GroupAuthorizationFailedError,
        }:
            assert time.monotonic() < deadline
            try:
                consumer.poll(timeout_ms=100)
            except (TopicAuthorizationFailedError, GroupAuthorizationFailedError) as error:
                found.append(error)
            if any(isinstance(each, GroupAuthorizationFailedError) for each in found):
                cluster.grant(alice, "READ", group="g")
        with pytest.raises(TopicAuthorizationFailedError) as raised:
            consumer.commit({tp: OffsetAndMetadata(0, "")})
        found.append(raised.value)
    for each in found:
        assert each.principal == "alice"
        assert "alice needs " in str(each)
        assert pickle.loads(pickle.dumps(each)).principal == "alice"
