"""The folder of an archive: what is in it, and how a run becomes part of it, at once or not at all.

    manifest.json           what is archived, all runs together
    history/run-000001.json the manifest of each run
    data/run=000001/        files of a run: date=.../topic=.../*.parquet, and its own manifest
    data/_run-000002/       files of a run that has not ended: readers of Parquet ignore it

A run writes its files into a hidden folder, then its manifest beside them, and then gives the
folder its name. That one step counts: before it nothing is archived, after it all is, and the next
run finds it whether `manifest.json` says so or not. Whatever a run that was killed left behind is
hidden, and the next run removes it.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import re
import shutil
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, final

from rmq.errors import ConfigError, DiskFullError, StorageError
from rmq.spark.jobs.archive.manifest import (
    Manifest,
    folder_name,
    manifest_json,
    parse_manifest,
    parse_run,
    run_json,
)
from rmq.spark.pipelines.results import write_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from rmq.spark.jobs.archive.manifest import RunManifest
    from rmq.spark.pipelines.verdict import Json

logger = logging.getLogger(__name__)

MANIFEST: Final = "manifest.json"
RUN_MANIFEST: Final = "_manifest.json"
LOCK: Final = ".lock"
_RUN: Final = re.compile(r"run=(\d{6,})")
_PAST_RUN: Final = re.compile(r"run-(\d{6,})\.json")
_UNFINISHED: Final = re.compile(r"_run-\d{6,}")

_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_FULL_HINT: Final = "make room, then run it again: an unfinished run leaves nothing that counts"
_NO_LOCKS: Final = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
_LOCK_HINT: Final = (
    "an archive must lie on a file system that has locks; one mounted over NFS needs its lock"
    " service"
)


@final
class ArchiveFolder:
    """One archive. `checkpoint` is where `manifest.json` is kept, if not in the folder itself."""

    def __init__(self, root: Path, checkpoint: Path | None = None) -> None:
        self.root = root
        self.data = root / "data"
        self._history = root / "history"
        self.manifest_path = (checkpoint or root) / MANIFEST

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other runs out; raise `ConfigError` if one is at work."""
        try:
            self.data.mkdir(parents=True, exist_ok=True)
            self.manifest_path.parent.mkdir(parents=True, exist_ok=True)
            fd = os.open(self.root / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as exc:
            raise _refused("open the archive", self.root, exc) from exc
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as exc:
                raise ConfigError(
                    "--out", f"another run is writing to {self.root}", hint="let it end first"
                ) from exc
            except OSError as exc:
                raise _refused("lock", self.root / LOCK, exc) from exc
            yield
        finally:
            os.close(fd)

    # --- what is there ---------------------------------------------------------------------

    def load(self) -> Manifest:
        """Return what is archived: what the manifest says, and runs that it does not know yet.

        Raises `ConfigError` if the files are not those of one archive, or if it is not known what
        runs that were moved away hold.
        """
        known = self._load_manifest()
        runs = self._run_numbers()
        past = self._history_numbers()
        if known is not None:
            self._check_is_ours(known, runs, past)
        elif runs:
            logger.warning("%s is not there: it is made again from the runs", self.manifest_path)
            known = Manifest(self.run_manifest(runs[0]).archive_id)
        else:
            known = Manifest(uuid.uuid4().hex)
        for run in runs:
            if run > known.last_run + 1:
                raise self._unknown(known.last_run + 1)
            if run > known.last_run:
                known = known.with_run(self.run_manifest(run))
        if past and past[-1] > known.last_run:
            raise self._unknown(known.last_run + 1)
        return known

    def _check_is_ours(self, known: Manifest, runs: list[int], past: list[int]) -> None:
        """Raise `ConfigError` if a manifest is not that of the runs here; `past` has a history."""
        there = [run for run in runs if run <= known.last_run]
        told = [run for run in past if run <= known.last_run]
        for run in sorted({*there[:1], *there[-1:]}):
            known.require_own(self.run_manifest(run))
        for run in told[-1:]:
            known.require_own(_parse_run(self._history_path(run)))
        # Both files of a run are there before a manifest knows it.
        if known.last_run and known.last_run not in (*there, *told):
            raise ConfigError(
                "--checkpoint",
                f"{self.manifest_path} knows run {known.last_run}, of which {self.root} has no"
                " trace, not even in history",
                hint="give --out and --checkpoint of the same archive; if it continues in another"
                " folder, copy its history there",
            )

    def _unknown(self, run: int) -> ConfigError:
        """Return the error for a run that was moved away and that no manifest knows."""
        return ConfigError(
            "--checkpoint",
            f"run {run} is not in {self.data}, and {self.manifest_path} does not know it: what"
            " was archived is not known",
            hint="name the folder that has manifest.json with --checkpoint, or put the runs back",
        )

    def _load_manifest(self) -> Manifest | None:
        value = _read_json(self.manifest_path)
        if value is None:
            return None
        try:
            return parse_manifest(value)
        except (ValueError, KeyError, TypeError, AttributeError) as exc:
            raise ConfigError(
                "--out", f"{self.manifest_path} is not the manifest of an archive: {exc!r}"
            ) from exc

    def run_manifest(self, run: int) -> RunManifest:
        """Return the manifest of a run that has ended; raise `ConfigError` if it has none."""
        return _parse_run(self.data / folder_name(run) / RUN_MANIFEST)

    def _run_numbers(self) -> list[int]:
        return _numbers(self.data, _RUN)

    def _history_numbers(self) -> list[int]:
        return _numbers(self._history, _PAST_RUN)

    def _history_path(self, run: int) -> Path:
        return self._history / f"run-{run:06d}.json"

    def run_folders(self) -> list[Path]:
        """Return the folders of all runs that have ended and are there."""
        return [self.data / folder_name(run) for run in self._run_numbers()]

    # --- a run -----------------------------------------------------------------------------

    def begin(self, run: int) -> Path:
        """Return the folder for the files of a run, which is not there yet.

        What runs that did not end left behind is removed.
        """
        try:
            for path in self.data.iterdir():
                if _UNFINISHED.fullmatch(path.name):
                    logger.info("removing %s: its run did not end", path)
                    shutil.rmtree(path)
        except OSError as exc:
            raise _refused("remove what is left of an earlier run in", self.data, exc) from exc
        return self.data / f"_run-{run:06d}"

    def discard(self, folder: Path) -> None:
        """Remove the files of a run that failed, as far as possible."""
        shutil.rmtree(folder, ignore_errors=True)

    def commit(self, folder: Path, run: RunManifest) -> None:
        """Make a run part of the archive. From the renaming on, it is."""
        _write_json(folder / RUN_MANIFEST, run_json(run))
        _sync(*folder.rglob("*"), folder)
        try:
            folder.rename(self.data / folder_name(run.run))
        except OSError as exc:
            raise _refused("rename", folder, exc) from exc
        _sync(self.data)

    def save(self, manifest: Manifest) -> None:
        """Write what is archived, and the history of runs, as far as it is not there."""
        for run in self._run_numbers():
            path = self._history_path(run)
            if not path.exists():
                _write_json(path, run_json(self.run_manifest(run)))
        _write_json(self.manifest_path, manifest_json(manifest))


def _sync(*paths: Path) -> None:
    """Have files and names on disk before others rely on them."""
    for path in paths:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as exc:
            raise _refused("write", path, exc) from exc


def _numbers(folder: Path, name: re.Pattern[str]) -> list[int]:
    """Return the numbers of the runs that have a file or folder of such a name."""
    try:
        names = [path.name for path in folder.iterdir()]
    except FileNotFoundError:
        return []
    except OSError as exc:
        raise _refused("list", folder, exc) from exc
    found = map(name.fullmatch, names)
    return sorted(int(match[1]) for match in found if match)


def _parse_run(path: Path) -> RunManifest:
    try:
        return parse_run(_read_json(path))
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise ConfigError("--out", f"{path} is not the manifest of a run: {exc!r}") from exc


def _write_json(path: Path, value: Mapping[str, Json]) -> None:
    try:
        write_json(path, value)
    except StorageError as exc:
        if isinstance(exc.__cause__, OSError):
            raise _refused("write", path, exc.__cause__) from exc
        raise


def _read_json(path: Path) -> Any:  # noqa: ANN401 - JSON
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise _refused("read", path, exc) from exc
    except ValueError as exc:
        raise ConfigError("--out", f"{path} cannot be read: {exc}") from exc


def _refused(operation: str, path: Path, exc: OSError) -> StorageError:
    reason = exc.strerror or str(exc)
    if exc.errno in _FULL:
        return DiskFullError(operation, str(path), reason, hint=_FULL_HINT)
    hint = _LOCK_HINT if exc.errno in _NO_LOCKS else None
    return StorageError(operation, str(path), reason, hint=hint)
