"""Records made with the declared layout, and what the declaration makes of any bytes.

Tests hold the fast reading in `rmq.model.record` against this plain one.
"""

from __future__ import annotations

import io
import zlib
from typing import Any, Final

import construct
from hypothesis import strategies as st

from rmq.model import flags, record_layout
from rmq.model.offsets import PhysicalOffset, QueueOffset
from rmq.model.record import RecordHead

HOST_VARIANTS: Final = {
    0: "IPv4",
    flags.BORN_HOST_V6: "born IPv6",
    flags.STORE_HOST_V6: "store IPv6",
    flags.BORN_HOST_V6 | flags.STORE_HOST_V6: "IPv6",
}
"""The two address bits of a sysFlag, and what they say."""

BLANK_HEAD: Final = RecordHead(0, 0, QueueOffset(0), PhysicalOffset(0), 0, 0, b"", b"")


def build_record(
    *,
    hosts: int = 0,
    body: bytes = b"hello",
    topic: bytes = b"T",
    properties: bytes = b"KEYS\x01K1\x02TAGS\x01TagA",
    **others: int | bytes,
) -> bytes:
    """Return a record whose sizes and CRC are right, unless `others` says otherwise."""
    size = record_layout.RECORD_HEADS[hosts].size + len(body) + 1 + len(topic) + 2 + len(properties)
    fields = {
        "total_size": size,
        "magic": record_layout.MESSAGE_MAGIC,
        "body_crc": zlib.crc32(body) & 0x7FFFFFFF,
        "queue_id": 3,
        "flag": 7,
        "queue_offset": 5,
        "physical_offset": 1024,
        "sys_flag": hosts,
        "born_ms": 1700000000000,
        "born_host": _host("0A000009 00009C40", v6=bool(hosts & flags.BORN_HOST_V6)),
        "store_ms": 1700000000001,
        "store_host": _host("0A000001 00002A9F", v6=bool(hosts & flags.STORE_HOST_V6)),
        "reconsume_times": 0,
        "prepared_offset": 0,
        "body_length": len(body),
        "body": body,
        "topic_length": len(topic),
        "topic": topic,
        "properties_length": len(properties),
        "properties": properties,
    }
    return record_layout.Record.build(fields | others)


def _host(host: str, *, v6: bool) -> bytes:
    return bytes(12 if v6 else 0) + bytes.fromhex(host)


@st.composite
def drawn_records(draw: st.DrawFn) -> bytes:
    """Draw a sound record; what does not have to fit together has any value."""
    hosts = draw(st.sampled_from(list(HOST_VARIANTS)))
    int32s = st.integers(-(1 << 31), (1 << 31) - 1)
    int64s = st.integers(-(1 << 63), (1 << 63) - 1)
    return build_record(
        hosts=hosts,
        body=draw(st.binary(max_size=60)),
        topic=draw(st.binary(max_size=127)),
        properties=draw(st.binary(max_size=60)),
        sys_flag=draw(int32s) & ~record_layout.HOST_FLAGS | hosts,
        **{name: draw(int32s) for name in ("queue_id", "flag", "reconsume_times")},
        **{
            name: draw(int64s)
            for name in (
                "queue_offset",
                "physical_offset",
                "born_ms",
                "store_ms",
                "prepared_offset",
            )
        },
    )


def plain(parsed: construct.Container[Any]) -> dict[str, Any]:
    """Return what construct parsed, without its own bookkeeping."""
    return {name: value for name, value in parsed.items() if name != "_io"}


def length_places(record: bytes) -> dict[str, tuple[int, int]]:
    """Return position and size of the four fields of a sound record that say how long it is."""
    fields = record_layout.Record.parse(record)
    body_at = record_layout.RECORD_HEADS[fields.sys_flag & record_layout.HOST_FLAGS].size
    topic_length_at = body_at + fields.body_length
    return {
        "total_size": (0, 4),
        "body_length": (body_at - 4, 4),
        "topic_length": (topic_length_at, 1),
        "properties_length": (topic_length_at + 1 + fields.topic_length, 2),
    }


def declared_head(data: bytes, *, verify_crc: bool = True) -> RecordHead | None:
    """Return what is at the beginning of `data` by the declared layout, None if nothing sound is.

    Nothing here is fast or clever: the declaration is parsed, and what it leaves open is checked.
    """
    stream = io.BytesIO(data)
    if data[4:8] == record_layout.Blank.build({"length": 0})[4:]:
        return BLANK_HEAD
    try:
        fields = record_layout.Record.parse_stream(stream)
    except construct.StreamError:
        return None
    if fields.magic != record_layout.MESSAGE_MAGIC or fields.total_size != stream.tell():
        return None
    if verify_crc and fields.body and zlib.crc32(fields.body) & 0x7FFFFFFF != fields.body_crc:
        return None
    return RecordHead(
        size=fields.total_size,
        queue_id=fields.queue_id,
        queue_offset=fields.queue_offset,
        physical_offset=fields.physical_offset,
        sys_flag=fields.sys_flag,
        store_ms=fields.store_ms,
        topic=fields.topic,
        properties=fields.properties,
    )
