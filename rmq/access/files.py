"""The files of access control: where they are, what they say together, and whether they changed.

There is one main file, `plain_acl.yml`, and any number of further ones: every `.yml` and `.yaml` in
the folder `acl` beside it. All calls block.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from rmq.access.document import Document, read_document
from rmq.errors import ConfigError
from rmq.settings.yaml_file import read_yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmq.settings.yaml_file import YamlValue

FILE_NAME: Final = "plain_acl.yml"
FOLDER_NAME: Final = "acl"
FILES_MAX: Final = 1000
_SUFFIXES: Final = (".yml", ".yaml")

Stamp: TypeAlias = tuple[tuple[str, int, int, int], ...]
"""Path, time of change, size and inode of every file: differs when one of them was written."""


@dataclass(frozen=True, slots=True)
class AccessFiles:
    """The main file, and the folder of the others beside it."""

    main: Path

    @property
    def folder(self) -> Path:
        return self.main.parent / FOLDER_NAME

    def paths(self) -> list[Path]:
        """Return all files that are there: those of the folder first, as in 4.9.8."""
        return [*sorted(islice(_in_folder(self.folder), FILES_MAX + 1)), self.main]

    def stamp(self) -> Stamp:
        """Return what tells whether anything changed; a missing file counts, too."""
        stamps: list[tuple[str, int, int, int]] = []
        for path in self.paths():
            try:
                status = path.stat()
            except OSError:
                stamps.append((str(path), 0, 0, 0))
            else:
                stamps.append((str(path), status.st_mtime_ns, status.st_size, status.st_ino))
        return tuple(stamps)

    def read(self) -> list[Document]:
        """Read all files; raise `ConfigError` for the first that is missing or wrong."""
        paths = self.paths()
        if len(paths) > FILES_MAX:
            raise ConfigError(
                str(self.folder), f"has more than {FILES_MAX - 1} files", hint="put some together"
            )
        return [read_one(path)[1] for path in paths]


def find_files(named: str | None, home: str | None, beside: Path | None) -> AccessFiles:
    """Return where the files are to be; raise `ConfigError` if there is no main file.

    It is the one that is `named` (below `home`, or beside the settings file, unless its path is
    absolute), else `conf/plain_acl.yml` in `home`, the directory of a Java installation, else
    `plain_acl.yml` beside the settings file.
    """
    settings_folder = Path() if beside is None else beside.parent
    if named:
        places = [Path(home or settings_folder) / named]
    else:
        places = [Path(home) / "conf" / FILE_NAME] if home else []
        places.append(settings_folder / FILE_NAME)
    for place in places:
        if place.exists():
            return AccessFiles(Path(os.path.abspath(place)))  # noqa: PTH100 - keeps links
    raise ConfigError(
        "aclEnable",
        f"there is no file of accounts: {' and '.join(map(str, places))} do not exist"
        if len(places) > 1
        else f"there is no file of accounts: {places[0]} does not exist",
        hint="write it (docs/access.md shows one), name another one as rocketmq.acl.plain.file,"
        " or set aclEnable=false",
    )


def read_one(path: Path) -> tuple[dict[str, YamlValue], Document]:
    """Return the members of a file, and what they say."""
    try:
        changed_ms = path.stat().st_mtime_ns // 1_000_000
    except OSError:
        changed_ms = 0  # The read fails next, and says why.
    members = read_yaml(path)
    return members, read_document(members, str(path), changed_ms)


def _in_folder(folder: Path) -> Iterator[Path]:
    """Return the files of a folder and of the folders in it, without following links to folders."""
    for root, _, names in os.walk(folder):
        for name in names:
            if name.endswith(_SUFFIXES):
                yield Path(root) / name
