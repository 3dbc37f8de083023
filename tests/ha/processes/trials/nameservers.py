"""Nameservers that are down, gone, emptied, or of another opinion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmq.remoting.client import open_client
from tests.ha.processes.load import wait_settled
from tests.ha.processes.trials.ground import MASTER, OK, SLAVE
from tests.ha.processes.trials.outcome import Outcome, trial
from tests.ha.processes.trials.stranger import register

if TYPE_CHECKING:
    from tests.ha.processes.trials.ground import Ground, Place
    from tests.ha.processes.trials.programs import Program

COUNT: Final = 500
STRANGER: Final = "127.0.0.1:9"
"""Where nobody answers."""


async def _kill_master(it: Ground) -> None:
    codes = await it.send(MASTER, COUNT)
    assert codes == {OK: COUNT}, codes
    it.kill(MASTER)
    await wait_settled(it.client, it.address(SLAVE))


async def _start(program: Program) -> None:
    program.launch()
    await program.ready()


@trial("one-nameserver-of-three-down")
async def one_of_three_down(place: Place) -> Outcome:
    """It comes back after the promotion, with what it knew, and so does the old master."""
    async with place.pair(nameservers=3) as it:
        *_, last = it.nameservers.values()
        await last.stop()
        await _kill_master(it)
        said = await it.promote(SLAVE)
        await it.send(SLAVE, COUNT)
        await _start(last)
        await it.start(MASTER)
        its = await it.until(MASTER, lambda its: its.state != "writable", "the old one stops")
        await it.until_listed(SLAVE)
        wrong = await it.send(MASTER, 50)
        lost = await it.lost_at(SLAVE)
        return Outcome(
            not said.code and not lost and not wrong[OK],
            f"promote: exit code {said.code}; lost {lost} of {it.acknowledged}; all three list the"
            f' new master; the old one answers {sorted(wrong)} and says "{its.last_error}"',
        )


@trial("one-nameserver-of-two-down")
async def one_of_two_down(place: Place) -> Outcome:
    """Of two nameservers most are two."""
    async with place.pair(nameservers=2) as it:
        *_, last = it.nameservers.values()
        await last.stop()
        await _kill_master(it)
        early = await it.promote(SLAVE)
        await _start(last)
        said = await it.promote(SLAVE)
        lost = await it.lost_at(SLAVE)
        return Outcome(
            bool(early.code) and not said.code and not lost,
            f'promote: exit code {early.code}, "{early.line("refused to become")}"; when it is'
            f" back: exit code {said.code}, lost {lost} of {it.acknowledged}",
        )


@trial("nameservers-gone")
async def gone(place: Place) -> Outcome:
    """All of them are down while the master dies."""
    async with place.pair() as it:
        (only,) = it.nameservers.values()
        await only.stop()
        health = await it.health()
        await _kill_master(it)
        early = await it.promote(SLAVE)
        await _start(only)
        said = await it.promote(SLAVE)
        lost = await it.lost_at(SLAVE)
        return Outcome(
            bool(early.code) and bool(health.code) and not said.code and not lost,
            f"status: exit code {health.code}; {COUNT} of {COUNT} SEND_OK without them; promote:"
            f' exit code {early.code}, "{early.line("refused to become")}"; when it is back: exit'
            f" code {said.code}, lost {lost} of {it.acknowledged}",
        )


@trial("nameserver-emptied")
async def emptied(place: Place) -> Outcome:
    """The only nameserver loses its file while the master is dead."""
    async with place.pair() as it:
        (only,) = it.nameservers.values()
        await _kill_master(it)
        await only.stop()
        for path in place.folder.glob("kv0.json*"):
            path.unlink()
        await _start(only)
        said = await it.promote(SLAVE)
        await it.start(MASTER)
        await it.until_in_sync(MASTER)
        after = await it.send(MASTER, COUNT)
        lost = await it.lost_at(MASTER)
        return Outcome(
            bool(said.code) and not lost and after == {OK: COUNT},
            f'promote: exit code {said.code}, "{said.line("refused to become")}"; when the master'
            f" is back: {after[OK]} of {COUNT} SEND_OK, lost {lost} of {it.acknowledged}",
        )


@trial("nameservers-disagree")
async def disagree(place: Place) -> Outcome:
    """One of three lists a stranger as master, of the next epoch."""
    async with place.pair(nameservers=3) as it, open_client() as forger:
        await it.send(MASTER, COUNT)
        *_, last = it.nameservers
        code, _ = await register(forger, last, STRANGER, "127.0.0.1:10", 2)
        assert code == OK, code
        health = await it.health()
        await _kill_master(it)
        said = await it.promote(SLAVE)
        await it.until_listed(SLAVE)
        lost = await it.lost_at(SLAVE)
        return Outcome(
            bool(health.code) and not said.code and not lost,
            f'status: exit code {health.code}, "{health.line("has another master")}"; promote:'
            f" exit code {said.code}, lost {lost} of {it.acknowledged}; then all three list the new"
            " master",
        )
