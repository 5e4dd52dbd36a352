"""Writes docs/conformance.md: ``python -m tests.conformance.document``."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

from kohort.broker.apis import SERVED
from tests.conformance.clusters import INITIAL_DELAY_MS, MAX_GROUP_SIZE, load_probes
from tests.conformance.known import KNOWN, UNSERVED
from tests.conformance.probe import PROBES
from tests.conformance.rows import ROWS, SECTIONS, Row
from tests.support.jars import KAFKA_VERSION

PATH = Path(__file__).parents[2] / "docs" / "conformance.md"
_FRAMES = Path(__file__).parents[1] / "data" / "wire_frames.json"

_HEAD = """\
# Conformance: the in-process cluster beside Apache Kafka

<!-- Written by `python -m tests.conformance.document`; a test holds it true. -->

The cluster in `kohort.testing` is held against Apache Kafka {version} by {count} probes. A probe is
a small program that speaks the protocol over plain sockets, with requests that no client
library would send; it runs against one broker of each, and what it sees is compared field by
field. They are in `tests/conformance/probes/`, and each one is a test:

```
python -m pytest tests/conformance -k the_barrier
```

## 1. How it is compared

- Both clusters have one broker and the same settings: short sessions, an initial rebalance delay
  of {delay} ms, groups of at most {size} members, topics made on demand, no retention by time, and
  no bound for timestamps in the future.
- A few topics are there before both brokers are stopped and started again, so that their leader
  has a later epoch; the other probes run after that.
- Probes of section 7 run on a second pair, with seven listeners, the same users, certificates and
  key for tokens, and no ACLs. Alerts of TLS are compared as alerts, whatever their number.
- Topics and groups have the same names in both. Ids (members, topics, producers, fetch sessions),
  ports and the present time are replaced by numbered names in the order in which they are seen, so
  an id that comes again has to be the same one.
- Lists that Kafka takes out of hash tables are compared without their order: the members of a
  group, groups, topics and partitions of OffsetFetch, topics of Metadata and ListOffsets, settings.
- Error messages are for humans: only whether there is one, an empty one or null is compared. The
  wording is compared for missing rights.
- Every answer must carry its request's correlation id, decode with no byte left over, and be
  written by kohort's own encoder with the same bytes.
- Batches that are fetched are compared by header, checksum, and record by record.

A difference that is not in section 5 fails its test, and so does one that is listed there and
does not show any more. Some probes go by the clock, so a difference counts when it is there three
times in a row.
"""


def document() -> str:
    """The whole page."""
    load_probes()
    return "\n".join(line for text in _lines() for line in _wrapped(text)) + "\n"


def _wrapped(text: str) -> list[str]:
    """Return the lines of a text at 100 columns. Tables and blank lines stay."""
    if text.startswith(("|", "#")) or not text.strip():
        return [text]
    bullet = re.match(r"(?:- |\d+\. )?", text)
    indent = " " * (bullet.end() if bullet else 0)
    return [
        line
        for part in text.split("\n")
        for line in textwrap.wrap(
            part, 100, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        )
        or [""]
    ]


def _lines() -> Iterator[str]:
    yield _HEAD.format(
        version=KAFKA_VERSION, count=len(PROBES), delay=INITIAL_DELAY_MS, size=MAX_GROUP_SIZE
    )
    yield from _section("2")
    yield from _section("3")
    yield "## 4. Requests of other people's clients"
    yield ""
    yield "`tests/conformance/test_captured_frames.py` sends the cluster requests recorded"
    yield "between seven clients and Apache Kafka, every one whose API is served, byte for byte but"
    yield "for ids that only the recorded cluster knew. Each gets an answer with its correlation id"
    yield "that decodes in its version with no byte left over."
    yield ""
    yield "The others end the connection, and no client sends them to the cluster, as it does not"
    yield "advertise them. What Kafka answers:"
    yield ""
    names = {frame["key"]: frame["api"] for frame in json.loads(_FRAMES.read_text())["frames"]}
    for key, answer in UNSERVED.items():
        if key not in SERVED:
            yield f"- {names[key]} ({key}): {answer}"
    yield ""
    yield "## 5. Known differences"
    yield ""
    for number, known in enumerate(KNOWN, 1):
        probes = ", ".join(f"`{name}`" for name in known.places)
        yield f"{number}. **{known.title}.** {known.why} Seen by {probes}."
    yield ""
    yield from _section("6")
    yield from _section("7", last=True)


def _section(number: str, *, last: bool = False) -> Iterator[str]:
    yield f"## {number}. {SECTIONS[number]}"
    yield ""
    yield "| row | what | probes, or why there is none |"
    yield "|---|---|---|"
    for row in ROWS:
        if row.number.split(".")[0] == number:
            yield f"| {row.number} | {row.says} | {_probes(row)} |"
    if not last:
        yield ""


def _probes(row: Row) -> str:
    names = [probe.name for probe in PROBES.values() if row.number in probe.rows]
    return ", ".join(f"`{name}`" for name in names) if names else row.reason


if __name__ == "__main__":
    PATH.write_text(document())
