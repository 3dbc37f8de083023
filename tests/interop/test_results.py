"""The table of what stock clients can do: written from the rows of a run, and only from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interop.support.results import ROWS_VARIABLE, Row, merge, read_rows, record

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_rows_come_back_as_they_were_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rows"
    monkeypatch.setenv(ROWS_VARIABLE, str(path))
    record("Client 1", "send: sync", passed=True)
    record("Client 1", "send: async", passed=False, detail="two\nlines")
    assert read_rows(path.read_text(encoding="utf-8")) == [
        Row("Client 1", "send: sync", True),
        Row("Client 1", "send: async", False, "two\nlines"),
    ]


def test_nothing_is_recorded_outside_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(ROWS_VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    record("Client 1", "send: sync", passed=True)
    assert list(tmp_path.iterdir()) == []


def test_each_client_has_a_section_with_its_rows_in_order() -> None:
    rows = [Row("B", "second", True), Row("A", "x", True), Row("B", "first", False, "a | b\nc")]
    document = merge("", rows)
    assert document.index("## A") < document.index("## B")
    assert document.index("| second | pass |  |") < document.index(r"| first | FAIL | a \| b c |")
    assert "1 of 2 passed." in document


def test_clients_that_were_not_part_of_a_run_keep_their_sections() -> None:
    first = merge("", [Row("A", "x", False, "why"), Row("B", "y", True)])
    second = merge(first, [Row("B", "y", True), Row("B", "z", True)])
    assert "| x | FAIL | why |" in second
    assert second.count("## B") == 1
    assert "2 of 2 passed." in second


def test_what_a_failure_says_about_the_machine_is_left_out() -> None:
    detail = (
        "no answer of 127.0.0.1:30911 (/var/me/store) for 7F00000100002A9F0000 at 1700000000000"
    )
    document = merge("", [Row("A", "x", False, detail)])
    assert "| no answer of ADDRESS (PATH) for ID at TIME |" in document


def test_the_same_results_give_the_same_file() -> None:
    rows = [Row("A", "x", True), Row("B", "y", False, "why")]
    document = merge("", rows)
    assert merge(document, rows) == document
    assert merge(document, reversed(rows)) == document
