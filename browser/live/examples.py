"""Programs of readers, run in the event loop that already runs in a web worker."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import linecache
import traceback
from collections.abc import Callable, Coroutine
from typing import Any, Final

FILE: Final = "<example>"

Block = Callable[[Coroutine[Any, Any, Any]], Any]
"""Function that waits for a coroutine while the event loop runs other tasks."""


class _Output(io.TextIOBase):
    """A text stream that passes on what is written."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write

    def write(self, text: str) -> int:
        """Pass on the text."""
        self._write(text)
        return len(text)


class LoopRunner:
    """A replacement of ``asyncio.run()`` inside a running event loop.

    With ``block`` it returns the result, as usual. Without it, it starts the coroutine and returns
    None, and the program ends when the coroutine has ended.
    """

    def __init__(self, block: Block | None) -> None:
        self._block = block
        self._tasks: list[asyncio.Task[Any]] = []

    def run(self, main: Coroutine[Any, Any, Any], **_: Any) -> Any:
        """Run a coroutine."""
        if self._block is not None:
            return self._block(main)
        self._tasks.append(asyncio.ensure_future(main))
        return None

    async def finish(self) -> None:
        """Wait for the coroutines that still run."""
        for task in self._tasks:
            await task


async def run_example(code: str, write: Callable[[str], None], block: Block | None = None) -> bool:
    """Run a program. Return False if it ended with an exception, whose traceback is written."""
    runner, plain_run = LoopRunner(block), asyncio.run
    output = _Output(write)
    linecache.cache[FILE] = (len(code), None, code.splitlines(keepends=True), FILE)
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        vars(asyncio)["run"] = runner.run
        try:
            program = compile(code, FILE, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            result = eval(program, {"__name__": "__main__"})
            if inspect.iscoroutine(result):
                await result
            await runner.finish()
        except (Exception, SystemExit) as error:
            output.write("".join(_traceback(error)))
            return False
        finally:
            vars(asyncio)["run"] = plain_run
    return True


def _traceback(error: BaseException) -> list[str]:
    """Return the traceback from the first line of the program on."""
    found = error.__traceback__
    while found is not None and found.tb_frame.f_code.co_filename != FILE:
        found = found.tb_next
    return traceback.format_exception(type(error), error, found)
