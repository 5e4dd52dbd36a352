"""A cluster in a separate process, until it is interrupted."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from kohort.protocol.messages import MetadataRequest
from tests.broker.raw import Raw

SCRIPT = """
from kohort.testing import serve
raise SystemExit(serve(port=0, brokers=2, topics={"orders": 6}, auto_create_topics=False))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_says_where_it_listens_and_ends_when_told_to(number: signal.Signals) -> None:
    process = subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, text=True)
    with process:
        try:
            assert process.stdout is not None
            servers = process.stdout.readline().removeprefix("listening on ").strip()
            assert len(servers.split(",")) == 2
            with Raw(servers, 2) as raw:
                topics = raw.ask(MetadataRequest(topics=None), 12).topics
                assert [(topic.name, len(topic.partitions)) for topic in topics] == [("orders", 6)]
            process.send_signal(number)
            assert process.wait(60) == 0
        finally:
            process.kill()
