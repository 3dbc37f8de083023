"""Changes values in the operator's own settings file and leaves everything else in it alone.

At any moment the file is there and whole: the new content is written beside it and synced, then
takes its place in one step. The content before the last change is kept as `<file>.bak`. A link is
followed, and the file keeps its permissions.

All calls block.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rmq.errors import ConfigError, StorageError
from rmq.files import storage_error, sync_directory, write_synced
from rmq.settings.properties_file import with_changes
from rmq.settings.schema import decode_settings

if TYPE_CHECKING:
    from collections.abc import Mapping

NEW_FILE_TEXT: Final = "# Settings that were changed while the broker ran.\n"


def change_file(path: Path, changes: Mapping[str, str]) -> None:
    """Give the keys their values; raise `StorageError` and leave the file as it is if that fails.

    The file is read again first, so that what was edited meanwhile is kept.
    """
    path = Path(os.path.realpath(path))
    new = path.with_name(path.name + ".tmp")
    try:
        old_data = path.read_bytes() if path.exists() else None
        old_text = NEW_FILE_TEXT if old_data is None else _decoded(old_data, path)
        text = with_changes(old_text, changes)
        if old_data is not None and text == old_text:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        write_synced(new, text.encode())
        if old_data is not None:
            shutil.copymode(path, new)
            write_synced(path.with_name(path.name + ".bak"), old_data)
            shutil.copymode(path, path.with_name(path.name + ".bak"))
        new.replace(path)
        sync_directory(path.parent)
    except OSError as exc:
        with contextlib.suppress(OSError):
            new.unlink()
        raise storage_error("write", path, exc) from exc


def _decoded(data: bytes, path: Path) -> str:
    try:
        return decode_settings(data, str(path))
    except ConfigError as exc:
        raise StorageError("change", str(path), str(exc), hint=exc.hint) from exc
