"""docs/security.md: each block that needs a cluster logs in to one, and reads a record.

A block runs as it is on the page, except for addresses, paths and names. Only one user may read the
topic, so the record shows that this user logged in.
"""

from __future__ import annotations

import sys
import time
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from ssl import PROTOCOL_TLS_SERVER, SSLContext
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from kohort import AsyncKafkaConsumer, KafkaConsumer
from kohort.testing import Acl, Authorization, CertificateFiles, Cluster, Listener, Security
from tests.support.kerberos import REALM, USER, Kdc
from tests.support.snippets import ROOT, replaced, run_elsewhere

pytest.importorskip("cryptography")

from tests.support.certificates import KEY_PASSWORD, Certificates
from tests.support.idp import CLIENT_ID, CLIENT_SECRET, Idp, serving
from tests.support.tokens import unsecured
from tests.support.tunnel_proxy import HttpProxy, SocksProxy, TunnelProxy

if TYPE_CHECKING:
    from tests.support.secure_kafka import SecureKafka

PAGE = ROOT / "docs" / "security.md"
PASSWORD = "a-password"
ADDRESS = "broker.example.org:9093"
CA = "/etc/kafka/ca.pem"
JAAS = (
    "org.apache.kafka.common.security.scram.ScramLoginModule required "
    f'username="alice" password="{PASSWORD}";'
)


@dataclass(frozen=True)
class Case:
    """A block: the user that it logs in as, and what its texts stand for.

    ``files`` maps paths to the texts of files, and ``certificates`` to files of
    :class:`Certificates`.
    """

    user: str
    listener: Listener
    address: str = ADDRESS
    files: dict[str, str] = field(default_factory=dict)
    certificates: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)


def sasl(mechanism: str) -> Listener:
    """Return a listener for logins by this mechanism alone, over TLS."""
    return Listener("SASL_SSL", mechanisms=[mechanism])


CASES = {
    "properties": Case(
        "alice",
        sasl("SCRAM-SHA-512"),
        files={"/run/secrets/jaas": JAAS},
        certificates={CA: "ca.pem"},
    ),
    "tls": Case("ANONYMOUS", Listener("SSL"), certificates={CA: "ca.pem"}),
    "client-certificate": Case(
        "CN=client",
        Listener("SSL", client_auth="required"),
        files={"/run/secrets/key-password": f"{KEY_PASSWORD}\n"},
        certificates={
            CA: "ca.pem",
            "/etc/kafka/client.pem": "client.pem",
            "/etc/kafka/client.key": "client.enc.key",
        },
    ),
    "plain": Case(
        "API-KEY",
        sasl("PLAIN"),
        address="pkc-1.eu-west-1.aws.confluent.cloud:9092",
        files={"/run/secrets/kafka": f"{PASSWORD}\n"},
    ),
    "scram": Case(
        "alice", sasl("SCRAM-SHA-512"), files={"/run/secrets/kafka": f"alice {PASSWORD}\n"}
    ),
    "oidc": Case(
        CLIENT_ID,
        sasl("OAUTHBEARER"),
        files={"/run/secrets/idp": f"{CLIENT_SECRET}\n"},
        names={'client_id="orders-app"': f'client_id="{CLIENT_ID}"'},
    ),
    "machine": Case(
        CLIENT_ID, sasl("OAUTHBEARER"), address="namespace.servicebus.windows.net:9093"
    ),
    "provider": Case("orders-app", sasl("OAUTHBEARER")),
    "msk": Case("orders-app", sasl("OAUTHBEARER"), address="b-1.msk.eu-west-1.amazonaws.com:9098"),
}
"""Blocks on logins for the in-process cluster, in the order of the page."""
*BLOCKS, KERBEROS, PROXY, HOOK = run_elsewhere(PAGE)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def trusted(certificates: Certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the CA one of those of the system, which a block without ``ssl_cafile`` trusts."""
    monkeypatch.setenv("SSL_CERT_FILE", certificates.ca)


@pytest.fixture
def idp(certificates: Certificates) -> Iterator[Idp]:
    """A token endpoint with TLS."""
    context = SSLContext(PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.path("server.pem"), certificates.path("server.key"))
    with serving(context) as running:
        yield running


@pytest.fixture
def signer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Signer in place of that of AWS. Its expiry is in milliseconds, like that of AWS."""

    class Provider:
        @staticmethod
        def generate_auth_token(region: str) -> tuple[str, int]:
            assert region == "eu-west-1"
            return unsecured("orders-app"), int((time.time() + 300) * 1000)

    module = types.ModuleType("aws_msk_iam_sasl_signer")
    monkeypatch.setattr(module, "MSKAuthTokenProvider", Provider, raising=False)
    monkeypatch.setitem(sys.modules, module.__name__, module)


async def my_token_service() -> SimpleNamespace:
    return SimpleNamespace(value=unsecured("orders-app"), expires_at=time.time() + 300)


def secured(case: Case, certificates: Certificates) -> Cluster:
    """Return a cluster where only the user of the block may read the topic."""
    files = (str(certificates.path(name)) for name in ("server.pem", "server.key"))
    security = Security(
        [case.listener],
        users={"alice": PASSWORD, "API-KEY": PASSWORD},
        certificates=CertificateFiles(certificates.ca, *files),
        authorization=Authorization([Acl(f"User:{case.user}", "READ", "TOPIC", "orders")]),
    )
    return Cluster(topics={"orders": 1}, security=security)


def consumer_of(code: str) -> Any:
    """Run a block, and return the consumer that it creates."""
    assert not any(place in code for place in ("example.org", "amazonaws", "/etc/", "/run/"))
    names: dict[str, object] = {"my_token_service": my_token_service}
    exec(compile(code, str(PAGE), "exec"), names)
    return names["consumer"]


def first_value(consumer: KafkaConsumer) -> bytes | None:
    """Read the first record of the topic."""
    with consumer:
        while not consumer.assignment():
            consumer.poll(timeout_ms=100)
        consumer.seek_to_beginning()
        return next(consumer).value


async def first_value_async(consumer: AsyncKafkaConsumer) -> bytes | None:
    """Read the first record of the topic."""
    async with consumer:
        while not consumer.assignment():
            await consumer.poll(timeout_ms=100)
        consumer.seek_to_beginning()
        return (await anext(consumer)).value


@pytest.mark.usefixtures("trusted", "signer")
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
@pytest.mark.parametrize(("name", "code"), [*zip(CASES, BLOCKS, strict=True)], ids=CASES)
def test_a_block_logs_in_and_reads(
    name: str, code: str, certificates: Certificates, idp: Idp, tmp_path: Path
) -> None:
    case = CASES[name]
    texts = dict(case.names)
    for number, (path, text) in enumerate(case.files.items()):
        file = tmp_path / f"file-{number}"
        file.write_text(text)
        texts[path] = str(file)
    texts |= {path: str(certificates.path(file)) for path, file in case.certificates.items()}
    if name == "oidc":
        texts["https://idp.example.org/oauth2/token"] = idp.url
    if name == "machine":
        texts['config": "query='] = f'token.endpoint.url": "{idp.url}?'
    with secured(case, certificates) as cluster:
        cluster.produce("orders", ["tea"])
        consumer = consumer_of(replaced(code, {case.address: cluster.bootstrap_servers} | texts))
        if isinstance(consumer, AsyncKafkaConsumer):
            assert anyio.run(first_value_async, consumer) == b"tea"
        else:
            assert first_value(consumer) == b"tea"
    assert len(idp.forms) == (name in ("oidc", "machine"))
    assert len(idp.targets) == (name == "machine")


@pytest.mark.parametrize("proxy", [SocksProxy, HttpProxy])
def test_block_on_proxies_reads(
    proxy: type[TunnelProxy], certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    with secured(CASES["tls"], certificates) as cluster:
        cluster.produce("orders", ["tea"])
        with proxy(login=("user", "p@ss")) as tunnel:
            monkeypatch.setenv("KAFKA_PROXY", tunnel.url())
            texts = {
                ADDRESS: cluster.bootstrap_servers,
                CA: str(certificates.path("ca.pem")),
                "proxy.example.org": "127.0.0.1",
            }
            assert first_value(consumer_of(replaced(PROXY, texts))) == b"tea"
            assert tunnel.targets


def test_block_on_own_connections_reads(certificates: Certificates, tmp_path: Path) -> None:
    with secured(CASES["tls"], certificates) as cluster:
        cluster.produce("orders", ["tea"])
        texts = {
            ADDRESS: cluster.bootstrap_servers,
            CA: str(certificates.path("ca.pem")),
            'anyio.connect_unix(f"/run/tunnels/{host}-{port}")': "anyio.connect_tcp(host, port)",
        }
        assert first_value(consumer_of(replaced(HOOK, texts))) == b"tea"


@pytest.mark.kerberos
@pytest.mark.real_kafka
def test_the_block_on_kerberos_logs_in_and_reads(
    kerberos_kafka: SecureKafka,
    kdc: Kdc,
    unique: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from confluent_kafka import Producer

    from tests.support.topics import create_topic

    topic = create_topic(kerberos_kafka.bootstrap_servers, unique("orders"), 1)
    producer = Producer({"bootstrap.servers": kerberos_kafka.bootstrap_servers})
    producer.produce(topic, b"tea")
    assert producer.flush(20) == 0
    right = ("--allow-principal", f"User:{USER}", "--operation", "READ", "--topic", topic)
    kerberos_kafka.acl("--add", *right)
    monkeypatch.setenv("KRB5_CONFIG", str(kdc.config))
    monkeypatch.setenv("SSL_CERT_FILE", kerberos_kafka.certificates.ca)
    texts = {
        ADDRESS: kerberos_kafka.bootstrap_servers_of("SASL_SSL"),
        "/etc/kafka/orders.keytab": str(kdc.user_keytab),
        "orders@EXAMPLE.ORG": f"{USER}@{REALM}",
        '"orders"': f'"{topic}"',
    }
    assert first_value(consumer_of(replaced(KERBEROS, texts))) == b"tea"
