"""Table of the walks: ``python -m tests.house.walks [-v] [WALK ...]``.

Compiled modules are switched off, because a trace does not see them. The rebalance depends on the
order in which threads run, so each walk runs ``RUNS`` times and the median counts.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import statistics

os.environ["KOHORT_PURE"] = "1"  # before kohort is imported

RUNS = 3
COLUMNS = ("files", "functions", "threads", "reentries", "borders")


def main() -> None:
    """Run the walks and print a table, or JSON."""
    from kohort.testing import Cluster
    from tests.house.walks._runs import WALKS
    from tests.house.walks._trace import figures

    parser = argparse.ArgumentParser(prog="python -m tests.house.walks")
    parser.add_argument("walks", nargs="*", metavar="WALK", help=", ".join(WALKS))
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("-v", action="store_true", help="print the functions in order of time")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    table = {}
    for name in arguments.walks or WALKS:
        walk = WALKS[name]
        found = []
        for _ in range(RUNS):
            with Cluster(topics={"records": 1, "two": 2}) as cluster:
                entries = walk.run(cluster)
            found.append(figures(entries, walk.without, every_function=walk.every_function))
        table[name] = {
            column: int(statistics.median(getattr(each, column) for each in found))
            for column in COLUMNS
        }
        if arguments.v:
            for entry in found[-1].order:
                print(f"    [{entry.thread % 10_000}] {entry.file} {entry.function}")
    if arguments.json:
        print(json.dumps(table))
        return
    print(f"{'walk':10}" + "".join(f"{column:>12}" for column in COLUMNS))
    for name, row in table.items():
        print(f"{name:10}" + "".join(f"{row[column]:>12}" for column in COLUMNS))


if __name__ == "__main__":
    main()
