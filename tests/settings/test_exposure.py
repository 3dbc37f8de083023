"""Files and folders that more users may read than should."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import pytest

from rmq.settings.exposure import (
    FileAccess,
    exposed_store_warnings,
    secret_file_warnings,
    take_umask,
)
from rmq.settings.schema import Schema, Setting

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SCHEMA: Final = Schema(
    [
        Setting(key="password", default=None, help="a secret", secret=True),
        Setting(key="keyPath", default=None, help="a key", names_secret=True),
        Setting(key="certPath", default=None, help="no secret"),
    ]
)


@pytest.fixture(autouse=True)
def umask_kept() -> Iterator[None]:
    mask = os.umask(0o022)
    os.umask(mask)
    yield
    os.umask(mask)


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640, 0o644, 0o602])
def test_a_settings_file_with_a_secret_that_others_may_read_or_change_is_named(
    mode: int, tmp_path: Path
) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("password=x\n")
    path.chmod(mode)
    warnings = list(secret_file_warnings(SCHEMA, SCHEMA.defaults({"password": "x"}), path))
    if mode & 0o077:
        (warning,) = warnings
        assert "(password)" in warning
        assert f"chmod 600 {path}" in warning
    else:
        assert warnings == []
    assert list(secret_file_warnings(SCHEMA, SCHEMA.defaults(), path)) == []


def test_a_key_that_others_may_read_is_named_and_a_certificate_is_not(tmp_path: Path) -> None:
    paths = {"keyPath": tmp_path / "key.pem", "certPath": tmp_path / "cert.pem"}
    for path in paths.values():
        path.touch(0o644)
    values = SCHEMA.defaults({key: str(path) for key, path in paths.items()})
    (warning,) = secret_file_warnings(SCHEMA, values, None)
    assert f"chmod 600 {paths['keyPath']}" in warning


def test_what_is_not_there_is_no_matter_of_modes(tmp_path: Path) -> None:
    values = SCHEMA.defaults({"password": "x", "keyPath": str(tmp_path / "none")})
    assert list(secret_file_warnings(SCHEMA, values, tmp_path / "none.conf")) == []
    assert list(exposed_store_warnings([tmp_path / "none"], FileAccess.OWNER)) == []


@pytest.mark.parametrize(
    ("access", "mode", "is_open"),
    [
        pytest.param(FileAccess.OWNER, 0o700, False, id="private"),
        pytest.param(FileAccess.OWNER, 0o750, True, id="the group reads, and should not"),
        pytest.param(FileAccess.OWNER, 0o755, True, id="all read"),
        pytest.param(FileAccess.GROUP, 0o750, False, id="the group reads, and should"),
        pytest.param(FileAccess.GROUP, 0o755, True, id="more than the group reads"),
        pytest.param(FileAccess.UMASK, 0o777, False, id="as the umask says"),
    ],
)
def test_a_store_that_is_more_open_than_it_is_to_be_is_named(
    access: FileAccess, mode: int, is_open: bool, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    store.mkdir()
    store.chmod(mode)
    log, elsewhere = store / "commitlog", tmp_path / "log"
    for folder in (log, elsewhere):
        folder.mkdir()
        folder.chmod(0o755)
    elsewhere.chmod(mode)
    warnings = list(exposed_store_warnings([store, log, elsewhere], access))
    assert len(warnings) == 2 * is_open
    for warning in warnings:
        assert str(log) not in warning
        assert "chmod -R" in warning
    assert (store.stat().st_mode & 0o777) == mode


@pytest.mark.parametrize(
    ("access", "folder", "file"),
    [
        pytest.param(FileAccess.OWNER, 0o700, 0o600, id="owner"),
        pytest.param(FileAccess.GROUP, 0o750, 0o640, id="group"),
        pytest.param(FileAccess.UMASK, 0o775, 0o664, id="umask"),
    ],
)
def test_new_files_are_for_those_users_only(
    access: FileAccess, folder: int, file: int, tmp_path: Path
) -> None:
    os.umask(0o002)
    take_umask(access)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    assert (tmp_path / "folder").stat().st_mode & 0o777 == folder
    assert (tmp_path / "file").stat().st_mode & 0o777 == file
