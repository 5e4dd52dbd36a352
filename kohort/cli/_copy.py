"""``kohort copy``: a range of a topic to a file of Parquet or Arrow, which a killed run resumes.

Theory of operation. Rows go to parts, complete files in a folder beside the target. A part is
written under a temporary name, closed, and then renamed. A file of JSON of the same number has the
topic, the bounds of the whole range, and the next offset of each partition. At the end the parts
become the target. One part is renamed, several are copied into one file, and then the folder is
removed.

Encoding costs as much as reading. A thread encodes one row group, while the next one is read.

Invariants:

1. The bounds are those of the first run. So two runs together copy what one would have copied.
2. Rows count only from the moment when their part has its name. Its JSON is there before, so that a
   run continues exactly after the rows that count.
3. An interrupt or an error completes the open part, unless rows could not be written to it. Such a
   part does not count.
4. The target appears complete, by a rename. If a run was killed after it, the next run removes the
   folder and has nothing to do.
5. At most two row groups are in memory. A group is not written before the former one is, so that
   their order in the file is that of reading.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from kohort.cli.common import _client, _range
from kohort.cli.common._client import CommandError
from kohort.cli.common._numbers import above_zero
from kohort.types import NamedTuple, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from kohort import RecordTable
    from kohort.reading import Bounds, ReadProgress

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

GROUP_BYTES = 32 << 20
"""Bytes of a row group of Parquet, or of a batch of Arrow."""
PAGE_BYTES = 256 << 10
"""Bytes of a page of Parquet. The encoder is faster if a page stays in the processor's cache."""
SHOWN_EVERY = 0.5
DESCRIPTION = """\
Copy the records of a topic to one file of Parquet or Arrow. The columns are those of poll_arrow().
The range ends at the end of the topic at the start, or at --until. No group is joined.

A run that is interrupted or killed leaves its parts in the folder FILE.parts. The same command then
goes on after them. No record is copied twice, and the range is still that of the first run.
"""


class State(NamedTuple):
    """Place of a copy after a part."""

    topic: str
    bounds: Mapping[TopicPartition, Bounds]
    """Bounds of the whole range."""
    next: Mapping[TopicPartition, int]
    """Next offset to copy of each partition."""
    rows: int


def add_to(commands: Commands) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "copy",
        help="copy records of a topic to a file of Parquet or Arrow",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("topic", metavar="TOPIC", help="topic to read")
    parser.add_argument(
        "--to",
        required=True,
        metavar="FILE",
        help="new file, whose name ends in .parquet or .arrow",
    )
    _range.add_to(parser)
    parser.add_argument(
        "--part-seconds",
        type=above_zero,
        default=60.0,
        metavar="SECONDS",
        help="time after which a part is complete: a killed run repeats no more (%(default)s)",
    )
    _client.add_to(parser, time_for="a response")
    parser.set_defaults(run=partial(run, parser))


def run(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    """Copy records. Return the exit status."""
    target = Path(options.to)
    if target.suffix not in FORMATS:
        parser.error("--to needs a name that ends in .parquet or .arrow")
    return _client.run("copy", partial(_run, options, target))


def _run(options: argparse.Namespace, target: Path) -> int:
    try:
        import pyarrow as pa
    except ImportError:
        raise CommandError("copy needs pyarrow: pip install 'kohort[arrow]'") from None
    with ThreadPoolExecutor(1) as thread:
        return _copy(pa, options, target, _Parts(target, thread))


def _copy(pa: ModuleType, options: argparse.Namespace, target: Path, parts: _Parts) -> int:
    state = parts.last()
    if target.exists():
        if not parts.folder.exists():
            raise CommandError(f"{target} exists. Remove it, or name another file")
        parts.remove()  # the former run was killed after its last step
        print(f"{target} is complete")
        return 0
    if state is None:
        bounds = _range.bounds_of(options)
        state = State(options.topic, bounds, {tp: at.start for tp, at in bounds.items()}, 0)
    elif state.topic != options.topic:
        raise CommandError(f"{parts.folder} has parts of topic {state.topic!r}. Remove the folder")
    else:
        print(f"going on after {state.rows:,} records", file=sys.stderr)
    try:
        with closing(_tables(options, state)) as tables:
            for table, place in tables:
                state = place
                if len(table) or not parts.files():
                    # pa.table() would import pandas, which takes longer than a small copy.
                    rows = pa.RecordBatchReader.from_stream(table).read_all()
                    parts.add(rows, place, options.part_seconds)
    finally:
        parts.close()
    parts.finish()
    print(f"{state.rows:,} records in {target}")
    return 0


def _tables(
    options: argparse.Namespace, state: State
) -> Generator[tuple[RecordTable, State], None, None]:
    """Yield tables, each with the place after it. The last one has no rows."""
    from kohort.reading import read_bounds

    left = {
        tp: bounds._replace(start=min(state.next[tp], bounds.end))
        for tp, bounds in state.bounds.items()
    }
    show = _Progress(state)
    try:
        with _range.reader_of(options, reset="none") as consumer:
            parts = read_bounds(consumer, left, show, options.timeout * 1000)
            for table in parts:
                positions = consumer.positions()
                places = {
                    tp: min(positions.get(tp, at), state.bounds[tp].end)
                    for tp, at in state.next.items()
                }
                state = state._replace(next=places, rows=state.rows + len(table))
                yield table, state
    finally:
        show.end()
    done = {tp: bounds.end for tp, bounds in state.bounds.items()}
    yield _no_rows(), state._replace(next=done)


def _no_rows() -> RecordTable:
    from kohort import RecordTable

    return RecordTable([])


class _Progress:
    """A line on the terminal that says how far the copy is."""

    def __init__(self, state: State) -> None:
        self._before = state.rows
        self._shown_at = time.monotonic()
        self._is_shown = sys.stderr.isatty()
        self._has_line = False

    def __call__(self, progress: ReadProgress) -> None:
        now = time.monotonic()
        if not self._is_shown or now - self._shown_at < SHOWN_EVERY:
            return
        self._shown_at = now
        share = progress.offsets / progress.total
        rows = self._before + progress.records
        print(f"\r{share:4.0%}  {rows:,} records", end="", file=sys.stderr, flush=True)
        self._has_line = True

    def end(self) -> None:
        """End the line."""
        if self._has_line:
            print(file=sys.stderr)


# -- files ------------------------------------------------------------------------------------


class _Parts:
    """The parts of a target, of which the last one may be open."""

    def __init__(self, target: Path, thread: ThreadPoolExecutor) -> None:
        self.folder = target.with_name(target.name + ".parts")
        self._target = target
        self._thread = thread
        self._written: Future[None] | None = None
        self._unfinished = self.folder / f"unfinished{target.suffix}"
        self._format: _Format = FORMATS[target.suffix]
        self._writer: Any = None
        self._is_changing = False
        self._opened_at = 0.0
        self._tables: list[pa.Table] = []
        self._bytes = 0
        self._state: State | None = None

    def files(self) -> list[Path]:
        """Return the complete parts, in order."""
        return sorted(self.folder.glob(f"[0-9]*{self._target.suffix}"))

    def last(self) -> State | None:
        """Return the place after the last complete part, or None without one."""
        files = self.files()
        return _read_state(files[-1].with_suffix(".json")) if files else None

    def add(self, table: pa.Table, state: State, seconds: float) -> None:
        """Append rows. Complete the part if it is older than this."""
        self._is_changing = True
        if self._writer is None:
            self.folder.mkdir(exist_ok=True)
            self._writer = self._format.writer(self._unfinished, table.schema)
            self._opened_at = time.monotonic()
        self._tables.append(table)
        self._bytes += table.nbytes
        self._state = state
        self._is_changing = False
        if self._bytes >= GROUP_BYTES:
            self._flush(self._writer)
        if time.monotonic() - self._opened_at >= seconds:
            self.close()

    def close(self) -> None:
        """Complete the open part, if there is one to which all rows were written."""
        writer, state = self._writer, self._state
        if writer is None or state is None or self._is_changing:
            return
        self._flush(writer)
        self._wait()
        self._writer = None
        writer.close()
        part = self.folder / f"{len(self.files()):06}{self._target.suffix}"
        part.with_suffix(".json").write_text(_text_of(state), encoding="utf-8")
        self._unfinished.rename(part)

    def _flush(self, writer: Any) -> None:
        if self._tables:
            self._wait()
            self._is_changing = True
            self._written = self._thread.submit(writer.write_table, _joined(self._tables))
            self._tables, self._bytes = [], 0
            self._is_changing = False

    def _wait(self) -> None:
        """Wait until all rows that were flushed are written. Raise the error of the writer.

        An interrupt here leaves the part as it is.
        """
        if self._written is not None:
            self._written.result()

    def finish(self) -> None:
        """Make the target of the parts, and remove their folder."""
        first, *others = self.files()
        if others:
            with self._format.writer(self._unfinished, self._format.schema(first)) as writer:
                for file in (first, *others):
                    for table in self._format.tables(file):
                        writer.write_table(table)
            self._unfinished.rename(self._target)
        else:
            first.rename(self._target)
        self.remove()

    def remove(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.folder)


def _joined(tables: list[pa.Table]) -> pa.Table:
    import pyarrow as pa

    return pa.concat_tables(tables)


def _text_of(state: State) -> str:
    partitions = {
        str(tp.partition): [bounds.start, bounds.end, state.next[tp]]
        for tp, bounds in state.bounds.items()
    }
    return json.dumps({"topic": state.topic, "rows": state.rows, "partitions": partitions})


def _read_state(file: Path) -> State:
    from kohort.reading import Bounds

    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        topic = str(found["topic"])
        places = {
            TopicPartition(topic, int(partition)): [int(each) for each in offsets]
            for partition, offsets in found["partitions"].items()
        }
        return State(
            topic,
            {tp: Bounds(start, end) for tp, (start, end, _) in places.items()},
            {tp: at for tp, (_, _, at) in places.items()},
            int(found["rows"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise CommandError(f"{file} is not of kohort copy: remove its folder. {error!r}") from error


class _Format(NamedTuple):
    """The functions of a file format."""

    writer: Callable[[Path, pa.Schema], Any]
    schema: Callable[[Path], pa.Schema]
    tables: Callable[[Path], Iterator[pa.Table]]
    """Parts of a file that fit into memory."""


def _parquet_writer(file: Path, schema: pa.Schema) -> Any:
    from pyarrow import parquet

    # Dictionaries of keys and values would cost time and grow past their limit.
    return parquet.ParquetWriter(file, schema, use_dictionary=["topic"], data_page_size=PAGE_BYTES)


def _parquet_schema(file: Path) -> pa.Schema:
    from pyarrow import parquet

    return parquet.read_schema(file)


def _parquet_tables(file: Path) -> Iterator[pa.Table]:
    from pyarrow import parquet

    with parquet.ParquetFile(file) as found:
        for group in range(found.num_row_groups):
            yield found.read_row_group(group)


def _arrow_writer(file: Path, schema: pa.Schema) -> Any:
    import pyarrow as pa

    return pa.ipc.new_file(file, schema)


def _arrow_schema(file: Path) -> pa.Schema:
    import pyarrow as pa

    with pa.memory_map(str(file)) as data:
        return pa.ipc.open_file(data).schema


def _arrow_tables(file: Path) -> Iterator[pa.Table]:
    import pyarrow as pa

    with pa.memory_map(str(file)) as data:
        found = pa.ipc.open_file(data)
        for number in range(found.num_record_batches):
            yield pa.Table.from_batches([found.get_batch(number)])


FORMATS = {
    ".parquet": _Format(_parquet_writer, _parquet_schema, _parquet_tables),
    ".arrow": _Format(_arrow_writer, _arrow_schema, _arrow_tables),
}
"""File formats by the end of the name."""
