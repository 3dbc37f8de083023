"""When messages were stored, looked up in the files of the store by a thread.

The event loop must not read the log for a scrape: what a group that is far behind has not read yet
has left memory, and a page that is not there stops all of the process until the disk has it, also
if a thread touches it, for mapped files are read under the interpreter's lock. So a thread reads
the few bytes that it needs from the files, which does not hold that lock.

What a scrape needs and is not known is looked up for it, at most `LOOKUPS_MAX` messages; what was
looked up is kept as long as scrapes ask for it. What could not be found is not known, and
then the age of the whole group is not.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from typing import TYPE_CHECKING, Final, Self, TypeAlias, final

from rmq.store.reader.store_times import FilePart, read_entry, read_store_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

LOOKUPS_MAX: Final = 2000
"""How many messages are looked up for one scrape, each with two small reads."""
FILES_MAX: Final = 64
"""How many files are open at a time for that."""


Place: TypeAlias = tuple[str, int, int]
"""A message by topic, queue and its offset there. A plain tuple of texts and numbers: tens of
thousands of them are kept, and the collector of cycles leaves those out.
"""


@final
class StoreTimes:
    """Knows when the messages were stored that scrapes ask for.

    `queue_file` returns the file of a queue that has an offset, and the place in it; `log_files`
    those of the log, in order. Both are asked in the event loop, and read nothing.
    """

    def __init__(
        self,
        queue_file: Callable[[Place], FilePart | None],
        log_files: Callable[[], list[FilePart]],
    ) -> None:
        self._queue_file = queue_file
        self._log_files = log_files
        self._known: dict[Place, int] = {}
        self._before: dict[Place, int] = {}
        self._lookups: dict[Place, FilePart] = {}
        self._log: list[FilePart] = []
        self._found: list[tuple[Place, int]] = []

    def begin(self) -> None:
        """Begin a scrape: what it does not `want` is forgotten when it ends."""
        self._take_found()
        self._before, self._known = self._known, {}
        self._lookups = {}

    def want(self, places: Iterable[Place]) -> None:
        """Note messages that the scrape needs."""
        before, known, lookups = self._before, self._known, self._lookups
        for place in places:
            stored_ms = before.get(place)
            if stored_ms is not None:
                known[place] = stored_ms
            elif place not in lookups and len(lookups) < LOOKUPS_MAX:
                file = self._queue_file(place)
                if file is not None:
                    lookups[place] = file

    def end(self) -> None:
        """Note that it needs no more; `read` comes next."""
        self._before = {}
        self._log = self._log_files() if self._lookups else []

    def read(self) -> None:
        """Look up what is needed. Blocks: call it in a thread; one at a time."""
        log, lookups = self._log, self._lookups
        firsts = [file.position for file in log]
        found: list[tuple[Place, int]] = []
        with _Files() as files:
            for place, file in lookups.items():
                physical = read_entry(files.open(file.path), file.position)
                number = -1 if physical is None else bisect_right(firsts, physical) - 1
                if physical is None or number < 0:
                    continue
                segment = log[number]
                stored_ms = read_store_ms(files.open(segment.path), segment.position, physical)
                if stored_ms is not None:
                    found.append((place, stored_ms))
        self._found = found

    def oldest_s(self, places: Iterable[Place], now_ms: int) -> float | None:
        """Return the age of the oldest of these messages; 0 without any, None if not known."""
        self._take_found()
        oldest_ms = now_ms
        for place in places:
            stored_ms = self._known.get(place)
            if stored_ms is None:
                return None
            oldest_ms = min(oldest_ms, stored_ms)
        return (now_ms - oldest_ms) / 1000

    def _take_found(self) -> None:
        if self._found:
            found, self._found = self._found, []
            self._known.update(found)


@final
class _Files:
    """Opens files once, and not many at a time."""

    def __init__(self) -> None:
        self._descriptors: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        for path in list(self._descriptors):
            self._close(path)

    def open(self, path: str) -> int:
        """Return a descriptor of a file, one that reads nothing if the file is gone."""
        descriptor = self._descriptors.get(path)
        if descriptor is None:
            if len(self._descriptors) >= FILES_MAX:
                self._close(next(iter(self._descriptors)))
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                descriptor = -1
            self._descriptors[path] = descriptor
        return descriptor

    def _close(self, path: str) -> None:
        descriptor = self._descriptors.pop(path)
        if descriptor >= 0:
            os.close(descriptor)
