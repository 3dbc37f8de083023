"""A master that hangs at some step of a promotion, and comes back: soon, later, or at the end.

The steps are what the promotion asks of the master, seen by a gate in front of it: it is stopped
before a request reaches it, or right after its answer has left.
"""

from __future__ import annotations

import signal
from contextlib import asynccontextmanager
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from rmq.remoting.codes import RequestCode, ResponseCode
from tests.ha.processes.load import wait_topic
from tests.ha.processes.trials.ground import MASTER, POLL_S, SLAVE, Place
from tests.ha.processes.trials.outcome import Outcome, trial

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.ha.processes.trials.ground import Ground
    from tests.ha.processes.trials.programs import Said

COUNT: Final = 200
AT_ONCE: Final = 4
SOON_S: Final = 1.0
STEP_DOWN: Final = RequestCode.HA_STEP_DOWN
STATUS: Final = RequestCode.HA_STATUS
ORDERS: Final = (STEP_DOWN, RequestCode.HA_FENCE)
STORED: Final = {ResponseCode.SUCCESS, ResponseCode.SLAVE_NOT_AVAILABLE}


class Step(NamedTuple):
    """Where the master is stopped."""

    name: str
    code: int
    is_request: bool
    number: int = 1
    """The first or second of its kind: the command asks for the status first, then the slave."""


STEPS: Final = (
    Step("the command asks", STATUS, True),
    Step("the command was answered", STATUS, False),
    Step("the slave asks", STATUS, True, 2),
    Step("the slave was answered", STATUS, False, 2),
    Step("asked to step down", STEP_DOWN, True),
    Step("has stepped down", STEP_DOWN, False),
)


class Back(Enum):
    """When it goes on."""

    SOON = "a second later"
    AT_NEXT = "when the next order comes"
    LATE = "when the command has ended"


@trial("hanging-master-back-soon")
async def back_soon(place: Place) -> Outcome:
    """It goes on a second later."""
    return await _all_steps(place, STEPS, Back.SOON)


@trial("hanging-master-back-at-next-step")
async def back_at_next_step(place: Place) -> Outcome:
    """It goes on when it is asked to step down, or told that another one is master."""
    return await _all_steps(place, tuple(step for step in STEPS if step.is_request), Back.AT_NEXT)


@trial("hanging-master-back-late")
async def back_late(place: Place) -> Outcome:
    """It goes on when the promotion is over."""
    return await _all_steps(place, STEPS, Back.LATE)


async def _all_steps(place: Place, steps: tuple[Step, ...], back: Back) -> Outcome:
    """Try all steps, a few at a time: most of it is waiting."""
    found: dict[Step, Outcome] = {}
    limiter = trio.CapacityLimiter(AT_ONCE)

    async def run(step: Step, folder: Path) -> None:
        async with limiter:
            found[step] = await _hang(Place(place.code, folder), step, back)

    async with trio.open_nursery() as nursery:
        for number, step in enumerate(steps):
            (folder := place.folder / str(number)).mkdir()
            nursery.start_soon(run, step, folder)
    return Outcome(
        all(outcome.holds for outcome in found.values()),
        "; ".join(f"({step.name}) {found[step].happened}" for step in steps),
    )


@asynccontextmanager
async def _load(it: Ground, *names: str) -> AsyncIterator[None]:
    """Send to some brokers all the time."""
    is_over = False

    async def send(name: str) -> None:
        while not is_over:
            if not await it.producer.send_one(it.address(name)):
                await trio.sleep(POLL_S)

    async with trio.open_nursery() as nursery:
        for name in names:
            nursery.start_soon(send, name)
        yield
        is_over = True


async def _hang(place: Place, step: Step, back: Back) -> Outcome:
    async with place.ground() as it:
        await it.add(MASTER, "SYNC_MASTER", 0, has_client_gate=True)
        await it.add(SLAVE, "SLAVE", 1)
        await it.start_all()
        await it.until_in_sync(MASTER)
        await wait_topic(it.client, it.address(SLAVE))
        await it.send(MASTER, COUNT)
        hung, ordered = trio.Event(), trio.Event()
        seen = 0

        async def watch(code: int, is_request: bool) -> None:
            nonlocal seen
            if (code, is_request) == (step.code, step.is_request):
                seen += 1
                if seen == step.number:
                    it.signal(MASTER, signal.SIGSTOP)
                    hung.set()
            if hung.is_set() and code in ORDERS and code != step.code and is_request:
                ordered.set()

        async def come_back() -> None:
            await hung.wait()
            if back is Back.LATE:
                return
            if back is Back.AT_NEXT:
                await ordered.wait()
            else:
                await trio.sleep(SOON_S)
            it.signal(MASTER, signal.SIGCONT)

        it.client_gates[MASTER].watch = watch
        async with _load(it, MASTER, SLAVE), trio.open_nursery() as nursery:
            nursery.start_soon(come_back)
            said = await it.promote(SLAVE)
            assert hung.is_set(), f"the promotion did not come to this step: {said.text}"
            it.signal(MASTER, signal.SIGCONT)
            nursery.cancel_scope.cancel()
        async with _load(it, MASTER, SLAVE):
            again = await _settled(it, said)
        return await _found(it, said, again)


async def _settled(it: Ground, said: Said) -> Said | None:
    """Wait until it is clear who is master; if nobody is, do what the operator is told to do."""
    master = SLAVE
    again = None
    with trio.move_on_after(15):
        while not (writers := await _writers(it)):  # noqa: ASYNC110 - other processes
            await trio.sleep(POLL_S)
    if said.code and not writers:
        again = await it.promote(SLAVE)
        if again.code:
            again = await it.promote(MASTER)
            master = MASTER
    elif said.code:
        master = writers[0]
    other = MASTER if master == SLAVE else SLAVE
    await it.until(master, lambda its: its.state == "writable", f"{master} is master")
    await it.until(other, lambda its: its.state != "writable", f"{other} does not write")
    return again


async def _writers(it: Ground) -> list[str]:
    states = {name: (await it.status(name)).state for name in (MASTER, SLAVE)}
    return [name for name, state in states.items() if state == "writable"]


async def _found(it: Ground, said: Said, again: Said | None) -> Outcome:
    writers = await _writers(it)
    lost = await it.lost_at(writers[0])
    more = await it.send(writers[0], 20)
    repeated = "" if again is None else f", again: exit code {again.code}"
    why = "" if not said.code else f' "{said.line("refused to become")}"'
    return Outcome(
        len(writers) == 1
        and not lost
        and not (said.code and writers == [SLAVE] and not again)
        and set(more) <= STORED,
        f"exit code {said.code}{repeated} in {said.seconds:.0f} s, master: {writers[0]}, lost"
        f" {lost} of {it.acknowledged}{why}",
    )
