"""Ctrl-C on trio is raised in the program and in none of the consumer's tasks."""

from __future__ import annotations

import importlib
import sys
import types
from typing import Any

import pytest
import trio

from kohort.consumer.driver import _interrupts
from kohort.consumer.engine._autocommit import AutoCommit
from kohort.consumer.engine._callback_queue import CallbackQueue, PendingCallback
from kohort.testing import MemoryCluster
from tests.consumer.virtual import MemoryConsumer
from tests.support.virtual import run_virtual


def test_commits_stats_and_callbacks_are_protected(monkeypatch: pytest.MonkeyPatch) -> None:
    protected: dict[str, bool] = {}
    perform, commit = CallbackQueue.call, AutoCommit._commit

    def perform_noted(callback_queue: CallbackQueue, work: PendingCallback) -> Any:
        protected[type(work).__name__] = trio.lowlevel.currently_ki_protected()
        return perform(callback_queue, work)

    def commit_noted(commits: AutoCommit, **options: Any) -> Any:
        protected["commit"] = trio.lowlevel.currently_ki_protected()
        return commit(commits, **options)

    async def main() -> None:
        options: dict[str, Any] = {
            "on_stats": lambda metrics: None,
            "stats_interval_ms": 100,
            "auto_commit_interval_ms": 100,
        }
        async with MemoryCluster(topics={"t": 1}) as cluster:
            async with MemoryConsumer(cluster, "t", **options) as consumer:
                consumer.enforce_rebalance()
                await trio.sleep(10)

    monkeypatch.setattr(CallbackQueue, "call", perform_noted)
    monkeypatch.setattr(AutoCommit, "_commit", commit_noted)
    run_virtual(main)
    assert protected == {
        "PendingCallback": True,
        "ListenerCallback": True,
        "AssignorCallback": True,
        "commit": True,
    }


def test_a_module_that_is_imported_later_is_protected(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("kohort.coordinator_client.imported_later")

    async def run() -> bool:
        return trio.lowlevel.currently_ki_protected()

    run.__module__ = module.__name__
    vars(module)["run"] = run
    monkeypatch.setattr(_interrupts, "_protected", set(_interrupts._protected), raising=False)

    async def main() -> bool:
        _interrupts.protect_modules()
        monkeypatch.setitem(sys.modules, module.__name__, module)
        _interrupts.protect_modules()
        return await run()

    assert trio.run(main)


@pytest.mark.parametrize("name", _interrupts.PROTECTED_MODULES)
def test_protected_modules_exist(name: str) -> None:
    importlib.import_module(name)
