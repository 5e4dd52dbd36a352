"""An editor lists every option inside the constructors' parentheses."""

from __future__ import annotations

import pytest

from kohort.config import OPTIONS
from tests.typing.checkers import LanguageServer
from tools.typed_options import ASYNC_ONLY, SYNC_ONLY

pytestmark = [pytest.mark.typing, pytest.mark.timeout(300)]

OTHERS = {"KafkaConsumer": ASYNC_ONLY, "AsyncKafkaConsumer": SYNC_ONLY}


@pytest.mark.parametrize("name", sorted(OTHERS))
def test_completion_lists_every_option(name: str) -> None:
    call = f'{name}("orders", )'
    with LanguageServer() as server:
        labels = server.complete(f"from kohort import {name}\n{call}\n", 1, len(call) - 1)
    listed = {label.removesuffix("=") for label in labels if label.endswith("=")}
    assert listed == OPTIONS.keys() - {*OTHERS[name]}
