"""Everything that a consumer leaves behind: logs, errors with local variables, and reports."""

from __future__ import annotations

import copy
import os
import pickle
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kohort import KafkaConsumer
from kohort.errors import KafkaError
from kohort.testing import Cluster
from tests.support.leaks import error_text

COUNT = 10
"""Records that read() waits for."""


def read(consumer: KafkaConsumer) -> None:
    """Poll until COUNT records came."""
    found = 0
    deadline = time.monotonic() + 20
    while found < COUNT and time.monotonic() < deadline:
        found += sum(map(len, consumer.poll(timeout_ms=200).values()))
    assert found == COUNT


def traces(
    caplog: pytest.LogCaptureFixture,
    make: Callable[[], KafkaConsumer],
    *clusters: Cluster,
    use: Callable[[KafkaConsumer], None] = read,
    raises: type[KafkaError] | None = None,
) -> str:
    """Use a consumer, which may have to raise, and return all texts of it, of logs and clusters."""
    texts = []
    with make() as consumer:
        if raises is None:
            use(consumer)
        else:
            with pytest.raises(raises) as raised:
                use(consumer)
            texts.append(told_by(raised.value))
        texts += [reports(consumer), *(text for each in clusters for text in shown_by(each))]
    return "\n".join([*texts, caplog.text, environment()])


def reports(consumer: object) -> str:
    """Return all texts that a consumer gives about itself, and that copies of its parts have."""
    found = [repr(consumer), str(consumer), repr(vars(consumer)), repr(consumer.metrics())]  # type: ignore[attr-defined]
    explained = consumer.explain()  # type: ignore[attr-defined]
    found += [repr(explained), str(explained), repr(explained.as_dict()), copied(explained)]
    config = vars(consumer)["_config"]
    found += [repr(config), copied(consumer), copied(config), copied(config.security)]
    return "\n".join(found)


def copied(thing: object) -> str:
    """Return what pickling and copying give, or the text of the error."""
    found = []
    for way in (pickle.dumps, copy.copy, copy.deepcopy):
        try:
            made = way(thing)
        except Exception as error:
            found.append(error_text(error))
        else:
            found.append(made.decode("latin-1") if isinstance(made, bytes) else repr(made))
    return "\n".join(found)


def told_by(error: BaseException) -> str:
    """Return all that an error tells, pickled and copied too."""
    return f"{error_text(error)}\n{copied(error)}"


def shown_by(cluster: Cluster) -> list[str]:
    """Return what the cluster says of itself and of the requests that it got."""
    return [repr(cluster), str(cluster), repr(cluster.requests)]


def environment() -> str:
    """Return the environment and the arguments of this process, which others may read."""
    arguments = Path("/proc/self/cmdline")
    shown = arguments.read_text(errors="replace") if arguments.exists() else ""
    return "\n".join([*os.environ.values(), shown])
