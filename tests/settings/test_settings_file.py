"""The operator's file is changed in place: whole at any moment, and with everything else kept."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

import pytest

from rmq.errors import StorageError
from rmq.settings.schema import Schema, Setting
from rmq.settings.settings_file import NEW_FILE_TEXT, change_file

SCHEMA: Final = Schema(
    [
        Setting(key="a", default="", help="a word"),
        Setting(key="password", default=None, help="a secret", secret=True),
    ]
)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_change_keeps_the_rest_and_the_content_before(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_bytes("# für uns\r\na=1\r\n".encode())
    change_file(path, {"a": "2"}, SCHEMA)
    assert path.read_bytes() == "# für uns\r\na=2\r\n".encode()
    assert (tmp_path / "broker.conf.bak").read_bytes() == "# für uns\r\na=1\r\n".encode()
    assert names(tmp_path) == ["broker.conf", "broker.conf.bak"]


def test_nothing_is_written_where_nothing_changes(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("a=1\n")
    path.chmod(0o444)
    change_file(path, {"a": "1"}, SCHEMA)
    assert names(tmp_path) == ["broker.conf"]


def test_a_file_that_is_not_there_is_made_with_its_directory(tmp_path: Path) -> None:
    path = tmp_path / "store" / "config" / "broker.properties"
    change_file(path, {"a": "1"}, SCHEMA)
    assert path.read_text() == NEW_FILE_TEXT + "a=1\n"
    assert names(path.parent) == ["broker.properties"]


def test_the_permissions_stay(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("password=x\n")
    path.chmod(0o600)
    change_file(path, {"a": "1"}, SCHEMA)
    for written in (path, tmp_path / "broker.conf.bak"):
        assert mode_of(written) == 0o600


def test_a_new_file_is_private_and_so_is_what_stands_beside_a_file_while_it_is_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "broker.conf"
    change_file(path, {"password": "first"}, SCHEMA)
    assert mode_of(path) == 0o600
    beside: list[int] = []
    fsync = os.fsync

    def fsync_noted(fd: int) -> None:
        beside.append(stat.S_IMODE(os.fstat(fd).st_mode) & 0o077)
        fsync(fd)

    monkeypatch.setattr(os, "fsync", fsync_noted)
    (tmp_path / "broker.conf.tmp").write_text("left by a crash")
    change_file(path, {"password": "second"}, SCHEMA)
    # The new content and the backup; the third is the folder.
    assert beside[:2] == [0, 0]


def test_a_replaced_secret_is_not_in_the_backup_either(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("# ours\npassword=first\na=1\n")
    change_file(path, {"password": "second", "a": "2"}, SCHEMA)
    assert path.read_text() == "# ours\npassword=second\na=2\n"
    assert (tmp_path / "broker.conf.bak").read_text() == "# ours\npassword=second\na=1\n"
    change_file(path, {"password": ""}, SCHEMA)
    for name in names(tmp_path):
        assert "second" not in (tmp_path / name).read_text()


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    real = tmp_path / "real" / "broker.conf"
    real.parent.mkdir()
    real.write_text("a=1\n")
    link = tmp_path / "broker.conf"
    link.symlink_to(real)
    change_file(link, {"a": "2"}, SCHEMA)
    assert link.is_symlink()
    assert real.read_text() == "a=2\n"
    assert names(real.parent) == ["broker.conf", "broker.conf.bak"]


@pytest.mark.parametrize("owner", [pytest.param(os, id="fsync"), pytest.param(Path, id="replace")])
def test_a_failure_leaves_the_file_as_it_was(
    owner: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("a=1\n")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(owner, "fsync" if owner is os else "replace", fail)
    with pytest.raises(StorageError) as caught:
        change_file(path, {"a": "2"}, SCHEMA)
    assert str(caught.value) == f"cannot write {path}: No space left on device"
    assert path.read_text() == "a=1\n"
    assert not (tmp_path / "broker.conf.tmp").exists()


def test_a_file_that_can_no_longer_be_read_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_bytes(b"a=\xff\n")
    with pytest.raises(StorageError, match=":1: is not UTF-8"):
        change_file(path, {"a": "2"}, SCHEMA)
    assert path.read_bytes() == b"a=\xff\n"
