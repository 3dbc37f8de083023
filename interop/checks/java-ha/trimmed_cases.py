"""Masters whose oldest files are gone, and slaves that need them or have nothing at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ha_load import Load
from ha_members import SEGMENT_BYTES, open_members
from ha_questions import (
    Extent,
    ask,
    expect_same_log,
    extent,
    wait_caught_up,
    wait_in_sync,
    wait_listed,
    wait_state,
)
from ha_session import LOAD, HaSession, expect_held

from interop.support.cases import expect, expect_true
from interop.support.cluster import Against
from rmq.remoting.codes import RequestCode
from rmq.remoting.headers import HaPromoteRequest, HaResyncRequest

if TYPE_CHECKING:
    from ha_members import Member, Members

PART: Final = "trimmed log"
BEGIN: Final = 2 * SEGMENT_BYTES
BODY_BYTES: Final = 20_000


async def run_trimmed_cases(session: HaSession) -> None:
    client = session.client
    folder = session.folder / "trimmed"
    async with open_members(folder, session.jars, Against.RMQ) as members:
        master = members.add(Against.STOCK, 0, "java-master")
        slave = members.add(Against.RMQ, 1, "our-slave")
        await master.start("ASYNC_MASTER")
        await wait_listed(client, members, {0: master.address})
        await session.create_topics(members, master)
        load = Load(client, LOAD, body_bytes=BODY_BYTES)
        await slave.start("SLAVE")
        await load.send(master, 20)
        await wait_caught_up(client, master, slave)
        await slave.stop()
        await load.send(master, 180)
        await _trim(master)
        await master.start("ASYNC_MASTER")
        with session.operation(PART, "our slave lacks what a Java master has no more: it waits"):
            await slave.start("SLAVE")
            await wait_state(client, slave, "outrun")

        with session.operation(PART, "an operator lets it begin anew"):
            await ask(client, slave.address, RequestCode.HA_RESYNC, HaResyncRequest(dry_run=False))
            await _expect_copy(session, master, slave)
            await wait_state(client, slave, "streaming")

        with session.operation(PART, "our empty slave begins where the Java master does"):
            second = members.add(Against.RMQ, 2, "our-second-slave")
            await second.start("SLAVE")
            await _expect_copy(session, master, second)
            await second.stop()

        with session.operation(PART, "what is left can be read from our slave"):
            await master.kill()
            await wait_listed(client, members, {1: slave.address})
            await _expect_readable(session, members, load)

        await _hand_on(session, members, slave, load)


async def _hand_on(session: HaSession, members: Members, ours: Member, load: Load) -> None:
    """Let our slave be the master of a stock one."""
    client = session.client
    await ask(
        client,
        ours.address,
        RequestCode.HA_PROMOTE,
        HaPromoteRequest(accept_loss=True, mode="SYNC_MASTER"),
    )
    stock = members.add(Against.STOCK, 3, "java-slave")
    with session.operation(PART, "an empty Java slave begins where our master does"):
        await stock.start("SLAVE")
        await wait_in_sync(client, ours)
        expect("answers", dict(await load.send(ours, 20)), {0: 20})
        await _expect_copy(session, ours, stock)

    with session.operation(PART, "what is left can be read from the Java slave"):
        await ours.kill()
        await wait_listed(client, members, {3: stock.address})
        await _expect_readable(session, members, load)


async def _trim(master: Member) -> None:
    """Stop a broker and take its oldest files away, as it does itself with those that expire."""
    await master.stop()
    for path in sorted((master.store / "commitlog").iterdir()):
        if int(path.name) < BEGIN:
            path.unlink()


async def _expect_copy(session: HaSession, master: Member, slave: Member) -> None:
    """A slave must have all that its master has, and nothing before that."""
    end = await wait_caught_up(session.client, master, slave)
    expect_true("more than one file", end > BEGIN + SEGMENT_BYTES)
    for member in (master, slave):
        expect("extent", await extent(session.client, member), Extent(BEGIN, end))
    expect_same_log(master, slave, BEGIN, end)


async def _expect_readable(session: HaSession, members: Members, load: Load) -> None:
    left = {body for body, offset in load.stored.items() if offset >= BEGIN}
    bodies: list[bytes] = []
    async with session.reader(members) as reader:
        for queue in await reader.queues(LOAD):
            # A slave does not correct an offset that is too low, it says "try again".
            offset = (await reader.pull(queue, 0)).min_offset
            while (pulled := await reader.pull(queue, offset)).status == "FOUND":
                bodies += [message.body for message in pulled.messages]
                offset = pulled.next_offset
            expect("status at the end", pulled.status, "NO_NEW_MSG")
    expect_held(bodies, left, "stored")
    expect("messages", len(bodies), len(left))
