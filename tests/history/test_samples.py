"""A history from samples: changes between them, what it says about the gaps, and the command."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from kohort import KafkaAdminClient, KafkaConsumer, TopicPartition
from kohort.cli import main
from kohort.errors import GroupIdNotFoundError, KafkaTimeoutError
from kohort.history import GroupSampler, PastMember, to_html, to_json, to_svg, to_text
from kohort.history._timeline import GroupState, Timeline
from kohort.testing import Cluster

FIRST = TopicPartition("orders", 0)
SECOND = TopicPartition("orders", 1)


def state(epoch: int | None, **has: set[TopicPartition]) -> GroupState:
    """Return a sample whose members have these partitions."""
    return GroupState(
        "classic" if epoch is None else "consumer",
        epoch,
        {name: PastMember(name, name, "host") for name in has},
        {name: frozenset(partitions) for name, partitions in has.items()},
    )


def texts(timeline: Timeline) -> list[tuple[int, str]]:
    return [(each.at_ms, each.text) for each in timeline.finish(0, 99_000).events]


def test_samples_give_the_changes_between_them() -> None:
    timeline = Timeline("billing")
    timeline.sample(1000, state(3, a={FIRST, SECOND}), {FIRST: 5})
    timeline.sample(2000, state(3, a={FIRST, SECOND}), {FIRST: 5})
    timeline.sample(3000, state(5, a={FIRST}, b=set()), {FIRST: 9})
    timeline.sample(4000, state(5, a={FIRST}, b={SECOND}), {FIRST: 9})
    timeline.sample(5000, None, {})
    timeline.sample(6000, None, {})
    timeline.sample(7000, state(1, c={FIRST}), {})
    assert texts(timeline) == [
        (1000, "a has orders 0-1"),
        (3000, "b joined, in 2 rebalances since the sample before"),
        (3000, "a gave up orders 1"),
        (4000, "b has orders 1"),
        (5000, "group deleted"),
        (5000, "a gave up orders 0"),
        (5000, "b gave up orders 1"),
        (7000, "c joined"),
        (7000, "c has orders 0"),
    ]
    commits = timeline.finish(0, 9000).commits
    assert [(each.at_ms, each.offset) for each in commits] == [(1000, 5), (3000, 9), (5000, None)]


def test_classic_samples_show_members_without_a_generation() -> None:
    timeline = Timeline("billing")
    timeline.sample(1000, state(None, a={FIRST, SECOND}), {})
    timeline.sample(2000, state(None, a={FIRST}, b={SECOND}), {})
    timeline.sample(3000, state(None, a={SECOND}, b={FIRST}), {})
    timeline.sample(4000, state(None), {})
    events = timeline.finish(0, 9000).events
    rebalances = [
        (each.at_ms, each.epoch, each.text) for each in events if each.kind == "rebalance"
    ]
    assert rebalances == [(2000, -1, "b joined"), (4000, -1, "a, b left")]
    moved = [each.text for each in events if each.at_ms == 3000]
    assert moved == [
        "a gave up orders 0",
        "b gave up orders 1",
        "a has orders 1",
        "b has orders 0",
    ]


@pytest.fixture
def clock() -> Callable[[], float]:
    times = iter(range(1_000_000, 2_000_000, 5))
    return lambda: next(times)


def test_samples_of_a_group_say_what_is_not_known(clock: Callable[[], float]) -> None:
    with Cluster(topics={"orders": 2}) as cluster:
        cluster.produce("orders", ["a", "b", "c"], partition=0)
        options: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap_servers}
        with KafkaAdminClient(**options) as admin:
            sampler = GroupSampler(admin, "billing", timeout_ms=60_000, clock=clock)
            with pytest.raises(GroupIdNotFoundError):
                sampler.take()
            with KafkaConsumer(
                "orders",
                **options,
                group_id="billing",
                client_id="worker-1",
                auto_offset_reset="earliest",
                enable_auto_commit=False,
            ) as consumer:
                consumer.start()
                sampler.take()
                assert "from one sample. What happened before" in to_text(sampler.history())
                consumer.commit({FIRST: 1})
                sampler.take()
                with pytest.MonkeyPatch.context() as patch:
                    late = Mock(side_effect=KafkaTimeoutError("late"))
                    patch.setattr(admin, "describe_groups", late)
                    sampler.take()
            sampler.take()
            found = sampler.history()
    assert [each.text for each in found.events] == [
        "worker-1 has orders 0-1",
        "worker-1 left",
        "worker-1 gave up orders 0-1",
    ]
    first, second, third = found.samples
    assert (second - first, third - second) == (5000, 5000)
    assert found.complete_since_ms == found.until_ms == third
    assert [(each.at_ms, each.offset) for each in found.commits] == [(second, 1)]
    assert [each.lag for each in found.lags] == [2, 2]
    said = "from 3 samples, at most 5 s apart. What happened between two samples is not known"
    assert said in to_text(found)
    assert said in to_html(found)
    assert to_svg(found).count("between two samples: the owner changed here") == 2
    assert json.loads(to_json(found))["samples"] == [first, second, third]


def test_lags_of_many_samples_are_thinned(
    monkeypatch: pytest.MonkeyPatch, clock: Callable[[], float]
) -> None:
    monkeypatch.setattr("kohort.history._samples.MOST_MOMENTS", 4)
    with Cluster(topics={"orders": 1}) as cluster:
        with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.alter_group_offsets("billing", {FIRST: 0}).raise_errors()
            sampler = GroupSampler(admin, "billing", timeout_ms=60_000, clock=clock)
            for _ in range(17):
                sampler.take()
            found = sampler.history()
    moments = [each.at_ms for each in found.lags]
    assert moments == [found.samples[index] for index in (3, 7, 11, 15)]


def test_command_samples_until_its_time_or_ctrl_c(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    page = tmp_path / "billing.html"
    with Cluster(topics={"orders": 1}) as cluster:
        servers = ["--bootstrap-servers", cluster.bootstrap_servers]
        with KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.alter_group_offsets("billing", {FIRST: 0}).raise_errors()
        command = ["groups", "history", "billing", *servers, "--sample", "0.01"]
        assert main([*command, "--during", "0.02", "--html", str(page)]) == 0
        assert "samples" in capsys.readouterr().out
        assert page.read_text().startswith("<!doctype html>")

        def interrupt(_: float) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr("kohort.cli.groups._history.time", FakeTime(interrupt))
        assert main([*command, "--json"]) == 0
        assert len(json.loads(capsys.readouterr().out)["samples"]) == 1
        with pytest.raises(SystemExit):
            main([*command, "--from", "-1h"])


class FakeTime:
    """The module ``time`` with another sleep."""

    monotonic = staticmethod(time.monotonic)

    def __init__(self, sleep: Callable[[float], None]) -> None:
        self.sleep = sleep
