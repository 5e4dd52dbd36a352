"""Logins that are refused later, on a virtual clock: one error for each cause."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from kohort.errors import KafkaError, SaslAuthenticationFailedError
from kohort.testing import MemoryCluster, Security, unsecured_token
from tests.consumer.virtual import MemoryConsumer, poll_for
from tests.support.virtual import run_virtual_on

REFUSED_FOR = 60.0
USERS = {"app": "app-secret"}


async def errors_while_refused(session_ms: int, **options: Any) -> list[KafkaError]:
    """Return the errors of polls while brokers refuse logins. Some sessions are valid at first."""
    security = Security(["SASL_PLAINTEXT"], USERS, session_lifetime_ms=session_ms)
    async with MemoryCluster(brokers=2, topics={"t": 4}, security=security) as cluster:
        made = unsecured_token("app", 3600, now=cluster.wall_clock())

        async def token() -> str:
            return made

        if options["sasl_mechanism"] == "OAUTHBEARER":
            options |= {"sasl_oauth_token_provider": token, "wall_clock": cluster.wall_clock}
        else:
            options |= {"sasl_plain_username": "app", "sasl_plain_password": USERS["app"]}
        options |= {"security_protocol": "SASL_PLAINTEXT", "metadata_max_age_ms": 1000}
        async with MemoryConsumer(cluster, "t", **options) as consumer:
            refusal = cluster.fail_login(times=None)
            end = anyio.current_time() + REFUSED_FOR
            errors = await poll_for(consumer, lambda: anyio.current_time() > end, 200)
            refusal.stop()
            cluster.produce("t", [b"late"], partition=0)
            with anyio.fail_after(60):
                while not await consumer.poll(timeout_ms=1000):
                    pass
            return errors


@pytest.mark.parametrize("backend", ["trio", "asyncio"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "OAUTHBEARER"])
def test_refused_login_is_raised_once_while_others_last(backend: str, mechanism: str) -> None:
    """Responses on older connections once reset the refusal each time."""

    async def main() -> None:
        errors = await errors_while_refused(4000, sasl_mechanism=mechanism)
        assert [type(error) for error in errors] == [SaslAuthenticationFailedError]

    run_virtual_on(backend, main)
