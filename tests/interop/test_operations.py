"""Cases of a check that are operations of a client: what the table and the results say of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interop.support.cases import CaseTable, MismatchError
from interop.support.results import ROWS_VARIABLE, Operations, Row, read_rows

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


async def test_the_prefix_is_in_the_table_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = tmp_path / "rows"
    monkeypatch.setenv(ROWS_VARIABLE, str(rows))
    operations = Operations(CaseTable(), "client", prefix="stock: ")
    with operations.operation("send", "one"):
        pass
    with operations.operation("send", "two"):
        raise MismatchError("no")
    assert [(case.part, case.result) for case in operations.table.cases] == [
        ("stock: send", "pass"),
        ("stock: send", "FAIL"),
    ]
    assert read_rows(rows.read_text()) == [
        Row("client", "send: one", passed=True),
        Row("client", "send: two", passed=False, detail="MismatchError: no"),
    ]


def test_what_is_missing_is_shown_and_is_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tmp_path / "rows"
    monkeypatch.setenv(ROWS_VARIABLE, str(rows))
    operations = Operations(CaseTable(), "client")
    operations.missing("signed", "nobody is refused", "there is no access control")
    assert not operations.table.failures
    assert not rows.exists()
    operations.table.show()
    shown = capsys.readouterr().out
    assert "missing" in shown
    assert "there is no access control" in shown
    assert "1 cases, 0 passed, 0 failed, 1 could not be run" in shown
