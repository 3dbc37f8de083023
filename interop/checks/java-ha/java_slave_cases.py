"""A stock slave of our master, under our nameserver."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import trio
from ha_load import Load
from ha_members import BROKER_NAME, SEGMENT_BYTES, open_members
from ha_questions import (
    CAUGHT_UP_S,
    expect_same_log,
    extent,
    logged_errors,
    saved_setting,
    status,
    wait_caught_up,
    wait_in_sync,
    wait_listed,
    wait_same_tables,
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
    expect_ok,
    numbered,
)

from interop.support.cases import expect, expect_true
from interop.support.cluster import CLUSTER, Against
from interop.support.waiting import wait_until
from rmq.ha.protocol.wire import REPORT
from rmq.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from ha_members import Member, Members

    from interop.support.java_client import Driver

PART: Final = "Java slave"
FORGED: Final = 10**12


async def run_java_slave_cases(session: HaSession) -> None:
    folder = session.folder / "java-slave"
    async with open_members(folder, session.jars, Against.RMQ) as members:
        master = members.add(Against.RMQ, 0, "our-master")
        slave = members.add(Against.STOCK, 1, "java-slave")
        await master.start("ASYNC_MASTER")
        await wait_listed(session.client, members, {0: master.address})
        await session.create_topics(members, master)
        load = Load(session.client, LOAD)
        async with session.kit.driver(members.nameserver) as driver:
            history = await session.make_history(driver)
            await _follow(session, members, master, slave, load)
            await _forge(session, master, slave, load)
            await _command(session, members, master, slave, driver)
            await _kill_master(session, master, slave, load)
            unread = numbered(HISTORY, 25, start=len(history))
            later = numbered(LATER, 50)
            async with driver.producer("last words") as producer:
                expect_ok(await producer.send(*unread, *later))
            with session.operation(PART, "topics, groups, consumer and delay offsets are the same"):
                tables = await wait_same_tables(session.client, master, slave)
                read = sum(tables.consumer_offsets[f"{HISTORY}@{GROUP}"].values())
                expect("messages that the group has read", read, len(history))
                expect("delayed messages delivered", tables.delay_offsets.get(1), DELAYED)

        with session.operation(PART, "master killed: Java consumers read everything from it"):
            end = await wait_caught_up(session.client, master, slave)
            await master.kill()
            expect_same_log(master, slave, 0, end)
            await wait_listed(session.client, members, {1: slave.address})
            async with session.reader(members) as reader:
                sent = [*history, *unread]
                expect_bodies(await reader.read_topic(HISTORY, count=len(sent)), sent)
                expect_bodies(await reader.read_topic(LATER, count=len(later)), later)
                loaded = await reader.read_topic(LOAD, count=len(load.stored))
                expect_held([message.body for message in loaded], load.stored, "stored")

        with session.operation(PART, "master killed: a group goes on where it was"):
            async with (
                session.kit.driver(members.nameserver) as driver,
                driver.push_consumer("on", group=GROUP, topic=HISTORY) as consumer,
            ):
                await consumer.wait_received(len(unread))
                expect_bodies(consumer.received, unread)

        await _meet_another(session, members, master, slave)
        with session.operation(PART, "no errors in its master's log"):
            expect("logged", logged_errors(master), [])


async def _follow(
    session: HaSession, members: Members, master: Member, slave: Member, load: Load
) -> None:
    client = session.client
    with session.operation(PART, "empty: gets everything from the oldest byte on") as case:
        begun = time.monotonic()
        await slave.start("SLAVE")
        await wait_listed(client, members, {0: master.address, 1: slave.address})
        end = await wait_caught_up(client, master, slave)
        case.note(f"{end} bytes {time.monotonic() - begun:.1f} s after its start")
        expect_true("several files of history", end > 3 * SEGMENT_BYTES)
        expect("beginning", (await extent(client, slave)).begin, 0)
        expect_same_log(master, slave, 0, end)
        (known,) = (await wait_in_sync(client, master)).slaves
        expect("native, connected", (known.native, known.connected), (False, True))

    with session.operation(PART, "ASYNC_MASTER: what is sent is copied"):
        expect("answers", dict(await load.send(master, 200)), {0: 200})
        await wait_caught_up(client, master, slave)

    with session.operation(PART, "master stopped, started as SYNC_MASTER: SEND_OK") as case:
        await master.stop()
        await master.start("SYNC_MASTER")
        begun = time.monotonic()
        await wait_in_sync(client, master)
        case.note(f"in sync {time.monotonic() - begun:.1f} s after it listens")
        expect("answers", dict(await load.send(master, 100)), {0: 100})

    with session.operation(PART, "stopped: SLAVE_NOT_AVAILABLE; started: SEND_OK") as case:
        await slave.stop()
        expect("answers", dict(await load.send(master, 3)), {ResponseCode.SLAVE_NOT_AVAILABLE: 3})
        await slave.start("SLAVE")
        begun = time.monotonic()
        await wait_in_sync(client, master)
        case.note(f"in sync {time.monotonic() - begun:.1f} s after it listens")
        expect("answers", dict(await load.send(master, 20)), {0: 20})
        expect_same_log(master, slave, 0, await wait_caught_up(client, master, slave))

    with session.operation(PART, "killed under load: goes on where it was"):
        await session.load_and_kill(load, master, slave)
        await load.send(master, 100)
        await slave.start("SLAVE")
        await wait_in_sync(client, master)
        expect("answers", dict(await load.send(master, 20)), {0: 20})
        expect_same_log(master, slave, 0, await wait_caught_up(client, master, slave))


async def _forge(session: HaSession, master: Member, slave: Member, load: Load) -> None:
    client = session.client
    with session.operation(PART, "forged reports beside it: cut off, and count for nothing"):
        end = (await extent(client, master)).end
        await _expect_cut_off(master, [FORGED])
        await _expect_cut_off(master, [end, FORGED])
        found = await status(client, master)
        expect("forged", found.counters["forged"], 2)
        expect("in sync", len(found.in_sync), 1)
        expect("answers", dict(await load.send(master, 20)), {0: 20})
        await slave.kill()
        await _expect_cut_off(master, [FORGED])
        answers = await load.send(master, 3)
        expect("answers", dict(answers), {ResponseCode.SLAVE_NOT_AVAILABLE: 3})
        await slave.start("SLAVE")
        await wait_in_sync(client, master)
        expect("answers", dict(await load.send(master, 20)), {0: 20})


async def _expect_cut_off(master: Member, reports: list[int]) -> None:
    """Say something that cannot be true; the master must hang up."""
    stream = await trio.open_tcp_stream("127.0.0.1", master.ha_port)
    async with stream:
        with trio.fail_after(5):
            for report in reports:
                await stream.send_all(REPORT.pack(report))
                await trio.sleep(0.05)
            try:
                while await stream.receive_some(65_536):
                    pass
            except trio.BrokenResourceError:
                return


async def _command(
    session: HaSession, members: Members, master: Member, slave: Member, driver: Driver
) -> None:
    async def mqadmin(*arguments: str) -> str:
        printed = await driver.ask(
            "mqadmin", arguments=[arguments[0], "-n", members.nameserver, *arguments[1:]]
        )
        expect_true(
            f"no exception in {printed['errors'][-500:]}", "Exception" not in printed["errors"]
        )
        return str(printed["output"])

    client = session.client
    with session.operation("mqadmin", "clusterList: master and slave"):
        rows = [line.split() for line in (await mqadmin("clusterList")).splitlines()]
        brokers = {row[2]: row[3] for row in rows if row[:2] == [CLUSTER, BROKER_NAME]}
        expect("brokers", brokers, {"0": master.address, "1": slave.address})

    with session.operation("mqadmin", "brokerStatus: the same end of the log on both"):
        ends = []
        for member in (master, slave):
            output = await mqadmin("brokerStatus", "-b", member.address)
            rows = [line.split() for line in output.splitlines()]
            ends += [row[-1] for row in rows if row[:1] == ["commitLogMaxOffset"]]
        expect("ends", ends, [str((await extent(client, master)).end)] * 2)

    with session.operation("mqadmin", "getBrokerConfig: of a cluster with a slave"):
        output = await mqadmin("getBrokerConfig", "-c", CLUSTER)
        for line in (
            f"============Master: {master.address}============",
            f"============My Master: {master.address}=====Slave: {slave.address}============",
        ):
            expect_true(f"{line!r} in {output[:300]!r}", line in output)

    with session.operation("mqadmin", "updateBrokerConfig: brokerRole of a master, both ways"):
        for role, mode in (("ASYNC_MASTER", "ASYNC_MASTER"), ("SYNC_MASTER", "SYNC_MASTER")):
            update = ("updateBrokerConfig", "-b", master.address, "-k", "brokerRole", "-v", role)
            expect_true("success", "update broker config success" in await mqadmin(*update))
            expect("mode", (await status(client, master)).mode, mode)
            expect("saved", saved_setting(master, "brokerRole"), role)
        expect("in sync", len((await status(client, master)).in_sync), 1)


async def _meet_another(
    session: HaSession, members: Members, master: Member, slave: Member
) -> None:
    """Start a master with an empty store in the place of the one that was killed."""
    client = session.client
    held = (await extent(client, slave)).end
    other = members.add(Against.RMQ, 0, "our-other-master")
    other.port = master.port
    with session.operation(PART, "ahead of another master: cut off, and counts for nothing"):
        await other.start("SYNC_MASTER")

        async def is_met() -> bool:
            return (await status(client, other)).counters.get("forged", 0) > 0

        await wait_until("the slave to call", is_met, timeout_s=CAUGHT_UP_S)
        load = Load(client, LOAD)
        expect("answers", dict(await load.send(other, 5)), {ResponseCode.SLAVE_NOT_AVAILABLE: 5})
        expect("in sync", (await status(client, other)).in_sync, ())
        expect("end of the slave", (await extent(client, slave)).end, held)


async def _kill_master(session: HaSession, master: Member, slave: Member, load: Load) -> None:
    client = session.client
    with session.operation(PART, "SYNC_MASTER killed under load: what was SEND_OK is here") as case:
        await session.load_and_kill(load, master, master)
        ends: list[int] = []

        async def is_settled() -> bool:
            await trio.sleep(0.2)
            ends.append((await extent(client, slave)).end)
            return ends[-2:] == [ends[-1]] * 2

        await wait_until("the slave to settle", is_settled)
        acknowledged = max(load.acknowledged.values())
        expect_true(f"{acknowledged} below {ends[-1]}", acknowledged < ends[-1])
        expect_same_log(master, slave, 0, ends[-1])
        await master.start("SYNC_MASTER")
        begun = time.monotonic()
        await wait_in_sync(client, master)
        case.note(f"in sync {time.monotonic() - begun:.1f} s after it listens again")
        expect("answers", dict(await load.send(master, 50)), {0: 50})
        expect_same_log(master, slave, 0, await wait_caught_up(client, master, slave))
