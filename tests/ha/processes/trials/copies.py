"""Stores and state files that were copied: nobody may pass for another one."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.ha.processes.load import wait_settled
from tests.ha.processes.trials.doubles import one_writes, refused_newcomer
from tests.ha.processes.trials.ground import MASTER, OK, SLAVE, THIRD
from tests.ha.processes.trials.outcome import Outcome, trial

if TYPE_CHECKING:
    from tests.ha.processes.trials.ground import Ground, Place

COUNT: Final = 1_000
STATE: Final = Path("config", "haState.json")


async def _newcomer(it: Ground, whose: str, *, reason: str) -> Outcome:
    """Start a slave with the state file of another broker, beside a pair that goes on."""
    await it.add(THIRD, "SLAVE", 2)
    target = it.store_of(THIRD) / STATE
    target.parent.mkdir(parents=True)
    shutil.copy(it.store_of(whose) / STATE, target)
    it.brokers[THIRD].launch()
    return await refused_newcomer(it, reason)


@trial("copied-state-of-slave")
async def copied_state_of_slave(place: Place) -> Outcome:
    """A new slave has the state file of the one that is in sync."""
    async with place.pair() as it:
        return await _newcomer(it, SLAVE, reason="of which this is a copy")


@trial("copied-state-of-master")
async def copied_state_of_master(place: Place) -> Outcome:
    """A new slave has the state file of its master."""
    async with place.pair() as it:
        return await _newcomer(it, MASTER, reason="the same store, or a copy of it")


@trial("copied-master")
async def copied_master(place: Place) -> Outcome:
    """A copy of the master's whole store is started as master."""
    async with place.pair() as it:
        await it.send(MASTER, 100)
        await it.add(THIRD, "SYNC_MASTER", 0)
        shutil.copytree(it.store_of(MASTER), it.store_of(THIRD))
        await it.start(THIRD)
        return await one_writes(it)


@trial("restored-copy")
async def restored_copy(place: Place) -> Outcome:
    """A backup of the slave's store, made while it was stopped in order, takes its place later."""
    async with place.pair() as it:
        await it.send(MASTER, 100)
        await it.brokers[SLAVE].stop()
        shutil.copytree(it.store_of(SLAVE), place.folder / "backup")
        await it.start(SLAVE)
        await it.until_in_sync(MASTER)
        codes = await it.send(MASTER, COUNT)
        assert codes == {OK: COUNT}, codes
        it.kill(MASTER, SLAVE)
        shutil.rmtree(it.store_of(SLAVE))
        shutil.copytree(place.folder / "backup", it.store_of(SLAVE))
        await it.start(SLAVE)
        await wait_settled(it.client, it.address(SLAVE))
        said = await it.promote(SLAVE)
        lost = 0 if said.code else await it.lost_at(SLAVE)
        return Outcome(
            not lost,
            f"promote: exit code {said.code}; lost {lost} of {it.acknowledged};"
            f' "{said.line("refused to become master", "nothing is lost", "is master now")}"',
        )
