"""The names and dates of certificates, and bytes that are no certificate."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.security import read_der
from kohort.security.tls._certificate import read_pem
from tests.support.certificates import Certificates


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def test_certificate_is_read(certificates: Certificates) -> None:
    found = read_pem(certificates.path("server.pem").read_text())
    assert found is not None
    assert (found.subject, found.issuer) == ("CN=server", "CN=ca")
    assert found.names == ("localhost", "127.0.0.1")
    assert found.not_before < datetime.now(UTC) < found.not_after
    expired = read_pem(certificates.path("expired.pem").read_text())
    assert expired is not None
    assert expired.not_after == datetime(2020, 1, 2, tzinfo=UTC)


def test_text_without_certificate_is_none(certificates: Certificates) -> None:
    assert read_pem(certificates.path("server.key").read_text()) is None
    assert read_pem("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n") is None


@given(st.binary(max_size=200))
def test_arbitrary_bytes_raise_value_error(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        read_der(data)


@pytest.fixture(scope="module")
def der(certificates: Certificates) -> bytes:
    pem = Path(certificates.path("server.pem")).read_text()
    return ssl.PEM_cert_to_DER_cert(pem.partition("-----END CERTIFICATE-----")[0] + END)


END = "-----END CERTIFICATE-----\n"


@given(at=st.integers(0, 10_000), byte=st.integers(0, 255), cut=st.integers(0, 10_000))
def test_mutated_certificate_is_read_or_refused(der: bytes, at: int, byte: int, cut: int) -> None:
    mutated = bytearray(der)
    mutated[at % len(der)] = byte
    for data in bytes(mutated), bytes(mutated[: cut % len(der)]):
        try:
            read_der(data)
        except ValueError:
            pass
