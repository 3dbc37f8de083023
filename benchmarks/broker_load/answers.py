"""What comes back from a broker, cut and checked as cheaply as Python can. No I/O here.

Members of a JSON header come in alphabetical order from a stock broker (fastjson), `code` first.
What is not found where it is expected counts as a failure, so nothing passes for want of looking.
"""

from __future__ import annotations

import struct
from collections import Counter
from typing import Final

from benchmarks.broker_load.frames import OPAQUE_FIRST

_LENGTH: Final = struct.Struct(">I").unpack_from
_LENGTHS: Final = struct.Struct(">II").unpack_from
_HEADER_BYTES: Final = 0xFF_FFFF
_SUCCESS: Final = b'{"code":0,'
_OPAQUE: Final = b'"opaque":'
_OPAQUE_DIGITS: Final = len(str(OPAQUE_FIRST))
_NEXT_OFFSET: Final = b'"nextBeginOffset":"'
_MAX_OFFSET: Final = b'"offset":"'

# Places in a record: total size and magic, queue offset; the body (with IPv4 hosts).
_RECORD_HEAD: Final = struct.Struct(">Ii12xq").unpack_from
_RECORD_MAGIC: Final = -626843481
_BODY_AT: Final = 88
SENT_AT: Final = struct.Struct(">Q")
"""A time in nanoseconds at the start of a body."""


class AnswerCutter:
    """Cuts the byte stream of one connection into answers."""

    def __init__(self) -> None:
        self.failures: Counter[str] = Counter()
        """Headers of answers other than success, with what differs between them left out."""
        self._rest = b""

    def opaques(self, data: bytes) -> list[int]:
        """Return the opaque numbers of the answers that are complete now."""
        if self._rest:
            data = self._rest + data
        found: list[int] = []
        start, size = 0, len(data)
        while size - start >= 4:
            end = start + 4 + _LENGTH(data, start)[0]
            if end > size:
                break
            if not data.startswith(_SUCCESS, start + 8):
                self._note(data[start + 8 : end])
            at = data.find(_OPAQUE, start + 8, end) + len(_OPAQUE)
            found.append(int(data[at : at + _OPAQUE_DIGITS]))
            start = end
        self._rest = data[start:]
        return found

    def answers(self, data: bytes) -> list[tuple[int, bytes, bytes]]:
        """Return opaque number, header and body of the answers that are complete now."""
        if self._rest:
            data = self._rest + data
        found: list[tuple[int, bytes, bytes]] = []
        start, size = 0, len(data)
        while size - start >= 8:
            length, header_length = _LENGTHS(data, start)
            end = start + 4 + length
            if end > size:
                break
            body_start = start + 8 + (header_length & _HEADER_BYTES)
            header = data[start + 8 : body_start]
            if not header.startswith(_SUCCESS):
                self._note(header)
            at = header.find(_OPAQUE) + len(_OPAQUE)
            found.append((int(header[at : at + _OPAQUE_DIGITS]), header, data[body_start:end]))
            start = end
        self._rest = data[start:]
        return found

    def _note(self, header: bytes) -> None:
        code, _, rest = header.partition(b",")
        _, _, remark = rest.partition(b'"remark":')
        self.failures[(code + b" " + remark[:160]).decode(errors="replace")] += 1


def is_success(header: bytes) -> bool:
    return header.startswith(_SUCCESS)


def next_offset(header: bytes) -> int:
    """Return where the next pull begins; raise ValueError when the answer does not say."""
    return _number_after(header, _NEXT_OFFSET)


def max_offset(header: bytes) -> int:
    """Return what GET_MAX_OFFSET was answered; raise ValueError when it was not."""
    return _number_after(header, _MAX_OFFSET)


def _number_after(header: bytes, name: bytes) -> int:
    start = header.index(name) + len(name)
    return int(header[start : header.index(b'"', start)])


def check_records(body: bytes, first: int, count: int) -> None:
    """Raise ValueError unless `body` is `count` whole records, numbered from `first` on."""
    start = number = 0
    while start < len(body):
        size, magic, queue_offset = _RECORD_HEAD(body, start)
        if magic != _RECORD_MAGIC or queue_offset != first + number:
            raise ValueError(
                f"record {number} of a pull from {first} has magic {magic} and offset"
                f" {queue_offset}"
            )
        start += size
        number += 1
    if start != len(body) or number != count:
        raise ValueError(f"{number} records in {len(body)} bytes, {count} were announced")


def sent_times(body: bytes) -> list[int]:
    """Return the times that the bodies of the records begin with."""
    times: list[int] = []
    start, end = 0, len(body)
    read_time = SENT_AT.unpack_from
    while start < end:
        times.append(read_time(body, start + _BODY_AT)[0])
        start += _LENGTH(body, start)[0]
    return times
