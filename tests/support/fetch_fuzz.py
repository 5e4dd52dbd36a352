"""Mutated fetch responses, by seed, on both decoders.

    python -m tests.support.fetch_fuzz [--cases 1000000] [--seconds 1500] [--seed 0] [--start 0]

A case is a fetch response of any version in use, with an error in its frame or in its batches
(``batch_mutation.py``). It is read as a consumer reads it: by the protocol layer, then by
``read_answers()``. The result is read once as record objects and once as a table, of Arrow's or of
views. The compiled modules and the plain ones both read it. The rules are:

* Only typed errors are raised, and the same ones with both modules.
* The rows of a table are the records.
* No case takes over a second of CPU time.
* No allocation is larger than 8 times the frame and 2 MB. A batch of zstd may have runs, which
  are 128 KiB in four bytes.
* The peak of all allocations is at most three times that. It covers the decompressed data, a
  decoder's window, and the rows or records.

Cases run in separate processes, in which every malloc() is counted (``heap.py``).

A failure prints the case, as a line for ``tests/data/fetch_regressions.json``, and the command that
repeats it. It also does if the process crashes.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kohort.errors import DataError, MessageDecodeError
from kohort.fetcher._errors import Failure
from kohort.fetcher.buffer._completed import CompletedFetch, DecodeOptions
from kohort.fetcher.buffer._memory import FetchMemory
from kohort.fetcher.requests._request import FetchResult, partitions_of, read_results
from kohort.protocol import decode_response
from kohort.protocol.messages import FetchResponse
from kohort.records import Record, TablePlan, to_arrow, to_columns
from kohort.types import TopicPartition
from tests.support.decoders import NAMES, replacements
from tests.support.fetch_cases import Case, case_of
from tests.support.heap import IS_SANITIZED, Heap, environment

MB = 1 << 20
LONGEST_S = 10.0 if IS_SANITIZED else 1.0
HUNG_S = 120.0
WARM_UP = 300
"""Cases that are read before measuring starts: they compile codecs and fill caches."""
REPORT = 20_000
ROOT = Path(__file__).parents[2]


class FuzzFailure(Exception):
    """A response broke a rule. The message ends with the command that repeats the case."""


@dataclass
class Tally:
    """Results of the cases, and the most that one took."""

    cases: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    largest: int = 0
    peak: int = 0

    def add(self, other: Tally) -> None:
        self.cases += other.cases
        self.outcomes += other.outcomes
        self.seconds = max(self.seconds, other.seconds)
        self.largest = max(self.largest, other.largest)
        self.peak = max(self.peak, other.peak)


class _NoLease:
    def release(self) -> None:
        """Do nothing, because there is nothing to release."""


def read(case: Case, *, arrow: bool) -> list[Any]:
    """Return everything that is read from a case, in a form and an order that can be compared."""
    try:
        _, response = decode_response(FetchResponse, case.version, case.frame)
    except MessageDecodeError as error:
        return [("frame", str(error))]
    out: list[Any] = []
    records: dict[TopicPartition, list[Any]] = {}
    for tp, answer in _answers(case, response).items():
        if isinstance(answer, CompletedFetch):
            found = _taken(answer)
            records[tp] = [row for row in found if isinstance(row, tuple)]
            offsets = [case.offset - 1, *(row[0] for row in records[tp])]
            assert offsets == sorted({*offsets}), f"the offsets are {offsets}"
            end = answer.next_offset
            assert answer.error or answer.position == end, f"{answer.position} is not {end}"
            assert offsets[-1] < end, f"{offsets} go to {end}"
            out += [tp, answer.next_offset, *found, answer.position]
        else:
            said = answer.error if isinstance(answer, Failure) else answer
            out += [tp, type(answer).__name__, str(said)]
    rows: dict[TopicPartition, list[Any]] = {}
    for tp, answer in _answers(case, response).items():
        if isinstance(answer, CompletedFetch):
            found = _rows(answer, arrow=arrow)
            rows[tp] = [row for row in found if isinstance(row, tuple)]
            out += [tp, *found[len(rows[tp]) :]]
    assert rows == records, f"a table has {rows}, the records are {records}"
    return out


def _answers(case: Case, response: FetchResponse) -> dict[TopicPartition, FetchResult]:
    asks, lease = case.requests, FetchMemory(1 << 62).count(_NoLease(), 0)
    there = partitions_of(response, asks)
    return read_results(there, asks, options=DecodeOptions(), lease=lease, largest=1 << 20)


def _taken(fetch: CompletedFetch) -> list[Any]:
    """Return the records as tuples, followed by the error that stopped them."""
    out: list[Any] = []
    while not fetch.is_exhausted:
        out += map(_row, fetch.take(50))
        if fetch.error is not None:
            return [*out, _described(fetch.error)]
    return out


def _rows(fetch: CompletedFetch, *, arrow: bool) -> list[Any]:
    out: list[Any] = []
    while not fetch.is_exhausted:
        plan = TablePlan(40)
        if fetch.measure(plan) and arrow:
            batch = to_arrow(plan)
            batch.validate(full=True)
            columns = [column.to_pylist() for column in _numbers(batch)]
            out += map(_arrow_row, zip(*columns, strict=True))
        elif plan.rows:
            for part in to_columns(plan):
                out += map(_row, part)
        if fetch.error is not None:
            return [*out, _described(fetch.error)]
    return out


def _row(record: Record) -> tuple[Any, ...]:
    kind, time_ms = record.timestamp_type, record.timestamp
    return record.offset, time_ms, kind, record.key, record.value, record.headers


def _numbers(batch: Any) -> list[Any]:
    """Return the columns. Times are numbers, because not all times that Kafka can express are
    dates.
    """
    names = ("offset", "timestamp", "timestampType", "key", "value", "headers")
    columns = [batch.column(name) for name in names]
    columns[1] = columns[1].view("int64")
    return columns


def _arrow_row(row: tuple[Any, ...]) -> tuple[Any, ...]:
    offset, time_ms, kind, key, value, headers = row
    pairs = tuple((header["key"], header["value"]) for header in headers)
    return offset, -1 if time_ms is None else time_ms, kind, key, value, pairs


def _described(error: DataError) -> list[Any]:
    return [type(error).__name__, str(error), error.offset, error.next_offset, error.raw]


def outcome_of(read: list[Any]) -> str:
    """Return the result as one word."""
    if read and read[0][0] == "frame":
        return "no response"
    errors = [each[0] for each in read if isinstance(each, list)]
    if errors:
        return str(errors[0])
    return "failed" if "Failure" in read else "read"


def check(case: Case, number: int, heap: Heap, tally: Tally, longest_s: float = LONGEST_S) -> None:
    """Read a case with both modules. Raise AssertionError if one of the rules is broken."""
    bound = 8 * len(case.frame) + 2 * MB
    found: list[list[Any]] = []
    for name in NAMES:
        for module, attribute, value in replacements(name):
            setattr(module, attribute, value)
        began = time.thread_time()
        heap.begin()
        try:
            found.append(read(case, arrow=number % 2 == 0))
        finally:
            taken = heap.end()
        took = time.thread_time() - began
        tally.seconds = max(tally.seconds, took)
        tally.largest = max(tally.largest, taken.largest)
        tally.peak = max(tally.peak, taken.peak)
        assert took <= longest_s, f"{name}: it took {took:.1f} s"
        assert taken.largest <= bound, f"{name}: {taken.largest:,} bytes were allocated at once"
        assert taken.peak <= 3 * bound, f"{name}: {taken.peak:,} bytes were allocated"
    assert found[0] == found[1], f"the plain modules say {found[0]}, the compiled {found[1]}"
    tally.outcomes[outcome_of(found[0])] += 1
    tally.cases += 1


def vector(case: Case, why: str) -> str:
    """Return a line for the regressions."""
    named = {"why": why[:200], "version": case.version, "offset": case.offset}
    return json.dumps({**named, "frame": case.frame.hex()})


def work(
    count: int, seed: int, start: int, seconds: float, longest_s: float, status: Path
) -> Tally:
    """Run cases in this process. ``status`` has the number of the current case."""
    heap, tally = Heap(), Tally()
    for number in range(WARM_UP):
        check(case_of(-1, number), number, _Unwatched(), Tally())
    deadline = time.monotonic() + seconds
    with status.open("wb", buffering=0) as file:
        for number in range(start, start + count):
            if number % 100 == 0:
                if time.monotonic() > deadline:
                    break
                faulthandler.dump_traceback_later(HUNG_S, exit=True)
                if (number - start) % REPORT == 0:
                    print(f"seed {seed}, at case {number:,}", file=sys.stderr, flush=True)
            os.pwrite(file.fileno(), number.to_bytes(8), 0)
            case = case_of(seed, number)
            try:
                check(case, number, heap, tally, longest_s)
            except Exception as error:
                why = str(error) if isinstance(error, AssertionError) else repr(error)
                raise FuzzFailure(f"{why[:2000]}\n{vector(case, why)}") from error
    faulthandler.cancel_dump_traceback_later()
    return tally


class _Unwatched(Heap):
    """Heap for cases that may take any amount of memory."""

    def end(self) -> Any:
        return super().end()._replace(peak=0, largest=0)


def run(
    cases: int,
    *,
    seed: int = 0,
    start: int = 0,
    seconds: float = 1e9,
    longest_s: float = LONGEST_S,
    jobs: int = 1,
) -> Tally:
    """Run ``cases`` cases, or as many as there is time for. Raise FuzzFailure at
    the first failure.
    """
    total = Tally()
    with tempfile.TemporaryDirectory() as folder:
        env = environment(Path(folder))
        env["PYTHONPATH"] = os.pathsep.join([str(ROOT), env.get("PYTHONPATH", "")])
        running: list[tuple[subprocess.Popen[str], Path]] = []
        each = -(-cases // jobs)
        for first in range(start, start + cases, each):
            status = Path(folder, f"{first}")
            count = min(each, start + cases - first)
            command = [sys.executable, "-X", "faulthandler", "-m", "tests.support.fetch_fuzz"]
            command += ["--worker", str(status), "--cases", str(count), "--seed", str(seed)]
            command += [
                "--start",
                str(first),
                "--seconds",
                str(seconds),
                "--longest",
                str(longest_s),
            ]
            process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
            running.append((process, status))
        try:
            for process, status in running:
                said, _ = process.communicate()
                if process.returncode:
                    at = int.from_bytes(status.read_bytes()) if status.exists() else start
                    again = f"--seed {seed} --start {at} --cases 1"
                    raise FuzzFailure(
                        f"{said or f'it ended with status {process.returncode}'}\n"
                        f"again: python -m tests.support.fetch_fuzz {again}"
                    )
                counted = json.loads(said)
                total.add(Tally(**{**counted, "outcomes": Counter(counted["outcomes"])}))
        finally:
            for process, _ in running:
                process.kill()
                process.wait()
                assert process.stdout is not None
                process.stdout.close()
    return total


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status, which is 1 if a response broke a rule."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.fetch_fuzz")
    parser.add_argument("--cases", "--requests", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=1500.0, help="time limit")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", "--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="number of processes")
    parser.add_argument(
        "--longest", type=float, default=LONGEST_S, help="longest CPU time of a case in seconds"
    )
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.worker:
        try:
            tally = work(args.cases, args.seed, args.start, args.seconds, args.longest, args.worker)
        except FuzzFailure as failure:
            print(failure)
            return 1
        print(json.dumps(vars(tally)))
        return 0
    began = time.monotonic()
    options = {"seed": args.seed, "start": args.start}
    try:
        tally = run(
            args.cases, seconds=args.seconds, longest_s=args.longest, jobs=args.jobs, **options
        )
    except FuzzFailure as failure:
        print(failure, file=sys.stderr)
        return 1
    outcomes = ", ".join(f"{count:,} {name}" for name, count in tally.outcomes.most_common())
    print(
        f"{tally.cases:,} responses in {time.monotonic() - began:.0f} s, nothing went wrong: "
        f"{outcomes}; the slowest took {1000 * tally.seconds:.0f} ms, the largest allocation "
        f"{tally.largest:,} bytes, the most at a time {tally.peak:,}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
