"""Changes of the KV config: on disk before anyone sees them, in order, several per write."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
import trio

from rmq.errors import ConfigError, RefusedError, StorageError
from rmq.files import ConfigFile
from rmq.nameserver import kv
from rmq.nameserver.kv import KvTable
from rmq.nameserver.kv_keeper import Delete, KvKeeper, Put

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Outcomes:
    """What became of changes, in the order in which it was told."""

    def __init__(self) -> None:
        self.told: list[tuple[int, str | None]] = []
        self._changed = trio.Event()

    def of(self, number: int) -> Callable[[RefusedError | None], None]:
        def on_outcome(refusal: RefusedError | None) -> None:
            self.told.append((number, None if refusal is None else refusal.remark))
            self._changed.set()
            self._changed = trio.Event()

        return on_outcome

    async def wait_count(self, count: int) -> None:
        with trio.fail_after(5):
            while len(self.told) < count:
                await self._changed.wait()


class Writes:
    """Stands in front of the real write: counts, and lets a test hold it up or fail it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.texts: list[str] = []
        self.begun = trio.Event()
        self.go = threading.Event()
        self.go.set()
        self.error: StorageError | None = None

    def __call__(self, text: str) -> None:
        self.texts.append(text)
        trio.from_thread.run_sync(self.begun.set)
        assert self.go.wait(5)
        if self.error is not None:
            raise self.error
        ConfigFile(self.path).write(text)


async def test_a_change_is_on_disk_when_its_outcome_is_told(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    path = tmp_path / "namesrv" / "kvConfig.json"
    keeper = KvKeeper(path)
    await keeper.load()
    nursery.start_soon(keeper.run)
    outcomes = Outcomes()
    keeper.submit(Put("n", "k", "v"), outcomes.of(1))
    assert keeper.table.get("n", "k") is None
    await outcomes.wait_count(1)
    assert outcomes.told == [(1, None)]
    assert keeper.table.get("n", "k") == "v"
    assert KvTable.parse(path.read_text()).get("n", "k") == "v"

    again = KvKeeper(path)
    await again.load()
    assert again.table.get("n", "k") == "v"


async def test_changes_that_come_during_a_write_share_the_next_one(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    writes = Writes(tmp_path / "kv.json")
    writes.go.clear()
    keeper = KvKeeper(tmp_path / "kv.json", write=writes)
    nursery.start_soon(keeper.run)
    outcomes = Outcomes()
    keeper.submit(Put("n", "k", "0"), outcomes.of(0))
    await writes.begun.wait()
    for number in range(1, 100):
        keeper.submit(Put("n", "k", str(number)), outcomes.of(number))
    assert keeper.table.get("n", "k") is None
    writes.go.set()
    await outcomes.wait_count(100)
    assert outcomes.told == [(number, None) for number in range(100)]
    assert len(writes.texts) == 2
    assert keeper.table.get("n", "k") == "99"


async def test_what_changes_nothing_is_told_without_a_write(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    writes = Writes(tmp_path / "kv.json")
    keeper = KvKeeper(tmp_path / "kv.json", write=writes)
    nursery.start_soon(keeper.run)
    outcomes = Outcomes()
    keeper.submit(Delete("n", "k"), outcomes.of(1))
    await outcomes.wait_count(1)
    assert outcomes.told == [(1, None)]
    assert writes.texts == []


async def test_a_write_that_fails_changes_nothing_and_says_so(
    tmp_path: Path,
    nursery: trio.Nursery,
    caplog: pytest.LogCaptureFixture,
) -> None:
    writes = Writes(tmp_path / "kv.json")
    keeper = KvKeeper(tmp_path / "kv.json", write=writes)
    nursery.start_soon(keeper.run)
    outcomes = Outcomes()
    writes.error = StorageError("write", "kv.json", "No space left on device")
    keeper.submit(Put("n", "k", "v"), outcomes.of(1))
    await outcomes.wait_count(1)
    assert outcomes.told == [
        (1, "cannot write kv.json: No space left on device; nothing was changed")
    ]
    assert keeper.table.get("n", "k") is None
    assert "1 changes refused" in caplog.text

    writes.error = None
    keeper.submit(Put("n", "l", "w"), outcomes.of(2))
    await outcomes.wait_count(2)
    assert outcomes.told[1] == (2, None)
    written = KvTable.parse((tmp_path / "kv.json").read_text())
    assert (written.get("n", "k"), written.get("n", "l")) == (None, "w")


async def test_a_refused_change_does_not_hold_up_the_others(
    tmp_path: Path, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kv, "CHARS_MAX", 10)
    keeper = KvKeeper(tmp_path / "kv.json")
    outcomes = Outcomes()
    keeper.submit(Put("n", "k", "v" * 20), outcomes.of(1))
    keeper.submit(Put("n", "k", "v"), outcomes.of(2))
    nursery.start_soon(keeper.run)
    await outcomes.wait_count(2)
    (first, second) = outcomes.told
    assert first[1] is not None
    assert "would pass the limit" in first[1]
    assert second == (2, None)
    assert keeper.table.get("n", "k") == "v"


async def test_a_file_that_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    path = tmp_path / "kv.json"
    path.write_text("{")
    with pytest.raises(ConfigError, match=r"kv\.json"):
        await KvKeeper(path).load()


async def test_going_on_from_the_backup_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "kv.json").write_text("{")
    (tmp_path / "kv.json.bak").write_text('{"configTable":{"n":{"k":"v"}}}')
    keeper = KvKeeper(tmp_path / "kv.json")
    await keeper.load()
    assert keeper.table.get("n", "k") == "v"
    assert "kv.json.bak" in caplog.text
