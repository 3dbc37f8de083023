"""Changes values in the operator's own settings file and leaves everything else in it alone.

At any moment the file is there and whole: the new content is written beside it and synced, then
takes its place in one step. The content before the last change is kept as `<file>.bak`, in which a
changed secret has its new value: a secret that was replaced is in neither. A link is followed, the
file keeps its permissions, and nothing is ever readable for more users than it: a new file is for
its owner only.

All calls block.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rmq.errors import ConfigError, StorageError
from rmq.files import storage_error, sync_directory, write_synced
from rmq.settings.properties_file import with_changes
from rmq.settings.schema import decode_settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmq.settings.schema import Schema

NEW_FILE_TEXT: Final = "# Settings that were changed by requests.\n"
_PRIVATE: Final = 0o600


def change_file(path: Path, changes: Mapping[str, str], schema: Schema) -> None:
    """Give the keys their values; raise `StorageError` and leave the file as it is if that fails.

    The file is read again first, so that what was edited meanwhile is kept.
    """
    if not changes:
        return
    path = Path(os.path.realpath(path))
    new = path.with_name(path.name + ".tmp")
    try:
        old_data = path.read_bytes() if path.exists() else None
        old_text = NEW_FILE_TEXT if old_data is None else _decoded(old_data, path)
        text = with_changes(old_text, changes)
        if old_data is not None and text == old_text:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = _PRIVATE if old_data is None else stat.S_IMODE(path.stat().st_mode)
        _write(new, text, mode)
        if old_data is not None:
            secrets = {key: value for key, value in changes.items() if _is_secret(schema, key)}
            _write(path.with_name(path.name + ".bak"), with_changes(old_text, secrets), mode)
        new.replace(path)
        sync_directory(path.parent)
    except OSError as exc:
        with contextlib.suppress(OSError):
            new.unlink()
        raise storage_error("write", path, exc) from exc


def _write(path: Path, text: str, mode: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        # It may be there with another mode.
        path.unlink()
    write_synced(path, text.encode(), mode=_PRIVATE)
    path.chmod(mode)


def _is_secret(schema: Schema, key: str) -> bool:
    return key in schema and schema[key].secret


def _decoded(data: bytes, path: Path) -> str:
    try:
        return decode_settings(data, str(path))
    except ConfigError as exc:
        raise StorageError("change", str(path), exc.text, hint=exc.hint) from exc
