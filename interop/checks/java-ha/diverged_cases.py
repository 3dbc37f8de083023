"""Our slave and stock masters with another log: it may tell them nothing that they believe.

A stock SYNC_MASTER takes the first report of a slave for true and answers SEND_OK from then on for
messages that nobody has copied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio
from ha_load import Load
from ha_members import open_members
from ha_questions import expect_same_log, extent, status, wait_caught_up, wait_listed, wait_state
from ha_session import LOAD, HaSession
from ha_tap import open_tap

from interop.support.cases import expect, expect_true
from interop.support.cluster import Against
from interop.support.waiting import wait_until
from rmq.ha.protocol.wire import PREAMBLE, REPORT
from rmq.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from collections import Counter

    from ha_members import Member, Members
    from ha_tap import Tap

PART: Final = "another log"
NOT_REPLICATED: Final = frozenset(
    (ResponseCode.SLAVE_NOT_AVAILABLE, ResponseCode.FLUSH_SLAVE_TIMEOUT)
)


async def run_diverged_cases(session: HaSession) -> None:
    folder = session.folder / "diverged"
    async with open_members(folder, session.jars, Against.RMQ) as members:
        right = members.add(Against.STOCK, 0, "java-master")
        wrong = members.add(Against.STOCK, 0, "other-java-master")
        # The same broker to everyone, but for its log.
        wrong.port = right.port
        slave = members.add(Against.RMQ, 1, "our-slave")
        async with open_tap(right.ha_port) as tap:
            await right.start("SYNC_MASTER")
            await wait_listed(session.client, members, {0: right.address})
            await session.create_topics(members, right)
            await slave.start("SLAVE", {"haMasterAddress": tap.address})
            right_load = Load(session.client, LOAD)
            with session.operation(PART, "Java master, our nameserver: the slave follows"):
                await session.wait_answered_ok(right_load, right)
                expect("answers", dict(await right_load.send(right, 500)), {0: 500})
                end = await wait_caught_up(session.client, right, slave)
                expect_same_log(right, slave, 0, end)
            await right.stop()
            tap.said.clear()
            await _refuse(session, members, wrong, slave, tap)
            await wrong.stop()
            with session.operation(PART, "the right master is back: the slave follows, SEND_OK"):
                await right.start("SYNC_MASTER")
                await session.wait_answered_ok(right_load, right)
                end = await wait_caught_up(session.client, right, slave)
                expect_same_log(right, slave, 0, end)
                await wait_state(session.client, slave, "streaming")


async def _refuse(
    session: HaSession, members: Members, wrong: Member, slave: Member, tap: Tap
) -> None:
    client = session.client
    held = (await extent(client, slave)).end
    load = Load(client, LOAD)
    await wrong.start("SYNC_MASTER")
    await wait_listed(client, members, {0: wrong.address, 1: slave.address})
    with session.operation(PART, "ahead of the master: it stops and says nothing to it"):
        await wait_state(client, slave, "diverged")
        _expect_truth(await load.send(wrong, 10))
        expect_true("the slave longer", (await extent(client, wrong)).end < held)
        _expect_nothing_said(tap)

    with session.operation(PART, "shorter than the master, and different: the same") as case:
        while (await extent(client, wrong)).end < held + 10_000:
            _expect_truth(await load.send(wrong, 100))

        async def is_compared() -> bool:
            return "differ" in ((await status(client, slave)).last_error or "")

        await wait_until("the slave to find out", is_compared, timeout_s=20)
        _expect_truth(await load.send(wrong, 10))
        _expect_nothing_said(tap)
        case.note(f"{len(tap.said)} greetings, {dict(load.codes)}")

    with session.operation(PART, "it has lost nothing by it"):
        expect("end", (await extent(client, slave)).end, held)
        expect("state", (await status(client, slave)).state, "diverged")

    with session.operation(PART, "what it must never say makes a Java master answer SEND_OK"):
        stream = await trio.open_tcp_stream("127.0.0.1", wrong.ha_port)
        async with stream:
            await stream.send_all(REPORT.pack(10**12))
            await session.wait_answered_ok(load, wrong)


def _expect_truth(answers: Counter[int]) -> None:
    expect_true(
        f"nothing but {set(NOT_REPLICATED)} in {dict(answers)}", answers.keys() <= NOT_REPLICATED
    )


def _expect_nothing_said(tap: Tap) -> None:
    """A native greeting is no offset for a stock master; anything else would be one."""
    expect("said to the master", {bytes(line) for line in tap.said if line}, {PREAMBLE})
