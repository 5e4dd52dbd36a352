"""A Spark session for the tests that need one, and fixtures for all others."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kohort.spark_connector._consumers import close_idle
from kohort.spark_connector.member import _shutdown
from kohort.testing import Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "768m",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "ERROR",
}


@pytest.fixture(autouse=True)
def stopped_members() -> Iterator[None]:
    """Fail a test that leaves a member running, whose handler of SIGTERM would disturb others."""
    yield
    assert not _shutdown._leavers, "stop the query"


@pytest.fixture(scope="session")
def event_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of Spark's event logs."""
    return tmp_path_factory.mktemp("events")


@pytest.fixture(scope="session")
def kerberos_config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The configuration of Kerberos that the workers read. It does not exist at first."""
    return tmp_path_factory.mktemp("kerberos") / "krb5.conf"


@pytest.fixture(scope="session")
def spark(
    tmp_path_factory: pytest.TempPathFactory, event_log: Path, kerberos_config: Path
) -> Iterator[SparkSession]:
    """A session with two task slots, whose workers run this Python and find this source."""
    from pyspark.sql import SparkSession

    with pytest.MonkeyPatch.context() as patch:
        # Without these the workers take any python3 on the PATH, which has no kohort.
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("PYSPARK_DRIVER_PYTHON", sys.executable)
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        builder = SparkSession.builder.master("local[2]").appName("kohort tests")
        builder = builder.config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("spark")))
        builder = builder.config("spark.eventLog.enabled", "true")
        builder = builder.config("spark.eventLog.dir", event_log.as_uri())
        builder = builder.config("spark.eventLog.compress", "false")
        for name, value in SETTINGS.items():
            builder = builder.config(name, value)
        with pytest.MonkeyPatch.context() as starting:
            starting.setenv("KRB5_CONFIG", str(kerberos_config))
            session = builder.getOrCreate()  # the JVM passes its environment to the workers
        try:
            yield session
        finally:
            session.stop()


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A cluster with the empty topic ``orders`` of three partitions. Idle consumers are closed."""
    with Cluster(topics={"orders": 3}) as running:
        yield running
        close_idle()
