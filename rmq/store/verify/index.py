"""Checks the index of a store against its log.

Keys are indexed in the order of the log, so entries and records are read side by side, and nothing
of either is kept. What that needs to say that a key is found: its entry is there (`IndexCheck`),
and the entry is linked into the chain of its slot (`chain`).

What a stock broker makes itself is a note and no error: it drops index files after a crash and adds
again only what it reads again, so that keys may be missing between two files and before the first;
it adds the keys of one record twice; it leaves the entries of records that a recovery cut off, and
adds nothing for records that are later written in their place. Such stale entries are told from
damaged ones by two facts: offsets never go down within the index, and a stale entry is older than
the record that now lies where it points.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rmq.errors import ConfigError, CorruptStoreError
from rmq.model import flags
from rmq.model.offsets import PhysicalOffset
from rmq.model.properties import decode_text, find_keys, find_unique_key
from rmq.store.key_hash import TopicKeys
from rmq.store.verify.chain import ChainCheck, IndexFileState
from rmq.store.verify.finding import DamagedRanges, Findings, Kind, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rmq.model.record import RecordHead
    from rmq.store.reader import Reader
    from rmq.store.reader.index import IndexEntry, IndexView


class _Item(NamedTuple):
    """One entry of the index, and where it is."""

    offset: PhysicalOffset
    """The physical offset it points to."""
    file: IndexFileState
    number: int
    entry: IndexEntry


class IndexCheck:
    """Checks the entries of all index files."""

    def __init__(self, reader: Reader, damaged: DamagedRanges) -> None:
        self.findings = Findings(Kind.INDEX)
        self.entries_checked = 0
        self._reader = reader
        self._damaged = damaged
        self._topic_keys: dict[bytes, TopicKeys] = {}
        self._items = self._in_order(self._read_items())
        self._next: _Item | None = next(self._items, None)
        self._last_file: IndexFileState | None = None
        self._last_head: RecordHead | None = None
        self._unindexed = _Run()
        self._stale = _Run()
        self._repeated = _Run()

    # --- reading the index -----------------------------------------------------------------

    def _read_items(self) -> Iterator[_Item]:
        state = self._reader.state
        previous: IndexFileState | None = None
        for file in self._files(self._reader.index_files()):
            file.previous = previous
            # What a broker adds meanwhile, or was adding when it was killed, is beyond the header.
            chain = ChainCheck(
                file, self.findings, is_closed=not (state.is_live or state.is_abort_present)
            )
            for number, entry in enumerate(file.view.entries(1, file.count), start=1):
                if any(entry):
                    chain.take(number, entry)
                    yield _Item(entry.physical_offset, file, number, entry)
                else:
                    chain.take_empty(number)
            chain.finish()
            previous = file

    def _files(self, views: list[IndexView]) -> list[IndexFileState]:
        """Return the files that have entries; those that cannot be read are reported."""
        files: list[IndexFileState] = []
        unknown: list[tuple[IndexView, ConfigError]] = []
        for view in views:
            if view.size == 0:
                self.findings.note(view.path, "it was never written; a broker removes it")
                continue
            try:
                if view.header.entry_count > 1:
                    files.append(IndexFileState(view))
                elif view.header.slots_used:
                    self.findings.error(
                        view.path,
                        f"the header says {view.header.entry_count} entries, but"
                        f" {view.header.slots_used} slots in use",
                    )
            except CorruptStoreError as bad:
                self.findings.error(view.path, bad.reason)
            except ConfigError as exc:
                unknown.append((view, exc))
        for view, why in unknown:
            if not files:
                raise why  # the numbers of slots and entries were not given
            self.findings.error(
                view.path, f"{view.size} bytes, other index files have {files[0].view.size}"
            )
        return files

    def _in_order(self, items: Iterator[_Item]) -> Iterator[_Item]:
        """Report and leave out entries whose offset is less than that of one before them."""
        highest = PhysicalOffset(-1)
        held: _Item | None = None
        for item in items:
            if held is not None:
                if highest <= item.offset < held.offset:
                    self._report_order(held, item.offset)
                else:
                    highest = held.offset
                    yield held
                held = None
            if item.offset < highest:
                self._report_order(item, highest)
            else:
                held = item
        if held is not None:
            yield held

    def _report_order(self, item: _Item, other: PhysicalOffset) -> None:
        self.findings.error(
            item.file.path,
            f"index entry {item.number} is out of order: beside it is physical offset {other}",
            physical_offset=item.offset,
        )

    # --- record by record ------------------------------------------------------------------

    def take(self, head: RecordHead) -> None:
        """Check the entries of the next record of the log."""
        offset = head.physical_offset
        while self._next is not None and self._next.offset < offset:
            self._pass_dangling(self._next)
        wanted = self._hashes(head)
        items: list[_Item] = []
        while self._next is not None and self._next.offset == offset:
            items.append(self._next)
            self._advance()
        if [item.entry.key_hash for item in items] == wanted:
            for item in items:
                self._check_times(item, head)
                self._report_gap(item, is_stale=False)
        else:
            self._take_unlike(items, wanted, head)
        self._last_head = head

    def _take_unlike(self, items: list[_Item], wanted: list[int], head: RecordHead) -> None:
        """Check the entries of a record that are not just its keys."""
        offset = head.physical_offset
        found = {item.entry.key_hash for item in items}
        missing = [place for place, key_hash in enumerate(wanted) if key_hash not in found]
        # Keys are indexed in order: those before the first that is there are missing before it.
        first = next((place for place, key_hash in enumerate(wanted) if key_hash in found), 0)
        self._unindexed.add_all(offset for place in missing if place < first)
        for item in items:
            if item.entry.key_hash in wanted:
                self._check_times(item, head)
                self._report_gap(item, is_stale=False)
            else:
                self._judge(item, head, "the record there has no key with hash")
        self._unindexed.add_all(offset for place in missing if place >= first)
        if len(items) > len(wanted) and found <= set(wanted):
            self._repeated.add(offset)

    def _hashes(self, head: RecordHead) -> list[int]:
        if head.sys_flag & flags.TRANSACTION_MASK == flags.TRANSACTION_ROLLBACK:
            return []
        keys = [key for key in find_keys(head.properties).split(b" ") if key]
        if unique_key := find_unique_key(head.properties):
            keys.insert(0, unique_key)
        hashes = self._topic_keys.get(head.topic)
        if hashes is None:
            hashes = self._topic_keys[head.topic] = TopicKeys(decode_text(head.topic))
        return [hashes.index_hash(key) for key in keys]

    def _advance(self) -> None:
        self.entries_checked += 1
        self._next = next(self._items, None)

    def _check_times(self, item: _Item, head: RecordHead) -> None:
        _, file, number, entry = item
        if not file.may_say(number, entry.seconds, head.store_ms):
            self.findings.error(
                file.path,
                f"index entry {number} says {entry.seconds} seconds after the begin of the file,"
                f" its record was stored at {head.store_ms}",
                physical_offset=item.offset,
            )
        if number == 1 and file.begin_ms != head.store_ms:
            self._report_header_time(item, "begins", file.begin_ms, head)
            file.begin_ms = head.store_ms  # or else all that follow would be wrong
        if number == file.last_number and file.header.end_ms != head.store_ms:
            self._report_header_time(item, "ends", file.header.end_ms, head)

    def _report_header_time(self, item: _Item, word: str, said: int, head: RecordHead) -> None:
        self.findings.error(
            item.file.path,
            f"the header {word} at time {said}, its record was stored at {head.store_ms}",
            physical_offset=item.offset,
        )

    def _pass_dangling(self, item: _Item) -> None:
        """Leave behind an entry that points to no record."""
        if item.offset in self._damaged or item.offset < self._reader.min_offset:
            self._report_gap(item, is_stale=False)
        else:
            self._judge(item, self._last_head, "no record begins there; its hash is")
        self._advance()

    def _judge(self, item: _Item, head: RecordHead | None, what: str) -> None:
        """Decide whether an entry that fits no record is stale or damaged."""
        is_stale = head is not None and item.file.latest_ms(item.entry) < head.store_ms
        self._report_gap(item, is_stale=is_stale)
        if is_stale:
            self._stale.add(item.offset)
        else:
            self.findings.error(
                item.file.path,
                f"index entry {item.number}: {what} {item.entry.key_hash}",
                physical_offset=item.offset,
            )

    def _report_gap(self, item: _Item, *, is_stale: bool) -> None:
        """Report records without entries, now that it is known what comes behind them."""
        last, self._last_file = self._last_file, item.file
        if not self._unindexed.count:
            return
        if is_stale:
            self._report_unindexed(Severity.NOTE, item.file, ", written over records cut off")
        elif last is None:
            self._report_unindexed(Severity.NOTE, item.file, ", older than the index")
        elif last is not item.file:
            self._report_unindexed(Severity.NOTE, item.file, ", between two index files")
        else:
            self._report_unindexed(Severity.ERROR, item.file, "")

    def _report_unindexed(self, severity: Severity, file: IndexFileState | None, why: str) -> None:
        run, self._unindexed = self._unindexed, _Run()
        if run.count:
            path = file.path if file is not None else self._reader.root / "index"
            self.findings.add(
                severity, path, f"keys{why} that are not in the index: {run}", run.first
            )

    # --- the end ---------------------------------------------------------------------------

    def finish(self, log_end: PhysicalOffset) -> None:
        """Check what the index has besides the keys of records."""
        beyond = _Run()
        while (item := self._next) is not None:
            if item.offset < log_end:
                self._pass_dangling(item)
            else:
                self._report_gap(item, is_stale=True)
                beyond.add(item.offset)
                self._advance()
        self._report_unindexed(Severity.NOTE, self._last_file, ", newer than the index")
        directory = self._reader.root / "index"
        notes = [
            (self._stale, "entries of records that a recovery cut off"),
            (self._repeated, "records whose keys were added twice"),
        ]
        if not self._reader.state.is_live:
            notes.append((beyond, "entries of records beyond the end of the log"))
        for run, what in notes:
            if run.count:
                self.findings.note(directory, f"{what}: {run}", physical_offset=run.first)


class _Run:
    """How many offsets there are, and from where to where."""

    __slots__ = ("count", "first", "last")

    def __init__(self) -> None:
        self.count = 0
        self.first = PhysicalOffset(0)
        self.last = PhysicalOffset(0)

    def add(self, offset: PhysicalOffset) -> None:
        if not self.count:
            self.first = offset
        self.last = offset
        self.count += 1

    def add_all(self, offsets: Iterable[PhysicalOffset]) -> None:
        for offset in offsets:
            self.add(offset)

    def __str__(self) -> str:
        if self.first == self.last:
            return f"{self.count}, at physical offset {self.first}"
        return f"{self.count}, from physical offset {self.first} to {self.last}"
