"""The page docs/configuration.md, whose tables are generated from the options."""

from __future__ import annotations

from kohort.config import OPTIONS, UNSUPPORTED
from tools.options_page import COMMAND, PAGE, describe_options, replace_tables


def test_the_page_has_the_tables_of_the_options() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == replace_tables(page), f"run: {COMMAND}"


def test_every_option_stands_in_the_tables_once() -> None:
    tables = describe_options()
    for name in (*OPTIONS, *UNSUPPORTED):
        assert tables.count(f"\n| `{name}` |") == 1, name


def test_a_page_without_tables_gets_them_at_its_marker() -> None:
    page = PAGE.read_text(encoding="utf-8")
    head, _, rest = page.partition("<!-- tables")
    comment, _, rest = rest.partition("-->")
    _, end, tail = rest.partition("<!-- end of tables -->")
    bare = f"{head}<!-- tables{comment}-->\n{end}{tail}"
    assert replace_tables(bare) == page
