"""Certificates for the tests of TLS."""

from __future__ import annotations

import pytest

from tests.support.certificates import Certificates


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))
