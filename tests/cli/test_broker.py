"""``kohort broker`` as a person runs it: from a shell, until it is interrupted."""

from __future__ import annotations

import json
import re
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import kohort
from kohort import KafkaConsumer
from kohort.cli import main
from kohort.protocol.messages import MetadataRequest
from kohort.schemas import SchemaRegistry
from tests.broker.security.logins import RawLogin, plain
from tests.support.net import free_ports


class Broker:
    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kohort", "broker", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self.process.stdout is not None
        self.banner = self.process.stdout.readline()

    def stop(self, by: signal.Signals = signal.SIGINT) -> int:
        self.process.send_signal(by)
        status = self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return status


@pytest.fixture
def brokers() -> Iterator[list[Broker]]:
    started: list[Broker] = []
    yield started
    for broker in started:
        if broker.process.poll() is None:
            broker.process.kill()
            broker.process.wait()
        if broker.process.stdout is not None:
            broker.process.stdout.close()


def test_it_serves_the_topics_it_was_given_on_its_port(brokers: list[Broker]) -> None:
    port = free_ports(3)[0]
    brokers.append(Broker("--port", str(port), "--brokers", "3", "--topic", "orders:6"))
    assert str(port) in brokers[0].banner
    with KafkaConsumer(bootstrap_servers=f"127.0.0.1:{port}") as consumer:
        assert consumer.partitions_for_topic("orders") == set(range(6))
        assert consumer.topics() == {"orders"}


def test_broker_serves_a_schema_registry_beside_it(brokers: list[Broker]) -> None:
    brokers.append(Broker("--port", "0", "--schema-registry", "0"))
    assert brokers[0].process.stdout is not None
    address = brokers[0].process.stdout.readline().removeprefix("schema registry: ").strip()
    assert SchemaRegistry(address).register("orders-value", '"string"') == 1


def test_topics_are_created_on_use_with_the_default_partitions(brokers: list[Broker]) -> None:
    brokers.append(Broker("--port", "0", "--default-partitions", "2"))
    address = re.search(r"[\w.]+:\d+", brokers[0].banner)
    assert address is not None
    with KafkaConsumer("fresh", bootstrap_servers=address[0]) as consumer:
        while not consumer.assignment():
            consumer.poll(timeout_ms=100)
        assert consumer.partitions_for_topic("fresh") == {0, 1}


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_when_it_is_interrupted(brokers: list[Broker], by: signal.Signals) -> None:
    brokers.append(Broker("--port", "0"))
    assert brokers[0].stop(by) == 0


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--brokers", "0"], "not a whole number above 0"),
        (["--port", "70000"], "not a port"),
        (["--topic", ":3"], "':3' has no topic name"),
        (["--topic", "orders:none"], "not a whole number above 0"),
        (["--port", "0", "--topic", "my orders"], "'my orders' is not a legal name"),
        (["--port", "0", "--topic", ".."], "'..' is not a legal name"),
        (["--port", "0", "--topic", "orders:10001"], "10001 partitions, must be 1 to 10000"),
        (["--port", "0", "--default-partitions", "20000"], "must be 1 to 10000"),
        (["--port", "65534", "--brokers", "3"], "would need port 65536"),
        (["--port", "0", "--delay", "Fetsch=1"], "Fetsch"),
        (["--brokers", "9" * 5000], "not a whole number above 0"),
        (["--port", "-1"], "not a port"),
        (["--delay", "Fetch=-1"], "not a number above 0"),
        (["--delay", "Fetch=nan"], "not a number above 0"),
        (["--disconnect", "1.5"], "not a chance"),
        (["--slow", "0"], "not a number above 0"),
        (["--fragment", "0.5"], "not a whole number above 0"),
        (["--seed", "x"], "invalid int value"),
        (["--config", "num.partitions"], "is not NAME=VALUE"),
        (["--config", "num.partition=1"], "did you mean num.partitions?"),
        (["--config", "num.partitions=none"], "'none' is not a whole number"),
        (["--config", "listeners=PLAINTEXT://:1"], "set by host and ports"),
        (["--no-auto-create", "--config", "auto.create.topics.enable=true"], "contradicts"),
        (["--properties", "/no/such/file"], "/no/such/file cannot be read: No such file"),
    ],
)
def test_a_wrong_argument_is_refused_in_words(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["broker", *arguments])
    assert ended.value.code == 2
    assert complaint in capsys.readouterr().err


def test_faults_are_switched_on_by_options(brokers: list[Broker]) -> None:
    brokers.append(
        Broker(
            *("--port", "0", "--topic", "orders:1", "--seed", "3", "--fragment", "9"),
            *("--fail", "Metadata=LEADER_NOT_AVAILABLE@0.5", "--delay", "ListOffsets=0.01"),
            *("--disconnect", "0.1", "--slow", "100000"),
        )
    )
    address = re.search(r"[\w.]+:\d+", brokers[0].banner)
    assert address is not None
    with KafkaConsumer(bootstrap_servers=address[0], reconnect_backoff_ms=10) as consumer:
        assert consumer.partitions_for_topic("orders") == {0}


@pytest.mark.parametrize(
    "wrong",
    [
        ("--fail", "Metadata"),
        ("--fail", "Metadata=NO_SUCH_ERROR"),
        ("--fail", "Metadata=NOT_CONTROLLER@2"),
        ("--delay", "Fetch=long"),
        ("--disconnect", "0"),
    ],
)
def test_faults_that_cannot_be_are_refused(
    wrong: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["broker", *wrong])
    assert ended.value.code == 2
    assert wrong[0] in capsys.readouterr().err


def test_a_port_that_is_taken_is_told_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["broker", "--port", str(port)]) == 1
    told = capsys.readouterr().err
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in told
    assert "choose another --port" in told
    assert told.count("\n") == 1


def test_an_address_that_is_not_here_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["broker", "--host", "192.0.2.1", "--port", "0"]) == 1
    assert "cannot listen on 192.0.2.1:0" in capsys.readouterr().err


def test_its_configs_come_from_options_and_a_file(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("process.roles=broker\nnum.partitions=2\ngroup.max.size=7\nnum.io.threads=4\n")
    command = [sys.executable, "-m", "kohort", "broker", "--port", "0", "--topic", "given"]
    process = subprocess.Popen(
        [*command, "--properties", str(file), "--config", "num.partitions=3"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        address = process.stdout.readline().split()[-1]
        with KafkaConsumer(bootstrap_servers=address) as consumer:
            assert consumer.partitions_for_topic("given") == {0, 1, 2}
    finally:
        process.terminate()
        _, notes = process.communicate(timeout=60)
    assert f"left out of {file}, as the cluster sets them itself: process.roles\n" in notes
    assert "shown by DescribeConfigs and without effect here: num.io.threads\n" in notes


def test_listeners_and_users_come_from_files(tmp_path: Path) -> None:
    file, users = tmp_path / "server.properties", tmp_path / "users"
    file.write_text(
        "listeners=PLAINTEXT://:0,IN://:0,OUT://:0,CONTROLLER://:0\n"
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,IN:SASL_PLAINTEXT,OUT:SSL,"
        "CONTROLLER:PLAINTEXT\n"
        "controller.listener.names=CONTROLLER\n"
        "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256\n"
        "listener.name.in.connections.max.reauth.ms=60000\n"
        "listener.name.in.plain.sasl.jaas.config=org.apache.kafka.common.security.plain."
        'PlainLoginModule required user_alice="alice-secret";\n'
        "listener.name.out.ssl.client.auth=required\n"
    )
    users.write_text("# users of PLAIN and SCRAM\nbob = b\\ob=#secret!\n")
    command = [sys.executable, "-m", "kohort", "broker", "--port", "0"]
    process = subprocess.Popen(
        [*command, "--properties", str(file), "--users", str(users)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline().split(": ") for _ in range(5)]
        printed = {line[0]: line[-1].strip() for line in lines[1:]}
        assert set(printed) == {"PLAINTEXT", "IN", "OUT", "ssl_cafile"}
        for user, password in (("alice", "alice-secret"), ("bob", "b\\ob=#secret!")):
            with RawLogin(printed["IN"]) as raw:
                assert sorted(raw.handshake("PLAIN").mechanisms) == ["PLAIN", "SCRAM-SHA-256"]
                answer = raw.authenticate(plain(user, password))
                assert (answer.error_code, answer.session_lifetime_ms) == (0, 60_000)
        context = ssl.create_default_context(cafile=printed["ssl_cafile"])
        with RawLogin(printed["OUT"], context=context) as raw, pytest.raises(ssl.SSLError):
            raw.ask(MetadataRequest(topics=[]), 12)
    finally:
        process.terminate()
        process.communicate(timeout=60)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("listeners=SSL:9093", "'SSL:9093' is not NAME://HOST:PORT"),
        ("listeners=X://:9093", "choose one of PLAINTEXT, SSL"),
        ("listeners=SSL://:0\nssl.keystore.location=x.jks", "x.jks cannot be read: No such file"),
        ("listeners=SSL://:0\nssl.key.password=hidden", "requires ssl.keystore.location"),
        ("listeners=SASL_SSL://:0\nsasl.enabled.mechanisms=GSSAPI", "mechanisms='GSSAPI'"),
        ("listeners=SSL://:0\nconnections.max.reauth.ms=x", "'x' is not a whole number"),
    ],
)
def test_listener_that_cannot_be_is_refused(
    text: str, complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "server.properties"
    file.write_text(text)
    with pytest.raises(SystemExit) as ended:
        main(["broker", "--properties", str(file)])
    assert ended.value.code == 2
    printed = capsys.readouterr().err
    assert complaint in printed
    assert "hidden" not in printed


@pytest.mark.parametrize("text", ["bob=secret\nhidden", "bob=", "=hidden\nbob"])
def test_users_file_with_a_bad_line_is_refused(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    users, properties = tmp_path / "users", tmp_path / "server.properties"
    users.write_text(text)
    properties.write_text("listeners=SASL_PLAINTEXT://:0")
    with pytest.raises(SystemExit):
        main(["broker", "--properties", str(properties), "--users", str(users)])
    printed = capsys.readouterr().err
    assert f"{users} is not NAME=PASSWORD" in printed
    assert "hidden" not in printed


def test_secret_in_an_argument_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["broker", "--config", "ssl.key.password=hidden"])
    printed = capsys.readouterr().err
    assert "is a secret: set it in the file of --properties" in printed
    assert "hidden" not in printed


def test_broker_prints_one_line_when_the_tls_extra_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text("listeners=SSL://localhost:0\n")
    monkeypatch.setitem(sys.modules, "trustme", None)
    with pytest.raises(SystemExit) as ended:
        main(["broker", "--port", "0", "--properties", str(properties)])
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "pip install 'kohort[testing]'" in line


def test_loaded_records_are_there_when_the_ready_file_is(
    brokers: list[Broker], tmp_path: Path
) -> None:
    line = {"topic": "orders", "partition": 1, "timestamp": 5, "headers": [], "key": "k"}
    file, ready = tmp_path / "orders.jsonl", tmp_path / "ready.json"
    file.write_text(json.dumps({**line, "value": "tea"}) + "\n")
    brokers.append(Broker("--port", "0", "--load", str(file), "--ready-file", str(ready)))
    found = json.loads(ready.read_text())
    assert found["pid"] == brokers[0].process.pid
    [record] = kohort.read("orders", bootstrap_servers=found["bootstrap_servers"])
    assert (record.partition, record.key, record.value, record.timestamp) == (1, b"k", b"tea", 5)


def test_addresses_are_one_line_of_json(brokers: list[Broker], tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "listeners=IN://:0,OUT://:0\nlistener.security.protocol.map=IN:PLAINTEXT,OUT:SSL\n"
    )
    words = ["--properties", str(file), "--schema-registry", "0", "--topic", "orders:2"]
    brokers.append(Broker("--port", "0", "--print-json", *words))
    found = json.loads(brokers[0].banner)
    assert found["pid"] == brokers[0].process.pid
    assert found["bootstrap_servers"] == found["listeners"]["IN"]
    with KafkaConsumer(bootstrap_servers=found["bootstrap_servers"]) as consumer:
        assert consumer.topics() == {"orders"}
    with KafkaConsumer(
        bootstrap_servers=found["listeners"]["OUT"],
        security_protocol="SSL",
        ssl_cafile=found["ssl_cafile"],
    ) as consumer:
        assert consumer.topics() == {"orders"}
    assert SchemaRegistry(found["schema_registry"]).register("orders-value", '"string"') == 1
    assert brokers[0].stop() == 0


def test_file_that_cannot_be_loaded_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["broker", "--port", "0", "--load", str(tmp_path / "absent.arrow")]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "absent.arrow" in err
