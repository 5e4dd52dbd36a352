"""web-service.md, producer.md and kubernetes.md: services under uvicorn, and the manifest."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from kohort.testing import Cluster
from tests.health.kit import LIMIT, probe, request
from tests.support.net import free_ports
from tests.support.snippets import ENVIRONMENT, PYTHON, ROOT, replaced, run_elsewhere

KUBERNETES = (ROOT / "docs" / "kubernetes.md").read_text()
COMMIT_SECONDS = 5
"""Longest commit after the drain."""


@contextmanager
def service(
    folder: Path, servers: str, page: str = "web-service.md"
) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Run the service of the page, and yield its process and its port."""
    [code] = run_elsewhere(ROOT / "docs" / page)
    (folder / "service.py").write_text(replaced(code, {"localhost:9092": servers}))
    (port,) = free_ports(1)
    command = [*PYTHON, "-W", "ignore::DeprecationWarning", "-m", "uvicorn", "service:app"]
    with subprocess.Popen(
        [*command, "--port", str(port)],
        cwd=folder,
        env=ENVIRONMENT,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process, port
        finally:
            process.kill()


def until(seen: Any, wanted: Any) -> None:
    deadline = time.monotonic() + LIMIT
    while (found := seen()) != wanted:
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), LIMIT):
        return True
    return False


def test_the_service_starts_without_brokers_and_stops_with_a_commit(tmp_path: Path) -> None:
    for module in ("fastapi", "uvicorn"):
        pytest.importorskip(module)
    with Cluster(topics={"orders": 1}) as cluster:
        away = cluster.hang()
        with service(tmp_path, cluster.bootstrap_servers) as (process, port):
            until(lambda: listens(port) or process.poll(), True)
            status, health = probe(port, "/health/ready")
            assert (status, health["live"]) == (503, True)
            shown = f"no broker was reached yet; tried: {cluster.bootstrap_servers}"
            until(lambda: shown in str(probe(port, "/health/ready")[1]), True)
            assert probe(port, "/health/live")[0] == 200
            away.stop()
            cluster.produce("orders", ["tea", "tea", "milk"])
            until(lambda: probe(port, "/health/ready")[0], 200)
            until(lambda: request(port, "/sold")[2], b'{"tea":2,"milk":1}')
            assert b"kohort_records_consumed_total" in request(port, "/health/metrics")[2]
            process.send_signal(signal.SIGTERM)
            _, log = process.communicate(timeout=LIMIT)
        assert process.returncode in (0, -signal.SIGTERM), log
        assert "Application shutdown complete" in log and "Traceback" not in log
        assert [at.offset for at in cluster.committed("billing").values()] == [3]
        assert cluster.group("billing").members == ()


def test_a_service_with_a_producer_starts_without_brokers(tmp_path: Path) -> None:
    for module in ("aiokafka", "fastapi", "uvicorn"):
        pytest.importorskip(module)
    with Cluster(topics={"orders": 1, "bills": 1}) as cluster:
        away = cluster.hang()
        with service(tmp_path, cluster.bootstrap_servers, "producer.md") as (process, port):
            until(lambda: listens(port) or process.poll(), True)
            assert probe(port, "/health/live")[0] == 200
            away.stop()
            cluster.produce("orders", ["tea", "milk"])
            until(lambda: [each.value for each in cluster.records("bills")], [b"tea", b"milk"])
            process.send_signal(signal.SIGTERM)
            _, log = process.communicate(timeout=LIMIT)
        assert "Application shutdown complete" in log and "Traceback" not in log
        assert [at.offset for at in cluster.committed("billing").values()] == [2]


def number(pattern: str) -> float:
    """Return the one number of the page after this text."""
    [found] = re.findall(pattern + r"([\d.]+)", KUBERNETES)
    return float(found)


def test_the_grace_period_is_longer_than_the_drain_and_the_commit() -> None:
    drain = number("DRAIN = ")
    assert number("longer than the drain of ") == drain
    assert number("terminationGracePeriodSeconds: ") >= drain + COMMIT_SECONDS + 5


def test_the_probes_of_the_manifest_are_those_of_the_worker() -> None:
    port = number("containerPort: ")
    assert f"port: int = {port:g}" in KUBERNETES
    paths = dict(re.findall(r"(\w+)Probe:\n +httpGet: {path: (\S+), port: health}", KUBERNETES))
    assert paths == {"liveness": "/live", "readiness": "/ready"}
    timeouts = re.findall(r"timeoutSeconds: (\d+)", KUBERNETES)
    assert all(int(seconds) > 0.5 for seconds in timeouts) and len(timeouts) == 2
