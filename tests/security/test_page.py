"""docs/security.md: its blocks that need a real cluster create a consumer without connecting."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from kohort.testing import Cluster, Security
from tests.support.snippets import FENCED, NOT_RUN, ROOT

pytest.importorskip("cryptography")

PAGE = ROOT / "docs" / "security.md"
BLOCKS = [code for code in FENCED.findall(PAGE.read_text()) if code.startswith(NOT_RUN)]
JAAS = (
    "org.apache.kafka.common.security.scram.ScramLoginModule required "
    'username="alice" password="secret";'
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Paths on the page -> files of this machine."""
    folder = tmp_path_factory.mktemp("security")
    texts = {"jaas": JAAS, "kafka": "alice secret", "idp": "secret", "key-password": "secret"}
    found = {f"/run/secrets/{name}": _written(folder / name, text) for name, text in texts.items()}
    found["/etc/kafka/orders.keytab"] = _written(folder / "orders.keytab", "")
    with Cluster(security=Security(["SSL"])) as cluster:
        client = cluster.client_certificate("app")
        found["/etc/kafka/ca.pem"] = cluster.ssl_cafile
        found["/etc/kafka/client.pem"] = client.certfile
        found["/etc/kafka/client.key"] = client.keyfile
        yield found


def _written(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_page_has_such_blocks() -> None:
    assert len(BLOCKS) == PAGE.read_text().count(f"```python\n{NOT_RUN}") > 5


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_options_of_a_block_are_accepted(
    number: int, files: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code = BLOCKS[number]
    if "GSSAPI" in code:
        pytest.importorskip("gssapi")
    signer = types.ModuleType("aws_msk_iam_sasl_signer")
    signer.MSKAuthTokenProvider = object  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, signer.__name__, signer)
    for path, file in files.items():
        code = code.replace(path, file)
    assert "/etc/kafka/" not in code
    names: dict[str, object] = {}
    exec(compile(code, str(PAGE), "exec"), names)
    assert "KafkaConsumer" in repr(names["consumer"])
