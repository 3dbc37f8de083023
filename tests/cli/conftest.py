"""`rmq` without a process of its own, for what is refused before anything runs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeAlias

import pytest

from rmq.cli import main
from tests.cli.client_kit import environment

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

RunHere: TypeAlias = "Callable[..., tuple[int, str, str]]"


@pytest.fixture
def run_here(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> RunHere:
    """Run `rmq` as a user who has set nothing; return exit code, output and errors."""
    for name in os.environ.keys() - environment().keys():
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config of nobody"))

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        output, errors = capsys.readouterr()
        return code, output, errors

    return run
