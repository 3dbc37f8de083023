"""What a process killed inside an append leaves: a batch as a whole, or nothing of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import pytest

from rmq.model.offsets import QueueOffset
from rmq.model.record import NewMessage
from rmq.store.append import JOIN_BYTES_MAX
from rmq.store.config import StoreConfig
from rmq.store.core import StoreCore

if TYPE_CHECKING:
    from pathlib import Path

LONG = bytes(JOIN_BYTES_MAX + 1)


class Killed(BaseException):
    """Stands for the end of the process."""


class FailingBuffer:
    """A segment's buffer in which the process dies at the n-th piece that is copied into it."""

    def __init__(self, buffer: memoryview, pieces: int) -> None:
        self._buffer = buffer
        self._pieces = pieces

    def __len__(self) -> int:
        return len(self._buffer)

    def __setitem__(self, place: slice, data: bytes) -> None:
        if not self._pieces:
            raise Killed
        self._pieces -= 1
        self._buffer[place] = data


@pytest.fixture
def config(tmp_path: Path) -> StoreConfig:
    return StoreConfig(root=tmp_path, segment_bytes=1 << 20, index_slots=16, index_entries=64)


def reopened(core: StoreCore, config: StoreConfig) -> StoreCore:
    core.release()
    return StoreCore(config)


def die(*_: object) -> NoReturn:
    raise Killed


@pytest.mark.parametrize("pieces", [0, 1])
def test_a_batch_with_a_long_body_is_there_as_a_whole_or_not_at_all(
    config: StoreConfig, pieces: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = StoreCore(config)
    core.append([NewMessage("T", 0, b"before")])
    monkeypatch.setattr(core.log, "buffer", FailingBuffer(core.log.buffer, pieces))
    monkeypatch.setattr(core.log, "write_at", die)
    with pytest.raises(Killed):
        core.append_batch([NewMessage("T", 0, body) for body in (b"a", LONG, b"c")])
    core = reopened(core, config)
    queue = core.queues.get("T", 0)
    assert queue is not None
    assert queue.next_offset == 1
    core.close()


def test_a_long_message_is_not_there_until_its_head_is(
    config: StoreConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = StoreCore(config)
    core.append([NewMessage("T", 0, b"before")])
    monkeypatch.setattr(core.log, "buffer", FailingBuffer(core.log.buffer, 0))
    with pytest.raises(Killed):
        core.append([NewMessage("T", 0, LONG)])
    core = reopened(core, config)
    assert core.reads.get("T", 0, QueueOffset(0), 32).count == 1
    (result,) = core.append([NewMessage("T", 0, LONG)])
    assert result.queue_offset == 1
    core.close()
