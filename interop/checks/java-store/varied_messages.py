"""A store with messages of every kind, written by our engine, and what must be found in it.

The clock of the engine starts some minutes ago and goes on by steps, so that store times differ;
the files of the queues get the times they would have had, because a stock broker that looks for a
time chooses the file by it.
"""

from __future__ import annotations

import os
import random
import time
import zlib
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final

from our_engine import our_engine, require_put
from stored_message import by_queue, from_append

from rmq.model import flags
from rmq.model.properties import DELAY, KEYS, TAGS, UNIQ_KEY, encode_properties
from rmq.model.record import NewMessage, pack_host
from rmq.store.layout import QUEUE_ENTRY_BYTES
from rmq.store.segments import segment_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store_place import StorePlace
    from stored_message import Readings, StoredMessage

    from rmq.store.core import StoreCore

ORDERS: Final = "Orders"
EVENTS: Final = "Events"
LONG_NAME: Final = "Long_%|-" + "N" * 119
DELAYED: Final = "Delayed"
QUIET: Final = "Quiet"
SCHEDULE: Final = "SCHEDULE_TOPIC_XXXX"
VARIED_TOPICS: Final = {ORDERS: 4, EVENTS: 1, LONG_NAME: 1, DELAYED: 2, QUIET: 2}
READ_TOPICS: Final = (*VARIED_TOPICS, SCHEDULE)

PLAIN_TAG: Final = "TagA"
ROCKET_TAG: Final = "标签🚀"
ROCKET_KEY: Final = "ключ-🗝"
STEP_MS: Final = 200
CUSTOMERS: Final = 40

_MESSAGES: Final = 2_400
_BATCH: Final = 12
_REAL_TOPIC: Final = "REAL_TOPIC"
_REAL_QUEUE: Final = "REAL_QID"
_ZLIB: Final = 0x300
_MONTH_MS_MASK: Final = 0xFFFFFFFF


@dataclass
class SteppedClock:
    """A clock that stands still between steps."""

    ms: int

    def __call__(self) -> int:
        return self.ms


@dataclass(frozen=True)
class Delay:
    """A message that the broker is to deliver later."""

    level: int
    delay_ms: int
    queue_id: int


DELAYS: Final = (Delay(1, 1_000, 0), Delay(3, 10_000, 1))
LATER_LEVEL: Final = 18
"""Two hours: it stays where it is."""


@dataclass
class Written:
    """What our engine has put into a store."""

    queued: list[StoredMessage] = field(default_factory=list)
    """In the order of the log."""
    hidden: list[StoredMessage] = field(default_factory=list)
    """Records without a queue: transactions that are not decided, or were rolled back."""
    scheduled: list[StoredMessage] = field(default_factory=list)
    """Those of `DELAYS`, in their order."""

    @property
    def readings(self) -> Readings:
        return by_queue(self.queued)

    def find(self, topic: str, key: str) -> list[StoredMessage]:
        """Return the messages of a topic that carry a key."""
        return [
            message
            for message in (*self.queued, *self.hidden)
            if message.topic == topic
            and (key == message.unique_key or key in (message.keys or "").split(" "))
        ]


def write_varied(place: StorePlace) -> Written:
    """Write messages of every kind and close the store."""
    written = Written()
    writer = _Writer(place, written)
    with our_engine(place, now_ms=writer.clock) as core:
        writer.core = core
        for number in range(_MESSAGES):
            writer.step()
            writer.put([_message(number, writer.clock.ms)])
            if number % 100 == 50:
                writer.step()
                writer.put_batch(_batch(number, writer.clock.ms))
            if number % 100 == 75:
                writer.step()
                writer.put_hidden(number)
        # Delays count from now.
        writer.clock.ms = time.time_ns() // 1_000_000
        writer.put_scheduled()
    _set_file_times(place, written.readings)
    return written


class _Writer:
    """Appends and keeps book."""

    core: StoreCore

    def __init__(self, place: StorePlace, written: Written) -> None:
        # The first step is long enough ago that the last one is not in the future.
        steps_ms = (_MESSAGES + _MESSAGES // 50 + 1) * STEP_MS
        self.clock = SteppedClock(time.time_ns() // 1_000_000 - steps_ms)
        self._place = place
        self._written = written

    def step(self) -> None:
        self.clock.ms += STEP_MS

    def put(self, messages: Sequence[NewMessage]) -> list[StoredMessage]:
        return self._keep(messages, batch=False)

    def put_batch(self, messages: Sequence[NewMessage]) -> None:
        self._keep(messages, batch=True)

    def _keep(self, messages: Sequence[NewMessage], *, batch: bool) -> list[StoredMessage]:
        append = self.core.append_batch if batch else self.core.append
        results = require_put(append(messages))
        stored = [
            from_append(message, result, self._place.store_host)
            for message, result in zip(messages, results, strict=True)
        ]
        self._written.queued += stored
        return stored

    def put_hidden(self, number: int) -> None:
        kinds = (flags.TRANSACTION_PREPARED, flags.TRANSACTION_ROLLBACK)
        messages = [
            NewMessage(
                ORDERS,
                0,
                f"hidden {number} {kind}".encode(),
                encode_properties({KEYS: f"hidden-{kind}-{number}"}),
                sys_flag=kind,
                born_ms=self.clock.ms,
            )
            for kind in kinds
        ]
        for message, result in zip(messages, require_put(self.core.append(messages)), strict=True):
            self._written.hidden.append(from_append(message, result, self._place.store_host))

    def put_scheduled(self) -> None:
        for delay in DELAYS:
            self._written.scheduled += self.put([self._delayed(delay.level, delay.queue_id)])
        self.put([self._delayed(LATER_LEVEL, 0)])

    def _delayed(self, level: int, queue_id: int) -> NewMessage:
        return NewMessage(
            SCHEDULE,
            level - 1,
            f"delayed by level {level}".encode(),
            encode_properties(
                {
                    TAGS: PLAIN_TAG,
                    KEYS: f"delayed-{level}",
                    UNIQ_KEY: unique_key(0xD000 + level, self.clock.ms),
                    DELAY: str(level),
                    _REAL_TOPIC: DELAYED,
                    _REAL_QUEUE: str(queue_id),
                }
            ),
            born_ms=self.clock.ms,
            born_host=pack_host("127.0.0.1", 50_001),
        )


def _message(number: int, now_ms: int) -> NewMessage:
    topic, queue_id = EVENTS, 0
    if number % 31 == 30:
        topic = LONG_NAME
    elif number % 2:
        topic, queue_id = ORDERS, number // 2 % 4
    body, sys_flag = _body(number)
    prepared_offset = 0
    if number % 50 == 7:
        sys_flag |= flags.TRANSACTION_COMMIT
        prepared_offset = number * 1000
    return NewMessage(
        topic,
        queue_id,
        body,
        encode_properties(_properties(number, now_ms)),
        flag=number - 1000,
        sys_flag=sys_flag,
        born_ms=now_ms - number % 10,
        born_host=_born_host(number),
        reconsume_times=number % 5,
        prepared_offset=prepared_offset,
    )


def _batch(number: int, now_ms: int) -> list[NewMessage]:
    return [
        NewMessage(
            ORDERS,
            number // 100 % 4,
            f"batch {number} message {place}".encode(),
            encode_properties(
                {
                    UNIQ_KEY: unique_key(number * _BATCH + place, now_ms),
                    KEYS: f"batch-{number} batch-{number}-{place}",
                    TAGS: PLAIN_TAG,
                }
            ),
            born_ms=now_ms,
            born_host=_born_host(number),
        )
        for place in range(_BATCH)
    ]


def _body(number: int) -> tuple[bytes, int]:
    """Return a body as it is stored, and its flags."""
    if number % 300 == 5:
        return random.Random(number).randbytes(150_000 + number), 0
    match number % 6:
        case 0:
            return f"message {number}".encode(), 0
        case 1:
            return f"сообщение {number} 消息 🚀 \0 \u2028".encode(), 0
        case 2:
            text = f"compressed message {number} ".encode() * 300
            return zlib.compress(text, 5), flags.COMPRESSED | _ZLIB
        case 3:
            return random.Random(number).randbytes(1 + number % 3_000), 0
        case 4:
            return b"", 0
        case _:
            # Older clients do not say how a body is compressed: by zlib.
            return zlib.compress(f"compressed {number}".encode() * 20), flags.COMPRESSED


def _properties(number: int, now_ms: int) -> dict[str, str]:
    order, customer = f"order-{number}", f"customer-{number % CUSTOMERS}"
    unique = unique_key(number, now_ms)
    match number % 7:
        case 0:
            return {}
        case 1:
            return {UNIQ_KEY: unique, TAGS: PLAIN_TAG}
        case 2:
            return {KEYS: order}
        case 3:
            return {KEYS: f"{order} {customer} third", UNIQ_KEY: unique, TAGS: "TagB"}
        case 4:
            return {
                TAGS: ROCKET_TAG,
                KEYS: f"{ROCKET_KEY}-{number} {customer}",
                "имя": "значение 🚀",
                UNIQ_KEY: unique,
            }
        case 5:
            many = {f"name-{i}": f"value {i} of {number}" for i in range(40)}
            return {"WAIT": "true", **many, TAGS: f"Tag-{number}"}
        case _:
            return {UNIQ_KEY: unique, "CLUSTER": "InteropCluster", KEYS: customer}


def _born_host(number: int) -> bytes:
    if number % 3 == 0:
        return pack_host(f"2001:db8::{number:x}", 40_000 + number)
    return pack_host(f"10.1.{number // 256}.{number % 256}", 40_000 + number)


def unique_key(number: int, now_ms: int) -> str:
    """Return a client message id; the time in it bounds where a stock client looks for it."""
    local = datetime.fromtimestamp(now_ms / 1000)  # noqa: DTZ006 - stock clients count local time
    month = local.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    span_ms = now_ms - int(month.timestamp() * 1000)
    return (
        (
            bytes((127, 0, 0, 1))
            + (4711).to_bytes(2)
            + (0x5EED + (number >> 16)).to_bytes(4)
            + (span_ms & _MONTH_MS_MASK).to_bytes(4)
            + (number & 0xFFFF).to_bytes(2)
        )
        .hex()
        .upper()
    )


def _set_file_times(place: StorePlace, readings: Readings) -> None:
    """Give each file of a queue the time at which its last entry was written."""
    per_file = place.geometry.queue_segment_bytes // QUEUE_ENTRY_BYTES
    for (topic, queue_id), messages in readings.items():
        folder = place.root / "consumequeue" / topic / str(queue_id)
        for first in range(0, len(messages), per_file):
            last_ms = messages[min(first + per_file, len(messages)) - 1].store_ms
            path = folder / segment_name(first * QUEUE_ENTRY_BYTES)
            os.utime(path, ns=(last_ms * 1_000_000, last_ms * 1_000_000))
