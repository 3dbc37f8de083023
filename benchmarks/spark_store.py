"""A store to read: many small messages, as a stock client sends them, in several topics."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Final

from rmq.model.record import NewMessage, pack_host
from rmq.store.config import MIB, StoreConfig
from rmq.store.core import StoreCore

if TYPE_CHECKING:
    from pathlib import Path

TOPICS: Final = 4
QUEUES: Final = 4
BODY_BYTES: Final = 200
GROUP: Final = 256
SEGMENT_BYTES: Final = 256 * MIB


def fill_store(root: Path, count: int, segment_bytes: int = SEGMENT_BYTES) -> int:
    """Make a store of so many messages; return how many bytes its log has."""
    chance = random.Random(14)
    pool = chance.randbytes(1 << 20)
    hosts = [pack_host(f"10.0.0.{number}", 40000 + number) for number in range(1, 9)]
    now_ms = time.time_ns() // 1_000_000
    core = StoreCore(StoreConfig(root=root, segment_bytes=segment_bytes))
    try:
        for start in range(0, count, GROUP):
            messages = []
            for number in range(start, min(start + GROUP, count)):
                at = number * 37 % (len(pool) - BODY_BYTES - 64)
                messages.append(
                    NewMessage(
                        f"Bench-{number % TOPICS}",
                        number // TOPICS % QUEUES,
                        pool[at : at + BODY_BYTES - 32 + number % 64],
                        b"UNIQ_KEY\x010A00000100002A9F18B4AAC2%08X\x02WAIT\x01true\x02TAGS\x01Tag%d"
                        % (number, number % 5),
                        born_ms=now_ms + number // 100,
                        born_host=hosts[number % len(hosts)],
                    )
                )
            core.append(messages)
        core.flush()
        return core.statistics().written
    finally:
        core.close()
