"""from_properties() of share consumers."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from kohort import ShareConsumer
from kohort.errors import InvalidOptionError, UnknownOptionError, UnsupportedOptionError
from kohort.testing import Cluster

SERVERS: dict[str, Any] = {"bootstrap.servers": "localhost:1", "group.id": "workers"}


def test_properties_of_java_make_a_share_consumer() -> None:
    with Cluster(topics={"jobs": 1}) as cluster:
        cluster.produce("jobs", ["1", "2"])
        properties = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "workers",
            "share.acknowledgement.mode": "explicit",
            "share.acquire.mode": "record_limit",
            "max.poll.records": "1",
            "client.id": "one",
        }
        with ShareConsumer.from_properties(
            properties, "jobs", start="earliest", value_deserializer=int
        ) as consumer:
            while not (found := consumer.poll(timeout_ms=1_000)):
                pass
            ((record,),) = found.values()
            assert record.value == 1
            shares = consumer.explain().as_dict()["shares"]
            assert shares is not None
            assert (shares["acknowledgement"], shares["locked"]) == ("explicit", 1)
            assert repr(consumer).startswith("<ShareConsumer group='workers' topics=['jobs']")


@pytest.mark.parametrize(
    ("properties", "error", "message"),
    [
        ({"enable.auto.commit": "true"}, UnsupportedOptionError, "enable.auto.commit is not supp"),
        ({"auto.offset.reset": "earliest"}, UnsupportedOptionError, 'start="earliest"'),
        ({"share.acknowledgement.mode": "none"}, InvalidOptionError, "acknowledgement='none'"),
        ({"share.acquire.mode": "all"}, InvalidOptionError, "acquire_mode='all'"),
        ({"group.id": None}, InvalidOptionError, "needs a group"),
        ({"max.pol.records": "1"}, UnknownOptionError, "max.pol.records"),
        ({"max.poll.records": "-1"}, InvalidOptionError, "max.poll.records"),
    ],
)
def test_wrong_properties_are_named(
    properties: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as caught:
        ShareConsumer.from_properties({**SERVERS, **properties}, "jobs")
    assert message in str(caught.value)


def test_unsupported_properties_may_be_logged(caplog: pytest.LogCaptureFixture) -> None:
    properties = {**SERVERS, "isolation.level": "read_committed"}
    with caplog.at_level(logging.WARNING, "kohort.share"):
        ShareConsumer.from_properties(properties, "jobs", unsupported="warn")
    assert "Set share.isolation.level of the group" in caplog.text


def test_properties_must_be_a_mapping() -> None:
    wrong: Any = ["group.id"]
    with pytest.raises(TypeError, match="mapping"):
        ShareConsumer.from_properties(wrong)
