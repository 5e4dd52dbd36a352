"""First connections to further brokers, whose versions the release of the cluster implies."""

from __future__ import annotations

import anyio
import pytest

from kohort.errors import KafkaConnectionError, KafkaError
from kohort.protocol import ApiKey
from kohort.protocol.messages import ApiVersionsRequest, ApiVersionsResponse, HeartbeatRequest
from kohort.protocol.messages import HeartbeatResponse as Beat
from tests.transport.peer import Peer, api_versions
from tests.transport.running import running

pytestmark = pytest.mark.anyio

OLD = {int(ApiKey.HEARTBEAT): (0, 2)}
UNNAMED = {int(ApiKey.API_VERSIONS): (0, 4)}
"""A cluster to which clients do not name the broker that they mean."""


def of_release(
    latest: int, level: int | None, ranges: dict[int, tuple[int, int]] | None = None
) -> ApiVersionsResponse:
    """Return the versions of a broker, with the latest release it knows and the cluster's one."""
    response = api_versions(UNNAMED | (ranges or {}))
    name = "metadata.version"
    response.supported_features = [
        ApiVersionsResponse.SupportedFeatureKey(name=name, min_version=7, max_version=latest)
    ]
    if level is not None:
        response.finalized_features = [
            ApiVersionsResponse.FinalizedFeatureKey(name=name, max_version_level=level)
        ]
    return response


async def test_request_to_a_further_broker_waits_for_no_versions() -> None:
    async with running(brokers=2) as (client, cluster):
        cluster.versions = of_release(30, 30)

        async def serve(peer: Peer) -> None:
            greeting, _ = await peer.expect(ApiVersionsRequest)
            header, _ = await peer.expect(HeartbeatRequest)
            await peer.reply(greeting, cluster.versions)
            await peer.reply(header, Beat())
            await peer.receive()

        cluster.network.listen("b2", 9092, serve)
        await client.wait_bootstrapped()
        await client.request(HeartbeatRequest(), node=2)


@pytest.mark.parametrize(("latest", "level"), [(30, 29), (30, None)])
async def test_versions_are_awaited_where_a_broker_may_be_older(
    latest: int, level: int | None
) -> None:
    """During an upgrade, the release of the cluster is older than that of some brokers."""
    async with running(brokers=2) as (client, cluster):
        cluster.versions = of_release(latest, level)
        used: list[int] = []

        async def serve(peer: Peer) -> None:
            await peer.shake_hands(api_versions(OLD))
            while (exchange := await peer.receive()) is not None:
                used.append(exchange[0].request_api_version)
                await peer.reply(exchange[0], Beat())

        cluster.network.listen("b2", 9092, serve)
        await client.wait_bootstrapped()
        await client.request(HeartbeatRequest(), node=2)
        assert used == [2]


async def test_broker_that_serves_less_is_asked_for_versions_then() -> None:
    async with running(brokers=2, reconnect_backoff_ms=10) as (client, cluster):
        cluster.versions = of_release(30, 30)
        used: list[int] = []

        async def serve(peer: Peer) -> None:
            if not used:
                greeting, _ = await peer.expect(ApiVersionsRequest)
                header, _ = await peer.expect(HeartbeatRequest)
                used.append(header.request_api_version)
                await peer.reply(greeting, of_release(30, 30, OLD))
                return  # as a broker closes at an unknown version
            await peer.shake_hands(of_release(30, 30, OLD))
            while (exchange := await peer.receive()) is not None:
                used.append(exchange[0].request_api_version)
                await peer.reply(exchange[0], Beat())

        cluster.network.listen("b2", 9092, serve)
        await client.wait_bootstrapped()
        with pytest.raises(KafkaConnectionError):
            await client.request(HeartbeatRequest(), node=2)
        await client.request(HeartbeatRequest(), node=2)
        assert used == [4, 2]


async def test_wrong_address_is_named_at_the_first_request() -> None:
    async with running(brokers=2, reconnect_backoff_ms=10) as (client, cluster):
        cluster.versions = of_release(30, 30)

        async def serve(peer: Peer) -> None:
            await peer.receive_frame()

        cluster.network.listen("b2", 9092, serve)
        await client.wait_bootstrapped()
        with pytest.raises(KafkaConnectionError):
            await client.request(HeartbeatRequest(), node=2)
        with anyio.fail_after(60):
            while "advertised.listeners" not in client.unreachable.get(2, ""):
                await anyio.wait_all_tasks_blocked()


async def test_named_broker_gets_no_request_before_it_confirms_its_name() -> None:
    async with running(brokers=2) as (client, cluster):
        cluster.versions = of_release(30, 30, {int(ApiKey.API_VERSIONS): (0, 5)})
        executed: list[object] = []
        served = anyio.Event()

        async def serve(peer: Peer) -> None:
            """Execute all requests of the connection, as a broker of another cluster."""
            header, greeting = await peer.expect(ApiVersionsRequest)
            assert isinstance(greeting, ApiVersionsRequest)
            assert (greeting.cluster_id, greeting.node_id) == ("c", 2)
            await peer.reply(header, ApiVersionsResponse(error_code=129))
            while (exchange := await peer.receive()) is not None:
                executed.append(exchange[1])
            served.set()

        cluster.network.listen("b2", 9092, serve)
        await client.wait_bootstrapped()
        with pytest.raises(KafkaConnectionError, match="is not broker 2 of cluster c"):
            await client.request(HeartbeatRequest(), node=2)
        await served.wait()
        assert not executed


async def test_a_lowered_greeting_gets_no_request_before_its_response() -> None:
    async with running(brokers=2, reconnect_backoff_ms=10) as (client, cluster):
        cluster.versions = of_release(30, 30, {int(ApiKey.API_VERSIONS): (0, 5)})
        versions: list[int] = []
        executed: list[object] = []
        served = anyio.Event()

        async def serve(peer: Peer) -> None:
            """Close at the version that names the broker, and then execute all requests."""
            header, _ = await peer.expect(ApiVersionsRequest)
            versions.append(header.request_api_version)
            if len(versions) == 1:
                return
            await peer.reply(header, ApiVersionsResponse(error_code=42))
            while (exchange := await peer.receive()) is not None:
                executed.append(exchange[1])
            served.set()

        cluster.network.listen("b2", 9092, serve)
        await client.wait_bootstrapped()
        with pytest.raises(KafkaError):
            await client.request(HeartbeatRequest(), node=2)
        await served.wait()
        assert versions[:2] == [5, 3]
        assert not executed


async def test_broker_counts_as_reached_once_it_sent_its_versions() -> None:
    async with running(brokers=2, reconnect_backoff_ms=10) as (client, cluster):
        cluster.versions = of_release(30, 30)
        await client.wait_bootstrapped()
        await client.request(HeartbeatRequest(), node=2)
        del cluster.network.listeners["b2", 9092]
        with pytest.raises(KafkaConnectionError) as caught:
            await client.request(HeartbeatRequest(), node=2, purpose="more")
        assert "advertised.listeners" not in str(caught.value)
        assert not client.unreachable
        await client.request(HeartbeatRequest(), node=2)


async def test_broker_that_serves_less_ends_the_versions_of_all() -> None:
    """After a downgrade, the first request to the next broker succeeds."""
    async with running(brokers=3, reconnect_backoff_ms=10) as (client, cluster):
        cluster.versions = of_release(30, 30)
        used: list[int] = []

        async def close(peer: Peer) -> None:
            greeting, _ = await peer.expect(ApiVersionsRequest)
            await peer.expect(HeartbeatRequest)
            await peer.reply(greeting, of_release(30, 30, OLD))

        async def serve(peer: Peer) -> None:
            await peer.shake_hands(of_release(30, 30, OLD))
            header, _ = await peer.expect(HeartbeatRequest)
            used.append(header.request_api_version)
            await peer.reply(header, Beat())
            await peer.receive()

        cluster.network.listen("b2", 9092, close)
        cluster.network.listen("b3", 9092, serve)
        await client.wait_bootstrapped()
        with pytest.raises(KafkaConnectionError):
            await client.request(HeartbeatRequest(), node=2)
        await client.request(HeartbeatRequest(), node=3)
        assert used == [2]
