"""franz-go's own tests of groups and transactions pass on the in-process cluster.

Its tests of the consumer protocol and of share groups skip themselves where the cluster does not
serve them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from kohort.testing import Cluster
from tests.interop.franz import SOURCE

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
PACKAGE = "github.com/twmb/franz-go/pkg/kgo"
RECORDS = 5000
CHAINS = (
    "range",
    "cooperative-sticky",
    "range/848",
    "sticky/848",
    "cooperative-sticky/static",
    "sticky/848/static",
)
"""Ways to share a group: a chain of three groups copies the records from topic to topic."""
TESTS = {
    "TestGroupETL": CHAINS,
    "TestTxnEtl": CHAINS,
    "Test848RegexBrokerResolves": (),
    "TestShareGroup": (),
    "TestShareGroupETL": (),
    "TestShareGroupAckOnClose": (),
    "TestShareGroupOffsetsAdmin": (),
    "TestConsumeRegexShareSkipsInternal": (),
}


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Program of franz-go's tests, built with the versions that go.sum pins."""
    if shutil.which("go") is None:
        pytest.skip("Go is not installed")
    built = tmp_path_factory.mktemp("franz-go") / "kgo.test"
    command = ["go", "test", "-mod=readonly", "-c", "-o", str(built), PACKAGE]
    done = subprocess.run(
        command, cwd=SOURCE, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stderr
    return built


@pytest.mark.parametrize("test", TESTS)
def test_its_own_test_passes(suite: Path, test: str) -> None:
    with Cluster(brokers=3) as cluster:
        done = subprocess.run(
            [str(suite), "-test.v", "-test.timeout=600s", f"-test.run=^{test}$"],
            env={
                **os.environ,
                "KGO_SEEDS": cluster.bootstrap_servers,
                "KGO_TEST_RECORDS": str(RECORDS),
                "KGO_LOG_LEVEL": "none",
            },
            cwd=suite.parent,
            capture_output=True,
            text=True,
            timeout=700,
            check=False,
        )
        served = {request.api for request in cluster.requests}
    outcomes = {name: outcome for outcome, name in re.findall(r"--- (\w+): (\S+)", done.stdout)}
    assert done.returncode == 0, done.stdout[-8000:]
    assert outcomes == dict.fromkeys([test, *(f"{test}/{way}" for way in TESTS[test])], "PASS")
    assert ("ShareGroupHeartbeat" if "Share" in test else "ConsumerGroupHeartbeat") in served
