"""Delayed messages in a store in memory, and the one who delivers them, stepped by hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import trio

from rmq.broker.delays.delivery import DelayDelivery
from rmq.broker.sending import properties as inbound
from rmq.broker.stats.broker import BrokerStats
from rmq.model.names import SCHEDULE_TOPIC
from rmq.model.offsets import QueueOffset
from rmq.model.properties import encode_properties
from rmq.model.record import NewMessage, StoredRecord, decode_records
from rmq.store.append import AppendStatus
from rmq.store.config import StoreConfig
from rmq.store.core import StoreCore
from rmq.store.store import THREADS, MessageStore
from rmq.testing.storage import MemoryStorage
from tests.broker.send_kit import START_MS, WallClock

if TYPE_CHECKING:
    from rmq.store.consume_queue import ConsumeQueue

TOPIC: Final = "TopicA"
LEVELS: Final = "1s 5s 10s"
QUEUE_ENTRIES: Final = 10


class Delays:
    """A store, and the deliveries in it."""

    def __init__(
        self,
        storage: MemoryStorage | None = None,
        *,
        clock: WallClock | None = None,
        levels: str = LEVELS,
        saved: str | None = None,
        **settings: object,
    ) -> None:
        self.clock = clock or WallClock()
        self.storage = storage if storage is not None else MemoryStorage(now_ms=self.clock)
        geometry: dict[str, Any] = {
            "segment_bytes": 64 * 1024,
            "queue_segment_bytes": QUEUE_ENTRIES * 20,
            "index_slots": 50,
            "index_entries": 1000,
            "delay_levels": levels,
        }
        self.core = StoreCore(
            StoreConfig(root=Path("/store"), **(geometry | settings)),
            storage=self.storage,
            now_ms=self.clock,
        )
        self.store = MessageStore(self.core, trio.CapacityLimiter(THREADS))
        self.stats = BrokerStats("c", boot_ms=START_MS)
        self.delivery = DelayDelivery(
            self.store,
            self.core.config.delay_levels_ms,
            self.stats,
            now_ms=self.clock,
        )
        self.core.dispatcher.on_dispatched = lambda message: self.delivery.message_arrived(
            message.tags_code
        )
        if saved is not None:
            self.delivery.load(saved)
        self.delivery.start()

    def park(
        self,
        body: bytes,
        level: int = 1,
        *,
        topic: str = TOPIC,
        queue_id: int = 0,
        pairs: dict[str, str] | None = None,
        **fields: Any,  # noqa: ANN401 - any field of NewMessage
    ) -> None:
        """Store a message that is to be delayed."""
        message = NewMessage(topic, queue_id, body, **fields)
        self.park_as(
            inbound.parked(
                message,
                level,
                len(self.core.config.delay_levels_ms),
                encode_properties({"DELAY": str(level)} | (pairs or {})),
            )
        )

    def park_as(self, message: NewMessage) -> None:
        """Store a message in the schedule topic as it is."""
        (result,) = self.store.append([message])
        assert result.status is AppendStatus.PUT_OK, result

    def park_raw(self, body: bytes, level: int = 1, **pairs: str) -> None:
        """Store a message in the schedule topic with these properties and no others."""
        properties = encode_properties({"DELAY": str(level)} | pairs)
        self.park_as(NewMessage(SCHEDULE_TOPIC, level - 1, body, properties))

    def records(self, topic: str = TOPIC, queue_id: int = 0) -> list[StoredRecord]:
        found: list[StoredRecord] = []
        while views := self.store.reads.get(topic, queue_id, QueueOffset(len(found)), 32).records:
            found += (record for view in views for record in decode_records(view))
        return found

    def delivered(self, topic: str = TOPIC, queue_id: int = 0) -> list[bytes]:
        """Return the bodies of the messages that were delivered to a queue."""
        return [record.body for record in self.records(topic, queue_id)]

    def queue(self, level: int = 1) -> ConsumeQueue:
        queue = self.core.queues.get(SCHEDULE_TOPIC, level - 1)
        assert queue is not None
        return queue

    def deliver_all(self) -> int | None:
        """Deliver until nothing is due; return when the next is."""
        while (due_ms := self.delivery.deliver()) is not None and due_ms <= self.clock.ms:
            pass
        return due_ms

    def at(self, ms: int) -> int | None:
        """Let it be `ms` after the start, and deliver all that is due then."""
        self.clock.ms = START_MS + ms
        due_ms = self.deliver_all()
        return None if due_ms is None else due_ms - START_MS
