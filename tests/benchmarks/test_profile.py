"""Parts of benchmarks/profile.py, on the in-process cluster and with events written here."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from benchmarks import _perf as perf
from benchmarks._perf import ThreadTime, Window
from benchmarks._profile_tables import Cost, sections, summary
from benchmarks._profiled import CALLER, CONSUMER_THREAD, Profiled, interpreter_data
from benchmarks._profiled import read as read_profiled
from benchmarks._reading import Ask
from benchmarks._topics import PLAIN, SHAPES, Filled, fill
from benchmarks.profile import OUTPUTS, Topic, count, profile, topics
from kohort.testing import Cluster

RECORDS = 600
GIL = 0x7F00_1000
LIBPYTHON = "/usr/lib/libpython3.11.so.1.0"
KERNEL = "[kernel.kallsyms]"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def filled(cluster: Cluster) -> Filled:
    return fill(cluster.bootstrap_servers, SHAPES[PLAIN], RECORDS / SHAPES[PLAIN].records)


def sample(tid: int, at: float, symbol: str, library: str) -> str:
    event = f"cpu-clock/freq=4000/:      7f1e1278efe0 {symbol} ({library}) ABI:2    DI:0x5"
    return f" {tid} {at:.9f}:       {event}\n"


def switch(tid: int, out: float, back: float, argument: int, preempt: bool = False) -> list[str]:
    event = f"context-switches/period=1/:  ffffffff821fb643 schedule ({KERNEL})"
    return [
        f" {tid} {out - 1e-6:.9f}: {event} ABI:2    DI:{argument:#x}\n",
        f" {tid} {out:.9f}: PERF_RECORD_SWITCH OUT {'preempt' if preempt else ''}       \n",
        f" {tid} {back:.9f}: PERF_RECORD_SWITCH IN         \n",
    ]


@pytest.mark.parametrize(
    ("symbol", "library", "expected"),
    [
        ("_PyEval_EvalFrameDefault", LIBPYTHON, "Python"),
        ("sock_recv_into", "/usr/lib/python3.11/lib-dynload/_socket.so", "Python"),
        ("_PyEval_EvalFrameDefault", "/usr/bin/python3.12", "Python"),
        ("take_gil", LIBPYTHON, "lock"),
        ("pthread_cond_timedwait@@GLIBC_2.3.2", "/usr/lib/libc.so.6", "lock"),
        ("futex_wake", KERNEL, "lock"),
        ("_copy_to_iter", KERNEL, "copy"),
        ("__memmove_avx512_unaligned_erms", "/usr/lib/libc.so.6", "copy"),
        ("kohort_crc_hardware.constprop.0", "/x/kohort/records/_columns_c.so", "CRC"),
        ("__pyx_f_6kohort_take", "/x/kohort/records/_columns_c.so", "decoding"),
        ("tcp_recvmsg", KERNEL, "kernel"),
        ("nf_hook", "[nf_conntrack]", "kernel"),
        ("malloc", "/usr/lib/libc.so.6", "other"),
        ("[unknown]", "[unknown]", "other"),
    ],
)
def test_sample_has_kind_of_its_code(symbol: str, library: str, expected: str) -> None:
    assert perf.kind(symbol, library) == expected
    [time] = perf.read([sample(7, 1.0, symbol, library)], Window(0.0, 2.0, (0, 0))).values()
    assert time.cpu == {expected: 2.0}


def test_waits_are_told_apart_by_argument_and_preemption() -> None:
    events = [
        *switch(7, 1.1, 1.3, GIL + 8),
        *switch(7, 1.4, 1.5, 5),
        *switch(7, 1.6, 1.7, GIL, preempt=True),
        *switch(7, 1.9, 2.5, GIL),
        sample(7, 1.85, "_PyEval_EvalFrameDefault", LIBPYTHON),
        sample(7, 2.7, "malloc", "/usr/lib/libc.so.6"),
    ]
    found = perf.read(events, Window(1.0, 2.0, (GIL, GIL + 16)))
    waits = found[7].waits
    assert waits == pytest.approx({"GIL": 0.3, "rest": 0.1, "core": 0.1})
    assert found[7].cpu == pytest.approx({"Python": 0.5})


def test_wait_that_does_not_end_lasts_until_window_ends() -> None:
    out = switch(7, 1.25, 9.0, 5)[:2]
    found = perf.read(out, Window(1.0, 2.0, (GIL, GIL + 16)))
    assert found[7].waits == pytest.approx({"rest": 0.75})


def test_interpreter_data_includes_zeroed_pages_but_no_heap() -> None:
    maps = """\
1000-2000 r-xp 00000000 fe:00 1 /usr/lib/libpython3.11.so.1.0
2000-3000 rw-p 00001000 fe:00 1 /usr/lib/libpython3.11.so.1.0
3000-4000 rw-p 00000000 00:00 0
4000-9000 rw-p 00000000 00:00 0 [heap]
"""
    assert interpreter_data(maps, 0x2345) == (0x2000, 0x4000)


@pytest.mark.parametrize("output", OUTPUTS)
def test_profiled_consumer_reads_again_and_again(
    cluster: Cluster, filled: Filled, output: str
) -> None:
    pytest.importorskip("pyarrow")
    ask = Ask(cluster.bootstrap_servers, filled.topic, f"g-{output}", RECORDS)
    found = read_profiled(output, ask, 0.2)
    assert found.records > RECORDS and found.fetches > 0
    assert {CALLER, CONSUMER_THREAD} <= set(found.threads.values())
    assert sum(found.cpu_s.values()) > 0 and 0.2 <= found.end - found.begin < 60
    assert 0 < found.gil[0] < found.gil[1]


def test_profile_without_perf_has_cpu_and_waits(cluster: Cluster, filled: Filled) -> None:
    servers = cluster.bootstrap_servers
    counted = count(servers, filled.topic)
    assert counted[0] == RECORDS and 0 < counted[1] <= RECORDS
    topic = Topic(filled.topic, "100 B", *counted)
    cost = profile(servers, topic, "objects", 0.2, sampled=False)
    assert cost.records > 0 and cost.threads[CALLER].cpu_s > 0
    assert "| 100 B | objects |" in summary({("100 B", "objects"): cost})


@pytest.mark.skipif(perf.missing() is not None, reason="perf cannot be used")
def test_profile_with_perf_divides_cpu_time(cluster: Cluster, filled: Filled) -> None:
    servers = cluster.bootstrap_servers
    topic = Topic(filled.topic, "100 B", *count(servers, filled.topic))
    cost = profile(servers, topic, "objects", 0.5, sampled=True)
    for role in (CALLER, CONSUMER_THREAD):
        time = cost.threads[role]
        assert time.cpu["Python"] > 0 and "CPU" not in time.cpu
        assert time.cpu_s + sum(time.waits.values()) == pytest.approx(cost.wall_s, rel=0.05)


def test_missing_perf_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert perf.missing() == "perf is not installed (on Debian: apt-get install linux-perf)"


def test_topics_are_deleted_after_profile(cluster: Cluster) -> None:
    before = set(cluster.topics)
    with topics(cluster.bootstrap_servers, [PLAIN], [1, 2], 0.0002) as made:
        assert [topic.text for topic in made] == [
            "100 B, plain, 1 partition",
            "100 B, plain, 2 partitions",
        ]
        assert [cluster.topics[topic.name] for topic in made] == [1, 2]
        assert {topic.records for topic in made} == {RECORDS}
    assert set(cluster.topics) == before


def test_tables_show_costs_for_fetch_batch_and_record() -> None:
    found = Profiled(1.0, 2.0, 1000, 10, {"7": CALLER}, {"7": 0.6}, {"7": 0.1}, (GIL, GIL + 16))
    events = [
        *switch(7, 1.1, 1.5, GIL),
        sample(7, 1.6, "_PyEval_EvalFrameDefault", LIBPYTHON),
        sample(7, 1.7, "take_gil", LIBPYTHON),
    ]
    cost = Cost.of(found, events, 20.0)
    text = sections({("100 B", "objects"): cost.plus(cost)})
    assert "A fetch brought 100 records in 5.0 batches." in text
    cells = "60,000 | 30,000 | 30,000 |  |  |  |  |  | 40,000 |  |  |"
    assert f"| caller | fetch, us | {cells}" in text
    assert "|  | batch, us | 12,000 | 6,000 | 6,000 |" in text
    assert "|  | record, ns | 600,000 | 300,000 | 300,000 |" in text
    assert "| 1 | 600,000 | 300,000 | 300,000 |" in summary({("100 B", "objects"): cost})
    without = Cost.of(found, [], 20.0)
    assert without.threads[CALLER].waits == pytest.approx({"core": 0.1, "rest": 0.3})
    assert isinstance(without.threads[CALLER], ThreadTime)
