"""The page docs/reference/options.md, which is generated from the options."""

from __future__ import annotations

from kohort.config import OPTIONS, UNSUPPORTED
from tools.options_page import describe_options


def test_every_option_stands_in_the_tables_once() -> None:
    tables = describe_options()
    for name in OPTIONS:
        assert tables.count(f'\n| <a id="{name}"></a>`{name}` |') == 1, name
    for name in UNSUPPORTED:
        assert tables.count(f"\n| `{name}` |") == 1, name
