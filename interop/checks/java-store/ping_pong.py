"""One store that goes from side to side, closed or killed, with a torn record at the end or not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hand_over import (
    NUMBERED_TOPICS,
    expect_java_finds_keys,
    expect_ours_finds_keys,
    java_is_killed,
    java_writes,
    settle_ours,
    taken_back,
)
from numbered_runs import Ledger, numbers_of
from our_engine import append_runs, leave_torn_record, our_engine, write_and_be_killed
from stored_message import expect_same_readings

from interop.support.cases import expect, say

if TYPE_CHECKING:
    from java_side import JavaSide
    from store_place import StorePlace

    from interop.support.cases import CaseTable

_PART: Final = "ping-pong"
_EAGER: Final = {
    "flushCommitLogThoroughInterval": "300",
    "flushConsumeQueueThoroughInterval": "300",
}
"""The broker writes its checkpoint often, so that it has one when it is killed."""
_RUNS: Final = 50
_RUNS_MAX: Final = 3000
"""More than can be sent until a broker is killed."""


async def run_ping_pong(table: CaseTable, java: JavaSide, place: StorePlace) -> None:
    say("a store that goes from side to side ...")
    with table.case(_PART, "the scenario comes to its end"):
        ledger = Ledger()
        first = range(_RUNS)
        with our_engine(place) as core:
            append_runs(core, first)
        ledger.acknowledge(numbers_of(first))

        async with java.broker(place, _EAGER) as broker:
            readings = await java_writes(java, ledger, range(_RUNS, 2 * _RUNS))
            with table.case(_PART, "1 ours, closed; 2 Java") as case:
                ledger.expect_in(readings)
                case.note(f"{ledger.count} messages")
            await broker.stop()

        last_run = await write_and_be_killed(place, 2 * _RUNS)
        ledger.acknowledge(numbers_of(range(2 * _RUNS, last_run + 1)))
        leave_torn_record(place, has_head=False)

        async with java.broker(place, _EAGER) as broker:
            readings = await java.read(NUMBERED_TOPICS)
            with table.case(_PART, "3 ours, killed, a record torn; 4 Java") as case:
                case.note(settle_ours(ledger, readings, last_run))
            next_run = last_run + 2
            runs = range(next_run, next_run + _RUNS_MAX)
            begun = await java_is_killed(java, broker, ledger, runs)
        end = leave_torn_record(place, has_head=True)

        part = f"{_PART}, 5 ours"
        with taken_back(table, part, place, was_clean=False) as (core, got):
            with table.case(part, "4 Java, killed, a record torn; 5 ours") as case:
                late = ledger.settle(got, begun)
                expect("end of the log", core.recovery.ended_at, end)
                case.note(f"{ledger.count - len(late)} acknowledged, {len(late)} more")
            last_runs = range(runs.stop, runs.stop + _RUNS)
            append_runs(core, last_runs)
            ledger.acknowledge(numbers_of(last_runs))

        part = f"{_PART}, 6 Java"
        async with java.broker(place, _EAGER) as broker:
            readings = await java.read(NUMBERED_TOPICS)
            with table.case(part, "every queue has all messages, in order, once") as case:
                ledger.expect_in(readings)
                case.note(f"{ledger.count} messages")
            with table.case(part, "the client finds the keys of all") as case:
                case.note(await expect_java_finds_keys(java, ledger.all_numbers()))
            with table.case(part, "the broker stops cleanly"):
                await broker.stop()

        part = f"{_PART}, 7 ours"
        with taken_back(table, part, place, was_clean=True) as (core, got):
            with table.case(part, "our engine reads what the client read") as case:
                case.note(f"{expect_same_readings(got, readings)} messages")
            with table.case(part, "our engine finds the keys of all") as case:
                case.note(expect_ours_finds_keys(core, ledger.all_numbers()))
