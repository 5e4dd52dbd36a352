"""Commands of a user who lacks a right name the right and its resource, and end with 1."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from kohort import KafkaAdminClient, KafkaConsumer, TopicPartition
from kohort.admin import ConfigResource
from kohort.cli import main
from kohort.config.properties import read_properties
from kohort.errors import ClusterAuthorizationFailedError
from kohort.testing import Authorization, Cluster, Security
from tests.cli.test_letters import Input
from tests.conformance.conftest import port_of
from tests.conformance.rights import Right, Side
from tests.conformance.wire import Connection
from tests.support.secure_kafka import SecureKafka, password_of

USER = "bob"
ORDERS = TopicPartition("orders", 0)
LETTERS = "kohort-dead-letters"
_KINDS = {"TOPIC": "topic", "GROUP": "group"}
_IMPLIES_DESCRIBE = ("READ", "WRITE", "DELETE")


def topic(name: str, operation: str) -> Right:
    return Right("TOPIC", name, operation)


def group(name: str, operation: str) -> Right:
    return Right("GROUP", name, operation)


READ = topic("orders", "READ")
SEEN = [group("g", "DESCRIBE"), READ]


class Case(NamedTuple):
    """A command, the rights that it needs, and those that it only reports as missing."""

    words: str
    needed: list[Right]


CASES = [
    Case("groups delete h", [group("h", "DELETE")]),
    Case("groups configure g", [group("g", "DESCRIBE_CONFIGS")]),
    Case("topics orders", [topic("orders", "DESCRIBE"), topic("orders", "DESCRIBE_CONFIGS")]),
    Case("produce orders", [topic("orders", "WRITE")]),
    Case("tail orders", [READ]),
    Case("dead-letters dead", [topic("dead", "READ"), group(LETTERS, "DESCRIBE")]),
    Case("groups reset g --to latest --topic orders --execute", [group("g", "READ"), READ]),
    Case("groups delete-offsets g --topic orders", [group("g", "DELETE"), READ]),
    Case("groups reset q --to latest --topic orders --execute", [group("q", "READ"), READ]),
    Case("groups delete-offsets q --topic orders", [group("q", "DELETE"), READ]),
    Case("groups configure g --config consumer.session.timeout.ms=50000",
         [group("g", "ALTER_CONFIGS")]),
    Case("groups history g", [topic("__consumer_offsets", "READ")]),
    Case("topics create fresh", [topic("fresh", "CREATE")]),
    Case("topics delete orders", [topic("orders", "DELETE")]),
    Case("tail orders --from -5m", [READ]),
    Case("copy orders --to {folder}/orders.arrow", [READ]),
    Case("dead-letters dead --replay",
         [topic("dead", "READ"), topic("orders", "WRITE"), group(LETTERS, "READ")]),
]  # fmt: skip


class Place(NamedTuple):
    """A cluster with rights, and the file of the options of its user."""

    side: Side
    servers: str
    file: Path


@contextmanager
def prepared(plain: str, sasl: str, folder: Path) -> Iterator[Place]:
    """Fill a cluster with records, dead letters, the groups g and h, and the share group q."""
    file = folder / "bob.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config="
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'username="{USER}" password="{password_of(USER)}";\n'
    )
    headers = [
        ("topic", "orders"), ("partition", "0"), ("offset", "1"), ("group", "g"),
        ("delivery.count", "1"), ("message", "broken"),
    ]  # fmt: skip
    words = [f"--header=__dlq.errors.{name}={value}" for name, value in headers]
    for name, more in (("orders", []), ("dead", words)):
        lines = folder / name
        lines.write_text("one\n")
        main(["topics", "create", name, "--bootstrap-servers", plain])
        assert main(["produce", name, str(lines), "--bootstrap-servers", plain, *more]) == 0
    for name in ("g", "h"):
        with KafkaConsumer(
            bootstrap_servers=plain, group_id=name, enable_auto_commit=False
        ) as consumer:
            consumer.assign([ORDERS])
            consumer.commit({ORDERS: 0})
    with KafkaAdminClient(bootstrap_servers=plain) as client:
        client.alter_share_group_offsets("q", {ORDERS: 0}).raise_errors()
    admin = Connection("127.0.0.1", port_of(plain))
    try:
        yield Place(Side(admin, _no_connection, port_of(sasl)), sasl, file)
    finally:
        admin.close()


def _no_connection() -> Connection:
    raise AssertionError("no probe runs here")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    security = Security(
        listeners=["PLAINTEXT", "SASL_PLAINTEXT"],
        users={USER: password_of(USER)},
        authorization=Authorization(super_users=["User:ANONYMOUS"]),
    )
    with Cluster(security=security) as cluster:
        plain, sasl = cluster.bootstrap_servers, cluster.bootstrap_servers_of("SASL_PLAINTEXT")
        with prepared(plain, sasl, tmp_path_factory.mktemp("rights")) as place:
            yield place


def run(place: Place, words: str, folder: Path) -> int:
    """Run a command as the user."""
    arguments = words.format(folder=folder).split()
    return main([*arguments, "--bootstrap-servers", place.servers, "--properties", str(place.file)])


@pytest.fixture(autouse=True)
def standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Input(b"a\n"))


def check(place: Place, case: Case, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Run a command without each right, and with DESCRIBE in the place of each right."""
    for right in case.needed:
        others = [each for each in case.needed if each != right]
        weaker = [right._replace(operation="DESCRIBE")]
        for given, operation in (
            ([], f"({right.operation}|DESCRIBE\\w*)"),
            (weaker, right.operation),
        ):
            if given and right.operation not in _IMPLIES_DESCRIBE:
                continue
            place.side.grant([*others, *given])
            assert run(place, case.words, folder) == 1
            [line] = capsys.readouterr().err.splitlines()
            assert re.match(f"kohort {case.words.split()[0]}: ", line)
            assert re.search(
                rf"(bob|the user) needs {operation} on {_KINDS[right.kind]} '{right.name}'", line
            ), (given, line)
            assert "poll()" not in line and "retries" not in line


def end_of(place: Place) -> int:
    """Return the end offset of the topic orders, which the user may read."""
    with KafkaConsumer.from_properties(
        {**read_properties(place.file.read_text()), "bootstrap.servers": place.servers}
    ) as consumer:
        return consumer.end_offsets([ORDERS])[ORDERS]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.words)
@pytest.mark.cases(6)
def test_command_names_the_missing_right(
    place: Place, case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check(place, case, tmp_path, capsys)


def test_replay_without_read_on_its_group_writes_nothing(place: Place, tmp_path: Path) -> None:
    rights = [topic("dead", "READ"), topic("orders", "WRITE"), topic("orders", "READ")]
    place.side.grant([*rights, group(LETTERS, "DESCRIBE")])
    before = end_of(place)
    assert run(place, "dead-letters dead --replay --again", tmp_path) == 1
    assert end_of(place) == before
    place.side.grant([*rights, group(LETTERS, "READ")])
    assert run(place, "dead-letters dead --replay --again", tmp_path) == 0
    assert end_of(place) == before + 1


@pytest.mark.real_kafka
@pytest.mark.long  # a secured Kafka and all commands
@pytest.mark.timeout(600)
def test_commands_name_the_missing_right_on_apache_kafka(
    secure_kafka: SecureKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = secure_kafka.bootstrap_servers
    sasl = secure_kafka.bootstrap_servers_of("SASL_PLAINTEXT")
    with prepared(plain, sasl, tmp_path) as place:
        for case in CASES:
            check(place, case, tmp_path, capsys)
        place.side.grant([])


def test_missing_right_on_the_cluster_names_its_user(place: Place) -> None:
    place.side.grant([])
    broker = ConfigResource("broker", "1")
    with KafkaAdminClient(
        bootstrap_servers=place.servers,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_plain_username=USER,
        sasl_plain_password=password_of(USER),
    ) as admin:
        [error] = admin.describe_configs([broker]).errors.values()
    assert isinstance(error, ClusterAuthorizationFailedError)
    assert "bob needs DESCRIBE_CONFIGS on the cluster. Grant it" in str(error)


# -- what a command shows without an error ---------------------------------------------------------


def test_lag_is_shown_without_its_age_when_read_is_missing(
    place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place.side.grant([group("g", "DESCRIBE"), topic("orders", "DESCRIBE")])
    assert run(place, "groups g", tmp_path) == 1
    shown = capsys.readouterr()
    assert re.search(r"lag [1-9], behind -", shown.out) and "(no-read)" in shown.out
    assert shown.err == (
        "kohort groups: g: the age of records is unknown, because this user needs READ on topic "
        "'orders'\n"
    )
    assert run(place, "top g --count 1 --interval 0.01 --json", tmp_path) == 1
    [row] = json.loads(capsys.readouterr().out)["groups"]
    assert row["state"] == "Empty"
    assert row["error"].endswith("this user needs READ on topic 'orders'")


def test_lag_is_unknown_when_the_topics_may_not_be_described(
    place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place.side.grant([group("g", "DESCRIBE")])
    assert run(place, "groups g", tmp_path) == 0
    out = capsys.readouterr().out
    assert "lag -, behind -" in out
    assert "no offset of a topic that this user may describe" in out
    assert run(place, "groups g --fail-above 5", tmp_path) == 1
    assert capsys.readouterr().err.startswith("kohort groups: g: the lag is unknown, because ")
    assert run(place, "groups", tmp_path) == 0
    assert re.search(r"^g +classic +Empty +0 +- +-$", capsys.readouterr().out, re.MULTILINE)


@pytest.mark.parametrize("words", ["topics orders", "topics orders --json"])
@pytest.mark.cases(2)
def test_topic_is_shown_without_the_right_to_its_settings(
    place: Place, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place.side.grant([topic("orders", "DESCRIBE")])
    assert run(place, words, tmp_path) == 1
    shown = capsys.readouterr()
    assert "orders" in shown.out
    assert "bob needs DESCRIBE_CONFIGS on topic 'orders'" in shown.err


@pytest.mark.parametrize("words", ["groups", "topics"])
def test_empty_list_says_that_rights_limit_it(
    place: Place, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place.side.grant([])
    assert run(place, words, tmp_path) == 0
    assert capsys.readouterr().out == f"no {words} that this user may describe\n"


@pytest.mark.parametrize("words", ["groups", "produce orders"])
def test_listener_that_wants_a_login_is_named(
    place: Place, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words.split(), "--bootstrap-servers", place.servers]) == 1
    assert "wants a login: set security_protocol to SASL_PLAINTEXT" in capsys.readouterr().err
