"""A separate Spark application: ``python application.py SETTINGS``, controlled by lines.

A line of standard input is a command. The application responds with a line of standard output. Both
are JSON. It exits when its input ends.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from kohort.spark_connector import stop
from tests.spark_connector.end_to_end.queries import Plan, start
from tests.spark_connector.end_to_end.waiting import DEADLINE_S


class Application:
    """The session and its queries. Each public method is a command."""

    def __init__(self, settings: dict[str, str]) -> None:
        builder = SparkSession.builder.appName("kohort application")
        for name, value in settings.items():
            builder = builder.config(name, value)
        self._spark = builder.getOrCreate()
        self._queries: dict[str, StreamingQuery] = {}

    def jvm(self) -> int:
        """Return the process id of the JVM."""
        jvm: Any = self._spark._jvm
        return int(jvm.java.lang.ProcessHandle.current().pid())

    def start(self, **plan: Any) -> None:
        """Start a query."""
        made = Plan(**plan)
        self._queries[made.name] = start(self._spark, made)

    def stop(self, name: str) -> None:
        """Stop a query in Spark's way."""
        self._queries[name].stop()

    def finish(self, name: str) -> None:
        """Stop a query in kohort's way: between two batches, with everything committed."""
        assert stop(self._queries[name], DEADLINE_S)

    def state(self, name: str) -> dict[str, Any]:
        """Return whether a query runs, and the error that ended it."""
        query = self._queries[name]
        failure = query.exception()
        return {"active": query.isActive, "failure": failure and str(failure)}

    def executors(self) -> dict[str, int]:
        """Return the number of tasks that each executor has run."""
        store = self._spark.sparkContext._jsc.sc().statusStore()
        found = store.executorList(False)
        each = [found.apply(index) for index in range(found.size())]
        return {one.id(): one.totalTasks() for one in each if one.id() != "driver"}

    def end(self) -> None:
        """Stop the session."""
        self._spark.stop()


def main(settings: str) -> None:
    application = Application(json.loads(settings))
    print(json.dumps({"result": application.jvm()}), flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        try:
            result = getattr(application, command.pop("do"))(**command)
            answer = {"result": result}
        except Exception:
            answer = {"error": traceback.format_exc()}
        print(json.dumps(answer), flush=True)
    os._exit(0)  # Spark's exit waits for queries. The JVM ends with this process.


if __name__ == "__main__":
    main(*sys.argv[1:])
