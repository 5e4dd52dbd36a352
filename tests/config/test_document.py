"""The page docs/reference/options.md, which is generated from the options."""

from __future__ import annotations

from kohort.config import OPTIONS, UNSUPPORTED
from tools.options_page import COMMAND, PAGE, describe_options, page


def test_page_is_generated_from_the_options() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), f"run: {COMMAND}"


def test_every_option_stands_in_the_tables_once() -> None:
    tables = describe_options()
    for name in OPTIONS:
        assert tables.count(f'\n| <a id="{name}"></a>`{name}` |') == 1, name
    for name in UNSUPPORTED:
        assert tables.count(f"\n| `{name}` |") == 1, name
