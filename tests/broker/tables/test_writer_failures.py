"""`TableWriter` when writing fails: it tells those who wait, logs once, and goes on trying."""

from __future__ import annotations

import errno
import logging
from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from rmq.broker.tables.writer import RETRY_S, TableWriter
from rmq.errors import DiskFullError, StorageError
from rmq.files import storage_error
from tests.broker.tables.writer_kit import Table, WatchedFile, full

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def table() -> Table:
    return Table()


@pytest.fixture
def file(tmp_path: Path) -> WatchedFile:
    return WatchedFile(tmp_path)


@pytest.fixture
def writer(file: WatchedFile, table: Table) -> TableWriter:
    return TableWriter(file, table.render, "the table")


async def test_who_waits_is_told_of_a_failure_and_the_keeper_goes_on(
    writer: TableWriter,
    table: Table,
    file: WatchedFile,
    nursery: trio.Nursery,
    mock_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    file.error = full(file)
    nursery.start_soon(writer.run, None)
    table.value = 1
    mark = writer.mark()
    for _ in range(3):
        with pytest.raises(DiskFullError) as caught:
            await writer.wait_saved(mark)
        assert caught.value is not file.error
        assert str(caught.value) == str(file.error)
        assert caught.value.hint == file.error.hint
    assert str(writer.error) == str(file.error)
    assert writer.is_unsaved
    assert file.attempts == 3
    assert [message.split(":")[0] for message in caplog.messages] == [
        "the table not saved, trying again"
    ]
    file.error = None
    await wait_all_tasks_blocked()
    mock_clock.jump(RETRY_S)
    await file.wait_attempted()
    await writer.wait_saved(mark)
    assert file.text == "1"
    assert writer.error is None
    assert caplog.messages[1:] == ["the table saved after 3 failed attempts"]
    file.error = full(file)
    with pytest.raises(DiskFullError):
        await writer.wait_saved(writer.mark())
    file.error = None
    await writer.wait_saved(writer.mark())
    assert caplog.messages[3:] == ["the table saved after 1 failed attempts"]


async def test_another_reason_to_fail_is_logged_too(
    writer: TableWriter, file: WatchedFile, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    nursery.start_soon(writer.run, None)
    for code in (errno.ENOSPC, errno.ENOSPC, errno.EIO, errno.EIO):
        file.error = storage_error("write", file.path, OSError(code, ""))
        with pytest.raises(StorageError):
            await writer.wait_saved(writer.mark())
    assert len(caplog.messages) == 2


async def test_everyone_who_waits_for_a_failed_write_is_told(
    writer: TableWriter, file: WatchedFile, nursery: trio.Nursery
) -> None:
    file.error = full(file)
    file.hold()
    nursery.start_soon(writer.run, None)
    told: list[StorageError] = []

    async def wait(mark: int) -> None:
        with pytest.raises(DiskFullError) as caught:
            await writer.wait_saved(mark)
        told.append(caught.value)

    async with trio.open_nursery() as waiters:
        marks = [writer.mark() for _ in range(3)]
        await file.wait_attempted()
        for mark in marks:
            waiters.start_soon(wait, mark)
        await wait_all_tasks_blocked()
        file.let_go()
    assert len({id(error) for error in told}) == 3
    assert file.attempts == 1


async def test_a_failure_concerns_only_what_was_to_be_written(
    writer: TableWriter, table: Table, file: WatchedFile, nursery: trio.Nursery
) -> None:
    file.error, file.fails_once = full(file), True
    file.hold()
    nursery.start_soon(writer.run, None)
    first = writer.mark()
    await file.wait_attempted()
    table.value = 1
    second = writer.mark()

    async def fail() -> None:
        with pytest.raises(DiskFullError):
            await writer.wait_saved(first)

    async with trio.open_nursery() as waiters:
        waiters.start_soon(fail)
        waiters.start_soon(writer.wait_saved, second)
        await wait_all_tasks_blocked()
        file.let_go()
    assert file.text == "1"


async def test_a_new_mark_is_tried_at_once_after_a_failure(
    writer: TableWriter, file: WatchedFile, nursery: trio.Nursery, mock_clock: MockClock
) -> None:
    del mock_clock
    file.error = full(file)
    nursery.start_soon(writer.run, None)
    with pytest.raises(DiskFullError):
        await writer.wait_saved(writer.mark())
    file.error = None
    await writer.wait_saved(writer.mark())
    assert file.text == "0"


async def test_with_an_interval_a_failure_is_repeated_when_it_is_over(
    writer: TableWriter, file: WatchedFile, nursery: trio.Nursery, mock_clock: MockClock
) -> None:
    file.error = full(file)
    nursery.start_soon(writer.run, 60.0)
    with pytest.raises(DiskFullError):
        await writer.wait_saved(writer.mark())
    await wait_all_tasks_blocked()
    mock_clock.jump(59.0)
    await wait_all_tasks_blocked()
    assert file.attempts == 1
    mock_clock.jump(1.0)
    await file.wait_attempted()
    assert file.attempts == 2


async def test_saving_now_raises_if_it_fails(writer: TableWriter, file: WatchedFile) -> None:
    writer.mark()
    file.error = full(file)
    with pytest.raises(DiskFullError):
        await writer.save_now()
    file.error = None
    await writer.save_now()
    assert file.text == "0"
