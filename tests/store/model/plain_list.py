"""The model: a plain list of what was appended, and what must be there of it.

It knows offsets, bytes and promises. It knows nothing of files, segments' contents, points or
recovery: whatever the store does, what can be read from it must be what the list says.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Final
from zlib import crc32

from rmq.model import flags
from rmq.model.java import string_hash
from rmq.model.properties import decode_properties
from rmq.model.record import decode_record, pack_host
from rmq.model.record_layout import MESSAGE_MAGIC, PROPERTIES_LENGTH, RECORD_HEADS
from rmq.store.config import DEFAULT_DELAY_LEVELS, parse_delay_levels
from rmq.store.layout import QUEUE_ENTRY

if TYPE_CHECKING:
    from rmq.model.record import NewMessage

QueueKey = tuple[str, int]
STORE_HOST: Final = pack_host("127.0.0.1", 10911)

_DELAYS_MS: Final = parse_delay_levels(DEFAULT_DELAY_LEVELS)
_QUEUED: Final = (flags.TRANSACTION_NONE, flags.TRANSACTION_COMMIT)


@dataclass(eq=False, slots=True)
class Listed:
    """One record of the log."""

    physical: int
    content: bytes
    topic: str
    queue_id: int
    queue_offset: int
    sys_flag: int
    store_ms: int
    properties: dict[str, str]
    is_torn: bool = False
    """It was not flushed when the power was cut, and came back changed outside of its body."""

    @classmethod
    def of(cls, message: NewMessage, physical: int, queue_offset: int, store_ms: int) -> Listed:
        """Return the record that a message becomes, without asking the store."""
        content = _encode(message, physical, queue_offset, store_ms)
        return cls.decode(physical, content)

    @classmethod
    def decode(cls, physical: int, content: bytes) -> Listed:
        record = decode_record(content)
        return cls(
            physical,
            content,
            record.topic,
            record.queue_id,
            record.queue_offset,
            record.sys_flag,
            record.store_ms,
            decode_properties(record.properties_bytes),
        )

    @property
    def end(self) -> int:
        return self.physical + len(self.content)

    @property
    def key(self) -> QueueKey:
        return self.topic, self.queue_id

    @property
    def is_queued(self) -> bool:
        return self.sys_flag & flags.TRANSACTION_MASK in _QUEUED

    @property
    def keys(self) -> set[str]:
        """The keys under which the index must find it."""
        if self.sys_flag & flags.TRANSACTION_MASK == flags.TRANSACTION_ROLLBACK:
            return set()
        names = self.properties.get("KEYS", "").split(" ")
        return {name for name in (*names, self.properties.get("UNIQ_KEY", "")) if name}

    @property
    def tags_code(self) -> int:
        delay = self.properties.get("DELAY", "")
        if self.topic == "SCHEDULE_TOPIC_XXXX" and delay.isdecimal() and int(delay):
            return self.store_ms + _DELAYS_MS[min(int(delay), len(_DELAYS_MS)) - 1]
        return string_hash(self.properties.get("TAGS", ""))

    @property
    def entry(self) -> bytes:
        """Its entry in the ConsumeQueue."""
        return QUEUE_ENTRY.pack(self.physical, len(self.content), self.tags_code)

    def is_torn_from(self, other: Listed) -> bool:
        """Tell whether this is `other`, damaged where no CRC protects it."""
        return (self.physical, len(self.content)) == (other.physical, len(other.content)) and (
            decode_record(self.content).body == decode_record(other.content).body
        )


def _encode(message: NewMessage, physical: int, queue_offset: int, store_ms: int) -> bytes:
    hosts = flags.BORN_HOST_V6 if len(message.born_host) > len(STORE_HOST) else 0
    head = RECORD_HEADS[hosts]
    topic = message.topic.encode()
    tail = b"".join(
        (
            message.body,
            bytes((len(topic),)),
            topic,
            PROPERTIES_LENGTH.pack(len(message.properties)),
            message.properties,
        )
    )
    return (
        head.pack(
            head.size + len(tail),
            MESSAGE_MAGIC,
            crc32(message.body) & 0x7FFFFFFF,
            message.queue_id,
            message.flag,
            queue_offset,
            physical,
            message.sys_flag | hosts,
            message.born_ms,
            message.born_host,
            store_ms,
            STORE_HOST,
            message.reconsume_times,
            message.prepared_offset,
            len(message.body),
        )
        + tail
    )


@dataclass(slots=True)
class PlainList:
    """Everything that is in the log or was before it expired, oldest first."""

    records: list[Listed] = field(default_factory=list)
    queues: defaultdict[QueueKey, list[Listed]] = field(default_factory=lambda: defaultdict(list))
    """The records of each queue; the place of one is its queue offset."""
    log_min: int = 0
    """Records below are gone."""
    forgotten: int = 0
    """Records below may be gone from queues and index: a cut can bring back deleted segments."""
    followed: int = 0
    """The `log_min` at which queues and index were last told of it."""

    def add(self, record: Listed) -> None:
        assert not self.records or record.physical >= self.records[-1].end, (
            f"a record at {record.physical} over the one that ends at {self.records[-1].end}"
        )
        self.records.append(record)
        if record.is_queued:
            self.queues[record.key].append(record)

    def next_queue_offset(self, message: NewMessage) -> int:
        if message.sys_flag & flags.TRANSACTION_MASK not in _QUEUED:
            return 0
        return len(self.queues[message.topic, message.queue_id])

    def end_below(self, offset: int) -> int:
        """Return where the last record ends that lies wholly below an offset."""
        return max((record.end for record in self.records if record.end <= offset), default=0)

    def present(self) -> list[Listed]:
        """Return the records of the log."""
        return [record for record in self.records if record.physical >= self.log_min]

    def cut(self, count: int) -> None:
        """Keep the first `count` records only: the others were lost, which they might be."""
        lost = {id(record) for record in self.records[count:]}
        del self.records[count:]
        for queue in self.queues.values():
            while queue and id(queue[-1]) in lost:
                queue.pop()

    def take_torn(self, place: int, torn: Listed) -> set[QueueKey]:
        """Put a damaged record in the place of a sound one; return the queues that are unsure."""
        before = self.records[place]
        torn.is_torn = True
        self.records[place] = torn
        return {before.key, torn.key}

    def take_queue(self, key: QueueKey, entries: list[bytes], first: int) -> None:
        """Believe what the store has in a queue from entry `first` on, if it can be true.

        It is asked for queues that damaged records were or are in. Which place a record gets whose
        queue offset was damaged is not promised; that every entry stands for one record is.
        """
        by_entry = {record.entry: record for record in self.records if record.key == key}
        unknown = [entry for entry in entries if entry not in by_entry]
        assert not unknown, f"entries of no record in {key}: {unknown}"
        found = [by_entry[entry] for entry in entries]
        assert all(a.physical < b.physical for a, b in pairwise(found)), f"{key} is not in order"
        self.queues[key] = self.queues[key][:first] + found

    def min_offset(self, key: QueueKey, log_min: int) -> int:
        """Return the first queue offset whose record is not below `log_min`."""
        queue = self.queues[key]
        return next((i for i, r in enumerate(queue) if r.physical >= log_min), len(queue))
