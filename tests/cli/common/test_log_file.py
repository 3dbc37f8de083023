"""Log files: renamed when they are full, opened again when another program moved them."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from rmq.cli.common.log_file import LogFile

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def write(file: LogFile, *lines: str) -> None:
    for line in lines:
        file.write(f"{line}\n")
        file.flush()


def test_a_full_file_is_renamed_and_the_oldest_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "broker.log"
    with closing(LogFile(path, bytes_max=8, kept=2)) as file:
        write(file, "first", "second", "third", "fourth")
    assert path.read_text() == "fourth\n"
    assert (tmp_path / "broker.log.1").read_text() == "third\n"
    assert (tmp_path / "broker.log.2").read_text() == "second\n"
    assert len(list(tmp_path.iterdir())) == 3


def test_none_is_kept_if_none_is_wanted(tmp_path: Path) -> None:
    with closing(LogFile(tmp_path / "broker.log", bytes_max=8, kept=0)) as file:
        write(file, "first", "second")
    assert [each.read_text() for each in tmp_path.iterdir()] == ["second\n"]


def test_a_restart_goes_on_in_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "broker.log"
    for line in ("first", "second"):
        with closing(LogFile(path, bytes_max=100, kept=1)) as file:
            write(file, line)
    assert path.read_text() == "first\nsecond\n"


def test_a_file_that_was_moved_away_is_made_again_on_request(tmp_path: Path) -> None:
    path, moved = tmp_path / "broker.log", tmp_path / "old"
    with closing(LogFile(path, bytes_max=100, kept=1)) as file:
        write(file, "first")
        path.rename(moved)
        write(file, "second")
        file.reopen()
        write(file, "third")
    assert (moved.read_text(), path.read_text()) == ("first\nsecond\n", "third\n")


def test_a_file_that_cannot_be_renamed_goes_on_growing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "broker.log"

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.replace", refuse)
    with closing(LogFile(path, bytes_max=8, kept=1)) as file:
        write(file, "first", "second")
    assert path.read_text() == "first\nsecond\n"


@given(
    lines=st.lists(st.integers(1, 40), max_size=30),
    bytes_max=st.integers(1, 60),
    kept=st.integers(0, 4),
)
def test_no_line_is_split_and_the_latest_are_there(
    tmp_path_factory: pytest.TempPathFactory, lines: list[int], bytes_max: int, kept: int
) -> None:
    folder = tmp_path_factory.mktemp("log")
    path = folder / "broker.log"
    texts = [f"{number}:".ljust(length, "x") for number, length in enumerate(lines)]
    with closing(LogFile(path, bytes_max=bytes_max, kept=kept)) as file:
        write(file, *texts)
    files = [path, *(folder / f"broker.log.{number}" for number in range(1, kept + 1))]
    found = [each.read_text().splitlines() for each in reversed(files) if each.exists()]
    there = [line for part in found for line in part]
    assert there == texts[len(texts) - len(there) :]
    assert len(list(folder.iterdir())) <= kept + 1
    assert not texts or texts[-1] in there
