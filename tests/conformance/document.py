"""Writer of docs/reference/conformance.md: ``python -m tests.conformance.document``."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

from tests.conformance.clusters import INITIAL_DELAY_MS, MAX_GROUP_SIZE, load_probes
from tests.conformance.known import KNOWN
from tests.conformance.probe import PROBES
from tests.conformance.rows import ROWS, SECTIONS, Row
from tests.conformance.wire import ANSWER_S
from tests.support.jars import KAFKA_VERSION
from tools.options_page import MAX_CELL

PATH = Path(__file__).parents[2] / "docs" / "reference" / "conformance.md"

_HEAD = """\
# Conformance: the in-process cluster compared with Apache Kafka

<!-- Written by `python -m tests.conformance.document`; a test compares it. -->

After this page you know how the cluster of `kohort.testing` differs from Apache Kafka {version}.
{count} probes compare the two. Each one is a test:

```sh
python -m pytest tests/conformance -k the_barrier
```

A probe is a small program that speaks the protocol over plain sockets. Many of its requests would
not come from a client library. It runs against one broker of each, and the test compares all fields
that it observes. The probes are in `tests/conformance/probes/`.

## 1. Method

- Both clusters have one broker and the same settings. Sessions may be short, the initial rebalance
  delay is {delay} ms, and groups have at most {size} members. The brokers create topics. There is
  no retention by time, and no limit for timestamps in the future.
- A few topics exist before both brokers restart, so that their leader has a later epoch. The other
  probes run after that.
- Probes of migration policies, and one without the consumer protocol, run on further pairs. So do
  probes of coordinators, on clusters of two brokers.
- Probes of section 7 run on a second pair, with seven listeners, the same users, certificates and
  key for tokens, and no ACLs. The comparison ignores the numbers of TLS alerts.
- Topics and groups have the same names in both. Numbered names replace ids (members, topics,
  producers, fetch sessions), ports and the present time, in the order of their appearance.
  A repeated id must therefore be the same one.
- The order of lists that Kafka takes out of hash tables does not matter. These are the members of a
  group, groups, topics and partitions of OffsetFetch, topics of Metadata and ListOffsets, and
  settings.
- Error messages are for humans. The comparison distinguishes null, an empty text and any other
  text. It compares messages about missing rights word by word.
- Every response must have its request's correlation id and decode without any byte left over.
  kohort's encoder must write it with the same bytes.
- The comparison of fetched batches covers the header, the checksum and each record.

A difference that is not in section 5 fails its test. A listed difference that does not occur fails
it, too. Each probe runs once, and the speed of the machine changes no observation:

- A time limit that has to end lasts a minute, and one that must not end lasts ten minutes.
- A time is compared with its lower bound only. A request returned early if its response came within
  {answer:.0f} seconds.
"""


def document() -> str:
    """Return the whole page."""
    load_probes()
    lines = (line for text in _lines() for line in _wrapped(text))
    return "\n".join([*lines, "", "Next: [architecture](../architecture.md)."]) + "\n"


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
        version=KAFKA_VERSION,
        count=len(PROBES),
        delay=INITIAL_DELAY_MS,
        size=MAX_GROUP_SIZE,
        answer=ANSWER_S,
    )
    yield from _section("2")
    yield from _section("3")
    yield "## 4. Requests of third-party clients"
    yield ""
    yield "`tests/conformance/test_captured_frames.py` sends the cluster recorded requests of seven"
    yield "clients to Apache Kafka. It sends every request whose API the cluster serves, byte for"
    yield "byte, and replaces only ids that the recorded cluster assigned. Each response has the"
    yield "correlation id and decodes in its version without any byte left over."
    yield ""
    yield "Requests of APIs that the cluster does not serve end the connection. No client sends"
    yield "them, because the cluster does not advertise them."
    yield ""
    yield "## 5. Known differences"
    yield ""
    for number, known in enumerate(KNOWN, 1):
        probes = ", ".join(f"`{name}`" for name in known.places)
        yield f"{number}. **{known.title}.** {known.why} Probes: {probes}."
    yield ""
    yield from _section("6")
    yield from _section("7")
    yield from _section("8")
    yield from _section("9", last=True)


def _section(number: str, *, last: bool = False) -> Iterator[str]:
    yield f"## {number}. {SECTIONS[number]}"
    yield ""
    yield "| row | behaviour | probes, or the reason for none |"
    yield "|---|---|---|"
    rows = [row for row in ROWS if row.number.split(".")[0] == number]
    for row in rows:
        yield f"| {row.number} | {row.says} | {_probes(row)} |"
    long = {row.number: names for row in rows if len(names := _names(row)) > MAX_CELL}
    for name, names in long.items():
        yield f"\nProbes of row {name}:\n\n```text"
        yield ", ".join(names).replace("`", "")
        yield "```"
    if not last:
        yield ""


def _names(row: Row) -> list[str]:
    return [f"`{probe.name}`" for probe in PROBES.values() if row.number in probe.rows]


def _probes(row: Row) -> str:
    names = _names(row)
    if len(names) > MAX_CELL:
        return f"{len(names)} probes, listed below"
    return ", ".join(names) if names else row.reason


if __name__ == "__main__":
    PATH.write_text(document())
