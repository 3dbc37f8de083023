"""What the checks of Spark share: a store with one flipped bit, and what a job has printed."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from interop.support.cases import MismatchError
from interop.support.spark import flip_a_bit, last_object
from rmq.errors import CorruptStoreError
from rmq.model.offsets import PhysicalOffset
from rmq.model.record import NewMessage
from rmq.store.config import StoreConfig
from rmq.store.core import StoreCore
from rmq.store.reader import Reader

if TYPE_CHECKING:
    from pathlib import Path

PROPERTIES = b"filling\x01" + b"." * 2000


def _store(root: Path, body: bytes) -> Path:
    config = StoreConfig(root=root, segment_bytes=1 << 16, index_slots=50, index_entries=500)
    store = StoreCore(config, now_ms=lambda: 1)
    for _ in range(20):
        store.append([NewMessage("Topic0", 0, body, PROPERTIES)])
    store.close()
    return root


@pytest.mark.parametrize("body", [b"0", b"Topic0", b"a body " * 50])
def test_the_flipped_bit_is_in_a_body(tmp_path: Path, body: bytes) -> None:
    """Only bodies have a CRC; properties are longer here, and short bodies are found elsewhere."""
    root = _store(tmp_path / "store", body)
    before = shutil.copytree(root, tmp_path / "before")
    offset = flip_a_bit(root)
    with Reader(before) as reader:
        offsets = [record.physical_offset for record in reader.records()]
        assert offset in offsets[5:15]
    with Reader(root) as reader, pytest.raises(CorruptStoreError, match="CRC"):
        reader.record_at(PhysicalOffset(offset))


def test_a_store_without_messages_cannot_be_damaged(tmp_path: Path) -> None:
    StoreCore(StoreConfig(root=tmp_path, segment_bytes=1 << 16), now_ms=lambda: 1).close()
    with pytest.raises(MismatchError, match="no message"):
        flip_a_bit(tmp_path)


def test_the_verdict_is_the_last_object_among_other_lines() -> None:
    assert last_object('{"a": 1}\n') == {"a": 1}
    said = 'INFO start\n{"a": 1}\n{"b": 2}\nINFO {stop}\n[3]\n"x"\n'
    assert last_object(said) == {"b": 2}
    assert last_object("INFO start\n{no json}\n") is None
    assert last_object("") is None
