"""Files ``server.properties`` of secured brokers, in the form of Apache Kafka."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from kohort.config.properties import read_properties
from kohort.errors import InvalidOptionError
from kohort.protocol.messages import MetadataRequest
from kohort.testing import Authorization, CertificateFiles, Cluster, Security
from kohort.testing._secured_properties import SecuredProperties, security_of
from tests.broker.security.logins import RawLogin
from tests.support.certificates import KEY_PASSWORD, STORE_PASSWORD, Certificates

Read = Callable[[str], SecuredProperties]
STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
PRODUCTION = """
process.roles=broker,controller
listeners=PLAINTEXT://127.0.0.1:0,IN://127.0.0.1:0,OUT://127.0.0.1:0,CONTROLLER://127.0.0.1:0
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,IN:SASL_SSL,OUT:SSL,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS;User:admin
allow.everyone.if.no.acl.found=false
ssl.keystore.type=PKCS12
ssl.keystore.location={folder}/server.p12
ssl.keystore.password={password}
ssl.key.password={password}
ssl.truststore.type=PEM
ssl.truststore.location={folder}/ca.pem
listener.name.out.ssl.client.auth=required
listener.name.out.ssl.principal.mapping.rules=RULE:^CN=([^,]*).*$/$1/,DEFAULT
listener.name.in.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512,OAUTHBEARER
listener.name.in.plain.connections.max.reauth.ms=4000
listener.name.in.scram-sha-512.connections.max.reauth.ms=9000
listener.name.in.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule \\
  required username="admin" password="admin-secret" user_admin="admin-secret" user_bob="bob-secret";
listener.name.in.oauthbearer.sasl.oauthbearer.jwks.endpoint.url=https://idp.example.org/jwks
"""


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def read(tmp_path: Path) -> Read:
    return lambda text: security_of(read_properties(text), {}, tmp_path)


def folder_of(certificates: Certificates) -> Path:
    return certificates.path("server.p12").parent


def test_secured_broker_is_read_as_it_is(certificates: Certificates, read: Read) -> None:
    folder = folder_of(certificates)
    text = PRODUCTION.replace("{folder}", str(folder)).replace("{password}", STORE_PASSWORD)
    secured = read(text)
    assert secured.ignored == {"listener.name.in.oauthbearer.sasl.oauthbearer.jwks.endpoint.url"}
    assert secured.security is not None
    _, inside, _ = secured.security.all_listeners
    assert inside.session_lifetime_ms == {"PLAIN": 4_000, "SCRAM-SHA-512": 9_000, "OAUTHBEARER": 0}
    with Cluster(security=secured.security) as cluster:
        context = ssl.create_default_context(cafile=certificates.ca)
        with RawLogin(cluster, "IN", context=context) as raw:
            answer = raw.login("bob", "bob-secret")
            assert (answer.error_code, answer.session_lifetime_ms) == (0, 4_000)
        context.load_cert_chain(folder / "client.pem", folder / "client.key")
        principals: list[str] = []
        with cluster.on("Metadata", lambda call: principals.append(call.principal)):
            with RawLogin(cluster, "OUT", context=context) as raw:
                raw.ask(MetadataRequest(topics=[]), 12)
        assert principals == ["User:client"]
        assert cluster.acls == []  # there is an authorizer


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"authorizer.class.name={STANDARD}", Authorization()),
        (
            f"authorizer.class.name={STANDARD}\nallow.everyone.if.no.acl.found=TRUE\n"
            "super.users=User:a; User:b;",
            Authorization((), ("User:a", "User:b"), True),
        ),
        ("super.users=User:a", None),
    ],
)
def test_plaintext_broker_has_its_authorizer(
    text: str, expected: Authorization | None, read: Read
) -> None:
    secured = read(f"listeners=PLAINTEXT://:9092\n{text}")
    found = None if secured.security is None else secured.security.authorization
    assert found == expected
    assert secured.ignored == (set() if expected else {"super.users"})
    assert "listeners" not in secured.used


def test_encrypted_pem_and_inline_pem_are_taken(
    certificates: Certificates, tmp_path: Path, read: Read
) -> None:
    folder = folder_of(certificates)
    both = tmp_path / "both.pem"
    both.write_text(
        (folder / "client.enc.key").read_text() + certificates.path("client.pem").read_text()
    )
    key, chain, ca = (
        " ".join((folder / name).read_text().split("\n"))
        for name in ("client.key", "client.pem", "ca.pem")
    )
    in_file = f"ssl.keystore.location={both}\nssl.key.password={KEY_PASSWORD}"
    inline = f"ssl.keystore.key={key}\nssl.keystore.certificate.chain={chain}"
    for store in in_file, f"{inline}\nssl.truststore.certificates={ca}":
        secured = read(f"listeners=SSL://:9093\nssl.keystore.type=PEM\n{store}")
        assert secured.security is not None
        files = secured.security.certificates
        assert files is not None
        assert KEY_PASSWORD not in repr(files)
        files.load_into(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))


def test_encrypted_key_without_password_is_refused(certificates: Certificates) -> None:
    folder = folder_of(certificates)
    files = CertificateFiles(
        certificates.ca, str(folder / "client.pem"), str(folder / "client.enc.key")
    )
    with pytest.raises(InvalidOptionError, match="key is encrypted"):
        Cluster(security=Security(["SSL"], certificates=files)).start()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("ssl.keystore.location={p12}", "ssl.keystore.password is missing"),
        ("ssl.keystore.location={p12}\nssl.keystore.password=hidden", "neither PEM nor a PKCS#12"),
        ("ssl.keystore.location={jks}", "keytool -importkeystore -srckeystore"),
        ("ssl.keystore.location=/no/such.pem", "/no/such.pem cannot be read: No such file"),
        ("ssl.keystore.key=hidden", "requires ssl.keystore.certificate.chain"),
        ("ssl.keystore.key=hidden\nssl.keystore.certificate.chain=hidden", "must be PEM text"),
        (
            "listener.name.ssl.ssl.keystore.location=a\nlistener.name.b.ssl.keystore.location=b",
            "have different keystores",
        ),
        ("authorizer.class.name=com.example.Ours", "the cluster does not have com.example.Ours"),
        ("super.users=admin\nauthorizer.class.name=" + STANDARD, "'admin' is no principal"),
    ],
)
def test_setting_that_cannot_be_followed_is_refused(
    text: str, problem: str, certificates: Certificates, tmp_path: Path, read: Read
) -> None:
    jks = tmp_path / "server.jks"
    jks.write_bytes(bytes.fromhex("feedfeed") + bytes(20))
    p12 = certificates.path("server.p12")
    listeners = "listeners=SSL://:9093,B://:9094\nlistener.security.protocol.map=B:SSL\n"
    with pytest.raises(InvalidOptionError, match=problem) as refused:
        read(listeners + text.replace("{p12}", str(p12)).replace("{jks}", str(jks)))
    assert "hidden" not in str(refused.value)
