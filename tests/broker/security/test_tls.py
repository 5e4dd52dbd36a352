"""TLS listeners of the in-process cluster: certificates, client certificates, faults."""

from __future__ import annotations

import socket
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from kohort.broker.network import _tls_socket
from kohort.broker.security import SecurityState
from kohort.broker.security._principals import apply_rules, distinguished_name
from kohort.errors import InvalidOptionError
from kohort.protocol.messages import FetchRequest, MetadataRequest
from kohort.testing import CertificateFiles, Cluster, Listener, MemoryCluster, Security
from tests.broker.security.logins import RawLogin

RULES = "RULE:^CN=([^,]*).*$/$1/,DEFAULT"
INTERNAL_ERROR = bytes.fromhex("15030300020250")
LISTENERS = (
    "PLAINTEXT",
    "SSL",
    Listener("SSL", "MTLS", client_auth="required", principal_rules=RULES),
    Listener("SSL", "ASKING", client_auth="requested"),
    "SASL_SSL",
)


@pytest.fixture(scope="module")
def secured() -> Iterator[Cluster]:
    with Cluster(
        brokers=2, topics={"t": 1}, security=Security(LISTENERS, {"alice": "alice-secret"})
    ) as running:
        yield running


def trusting(cluster: Cluster) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=cluster.ssl_cafile)


def test_tls_connection_is_served(secured: Cluster) -> None:
    with RawLogin(secured, "SSL", context=trusting(secured)) as raw:
        brokers = raw.ask(MetadataRequest(topics=[]), 12).brokers
    shown = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    assert shown == secured.bootstrap_servers_of("SSL")


def test_large_answers_come_over_tls(secured: Cluster) -> None:
    for _ in range(8):
        secured.produce("t", [bytes(100_000)] * 5)
    node = secured.leader("t")
    with RawLogin(secured, "SSL", node, trusting(secured)) as raw:
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=0,
            max_bytes=1 << 24,
            topics=[
                FetchRequest.FetchTopic(
                    topic="t",
                    partitions=[
                        FetchRequest.FetchPartition(
                            partition=0, fetch_offset=0, partition_max_bytes=1 << 24
                        )
                    ],
                )
            ],
        )
        records = raw.ask(request, 11).responses[0].partitions[0].records
    assert records is not None
    assert len(records) > 4_000_000


def test_login_over_tls(secured: Cluster) -> None:
    with RawLogin(secured, "SASL_SSL", context=trusting(secured)) as raw:
        assert raw.login("alice", "alice-secret").error_code == 0
        assert raw.is_open()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize(
    ("listener", "expected"),
    [("MTLS", "User:app"), ("ASKING", "User:CN=app,OU=tests,O=kohort"), ("SSL", "User:ANONYMOUS")],
)
def test_client_certificate_is_the_principal(
    secured: Cluster, version: ssl.TLSVersion, listener: str, expected: str
) -> None:
    context = trusting(secured)
    context.minimum_version = context.maximum_version = version
    certificate = secured.client_certificate("app")
    context.load_cert_chain(certificate.certfile, certificate.keyfile)
    seen: list[str] = []
    with secured.on("Metadata", lambda call: seen.append(call.principal)):
        with RawLogin(secured, listener, context=context) as raw:
            assert raw.is_open()
    assert seen == [expected]


def test_missing_client_certificate_is_refused_with_an_alert(secured: Cluster) -> None:
    """The handshake of TLS 1.3 succeeds for the client. The alert comes with the first read."""
    context = trusting(secured)
    with RawLogin(secured, "MTLS", context=context) as raw:
        with pytest.raises(ssl.SSLError, match="ALERT_CERTIFICATE_REQUIRED"):
            raw.ask(MetadataRequest(topics=[]), 12)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError, match="ALERT_HANDSHAKE_FAILURE"):
        RawLogin(secured, "MTLS", context=context)


def test_foreign_client_certificate_is_refused(secured: Cluster) -> None:
    with Cluster(security=Security(["SSL"])) as other:
        certificate = other.client_certificate("app")
        context = trusting(secured)
        context.load_cert_chain(certificate.certfile, certificate.keyfile)
        with RawLogin(secured, "MTLS", context=context) as raw:
            with pytest.raises(ssl.SSLError, match="ALERT_UNKNOWN_CA"):
                raw.ask(MetadataRequest(topics=[]), 12)


def test_plain_bytes_get_kafkas_alert_on_a_tls_port(secured: Cluster) -> None:
    with RawLogin(secured, "SSL") as raw:
        raw.send(MetadataRequest(topics=[]), 12)
        assert raw.socket.recv(100) == INTERNAL_ERROR
        assert raw.is_closed()


def test_tls_hello_is_closed_on_by_a_plain_port(secured: Cluster) -> None:
    with pytest.raises((ssl.SSLError, OSError)):
        RawLogin(secured, "PLAINTEXT", context=trusting(secured))


def test_broken_tls_disturbs_no_other_connection(secured: Cluster) -> None:
    host, port = secured.bootstrap_servers_of("SSL").split(",")[0].split(":")
    for start in (b"", b"\x16", b"\x16\x03\x01\x02\x00\x01" + bytes(100)):
        with socket.create_connection((host, int(port))) as sock:
            sock.sendall(start)
    with RawLogin(secured, "SSL", context=trusting(secured)) as raw:
        raw.send_bytes(b"\0\0\1")
    with RawLogin(secured, "SSL", context=trusting(secured)) as raw:
        assert raw.is_open()


VERIFY_CODES = {"expired": 10, "not_yet_valid": 9, "wrong_host": 62, "unknown_ca": 20}


@pytest.mark.parametrize("kind", VERIFY_CODES)
def test_bad_certificate_is_shown_until_it_is_stopped(secured: Cluster, kind: str) -> None:
    with secured.serve_certificate(kind, node=1) as fault:
        with pytest.raises(ssl.SSLCertVerificationError) as caught:
            RawLogin(secured, "SSL", context=trusting(secured))
        assert caught.value.verify_code == VERIFY_CODES[kind]
        assert fault.hits == 1
        RawLogin(secured, "SSL", 2, trusting(secured)).close()
    RawLogin(secured, "SSL", context=trusting(secured)).close()


def test_revoked_certificate_is_in_the_crl(secured: Cluster) -> None:
    context = trusting(secured)
    context.load_verify_locations(secured.ssl_crlfile)
    context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF
    RawLogin(secured, "SSL", context=context).close()
    with secured.serve_certificate("revoked"):
        with pytest.raises(ssl.SSLCertVerificationError) as caught:
            RawLogin(secured, "SSL", context=context)
        assert caught.value.verify_code == 23


def test_renewed_certificate_is_shown_to_new_connections(secured: Cluster) -> None:
    def serial(raw: RawLogin) -> object:
        assert isinstance(raw.socket, ssl.SSLSocket)
        return (raw.socket.getpeercert() or {})["serialNumber"]

    with RawLogin(secured, "SSL", context=trusting(secured)) as old:
        secured.renew_certificates()
        with RawLogin(secured, "SSL", context=trusting(secured)) as new:
            assert serial(old) != serial(new)
        assert old.is_open()


def test_slow_handshake_goes_on_when_it_is_stopped(secured: Cluster) -> None:
    context = trusting(secured)
    with secured.slow_handshake() as fault:
        with pytest.raises(TimeoutError):
            host, port = secured.bootstrap_servers_of("SSL").split(",")[0].split(":")
            sock = socket.create_connection((host, int(port)), timeout=0.05)
            context.wrap_socket(sock, server_hostname="localhost")
        secured.wait_until(lambda: fault.hits == 1)
    RawLogin(secured, "SSL", context=context).close()


def test_slow_handshake_has_no_limit_of_the_broker(
    secured: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_tls_socket, "HANDSHAKE_S", 0.1)
    with secured.slow_handshake(0.3):
        RawLogin(secured, "SSL", context=trusting(secured)).close()


def test_plain_answer_on_a_tls_port(secured: Cluster) -> None:
    with secured.answer_plainly():
        with pytest.raises(ssl.SSLError, match=r"WRONG_VERSION_NUMBER|RECORD_LAYER_FAILURE"):
            RawLogin(secured, "SSL", context=trusting(secured))


def test_stop_faults_ends_those_of_tls(secured: Cluster) -> None:
    secured.serve_certificate("expired")
    secured.answer_plainly()
    secured.stop_faults()
    RawLogin(secured, "SSL", context=trusting(secured)).close()


def test_fault_of_tls_needs_a_listener_with_tls() -> None:
    with Cluster() as cluster:
        with pytest.raises(InvalidOptionError, match="no listener with TLS"):
            cluster.serve_certificate("expired")
    with Cluster(security=Security(["SSL"])) as cluster:
        with pytest.raises(InvalidOptionError, match="kind"):
            cluster.serve_certificate("good")
        with pytest.raises(InvalidOptionError, match="node=7"):
            cluster.slow_handshake(node=7)


def test_cluster_names_the_extra_when_trustme_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "trustme", None)
    with pytest.raises(InvalidOptionError, match=r"kohort\[testing\]") as raised:
        Cluster(security=Security(["PLAINTEXT", "SSL"])).start()
    assert str(raised.getrepr(style="native")).count("Traceback (most recent call last)") == 1
    with Cluster(security=Security(["SASL_PLAINTEXT"])):
        pass


def test_files_of_a_cluster_that_are_missing_are_named(tmp_path: Path) -> None:
    files = CertificateFiles("ca.pem", str(tmp_path / "none.pem"), "none.key")
    with pytest.raises(InvalidOptionError, match=r"certificates: .*none\.pem"):
        Cluster(security=Security(["SSL"], certificates=files)).start()


def test_files_of_a_cluster_end_with_it() -> None:
    with Cluster(security=Security(["SSL"])) as cluster:
        cafile = Path(cluster.ssl_cafile)
        assert cafile.is_file()
    assert not cafile.exists()


def test_certificates_are_taken_from_files(secured: Cluster, tmp_path: Path) -> None:
    made = secured.client_certificate("localhost")
    files = CertificateFiles(secured.ssl_cafile, made.certfile, made.keyfile)
    with Cluster(security=Security(["SSL"], certificates=files)) as cluster:
        assert cluster.ssl_cafile == secured.ssl_cafile
        context = trusting(cluster)
        context.check_hostname = False
        with RawLogin(cluster, "SSL", context=context) as raw:
            assert raw.is_open()
        with pytest.raises(InvalidOptionError, match="cannot issue"):
            cluster.client_certificate("app")


def test_broker_that_comes_back_has_all_its_ports(secured: Cluster) -> None:
    before = [secured.bootstrap_servers_of(name) for name in ("SSL", "SASL_SSL")]
    secured.kill_broker(2)
    with pytest.raises(ConnectionRefusedError):
        RawLogin(secured, "SASL_SSL", 2)
    secured.start_broker(2)
    assert [secured.bootstrap_servers_of(name) for name in ("SSL", "SASL_SSL")] == before
    with RawLogin(secured, "SASL_SSL", 2, trusting(secured)) as raw:
        assert raw.login("alice", "alice-secret").error_code == 0


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ("DEFAULT", "CN=a\\,b,OU=x+L=y,O=z"),
        ("RULE:^CN=([^,]*),.*$/$1@h/U,DEFAULT", "A\\@H"),
        ("RULE:^CN=(.*),OU=(.*),O=(.*)$/$3-$2/U", "Z-X+L=Y"),
        ("RULE:^nothing$/x/", None),
    ],
)
def test_principal_rules_are_kafkas(rules: str, name: str | None) -> None:
    subject = (
        (("organizationName", "z"),),
        (("organizationalUnitName", "x"), ("localityName", "y")),
        (("commonName", "a,b"),),
    )
    written = distinguished_name(subject)
    assert written == "CN=a\\,b,OU=x+L=y,O=z"
    assert apply_rules(rules, written) == name


@pytest.mark.parametrize(
    ("rules", "problem"),
    [
        ("CN=(.*)", "is not a list of rules"),
        ("DEFAULT,RULE:x", "is not a list of rules"),
        ("RULE:CN=(/$1/", "has a bad regular expression"),
        ("RULE:CN=(.*)/$2/L,DEFAULT", "names a group that does not exist"),
    ],
)
def test_principal_rules_are_checked_at_construction(rules: str, problem: str) -> None:
    with pytest.raises(InvalidOptionError, match=problem):
        Listener("SSL", client_auth="required", principal_rules=rules)


def test_broken_principal_ends_one_connection_only(
    secured: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> str:
        raise RuntimeError("a defect")

    monkeypatch.setattr(SecurityState, "certificate_principal", broken)
    context = trusting(secured)
    files = secured.client_certificate("broken")
    context.load_cert_chain(files.certfile, files.keyfile)
    with pytest.raises((OSError, EOFError)), RawLogin(secured, "MTLS", context=context) as raw:
        raw.ask(MetadataRequest(topics=[]), 12)
    secured.create_topic("after-the-defect", 1)
    assert "failed in a TLS handshake on MTLS" in caplog.text


# In memory


async def connected(cluster: MemoryCluster, listener: str, certificate: str = "") -> None:
    host, port = cluster.bootstrap_servers_of(listener).split(",")[0].split(":")
    connection = await cluster.connect(host, int(port), certificate=certificate)
    await connection.aclose()


@pytest.mark.anyio
@pytest.mark.parametrize("kind", VERIFY_CODES)
async def test_memory_raises_what_tls_would(kind: str) -> None:
    async with MemoryCluster(security=Security(LISTENERS)) as cluster:
        await connected(cluster, "SSL")
        with cluster.serve_certificate(kind):
            await connected(cluster, "PLAINTEXT")
            with pytest.raises(ssl.SSLCertVerificationError) as caught:
                await connected(cluster, "SSL")
            assert caught.value.verify_code == VERIFY_CODES[kind]
        await connected(cluster, "SSL")


@pytest.mark.anyio
async def test_memory_has_clients_with_certificates() -> None:
    async with MemoryCluster(security=Security(LISTENERS)) as cluster:
        with pytest.raises(ssl.SSLError, match="certificate required"):
            await connected(cluster, "MTLS")
        await connected(cluster, "MTLS", "app")
        with cluster.answer_plainly(), pytest.raises(ssl.SSLError, match="wrong version"):
            await connected(cluster, "SSL")
        with cluster.slow_handshake(), anyio.move_on_after(0.01) as scope:
            await connected(cluster, "SSL")
        assert scope.cancelled_caught
