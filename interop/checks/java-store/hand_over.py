"""What is done and checked whenever a store goes from one side to the other."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from java_side import Task, count_acknowledged, reading, readings_of
from numbered_runs import (
    NUMBERS,
    RUN_LENGTH,
    SINGLE,
    address_of,
    begun_behind,
    is_batch,
    key_of,
    numbers_of,
    send_line,
)
from our_engine import our_engine, query, read_all, verify_files

from interop.support.cases import expect, expect_true

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from java_side import JavaSide, StockBroker
    from numbered_runs import Ledger
    from store_place import StorePlace
    from stored_message import Readings

    from interop.support.cases import CaseTable
    from rmq.store.core import StoreCore

NUMBERED_TOPICS: Final = (NUMBERS, SINGLE)
_SAMPLE_EVERY: Final = 19
_KILL_AFTER_CALLS: Final = 150


# ---- the stock side ------------------------------------------------------------------------------


async def java_writes(java: JavaSide, ledger: Ledger, runs: range) -> Readings:
    """Have the stock client send runs; return all numbered messages there are then."""
    sent = Task("send", list(map(send_line, runs)))
    everything = reading(NUMBERED_TOPICS)
    await java.do(sent, everything)
    expect("acknowledged", count_acknowledged(sent.answers), len(numbers_of(runs)))
    ledger.acknowledge(numbers_of(runs))
    return readings_of(everything)


async def java_is_killed(
    java: JavaSide, broker: StockBroker, ledger: Ledger, runs: range
) -> list[int]:
    """Kill a broker while the stock client sends runs; return the numbers that were begun."""
    answers = await java.send_until_killed(
        broker, list(map(send_line, runs)), acknowledged_min=_KILL_AFTER_CALLS
    )
    numbers, count = numbers_of(runs), count_acknowledged(answers)
    ledger.acknowledge(numbers[:count])
    return begun_behind(numbers, count)


async def expect_java_finds_keys(java: JavaSide, numbers: Sequence[int]) -> str:
    """Have the stock client look for the keys of some of these numbers."""
    numbers = numbers[::_SAMPLE_EVERY]
    lines = [
        {
            "kind": "key",
            "topic": address_of(number)[0],
            "key": key_of(number),
            "max": RUN_LENGTH,
            "begin": 0,
            "end": 2**62,
        }
        for number in numbers
    ]
    asked = Task("ask", lines)
    await java.do(asked)
    for number, answer in zip(numbers, asked.answers, strict=True):
        # A set: a stock broker indexes the record at which an index file ends twice.
        found = {message["properties"]["number"] for message in answer["messages"]}
        expect(f"messages with the key of {number}", found, {str(number)})
    return f"{len(numbers)} questions"


def settle_ours(ledger: Ledger, readings: Readings, last_run: int) -> str:
    """Check what there is after our engine was killed when it had put `last_run`."""
    begun = numbers_of([last_run + 1])
    late = ledger.settle(readings, begun)
    if is_batch(last_run + 1):
        expect_true(f"all of {begun} or nothing, not {late}", len(late) in (0, len(begun)))
    return f"{ledger.count - len(late)} acknowledged, {len(late)} more"


# ---- our side ------------------------------------------------------------------------------------


@contextmanager
def taken_back(
    table: CaseTable,
    part: str,
    place: StorePlace,
    *,
    was_clean: bool | None = None,
) -> Iterator[tuple[StoreCore, Readings]]:
    """Open a store that the stock broker had, and verify its files when it is closed again."""
    with our_engine(place) as core:
        report = core.recovery
        with table.case(part, "our engine opens it") as case:
            if was_clean is not None:
                expect("cleanly closed", report.was_clean, was_clean)
            how = "after a clean stop" if report.was_clean else "after a kill"
            point = ", from our recovery point" if report.used_point else ""
            case.note(f"{how}: {report.records_read} records read{point}")
        yield core, read_all(core)
    with table.case(part, "`rmq.store.verify` finds no error") as case:
        case.note(verify_files(place))


def expect_ours_finds_keys(core: StoreCore, numbers: Sequence[int]) -> str:
    """Have our engine look for the keys of some of these numbers."""
    numbers = numbers[::_SAMPLE_EVERY]
    for number in numbers:
        found = query(core, address_of(number)[0], key_of(number))
        numbers_found = [message.properties["number"] for message in found]
        expect(f"messages with the key of {number}", numbers_found, [str(number)])
    return f"{len(numbers)} questions"
