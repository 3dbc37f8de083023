"""Two of what there may be one of: masters of a name, slaves with one id; and a foreign slave."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmq.remoting.codes import ResponseCode
from tests.ha.processes.trials.ground import MASTER, OK, SLAVE, THIRD
from tests.ha.processes.trials.outcome import Outcome, trial

if TYPE_CHECKING:
    from tests.ha.processes.trials.ground import Ground, Place

COUNT: Final = 500
REFUSED: Final = ResponseCode.SERVICE_NOT_AVAILABLE


async def one_writes(it: Ground) -> Outcome:
    """See that of MASTER and THIRD, which are both masters, one answers SEND_OK and says so."""
    its = await it.until(
        THIRD, lambda said: said.state != "writable" and bool(said.last_error), "one is fenced"
    )
    sent = {name: await it.send(name, COUNT) for name in (MASTER, THIRD)}
    health = await it.health()
    lost = await it.lost_at(MASTER)
    return Outcome(
        not sent[THIRD][OK] and sent[MASTER] == {OK: COUNT} and not lost,
        f"the first answers {dict(sent[MASTER])}, the second {dict(sent[THIRD])}; lost {lost} of"
        f' {it.acknowledged}; the second is "{its.state}": "{its.last_error}"; status: exit code'
        f" {health.code}",
    )


async def refused_newcomer(it: Ground, reason: str) -> Outcome:
    """See that THIRD is turned away and named, and that the pair is not disturbed by it."""
    its = await it.until(THIRD, lambda said: said.state == "refused", "the newcomer is refused")
    accepted = (await it.status(MASTER)).counters["accepted"]
    codes = await it.send(MASTER, COUNT)
    is_steady = (await it.status(SLAVE)).state == "streaming"
    # Those turned away call again; the one in sync does not have to.
    connects = [slave for slave in (await it.status(MASTER)).slaves if slave.connected]
    health = await it.health()
    lost = await it.lost_at(SLAVE)
    said = its.last_error or ""
    return Outcome(
        codes == {OK: COUNT}
        and is_steady
        and len(connects) == 1
        and reason in said
        and bool(health.code)
        and not lost
        and accepted > 0,
        f'{codes[OK]} of {COUNT} SEND_OK, lost {lost}; the newcomer is refused: "{said}"; status:'
        f' exit code {health.code}, "{health.line("turned away")}"',
    )


@trial("second-master")
async def second_master(place: Place) -> Outcome:
    """Beside a pair somebody starts another master of the name, with an empty store."""
    async with place.pair() as it:
        await it.add(THIRD, "ASYNC_MASTER", 0)
        await it.start(THIRD)
        return await one_writes(it)


@trial("two-masters-at-once")
async def two_masters_at_once(place: Place) -> Outcome:
    """Two new async masters of one name are started in the same moment."""
    async with place.ground() as it:
        for name in (MASTER, THIRD):
            await it.add(name, "ASYNC_MASTER", 0)
        for program in (*it.nameservers.values(), *it.brokers.values()):
            program.launch()
        for program in (*it.nameservers.values(), *it.brokers.values()):
            await program.ready()
        sent = {name: await it.send(name, COUNT) for name in (MASTER, THIRD)}
        writers = [name for name, codes in sent.items() if codes[OK]]
        states = {name: (await it.status(name)) for name in (MASTER, THIRD)}
        other = next((name for name in sent if name not in writers), "")
        health = await it.health()
        lost = await it.lost_at(writers[0]) if writers else -1
        return Outcome(
            len(writers) == 1 and not lost,
            f"{len(writers)} of 2 answer SEND_OK: {[dict(codes) for codes in sent.values()]}; lost"
            f" {lost} of {it.acknowledged}; the other one is"
            f' "{states[other].state if other else ""}":'
            f' "{(states[other].last_error or states[other].waits_for) if other else ""}"; status:'
            f" exit code {health.code}",
        )


@trial("two-slaves-of-one-id")
async def two_slaves_of_one_id(place: Place) -> Outcome:
    """A new slave has the brokerId of the one that is in sync."""
    async with place.pair() as it:
        await it.add(THIRD, "SLAVE", 1)
        await it.start(THIRD)
        return await refused_newcomer(it, "has the same brokerId, 1")


@trial("foreign-stock-slave")
async def foreign_stock_slave(place: Place) -> Outcome:
    """A slave of another cluster calls in the stock dialect, which tells no name, and counts."""
    async with place.pair() as it:
        await it.send(MASTER, COUNT)
        it.gates[MASTER].cut()
        await it.until_out_of_sync(MASTER)
        settings = {
            "brokerClusterName": "D",
            "brokerName": "broker-d",
            "haDialect": "stock",
            "haMasterAddress": it.ha_address(MASTER),
        }
        await it.add(THIRD, "SLAVE", 1, settings)
        await it.start(THIRD)
        its = await it.until_in_sync(MASTER)
        codes = await it.send(MASTER, COUNT)
        health = await it.rmq("ha", "status", "-b", it.address(MASTER))
        it.kill(MASTER)
        said = await it.promote(SLAVE)
        if said.code:
            await it.start(MASTER)
        lost = await it.lost_at(MASTER if said.code else SLAVE)
        return Outcome(
            not lost and codes[OK] == COUNT and "may be lost" in said.text,
            f"it is listed as {its.in_sync[0]}, {codes[OK]} of {COUNT} sends rest on it; status:"
            f' "{health.line("stock")}"; promote of the true slave: exit code {said.code}, lost'
            f' {lost} of {it.acknowledged}; "{said.line("refused to become", "lost")}"',
        )


@trial("foreign-stock-slave-and-secret")
async def foreign_stock_slave_and_secret(place: Place) -> Outcome:
    """The same where the master has a secret."""
    async with place.pair(settings={"haSecret": "a secret of sixteen"}) as it:
        settings = {
            "brokerClusterName": "D",
            "brokerName": "broker-d",
            "haDialect": "stock",
            "haSecret": "",
            "haMasterAddress": it.ha_address(MASTER),
        }
        await it.add(THIRD, "SLAVE", 1, settings)
        await it.start(THIRD)
        before = (await it.status(MASTER)).counters["refused"]
        its = await it.until(
            MASTER, lambda said: said.counters["refused"] > before, "the foreign one is refused"
        )
        codes = await it.send(MASTER, COUNT)
        lost = await it.lost_at(SLAVE)
        end = (await it.status(THIRD)).end
        # It asks the master as clients do for the first byte of the log (rmq.ha.stock_master), if
        # there is one by then. The link gives it nothing.
        return Outcome(
            codes == {OK: COUNT} and end <= 1 and not lost,
            f'{codes[OK]} of {COUNT} SEND_OK, lost {lost}; it has {end} bytes; "{its.last_error}"',
        )
