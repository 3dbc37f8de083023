"""What other users of the machine may read: files with secrets, and stores.

Warnings name the file and the command that closes it. Nothing is changed: a mode may be meant.
"""

from __future__ import annotations

import os
import stat
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rmq.settings.setting import format_value

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmq.settings.schema import Schema, Values


class FileAccess(StrEnum):
    """For which users new files are readable."""

    OWNER = "owner"
    GROUP = "group"
    UMASK = "umask"
    """For those that the umask of the process says."""


_UMASKS: Final = {FileAccess.OWNER: 0o077, FileAccess.GROUP: 0o027}
_OTHERS: Final = 0o077
"""Permissions of all but the owner."""


def take_umask(access: FileAccess) -> None:
    """Make what this process creates from now on readable for these users only."""
    if access in _UMASKS:
        os.umask(_UMASKS[access])


def secret_file_warnings(
    schema: Schema, values: Values, settings_file: Path | None
) -> Iterable[str]:
    """Return a sentence for each file with a secret that other users may read."""
    secrets = [setting.key for setting in schema if setting.secret and values[setting.key]]
    if secrets and settings_file is not None:
        yield from exposed_file_warnings(settings_file, ", ".join(secrets))
    for setting in schema:
        if setting.names_secret and (name := format_value(values[setting.key])):
            yield from exposed_file_warnings(Path(name), setting.key)


def exposed_file_warnings(path: Path, what: str) -> Iterable[str]:
    """Return a sentence if other users may read a file with secrets; `what` says which."""
    mode = _mode_of(path)
    if mode & _OTHERS:
        yield (
            f"{path} ({what}) is secret, and other users of this machine may read or change it"
            f" (mode {mode:o}): chmod 600 {path}"
        )


def exposed_store_warnings(folders: Iterable[Path], access: FileAccess) -> Iterable[str]:
    """Return a sentence for each folder of a store that is there already, and open to more users
    than it is to be. One below another of them needs none: the upper one decides.
    """
    unwanted = _UMASKS.get(access, 0)
    removed = "go-rwx" if access is FileAccess.OWNER else "g-w,o-rwx"
    above: list[Path] = []
    for folder in folders:
        mode = _mode_of(folder)
        if mode & unwanted and not any(folder.is_relative_to(each) for each in above):
            yield (
                f"{folder} is open to other users of this machine (mode {mode:o}), who may read the"
                f" messages in it: chmod -R {removed} {folder}, or set storeFileAccess"
            )
        above.append(folder)


def _mode_of(path: Path) -> int:
    """Return the permissions of a file, none if it cannot be told."""
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return 0
