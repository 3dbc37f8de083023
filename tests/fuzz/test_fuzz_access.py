"""A short run of the fuzz target of access control, and proof that it would notice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fuzz import fuzz_access
from tests.fuzz.fuzz_access import fuzz

if TYPE_CHECKING:
    import pytest


def test_two_thousand_damaged_files_are_read_or_refused() -> None:
    report = fuzz(2000, seed=498)
    assert report.findings == []
    assert report.read > 100
    assert report.refused > 500


def test_a_reader_that_fails_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(members: object, path: str, changed_ms: int) -> object:
        raise KeyError(path)

    monkeypatch.setattr(fuzz_access, "read_document", fail)
    report = fuzz(200, seed=498)
    assert report.findings
    assert "KeyError" in report.findings[0]
