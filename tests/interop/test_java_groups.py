"""Groups of kafka-clients on the in-process cluster."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kohort.testing import Cluster
from tests.interop.brokers import Broker
from tests.interop.java_peer import Java
from tests.interop.members import Members
from tests.interop.peers import APIS, Make
from tests.interop.sharing import share

pytestmark = pytest.mark.real_kafka
Unique = Callable[[str], str]


@pytest.fixture
def ours(cluster: Cluster) -> Broker:
    return Broker(cluster.bootstrap_servers)


@pytest.mark.long  # two further JVMs
def test_two_java_members_share_a_group(ours: Broker, members: Members, unique: Unique) -> None:
    share(ours, members, [("java-1", Java), ("java-2", Java)], unique, first_leaves=True)


@pytest.mark.long
@pytest.mark.parametrize("java_first", [True, False], ids=["leads", "follows"])
@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
@pytest.mark.parametrize("api", APIS)
def test_java_and_kohort_share_a_group(
    broker: Broker, members: Members, unique: Unique, api: str, strategy: str, java_first: bool
) -> None:
    pair: list[tuple[str, Make]] = [("java", Java), ("kohort", APIS[api])]
    share(broker, members, pair if java_first else pair[::-1], unique, strategy)
