"""Topics created with confluent-kafka's admin client, on any cluster."""

from __future__ import annotations

import time
from collections.abc import Mapping

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

TIMEOUT_S = 60


def create_topic(
    bootstrap_servers: str, name: str, partitions: int, config: Mapping[str, str] | None = None
) -> str:
    """Create a topic and return its name once every partition has a leader."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    topic = NewTopic(name, partitions, 1, config=dict(config or {}))
    admin.create_topics([topic], request_timeout=TIMEOUT_S)[name].result(TIMEOUT_S)
    await_leaders(admin, name, partitions)
    return name


def await_leaders(admin: AdminClient, name: str, partitions: int) -> None:
    """Wait until the metadata has all partitions of a topic, with leaders.

    The controller responds to a creation before the brokers know of it.
    """
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        found = admin.list_topics(name, timeout=TIMEOUT_S).topics[name]
        leaders = [p.leader for p in found.partitions.values()]
        if len(leaders) == partitions and min(leaders) >= 0:
            return
        assert time.monotonic() < deadline, f"{name} has no leaders: {leaders}"
