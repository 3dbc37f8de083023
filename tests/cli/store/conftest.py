"""`rmq store` without a process of its own, and stores for it to look into."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import pytest

from rmq.cli import main
from tests.store.golden import stores as golden

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Run: TypeAlias = "Callable[..., tuple[int, str, str]]"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `rmq store` and return exit code, output and errors."""

    def run_store(*arguments: object) -> tuple[int, str, str]:
        code = main(["store", *map(str, arguments)])
        out, err = capsys.readouterr()
        return code, out, err

    return run_store


@pytest.fixture
def clean(tmp_path: Path) -> Path:
    """A store whose broker ended as it should."""
    return golden.unpack(golden.CLEAN_MASTER, tmp_path)


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    """A store whose broker was killed."""
    return golden.unpack(golden.CRASHED, tmp_path)
