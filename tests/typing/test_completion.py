"""An editor lists every option inside the constructors' parentheses."""

from __future__ import annotations

import pytest

from kohort.config import OPTIONS
from kohort.testing import ClusterOptions, MemoryClusterOptions
from tests.typing.checkers import LanguageServer
from tools.typed_options import ASYNC_ONLY, SYNC_ONLY

pytestmark = [pytest.mark.typing, pytest.mark.timeout(300)]

CLUSTERS = {"Cluster": ClusterOptions, "MemoryCluster": MemoryClusterOptions}
OTHERS = {"KafkaConsumer": ASYNC_ONLY, "AsyncKafkaConsumer": SYNC_ONLY}


@pytest.mark.cases(1)  # each is a language server
@pytest.mark.parametrize("name", sorted(OTHERS))
def test_completion_lists_every_option(name: str) -> None:
    listed = completed("kohort", f'{name}("orders", )')
    assert listed == OPTIONS.keys() - {*OTHERS[name]}


@pytest.mark.parametrize("name", CLUSTERS)
def test_completion_lists_every_option_of_a_cluster(name: str) -> None:
    options = CLUSTERS[name].__annotations__.keys()
    assert completed("kohort.testing", f"{name}()") == {"brokers", "topics", *options}


def completed(module: str, call: str) -> set[str]:
    """Return the keywords that the server lists before the last parenthesis of the call."""
    source = f"from {module} import {call.partition('(')[0]}\n{call}\n"
    with LanguageServer() as server:
        labels = server.complete(source, 1, len(call) - 1)
    return {label.removesuffix("=") for label in labels if label.endswith("=")}
