"""The documentation of the settings says what the settings are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rmq.broker.config.docs import BEGIN, END, main, settings_tables, with_tables
from rmq.broker.config.schema import SCHEMA
from tests.paths import DOCS

if TYPE_CHECKING:
    from pathlib import Path

PAGE = DOCS / "broker-config.md"


def test_the_tables_in_the_documentation_are_up_to_date() -> None:
    page = PAGE.read_text()
    assert with_tables(page) == page, "run: python -m rmq.broker.config.docs docs/broker-config.md"


def test_every_setting_is_in_the_tables_once() -> None:
    lines = settings_tables().splitlines()
    for setting in SCHEMA:
        rows = [line for line in lines if line.startswith(f"| `{setting.key}` |")]
        assert len(rows) == 1, setting.key


def test_the_rest_of_a_page_stays_when_its_tables_are_made(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Title\n{BEGIN}old\n{END}# More\n")
    main([str(page)])
    assert page.read_text() == f"# Title\n{BEGIN}\n{settings_tables()}\n{END}# More\n"


def test_a_page_without_the_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="lacks the marks"):
        with_tables("# Settings\n")
