"""A stored message in one form, whoever read it: the stock client, our engine, or nobody yet.

Comparing two readings is comparing these values: everything a record holds is in them.
"""

from __future__ import annotations

import base64
import ipaddress
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from interop.support.cases import MismatchError, expect
from rmq.model import flags
from rmq.model.properties import KEYS, TAGS, UNIQ_KEY, decode_properties
from rmq.model.record import born_flag, message_id, unpack_host

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rmq.model.record import NewMessage, StoredRecord
    from rmq.store.append import AppendResult

    Address = tuple[str, int]
    """A topic and one of its queues."""
    Readings = dict[Address, list["StoredMessage"]]
    """All messages of some queues, in order."""

_CRC_MASK: Final = 0x7FFFFFFF


@dataclass(frozen=True, kw_only=True)
class StoredMessage:
    """What there is to know of a message in a store."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    body_crc: int
    flag: int
    sys_flag: int
    born_ms: int
    born_host: str
    store_ms: int
    store_host: str
    reconsume_times: int
    prepared_offset: int
    body: bytes
    """As a consumer gets it, not compressed."""
    properties: Mapping[str, str]
    offset_id: str

    @property
    def tags(self) -> str | None:
        return self.properties.get(TAGS)

    @property
    def keys(self) -> str | None:
        return self.properties.get(KEYS)

    @property
    def unique_key(self) -> str | None:
        return self.properties.get(UNIQ_KEY)

    def __str__(self) -> str:
        return (
            f"message {self.queue_offset} of queue {self.queue_id} of {self.topic} at physical"
            f" offset {self.physical_offset}, {self.body[:40]!r}"
        )


def from_append(message: NewMessage, result: AppendResult, store_host: bytes) -> StoredMessage:
    """Return what a message must be read back as."""
    return StoredMessage(
        topic=message.topic,
        queue_id=message.queue_id,
        queue_offset=result.queue_offset,
        physical_offset=result.physical_offset,
        size=result.size,
        body_crc=zlib.crc32(message.body) & _CRC_MASK,
        flag=message.flag,
        sys_flag=message.sys_flag | born_flag(message.born_host),
        born_ms=message.born_ms,
        born_host=_host(*unpack_host(message.born_host)),
        store_ms=result.store_ms,
        store_host=_host(*unpack_host(store_host)),
        reconsume_times=message.reconsume_times,
        prepared_offset=message.prepared_offset,
        body=_plain(message.body, message.sys_flag),
        properties=decode_properties(message.properties),
        offset_id=message_id(store_host, result.physical_offset),
    )


def from_record(record: StoredRecord) -> StoredMessage:
    """Return a message that our engine has read."""
    return StoredMessage(
        topic=record.topic,
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        physical_offset=record.physical_offset,
        size=record.size,
        body_crc=record.body_crc,
        flag=record.flag,
        sys_flag=record.sys_flag,
        born_ms=record.born_ms,
        born_host=_host(*unpack_host(record.born_host)),
        store_ms=record.store_ms,
        store_host=_host(*unpack_host(record.store_host)),
        reconsume_times=record.reconsume_times,
        prepared_offset=record.prepared_offset,
        body=_plain(record.body, record.sys_flag),
        properties=record.properties,
        offset_id=record.message_id,
    )


def from_java(line: Mapping[str, Any]) -> StoredMessage:
    """Return a message that the stock client has read and `java/interop/Reading` described."""
    message = StoredMessage(
        topic=line["topic"],
        queue_id=line["queueId"],
        queue_offset=line["queueOffset"],
        physical_offset=line["physicalOffset"],
        size=line["size"],
        body_crc=line["bodyCrc"],
        flag=line["flag"],
        sys_flag=line["sysFlag"],
        born_ms=line["bornMs"],
        born_host=_host(*line["bornHost"]),
        store_ms=line["storeMs"],
        store_host=_host(*line["storeHost"]),
        reconsume_times=line["reconsumeTimes"],
        prepared_offset=line["preparedOffset"],
        body=base64.b64decode(line["body"]),
        properties=line["properties"],
        offset_id=line["offsetMsgId"],
    )
    # Java's own idea of these must be the one its properties give.
    expect(f"tags of {message}", line["tags"], message.tags)
    expect(f"keys of {message}", line["keys"], message.keys)
    expect(f"id of {message}", line["msgId"], message.unique_key or message.offset_id)
    return message


def _host(address: str, port: str | int) -> str:
    return f"{ipaddress.ip_address(address)} port {port}"


def _plain(body: bytes, sys_flag: int) -> bytes:
    return zlib.decompress(body) if sys_flag & flags.COMPRESSED else body


def by_queue(messages: Iterable[StoredMessage]) -> Readings:
    """Sort messages that come in order into their queues."""
    readings: Readings = {}
    for message in messages:
        readings.setdefault((message.topic, message.queue_id), []).append(message)
    return readings


def expect_same_readings(got: Readings, wanted: Readings) -> int:
    """Raise `MismatchError` at the first difference; return how many messages were compared."""
    expect("queues with messages", sorted(_filled(got)), sorted(_filled(wanted)))
    for address, messages in wanted.items():
        expect_same_messages(f"queue {address[1]} of {address[0]}", got.get(address, []), messages)
    return sum(map(len, wanted.values()))


def expect_same_messages(
    what: str, got: Sequence[StoredMessage], wanted: Sequence[StoredMessage]
) -> None:
    for place, (found, awaited) in enumerate(zip(got, wanted, strict=False)):
        if found == awaited:
            continue
        differing = {
            name: (getattr(found, name), getattr(awaited, name))
            for name in StoredMessage.__dataclass_fields__
            if getattr(found, name) != getattr(awaited, name)
        }
        shown = ", ".join(
            f"{name} is {_short(is_)}, not {_short(should)}"
            for name, (is_, should) in differing.items()
        )
        raise MismatchError(f"{what}, message {place}: {shown}")
    expect(f"number of messages in {what}", len(got), len(wanted))


def _filled(readings: Readings) -> list[Address]:
    return [address for address, messages in readings.items() if messages]


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
