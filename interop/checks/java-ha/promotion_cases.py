"""Our pair under a stock nameserver: a planned promotion, and an old master that comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ha_load import Load
from ha_members import open_members
from ha_questions import (
    ask,
    expect_same_log,
    status,
    wait_caught_up,
    wait_in_sync,
    wait_listed,
)
from ha_session import (
    LATER,
    LOAD,
    HaSession,
    expect_bodies,
    expect_offsets_without_gap,
    expect_ok,
    numbered,
)

from interop.support.cases import expect, expect_true
from interop.support.cluster import Against
from interop.support.waiting import wait_until
from rmq.remoting.bodies import HaPromoteBody
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import HaPromoteRequest
from rmq.store.core import Refusal

if TYPE_CHECKING:
    from ha_members import Member, Members

    from interop.support.java_messages import Outgoing

PART: Final = "stock nameserver"


async def run_promotion_cases(session: HaSession) -> None:
    client = session.client
    folder = session.folder / "promotion"
    async with open_members(folder, session.jars, Against.STOCK) as members:
        one = members.add(Against.RMQ, 0, "one")
        two = members.add(Against.RMQ, 1, "two")
        await one.start("SYNC_MASTER")
        await two.start("SLAVE")
        with session.operation(PART, "our master and slave find each other"):
            await wait_listed(client, members, {0: one.address, 1: two.address})
            await wait_in_sync(client, one)
            await session.create_topics(members, one)
        sent = numbered(LATER, 40)
        with session.operation(PART, "planned promotion: nothing is lost, producers go on"):
            async with (
                session.kit.driver(members.nameserver) as driver,
                driver.producer("steady") as producer,
            ):
                expect_ok(await producer.send(*sent))
                promoted = await _promote(session, two)
                expect("missing", promoted.missing_bytes, 0)
                # The ids of before are both taken while the roles change.
                await wait_listed(client, members, {0: two.address, 2: one.address})
                await wait_in_sync(client, two)
            sent += await _send_more(session, members, start=len(sent))
            await _expect_all(session, members, sent)
            expect_same_log(one, two, 0, await wait_caught_up(client, two, one))

        with session.operation(PART, "master killed, slave promoted, old one back: it is fenced"):
            load = Load(client, LOAD)
            expect("answers", dict(await load.send(two, 20)), {0: 20})
            await two.kill()
            await wait_listed(client, members, {2: one.address})
            promoted = await _promote(session, one)
            expect("epoch", promoted.epoch, 3)
            await wait_listed(client, members, {0: one.address})
            sent += await _send_more(session, members, start=len(sent))
            await two.start_again()
            # It listens, and may take nothing from anyone from this moment on.
            refused = {int(ResponseCode.SERVICE_NOT_AVAILABLE): 5}
            expect("answers", dict(await load.send(two, 5)), refused)

            async def is_fenced() -> bool:
                return (await status(client, two)).state == Refusal.FENCED.value

            await wait_until("the old master to be fenced", is_fenced, timeout_s=15)
            await wait_listed(client, members, {0: one.address})
            expect("answers", dict(await load.send(two, 5)), refused)
            await _expect_all(session, members, sent)


async def _promote(session: HaSession, slave: Member) -> HaPromoteBody:
    header = HaPromoteRequest(mode="SYNC_MASTER")
    body = await ask(session.client, slave.address, RequestCode.HA_PROMOTE, header)
    return HaPromoteBody.decode(body)


async def _send_more(session: HaSession, members: Members, *, start: int) -> list[Outgoing]:
    """Send with a client that has just been started."""
    more = numbered(LATER, 40, start=start)
    async with (
        session.kit.driver(members.nameserver) as driver,
        driver.producer("next") as producer,
    ):
        for answer in await producer.send(*more):
            expect_true(answer.status, answer.status in ("SEND_OK", "SLAVE_NOT_AVAILABLE"))
    return more


async def _expect_all(session: HaSession, members: Members, sent: list[Outgoing]) -> None:
    async with session.reader(members) as reader:
        received = await reader.read_topic(LATER, count=len(sent))
        expect_bodies(received, sent)
        expect_offsets_without_gap(received)
