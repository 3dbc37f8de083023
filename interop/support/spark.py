"""What the checks of Spark share: whether it can be run here, what a job has printed, and stores
with one flipped bit.
"""

from __future__ import annotations

import importlib.util
import json
import os
from typing import TYPE_CHECKING, Any, Final

from interop.support.cases import MismatchError
from interop.support.java import MissingPartError
from rmq.errors import ConfigError
from rmq.model.offsets import PhysicalOffset
from rmq.store.reader import Reader

if TYPE_CHECKING:
    from pathlib import Path

    from rmq.spark.java import Java

_PACKAGES: Final = ("pyspark", "pyarrow", "numpy")
_LENGTHS_BYTES: Final = 3
"""Of topic and properties, which follow the body in a record: one byte and two."""


def need_spark() -> Java:
    """Return the Java that Spark runs on; raise `MissingPartError` unless all of it is there."""
    for name in _PACKAGES:
        if importlib.util.find_spec(name) is None:
            raise MissingPartError(f"the package {name} is not installed (rmq[spark] brings it)")
    from rmq.spark.java import find_java

    try:
        return find_java(os.environ)
    except ConfigError as exc:
        raise MissingPartError(str(exc)) from exc


def last_object(output: str) -> dict[str, Any] | None:
    """Return the last line that is a JSON object; None if there is none.

    `spark-submit` puts what drivers log among what they print.
    """
    for line in reversed(output.splitlines()):
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            return value
    return None


def flip_a_bit(store: Path) -> int:
    """Flip one bit in the body of a message in the middle; return the offset of its record.

    Bodies are what records have a CRC of.
    """
    with Reader(store) as reader:
        middle = PhysicalOffset((reader.min_offset + reader.end_offset) // 2)
        offset = reader.log.next_sound(middle, reader.end_offset)
        record = None if offset is None else reader.record_at(offset)
        segment = None if offset is None else reader.log.find(offset)
    if offset is None or record is None or segment is None or not record.body:
        raise MismatchError(f"{store}: no message to damage")
    behind = _LENGTHS_BYTES + len(record.topic.encode()) + len(record.properties_bytes)
    place = offset - segment.first + record.size - behind - len(record.body)
    with segment.path.open("r+b") as file:
        file.seek(place)
        body = bytearray(file.read(len(record.body)))
        if body != record.body:
            raise MismatchError(f"{store}: the body of the record at {offset} is elsewhere")
        body[len(body) // 2] ^= 0x10
        file.seek(place)
        file.write(body)
    return int(offset)
