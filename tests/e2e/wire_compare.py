"""What is different between a captured frame and the one that was sent in its place. Pure.

Everything that a client can see is compared: serialization, flag, language, version, code, remark,
header fields, and bodies by their content. The order of JSON members and of list elements is not,
nor that of message properties: Java takes them from hash tables.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from rmq.errors import MalformedJsonError
from rmq.model.fastjson import loads
from rmq.model.record import BadRecordError, decode_records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmq.model.record import StoredRecord
    from tests.remoting.server_kit import Frame

_OF_FRAME: Final = ("serialization", "flag", "language", "version", "code", "remark")
_WITH_RECORDS: Final = frozenset(
    {"PULL_MESSAGE", "QUERY_MESSAGE", "VIEW_MESSAGE_BY_ID", "CHECK_TRANSACTION_STATE"}
)


class Missing(Enum):
    """Stands for a value that is not there."""

    NOTHING = "nothing"

    def __repr__(self) -> str:
        return self.value


NOTHING: Final = Missing.NOTHING


class Difference(NamedTuple):
    """One value that is not the captured one."""

    where: str
    """For instance `code`, `ext.msgId`, `body.table.runtime` or `body.2.store_ms`."""
    captured: object
    ours: object

    def __str__(self) -> str:
        return f"{self.where}: {self.ours!r}, captured was {self.captured!r}"

    @property
    def is_of_shape(self) -> bool:
        """Whether a code, a header field or a member of a body is another or missing."""
        if self.where.startswith("body") and type(self.captured) is not type(self.ours):
            return True
        return self.where in {"answer", "code", "ext"} or NOTHING in (self.captured, self.ours)


def differences(name: str, captured: Frame, ours: Frame | None) -> list[Difference]:
    """Compare a frame with the captured one; `name` says what was asked."""
    if ours is None:
        return [Difference("answer", captured.code, NOTHING)]
    found: list[Difference] = []
    for where in _OF_FRAME:
        found += _compare(where, getattr(captured, where), getattr(ours, where))
    found += _compare("ext", captured.fields, ours.fields)
    found += _compare("body", content(name, captured.body), content(name, ours.body))
    return found


def places(name: str, frame: Frame) -> list[str]:
    """Return where values are in the JSON body of a frame."""

    def walk(where: str, value: object) -> Iterator[str]:
        if isinstance(value, dict):
            for key, member in value.items():
                yield from walk(f"{where}.{key}", member)
        else:
            yield where

    return list(walk("body", content(name, frame.body)))


def content(name: str, body: bytes) -> object:
    """Return what is in a body: records, JSON, or nothing known, and then its bytes."""
    try:
        if name in _WITH_RECORDS:
            return _Records(fields_of(record) for record in decode_records(body))
        return loads(body) if body else None
    except (BadRecordError, MalformedJsonError):
        return body


def fields_of(record: StoredRecord) -> dict[str, object]:
    """Return all of a record, its properties decoded."""
    fields = msgspec.structs.asdict(record)
    del fields["properties_bytes"]
    return {**fields, "properties": record.properties}


class _Records(list[object]):
    """Unlike the elements of other lists, these have an order."""


def _compare(where: str, captured: object, ours: object) -> Iterator[Difference]:
    if isinstance(captured, dict) and isinstance(ours, dict):
        for key in sorted(captured.keys() | ours.keys()):
            one, other = captured.get(key, NOTHING), ours.get(key, NOTHING)
            yield from _compare(f"{where}.{key}", one, other)
    elif isinstance(captured, list) and isinstance(ours, list) and len(captured) == len(ours):
        for at, (one, other) in enumerate(zip(_ordered(captured), _ordered(ours), strict=True)):
            yield from _compare(f"{where}.{at}", one, other)
    elif captured != ours:
        yield Difference(where, captured, ours)


def _ordered(items: list[object]) -> list[object]:
    return items if isinstance(items, _Records) else sorted(items, key=repr)
