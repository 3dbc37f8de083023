"""Which records `rmq store dump` prints, and as what."""

from __future__ import annotations

import base64
import heapq
import json
import re
import sys
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from rmq.cli.common.usage import UsageError
from rmq.errors import CorruptStoreError
from rmq.model.offsets import PhysicalOffset, QueueOffset
from rmq.model.properties import KEYS, TAGS, UNIQ_KEY
from rmq.model.record import unpack_host
from rmq.store.reader import has_key
from rmq.store.reader.body import plain_body

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator

    from rmq.model.record import StoredRecord
    from rmq.store.reader import Reader
    from rmq.store.reader.log import OnBad

_NOT_TEXT: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
# Allowed in JSON, but a terminal obeys some of them, and some programs break lines at others.
_TO_ESCAPE: Final = re.compile(r"[\x7f-\x9f\u2028\u2029]")


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """The records that are wanted; None does not restrict."""

    topic: str | None = None
    queue_id: int | None = None
    key: str | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    from_offset: PhysicalOffset | None = None
    to_offset: PhysicalOffset | None = None
    queue_offsets: tuple[QueueOffset | None, QueueOffset | None] = (None, None)
    limit: int | None = None
    scan: bool = False

    @classmethod
    def of(cls, args: Namespace) -> Selection:
        """Return what the command line asks for; raise `UsageError` if that makes no sense."""
        if not args.scan:
            for option, needed, is_wrong in (
                ("--queue", "--topic", args.queue is not None and args.topic is None),
                ("--key", "--topic", args.key is not None and args.topic is None),
                ("--queue-offset", "--queue", args.queue_offset and args.queue is None),
            ):
                if is_wrong:
                    raise UsageError(f"{option} needs {needed}, or --scan to read the whole log")
        return cls(
            topic=args.topic,
            queue_id=args.queue,
            key=args.key,
            from_ms=args.from_ms,
            to_ms=args.to_ms,
            from_offset=args.from_offset,
            to_offset=args.to_offset,
            queue_offsets=args.queue_offset or (None, None),
            limit=args.limit,
            scan=args.scan,
        )

    def matches(self, record: StoredRecord) -> bool:
        """Tell whether a record is wanted."""
        return (
            self.topic in (None, record.topic)
            and self.queue_id in (None, record.queue_id)
            and _is_within(record.store_ms, self.from_ms, self.to_ms)
            and _is_within(record.physical_offset, self.from_offset, self.to_offset)
            and _is_within(record.queue_offset, *self.queue_offsets)
            and (self.key is None or has_key(record, self.key))
        )


def select(reader: Reader, wanted: Selection, on_bad: OnBad | None) -> Iterator[StoredRecord]:
    """Yield the wanted records in the order of the log."""
    if wanted.scan or wanted.topic is None:
        records = _by_log(reader, wanted, on_bad)
    elif wanted.key is not None:
        records = _by_key(reader, wanted.topic, wanted.key, wanted)
    else:
        records = _by_queues(reader, wanted.topic, wanted, on_bad)
    return islice(filter(wanted.matches, records), wanted.limit)


def _by_key(reader: Reader, topic: str, key: str, wanted: Selection) -> Iterator[StoredRecord]:
    last_ms = None if wanted.to_ms is None else wanted.to_ms - 1
    found = reader.find(topic, key, begin_ms=wanted.from_ms, end_ms=last_ms)
    # Places are less to keep than records: a key may be on very many of them.
    for offset in sorted(record.physical_offset for record in found):
        record = reader.record_at(offset)
        if record is not None:
            yield record


def _by_queues(
    reader: Reader, topic: str, wanted: Selection, on_bad: OnBad | None
) -> Iterator[StoredRecord]:
    queue_ids = reader.queue_ids(topic) if wanted.queue_id is None else [wanted.queue_id]
    start, stop = wanted.queue_offsets
    return heapq.merge(
        *(
            reader.messages(
                topic,
                queue_id,
                _first_at(reader, topic, queue_id, wanted.from_ms, start, on_bad),
                stop,
                on_bad=on_bad,
            )
            for queue_id in queue_ids
        ),
        key=lambda record: record.physical_offset,
    )


def _first_at(
    reader: Reader,
    topic: str,
    queue_id: int,
    from_ms: int | None,
    start: QueueOffset | None,
    on_bad: OnBad | None,
) -> QueueOffset | None:
    """Return the first queue offset of a message stored at a time or later, at least `start`."""
    bounds = reader.queue(topic, queue_id)
    if from_ms is None or bounds is None:
        return start
    try:
        # The nearest message is found, one of several stored at the same time.
        first = reader.queue_offset_by_time(topic, queue_id, from_ms)
        while first > max(bounds.min_offset, start or 0):
            earlier = QueueOffset(first - 1)
            before = next(reader.messages(topic, queue_id, earlier, first), None)
            if before is None or before.store_ms < from_ms:
                break
            first = earlier
    except CorruptStoreError:
        if on_bad is None:
            raise
        return start  # reading it all reports the damage
    return max(first, start or QueueOffset(0))


def _by_log(reader: Reader, wanted: Selection, on_bad: OnBad | None) -> Iterator[StoredRecord]:
    start, stop = _bounds_by_time(reader, wanted.from_ms, wanted.to_ms)
    if wanted.from_offset is not None and wanted.from_offset > start:
        # It need not be where a record begins.
        found = reader.log.next_sound(wanted.from_offset, reader.end_offset)
        start = reader.end_offset if found is None else found
    return reader.records(start, stop, on_bad=on_bad)


def _bounds_by_time(
    reader: Reader, from_ms: int | None, to_ms: int | None
) -> tuple[PhysicalOffset, PhysicalOffset]:
    """Return between which offsets records of a time range are, to whole segments.

    A clock that was set back makes times go down in the log, so there is one segment to spare.
    """
    firsts = (PhysicalOffset(each.first) for each in reader.segments)
    segments = [first for first in firsts if first < reader.end_offset]
    start, stop = reader.min_offset, reader.end_offset
    for before, first in zip([start, *segments], segments, strict=False):
        head = next(reader.heads(first, on_bad=lambda _: None), None)
        if head is None:
            break
        if from_ms is not None and head.store_ms < from_ms:
            start = before
        if to_ms is not None and head.store_ms >= to_ms:
            stop = min(stop, first + reader.segment_bytes)
    return start, stop


def _is_within(value: int, start: int | None, stop: int | None) -> bool:
    return (start is None or value >= start) and (stop is None or value < stop)


# --- the form ---------------------------------------------------------------------------------


def record_fields(record: StoredRecord, *, decompress: bool = True) -> dict[str, Any]:
    """Return a record as it is printed."""
    properties = record.properties
    return {
        "topic": record.topic,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "physicalOffset": record.physical_offset,
        "storeSize": record.size,
        "msgId": record.message_id,
        "uniqueKey": properties.get(UNIQ_KEY),
        "tags": properties.get(TAGS),
        "keys": properties.get(KEYS),
        "bornTimestamp": record.born_ms,
        "storeTimestamp": record.store_ms,
        "bornHost": _host(record.born_host),
        "storeHost": _host(record.store_host),
        "flag": record.flag,
        "sysFlag": record.sys_flag,
        "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_offset,
        "bodyCrc": record.body_crc,
        "properties": properties,
        **_body(record, decompress=decompress),
    }


def _body(record: StoredRecord, *, decompress: bool) -> dict[str, str]:
    plain = plain_body(record) if decompress else None
    body = record.body if plain is None else plain
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text = None
    if text is None or _NOT_TEXT.search(text):
        return {"bodyBase64": base64.b64encode(body).decode()}
    return {"body": text}


def _host(host: bytes) -> str:
    address, port = unpack_host(host)
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def json_line(fields: dict[str, Any]) -> str:
    """Return a JSON object on one line that can be written to standard output."""
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    is_unicode = encoding.lower().replace("-", "") == "utf8"
    text = json.dumps(fields, ensure_ascii=not is_unicode, separators=(",", ":"))
    return _TO_ESCAPE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
