"""The operator's file is changed in place: whole at any moment, and with everything else kept."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from rmq.broker.config.file import NEW_FILE_TEXT, change_file
from rmq.errors import StorageError


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_change_keeps_the_rest_and_the_content_before(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_bytes("# für uns\r\na=1\r\n".encode())
    change_file(path, {"a": "2"})
    assert path.read_bytes() == "# für uns\r\na=2\r\n".encode()
    assert (tmp_path / "broker.conf.bak").read_bytes() == "# für uns\r\na=1\r\n".encode()
    assert names(tmp_path) == ["broker.conf", "broker.conf.bak"]


def test_nothing_is_written_where_nothing_changes(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("a=1\n")
    path.chmod(0o444)
    change_file(path, {"a": "1"})
    assert names(tmp_path) == ["broker.conf"]


def test_a_file_that_is_not_there_is_made_with_its_directory(tmp_path: Path) -> None:
    path = tmp_path / "store" / "config" / "broker.properties"
    change_file(path, {"a": "1"})
    assert path.read_text() == NEW_FILE_TEXT + "a=1\n"
    assert names(path.parent) == ["broker.properties"]


def test_the_permissions_stay(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("password=x\n")
    path.chmod(0o600)
    change_file(path, {"a": "1"})
    for written in (path, tmp_path / "broker.conf.bak"):
        assert stat.S_IMODE(written.stat().st_mode) == 0o600


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    real = tmp_path / "real" / "broker.conf"
    real.parent.mkdir()
    real.write_text("a=1\n")
    link = tmp_path / "broker.conf"
    link.symlink_to(real)
    change_file(link, {"a": "2"})
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
        change_file(path, {"a": "2"})
    assert str(caught.value) == f"cannot write {path}: No space left on device"
    assert path.read_text() == "a=1\n"
    assert not (tmp_path / "broker.conf.tmp").exists()


def test_a_file_that_can_no_longer_be_read_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_bytes(b"a=\xff\n")
    with pytest.raises(StorageError, match=":1: is not UTF-8"):
        change_file(path, {"a": "2"})
    assert path.read_bytes() == b"a=\xff\n"
