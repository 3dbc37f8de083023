"""What tests of `rmq generate` share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq.cli import main
from rmq.cli.common.exit_codes import ExitCode

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def generate(folder: Path, *arguments: str) -> dict[str, str]:
    """Run `rmq generate ... --out folder`; return the texts of the files by their paths."""
    assert main(["generate", *arguments, "--out", str(folder)]) == ExitCode.OK
    return texts(folder, folder.rglob("*"))


def texts(folder: Path, paths: Iterable[Path]) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text() for path in paths if path.is_file()
    }
