"""`Keeper`: everything marked is written, once, and whoever waits for it is told when.

What happens when writing fails is in test_keeper_failures.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from rmq.broker.tables.consumer_offsets import ConsumerOffsets
from rmq.broker.tables.writer import Keeper
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
def keeper(file: WatchedFile, table: Table) -> Keeper:
    return Keeper(file, table.render, "the table")


# --- saving ---


async def test_a_marked_change_is_saved_soon(
    keeper: Keeper, table: Table, file: WatchedFile, nursery: trio.Nursery
) -> None:
    nursery.start_soon(keeper.run, None)
    for value in range(1, 4):
        table.value = value
        mark = keeper.mark()
        assert keeper.is_unsaved
        await keeper.wait_saved(mark)
        assert file.text == str(value)
        assert not keeper.is_unsaved
    assert file.attempts == 3


async def test_nobody_has_to_wait_for_a_change_to_be_saved(
    keeper: Keeper, table: Table, file: WatchedFile, nursery: trio.Nursery
) -> None:
    nursery.start_soon(keeper.run, None)
    await wait_all_tasks_blocked()
    table.value = 7
    keeper.mark()
    await file.wait_attempted()
    await keeper.save_now()
    assert file.text == "7"


@pytest.mark.parametrize("interval_s", [None, INTERVAL_S])
async def test_without_a_change_nothing_is_written(
    interval_s: float | None,
    keeper: Keeper,
    file: WatchedFile,
    table: Table,
    nursery: trio.Nursery,
    autojump_clock: MockClock,
) -> None:
    del autojump_clock
    nursery.start_soon(keeper.run, interval_s)
    await trio.sleep(1000)
    await keeper.save_now()
    await keeper.wait_saved(0)
    assert (file.attempts, file.text, table.renders) == (0, None, 0)


async def test_changes_marked_during_a_write_are_all_saved_by_the_next(
    keeper: Keeper, table: Table, file: WatchedFile, nursery: trio.Nursery
) -> None:
    file.hold()
    nursery.start_soon(keeper.run, None)
    first = keeper.mark()
    await file.wait_attempted()
    marks: list[int] = []
    for value in range(1, 100):
        table.value = value
        marks.append(keeper.mark())
    file.let_go()
    await keeper.wait_saved(first)
    assert file.text == "0"
    async with trio.open_nursery() as waiters:
        for mark in marks:
            waiters.start_soon(keeper.wait_saved, mark)
    assert file.text == "99"
    assert file.attempts == 2


async def test_what_was_marked_before_the_keeper_runs_is_saved_when_it_does(
    keeper: Keeper, file: WatchedFile, nursery: trio.Nursery
) -> None:
    mark = keeper.mark()
    nursery.start_soon(keeper.wait_saved, mark)
    await wait_all_tasks_blocked()
    nursery.start_soon(keeper.run, None)
    await keeper.wait_saved(mark)
    assert file.attempts == 1


async def test_with_an_interval_changes_are_saved_when_it_is_over(
    keeper: Keeper, table: Table, file: WatchedFile, nursery: trio.Nursery, mock_clock: MockClock
) -> None:
    nursery.start_soon(keeper.run, INTERVAL_S)
    await wait_all_tasks_blocked()
    table.value = 1
    keeper.mark()
    mock_clock.jump(INTERVAL_S - 0.1)
    await wait_all_tasks_blocked()
    assert file.attempts == 0
    table.value = 2
    keeper.mark()
    mock_clock.jump(0.1)
    await file.wait_attempted()
    await keeper.save_now()
    assert (file.attempts, file.text) == (1, "2")


async def test_who_waits_does_not_wait_for_the_interval(
    keeper: Keeper, file: WatchedFile, nursery: trio.Nursery, mock_clock: MockClock
) -> None:
    del mock_clock
    nursery.start_soon(keeper.run, INTERVAL_S)
    await keeper.wait_saved(keeper.mark())
    assert file.text == "0"


async def test_a_table_that_counts_its_changes_need_not_mark_them(
    file: WatchedFile, table: Table, nursery: trio.Nursery, mock_clock: MockClock
) -> None:
    table.value = 5
    keeper = Keeper(file, table.render, "the table", changes=lambda: table.value)
    assert not keeper.is_unsaved
    nursery.start_soon(keeper.run, INTERVAL_S)
    await wait_all_tasks_blocked()
    mock_clock.jump(INTERVAL_S)
    await wait_all_tasks_blocked()
    assert file.attempts == 0
    table.value = 6
    assert keeper.is_unsaved
    mock_clock.jump(INTERVAL_S)
    await file.wait_attempted()
    await keeper.save_now()
    assert (file.attempts, file.text) == (1, "6")
    assert not keeper.is_unsaved


async def test_saving_now_writes_what_is_not_saved_yet(
    keeper: Keeper, table: Table, file: WatchedFile
) -> None:
    table.value = 3
    keeper.mark()
    await keeper.save_now()
    await keeper.save_now()
    assert (file.attempts, file.text) == (1, "3")


# --- ending ---


async def test_a_write_that_is_under_way_ends_before_the_keeper_does(
    keeper: Keeper, table: Table, file: WatchedFile
) -> None:
    file.hold()
    table.value = 1
    mark = keeper.mark()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keeper.run, None)
        await file.wait_attempted()
        nursery.cancel_scope.cancel()
        file.let_go()
    assert file.text == "1"
    await keeper.wait_saved(mark)
    assert not keeper.is_unsaved


async def test_what_a_cancelled_keeper_did_not_save_can_be_saved_now(
    file: WatchedFile, nursery: trio.Nursery
) -> None:
    def pieces() -> Iterator[str]:
        running.cancel()
        yield "half"
        yield " and half"

    keeper = Keeper(file, pieces, "the table")
    mark = keeper.mark()
    with trio.CancelScope() as running:
        await keeper.run(None)
    assert running.cancelled_caught
    assert file.attempts == 0
    nursery.start_soon(keeper.wait_saved, mark)
    await wait_all_tasks_blocked()
    await keeper.save_now()
    await keeper.wait_saved(mark)
    assert file.text == "half and half"


async def test_saving_now_waits_for_the_write_that_is_under_way(
    keeper: Keeper, table: Table, file: WatchedFile, nursery: trio.Nursery
) -> None:
    file.hold()
    nursery.start_soon(keeper.run, None)
    keeper.mark()
    await file.wait_attempted()
    table.value = 2
    keeper.mark()
    async with trio.open_nursery() as saving:
        saving.start_soon(keeper.save_now)
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

    keeper = Keeper(file, pieces, "the table")
    nursery.start_soon(take_turns)
    keeper.mark()
    await keeper.save_now()
    assert turns_before[-1] - turns_before[0] >= 8
    assert file.text == "abcdefghij"


async def test_offsets_are_kept_in_pieces_and_what_moves_meanwhile_is_kept_later(
    file: WatchedFile, nursery: trio.Nursery
) -> None:
    offsets = ConsumerOffsets()
    keeper = Keeper(file, offsets.render_pieces, "offsets", changes=lambda: offsets.changes)
    for number in range(10_000):
        offsets.commit("192.0.2.1:5", "g", f"topic-{number}", 0, 1)

    async def commit_when_begun() -> None:
        await file.wait_attempted()
        offsets.commit("192.0.2.1:5", "g", "topic-0", 0, 2)

    file.hold()
    async with trio.open_nursery() as saving:
        saving.start_soon(commit_when_begun)
        saving.start_soon(keeper.save_now)
        await wait_all_tasks_blocked()
        file.let_go()
    assert keeper.is_unsaved
    nursery.start_soon(keeper.run, None)
    await keeper.wait_saved(keeper.mark())
    assert file.text == offsets.render()
    assert not keeper.is_unsaved


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
            later.append(own_keeper.mark())
        yield "."

    own_keeper = Keeper(file, pieces, "the table")
    nursery.start_soon(own_keeper.run, None)
    await own_keeper.wait_saved(own_keeper.mark())
    await own_keeper.wait_saved(*later)
    assert file.text == "2."
    assert file.attempts == 2
