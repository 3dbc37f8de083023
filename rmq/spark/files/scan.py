"""One part of a CommitLog: from the bytes of a segment to records, thousands at a time.

A segment is read in pieces of some MiB with `pread`, for the reason that `rmq.store.reader.files`
gives. In each piece all records are found at once, their lengths checked and compared with the
physical offsets that they say they have. What ends such a run is checked by itself: the rest of a
record whose beginning was read, the blank that ends a segment, or damage.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from rmq.errors import ConfigError, CorruptStoreError
from rmq.model.offsets import PhysicalOffset
from rmq.model.record import BadRecordError, NeedMoreDataError, read_head
from rmq.model.record_layout import RECORD_PREFIX
from rmq.spark.decoding.boundaries import find_chain
from rmq.spark.decoding.heads import Heads, UnsoundRecordError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmq.spark.files.planning import LogPart
    from rmq.store.reader.files import FilePool
    from rmq.store.reader.log import LogFiles

logger = logging.getLogger(__name__)

CHUNK_BYTES_MIN: Final = 1024**2
CHUNK_BYTES_MAX: Final = 8 * 1024**2
"""How much is read at once, unless a record is longer."""
RECORD_BYTES_GUESS: Final = 350
FILL: Final = 0.95
"""How full a batch is aimed to be: one record too many would make two of it."""
LOGGED_MAX: Final = 100
"""How many stretches of damage a task logs one by one."""

DAMAGE_HINT: Final = (
    "skipCorrupt=true reads on behind it; rmq store verify lists all damage, and a sound copy may"
    " be on a slave"
)


class Block(NamedTuple):
    """Sound records that follow each other."""

    base: int
    """The physical offset of the bytes that they were read from."""
    heads: Heads


class Damage:
    """What a task does about damage: an error, or a line in the log of the worker."""

    def __init__(self, *, skips: bool) -> None:
        self.skips = skips
        self._count = 0

    def report(self, bad: CorruptStoreError) -> None:
        """Raise it, or log it if damage is to be skipped."""
        if not self.skips:
            raise bad
        self._count += 1
        if self._count <= LOGGED_MAX:
            logger.warning("skipped: %s", bad)
        if self._count == LOGGED_MAX:
            logger.warning("further damage in this part of the log is not logged")


class Scan:
    """Yields the records of one part of the log; raises `FileGoneError` if it was deleted."""

    def __init__(
        self, files: FilePool, log: LogFiles, part: LogPart, damage: Damage, *, block_rows: int
    ) -> None:
        """`log` finds the next sound record behind damage; a block has about `block_rows`."""
        self._files = files
        self._log = log
        self._part = part
        self._damage = damage
        self._block_rows = block_rows
        self._chunk_bytes = self._chunk_for(RECORD_BYTES_GUESS)

    def __iter__(self) -> Iterator[Block]:
        part = self._part
        position: int | None = part.start
        while position is not None and position < part.stop:
            data = self._read(position)
            chain = find_chain(data)
            if chain.stop == 0:
                position = self._behind(data, position)
                continue
            heads, bad = self._sound(data, chain.starts, position)
            if len(heads):
                yield Block(position, heads)
            if bad is not None:
                position = self._behind_damage(bad)
                continue
            self._chunk_bytes = self._chunk_for(chain.stop / len(heads))
            position += chain.stop

    def _chunk_for(self, record_bytes: float) -> int:
        wanted = int(self._block_rows * record_bytes * FILL)
        return max(CHUNK_BYTES_MIN, min(wanted, CHUNK_BYTES_MAX))

    def _read(self, position: int) -> bytes:
        part = self._part
        size = min(self._chunk_bytes, part.stop - position)
        return self._files.read(part.path, position - part.first, size)

    def _sound(
        self, data: bytes, starts: np.ndarray[tuple[int], np.dtype[np.int64]], position: int
    ) -> tuple[Heads, CorruptStoreError | None]:
        """Return the heads of the sound records at the beginning, and what is wrong behind them."""
        bad = None
        try:
            heads = Heads(data, starts)
        except UnsoundRecordError as unsound:
            bad = self._bad(position + int(starts[unsound.index]), unsound.reason)
            heads = Heads(data, starts[: unsound.index])
        said = heads.integers("physical_offset")
        is_elsewhere = said != position + heads.starts
        if is_elsewhere.any():
            index = int(np.argmax(is_elsewhere))
            reason = f"the record says it is at physical offset {said[index]}"
            bad = self._bad(position + int(starts[index]), reason)
            heads = heads.part(slice(0, index))
        return heads, bad

    def _behind(self, data: bytes, position: int) -> int | None:
        """Return where to go on from where no whole record begins; None if reading ends here."""
        part = self._part
        room = part.segment_end - position
        if room < RECORD_PREFIX.size:
            return None
        try:
            read_head(data, 0, len(data), room, verify_crc=False)
        except NeedMoreDataError as need:
            if position + need.size > part.stop:
                return self._over_stop(position, need.size)
            if len(data) < min(self._chunk_bytes, part.stop - position):
                size = position - part.first + len(data)
                reason = f"the file ends after {size} bytes, a segment has {part.segment_bytes}"
                return self._behind_damage(self._bad(position, reason))
            self._chunk_bytes = need.size
            return position
        except BadRecordError as bad:
            return self._behind_damage(self._bad(position, str(bad)))
        # What is no record and not bad is a blank.
        length, _ = RECORD_PREFIX.unpack_from(data)
        if length != room:
            reason = f"a blank of {length} bytes where the segment has {room} left"
            return self._behind_damage(self._bad(position, reason))
        if part.is_stop_boundary:
            raise self._false_split(position, room)
        return None

    def _over_stop(self, position: int, size: int) -> int | None:
        """End reading before a record that goes on beyond the part, or its size is wrong."""
        part = self._part
        if not part.is_stop_boundary:
            return None
        try:
            self._log.record_at(PhysicalOffset(position), PhysicalOffset(part.segment_end))
        except CorruptStoreError as bad:
            return self._behind_damage(self._bad(position, bad.reason))
        raise self._false_split(position, size)

    def _false_split(self, position: int, size: int) -> CorruptStoreError:
        part = self._part
        return CorruptStoreError(
            str(part.path),
            f"the {size} bytes from here on go beyond {part.stop}, where a record seemed to begin"
            " and the segment was split",
            offset=position,
            hint="read it with splitBytes=0, which gives each segment to one task",
        )

    def _behind_damage(self, bad: CorruptStoreError) -> int | None:
        """Report damage; return where the next sound record begins, None if there is none."""
        self._damage.report(bad)
        assert bad.offset is not None
        return self._log.next_sound(PhysicalOffset(bad.offset + 1), PhysicalOffset(self._part.stop))

    def _bad(self, offset: int, reason: str) -> CorruptStoreError:
        return damaged(self._part, offset, reason)


def damaged(part: LogPart, offset: int, reason: str) -> CorruptStoreError:
    """Return the error for damage to the log."""
    return CorruptStoreError(str(part.path), reason, offset=offset, hint=DAMAGE_HINT)


def check_boundary(scan: Scan, part: LogPart, offset: int) -> None:
    """Raise `ConfigError` if `offset` is not where a record begins, or ends before a blank.

    The scan must be one of the segment that holds it, from its beginning.
    """
    end = part.start
    for base, heads in scan:
        end = base + int(heads.ends[-1])
        if offset < end:
            index = int(np.searchsorted(heads.starts, offset - base, side="right")) - 1
            begin = base + int(heads.starts[index]) if index >= 0 else offset
            if begin == offset:
                return
            raise ConfigError(
                "fromOffset",
                f"{offset} is inside the record that goes from {begin} to"
                f" {base + int(heads.ends[index])}: give one of these",
            )
    if offset != end:
        raise ConfigError(
            "fromOffset",
            f"{offset} is behind the last record of its segment: that ends at {end}, and the next"
            f" segment begins at {part.segment_end}",
        )
