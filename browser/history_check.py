"""Look at the page of a group's history in Chromium: ``python -m browser.history_check``.

A group on a cluster in this process gets the members, topics and commits of the page. It is opened
at the widths and schemes of :mod:`browser.site_check`. The faults are the same: messages of the
console, requests to other hosts, a page wider than the window, and faults of accessibility.
"""

from __future__ import annotations

import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from browser.site_check import SCHEMES, WIDTHS, SiteCheck, options, served, visit
from kohort import KafkaConsumer
from kohort.history import read_history, to_html
from kohort.testing import Cluster

TOPICS: Final = {"orders": 6, "payments-of-all-regions-and-currencies.v2": 3}
MEMBERS: Final = ("worker-1", "worker-of-a-deployment-5d4f8b7c9-x2x7q", "worker-3")
GROUP: Final = "billing-of-the-department-with-a-long-name"
MOMENTS: Final = 50


def page() -> str:
    """Return the page of a group whose members joined, committed and left."""
    with Cluster(topics=TOPICS) as cluster:
        for topic in TOPICS:
            cluster.produce(topic, ["x"] * 60)
        with ExitStack() as stack:
            consumers: list[KafkaConsumer[bytes, bytes]] = []

            def is_stable() -> bool:
                for consumer in consumers:
                    if consumer.poll(timeout_ms=0, max_records=2):
                        consumer.commit()
                group = cluster.group(GROUP)
                return group.is_stable and len(group.members) == len(consumers)

            for name in MEMBERS:
                consumer = KafkaConsumer(
                    *TOPICS,
                    bootstrap_servers=cluster.bootstrap_servers,
                    group_id=GROUP,
                    group_protocol="consumer",
                    client_id=name,
                    auto_offset_reset="earliest",
                    enable_auto_commit=False,
                )
                consumers.append(stack.enter_context(consumer))
                cluster.wait_until(is_stable, timeout=60)
        found = read_history(GROUP, moments=MOMENTS, bootstrap_servers=cluster.bootstrap_servers)
    return to_html(found)


def main(arguments: list[str]) -> int:
    """Look at the page. Return 1 if something is wrong."""
    args = options("python -m browser.history_check", __doc__).parse_args(arguments)
    with visit(args) as site, tempfile.TemporaryDirectory() as folder, served(Path(folder)) as own:
        (Path(folder) / "history.html").write_text(page(), encoding="utf-8")
        check = SiteCheck(site.browser, own, site.axe, site.pictures)
        for width in WIDTHS:
            for scheme in SCHEMES:
                check.look("history.html", width, scheme)
    print("\n".join([*check.faults, f"history page, {len(check.faults)} faults"]))
    return 1 if check.faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
