"""A store whose writer, our engine, was killed: the stock broker recovers it.

The writer made recovery points and lived for some seconds, so that the broker does not begin with
the first segment but where the checkpoint says; what our engine wrote into it must be true.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hand_over import (
    NUMBERED_TOPICS,
    expect_java_finds_keys,
    expect_ours_finds_keys,
    java_writes,
    settle_ours,
    taken_back,
)
from numbered_runs import Ledger, numbers_of
from our_engine import foresee_stock_recovery, write_and_be_killed
from stored_message import expect_same_readings

from interop.support.cases import expect_true, say

if TYPE_CHECKING:
    from java_side import JavaSide
    from store_place import StorePlace

    from interop.support.cases import CaseTable

# A stock broker begins three seconds before the checkpoint; by then the first segment is full.
_SLOW_S: Final = 6.0
_JAVA_RUNS: Final = 40


async def run_killed_store(table: CaseTable, java: JavaSide, place: StorePlace) -> None:
    say("a store whose writer was killed ...")
    part = "ours, killed, then Java"
    with table.case("ours, killed", "the scenario comes to its end"):
        last_run = await write_and_be_killed(place, 0, slow_s=_SLOW_S)
        ledger = Ledger()
        ledger.acknowledge(numbers_of(range(last_run + 1)))
        foreseen = foresee_stock_recovery(place)
        with table.case("ours, killed", "our checkpoint lets the broker skip segments") as case:
            expect_true(f"some segments to be skipped: {foreseen}", foreseen.start > 0)
            case.note(f"it reads {foreseen.segments_read} of {foreseen.segments}")
        async with java.broker(place) as broker:
            readings = await java.read(NUMBERED_TOPICS)
            with table.case(part, "all that was acknowledged is there, in order, once") as case:
                case.note(settle_ours(ledger, readings, last_run))
            java_runs = range(last_run + 2, last_run + 2 + _JAVA_RUNS)
            readings = await java_writes(java, ledger, java_runs)
            with table.case(part, "the broker goes on writing where our engine was killed"):
                ledger.expect_in(readings)
            indexed = [
                int(message.properties["number"])
                for messages in readings.values()
                for message in messages
                if foreseen.keeps_key_of(message)
            ]
            with table.case(part, "the client finds the keys of all that is indexed") as case:
                found = await expect_java_finds_keys(java, indexed)
                case.note(f"{found} about {len(indexed)} of {ledger.count} messages")
            with table.case(part, "the broker stops cleanly"):
                await broker.stop()
        part = "ours, killed, then ours again"
        with taken_back(table, part, place, was_clean=True) as (core, got):
            with table.case(part, "our engine reads what the client read") as case:
                case.note(f"{expect_same_readings(got, readings)} messages")
            with table.case(part, "our engine finds the same keys") as case:
                case.note(expect_ours_finds_keys(core, indexed))
