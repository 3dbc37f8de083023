"""Small files: replaced as a whole, and read from their backup where need be."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from rmq.errors import ConfigError, StorageError
from rmq.nameserver.files import read_with_backup, write_text
from rmq.nameserver.kv import KvTable

if TYPE_CHECKING:
    from pathlib import Path

GOOD = '{"configTable":{"n":{"k":"v"}}}'
OLDER = '{"configTable":{"n":{"k":"u"}}}'


def value_in(path: Path) -> str | None:
    table, _ = read_with_backup(path, KvTable.parse)
    return None if table is None else table.get("n", "k")


def test_a_file_is_made_with_its_folder_and_the_one_before_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "f.json"
    write_text(path, "one")
    assert path.read_text() == "one"
    assert sorted(each.name for each in path.parent.iterdir()) == ["f.json"]
    write_text(path, "zwei ☺\r\n")
    assert path.read_bytes().decode() == "zwei ☺\r\n"
    assert path.with_name("f.json.bak").read_text() == "one"
    assert sorted(each.name for each in path.parent.iterdir()) == ["f.json", "f.json.bak"]


def test_a_write_that_fails_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "f"
    write_text(path, "one")

    def full(_handle: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match=r"cannot write .*: No space left on device"):
        write_text(path, "two")
    assert path.read_text() == "one"


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot write"):
        write_text(tmp_path / "file" / "f", "text")


@pytest.mark.parametrize(
    ("main", "backup", "value", "warning"),
    [
        pytest.param(None, None, None, None, id="nothing"),
        pytest.param("", None, None, None, id="empty"),
        pytest.param("", " \n", None, None, id="both empty"),
        pytest.param(GOOD, None, "v", None, id="main"),
        pytest.param(GOOD, OLDER, "v", None, id="main before backup"),
        pytest.param(GOOD, "{", "v", None, id="backup not looked at"),
        pytest.param(None, OLDER, "u", "is missing; used", id="main missing"),
        pytest.param("", OLDER, "u", "is empty; used", id="main empty"),
        pytest.param('{"conf', OLDER, "u", "malformed JSON", id="main torn"),
        pytest.param(b"\xff", OLDER, "u", "is not UTF-8 at byte 0", id="main not text"),
    ],
)
def test_the_backup_counts_where_the_file_does_not(
    tmp_path: Path,
    main: str | bytes | None,
    backup: str | None,
    value: str | None,
    warning: str | None,
) -> None:
    path = tmp_path / "kvConfig.json"
    if main is not None:
        path.write_bytes(main if isinstance(main, bytes) else main.encode())
    if backup is not None:
        path.with_name("kvConfig.json.bak").write_text(backup)
    table, told = read_with_backup(path, KvTable.parse)
    assert (None if table is None else table.get("n", "k")) == value
    if warning is None:
        assert told is None
    else:
        assert told is not None
        assert warning in told


@pytest.mark.parametrize(
    ("main", "backup"),
    [
        pytest.param("{", None, id="no backup"),
        pytest.param("{", "[", id="both bad"),
        pytest.param("{", "", id="backup empty"),
        pytest.param("", "[", id="main empty"),
        pytest.param(None, "[", id="main missing"),
    ],
)
def test_when_nothing_can_be_read_it_says_what_to_do(
    tmp_path: Path, main: str | None, backup: str | None
) -> None:
    path = tmp_path / "kvConfig.json"
    if main is not None:
        path.write_text(main)
    if backup is not None:
        path.with_name("kvConfig.json.bak").write_text(backup)
    with pytest.raises(ConfigError, match=r"kvConfig\.json.*: ") as error:
        read_with_backup(path, KvTable.parse)
    assert error.value.hint is not None
    assert "move it and its .bak away" in error.value.hint


def test_a_file_that_may_not_be_read_is_told(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    path.mkdir()
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        value_in(path)
