"""All output of a consumer: logs, errors with local variables, and reports."""

from __future__ import annotations

import copy
import os
import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kohort import KafkaConsumer
from kohort.errors import KafkaError
from kohort.testing import Cluster
from tests.support.leaks import error_text

COUNT = 10
"""Records that read() waits for."""


def read(consumer: KafkaConsumer) -> None:
    """Poll until COUNT records arrived."""
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
    """Use a consumer and return all its texts, the logs, and the texts of the clusters."""
    texts = []
    with make() as consumer:
        if raises is None:
            use(consumer)
        else:
            with pytest.raises(raises) as raised:
                use(consumer)
            texts.append(texts_of_error(raised.value))
        texts += [reports(consumer), *(text for each in clusters for text in shown_by(each))]
    return "\n".join([*texts, caplog.text, environment()])


def reports(consumer: Any) -> str:
    """Return all texts of a consumer about itself, and those of copies of its parts."""
    found = [repr(consumer), str(consumer), repr(vars(consumer)), repr(consumer.metrics())]
    explained = consumer.explain()
    found += [repr(explained), str(explained), repr(explained.as_dict()), copied(explained)]
    driver = consumer._driver
    config = driver.config
    found += [repr(driver), repr(vars(driver))]
    found += [repr(config), copied(consumer), copied(config), copied(config.security)]
    return "\n".join(found)


def copied(thing: object) -> str:
    """Return the results of pickling and copying, or the text of the error."""
    found = []
    for way in (pickle.dumps, copy.copy, copy.deepcopy):
        try:
            made = way(thing)
        except Exception as error:
            found.append(error_text(error))
        else:
            found.append(made.decode("latin-1") if isinstance(made, bytes) else repr(made))
    return "\n".join(found)


def texts_of_error(error: BaseException) -> str:
    """Return all texts of an error, also after pickling and copying."""
    return f"{error_text(error)}\n{copied(error)}"


def shown_by(cluster: Cluster) -> list[str]:
    """Return the texts of the cluster about itself and about the requests that it got."""
    return [repr(cluster), str(cluster), repr(cluster.requests)]


def environment() -> str:
    """Return the environment and the arguments of this process, which others may read."""
    arguments = Path("/proc/self/cmdline")
    shown = arguments.read_text(errors="replace") if arguments.exists() else ""
    return "\n".join([*os.environ.values(), shown])
