"""Random faults: every request ends in time with a response or a typed error."""

from __future__ import annotations

import random
from typing import Any

import anyio
import pytest
from trio.testing import MockClock

from kohort.errors import KafkaError
from kohort.protocol import Request, Response
from kohort.protocol.messages import HeartbeatRequest, MetadataRequest, RequestHeader
from kohort.transport import NETWORK_ERRORS, BrokerConnection
from tests.transport.peer import Broker, FakeCluster, Network, Peer, answer_bytes, api_versions
from tests.transport.running import running

pytestmark = pytest.mark.anyio
TIMEOUT_MS = 3000


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """A trio event loop with a clock that jumps to the next deadline when all tasks wait."""
    return "trio", {"clock": MockClock(autojump_threshold=0)}


def proper(broker: Broker, request: Request[Response]) -> Response:
    if isinstance(request, MetadataRequest):
        return broker.cluster.describe(request)
    return type(request).response()


async def disturb(cluster: FakeCluster, rng: random.Random) -> None:
    """Inject random faults at random times, forever."""
    while True:
        await anyio.sleep(rng.expovariate(8))
        broker = rng.choice(cluster.brokers)
        match rng.randrange(6):
            case 0:
                broker.down()
            case 1 if broker.peers:
                rng.choice(broker.peers).reset()
            case 2:
                share = rng.random()

                def sometimes(
                    header: RequestHeader,
                    request: Request[Response],
                    broker: Broker = broker,
                    share: float = share,
                ) -> Response | None:
                    return proper(broker, request) if rng.random() < share else None

                broker.answer = sometimes
            case 3 if broker.peers:
                with anyio.move_on_after(0.1):
                    try:
                        await rng.choice(broker.peers).send(rng.randbytes(rng.randrange(1, 60)))
                    except NETWORK_ERRORS:
                        pass
            case _:
                broker.answer = None
                broker.up()


@pytest.mark.parametrize("seed", range(12))
async def test_requests_end_in_time_and_recover_when_the_faults_end(seed: int) -> None:
    rng = random.Random(seed)
    outcomes: list[str] = []
    async with running(brokers=3, request_timeout_ms=TIMEOUT_MS) as (client, cluster):
        cluster.add_topic("t", [1, 2, 3])
        client.want_topics({"t"})
        await client.wait_refreshed()

        async def ask(purpose: str) -> None:
            for _ in range(80):
                node = rng.choice([None, 1, 2, 3])
                start = anyio.current_time()
                with anyio.move_on_after(rng.choice([0.01, 100, 100])):
                    try:
                        await client.request(HeartbeatRequest(), node=node, purpose=purpose)
                    except KafkaError as error:
                        outcomes.append(type(error).__name__)
                    else:
                        outcomes.append("answered")
                assert anyio.current_time() - start <= TIMEOUT_MS / 1000 + 0.001
                await anyio.sleep(rng.expovariate(20))

        async with anyio.create_task_group() as faults:
            faults.start_soon(disturb, cluster, rng)
            async with anyio.create_task_group() as tasks:
                for purpose in ("a", "b", "c", "d"):
                    tasks.start_soon(ask, purpose)
            faults.cancel_scope.cancel()
        for broker in cluster.brokers:
            broker.answer = None
            broker.up()
        with anyio.fail_after(3 * TIMEOUT_MS / 1000):
            await client.wait_refreshed()
            for node in (1, 2, 3, None):
                while True:
                    try:
                        await client.request(HeartbeatRequest(), node=node)
                    except KafkaError:
                        continue
                    break
    assert outcomes.count("answered") > 10


@pytest.mark.parametrize("seed", range(4))
async def test_mutated_answers_are_typed_errors_and_never_hang(seed: int) -> None:
    rng = random.Random(seed)

    async def serve(peer: Peer) -> None:
        await peer.shake_hands(api_versions())
        exchange = await peer.receive()
        assert exchange is not None
        data = bytearray(answer_bytes(exchange[0], cluster.describe(MetadataRequest(topics=None))))
        for _ in range(rng.randrange(1, 6)):
            at = rng.randrange(len(data))
            match rng.randrange(3):
                case 0:
                    data[at] = rng.randrange(256)
                case 1:
                    del data[at : at + rng.randrange(1, 9)]
                case _:
                    data[at:at] = rng.randbytes(rng.randrange(1, 9))
            if not data:
                break
        await peer.send(data)

    async with anyio.create_task_group() as tasks:
        network = Network(tasks)
        cluster = FakeCluster(network, 3)
        cluster.add_topic("some-topic", [1, 2, 3])
        network.listen("b", 9092, serve)
        failed = 0
        for _ in range(150):
            connection = await BrokerConnection.open(network.connect, "b", 9092, max_frame=1 << 20)
            tasks.start_soon(connection.run)
            try:
                await connection.request(MetadataRequest(topics=None), timeout=5)
            except KafkaError:
                failed += 1
            await connection.aclose()
        assert failed > 30
        assert network.open_ends == 0
