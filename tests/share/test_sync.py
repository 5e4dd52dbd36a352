"""The sync share consumer, whose caller is in another thread than its requests."""

from __future__ import annotations

from typing import Any

import pytest

from kohort import ShareConsumer, ShareRecord
from kohort.errors import WakeupError
from kohort.testing import Cluster


def test_a_thread_polls_commits_and_closes() -> None:
    with Cluster(topics={"jobs": 1}) as cluster:
        cluster.produce("jobs", ["a", "b"])
        options: dict[str, Any] = {
            "bootstrap_servers": cluster.bootstrap_servers,
            "group_id": "workers",
            "start": "earliest",
        }
        with ShareConsumer("jobs", acknowledgement="explicit", **options) as consumer:
            records: list[ShareRecord[Any, Any]] = []
            while len(records) < 2:
                for found in consumer.poll(timeout_ms=1_000).values():
                    records += found
            consumer.accept(records[0])
            called: list[Any] = []
            consumer.commit_async(lambda *result: called.append(result)).result()
            assert consumer.commit() == {}
            assert called == [({}, None)]
            assert consumer.held() == 1
            consumer.wakeup()
            with pytest.raises(WakeupError):
                consumer.poll(timeout_ms=60_000)
        with ShareConsumer("jobs", **options) as consumer:
            record = next(iter(consumer))
            assert (record.value, record.delivery_count) == (b"b", 2)
            assert consumer.commit() == {}
