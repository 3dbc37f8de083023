"""Two versions of one record, compared: is it the same record, which fields differ, which side is
damaged.

Pure: bytes in, facts out. Offsets of fields come from the declaration of the format.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rmq.model.properties import UNIQ_KEY, decode_properties
from rmq.model.record import BadRecordError, NeedMoreDataError, RecordHead, read_head
from rmq.model.record_layout import HOST_FLAGS, RECORD_HEADS, Record
from rmq.spark.decoding.fixed import dtype_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAMES: Final = tuple(str(field.name) for field in Record.subcons)
_FIXED: Final = _NAMES[: _NAMES.index("body")]
_VARIABLE: Final = _NAMES[len(_FIXED) :]
_PLACES: Final[dict[int, Mapping[str, Any]]] = {
    bits: dtype_of(layout, _FIXED).fields or {} for bits, layout in RECORD_HEADS.items()
}
"""Type and offset of each fixed field, by the two address bits of sysFlag."""
_PHYSICAL_OFFSET_AT: Final = int(_PLACES[0]["physical_offset"][1])
_PHYSICAL_OFFSET_STOP: Final = _PHYSICAL_OFFSET_AT + int(_PLACES[0]["physical_offset"][0].itemsize)


def head_of(data: bytes) -> RecordHead | None:
    """Return the head of the record that `data` begins with, whether its body is sound or not."""
    try:
        head = read_head(data, 0, len(data), len(data), verify_crc=False)
    except (BadRecordError, NeedMoreDataError):
        return None
    return head if head.size else None


def unique_key(head: RecordHead) -> str | None:
    """Return the key that the producer gave the message, if it did."""
    return decode_properties(head.properties).get(UNIQ_KEY)


def is_same_record(mine: bytes, head: RecordHead, theirs: bytes, twin: RecordHead) -> bool:
    """Tell whether two readable records at one place are versions of the same one.

    They are if they have the same place in the same queue, or else the same unique key: whichever
    of the two a flipped bit hit, the other still tells. Without keys, one byte may differ.
    """
    if (head.topic, head.queue_id, head.queue_offset) == (
        twin.topic,
        twin.queue_id,
        twin.queue_offset,
    ):
        return True
    keys = unique_key(head), unique_key(twin)
    if None not in keys:
        return keys[0] == keys[1]
    return head.size == twin.size and difference(mine, theirs)[1] == 1


def difference(longer: bytes, other: bytes) -> tuple[int, int]:
    """Return the first place that differs, and how many do; bytes that are not there differ."""
    size = min(len(longer), len(other))
    places = np.flatnonzero(
        np.frombuffer(longer, np.uint8, size) != np.frombuffer(other, np.uint8, size)
    )
    first = int(places[0]) if len(places) else size
    return first, len(places) + abs(len(longer) - len(other))


def unsound_reason(data: bytes, offset: int) -> str | None:
    """Return why bytes are not the sound record at an offset; None if they are."""
    try:
        head = read_head(data, 0, len(data), len(data), verify_crc=True)
    except BadRecordError as bad:
        return str(bad)
    except NeedMoreDataError:
        return "the record does not end where it should"
    if head.size != len(data):
        return f"size {head.size} where the record has {len(data)} bytes"
    if head.physical_offset != offset:
        return f"the record says it is at physical offset {head.physical_offset}"
    return None


def changed_fields(sound: bytes, other: bytes) -> list[str]:
    """Return the fields of a record that differ, by their names in the format.

    Where the fields are is read from the first of the two; none if its head cannot be read.
    """
    head = head_of(sound)
    if head is None:
        return []
    return [
        name
        for name, start, stop in field_places(sound, head)
        if sound[start:stop] != other[start:stop]
    ]


def field_places(data: bytes, head: RecordHead) -> list[tuple[str, int, int]]:
    """Return where each field of a readable record begins and ends."""
    bits = head.sys_flag & HOST_FLAGS
    places = [
        (name, int(offset), int(offset) + int(kind.itemsize))
        for name, (kind, offset, *_) in _PLACES[bits].items()
    ]
    start = RECORD_HEADS[bits].size
    topic_at = len(data) - len(head.properties) - 2 - len(head.topic)
    sizes = (topic_at - 1 - start, 1, len(head.topic), 2, len(head.properties))
    for name, size in zip(_VARIABLE, sizes, strict=True):
        places.append((name, start, start + size))
        start += size
    return places


def digest(data: bytes) -> str:
    """Return a digest of all bytes but the physical offset: equal if a record is elsewhere."""
    content = data[:_PHYSICAL_OFFSET_AT] + data[_PHYSICAL_OFFSET_STOP:]
    return blake2b(content, digest_size=16).hexdigest()
