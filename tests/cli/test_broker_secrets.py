"""``kohort broker`` shows no password: not in what it prints, its arguments or its environment."""

from __future__ import annotations

import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from kohort.cli import main
from tests.broker.security.logins import RawLogin
from tests.support.certificates import STORE_PASSWORD, Certificates
from tests.support.leaks import leaked

ALICE, BOB = "hunter2/correct=horse", "another/horse+battery"


def test_broker_shows_no_password_when_clients_log_in(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path / "tls")
    file, users = tmp_path / "server.properties", tmp_path / "users"
    file.write_text(
        "listeners=SASL_SSL://localhost:0\n"
        "sasl.enabled.mechanisms=PLAIN\n"
        "listener.name.sasl_ssl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain."
        f'PlainLoginModule required user_alice="{ALICE}";\n'
        "ssl.keystore.type=PKCS12\n"
        f"ssl.keystore.location={certificates.path('server.p12')}\n"
        f"ssl.keystore.password={STORE_PASSWORD}\n"
    )
    users.write_text(f"bob={BOB}\n")
    command = [sys.executable, "-m", "kohort", "broker", "--port", "0"]
    process = subprocess.Popen(
        [*command, "--properties", str(file), "--users", str(users)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    printed = ""
    try:
        assert process.stdout is not None
        while "SASL_SSL: " not in printed:
            line = process.stdout.readline()
            assert line, printed
            printed += line
        address = printed.rpartition(": ")[2].strip()
        context = ssl.create_default_context(cafile=certificates.ca)
        for user, password, code in (("alice", ALICE, 0), ("bob", BOB, 0), ("bob", ALICE, 58)):
            with RawLogin(address, context=context) as raw:
                assert raw.login(user, password).error_code == code
        for name in "cmdline", "environ":
            known = Path(f"/proc/{process.pid}/{name}")
            printed += known.read_text(errors="replace") if known.exists() else ""
    finally:
        process.terminate()
        printed += process.communicate(timeout=60)[0]
    for secret in ALICE, BOB, STORE_PASSWORD:
        assert not leaked(secret, printed)


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        (f"ssl.keystore.password={ALICE}", "requires ssl.keystore.location"),
        (f"ssl.keystore.key={ALICE}", "ssl.keystore"),
        (f"ssl.key.password={ALICE}", "requires ssl.keystore.location"),
        (f"ssl.keystore.location=SERVER.p12\nssl.keystore.password={ALICE}", "neither PEM nor"),
    ],
)
def test_wrong_secret_is_refused_without_its_value(
    wrong: str, complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, store = tmp_path / "server.properties", Certificates(tmp_path / "tls").path("server.p12")
    file.write_text(
        "listeners=IN://:0\nlistener.security.protocol.map=IN:SASL_SSL\n"
        "sasl.enabled.mechanisms=PLAIN\n" + wrong.replace("SERVER.p12", str(store))
    )
    with pytest.raises(SystemExit) as ended:
        main(["broker", "--properties", str(file)])
    assert ended.value.code == 2
    printed = capsys.readouterr()
    assert complaint in printed.err
    assert not leaked(ALICE, printed.out, printed.err)
