"""An append that fails because memory ran out: what it had begun has left no trace."""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

import pytest

from rmq.store import append
from rmq.store.append import Appender
from rmq.testing.storage import MemoryStorage
from tests.store.store_kit import SEGMENT_BYTES, message, open_core, put, read_bodies

if TYPE_CHECKING:
    from rmq.store.core import StoreCore


def assert_goes_on(core: StoreCore, storage: MemoryStorage, bodies: list[bytes]) -> None:
    """The next message follows on those there are, in the log and in its queue, and after a
    restart as well.
    """
    (result,) = put(core, [message(b"next")])
    assert result.queue_offset == len(bodies)
    assert read_bodies(core) == [*bodies, b"next"]
    core.close()
    assert read_bodies(open_core(storage)) == [*bodies, b"next"]


@pytest.mark.parametrize("place", [1, 2, 3])
@pytest.mark.parametrize("size", [10, SEGMENT_BYTES // 2])
def test_the_messages_of_a_failed_append_get_no_queue_offsets(
    place: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the larger size the first message is in the log before the third is looked at."""
    storage = MemoryStorage()
    core = open_core(storage)
    put(core, [message(b"first")])
    calls = []

    def fail_at(body: bytes) -> int:
        calls.append(body)
        if len(calls) == place:
            raise MemoryError
        return crc32(body)

    monkeypatch.setattr(append, "crc32", fail_at)
    bodies = [bytes([number]) * size for number in range(3)]
    with pytest.raises(MemoryError):
        core.append([message(body) for body in bodies])
    monkeypatch.setattr(append, "crc32", crc32)
    core.dispatch_all_step()
    stored = read_bodies(core)
    assert stored in ([b"first"], [b"first", *bodies[:1]], [b"first", *bodies[:2]])
    assert_goes_on(core, storage, stored)


@pytest.mark.parametrize("kind", ["messages", "batch"])
def test_nothing_is_numbered_that_could_not_be_copied_into_the_log(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = MemoryStorage()
    core = open_core(storage)
    put(core, [message(b"first")])

    def fail(*_: object) -> None:
        raise MemoryError

    def append_two() -> None:
        if kind == "messages":
            core.append([message(b"a"), message(b"b")])
        else:
            core.append_entries(message(b""), [(0, b"a", b""), (0, b"b", b"")])

    with monkeypatch.context() as patch:
        patch.setattr(Appender, "_write", fail)
        with pytest.raises(MemoryError):
            append_two()
    assert_goes_on(core, storage, [b"first"])
