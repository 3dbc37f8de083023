"""Settings by name with a version: what the tables of topics and of groups have in common.

A table holds immutable settings, counts its changes, moves its `DataVersion` on with each, and
writes itself as the config file of a stock broker. Which settings there are, and when they change,
is the business of its subclasses. Nothing here does I/O: `on_change` is called to have the file
written.

The text of each entry, as in the file and as in bodies, is kept until the entry changes, so that
writing or encoding a table of thousands after one change costs little more than joining lines.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from rmq.broker.tables.order import SETTINGS_TABLE_SIZE, spread_hash, table_order
from rmq.broker.tables.parts import Part, place_now
from rmq.model import fastjson
from rmq.remoting.bodies.topics import DataVersion

if TYPE_CHECKING:
    from collections.abc import (
        Callable,
        Generator,
        ItemsView,
        Iterator,
        KeysView,
        Mapping,
    )

    from rmq.broker.tables.parts import WantedPart
    from rmq.remoting.bodies.base import Body

Entry = TypeVar("Entry", bound="Body")

FILE_BYTES_MAX: Final = 1 << 30
"""Limit for a broker's own files, which may be longer than bodies from the network."""
_ENTRIES_PER_STEP: Final = 32
_LINES_PER_STEP: Final = 16


class VersionedTable(Generic[Entry]):
    """Immutable settings by name."""

    def __init__(self, member: str, now_ms: Callable[[], int]) -> None:
        self._member = member
        self._now_ms = now_ms
        self._entries: dict[str, Entry] = {}
        self._hashes: dict[str, int] = {}
        self._lines: dict[str, str] = {}
        self._rows: dict[str, bytes] = {}
        self._stale: dict[str, None] = {}
        """Entries without a line, or with one from before they changed."""
        self._order: list[str] | None = None
        self._id = now_ms()
        self._removed = 0
        self._encoded: tuple[tuple[int, DataVersion], bytes] | None = None
        self.version = DataVersion(timestamp=now_ms())
        self.changes = 0
        """Moves with every change: what was derived from an entry is good until it does."""
        self.on_change: Callable[[Entry | None], None] = _ignore
        """Called after each change with the entry that is new, or None if others are."""
        self.get: Callable[[str], Entry | None] = self._entries.get
        """Return an entry by its name."""

    # --- reading ---

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def names(self) -> KeysView[str]:
        return self._entries.keys()

    def items(self) -> ItemsView[str, Entry]:
        return self._entries.items()

    def render(self) -> str:
        """Return the text of the config file."""
        for name in list(self._stale):
            self._make_line(name)
        lines = self._lines
        members = ",".join([lines[name] for name in self._names_in_order()])
        return (
            '{\n\t"dataVersion":{'
            f'\n\t\t"counter":{self.version.counter},'
            f'\n\t\t"timestamp":{self.version.timestamp}\n\t}},'
            f'\n\t"{self._member}":{{{members}' + ("\n\t}\n}" if members else "}\n}")
        )

    def render_pieces(self) -> Iterator[str]:
        """Yield the text of the config file, prepared in steps of about a millisecond.

        All of it comes in the last piece, made in one step: it is the table of one moment.
        """
        while len(self._stale) > _LINES_PER_STEP:
            for name in list(islice(self._stale, _LINES_PER_STEP)):
                self._make_line(name)
            yield ""
        yield self.render()

    def _make_line(self, name: str) -> None:
        del self._stale[name]
        self._lines[name] = _line(name, self._entries[name])

    def encoding(self) -> Generator[None, None, bytes]:
        """Return the table as a body, in steps of about a millisecond; once per change.

        Slaves ask every few seconds, and each registration has all topics. Entries may change
        between the steps; the result is the table of the last one.
        """
        state = (self.changes, self.version)
        if self._encoded is not None and self._encoded[0] == state:
            return self._encoded[1]
        while names := [name for name in self._entries if name not in self._rows]:
            for number, name in enumerate(names, 1):
                if number % _ENTRIES_PER_STEP == 0:
                    yield
                entry = self._entries.get(name)
                if entry is not None:
                    self._row(name, entry)
        rows = self._rows
        body = self._body([rows[name] for name in self._names_in_order()], self.version)
        self._encoded = ((self.changes, self.version), body)
        return body

    def _row(self, name: str, entry: Entry) -> bytes:
        row = self._rows.get(name)
        if row is None:
            row = self._rows[name] = fastjson.dumps(name) + b":" + fastjson.dumps(entry)
        return row

    def _body(self, rows: list[bytes], version: DataVersion) -> bytes:
        head = b'{"dataVersion":%b,"%b":{' % (fastjson.dumps(version), self._member.encode())
        return head + b",".join(rows) + b"}}"

    @property
    def version_text(self) -> str:
        """The version as slaves of our own tell it when they ask for the table."""
        return f"{self.version.counter}:{self.version.timestamp}"

    def part(self, wanted: WantedPart) -> Generator[None, None, Part]:
        """Return a part of the table as a body of its own, in steps of about a millisecond.

        Entries may change between the steps. The version in the body is that of the first step.
        """
        names, version = list(self._entries), self.version
        place = place_now(wanted.place, self._id, self._removed)
        position, size = place.position, 0
        rows: list[bytes] = []
        while position < len(names) and size < wanted.bytes_max:
            name = names[position]
            entry = self._entries.get(name)
            if entry is not None:
                rows.append(self._row(name, entry))
                size += len(rows[-1]) + 1
            position += 1
            if position % _ENTRIES_PER_STEP == 0:
                yield
        is_end = position >= len(names)
        next_place = "" if is_end else place._replace(position=position).text()
        return Part(self._body(rows, version), next_place)

    def _ordered(self) -> dict[str, Entry]:
        """Return the entries in the order in which a stock broker lists them."""
        return {name: self._entries[name] for name in self._names_in_order()}

    def _names_in_order(self) -> list[str]:
        if self._order is None:
            self._order = table_order(self._hashes, SETTINGS_TABLE_SIZE)
        return self._order

    # --- changing ---

    def _put(self, name: str, entry: Entry) -> None:
        """Set an entry, as a new version of the table."""
        self._put_quietly(name, entry)
        self._next_version()
        self.on_change(entry)

    def _put_quietly(self, name: str, entry: Entry) -> None:
        """Set an entry, and leave it to the caller to make that a new version."""
        if name not in self._entries:
            self._hashes[name] = spread_hash(name)
            self._order = None
        self._entries[name] = entry
        self._stale[name] = None
        self._rows.pop(name, None)
        self.changes += 1

    def _remove(self, name: str) -> Entry | None:
        """Remove an entry and return it; None, and no new version, if there is none."""
        entry = self._entries.pop(name, None)
        if entry is not None:
            self._removed += 1
            del self._hashes[name]
            self._lines.pop(name, None)
            self._rows.pop(name, None)
            self._stale.pop(name, None)
            self._order = None
            self.changes += 1
            self._next_version()
            self.on_change(None)
        return entry

    def _next_version(self) -> None:
        self.version = DataVersion(timestamp=self._now_ms(), counter=self.version.counter + 1)

    def _load(self, entries: Mapping[str, Entry], version: DataVersion) -> int:
        """Take the entries of a file on top of the built-in ones; return how many."""
        self._merge(entries, version)
        self.render()  # once now, before there are clients that the first time would hold up
        return len(entries)

    def _merge(self, entries: Mapping[str, Entry], version: DataVersion) -> None:
        """Put entries over those that are there, and take on their version."""
        for name, entry in entries.items():
            self._put_quietly(name, entry)
        self.version = version

    def _replacing(
        self, entries: Mapping[str, Entry], version: DataVersion
    ) -> Generator[None, None, bool]:
        """Replace all entries by these, unless the version says that they are the same.

        What takes long is done first, in steps of about a millisecond, and then all of it changes
        at once. Returns whether there was anything to change.
        """
        if version == self.version:
            return False
        hashes: dict[str, int] = {}
        lines: dict[str, str] = {}
        for number, (name, entry) in enumerate(entries.items(), 1):
            is_known = name not in self._stale and self._entries.get(name) == entry
            known = self._lines.get(name) if is_known else None
            lines[name] = known or _line(name, entry)
            hashes[name] = self._hashes[name] if name in self._hashes else spread_hash(name)
            if number % _ENTRIES_PER_STEP == 0:
                yield
        self._removed += len(self._entries)
        self._rows = {
            name: row
            for name, row in self._rows.items()
            if self._entries[name] == entries.get(name)
        }
        self._entries.clear()  # the same dict: `get` is a method of it
        self._entries.update(entries)
        self._hashes = hashes
        self._lines = lines
        self._stale = {}
        self._order = None
        self.version = version
        self.changes += 1
        self.on_change(None)
        return True


def _ignore(_entry: object) -> None:
    """Ignore a change: no callback is set."""


def _line(name: str, entry: Body) -> str:
    # Line ends inside of strings are escaped, so every one found is between members.
    settings = fastjson.pretty(entry).decode().replace("\n", "\n\t\t")
    return f"\n\t\t{fastjson.dumps(name).decode()}:{settings}"
