"""`TableWriter`: every marked change is written once, and waiting tasks learn when.

What happens when writing fails is in test_writer_failures.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from rmq.broker.tables.consumer_offsets import ConsumerOffsets
from rmq.broker.tables.writer import TableWriter
from rmq.model.offsets import ConsumerOffset
from tests.broker.tables.writer_kit import Table, WatchedFile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

INTERVAL_S: Final = 5.0


@pytest.fixture
def table() -> Table:
    return Table()


@pytest.fixture
def file(tmp_path: Path) -> WatchedFile:
    return WatchedFile(tmp_path)


@pytest.fixture
def writer(file: WatchedFile, table: Table) -> TableWriter:
    return TableWriter(file, table.render, "the table")


# --- saving ---


async def test_a_marked_change_is_saved_soon(
    writer: TableWriter, table: Table, file: WatchedFile, nursery: trio.Nursery
) -> None:
    nursery.start_soon(writer.run, None)
    for value in range(1, 4):
        table.value = value
        mark = writer.mark()
        assert writer.is_unsaved
        await writer.wait_saved(mark)
        assert file.text == str(value)
        assert not writer.is_unsaved
    assert file.attempts == 3


async def test_nobody_has_to_wait_for_a_change_to_be_saved(
    writer: TableWriter, table: Table, file: WatchedFile, nursery: trio.Nursery
) -> None:
    nursery.start_soon(writer.run, None)
    await wait_all_tasks_blocked()
    table.value = 7
    writer.mark()
    await file.wait_attempted()
    await writer.save_now()
    assert file.text == "7"


@pytest.mark.parametrize("interval_s", [None, INTERVAL_S])
async def test_without_a_change_nothing_is_written(
    interval_s: float | None,
    writer: TableWriter,
    file: WatchedFile,
    table: Table,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
) -> None:
    del autojump_clock
    nursery.start_soon(writer.run, interval_s)
    await trio.sleep(1000)
    await writer.save_now()
    await writer.wait_saved(0)
    assert (file.attempts, file.text, table.renders) == (0, None, 0)


async def test_changes_marked_during_a_write_are_all_saved_by_the_next(
    writer: TableWriter, table: Table, file: WatchedFile, nursery: trio.Nursery
) -> None:
    file.hold()
    nursery.start_soon(writer.run, None)
    first = writer.mark()
    await file.wait_attempted()
    marks: list[int] = []
    for value in range(1, 100):
        table.value = value
        marks.append(writer.mark())
    file.let_go()
    await writer.wait_saved(first)
    assert file.text == "0"
    async with trio.open_nursery() as waiters:
        for mark in marks:
            waiters.start_soon(writer.wait_saved, mark)
    assert file.text == "99"
    assert file.attempts == 2


async def test_what_was_marked_before_the_keeper_runs_is_saved_when_it_does(
    writer: TableWriter, file: WatchedFile, nursery: trio.Nursery
) -> None:
    mark = writer.mark()
    nursery.start_soon(writer.wait_saved, mark)
    await wait_all_tasks_blocked()
    nursery.start_soon(writer.run, None)
    await writer.wait_saved(mark)
    assert file.attempts == 1


async def test_with_an_interval_changes_are_saved_when_it_is_over(
    writer: TableWriter,
    table: Table,
    file: WatchedFile,
    nursery: trio.Nursery,
    mock_clock: MockClock,
) -> None:
    nursery.start_soon(writer.run, INTERVAL_S)
    await wait_all_tasks_blocked()
    table.value = 1
    writer.mark()
    mock_clock.jump(INTERVAL_S - 0.1)
    await wait_all_tasks_blocked()
    assert file.attempts == 0
    table.value = 2
    writer.mark()
    mock_clock.jump(0.1)
    await file.wait_attempted()
    await writer.save_now()
    assert (file.attempts, file.text) == (1, "2")


async def test_who_waits_does_not_wait_for_the_interval(
    writer: TableWriter, file: WatchedFile, nursery: trio.Nursery, mock_clock: MockClock
) -> None:
    del mock_clock
    nursery.start_soon(writer.run, INTERVAL_S)
    await writer.wait_saved(writer.mark())
    assert file.text == "0"


async def test_a_table_that_counts_its_changes_need_not_mark_them(
    file: WatchedFile, table: Table, nursery: trio.Nursery, mock_clock: MockClock
) -> None:
    table.value = 5
    writer = TableWriter(file, table.render, "the table", changes=lambda: table.value)
    assert not writer.is_unsaved
    nursery.start_soon(writer.run, INTERVAL_S)
    await wait_all_tasks_blocked()
    mock_clock.jump(INTERVAL_S)
    await wait_all_tasks_blocked()
    assert file.attempts == 0
    table.value = 6
    assert writer.is_unsaved
    mock_clock.jump(INTERVAL_S)
    await file.wait_attempted()
    await writer.save_now()
    assert (file.attempts, file.text) == (1, "6")
    assert not writer.is_unsaved


async def test_saving_now_writes_what_is_not_saved_yet(
    writer: TableWriter, table: Table, file: WatchedFile
) -> None:
    table.value = 3
    writer.mark()
    await writer.save_now()
    await writer.save_now()
    assert (file.attempts, file.text) == (1, "3")


# --- ending ---


async def test_a_write_that_is_under_way_ends_before_the_keeper_does(
    writer: TableWriter, table: Table, file: WatchedFile
) -> None:
    file.hold()
    table.value = 1
    mark = writer.mark()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run, None)
        await file.wait_attempted()
        nursery.cancel_scope.cancel()
        file.let_go()
    assert file.text == "1"
    await writer.wait_saved(mark)
    assert not writer.is_unsaved


async def test_what_a_cancelled_keeper_did_not_save_can_be_saved_now(
    file: WatchedFile, nursery: trio.Nursery
) -> None:
    def pieces() -> Iterator[str]:
        running.cancel()
        yield "half"
        yield " and half"

    writer = TableWriter(file, pieces, "the table")
    mark = writer.mark()
    with trio.CancelScope() as running:
        await writer.run(None)
    assert running.cancelled_caught
    assert file.attempts == 0
    nursery.start_soon(writer.wait_saved, mark)
    await wait_all_tasks_blocked()
    await writer.save_now()
    await writer.wait_saved(mark)
    assert file.text == "half and half"


async def test_saving_now_waits_for_the_write_that_is_under_way(
    writer: TableWriter, table: Table, file: WatchedFile, nursery: trio.Nursery
) -> None:
    file.hold()
    nursery.start_soon(writer.run, None)
    writer.mark()
    await file.wait_attempted()
    table.value = 2
    writer.mark()
    async with trio.open_nursery() as saving:
        saving.start_soon(writer.save_now)
        await wait_all_tasks_blocked()
        file.let_go()
    assert file.text == "2"


# --- pieces ---


async def test_other_tasks_run_between_the_pieces_of_a_large_table(
    file: WatchedFile, nursery: trio.Nursery
) -> None:
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    turns_before: list[int] = []

    def pieces() -> Iterator[str]:
        for piece in "abcdefghij":
            turns_before.append(turns)
            yield piece

    writer = TableWriter(file, pieces, "the table")
    nursery.start_soon(take_turns)
    writer.mark()
    await writer.save_now()
    assert turns_before[-1] - turns_before[0] >= 8
    assert file.text == "abcdefghij"


async def test_offsets_are_kept_in_pieces_and_what_moves_meanwhile_is_kept_later(
    file: WatchedFile, nursery: trio.Nursery
) -> None:
    offsets = ConsumerOffsets()
    writer = TableWriter(file, offsets.render_pieces, "offsets", changes=lambda: offsets.changes)
    for number in range(10_000):
        offsets.commit("192.0.2.1:5", "g", f"topic-{number}", 0, ConsumerOffset(1))

    async def commit_when_begun() -> None:
        await file.wait_attempted()
        offsets.commit("192.0.2.1:5", "g", "topic-0", 0, ConsumerOffset(2))

    file.hold()
    async with trio.open_nursery() as saving:
        saving.start_soon(commit_when_begun)
        saving.start_soon(writer.save_now)
        await wait_all_tasks_blocked()
        file.let_go()
    assert writer.is_unsaved
    nursery.start_soon(writer.run, None)
    await writer.wait_saved(writer.mark())
    assert file.text == offsets.render()
    assert not writer.is_unsaved


async def test_what_changes_while_the_text_is_made_is_written_again(
    file: WatchedFile, nursery: trio.Nursery
) -> None:
    value = 1
    later: list[int] = []

    def pieces() -> Iterator[str]:
        nonlocal value
        yield str(value)
        if value == 1:
            value = 2
            later.append(own_writer.mark())
        yield "."

    own_writer = TableWriter(file, pieces, "the table")
    nursery.start_soon(own_writer.run, None)
    await own_writer.wait_saved(own_writer.mark())
    await own_writer.wait_saved(*later)
    assert file.text == "2."
    assert file.attempts == 2
