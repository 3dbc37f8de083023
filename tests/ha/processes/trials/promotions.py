"""Promotions that lost messages, led nowhere, or were refused for no reason (B1, B5, B8, B10)."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Final

import trio

from rmq.remoting.codes import ResponseCode
from tests.ha.processes.load import wait_settled
from tests.ha.processes.trials.ground import MASTER, OK, POLL_S, SLAVE, THIRD
from tests.ha.processes.trials.outcome import Outcome, trial

if TYPE_CHECKING:
    from tests.ha.processes.trials.ground import Ground, Place
    from tests.ha.processes.trials.programs import Said

BEFORE: Final = 200
COUNT: Final = 1_000
REFUSED: Final = ResponseCode.SERVICE_NOT_AVAILABLE
STOPS_S: Final = 15.0
"""By then a master that was deposed has registered, and heard of it."""


async def _after(it: Ground, said: Said, slave: str, old: str) -> Outcome:
    """Count what is lost after a promotion; one that was refused loses nothing if `old` is back."""
    if said.code:
        await it.start(old)
        await it.until(old, lambda its: its.state == "writable", "the old master is back")
        where = "refused, and all is there when the master is back"
    else:
        where = "promoted"
    lost = await it.lost_at(old if said.code else slave)
    return Outcome(
        not lost,
        f"promote: exit code {said.code}, {where}: lost {lost} of {it.acknowledged}; {_why(said)}",
    )


_TOLD: Final = ("refused to become master", "nothing is lost", "LOST", "whether something")


def _why(said: Said) -> str:
    return f'"{said.line(*_TOLD, "is master now")}"'


@trial("B1-async", is_repair=True)
async def b1_async(place: Place) -> Outcome:
    """The link is cut, the master goes on as async and dies, its slave is promoted."""
    async with place.pair() as it:
        await it.send(MASTER, BEFORE)
        it.gates[MASTER].cut()
        await it.until_out_of_sync(MASTER)
        switched = await it.rmq("ha", "switch", "async", "-b", it.address(MASTER))
        assert not switched.code, switched.text
        codes = await it.send(MASTER, COUNT)
        assert codes == {OK: COUNT}, codes
        it.kill(MASTER)
        await wait_settled(it.client, it.address(SLAVE))
        return await _after(it, await it.promote(SLAVE), SLAVE, MASTER)


@trial("B1-second", is_repair=True)
async def b1_second(place: Place) -> Outcome:
    """A slave is cut off, another one confirms, that one and the master die."""
    async with place.pair() as it:
        await it.send(MASTER, BEFORE)
        it.gates[MASTER].cut()
        await it.until_out_of_sync(MASTER)
        # It goes past the gate.
        await it.add(THIRD, "SLAVE", 2, {"haMasterAddress": it.ha_address(MASTER)})
        await it.start(THIRD)
        await it.until_in_sync(MASTER)
        codes = await it.send(MASTER, COUNT)
        assert codes == {OK: COUNT}, codes
        it.kill(MASTER, THIRD)
        await wait_settled(it.client, it.address(SLAVE))
        return await _after(it, await it.promote(SLAVE), SLAVE, MASTER)


@trial("B5", is_repair=True)
async def b5(place: Place) -> Outcome:
    """A slave sleeps through two promotions, then it is the last one left."""
    async with place.pair() as it:
        await it.add(THIRD, "SLAVE", 2)
        await it.start(THIRD)
        await it.until_in_sync(MASTER, 2)
        await it.send(MASTER, BEFORE)
        it.signal(THIRD, signal.SIGSTOP)
        await it.until(MASTER, lambda said: len(said.in_sync) == 1, "one does not count")
        for slave, old in ((SLAVE, MASTER), (MASTER, SLAVE)):
            said = await it.promote(slave)
            assert not said.code, said.text
            await it.until_in_sync(slave)
            await it.until_listed(slave)
            await it.until(old, lambda its: its.role == "SLAVE", "it has stepped down")
        it.kill(MASTER, SLAVE)
        it.signal(THIRD, signal.SIGCONT)
        # Nameservers take a while to say that there was a later epoch.
        await it.until(THIRD, lambda its: its.state != "streaming", "it misses its master")
        plain = await it.promote(THIRD)
        forced = await it.promote(THIRD, "--accept-loss")
        its = await it.status(THIRD)
        listed = await it.listed()
        is_listed = listed == [it.address(THIRD)]
        is_master = its.state == "writable"
        return Outcome(
            bool(plain.code) and (is_listed == is_master) and (not forced.code) == is_listed,
            f"promote: exit code {plain.code}; with --accept-loss: exit code {forced.code},"
            f" epoch {its.epoch}, {its.state}, listed as master: {'yes' if is_listed else 'no'};"
            f' "{forced.line("NOT READY", "refused to become master", "is master now")}"',
        )


@trial("B8", is_repair=True)
async def b8(place: Place) -> Outcome:
    """The sync master hangs, and its slave is to take its place."""
    async with place.pair() as it:
        codes = await it.send(MASTER, COUNT)
        assert codes == {OK: COUNT}, codes
        seen = len(it.gates[MASTER].firsts)
        it.signal(MASTER, signal.SIGSTOP)
        with trio.move_on_after(10):
            # The system still takes connections for it.
            while len(it.gates[MASTER].firsts) == seen:  # noqa: ASYNC110 - told by other tasks
                await trio.sleep(POLL_S)
        said = await it.promote(SLAVE)
        it.signal(MASTER, signal.SIGCONT)
        if not said.code:
            # Whatever it is told now must be in the log of the new one.
            await it.until(MASTER, lambda its: its.state != "writable", "the old master stops")
            await it.send(MASTER, 50)
        lost = await it.lost_at(MASTER if said.code else SLAVE)
        return Outcome(
            not said.code and not lost,
            f"promote: exit code {said.code} after {said.seconds:.1f} s; lost {lost} of"
            f" {it.acknowledged}; {_why(said)}",
        )


@trial("B10", is_repair=True)
async def b10(place: Place) -> Outcome:
    """The link is cut, the old master can be reached, and a loss is accepted."""
    async with place.pair(role="ASYNC_MASTER") as it:
        await it.send(MASTER, BEFORE)
        it.gates[MASTER].cut()
        await it.until(SLAVE, lambda its: its.state == "connecting", "the slave is cut off")
        said = await it.promote(SLAVE, "--accept-loss")
        assert not said.code, said.text
        started, known = trio.current_time(), set(it.producer.acknowledged)
        last_s = 0.0
        with trio.move_on_after(STOPS_S):
            while (codes := await it.send(MASTER, 20))[REFUSED] < 20:
                last_s = trio.current_time() - started if codes[OK] else last_s
        after = len(set(it.producer.acknowledged) - known)
        said_ok = f", the last one {last_s:.1f} s after" if after else ""
        return Outcome(
            not after,
            f"{after} SEND_OK of the old master after the promotion was answered{said_ok}, all lost"
            if after
            else "no SEND_OK of the old master after the promotion was answered",
        )
