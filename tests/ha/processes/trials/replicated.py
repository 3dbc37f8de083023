"""What a slave must have and how it must be spoken to, for it to count (B9, B11)."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Final

import trio

from rmq.remoting.codes import RequestCode
from tests.ha.processes.load import wait_settled
from tests.ha.processes.trials.ground import MASTER, OK, POLL_S, SENDERS, SLAVE
from tests.ha.processes.trials.offsets import commit, committed, until_committed
from tests.ha.processes.trials.outcome import Outcome, trial
from tests.ha.processes.trials.stranger import GROUP

if TYPE_CHECKING:
    from tests.ha.processes.trials.ground import Ground, Place

NATIVE: Final = b"\xffrmqHA"
"""How a slave of ours begins when it speaks natively."""
FLUSHED: Final = {"ackAfterSlaveFlush": "true"}
PATIENT: Final = {"haHousekeepingInterval": "8000"}
"""The slave waits longer for an answer than a stock master takes for one (5 to 7 s)."""
SLOW: Final = {"slaveTimeout": "3000", "haHousekeepingInterval": "8000"}
"""As they are by default, or nearer to that: for a link with long round trips."""
DIALS: Final = 2
"""So often the slave may call a master that says nothing, before the master is back."""
GROUPS: Final = 80_000
NAME_BYTES: Final = 240


@trial("B9-hang", is_repair=True)
async def b9_hang(place: Place) -> Outcome:
    """The master hangs, and is back when its slave takes it for a stock one, or calls on."""
    async with place.ground() as it:
        await it.add(MASTER, "SYNC_MASTER", 0, FLUSHED | PATIENT, has_client_gate=True)
        await it.add(SLAVE, "SLAVE", 1, FLUSHED | PATIENT)
        await it.start_all()
        await it.until_in_sync(MASTER)
        gate, is_examined = it.gates[MASTER], trio.Event()

        async def watch(code: int, is_request: bool) -> None:
            if is_request and code == RequestCode.GET_BROKER_RUNTIME_INFO:
                is_examined.set()

        it.client_gates[MASTER].watch = watch
        seen = len(gate.firsts)
        it.signal(MASTER, signal.SIGSTOP)
        with trio.move_on_after(25):
            while len(gate.firsts) - seen < DIALS and not is_examined.is_set():  # noqa: ASYNC110
                await trio.sleep(POLL_S)
        it.signal(MASTER, signal.SIGCONT)
        return await _dialect(it)


@trial("B9-slow", is_repair=True, needs_network=True)
async def b9_slow(place: Place) -> Outcome:
    """Round trips of 600 ms between the two, from the beginning."""
    assert place.network is not None
    place.network.wire.set(delay_s=0.3)
    async with place.ground() as it:
        await it.add(MASTER, "SYNC_MASTER", 0, FLUSHED | SLOW, side=0)
        await it.add(SLAVE, "SLAVE", 1, FLUSHED | SLOW, side=1)
        await it.start_all()
        return await _dialect(it)


@trial("slow-proxy")
async def slow_proxy(place: Place) -> Outcome:
    """The same, behind something that takes the connections itself: dialling takes no time."""
    async with place.ground() as it:
        await it.add(MASTER, "SYNC_MASTER", 0, FLUSHED | SLOW)
        await it.add(SLAVE, "SLAVE", 1, FLUSHED | SLOW)
        it.gates[MASTER].delay_s = 0.3
        await it.start_all()
        return await _dialect(it)


async def _dialect(it: Ground) -> Outcome:
    """See how the slave is connected, and what sends are answered."""
    with trio.move_on_after(15):
        while not (connected := await _connected(it)):  # noqa: ASYNC110 - another process
            await trio.sleep(POLL_S)
    with trio.move_on_after(5):
        while not (await it.status(MASTER)).in_sync:  # noqa: ASYNC110 - another process
            await trio.sleep(POLL_S)
    connected = await _connected(it)
    codes = await it.send(MASTER, 50)
    gate = it.gates.get(MASTER)
    stock = sum(not first.startswith(NATIVE) for first in gate.firsts) if gate else None
    calls = f"{stock} of {len(gate.firsts)} calls in the stock dialect; " if gate else ""
    return Outcome(
        connected == ["native"] and codes == {OK: 50},
        f"{calls}the master lists the slave as {', '.join(connected) or 'gone'}; {codes[OK]} of 50"
        f" sends SEND_OK{'' if codes[OK] == 50 else f', the others {sorted(set(codes) - {OK})}'}",
    )


async def _connected(it: Ground) -> list[str]:
    slaves = (await it.status(MASTER)).slaves
    return ["native" if slave.native else "stock" for slave in slaves if slave.connected]


@trial("B11", is_repair=True)
async def b11(place: Place) -> Outcome:
    """More than 16 MiB of consumer offsets, and one that moves."""
    async with place.pair() as it:
        await it.send(MASTER, 100)
        await commit(it, MASTER, GROUP, 5)
        await until_committed(it, SLAVE, GROUP, 5)
        await _fill(it)
        await commit(it, MASTER, GROUP, 25)
        at_slave = await until_committed(it, SLAVE, GROUP, 25, 15)
        health = await it.health()
        it.kill(MASTER)
        await wait_settled(it.client, it.address(SLAVE))
        said = await it.promote(SLAVE)
        after = None if said.code else await committed(it, SLAVE, GROUP)
        is_honest = bool(health.code) and bool(said.code)
        return Outcome(
            after == 25 or is_honest,
            f"{GROUPS} groups; the master has 25, the slave {at_slave}; status: exit code"
            f" {health.code}; promote: exit code {said.code}, then the group is at {after}"
            f"{'' if not said.code else f'; {said.sentence}'}",
        )


async def _fill(it: Ground) -> None:
    """Commit offsets of groups with long names, many at a time."""
    numbers = iter(range(GROUPS))

    async def fill() -> None:
        for number in numbers:
            await commit(it, MASTER, f"{number:06d}".ljust(NAME_BYTES, "g"), 1)

    async with trio.open_nursery() as nursery:
        for _ in range(SENDERS * 4):
            nursery.start_soon(fill)
