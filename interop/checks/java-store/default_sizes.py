"""A store with files of the default sizes, begun by the stock broker, which is killed.

Segments of 1 GiB and index files of 400 MB are sparse as the broker makes them; our engine reserves
the room of a segment. The store is removed as soon as it is done with.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Final

from hand_over import (
    NUMBERED_TOPICS,
    expect_java_finds_keys,
    expect_ours_finds_keys,
    java_is_killed,
    settle_ours,
    taken_back,
)
from numbered_runs import Ledger, numbers_of
from our_engine import append_runs, write_and_be_killed
from stored_message import expect_same_readings

from interop.support.cases import expect_true, say
from rmq.store.config import GIB

if TYPE_CHECKING:
    from pathlib import Path

    from java_side import JavaSide
    from store_place import StorePlace

    from interop.support.cases import CaseTable

ROOM_BYTES: Final = 4 * GIB
"""What must be free: two segments of ours, and something to spare."""

_RUNS_MAX: Final = 3000
_RUNS: Final = 30
_BLOCK_BYTES: Final = 512


async def run_default_sizes(table: CaseTable, java: JavaSide, place: StorePlace) -> None:
    say("a store with files of the default sizes ...")
    with table.case("default sizes", "the scenario comes to its end"):
        try:
            await _run(table, java, place)
        finally:
            shutil.rmtree(place.root, ignore_errors=True)


async def _run(table: CaseTable, java: JavaSide, place: StorePlace) -> None:
    ledger = Ledger()
    async with java.broker(place) as broker:
        begun = await java_is_killed(java, broker, ledger, range(_RUNS_MAX))

    part = "default sizes, Java, killed, then ours"
    with taken_back(table, part, place, was_clean=False) as (core, got):
        with table.case(part, "our engine has all that was acknowledged, in order, once") as case:
            late = ledger.settle(got, begun)
            case.note(f"{ledger.count - len(late)} acknowledged, {len(late)} more")
        with table.case(part, "our engine finds the keys of all") as case:
            case.note(expect_ours_finds_keys(core, ledger.all_numbers()))
        runs = range(_RUNS_MAX, _RUNS_MAX + _RUNS)
        append_runs(core, runs)
        ledger.acknowledge(numbers_of(runs))

    part = "default sizes, ours, killed, then Java"
    last_run = await write_and_be_killed(place, runs.stop)
    ledger.acknowledge(numbers_of(range(runs.stop, last_run + 1)))
    with table.case(part, "the files take little more than a segment") as case:
        used = _room_used(place.root)
        expect_true(f"less than {ROOM_BYTES} bytes on disk, not {used}", used < ROOM_BYTES)
        case.note(f"{used / GIB:.2f} GiB")
    async with java.broker(place) as broker:
        readings = await java.read(NUMBERED_TOPICS)
        with table.case(part, "all that was acknowledged is there, in order, once") as case:
            case.note(settle_ours(ledger, readings, last_run))
        with table.case(part, "the client finds the keys of all") as case:
            case.note(await expect_java_finds_keys(java, ledger.all_numbers()))
        await broker.kill()

    part = "default sizes, then ours again"
    with (
        taken_back(table, part, place, was_clean=False) as (_, got),
        table.case(part, "our engine reads what the client read") as case,
    ):
        case.note(f"{expect_same_readings(got, readings)} messages")


def _room_used(folder: Path) -> int:
    files = (path for path in folder.rglob("*") if path.is_file())
    return sum(path.stat().st_blocks * _BLOCK_BYTES for path in files)
