"""Options are checked as aiokafka checks them."""

from __future__ import annotations

from typing import Any

import pytest

import kohort.compat.aiokafka as package
from tests.compat.aiokafka.conftest import MakeConsumer
from tests.compat.aiokafka.kit import within
from tests.interop.brokers import Broker

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"security_protocol": "TLS"}, "`security_protocol` should be SSL or PLAINTEXT"),
        ({"security_protocol": "SSL"}, "`ssl_context` is mandatory"),
        ({"security_protocol": "SASL_SSL"}, "`ssl_context` is mandatory"),
        (
            {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "X"},
            "only `PLAIN`, `GSSAPI`",
        ),
        ({"security_protocol": "SASL_PLAINTEXT"}, "sasl_plain_username and sasl_plain_password"),
        ({"max_poll_records": 0}, "`max_poll_records` should be positive Integer"),
        ({"isolation_level": "READ_CCC"}, "Incorrect isolation level READ_CCC"),
        ({"fetch_max_wait_ms": "soon"}, "fetch_max_wait_ms"),
    ],
)
async def test_wrong_option_raises_value_error(
    compat: Any, options: dict[str, Any], text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        compat.AIOKafkaConsumer(**options)


async def test_unknown_option_raises_type_error(compat: Any) -> None:
    with pytest.raises(TypeError, match="group"):
        compat.AIOKafkaConsumer(group="billing")


async def test_options_without_effect_are_accepted(make: MakeConsumer, topic: str) -> None:
    consumer = make(
        topic,
        group_instance_id="no group",
        sasl_mechanism="PLAIN",
        sasl_plain_username="unused",
        consumer_timeout_ms=1,
        rebalance_timeout_ms=60000,
        client_id=None,
        auto_offset_reset="an unknown word",
    )
    await consumer.start()
    assert consumer.assignment()


async def test_deprecated_options_warn(compat: Any) -> None:
    with pytest.warns(DeprecationWarning, match="api_version"):
        consumer = compat.AIOKafkaConsumer(api_version="auto")
    await consumer.stop()


def test_consumer_needs_a_running_loop_or_loop(broker: Broker, topic: str) -> None:
    import asyncio

    with pytest.raises(RuntimeError, match="within an async function or provide loop"):
        package.AIOKafkaConsumer(topic)
    broker.write(topic, b"tea")
    loop = asyncio.new_event_loop()
    try:
        with pytest.warns(DeprecationWarning, match="loop argument"):
            consumer = package.AIOKafkaConsumer(
                topic,
                loop=loop,
                bootstrap_servers=broker.bootstrap_servers,
                auto_offset_reset="earliest",
            )
        loop.run_until_complete(consumer.start())
        record = loop.run_until_complete(within(consumer.getone()))
        assert record.value == b"tea"
        loop.run_until_complete(consumer.stop())
    finally:
        loop.close()
