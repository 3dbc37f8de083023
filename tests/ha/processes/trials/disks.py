"""Disks that take nothing: the slave's, the master's, and either at the moment of a promotion."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from rmq.remoting.codes import ResponseCode
from tests.ha.processes.load import wait_topic
from tests.ha.processes.surroundings import Surroundings, seen_by
from tests.ha.processes.trials.ground import MASTER, OK, SLAVE
from tests.ha.processes.trials.outcome import Outcome, trial

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from rmq.remoting.bodies import HaStatusBody
    from tests.ha.processes.trials.ground import Ground, Place
    from tests.ha.processes.trials.programs import Said

SMALL: Final = {
    "mappedFileSizeCommitLog": str(1024**2),
    "maxHashSlotNum": "2000",
    "maxIndexNum": "8000",
    "haHousekeepingInterval": "20000",
}
DISK_BYTES: Final = 32 * 1024**2
LEFT_BYTES: Final = 2 * 1024**2
COUNT: Final = 500
STORED: Final = {ResponseCode.SUCCESS, ResponseCode.SLAVE_NOT_AVAILABLE}
BATCH: Final = 1_000
BATCHES_MAX: Final = 30


@asynccontextmanager
async def _pair(place: Place, surroundings: dict[str, Surroundings]) -> AsyncIterator[Ground]:
    """Start a pair of which one lives in other surroundings."""
    async with place.ground() as it:
        for name, role, number in ((MASTER, "SYNC_MASTER", 0), (SLAVE, "SLAVE", 1)):
            program = await it.add(name, role, number, SMALL)
            program.surroundings = surroundings.get(name, program.surroundings)
        await it.start_all()
        await it.until_in_sync(MASTER)
        await wait_topic(it.client, it.address(SLAVE))
        codes = await it.send(MASTER, COUNT)
        assert codes == {OK: COUNT}, codes
        yield it


def _small_disk(place: Place, name: str) -> Surroundings:
    (disk := place.folder / name).mkdir()
    return Surroundings(disk=disk, disk_bytes=DISK_BYTES)


def _fill(it: Ground, name: str) -> Path:
    """Leave room for a segment or two; return what to delete to make room."""
    seen = seen_by(it.brokers[name].pid, it.store_of(name))
    now = os.statvfs(seen)
    ballast = seen / "ballast"
    ballast.write_bytes(bytes(now.f_bavail * now.f_frsize - LEFT_BYTES))
    return ballast


async def _send_until(it: Ground, *codes: int) -> None:
    """Send until one of these is answered."""
    for _ in range(BATCHES_MAX):
        answers = await it.send(MASTER, BATCH)
        if any(code in answers for code in codes):
            return
    raise AssertionError(f"none of {codes} was answered: {it.producer.codes}")


@trial("full-disk-of-slave")
async def full_disk_of_slave(place: Place) -> Outcome:
    """It is full under load; the master dies before there is room."""
    async with _pair(place, {SLAVE: _small_disk(place, SLAVE)}) as it:
        _fill(it, SLAVE)
        await _send_until(it, ResponseCode.SLAVE_NOT_AVAILABLE)
        its = await it.until(SLAVE, lambda its: its.state == "failed", "the slave fails")
        health = await it.health()
        it.kill(MASTER)
        said = await it.promote(SLAVE)
        if said.code:
            await it.start(MASTER)
        lost = await it.lost_at(MASTER if said.code else SLAVE)
        return Outcome(
            bool(health.code) and not lost,
            f'the slave is "{its.state}": "{its.last_error}"; status: exit code {health.code};'
            f" promote after a kill of the master: exit code {said.code}, lost {lost} of"
            f' {it.acknowledged}, "{said.line("refused to become", "nothing is lost")}"',
        )


@trial("full-disk-of-master")
async def full_disk_of_master(place: Place) -> Outcome:
    """It is full under load, and its slave is promoted then."""
    async with _pair(place, {MASTER: _small_disk(place, MASTER)}) as it:
        _fill(it, MASTER)
        await _send_until(it, ResponseCode.SERVICE_NOT_AVAILABLE)
        its = await it.until(MASTER, lambda its: its.state != "writable", "the master refuses")
        health = await it.health()
        said = await it.promote(SLAVE)
        states = {each: await it.status(each) for each in (MASTER, SLAVE)}
        again = await it.promote(SLAVE) if said.code else said
        lost = await it.lost_at(SLAVE)
        after = await it.send(SLAVE, COUNT)
        return Outcome(
            bool(health.code)
            and _is_true(said, states)
            and not again.code
            and not lost
            and set(after) <= STORED,
            f'the master is "{its.state}"; status: exit code {health.code}; promote: exit code'
            f" {said.code}{f', again {again.code}' if said.code else ''}, lost {lost} of"
            f' {it.acknowledged}; {_shown(states)}; "{said.line("refused to", "nothing is lost")}"',
        )


def _is_true(said: Said, states: dict[str, HaStatusBody]) -> bool:
    """Tell whether a refusal says what has become of the old master."""
    has_master = any(its.state == "writable" for its in states.values())
    is_master = states[MASTER].role == "MASTER"
    if "does not step down" in said.text and not is_master:
        return False
    return not said.code or has_master or is_master or "stepped down" in said.text


def _shown(states: dict[str, HaStatusBody]) -> str:
    return "then " + ", ".join(
        f"{each} is {its.role} ({its.state})" for each, its in states.items()
    )


@trial("slave-cannot-save-at-promotion")
async def slave_cannot_save(place: Place) -> Outcome:
    """The folder of its state takes nothing when the slave is to become master."""
    async with _pair(place, {SLAVE: Surroundings(heeds_modes=True)}) as it:
        return await _cannot_save(it, SLAVE)


@trial("master-cannot-save-at-promotion")
async def master_cannot_save(place: Place) -> Outcome:
    """The folder of its state takes nothing when the master is to step down."""
    async with _pair(place, {MASTER: Surroundings(heeds_modes=True)}) as it:
        return await _cannot_save(it, MASTER)


async def _cannot_save(it: Ground, name: str) -> Outcome:
    config = it.store_of(name) / "config"
    config.chmod(0o555)
    said = await it.promote(SLAVE)
    states = {each: await it.status(each) for each in (MASTER, SLAVE)}
    health = await it.health()
    config.chmod(0o755)
    again = await it.promote(SLAVE) if said.code else said
    back = await it.promote(MASTER) if again.code else again
    master = SLAVE if not again.code else MASTER
    await it.until_in_sync(master)
    codes = await it.send(master, COUNT)
    lost = await it.lost_at(master)
    return Outcome(
        _is_true(said, states) and not lost and codes == {OK: COUNT},
        f"promote: exit code {said.code}; {_shown(states)}; status: exit code {health.code}; when"
        f" it can write again, promote: exit code {again.code}"
        f"{f', of the old master {back.code}' if again.code else ''}, {codes[OK]} of {COUNT}"
        f" SEND_OK, lost {lost} of {it.acknowledged};"
        f' "{said.line("refused to become", "nothing is lost")}"',
    )
