"""Our slave of a stock master, under a stock nameserver, until it is master itself."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple

from ha_load import Load
from ha_members import SEGMENT_BYTES, open_members
from ha_questions import (
    ask,
    expect_same_log,
    extent,
    logged_errors,
    status,
    wait_caught_up,
    wait_listed,
    wait_same_tables,
    wait_state,
)
from ha_session import (
    DELAYED,
    GROUP,
    HISTORY,
    LATER,
    LOAD,
    HaSession,
    expect_bodies,
    expect_held,
    expect_offsets_without_gap,
    expect_ok,
    numbered,
)

from interop.support.cases import expect, expect_true
from interop.support.cluster import Against
from rmq.remoting.bodies import HaPromoteBody
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import HaPromoteRequest

if TYPE_CHECKING:
    from ha_members import Member, Members

    from interop.support.java_messages import Outgoing
    from rmq.remoting.bodies import HaStatusBody

PART: Final = "our slave"
PENDING_LEVEL: Final = 3
"""10 s: due about when the slave has taken over."""


class Sent(NamedTuple):
    """What was sent by the stock client before the master was killed."""

    history: list[Outgoing]
    """Read by `GROUP`."""
    unread: list[Outgoing]
    """Of the same topic, and not read by it."""
    later: list[Outgoing]
    pending: list[Outgoing]
    """Delayed, and not yet due."""


async def run_our_slave_cases(session: HaSession) -> None:
    folder = session.folder / "our-slave"
    async with open_members(folder, session.jars, Against.STOCK) as members:
        master = members.add(Against.STOCK, 0, "java-master")
        slave = members.add(Against.RMQ, 1, "our-slave")
        await master.start("ASYNC_MASTER")
        await wait_listed(session.client, members, {0: master.address})
        await session.create_topics(members, master)
        load = Load(session.client, LOAD)
        async with session.kit.driver(members.nameserver) as driver:
            history = await session.make_history(driver)
            await _follow(session, members, master, slave, load)
            with session.operation(PART, "topics, groups, consumer and delay offsets are the same"):
                tables = await wait_same_tables(session.client, master, slave)
                read = sum(tables.consumer_offsets[f"{HISTORY}@{GROUP}"].values())
                expect("messages that the group has read", read, len(history))
                expect("delayed messages delivered", tables.delay_offsets.get(1), DELAYED)
            unread = numbered(HISTORY, 25, start=len(history))
            later = numbered(LATER, 50)
            pending = numbered(LATER, 1, start=len(later), delay_level=PENDING_LEVEL)
            async with driver.producer("last words") as producer:
                expect_ok(await producer.send(*unread, *later, *pending))
        sent = Sent(history, unread, later, pending)
        await _read_from_slave(session, members, master, slave, load, sent)
        await _promote(session, members, slave, sent)
        with session.operation(PART, "no errors in its log"):
            expect("logged", logged_errors(slave), [])


async def _follow(
    session: HaSession, members: Members, master: Member, slave: Member, load: Load
) -> None:
    client = session.client
    with session.operation(PART, "empty: gets everything from the oldest byte on") as case:
        begun = time.monotonic()
        await slave.start("SLAVE")
        end = await wait_caught_up(client, master, slave)
        case.note(f"{end} bytes {time.monotonic() - begun:.1f} s after its start")
        expect_true("several files of history", end > 3 * SEGMENT_BYTES)
        expect("beginning", (await extent(client, slave)).begin, 0)
        expect_same_log(master, slave, 0, end)
        followed = (await wait_state(client, slave, "streaming")).master
        expect_true("a stock master", followed is not None and not followed.native)
        await wait_listed(client, members, {0: master.address, 1: slave.address})

    with session.operation(PART, "ASYNC_MASTER: what is sent is copied"):
        expect("answers", dict(await load.send(master, 200)), {0: 200})
        await wait_caught_up(client, master, slave)

    with session.operation(PART, "stopped and started: goes on where it was") as case:
        await slave.stop()
        await load.send(master, 300)
        await slave.start("SLAVE")
        begun = time.monotonic()
        end = await wait_caught_up(client, master, slave)
        case.note(f"{time.monotonic() - begun:.1f} s after it listens")
        expect_same_log(master, slave, 0, end)

    with session.operation(PART, "killed under load: goes on where it was"):
        await session.load_and_kill(load, master, slave)
        await load.send(master, 200)
        await slave.start("SLAVE")
        end = await wait_caught_up(client, master, slave)
        expect_same_log(master, slave, 0, end)

    with session.operation(PART, "master stopped, started as SYNC_MASTER: SEND_OK") as case:
        await master.stop()
        await master.start("SYNC_MASTER")
        begun = time.monotonic()
        await session.wait_answered_ok(load, master)
        case.note(f"{time.monotonic() - begun:.1f} s after it listens")
        expect("answers", dict(await load.send(master, 100)), {0: 100})

    with session.operation(PART, "SYNC_MASTER: not SEND_OK while the slave is away"):
        await slave.stop()
        answers = await load.send(master, 3)
        not_available = int(ResponseCode.SLAVE_NOT_AVAILABLE)
        expect("answers", dict(answers), {not_available: 3})
        await slave.start("SLAVE")
        await session.wait_answered_ok(load, master)

    with session.operation(PART, "SYNC_MASTER killed under load: what was SEND_OK is here") as case:
        await session.load_and_kill(load, master, master)
        held = (await _settled(session, slave)).end
        acknowledged = max(load.acknowledged.values())
        expect_true(f"{acknowledged} below {held}", acknowledged < held)
        expect_same_log(master, slave, 0, held)
        await master.start("SYNC_MASTER")
        begun = time.monotonic()
        await session.wait_answered_ok(load, master)
        case.note(f"SEND_OK {time.monotonic() - begun:.1f} s after it listens again")
        end = await wait_caught_up(client, master, slave)
        expect_same_log(master, slave, 0, end)


async def _settled(session: HaSession, slave: Member) -> HaStatusBody:
    """Wait until a slave whose master is gone has taken in what was on its way."""
    return await wait_state(session.client, slave, "connecting")


async def _read_from_slave(
    session: HaSession, members: Members, master: Member, slave: Member, load: Load, sent: Sent
) -> None:
    client = session.client
    with session.operation(PART, "master killed: a Java consumer reads everything from the slave"):
        await wait_caught_up(client, master, slave)
        await master.kill()
        await wait_listed(client, members, {1: slave.address})
        async with session.reader(members) as reader:
            history = [*sent.history, *sent.unread]
            expect_bodies(await reader.read_topic(HISTORY, count=len(history)), history)
            expect_bodies(await reader.read_topic(LATER, count=len(sent.later)), sent.later)
            loaded = await reader.read_topic(LOAD, count=len(load.stored))
            expect_held([message.body for message in loaded], load.stored, "stored")

    with session.operation(PART, "master killed: the C++ client reads everything from the slave"):
        expect_held(await session.read_with_cpp_client(members, LOAD), load.stored, "stored")

    with session.operation(PART, "master killed: a group goes on where it was"):
        async with (
            session.kit.driver(members.nameserver) as driver,
            driver.push_consumer("on", group=GROUP, topic=HISTORY) as consumer,
        ):
            await consumer.wait_received(len(sent.unread))
            expect_bodies(consumer.received, sent.unread)


async def _promote(session: HaSession, members: Members, slave: Member, sent: Sent) -> None:
    client = session.client
    with session.operation(PART, "promoted, stock nameserver: clients find it, offsets continue"):
        header = HaPromoteRequest(accept_loss=True, mode="ASYNC_MASTER")
        body = await ask(client, slave.address, RequestCode.HA_PROMOTE, header)
        expect("epoch", HaPromoteBody.decode(body).epoch, 2)
        expect("role", (await status(client, slave)).mode, "ASYNC_MASTER")
        await wait_listed(client, members, {0: slave.address})
        more = numbered(LATER, 40, start=len(sent.later) + len(sent.pending))
        async with session.kit.driver(members.nameserver) as driver:
            async with driver.producer("next") as producer:
                expect_ok(await producer.send(*more))
            async with driver.push_consumer("new", group="newcomers", topic=LATER) as consumer:
                wanted = [*sent.later, *sent.pending, *more]
                await consumer.wait_received(len(wanted))
                expect_bodies(consumer.received, wanted)
                expect_offsets_without_gap(consumer.received)
        # It never was at the former master: nothing may be given to it again.
        moved = "group newcomers asked for offset" in slave.log.read_text(errors="replace")
        expect_true("no moved offset of the new group", not moved)

    with session.operation(PART, "promoted: delayed messages of before come once"):
        async with session.reader(members) as reader:
            history = [*sent.history, *sent.unread]
            expect_bodies(await reader.read_topic(HISTORY, count=len(history)), history)
