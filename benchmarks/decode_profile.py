"""Time of a record object and of a row of a table, by the lines of the decoder.

    python -m benchmarks.decode_profile [--seconds 5] [--lines 20]

Plain batches of 100 B records are read repeatedly as record objects, as Arrow tables and as column
views, while ``perf`` takes samples. The compiled modules are built once more for that, in a
separate folder, with the lines of their source in them. Shares are of the samples in user mode.
Nanoseconds are shares of the time of a record. Inlined C is listed under ``_native.h``, and work of
Python under its function. Without perf, cProfile measures the functions of the plain modules.
"""

from __future__ import annotations

import argparse
import cProfile
import linecache
import os
import pstats
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from kohort.records import NewRecord, RecordSet, TablePlan, encode_batch, to_arrow, to_columns

ROOT = Path(__file__).parents[1]
OUTPUTS = ("records", "arrow", "columns")
PER_BATCH, BATCHES = 140, 300  # batches of 16 KiB, as a producer creates
PER_POLL = 500
SOURCES = ("_record_decoder.py", "_columns.py", "_native.h")


K = TypeVar("K")


def batches() -> bytes:
    """Return the batches of one fetch, 4.8 MB."""
    return b"".join(
        encode_batch(
            [NewRecord(1_700_000_000_000 + n, None, b"%0100d" % n) for n in range(PER_BATCH)],
            base_offset=number * PER_BATCH,
        )
        for number in range(BATCHES)
    )


def read(data: bytes, output: str) -> int:
    """Read everything in the form that a consumer returns, with every field of the objects."""
    found = RecordSet(data, topic="topic", partition=0)
    count = 0
    while not found.done:
        if output == "records":
            found.read(PER_POLL)
            for record in found.records:
                _ = record.offset, record.timestamp, record.key, record.value
            count += len(found.records)
        else:
            found.add_rows_to(plan := TablePlan())
            count += to_arrow(plan).num_rows if output == "arrow" else len(to_columns(plan)[0])
    return count


def child(output: str) -> None:
    """Print a line when the loop begins. After a line of input, print records a second and exit."""
    data = batches()
    read(data, output)
    print("ready", flush=True)
    os.set_blocking(sys.stdin.fileno(), False)
    began, count = time.thread_time(), 0
    while not sys.stdin.buffer.read():
        count += read(data, output)
    print((time.thread_time() - began) / count * 1e9, flush=True)


def built(folder: Path) -> Path:
    """Return a copy of the package with line numbers in its compiled modules."""
    for name in ("kohort", "benchmarks", "pyspark_kohort", "pytest_kohort"):
        ignored = shutil.ignore_patterns("*.so", "__pycache__", "results")
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, folder)
    environment = {**os.environ, "KOHORT_LINES": "1", "KOHORT_REQUIRE_EXTENSIONS": "1"}
    environment["CFLAGS"] = f"{sysconfig.get_config_var('CFLAGS') or '-O3'} -g"
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    return folder


def sampled(
    package: Path, output: str, seconds: float
) -> tuple[float, dict[tuple[str, str], float]]:
    """Return the nanoseconds of a record, and the share of each (function, line)."""
    samples = package / f"{output}.perf"
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.decode_profile", "--child", output],
        cwd=package,
        env={**os.environ, "PYTHONPATH": str(package)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        record = ["perf", "record", "-q", "-e", "cpu-clock:u", "-F", "5000", "-o", str(samples)]
        subprocess.run([*record, "-p", str(process.pid), "sleep", str(seconds)], check=True)
        said, _ = process.communicate("enough\n")
    report = ["perf", "report", "-i", str(samples), "--stdio", "-q", "--field-separator=|"]
    found = subprocess.run(
        [*report, "--sort=symbol,srcline"], check=True, capture_output=True, text=True
    ).stdout
    shares: dict[tuple[str, str], float] = defaultdict(float)
    for line in found.splitlines():
        share, _, rest = line.partition("|")
        if not share.strip():
            continue
        symbol, _, place = rest.partition("|")
        symbol = re.sub(r"__pyx_f_\w+?_c_|\.(constprop|isra|part)\.\d+", "", symbol.split("]")[-1])
        symbol, name = symbol.strip(), place.partition("|")[0].strip()
        inside = name.rpartition(":")[0] in SOURCES
        shares[symbol, name if inside else ""] += float(share.strip(" %")) / 100
    return float(said), shares


def table(output: str, cost: float, shares: dict[tuple[str, str], float], lines: int) -> str:
    """Return the table as Markdown."""
    out = [f"\n{output}: {cost:.1f} ns a record\n", "| share | ns | function | line | |"]
    out.append("| ---: | ---: | --- | --- | --- |")
    for (symbol, place), share in largest(shares)[:lines]:
        source = ""
        if place:
            name, _, number = place.rpartition(":")
            path = ROOT / "kohort" / "records" / name
            source = f"`{linecache.getline(str(path), int(number)).strip()}`"
        out.append(f"| {share:.1%} | {share * cost:.1f} | {symbol} | {place} | {source} |")
    rest = sum(share for _, share in largest(shares)[lines:])
    out.append(f"| {rest:.1%} | {rest * cost:.1f} | all else | | |")
    return "\n".join(out)


def largest(shares: dict[K, float]) -> list[tuple[K, float]]:
    """Return the largest first."""
    return sorted(shares.items(), key=lambda each: -each[1])


def summary(cost: float, shares: dict[tuple[str, str], float]) -> str:
    """Return nanoseconds of the functions in compiled modules, of Python and of the libraries."""
    compiled = {symbol for symbol, place in shares if place}
    parts: dict[str, float] = defaultdict(float)
    for (symbol, _), share in shares.items():
        parts[f"{symbol}()" if symbol in compiled else "Python and libraries"] += share
    figures = [f"{name} {share * cost:.1f}" for name, share in largest(parts) if share > 0.01]
    return f"In ns: {', '.join(figures)}."


def functions(output: str, seconds: float) -> None:
    """Profile the plain modules with cProfile and print the functions."""
    data = batches()
    profiler = cProfile.Profile()
    until = time.monotonic() + seconds
    profiled: Callable[[bytes, str], int] = read
    while time.monotonic() < until:
        profiler.runcall(profiled, data, output)
    print(f"\n{output}, plain modules, by cProfile:")
    pstats.Stats(profiler).sort_stats("tottime").print_stats(12)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--seconds", type=float, default=5.0, help="seconds of sampling for each output"
    )
    parser.add_argument("--lines", type=int, default=20, help="lines in a table")
    parser.add_argument("--child", choices=OUTPUTS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args.child)
    elif shutil.which("perf") is None:
        for output in OUTPUTS:
            functions(output, args.seconds)
    else:
        with tempfile.TemporaryDirectory() as folder:
            package = built(Path(folder))
            for output in OUTPUTS:
                cost, shares = sampled(package, output, args.seconds)
                print(table(output, cost, shares, args.lines))
                print(f"\n{summary(cost, shares)}", flush=True)


if __name__ == "__main__":
    main()
