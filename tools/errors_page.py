"""Writer of docs/reference/errors.md.

The docstrings of the errors and :mod:`kohort.cli._remedies` are the source.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kohort.cli._errors import ErrorSection, sections
from tools.markdown import wrapped
from tools.site.docstrings import to_markdown

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs" / "reference" / "errors.md"

_HEAD: Final = """\
# Errors

After this page you can decide what your program does after each error.

```python
from kohort import KafkaConsumer
from kohort.errors import ErrorCode, KafkaError
from kohort.testing import Cluster

with Cluster(topics={"orders": 1}) as cluster:
    cluster.fail("ConsumerGroupHeartbeat", ErrorCode.GROUP_AUTHORIZATION_FAILED)
    with KafkaConsumer(
        "orders", bootstrap_servers=cluster.bootstrap_servers, group_id="billing"
    ) as consumer:
        try:
            consumer.poll(timeout_ms=5000)
        except KafkaError as error:
            print(f"{type(error).__name__}, retriable: {error.retriable}")
            print(error)
```

- Every error that kohort raises is a `kohort.errors.KafkaError`. If `retriable` is True, the same
  call may succeed later.
- You may continue to poll after any error. No record is lost, because a position passes only
  records that the consumer returned.
- An error code of a broker is a `BrokerResponseError`. Each code has a class, and `code` is its
  number. [Error codes of brokers](error-codes.md) shows when the consumer raises it.
- For unreadable data, [`on_error`](../poison.md) decides instead.

A traceback ends with the name of a section below. In a terminal you get the same text:

```sh
kohort errors NoBrokersAvailable
kohort errors UNKNOWN_MEMBER_ID
kohort errors 25
```

`str(error)` is the message alone. The name of the section is a note of the exception, in
`error.__notes__`. `pytest.raises(match=...)` searches the notes too, so a pattern that ends with
`$` needs `(?m)`.

`python -m tools.generate` writes this page from the docstrings and `kohort/cli/_remedies.py`.
"""
_SPARK: Final = """\
These classes are not public. Spark shows their names and texts in its own exceptions, such as
`StreamingQueryException`.
"""
_NEXT: Final = "Next: [error codes of brokers](error-codes.md).\n"


def page() -> str:
    """Return the text of the page."""
    parts = [_HEAD]
    for group, found in itertools.groupby(sections(), key=lambda section: section.group):
        parts.append(f"## {group}\n")
        if group == "Spark":
            parts.append(_SPARK)
        for section in found:
            parts += _text(section)
    return "\n".join([*parts, _NEXT])


def _text(section: ErrorSection) -> Iterator[str]:
    yield f"### {section.name}\n"
    cause = to_markdown(section.cause, {})
    yield wrapped(f"**Cause.** {cause}") + "\n"
    remedy = to_markdown(section.remedy.text, {})
    yield wrapped(f"**Do.** {remedy}{_see(section.remedy.page)}") + "\n"
    facts = [f"Error code {section.code}."] if section.code else []
    if section.bases:
        facts.append(f"Subclass of {', '.join(f'`{name}`' for name in section.bases)}.")
    facts.append("Retriable." if section.is_retriable else "Not retriable.")
    yield wrapped(" ".join(facts)) + "\n"


def _see(page: str) -> str:
    """Return a link to a page, with the text of the heading that its anchor names."""
    if not page:
        return ""
    path, _, name = page.partition("#")
    text = (ROOT / "docs" / path).read_text(encoding="utf-8")
    title = text.partition("\n")[0].removeprefix("# ")
    if name:
        headings = re.findall(r"^##+ (.+)$", text, re.MULTILINE)
        title = next((each for each in headings if _anchor(each) == name), f"`{name}`")
    return f" See [{title}]({os.path.relpath(page, 'reference')})."


def _anchor(heading: str) -> str:
    """Return the anchor of a heading, as GitHub and Python-Markdown make it."""
    text = re.sub(r"[^\w\s-]", "", heading.replace("`", "")).strip().lower()
    return re.sub(r"[-\s]+", "-", text)
