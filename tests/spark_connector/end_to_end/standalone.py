"""A standalone Spark cluster on loopback from the pip package: a master and its workers."""

from __future__ import annotations

import re
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType

from tests.spark_connector.end_to_end import processes
from tests.spark_connector.end_to_end.applications import environment
from tests.spark_connector.end_to_end.waiting import wait_until
from tests.support.java_tools import RunningTool
from tests.support.net import free_ports

PACKAGE = "org.apache.spark.deploy"
HOST = "127.0.0.1"


def spark_home() -> Path:
    """Return the folder of pyspark. It has all of Spark except the scripts that start a cluster."""
    found = find_spec("pyspark")
    assert found is not None and found.submodule_search_locations
    return Path(found.submodule_search_locations[0])


class StandaloneCluster:
    """A master and its workers with one core each. They are ended when the ``with`` block ends."""

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self._folder = folder
        self._stack = ExitStack()
        (port,) = free_ports(1)
        self.master = f"spark://{HOST}:{port}"
        self._master = self._run("master.Master", "--port", port)
        self._workers: list[RunningTool] = []
        self._registered = 0
        for _ in range(workers):
            self.add_worker()

    def wait_ready(self) -> None:
        """Wait until the master knows all workers."""
        wait_until(lambda: self._count("Registering worker") == self._registered, explain=self._log)

    def add_worker(self) -> None:
        """Start one more worker, with its own address. Spark repeats slow tasks elsewhere."""
        self._registered += 1
        words = ["--port", 0, "-c", 1, "-m", "640m", self.master]
        host = f"127.0.0.{1 + self._registered}"
        self._workers.append(self._run("worker.Worker", *words, host=host))

    def executors(self) -> list[int]:
        """Return the processes of the executors."""
        return self._processes("--executor-id")

    def python_workers(self) -> list[int]:
        """Return the Python processes of the executors."""
        return self._processes("pyspark.daemon")

    def replace_worker(self) -> None:
        """Kill a worker with its executor, and start another one."""
        worker = self._workers.pop(0)
        processes.kill(*processes.descendants(worker.pid))
        worker.kill()
        self.add_worker()

    def kill_worker(self, executor: str) -> None:
        """Kill the worker that runs an executor, and the executor."""
        for worker in self._workers:
            for pid in processes.descendants(worker.pid):
                if re.search(rf"--executor-id {executor}\b", processes.command_line(pid)):
                    processes.kill(pid)
                    worker.kill()
                    return
        raise AssertionError(f"no worker runs executor {executor}")

    def __enter__(self) -> StandaloneCluster:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def _run(self, name: str, *args: object, host: str = HOST) -> RunningTool:
        program = str(spark_home() / "bin" / "spark-class")
        words = ["--host", host, "--webui-port", "0", *map(str, args)]
        variables = environment() | {
            "SPARK_HOME": str(spark_home()),
            "SPARK_WORKER_DIR": str(self._folder),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }
        tool = RunningTool(program, f"{PACKAGE}.{name}", *words, env=variables)
        self._stack.callback(tool.kill)
        return tool

    def _processes(self, word: str) -> list[int]:
        return [
            pid
            for worker in self._workers
            for pid in processes.descendants(worker.pid)
            if word in processes.command_line(pid)
        ]

    def _count(self, text: str) -> int:
        return sum(text in line for line in self._master.errors)

    def _log(self) -> str:
        return "\n".join(self._master.errors[-20:])
