"""One message as it lies in the CommitLog: encoding, checking and decoding.

`NewMessage` is what a caller hands in, `StoredRecord` what a reader gets back. `read_head` is the
cheap check that dispatch and recovery make of every record; it verifies what can be verified
without knowing the rest of the store, and raises `BadRecordError` with the reason.
"""

from __future__ import annotations

import ipaddress
import struct
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from rmq.model import flags
from rmq.model.crc import crc32
from rmq.model.java import string_hash
from rmq.model.offsets import PhysicalOffset, QueueOffset
from rmq.model.properties import decode_properties, decode_text, find_tags
from rmq.model.record_layout import (
    BLANK_MAGIC,
    HOST_FLAGS,
    MESSAGE_MAGIC,
    PROPERTIES_LENGTH,
    RECORD_BYTES_MIN,
    RECORD_HEADS,
    RECORD_PREFIX,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

PROPERTIES_BYTES_MAX: Final = 32767
TOPIC_BYTES_MAX: Final = 127
NO_HOST: Final = bytes(8)
NOTHING_WRITTEN: Final = "nothing was written here"
"""What `BadRecordError` says of zeros: the natural end of a log."""

_READ_HEADS: Final = {bits: head.unpack_from for bits, head in RECORD_HEADS.items()}
HEAD_SIZES: Final = {bits: head.size for bits, head in RECORD_HEADS.items()}
_read_prefix = RECORD_PREFIX.unpack_from
_read_properties_length = PROPERTIES_LENGTH.unpack_from
SYS_FLAG_AT: Final = 36
_read_sys_flag = struct.Struct(">i").unpack_from


class NewMessage(msgspec.Struct, frozen=True, gc=False):
    """A message to be appended; the store adds offsets, store time and store host."""

    topic: str
    queue_id: int
    body: bytes
    properties: bytes = b""
    """Encoded, see `rmq.model.properties`."""
    flag: int = 0
    sys_flag: int = 0
    born_ms: int = 0
    born_host: bytes = NO_HOST
    """Packed by `pack_host`."""
    reconsume_times: int = 0
    prepared_offset: int = 0


class StoredRecord(msgspec.Struct, frozen=True):
    """A record read from the CommitLog, its fields decoded and its contents as they are stored."""

    physical_offset: PhysicalOffset
    size: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: QueueOffset
    sys_flag: int
    born_ms: int
    born_host: bytes
    store_ms: int
    store_host: bytes
    reconsume_times: int
    prepared_offset: int
    body: bytes
    topic: str
    properties_bytes: bytes

    @property
    def properties(self) -> dict[str, str]:
        return decode_properties(self.properties_bytes)

    @property
    def message_id(self) -> str:
        """The offset message id: where the record was stored first."""
        return message_id(self.store_host, self.physical_offset)

    @property
    def tags_code(self) -> int:
        """The hash of the tag, as a ConsumeQueue entry of an ordinary topic holds it."""
        return tags_code(find_tags(self.properties_bytes))


class BadRecordError(Exception):
    """The bytes at a place of the log are not a sound record; the text says why."""


class RecordHead(NamedTuple):
    """What dispatch needs to know of a record."""

    size: int
    """0 for a blank: the segment ends here."""
    queue_id: int
    queue_offset: QueueOffset
    physical_offset: PhysicalOffset
    sys_flag: int
    store_ms: int
    topic: bytes
    properties: bytes


_BLANK_HEAD: Final = RecordHead(0, 0, QueueOffset(0), PhysicalOffset(0), 0, 0, b"", b"")


def read_head(data: bytes, position: int, limit: int, room: int, verify_crc: bool) -> RecordHead:
    """Read the record at `position` of `data`, of which `limit` bytes count.

    Raises `BadRecordError` if it is not one, and `NeedMoreDataError` if it goes on beyond `limit`
    although the segment has `room` bytes for it from `position` on.
    """
    left = limit - position
    if left < RECORD_PREFIX.size:
        if room < RECORD_PREFIX.size:
            raise BadRecordError(f"only {room} bytes are left in the segment")
        raise NeedMoreDataError(RECORD_PREFIX.size)
    size, magic = _read_prefix(data, position)
    if magic != MESSAGE_MAGIC:
        if magic == BLANK_MAGIC:
            return _BLANK_HEAD
        if size == 0 and magic == 0:
            raise BadRecordError(NOTHING_WRITTEN)
        raise BadRecordError(f"magic 0x{magic & 0xFFFFFFFF:08X} is not that of a message")
    if size < RECORD_BYTES_MIN or size > room:
        raise BadRecordError(f"size {size} with {room} bytes left in the segment")
    if size > left:
        raise NeedMoreDataError(size)
    (sys_flag,) = _read_sys_flag(data, position + SYS_FLAG_AT)
    hosts = sys_flag & HOST_FLAGS
    body_start = position + HEAD_SIZES[hosts]
    end = position + size
    if body_start > end:
        raise BadRecordError(f"size {size} is less than its fixed part")
    (
        _,
        _,
        body_crc,
        queue_id,
        _,
        queue_offset,
        physical_offset,
        _,
        _,
        _,
        store_ms,
        _,
        _,
        _,
        body_length,
    ) = _READ_HEADS[hosts](data, position)
    topic_start = body_start + body_length + 1
    if body_length < 0 or topic_start + 2 > end:
        raise BadRecordError(f"body length {body_length} in a record of {size} bytes")
    topic_end = topic_start + data[topic_start - 1]
    properties_start = topic_end + 2
    if data[topic_start - 1] > TOPIC_BYTES_MAX or properties_start > end:
        raise BadRecordError(f"topic length {data[topic_start - 1]} in a record of {size} bytes")
    (properties_length,) = _read_properties_length(data, topic_end)
    if properties_start + properties_length != end:
        raise BadRecordError(f"size {size} is not the sum of its fields")
    if verify_crc and body_length:
        found = crc32(data[body_start : topic_start - 1]) & 0x7FFFFFFF
        if found != body_crc:
            raise BadRecordError(f"CRC of the body is {found}, the record says {body_crc}")
    return RecordHead(
        size,
        queue_id,
        queue_offset,
        physical_offset,
        sys_flag,
        store_ms,
        data[topic_start:topic_end],
        data[properties_start:end],
    )


class NeedMoreDataError(Exception):
    """A record goes on beyond the bytes at hand."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size


def decode_record(data: bytes | memoryview) -> StoredRecord:
    """Decode exactly one record; raise `BadRecordError` if it is not sound. The CRC is checked."""
    content = bytes(data)
    head = read_head(content, 0, len(content), len(content), verify_crc=True)
    if head.size != len(content):
        raise BadRecordError(f"size {head.size} in {len(content)} bytes")
    hosts = head.sys_flag & HOST_FLAGS
    fields = _READ_HEADS[hosts](content, 0)
    body_start = HEAD_SIZES[hosts]
    return StoredRecord(
        physical_offset=head.physical_offset,
        size=head.size,
        body_crc=fields[2],
        queue_id=head.queue_id,
        flag=fields[4],
        queue_offset=head.queue_offset,
        sys_flag=head.sys_flag,
        born_ms=fields[8],
        born_host=fields[9],
        store_ms=head.store_ms,
        store_host=fields[11],
        reconsume_times=fields[12],
        prepared_offset=fields[13],
        body=content[body_start : body_start + fields[14]],
        topic=decode_text(head.topic),
        properties_bytes=head.properties,
    )


def decode_records(data: bytes | memoryview) -> Iterator[StoredRecord]:
    """Decode records that follow each other without a gap, as a pull brings them."""
    content = bytes(data)
    position = 0
    while position < len(content):
        if len(content) - position < RECORD_PREFIX.size:
            raise BadRecordError(f"{len(content) - position} bytes after the last record")
        size, _ = _read_prefix(content, position)
        if not RECORD_BYTES_MIN <= size <= len(content) - position:
            raise BadRecordError(f"size {size} with {len(content) - position} bytes left")
        yield decode_record(content[position : position + size])
        position += size


def tags_code(tag: bytes) -> int:
    """Return the Java hash of a tag given in UTF-8, 0 if there is none."""
    return string_hash(decode_text(tag)) if tag else 0


def message_id(store_host: bytes, physical_offset: PhysicalOffset) -> str:
    """Return the offset message id of a record."""
    return (store_host + physical_offset.to_bytes(8, signed=True)).hex().upper()


def parse_message_id(text: str) -> tuple[bytes, PhysicalOffset]:
    """Return store host and physical offset of an offset message id; raise `ValueError`."""
    if len(text) not in (32, 56):
        raise ValueError(f"a message id has 32 or 56 hexadecimal digits, not {len(text)}")
    data = bytes.fromhex(text)
    if 2 * len(data) != len(text):
        # fromhex reads over blanks.
        raise ValueError("a message id has no blanks")
    return data[:-8], PhysicalOffset(int.from_bytes(data[-8:], signed=True))


def pack_host(address: str, port: int) -> bytes:
    """Return an address as records hold it: 4 or 16 bytes, then the port as i32.

    IPv4 written as IPv6, which is how a socket for both names its IPv4 peers, is stored as IPv4:
    Java knows no other form of it.
    """
    ip = ipaddress.ip_address(address)
    if isinstance(ip, ipaddress.IPv6Address):
        return (ip.ipv4_mapped or ip).packed + port.to_bytes(4)
    return ip.packed + port.to_bytes(4)


def unpack_host(host: bytes) -> tuple[str, int]:
    """Return the address and the port in a packed host."""
    return str(ipaddress.ip_address(host[:-4])), int.from_bytes(host[-4:])


def born_flag(host: bytes) -> int:
    """Return the sysFlag bit that goes with a born host of this form."""
    return flags.BORN_HOST_V6 if len(host) > len(NO_HOST) else 0
