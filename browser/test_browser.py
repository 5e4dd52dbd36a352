"""The programs that the site runs in the browser, on CPython and on its event loop."""

from __future__ import annotations

import asyncio
import contextvars
import importlib.util
import inspect
import json
import os
import re
import subprocess
import sys
import types
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

import pytest

import kohort
import kohort.testing
from browser.bundle import LEFT_OUT, is_left_out
from browser.live.drawing import Group, Mark, Window, timeline
from browser.live.group import PARTITIONS, SESSION_MS, LiveGroup
from browser.live.history import Span
from browser.live.worker import Worker, accept_past_times
from kohort.testing import VirtualLoop
from tests.house._source import PAGES, ROOT
from tests.support.snippets import is_shown, python_blocks, shown_output

greenlet = pytest.importorskip("greenlet")

PAGE = ROOT / "docs" / "browser.md"
WITH_THE_ARCHIVE_ONLY = """
import os
import sys
from kohort.testing import VirtualLoop
from browser.bundle import is_left_out

class LeftOut:
    def find_spec(self, name, path=None, target=None):
        if is_left_out(name.replace(".", "/") + ".py"):
            raise ModuleNotFoundError(f"{name} is not in the archive", name=name)

sys.meta_path.insert(0, LeftOut())
for name in ("cramjam", "crc32c", "lz4"):
    sys.modules[name] = None  # an import of it raises ImportError

import pytest
import trio  # it needs idna, and this module needs it
sys.modules["idna"] = None
tests = "browser/test_browser.py"
chosen = "worker_sends_states or a_block_with_run"
options = ["-q", "-c", os.devnull, "--noconftest", "-p", "no:cacheprovider"]
raise SystemExit(pytest.main([*options, tests, "-k", chosen]))
"""
T = TypeVar("T")


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run on a virtual clock, which jumps while all tasks wait."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main)


async def until(predicate: Callable[[], bool], seconds: float = 30.0) -> None:
    """Wait until the predicate is true."""
    for _ in range(round(20 * seconds)):
        if predicate():
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"not true within {seconds} s")


def shares(group: LiveGroup) -> dict[str, int]:
    """Return the number of partitions of each member that owns any."""
    return {
        member["name"]: len(member["partitions"])
        for member in group.state()["members"]
        if member["partitions"]
    }


async def started() -> tuple[LiveGroup, asyncio.Task[None]]:
    """Return a group that runs, and the task that runs it."""
    group = LiveGroup()
    life = asyncio.ensure_future(group.run())
    await group.started.wait()
    return group, life


def test_partitions_of_a_killed_member_move_after_its_session() -> None:
    async def main() -> None:
        group, life = await started()
        group.produce(60)
        for _ in range(3):
            group.add_member()
        await until(lambda: shares(group) == {"A": 2, "B": 2, "C": 2})
        killed_at = group.state()["seconds"]
        await group.kill("B")
        await until(lambda: shares(group) == {"A": 3, "C": 3})
        assert 0.5 * SESSION_MS < 1000 * (group.state()["seconds"] - killed_at) < 2 * SESSION_MS
        group.close("C")
        await until(lambda: shares(group) == {"A": 6}, seconds=1.5)
        group.produce(6)
        await until(lambda: all(each["committed"] == 11 for each in group.state()["partitions"]))
        read = {each["number"]: each["read"] for each in group.state()["partitions"]}
        assert all(sum(counts.values()) >= 11 for counts in read.values()), read
        states = {each["name"]: each["state"] for each in group.state()["members"]}
        assert states == {"A": "running", "B": "killed", "C": "closed"}
        with pytest.raises(ValueError, match="member B does not run"):
            await group.kill("B")
        drawn = group.drawing(600)
        ElementTree.fromstring(drawn)
        assert "B killed" in drawn and drawn.count('class="live-owner-1"') >= 2
        life.cancel()
        await asyncio.wait([life])

    run(main())


def test_timeline_shows_owners_within_its_window() -> None:
    spans = [Span(0, "A", 1_000, 5_000), Span(1, "A", 1_000), Span(0, "B", 8_000)]
    group = Group(spans, [Mark(5_000, "A killed"), Mark(1_000, "A starts")], ["A", "B"], 2, 0)
    drawn = timeline(group, Window(4_000, 10_000, 400))
    root = ElementTree.fromstring(drawn)
    bars = [each for each in root.iter() if each.get("class", "").startswith("live-owner")]
    found = [(b.get("class"), float(b.get("x", 0)), float(b.get("width", 0))) for b in bars]
    assert found == [
        ("live-owner-0", 30.0, 61.0),
        ("live-owner-0", 30.0, 366.0),
        ("live-owner-1", 274.0, 122.0),
    ]
    assert "A killed" in drawn and "A starts" not in drawn
    assert "Partition 0: B from 8.0 s to now." in drawn


def test_worker_sends_states_and_answers_calls() -> None:
    sent: list[dict[str, Any]] = []

    async def main() -> None:
        worker = Worker(lambda text: sent.append(json.loads(text)))

        async def call(name: str, **values: Any) -> Any:
            return json.loads(await worker.call(json.dumps({"call": name, "with": values})))

        with pytest.raises(ValueError, match="Start it first"):
            await call("add")
        await call("start", width=500)
        await call("produce", count=60)
        assert await call("add") == "A"
        await until(lambda: sum(p["written"] for p in latest()["partitions"]) == 60)
        await until(lambda: sum(m["read"] for m in latest()["members"]) == 60)
        assert 'width="500"' in latest()["svg"] and len(latest()["partitions"]) == PARTITIONS
        await worker.stop()

    def latest() -> dict[str, Any]:
        states: list[dict[str, Any]] = [each["value"] for each in sent if each["kind"] == "state"]
        return states[-1] if states else {"partitions": [], "members": []}

    run(main())
    assert {"kind": "log", "value": "A starts"} in sent


def test_times_that_have_passed_are_due_at_once() -> None:
    class Loop:
        """Loop that refuses past times, as Pyodide's does."""

        def time(self) -> float:
            return 100.0

        def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> Any:
            assert delay >= 0
            return delay, callback, args, context

    loop: Any = Loop()
    accept_past_times(loop)
    assert loop.call_at(99.9, print, 1) == (0.0, print, (1,), None)
    assert loop.call_at(103.0, print) == (3.0, print, (), None)


def block(main: Coroutine[Any, Any, Any]) -> Any:
    """Wait for a coroutine, as WebAssembly can by switching its stack."""
    return greenlet.getcurrent().parent.switch(main)


@types.coroutine
def with_blocking(main: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
    """Run a coroutine whose code may call ``block``, in a greenlet that this one resumes."""
    here = greenlet.getcurrent()
    results: list[T] = []

    def drive() -> None:
        value, error = None, None
        while True:
            try:
                yielded = main.send(value) if error is None else main.throw(error)
            except StopIteration as end:
                results.append(end.value)
                return
            value, error = here.switch(yielded)

    child = greenlet.greenlet(drive)
    child.gr_context = contextvars.copy_context()
    yielded = child.switch()
    while not child.dead:
        if inspect.iscoroutine(yielded):
            task = asyncio.ensure_future(with_blocking_task(yielded))
            yield from asyncio.wait([task])
            error = task.exception()
            yielded = child.switch(task.result()) if error is None else child.throw(error)
        else:
            resumed: tuple[Any, BaseException | None]
            try:
                resumed = (yield yielded), None
            except BaseException as cancelled:
                resumed = None, cancelled
            yielded = child.switch(resumed)
    [result] = results
    return result


async def with_blocking_task(main: Coroutine[Any, Any, T]) -> T:
    """Run ``with_blocking`` as a coroutine, which a task needs."""
    return await with_blocking(main)


def output_of(code: str, *, can_block: bool = True) -> tuple[bool, str]:
    """Run an example in a worker. Return True if it did not raise, and the output."""
    sent: list[dict[str, Any]] = []

    async def main() -> bool:
        worker = Worker(lambda text: sent.append(json.loads(text)), block if can_block else None)
        text = json.dumps({"call": "run", "with": {"code": code}})
        return json.loads(await worker.call(text)) is True

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        done = runner.run(with_blocking_task(main()))
    return done, "".join(each["value"] for each in sent if each["kind"] == "output")


RUN = [
    pytest.param(code, shown_output(page, code), id=f"{page.name}:{line}")
    for page in PAGES
    for line, code in python_blocks(page)
    if f"<!-- run -->\n\n```python\n{code}" in page.read_text()
]


@pytest.mark.parametrize(("code", "shown"), RUN)
def test_a_block_with_run_prints_what_the_page_shows(code: str, shown: str | None) -> None:
    done, output = output_of(code)
    assert done, output
    if shown is not None and not is_shown(output, shown):
        assert output == shown


def test_every_mark_of_run_is_before_a_block() -> None:
    marks = [mark for page in PAGES for mark in re.findall(r"(?m)^<!-- run -->$", page.read_text())]
    assert len(marks) == len(RUN) > 0


def test_an_async_block_runs_in_a_browser_that_cannot_block() -> None:
    [_, code] = next(python_blocks(PAGE))
    done, output = output_of(code, can_block=False)
    assert done and output == shown_output(PAGE, code)


def test_a_sync_block_says_what_to_do_where_it_cannot_block() -> None:
    code = "from kohort.testing import Cluster\nwith Cluster():\n    pass\n"
    done, output = output_of(code, can_block=False)
    assert not done
    assert output.splitlines()[0] == "Traceback (most recent call last):"
    assert 'File "<example>", line 2' in output and "live" not in output.splitlines()[1]
    assert "Use Chrome or Edge 137 or newer" in output


def test_names_of_kohort_are_restored_after_an_example() -> None:
    before = kohort.KafkaConsumer, kohort.AsyncKafkaConsumer, kohort.testing.Cluster, asyncio.run
    done, output = output_of("raise SystemExit(1)")
    assert not done and output.endswith("SystemExit: 1\n")
    after = kohort.KafkaConsumer, kohort.AsyncKafkaConsumer, kohort.testing.Cluster, asyncio.run
    assert before == after


def test_the_page_and_examples_need_no_module_left_out() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITH_THE_ARCHIVE_ONLY],
        cwd=ROOT,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(RUN) + 1} passed" in done.stdout


def test_modules_left_out_exist_and_licenses_stay() -> None:
    for name in LEFT_OUT:
        assert importlib.util.find_spec(name) is not None, name
        assert is_left_out(f"{name.replace('.', '/')}/__init__.py")
    kept = ["kohort/records/_record.py", "kohort-0.2.0.dist-info/licenses/LICENSE"]
    assert [name for name in kept if is_left_out(name)] == []
    files = ["kohort/records/_native.pxd", "kohort-0.2.0.dist-info/RECORD"]
    assert [name for name in files if not is_left_out(name)] == []
