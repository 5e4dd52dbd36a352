"""The sync share consumer, whose caller is in another thread than its requests."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from kohort import ShareConsumer, ShareRecord
from kohort.errors import ConsumerClosedError, WakeupError
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
            assert repr(record).startswith("ShareRecord(topic='jobs', partition=0, ")
            assert repr(record).endswith(", delivery_count=2)")
            assert consumer.commit() == {}


class Poll(threading.Thread):
    """A poll of a minute in another thread, with its result or error."""

    def __init__(self, consumer: ShareConsumer) -> None:
        super().__init__(daemon=True)
        self._consumer = consumer
        self.found: dict[Any, list[ShareRecord[Any, Any]]] = {}
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.found = self._consumer.poll(timeout_ms=60_000)
        except BaseException as error:
            self.error = error


@pytest.mark.parametrize(
    ("end", "error"),
    [
        (lambda cluster, consumer: cluster.produce("jobs", ["c"]), None),
        (lambda cluster, consumer: consumer.wakeup(), WakeupError),
        (lambda cluster, consumer: consumer.close(), ConsumerClosedError),
    ],
    ids=["record", "wakeup", "close"],
)
def test_waiting_poll_ends_by_other_threads_without_a_task(
    end: Callable[[Cluster, ShareConsumer], object], error: type[BaseException] | None
) -> None:
    with Cluster(topics={"jobs": 1}) as cluster:
        cluster.produce("jobs", ["a"])
        consumer = ShareConsumer(
            "jobs",
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="workers",
            start="earliest",
        )
        with consumer:
            while not consumer.poll(timeout_ms=60_000):
                pass
            driver = consumer._driver
            calls: list[object] = []
            original, is_asked = driver.call, threading.Event()

            def call(plan: Any) -> Any:
                calls.append(plan)
                return original(plan)

            driver.call = call  # type: ignore[method-assign]
            assert consumer._client is not None
            look = consumer._client.look_for_poll

            def looked() -> None:
                look()
                is_asked.set()

            consumer._client.look_for_poll = looked  # type: ignore[method-assign]
            poll = Poll(consumer)
            poll.start()
            assert is_asked.wait(60)
            assert not calls  # only an error takes a call
            end(cluster, consumer)
            poll.join(60)
            if error is None:
                assert [each.value for found in poll.found.values() for each in found] == [b"c"]
                assert not calls
            else:
                assert isinstance(poll.error, error)
            assert consumer._client.wanted_until < 0


def test_waiting_poll_gets_the_records_of_a_leader_without_a_task(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Cluster(topics={"jobs": 1}) as cluster:
        cluster.produce("jobs", ["a"])
        with ShareConsumer(
            "jobs",
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="workers",
            start="earliest",
        ) as consumer:
            consumer.poll(timeout_ms=2)
            while not consumer.assignment():
                consumer.commit()  # it joins, and makes no request of the leader
            found = consumer.poll(timeout_ms=60_000)
            assert [each.value for records in found.values() for each in records] == [b"a"]
    assert not [each for each in caplog.records if each.name == "asyncio"]
