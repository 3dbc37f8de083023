"""Byte layout of a message in the CommitLog, declared with construct. Big-endian.

This is the reference: tests, docs and tools parse with it, and the hot path uses `struct.Struct`
objects that `rmq.packing` derives from it. Records travel as they are stored: a pull brings them to
consumers, and the link between brokers to slaves. The format is that of RocketMQ 4.9.8.

    Record   one message
    Blank    what ends a CommitLog segment that the next record did not fit into
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from construct import Bytes, Const, Int8sb, Int16sb, Int32sb, Int64sb, Struct, this

from rmq.model import flags
from rmq.packing import struct_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from construct import Construct

    _Length = int | Callable[[Any], int]

MESSAGE_MAGIC: Final = -626843481  # 0xDAA320A7
MESSAGE_MAGIC_BYTES: Final = MESSAGE_MAGIC.to_bytes(4, signed=True)
BLANK_MAGIC: Final = -875286124  # 0xCBD43194

HOST_V4_BYTES: Final = 8
HOST_V6_BYTES: Final = 20


def _born_host_length(context: Any) -> int:  # noqa: ANN401 - construct's context has no type
    return HOST_V6_BYTES if context.sys_flag & flags.BORN_HOST_V6 else HOST_V4_BYTES


def _store_host_length(context: Any) -> int:  # noqa: ANN401 - construct's context has no type
    return HOST_V6_BYTES if context.sys_flag & flags.STORE_HOST_V6 else HOST_V4_BYTES


def _record_head(born_host: _Length, store_host: _Length) -> list[Construct[Any, Any]]:
    return [
        "total_size" / Int32sb,
        "magic" / Int32sb,
        "body_crc" / Int32sb,
        "queue_id" / Int32sb,
        "flag" / Int32sb,
        "queue_offset" / Int64sb,
        "physical_offset" / Int64sb,
        "sys_flag" / Int32sb,
        "born_ms" / Int64sb,
        "born_host" / Bytes(born_host),
        "store_ms" / Int64sb,
        "store_host" / Bytes(store_host),
        "reconsume_times" / Int32sb,
        "prepared_offset" / Int64sb,
        "body_length" / Int32sb,
    ]


Record = Struct(
    *_record_head(_born_host_length, _store_host_length),
    "body" / Bytes(this.body_length),
    "topic_length" / Int8sb,
    "topic" / Bytes(this.topic_length),
    "properties_length" / Int16sb,
    "properties" / Bytes(this.properties_length),
)
"""A message. A host is its address (4 or 16 bytes) and its port as i32."""

RECORD_HEADS: Final = {
    born_flag | store_flag: struct_of(
        Struct(
            *_record_head(
                HOST_V6_BYTES if born_flag else HOST_V4_BYTES,
                HOST_V6_BYTES if store_flag else HOST_V4_BYTES,
            )
        )
    )
    for born_flag in (0, flags.BORN_HOST_V6)
    for store_flag in (0, flags.STORE_HOST_V6)
}
"""The fixed part of a record, by the two address bits of its sysFlag."""

HOST_FLAGS: Final = flags.BORN_HOST_V6 | flags.STORE_HOST_V6
RECORD_HEAD_V4: Final = RECORD_HEADS[0]
RECORD_BYTES_MIN: Final = RECORD_HEAD_V4.size + 1 + 2
"""A record over IPv4 with nothing in it."""

PROPERTIES_LENGTH: Final = struct_of(Struct(Record.properties_length))

RecordPrefix = Struct("total_size" / Int32sb, "magic" / Int32sb)
RECORD_PREFIX: Final = struct_of(RecordPrefix)

Blank = Struct("length" / Int32sb, "magic" / Const(BLANK_MAGIC, Int32sb))
"""The length is that of the rest of the segment, this field included."""
BLANK: Final = RECORD_PREFIX
BLANK_BYTES: Final = Blank.sizeof()
