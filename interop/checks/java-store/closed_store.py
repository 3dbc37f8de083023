"""A store our engine wrote and closed: the stock broker serves it, writes to it, and gives it back.

Then it gets it once more, and is killed while it writes. At the end it is started although our
engine has the store open.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from hand_over import NUMBERED_TOPICS, expect_ours_finds_keys, java_is_killed, taken_back
from java_side import Task, count_acknowledged, reading, readings_of
from numbered_runs import ADDRESSES, Ledger, numbers_of, send_line
from our_engine import append_runs, our_engine, read_all, read_live
from store_questions import varied_questions
from stored_message import expect_same_messages, expect_same_readings
from varied_messages import (
    DELAYED,
    DELAYS,
    EVENTS,
    PLAIN_TAG,
    READ_TOPICS,
    ROCKET_TAG,
    write_varied,
)

from interop.support.cases import MismatchError, expect, expect_true, say
from rmq.errors import StorageError, StoreLockedError

if TYPE_CHECKING:
    from java_side import JavaSide
    from store_place import StorePlace
    from stored_message import Readings
    from varied_messages import Written

    from interop.support.cases import CaseTable

_TOPICS: Final = (*READ_TOPICS, *NUMBERED_TOPICS)
_DELIVERY_TIMEOUT_MS: Final = 30_000
_FILES_MIN: Final = 3
_JAVA_RUNS: Final = range(60)
_OUR_RUNS: Final = range(60, 90)
_LAST_JAVA_RUNS: Final = range(90, 3000)
"""More than can be sent until it is killed."""
_RUNS_MEANWHILE: Final = range(_LAST_JAVA_RUNS.stop, _LAST_JAVA_RUNS.stop + 1)


async def run_closed_store(table: CaseTable, java: JavaSide, place: StorePlace) -> None:
    say("a store our engine wrote and closed ...")
    with table.case("ours, closed", "the scenario comes to its end"):
        written = write_varied(place)
        with table.case("ours, closed", "our engine has filled files of every kind") as case:
            case.note(_describe_files(place))
        ledger = Ledger()
        readings = await _serve(table, java, place, written, ledger)
        _take_back(table, place, written, readings, ledger)
        await _serve_until_killed(table, java, place, readings, ledger)
        await _keep_out(table, java, place, ledger)


def _describe_files(place: StorePlace) -> str:
    counts = {
        "segments": len(list((place.root / "commitlog").iterdir())),
        "queue files": len(list((place.root / "consumequeue" / EVENTS / "0").iterdir())),
        "index files": len(list((place.root / "index").iterdir())),
    }
    for what, count in counts.items():
        expect_true(f"at least {_FILES_MIN} {what}, not {count}", count >= _FILES_MIN)
    return ", ".join(f"{count} {what}" for what, count in counts.items())


async def _serve(
    table: CaseTable, java: JavaSide, place: StorePlace, written: Written, ledger: Ledger
) -> Readings:
    """Have the stock broker show everything and write some more; return what it has then."""
    part = "ours, closed, then Java"
    async with java.broker(place) as broker:
        everything = reading(READ_TOPICS)
        tagged = reading([EVENTS], f"{PLAIN_TAG} || {ROCKET_TAG}")
        questions = varied_questions(written)
        asked = [Task("ask", [question.line for question in group]) for group in questions.values()]
        sent = Task("send", list(map(send_line, _JAVA_RUNS)))
        await java.do(everything, tagged, *asked, sent)

        with table.case(part, "the client reads every message as it was written") as case:
            # What the broker has delivered meanwhile is looked at below.
            got = {at: found for at, found in readings_of(everything).items() if at[0] != DELAYED}
            case.note(f"{expect_same_readings(got, written.readings)} messages")
        with table.case(part, "the client reads by tag") as case:
            wanted = [m for m in written.readings[EVENTS, 0] if m.tags in (PLAIN_TAG, ROCKET_TAG)]
            expect_same_messages("messages with a tag", tagged.messages, wanted)
            case.note(f"{len(wanted)} messages")
        for (name, group), task in zip(questions.items(), asked, strict=True):
            with table.case(part, f"the client finds {name}") as case:
                for question, answer in zip(group, task.answers, strict=True):
                    question.check_java(answer)
                case.note(f"{len(group)} questions")
        with table.case(part, "the broker takes messages") as case:
            ledger.acknowledge(numbers_of(_JAVA_RUNS))
            expect("acknowledged", count_acknowledged(sent.answers), ledger.count)
            case.note(f"{ledger.count} messages")

        everything = reading(_TOPICS)
        await java.do(_wait_for_delivery(), everything)
        readings = readings_of(everything)
        with table.case(part, "delayed messages are delivered when they are due") as case:
            case.note(_check_delivered(written, readings))
        with table.case(part, "our reader sees the same beside the running broker"):
            expect_same_readings(read_live(place), readings)
        with table.case(part, "our engine does not open it beside the running broker"):
            _expect_locked(place)
        with table.case(part, "the broker stops cleanly"):
            await broker.stop()
    return readings


def _wait_for_delivery() -> Task:
    lines = [
        {"topic": DELAYED, "queueId": delay.queue_id, "max": 1, "timeoutMs": _DELIVERY_TIMEOUT_MS}
        for delay in DELAYS
    ]
    return Task("wait", lines)


def _check_delivered(written: Written, readings: Readings) -> str:
    notes: list[str] = []
    for delay, scheduled in zip(DELAYS, written.scheduled, strict=True):
        delivered = readings[DELAYED, delay.queue_id]
        expect("messages delivered", len(delivered), 1)
        for name in ("body", "properties", "born_ms", "born_host"):
            expect(name, getattr(delivered[0], name), getattr(scheduled, name))
        waited_ms = delivered[0].store_ms - scheduled.store_ms
        expect_true(f"{delay.delay_ms} ms, not {waited_ms}", waited_ms >= delay.delay_ms)
        notes.append(f"{delay.delay_ms} ms: after {waited_ms} ms")
    return ", ".join(notes)


def _expect_locked(place: StorePlace) -> None:
    try:
        with our_engine(place):
            raise MismatchError("our engine opened a store that a broker has open")
    except StoreLockedError:
        return


def _take_back(
    table: CaseTable, place: StorePlace, written: Written, readings: Readings, ledger: Ledger
) -> None:
    """Open what the stock broker has closed, and write some more."""
    part = "ours, closed, then ours again"
    with taken_back(table, part, place, was_clean=True) as (core, got):
        with table.case(part, "our engine reads what the client read") as case:
            case.note(f"{expect_same_readings(got, readings)} messages")
        with table.case(part, "every message of the stock producer is there, in order, once"):
            ledger.expect_in(got)
        for name, group in varied_questions(written).items():
            with table.case(part, f"our engine finds {name}"):
                for question in group:
                    question.check_ours(core)
        with table.case(part, "our engine finds the keys of the stock producer") as case:
            case.note(expect_ours_finds_keys(core, ledger.all_numbers()))
        append_runs(core, _OUR_RUNS)
        ledger.acknowledge(numbers_of(_OUR_RUNS))


async def _serve_until_killed(
    table: CaseTable, java: JavaSide, place: StorePlace, before: Readings, ledger: Ledger
) -> None:
    part = "ours, closed, then Java, killed"
    varied = _without_numbers(before)
    async with java.broker(place) as broker:
        readings = await java.read(_TOPICS)
        with table.case(part, "the client reads the messages of both") as case:
            ledger.expect_in(readings)
            expect_same_readings(_without_numbers(readings), varied)
            case.note(f"{sum(map(len, readings.values()))} messages")
        begun = await java_is_killed(java, broker, ledger, _LAST_JAVA_RUNS)
    with taken_back(table, part, place, was_clean=False) as (core, recovered):
        with table.case(part, "our engine has all that was acknowledged, in order, once") as case:
            late = ledger.settle(recovered, begun)
            expect_same_readings(_without_numbers(recovered), varied)
            case.note(f"{ledger.count - len(late)} acknowledged, {len(late)} more")
        with table.case(part, "our engine finds the keys of all of them") as case:
            case.note(expect_ours_finds_keys(core, ledger.all_numbers()))


def _without_numbers(readings: Readings) -> Readings:
    return {address: found for address, found in readings.items() if address not in ADDRESSES}


async def _keep_out(table: CaseTable, java: JavaSide, place: StorePlace, ledger: Ledger) -> None:
    """Start a stock broker although our engine has the store open.

    It recovers a store before it takes the lock, and removes index files when it does. Our engine
    may give up the store for that, but what it has taken must be there afterwards.
    """
    part = "both at once"
    with suppress(StorageError), our_engine(place) as core:
        before = read_all(core)
        with table.case(part, "the broker does not start while our engine has the store open"):
            try:
                async with java.broker(place):
                    raise MismatchError("it started")
            except RuntimeError as exc:
                expect_true(f"a word about the lock in: {exc}", "Lock failed" in str(exc))
        with table.case(part, "our engine reads on") as case:
            case.note(f"{expect_same_readings(read_all(core), before)} messages")
        append_runs(core, _RUNS_MEANWHILE)
        ledger.acknowledge(numbers_of(_RUNS_MEANWHILE))
    with taken_back(table, part, place) as (core, got):
        with table.case(part, "it has everything when it is opened again"):
            ledger.expect_in(got)
            expect_same_readings(_without_numbers(got), _without_numbers(before))
        with table.case(part, "and finds the keys of all") as case:
            case.note(expect_ours_finds_keys(core, ledger.all_numbers()))
