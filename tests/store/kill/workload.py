"""What the victims write: messages that follow from their names, so that anyone can check them.

A step is what a producer hands over at once. Everything in it follows from the seed and the numbers
of run, producer and step, and the unique key of a message holds these numbers. Whoever finds a
message knows what it must look like, whether it was acknowledged or not.
"""

from __future__ import annotations

import random
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from rmq.model.properties import KEYS, TAGS, UNIQ_KEY, encode_properties
from rmq.model.record import NewMessage, pack_host
from rmq.store.config import KIB, FlushMode, StoreConfig

if TYPE_CHECKING:
    from pathlib import Path

BATCH_MAX: Final = 6
# One above the size from which on bodies are copied into the log by themselves.
_LONG_BODY_BYTES: Final = 16 * KIB + 1
# What a record has beside its body here, at most.
_OVERHEAD_BYTES: Final = 250
_BORN_HOSTS: Final = (pack_host("10.1.2.3", 4711), pack_host("fe80::1", 10911))


class Geometry(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes and settings of one store, the same for all its runs."""

    seed: int
    segment_bytes: int
    log_folders: int
    queue_segment_entries: int
    index_slots: int
    index_entries: int
    recovery_point_bytes: int
    recovery_point_interval_ms: int
    topics: int
    queues: int
    body_bytes_max: int = 64 * KIB
    is_async: bool = False
    is_transient: bool = False

    @classmethod
    def draw(cls, rng: random.Random, *, is_async: bool, is_transient: bool) -> Geometry:
        return cls(
            seed=rng.randrange(2**32),
            # The smallest ones make a segment of every few messages.
            segment_bytes=rng.choice((4, 8, 16, 32, 64, 256)) * KIB,
            log_folders=rng.choice((1, 1, 1, 2)),
            queue_segment_entries=rng.choice((16, 33, 100, 1000)),
            index_slots=rng.choice((7, 50, 500)),
            index_entries=rng.choice((120, 500, 5000)),
            recovery_point_bytes=rng.choice((1, 16, 64, 1024)) * KIB,
            recovery_point_interval_ms=rng.choice((10, 50, 200, 10_000)),
            topics=rng.randint(1, 3),
            queues=rng.randint(1, 4),
            is_async=is_async,
            is_transient=is_transient,
        )

    def config(self, root: Path) -> StoreConfig:
        return StoreConfig(
            root=root,
            commit_log_paths=tuple(root / f"commitlog-{n}" for n in range(self.log_folders))
            if self.log_folders > 1
            else (),
            segment_bytes=self.segment_bytes,
            queue_segment_bytes=self.queue_segment_entries * 20,
            index_slots=self.index_slots,
            index_entries=self.index_entries,
            flush_mode=FlushMode.ASYNC if self.is_async else FlushMode.SYNC,
            flush_interval_ms=10,
            recovery_point_bytes=self.recovery_point_bytes,
            recovery_point_interval_ms=self.recovery_point_interval_ms,
            transient_pool_enabled=self.is_transient,
            transient_pool_size=3,
            commit_interval_ms=5,
            # How full the disk of the machine is must not matter.
            disk_clean_ratio=1.0,
            disk_full_ratio=1.0,
        )


class MessageName(NamedTuple):
    """Who wrote a message, and when in its life."""

    run: int
    producer: int
    step: int
    member: int

    def __str__(self) -> str:
        return "-".join(map(str, self))

    @classmethod
    def parse(cls, text: str) -> MessageName:
        return cls(*map(int, text.split("-")))


class Step(NamedTuple):
    """What a producer hands over at once."""

    messages: tuple[NewMessage, ...]
    is_batch: bool


class Workload:
    """The messages of all producers of one store."""

    def __init__(self, geometry: Geometry) -> None:
        self._geometry = geometry
        self.step = lru_cache(maxsize=20_000)(self._step)

    def message(self, name: MessageName) -> NewMessage:
        """Return the message of a name; raises `IndexError` if no producer writes such a one."""
        return self.step(name.run, name.producer, name.step).messages[name.member]

    def _step(self, run: int, producer: int, step: int) -> Step:
        geometry = self._geometry
        rng = random.Random(f"{geometry.seed}/{run}/{producer}/{step}")
        count = rng.choice((1, 1, 1, 2, BATCH_MAX))
        is_batch = count > 1 and rng.random() < 0.6
        body_max = geometry.segment_bytes // (2 * BATCH_MAX) - _OVERHEAD_BYTES
        if count == 1 and geometry.segment_bytes > 2 * _LONG_BODY_BYTES and rng.random() < 0.05:
            body_max = 2 * _LONG_BODY_BYTES
        bound = min(geometry.body_bytes_max, 2 * KIB if count > 1 else body_max)
        body_max = max(min(body_max, bound), 40)
        first_topic, first_queue = rng.randrange(geometry.topics), rng.randrange(geometry.queues)
        messages: list[NewMessage] = []
        for member in range(count):
            name = str(MessageName(run, producer, step, member))
            properties = {
                UNIQ_KEY: name,
                KEYS: f"key-{name} shared-{rng.randrange(5)}",
                TAGS: rng.choice(("TagA", "TagB", "")),
            }
            messages.append(
                NewMessage(
                    f"topic-{first_topic if is_batch else rng.randrange(geometry.topics)}",
                    first_queue if is_batch else rng.randrange(geometry.queues),
                    rng.randbytes(int(body_max * rng.random() ** 3)),
                    encode_properties(properties),
                    flag=rng.randrange(100),
                    born_ms=1_700_000_000_000 + step,
                    born_host=rng.choice(_BORN_HOSTS),
                )
            )
        return Step(tuple(messages), is_batch)


class Ack(NamedTuple):
    """What a victim says about a message it was told is stored."""

    name: str
    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    body_crc: int

    def __str__(self) -> str:
        return " ".join(map(str, self))

    @classmethod
    def parse(cls, words: list[str]) -> Ack:
        return cls(words[0], words[1], *map(int, words[2:]))
