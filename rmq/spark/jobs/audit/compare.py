"""Comparing two logs byte by byte, in the tasks of the audit.

Files are read in pieces that are compared as they are (memcmp); only where pieces differ are the
bytes compared one by one.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from rmq.errors import ConfigError
from rmq.spark.jobs.audit.plan import RUN_GAP_BYTES, RUNS_MAX, Range, Stretch
from rmq.store.reader.files import FileGoneError, FilePool
from rmq.store.segments import segment_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

PIECE_BYTES: Final = 1024 * 1024


class Compared(NamedTuple):
    """The result of comparing one stretch."""

    stretch: Stretch
    runs: tuple[Range, ...]
    """Where bytes differ."""
    absent: str
    """`master` or `slave` if that has no file for it, which retention may have taken."""


def compare_stretches(
    stretches: Iterable[Stretch], master: Path, slave: Path
) -> Iterator[Compared]:
    """Compare stretches of two logs; what one task does. The folders hold the segments."""
    require_here(master, slave)
    files = FilePool()
    try:
        for stretch in stretches:
            yield compare_stretch(files, master, slave, stretch)
    finally:
        files.close()


def require_here(*folders: Path) -> None:
    """Raise `ConfigError` if a folder cannot be seen from the machine that a task runs on."""
    for folder in folders:
        if not folder.is_dir():
            raise ConfigError(
                "--spark-master",
                f"{folder} is not there on {socket.gethostname()}; stores must be on storage that"
                " all machines of the cluster see, or Spark must run where they are: local[*]",
            )


def compare_stretch(files: FilePool, master: Path, slave: Path, stretch: Stretch) -> Compared:
    """Compare one stretch."""
    name = segment_name(stretch.segment)
    runs: list[Range] = []
    position, stop = stretch.start - stretch.segment, stretch.stop - stretch.segment
    while position < stop:
        size = min(PIECE_BYTES, stop - position)
        pieces = []
        for who, folder in (("master", master), ("slave", slave)):
            try:
                pieces.append(files.read(folder / name, position, size))
            except FileGoneError:
                return Compared(stretch, (Range(stretch.start, stretch.stop),), who)
        ours, theirs = pieces
        if ours != theirs:
            base = stretch.segment + position
            for run in differing(ours, theirs):
                _add(runs, Range(base + run.start, base + run.stop))
        # A file that is shorter than it should be has nothing there.
        if min(len(ours), len(theirs)) < size:
            shorter = min(len(ours), len(theirs))
            _add(runs, Range(stretch.segment + position + shorter, stretch.stop))
            break
        position += size
    return Compared(stretch, tuple(runs), "")


def differing(ours: bytes, theirs: bytes) -> list[Range]:
    """Return where bytes differ that both have, as runs."""
    size = min(len(ours), len(theirs))
    left, right = np.frombuffer(ours, np.uint8, size), np.frombuffer(theirs, np.uint8, size)
    places = np.flatnonzero(left != right)
    if not len(places):
        return []
    cuts = np.flatnonzero(np.diff(places) > RUN_GAP_BYTES)
    starts = places[np.concatenate(([0], cuts + 1))]
    stops = places[np.concatenate((cuts, [len(places) - 1]))] + 1
    return [Range(int(start), int(stop)) for start, stop in zip(starts, stops, strict=True)]


def _add(runs: list[Range], run: Range) -> None:
    last = runs[-1] if runs else None
    if last is not None and (len(runs) >= RUNS_MAX or run.start <= last.stop + RUN_GAP_BYTES):
        runs[-1] = Range(last.start, run.stop)
    else:
        runs.append(run)
