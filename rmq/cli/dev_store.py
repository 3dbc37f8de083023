"""The store's part of the self-check of `rmq dev`: write, flush, close, reopen, read, verify."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rmq.errors import CorruptStoreError
from rmq.model.properties import encode_properties
from rmq.store.config import MIB, FlushMode, StoreConfig
from rmq.store.reader import Reader
from rmq.store.record import NewMessage, decode_records
from rmq.store.store import open_store
from rmq.store.verify import verify

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.store.store import MessageStore

TOPIC: Final = "SelfCheck"
MESSAGES: Final = 10_000
QUEUES: Final = 4
GROUP: Final = 64
FOREVER_MS: Final = 2**62


async def check_store(say: Callable[[str], None]) -> None:
    """Use a store in a temporary directory; raise if what comes back is not what went in."""
    with tempfile.TemporaryDirectory(prefix="rmq-self-check-") as folder:
        root = Path(folder)
        # Small files, so that the check needs little room and sees several of each kind.
        config = StoreConfig(
            root=root,
            segment_bytes=MIB,
            queue_segment_bytes=20_000,
            index_slots=5_000,
            index_entries=20_000,
            flush_mode=FlushMode.SYNC,
            # However full the disk is, this much fits.
            disk_clean_ratio=1.0,
            disk_full_ratio=1.0,
        )
        await _write(config, say)
        await _read_back(config, say)
        _verify(root, say)


async def _write(config: StoreConfig, say: Callable[[str], None]) -> None:
    messages = [
        NewMessage(
            TOPIC,
            number % QUEUES,
            b"message %d" % number,
            encode_properties({"TAGS": f"Tag{number % 3}", "KEYS": f"key-{number}"}),
        )
        for number in range(MESSAGES)
    ]
    async with open_store(config) as store:
        started = time.perf_counter()
        for start in range(0, MESSAGES, GROUP):
            for result in await store.put(messages[start : start + GROUP]):
                if result.status.name != "PUT_OK":
                    raise _wrong(config.root, f"append: {result.status.name} {result.reason}")
        took_s = time.perf_counter() - started
    say(f"  {MESSAGES} messages appended, {GROUP} at a time, on disk  {MESSAGES / took_s:,.0f}/s")


async def _read_back(config: StoreConfig, say: Callable[[str], None]) -> None:
    started = time.perf_counter()
    async with open_store(config) as store:
        say(f"  closed and opened again  {(time.perf_counter() - started) * 1000:.0f} ms")
        started = time.perf_counter()
        for queue_id in range(QUEUES):
            found = _bodies(store, queue_id)
            if found != [b"message %d" % number for number in range(queue_id, MESSAGES, QUEUES)]:
                raise _wrong(config.root, f"queue {queue_id} has {len(found)} messages, or others")
        took_s = time.perf_counter() - started
        for number in range(0, MESSAGES, 97):
            if len(store.reads.query(TOPIC, f"key-{number}", 8, 0, FOREVER_MS)) != 1:
                raise _wrong(config.root, f"the index does not lead to key-{number}")
    say(f"  all of them read back in order, keys found  {MESSAGES / took_s:,.0f}/s")


def _bodies(store: MessageStore, queue_id: int) -> list[bytes]:
    bodies: list[bytes] = []
    while True:
        got = store.reads.get(TOPIC, queue_id, len(bodies), 32)
        if not got.count:
            return bodies
        for view in got.records:
            bodies += (record.body for record in decode_records(view))


def _verify(root: Path, say: Callable[[str], None]) -> None:
    with Reader(root, index_slots=5_000, index_entries=20_000) as reader:
        for finding in verify(reader):
            raise _wrong(root, str(finding))
    say("  every record, queue entry and key verified")


def _wrong(root: Path, reason: str) -> CorruptStoreError:
    return CorruptStoreError(str(root), f"self-check of the store: {reason}")
