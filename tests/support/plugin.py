"""Hooks and fixtures around real components: skipped with a reason, or shown on failure."""

from __future__ import annotations

import functools
import gc
import os
import random
import re
import uuid
import zlib
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.jars import (
    KAFKA_VERSION,
    MavenError,
    jars,
    missing_kafka,
    missing_old_kafka,
    missing_spark_source,
)
from tests.support.kafka_server import KafkaServer
from tests.support.kerberos import Kdc
from tests.support.needs import missing_kerberos, missing_spark, required

if TYPE_CHECKING:
    from tests.support.secure_kafka import SecureKafka

NEEDS: dict[str, Callable[[], str | None]] = {
    "real_kafka": missing_kafka,
    "old_kafka": missing_old_kafka,
    "kerberos": missing_kerberos,
    "spark": missing_spark,
    "spark_source": missing_spark_source,
}
SLOW = (*NEEDS, "interop")
REAL = r"real_kafka|plainly_on"
"""Expression that the text of a file has if it has tests on Apache Kafka."""
REAL_TIMEOUT_S = 300
TESTS = Path(__file__).parents[1]
LISTED_SLOW = TESTS / "slow.txt"
LISTED_LONGEST = TESTS / "longest.txt"
PROVED = {
    "asyncio": "on asyncio",
    "trio": "on trio",
    "real_kafka": f"on Apache Kafka {KAFKA_VERSION}",
    "spark": "on Spark",
    "interop": "with other clients",
}
"""Marker or parameter of tests to what the last line says of them."""
SERVERS = pytest.StashKey[list[KafkaServer]]()
SLOW_FILES = pytest.StashKey[frozenset[Path]]()
"""Files that have tests on real components."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--shuffle``."""
    parser.addoption(
        "--shuffle",
        type=int,
        metavar="SEED",
        help="run the files, and the tests of each file, in a random order that SEED repeats",
    )


def pytest_report_header(config: pytest.Config) -> str | None:
    """Return the option that repeats the order."""
    seed = config.option.shuffle
    return None if seed is None else f"random order: --shuffle {seed}"


def pytest_configure(config: pytest.Config) -> None:
    """Create the register of servers."""
    config.stash[SERVERS] = []
    config.stash[SLOW_FILES] = frozenset()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return two processes more than there are CPUs: tests on real components often wait."""
    return (os.cpu_count() or 1) + 2


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Return a scheduler that gives one process all tests on Spark, and one all on Apache Kafka.

    Each process of a plain run that had such tests would start Apache Kafka, twice with TLS, and
    Spark.
    """
    if config.getvalue("dist") != "loadfile" or config.option.markexpr != "not long":
        return None
    from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

    scheduler = LoadFileScheduling(config, log)
    file_of = scheduler._split_scope
    scheduler._split_scope = lambda test: component(file_of(test))
    return scheduler


@functools.cache
def component(file: str) -> str:
    """Return what tests of this file need that is made once, or the file itself for nothing."""
    path = TESTS.parent / file
    text = path.read_text()
    if "mark.spark" in text:
        return "Spark"
    is_folder = any(path.is_relative_to(TESTS / folder) for folder in ("compat", "interop"))
    if is_folder or re.search(REAL, text):
        return "Kafka"
    return "source" if "tests.house._source" in text else file


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave the collected tests out of all garbage collections.

    They are a million objects, so each collection of a test would take tenths of a second.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        import hypothesis  # noqa: F401  # it looks for references to trio's random numbers

        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None, None, None]:
    """Put long files on real components first, then other long files, or shuffle all tests.

    So no process is left alone with a long file, and Kafka ends before the other half of the run.

    pytest itself groups the tests that share a parameter of a module or a session. It does so after
    the shuffling, which would otherwise start such fixtures many times.
    """
    mark(items)
    mark_repetitions(items)
    seed = config.option.shuffle
    if seed is not None:
        items[:] = shuffled(items, seed)
    yield
    if seed is None:
        config.stash[SLOW_FILES] = frozenset(item.path for item in items if is_slow(item))
        sort_by_length(items, config.stash[SLOW_FILES])


def is_slow(item: pytest.Item) -> bool:
    """True if the test needs real components."""
    return any(item.get_closest_marker(name) for name in SLOW)


def sort_by_length(items: list[pytest.Item], slow: frozenset[Path]) -> None:
    """Sort files by their kind and by tests/longest.txt, and put slow tests of a file first."""
    listed = [TESTS.parent / line for line in LISTED_LONGEST.read_text().split()]
    ranks = {path: rank for rank, path in enumerate(listed)}
    for path in dict.fromkeys(item.path for item in items):
        ranks.setdefault(path, len(ranks))
    items.sort(key=lambda item: (item.path not in slow, ranks[item.path], not is_slow(item)))


def mark(items: list[pytest.Item]) -> None:
    """Mark the tests that tests/slow.txt lists by file and name, and those of tests/interop."""
    listed = frozenset(LISTED_SLOW.read_text().split())
    for item in items:
        if item.nodeid.partition("[")[0] in listed:
            item.add_marker(pytest.mark.slow)
        if item.path.is_relative_to(TESTS / "interop"):
            item.add_marker(pytest.mark.interop)


def mark_repetitions(items: list[pytest.Item]) -> None:
    """Mark as long the cases of a test that a plain run leaves out.

    A plain run has one case of a test, or as many as its marker ``cases`` says. Cases on Apache
    Kafka come first. It needs no former version of Kafka, and no second event loop on real
    components.

    The names choose the cases, as if at random. So every process of a run, and every run, has the
    same ones, and both event loops have their share.
    """
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("old_kafka") or (
            is_slow(item) and "trio" in parts_of_name(item.nodeid)
        ):
            item.add_marker(pytest.mark.long)
        elif not item.get_closest_marker("long"):
            tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for cases in tests.values():
        cases.sort(key=rank_of_case)
        for case in cases[number_of_cases(cases) :]:
            case.add_marker(pytest.mark.long)


def parts_of_name(nodeid: str) -> list[str]:
    """Return the name of a test and its parameters."""
    return re.split(r"[\[\]-]", nodeid)


def number_of_cases(cases: list[pytest.Item]) -> int:
    """Return how many of the cases of a test a plain run has."""
    marker = next(cases[0].iter_markers("cases"), None)
    if marker is not None:
        return int(marker.args[0]) if marker.args else len(cases)
    return 1


def rank_of_case(case: pytest.Item) -> tuple[bool, int]:
    """Return what sorts the cases of a test: Apache Kafka first, and else as the names say."""
    return not case.get_closest_marker("real_kafka"), zlib.crc32(case.nodeid.encode())


def shuffled(items: list[pytest.Item], seed: int) -> list[pytest.Item]:
    """Return the tests in a random order. Those of one file stay together.

    Every process of a run has to compute the same order, so it depends on the seed alone.
    """
    rng = random.Random(seed)
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    chosen = list(files.values())
    rng.shuffle(chosen)
    for tests in chosen:
        rng.shuffle(tests)
    return [item for tests in chosen for item in tests]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fetch jars, where they are needed, before the time limit of any test starts."""
    for marker, missing in NEEDS.items():
        items = [item for item in session.items if item.get_closest_marker(marker)]
        if not items or session.config.option.collectonly:
            continue
        for item in items:
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(REAL_TIMEOUT_S))
        try:
            missing()
        except MavenError as error:
            raise pytest.UsageError(f"cannot fetch jars: {error}") from error


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what cannot run here, or fail it when everything has to run."""
    for marker, missing in NEEDS.items():
        if item.get_closest_marker(marker) and (reason := missing()) is not None:
            if required() and marker != "kerberos":
                pytest.fail(f"{reason} (KOHORT_REQUIRE_REAL is set)", pytrace=False)
            pytest.skip(reason)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Kill all nodes of Kafka when no later test of this process uses them. They cost CPU."""
    slow = item.config.stash[SLOW_FILES]
    if nextitem is not None and item.path in slow and nextitem.path not in slow:
        for server in item.config.stash[SERVERS]:
            server.kill()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put the end of Kafka's log into the report of a test that failed on it."""
    report = yield
    if report.failed and item.get_closest_marker("real_kafka"):
        for server in item.config.stash[SERVERS]:
            report.sections.append((f"Apache Kafka's log, {server.log}", server.log_tail()))
    return report


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in one line what was proved, and what was skipped and why."""
    if terminalreporter.config.option.collectonly:
        return
    reports = terminalreporter.stats.get("passed", ())
    counts = Counter(
        name
        for report in reports
        for name in {*report.keywords, *parts_of_name(report.nodeid)} & PROVED.keys()
    )
    proved = [f"{counts[name]:,} {where}" for name, where in PROVED.items() if counts[name]]
    skipped = Counter(_reason(report) for report in terminalreporter.stats.get("skipped", ()))
    reasons = [f"{count} ({reason})" for reason, count in skipped.most_common()]
    terminalreporter.section("proved and skipped")
    terminalreporter.line(
        f"{len(reports):,} tests passed; of them {', '.join(proved) or 'none on real components'}; "
        f"skipped: {', '.join(reasons) or 'none'}"
    )


def _reason(report: pytest.TestReport) -> str:
    """Return why a test was skipped."""
    assert isinstance(report.longrepr, tuple)
    return report.longrepr[2].removeprefix("Skipped: ")


@pytest.fixture(scope="session")
def start_kafka(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[Callable[..., KafkaServer]]:
    """Make and start a node of Apache Kafka; keyword ``properties`` adds to its configuration.

    ``features`` are finalized in these versions. With ``first`` the node is a second broker in the
    cluster of that one.
    """
    servers = pytestconfig.stash[SERVERS]

    def start(
        properties: dict[str, str] | None = None,
        features: dict[str, int] | None = None,
        first: KafkaServer | None = None,
    ) -> KafkaServer:
        folder: Path = tmp_path_factory.mktemp("kafka")
        server = KafkaServer(jars(), folder, properties, features, first)
        servers.append(server)
        server.start()
        return server

    yield start
    for server in servers:
        server.kill()


@pytest.fixture(scope="session")
def _shared_kafka(start_kafka: Callable[..., KafkaServer]) -> KafkaServer:
    return start_kafka()


@pytest.fixture
def kafka(_shared_kafka: KafkaServer) -> KafkaServer:
    """Running Apache Kafka, shared by the whole run. Tests use separate topics and groups."""
    _shared_kafka.start()
    return _shared_kafka


@pytest.fixture(scope="session")
def _shared_secure_kafka(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[SecureKafka]:
    # The tests of an installed wheel run without the packages that this needs.
    from tests.support.secure_kafka import SecureKafka

    server = SecureKafka(jars(), tmp_path_factory.mktemp("secure-kafka"))
    pytestconfig.stash[SERVERS].append(server)
    server.start()
    yield server
    server.kill()


@pytest.fixture
def secure_kafka(_shared_secure_kafka: SecureKafka) -> SecureKafka:
    """Running Apache Kafka with TLS, SASL and ACLs, shared by the whole run."""
    _shared_secure_kafka.start()
    return _shared_secure_kafka


@pytest.fixture(scope="session")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    """A Kerberos KDC, shared by the whole run; its user has a ticket."""
    kdc = Kdc(tmp_path_factory.mktemp("kdc"))
    kdc.start()
    yield kdc
    kdc.kill()


@pytest.fixture(scope="session")
def kerberos_kafka(
    kdc: Kdc, tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[SecureKafka]:
    """A ``secure_kafka`` whose listeners SASL_PLAINTEXT and SASL_SSL accept GSSAPI, too."""
    from tests.support.secure_kafka import SecureKafka

    server = SecureKafka(jars(), tmp_path_factory.mktemp("kerberos-kafka"), kdc=kdc)
    pytestconfig.stash[SERVERS].append(server)
    server.start()
    yield server
    server.kill()


@pytest.fixture
def unique() -> Callable[[str], str]:
    """Factory of names for topics and groups that no other test uses."""
    return lambda prefix: f"{prefix}-{uuid.uuid4().hex[:8]}"
