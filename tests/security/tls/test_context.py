"""SSL contexts from the options: valid files, errors of invalid files, and reloading."""

from __future__ import annotations

import logging
import os
import shutil
import ssl
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

import kohort
from kohort import KafkaConsumer
from kohort.config import SecurityConfig, StoreConfig, TlsConfig
from kohort.errors import InvalidOptionError
from kohort.security import TlsContexts
from kohort.security.tls._pem import as_file
from tests.support.certificates import KEY_PASSWORD, STORE_PASSWORD, Certificates


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def contexts(**options: Any) -> TlsContexts:
    """Return the contexts of these options."""
    tls = {name: value for name, value in options.items() if "store" not in name}
    stores = {name: value for name, value in options.items() if "store" in name}
    return TlsContexts(
        SecurityConfig(security_protocol="SSL", tls=TlsConfig(**tls), stores=StoreConfig(**stores))
    )


def subject_of(context: ssl.SSLContext, certificates: Certificates) -> str | None:
    """Return the CN that a server with client authentication sees. None without a certificate."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificates.path("server.both"))
    server.verify_mode = ssl.CERT_OPTIONAL
    server.load_verify_locations(certificates.ca)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = context.wrap_bio(to_client, to_server, server_hostname="localhost")
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    done: set[ssl.SSLObject] = set()
    for _ in range(10):
        for side in ours, theirs:
            try:
                side.do_handshake()
                done.add(side)
            except ssl.SSLWantReadError:
                pass
    assert len(done) == 2
    peer: Any = theirs.getpeercert()
    return dict(pair[0] for pair in peer["subject"])["commonName"] if peer else None


def text(certificates: Certificates, name: str) -> str:
    return certificates.path(name).read_text()


def test_system_authorities_are_trusted_by_default() -> None:
    made = contexts()
    assert made.trust == "the CAs of the system"
    assert made.identity is None
    assert made.current().verify_mode == ssl.CERT_REQUIRED
    assert made.current().check_hostname


@pytest.mark.parametrize("given", ["files", "both", "inline", "keystore", "encrypted", "callable"])
def test_client_certificate_loads_from_every_option(certificates: Certificates, given: str) -> None:
    def path(name: str) -> str:
        return str(certificates.path(name))

    encrypted = {"ssl_certfile": path("client.pem"), "ssl_keyfile": path("client.enc.key")}
    given_options: dict[str, dict[str, Any]] = {
        "files": {"ssl_certfile": path("client.pem"), "ssl_keyfile": path("client.key")},
        "both": {"ssl_certfile": path("client.both")},
        "inline": {
            "ssl_certdata": text(certificates, "client.pem"),
            "ssl_keydata": text(certificates, "client.key"),
        },
        "keystore": {
            "ssl_keystore_location": path("client.p12"),
            "ssl_keystore_password": STORE_PASSWORD,
        },
        "encrypted": {**encrypted, "ssl_password": KEY_PASSWORD},
        "callable": {**encrypted, "ssl_password": lambda: KEY_PASSWORD.encode()},
    }
    made = contexts(ssl_cafile=certificates.ca, **given_options[given])
    assert subject_of(made.current(), certificates) == "client"
    _, days = made.expiry()
    assert days is not None
    assert 28 < days < 30


@pytest.mark.parametrize("given", ["file", "text", "der", "folder", "truststore"])
def test_authorities_load_from_every_option(
    certificates: Certificates, given: str, tmp_path: Path
) -> None:
    pem = text(certificates, "ca.pem")
    options: dict[str, Any]
    if given == "file":
        options = {"ssl_cafile": certificates.ca}
    elif given == "text":
        options = {"ssl_cadata": pem}
    elif given == "der":
        options = {"ssl_cadata": ssl.PEM_cert_to_DER_cert(pem)}
    elif given == "folder":
        digest = subprocess.run(
            ["openssl", "x509", "-hash", "-noout", "-in", certificates.ca],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        shutil.copy(certificates.ca, tmp_path / f"{digest}.0")
        options = {"ssl_cafile": str(tmp_path)}
    else:
        options = {"ssl_truststore_location": certificates.ca, "ssl_truststore_type": "PEM"}
    assert subject_of(contexts(**options).current(), certificates) is None


@pytest.mark.parametrize("installed", [True, False])
def test_trust_store_of_the_system_needs_truststore(
    installed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Context(ssl.SSLContext):
        pass

    module = types.ModuleType("truststore")
    module.SSLContext = Context  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "truststore", module if installed else None)
    made = contexts(ssl_cafile="system").current()
    assert type(made) is (Context if installed else ssl.SSLContext)
    assert made.verify_mode == ssl.CERT_REQUIRED


def test_certificate_itself_may_be_trusted(certificates: Certificates) -> None:
    """Java's truststores allow that, too."""
    leaf = text(certificates, "server.pem").split("-----END CERTIFICATE-----")[0]
    made = contexts(ssl_cadata=f"{leaf}-----END CERTIFICATE-----\n")
    assert subject_of(made.current(), certificates) is None


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"ssl_cafile": "missing"}, "ssl_cafile: there is no such file"),
        ({"ssl_cafile": "client.key"}, "ssl_cafile has no certificate in PEM form: it has a priv"),
        ({"ssl_cafile": "client.p12"}, "ssl_cafile has no certificate in PEM form: it is in DER"),
        ({"ssl_cafile": "store.jks"}, "ssl_cafile has no certificate .*Java key store.*keytool"),
        ({"ssl_cafile": "damaged.pem"}, "ssl_cafile has a certificate that is damaged"),
        ({"ssl_certfile": "client.pem"}, "ssl_certfile has no private key .*set ssl_keyfile"),
        (
            {"ssl_certfile": "client.pem", "ssl_keyfile": "server.key"},
            "ssl_keyfile has a private key that is not the one of the certificate in ssl_certfile",
        ),
        (
            {"ssl_certfile": "client.pem", "ssl_keyfile": "client.p12"},
            "ssl_keyfile has no private key in PEM form: it is in DER form, perhaps a PKCS#12",
        ),
        (
            {"ssl_certfile": "client.pem", "ssl_keyfile": "client.enc.key"},
            "ssl_keyfile has an encrypted private key: set ssl_password",
        ),
        (
            {
                "ssl_certfile": "client.pem",
                "ssl_keyfile": "client.enc.key",
                "ssl_password": "S3cr3t",
            },
            "ssl_password does not decrypt the private key in ssl_keyfile",
        ),
        (
            {
                "ssl_certfile": "client.pem",
                "ssl_keyfile": "client.enc.key",
                "ssl_password": lambda: 1 / 0,
            },
            "the function given as ssl_password raised ZeroDivisionError",
        ),
        ({"ssl_ciphers": "NOPE"}, "ssl_ciphers has no cipher that this OpenSSL knows"),
        ({"ssl_crlfile": "ca.pem"}, "ssl_crlfile has no CRL in PEM form: it has certificates"),
        (
            {"ssl_keystore_location": "client.p12", "ssl_keystore_password": "S3cr3t"},
            "ssl_keystore_location is not a PKCS#12 store, or its password is another one",
        ),
        (
            {"ssl_keystore_location": "store.jks", "ssl_keystore_password": "S3cr3t"},
            r"ssl_keystore_location is a Java key store \(JKS\). Convert it: keytool",
        ),
    ],
)
def test_files_that_do_not_load_are_told_apart(
    certificates: Certificates, options: dict[str, Any], says: str
) -> None:
    """The constructor of a consumer raises it, and it shows no value of an option."""
    certificates.path("store.jks").write_bytes(bytes.fromhex("feedfeed00000002"))
    certificates.path("damaged.pem").write_text(
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    )
    given: dict[str, Any] = {
        name: str(certificates.path(value)) if name.endswith(("file", "location")) else value
        for name, value in options.items()
    }
    with pytest.raises(InvalidOptionError, match=says) as raised:
        KafkaConsumer("orders", security_protocol="SSL", **given)
    assert "S3cr3t" not in str(raised.value)
    assert str(certificates.path("")) not in str(raised.value)
    assert raised.value.__cause__ is None


def test_password_is_never_asked_on_the_terminal(certificates: Certificates) -> None:
    code = (
        "import kohort\n"
        "try:\n"
        f"    kohort.KafkaConsumer(security_protocol='SSL',\n"
        f"        ssl_certfile={str(certificates.path('client.pem'))!r},\n"
        f"        ssl_keyfile={str(certificates.path('client.enc.key'))!r})\n"
        "except kohort.ConfigurationError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input="keypass\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "set ssl_password" in done.stdout
    assert "pass phrase" not in done.stdout + done.stderr


def test_changed_files_are_loaded_at_the_next_connection(
    certificates: Certificates, tmp_path: Path
) -> None:
    path = tmp_path / "client.pem"
    shutil.copy(certificates.path("client.both"), path)
    made = contexts(ssl_cafile=certificates.ca, ssl_certfile=str(path))
    first = made.current()
    assert made.current() is first
    replace(path, certificates.path("client2.both").read_bytes())
    assert made.current() is not first
    assert subject_of(made.current(), certificates) == "client2"
    assert subject_of(first, certificates) == "client"


def test_changed_files_that_do_not_load_keep_the_former(
    certificates: Certificates, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "client.pem"
    shutil.copy(certificates.path("client.both"), path)
    made = contexts(ssl_cafile=certificates.ca, ssl_certfile=str(path))
    first = made.current()
    with caplog.at_level(logging.WARNING):
        replace(path, b"half of a file")
        assert made.current() is first
        assert made.current() is first
        path.unlink()
        assert made.current() is first
    assert [record.getMessage() for record in caplog.records] == [
        "changed TLS files do not load, so new connections use the former ones: ssl_certfile has "
        "no certificate in PEM form",
        "changed TLS files do not load, so new connections use the former ones: ssl_certfile: "
        "there is no such file",
    ]
    assert subject_of(first, certificates) == "client"
    replace(path, certificates.path("client2.both").read_bytes())
    assert subject_of(made.current(), certificates) == "client2"


def test_changed_files_are_ignored_without_ssl_reload(
    certificates: Certificates, tmp_path: Path
) -> None:
    path = tmp_path / "client.pem"
    shutil.copy(certificates.path("client.both"), path)
    made = contexts(ssl_cafile=certificates.ca, ssl_certfile=str(path), ssl_reload=False)
    first = made.current()
    replace(path, certificates.path("client2.both").read_bytes())
    assert made.current() is first


def replace(path: Path, data: bytes) -> None:
    """Replace the file by a new one, as tools that rotate certificates do."""
    new = path.with_suffix(".new")
    new.write_bytes(data)
    os.replace(new, path)


def test_own_context_is_used_unchanged(certificates: Certificates) -> None:
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    own.load_verify_locations(certificates.ca)
    before = own.options, own.minimum_version, own.verify_flags, own.check_hostname
    made = contexts(ssl_context=own)
    assert made.current() is own
    assert not made.for_diagnosis(verify=True).check_hostname
    assert (own.options, own.minimum_version, own.verify_flags, own.check_hostname) == before


@pytest.mark.parametrize("in_memory", [True, False])
def test_inline_pem_leaves_no_file(
    in_memory: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    if not in_memory:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    elif not hasattr(os, "memfd_create"):
        pytest.skip("only Linux has files in memory")
    with as_file(b"secret") as path:
        assert Path(path).read_bytes() == b"secret"
        found = list(tmp_path.iterdir())
        assert len(found) == (0 if in_memory else 1)
        assert all(each.stat().st_mode & 0o77 == 0 for each in found)
    assert list(tmp_path.iterdir()) == []


def test_create_ssl_context_has_the_arguments_of_aiokafka(certificates: Certificates) -> None:
    context = kohort.create_ssl_context(
        cafile=certificates.ca,
        certfile=certificates.path("client.pem"),
        keyfile=certificates.path("client.enc.key"),
        password=KEY_PASSWORD,
    )
    assert subject_of(context, certificates) == "client"
    plain = kohort.create_ssl_context(cadata=text(certificates, "ca.pem"))
    assert subject_of(plain, certificates) is None
    assert plain.minimum_version == ssl.TLSVersion.TLSv1_2


def test_folder_without_hashed_names_is_refused(certificates: Certificates, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text(Path(certificates.ca).read_text())
    with pytest.raises(InvalidOptionError, match=r"ssl_cafile is a folder .* openssl rehash"):
        contexts(ssl_cafile=str(tmp_path))


@pytest.mark.parametrize("argument", ["cafile", "capath", "certfile", "keyfile"])
def test_create_ssl_context_names_the_file_that_is_missing(argument: str) -> None:
    given: dict[str, Any] = {argument: "/nowhere/file"}
    with pytest.raises(FileNotFoundError, match="/nowhere/file"):
        kohort.create_ssl_context(**given)
