"""Whose tables a slave takes, which offsets it takes for possible, and whether it is current."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
import trio

from rmq.broker.replication.metadata_status import CURRENT_S, Table, TableStatus
from rmq.broker.replication.metadata_sync import INTERVAL_S, RETRY_S
from rmq.broker.tables.offset_bounds import SPARE
from rmq.broker.transactions.half import GROUP as CHECKER
from rmq.model.names import HALF_TOPIC
from rmq.model.offsets import ConsumerOffset
from rmq.remoting.bodies import DelayOffsetSerializeWrapper, KVTable
from rmq.remoting.codes import RequestCode
from tests.broker.broker_frames import GROUP, TOPIC
from tests.broker.replication.sync_kit import (
    COPIED,
    MASTER,
    OTHER,
    Scripted,
    pair,
    reply,
    running,
    scripted,
    topics_body,
)
from tests.remoting.server_kit import Logs

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from tests.remoting.server_kit import Frame

HOST: Final = "client:1"
SECRET: Final = {"haSecret": "s" * 16}
FAR: Final = 4_611_686_018_427_387_904
OFFSETS: Final = RequestCode.GET_ALL_CONSUMER_OFFSET
GROUPS: Final = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
DELAYS: Final = RequestCode.GET_ALL_DELAY_OFFSET
INFO: Final = RequestCode.GET_BROKER_RUNTIME_INFO


# --- who is asked --------------------------------------------------------------------------------


async def test_with_a_secret_only_the_master_of_the_link_is_asked(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with scripted(tmp_path, SECRET) as link:
        link.sync.trust(None)
        link.sync.point_to(OTHER)  # a stranger, as the nameserver says
        assert link.sync.status.master is None
        async with running(link.sync.run):
            link.sync.news()
            await trio.sleep(60)
            assert link.master.asked == []
            link.sync.trust(MASTER)
            await trio.sleep(0.1)
            assert len(link.master.rounds) == 1
            link.sync.point_to(None)
            link.sync.point_to(OTHER)
            await trio.sleep(INTERVAL_S)
            assert len(link.master.rounds) == 2
            # The link ends.
            link.sync.trust(None)
            link.sync.news()
            await trio.sleep(60)
            assert len(link.master.rounds) == 2
        assert link.master.addresses == [MASTER]


async def test_without_a_secret_the_link_goes_before_the_nameserver(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with scripted(tmp_path) as link:
        link.sync.trust(None)
        assert link.sync.status.master == MASTER, "as long as no master of ours says more"
        async with running(link.sync.run):
            await trio.sleep(1)
            link.sync.trust(OTHER)
            link.sync.point_to(MASTER)
            await trio.sleep(INTERVAL_S)
            assert link.master.addresses == [MASTER, OTHER]
            assert link.sync.status.master == OTHER
            link.sync.trust("")  # a link whose other end does not say where it is
            assert link.sync.status.master == MASTER


async def test_where_masters_were_native_tables_come_over_a_native_link_or_not_at_all(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with scripted(tmp_path) as link:
        link.sync.trust(None, was_native=True)
        link.sync.point_to(OTHER)  # a stranger, as the nameserver says
        assert link.sync.status.master is None
        async with running(link.sync.run):
            link.sync.news()
            await trio.sleep(60)
            assert link.master.asked == []
            link.sync.trust(MASTER, was_native=True)
            await trio.sleep(0.1)
            assert link.master.addresses == [MASTER]


async def test_a_link_that_says_what_the_nameserver_says_disturbs_nothing(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with scripted(tmp_path) as link, running(link.sync.run):
        await trio.sleep(1)
        for told in (MASTER, None, MASTER):
            link.sync.trust(told)
            await trio.sleep(0.1)
        assert len(link.master.rounds) == 1


async def test_this_broker_is_not_its_own_master_by_whosever_word(tmp_path: Path) -> None:
    async with scripted(tmp_path) as link:
        link.sync.trust(link.slave.live.current.address)
        assert link.sync.status.master is None


async def test_a_master_that_stepped_down_is_asked_a_last_time(tmp_path: Path) -> None:
    async with scripted(tmp_path, SECRET) as link:
        link.sync.trust(None)
        assert not await link.sync.sync_last(), "nobody was ever proven"
        link.sync.trust(MASTER)
        link.sync.trust(None)
        assert not await link.sync.sync_now()
        assert await link.sync.sync_last()
        assert link.master.addresses == [MASTER]
        assert link.slave.offsets.query("billing", "Orders", 0) == 7


async def test_the_end_of_the_link_does_not_end_the_last_copy(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with scripted(tmp_path, SECRET) as link:
        link.sync.trust(MASTER)
        link.master.delays = dict.fromkeys(COPIED, 1.0)
        done: list[bool] = []

        async def last() -> None:
            done.append(await link.sync.sync_last())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(last)
            await trio.sleep(0.5)
            link.sync.trust(None)
        assert done == [True]
        # Another copy is not that important.
        link.sync.trust(MASTER)
        async with running(link.sync.run):
            await trio.sleep(0.5)
            before = link.sync.status.tables
            link.sync.trust(None)
            await trio.sleep(5)
            assert link.sync.status.tables == before


# --- what is possible ----------------------------------------------------------------------------


def offsets_of(link: Scripted, offset: int, log_end: int | None = None) -> None:
    """Let the master tell an offset, and where its log ends in the way of ours or of a stock one.

    There is a queue with 10 messages, and their group has read 5.
    """
    body = f'{{"offsetTable":{{"{TOPIC}@{GROUP}":{{0:{offset},1:7}}}}}}'.encode()
    extra = None if log_end is None else {"logEnd": str(log_end)}
    link.master.answers[OFFSETS] = lambda asked: reply(asked, body, extra=extra)


def fill(link: Scripted) -> None:
    link.slave.put_many(10)
    link.slave.core.flush()
    link.slave.offsets.commit(HOST, GROUP, TOPIC, 0, ConsumerOffset(5))


@pytest.mark.parametrize("is_stock", [False, True], ids=["ours", "stock"])
async def test_an_offset_that_cannot_be_is_not_taken_over(
    is_stock: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with scripted(tmp_path) as link:
        fill(link)
        end = link.slave.core.log.readable
        link.master.bodies[INFO] = KVTable(table={"commitLogMaxOffset": str(end)}).encode()
        offsets_of(link, FAR, None if is_stock else end)
        for _ in range(3):
            assert await link.sync.sync_now(), "it is no reason to be out of sync"
            assert link.slave.offsets.offsets(GROUP, TOPIC) == {0: 5, 1: 7}
        lines = [line for line in Logs(caplog).lines if "not taken over" in line]
        assert lines == [
            f"consumer offsets of {MASTER} that are far beyond the ends of their queues are not"
            f" taken over: {TOPIC}@{GROUP}, queue 0: {FAR}; reset these groups at the master"
        ]
        offsets_of(link, 9, end)
        assert await link.sync.sync_now()
        assert link.slave.offsets.query(GROUP, TOPIC, 0) == 9
        offsets_of(link, FAR, end)
        assert await link.sync.sync_now()
        assert len([line for line in Logs(caplog).lines if "not taken over" in line]) == 2


@pytest.mark.parametrize("is_stock", [False, True], ids=["ours", "stock"])
async def test_what_the_log_may_still_bring_is_possible(is_stock: bool, tmp_path: Path) -> None:
    """The slave is far behind, and all that is missing may be messages of one queue."""
    async with scripted(tmp_path) as link:
        fill(link)
        end = link.slave.core.log.readable + 200_000 * 200
        link.master.bodies[INFO] = KVTable(table={"commitLogMaxOffset": str(end)}).encode()
        offsets_of(link, 10 + 200_000, None if is_stock else end)
        assert await link.sync.sync_now()
        assert link.slave.offsets.query(GROUP, TOPIC, 0) == 10 + 200_000


async def test_a_queue_of_which_nothing_is_here_may_be_as_long_as_the_log(tmp_path: Path) -> None:
    """A slave that began with the last file of its master has no messages of some queues."""
    async with scripted(tmp_path) as link:
        offsets_of(link, 2 * SPARE, 2 * SPARE * 200)
        assert await link.sync.sync_now()
        assert link.slave.offsets.query(GROUP, TOPIC, 0) == 2 * SPARE


async def test_a_reset_to_what_cannot_be_is_not_followed(tmp_path: Path) -> None:
    async with scripted(tmp_path) as link:
        fill(link)
        body = (
            f'{{"offsetTable":{{"{TOPIC}@{GROUP}":{{0:{FAR},1:7}}}},'
            f'"resets":{{"{TOPIC}@{GROUP}":{{0:99,1:99}}}}}}'
        ).encode()
        link.slave.offsets.commit(HOST, GROUP, TOPIC, 1, ConsumerOffset(8))
        link.master.answers[OFFSETS] = lambda asked: reply(asked, body, extra={"logEnd": "0"})
        assert await link.sync.sync_now()
        assert link.slave.offsets.offsets(GROUP, TOPIC) == {0: 5, 1: 7}


async def test_progress_that_cannot_be_is_not_taken_over(tmp_path: Path) -> None:
    async with scripted(tmp_path) as link:
        body = f'{{"offsetTable":{{"{HALF_TOPIC}@{CHECKER}":{{0:{FAR}}}}}}}'.encode()
        link.master.bodies[OFFSETS] = body
        link.master.bodies[DELAYS] = DelayOffsetSerializeWrapper(offset_table={1: FAR}).encode()
        assert not await link.sync.sync_now()
        assert link.slave.offsets.query(CHECKER, HALF_TOPIC, 0) == -1
        assert link.slave.broker.delay.progress() == {}
        assert str(FAR) in (link.sync.status.tables[Table.DELAYS].error or "")


async def test_offsets_of_a_real_master_are_possible_however_far_the_slave_is_behind(
    tmp_path: Path,
) -> None:
    async with pair(tmp_path) as linked:
        linked.master.put_many(300)
        linked.master.offsets.commit(HOST, GROUP, TOPIC, 0, ConsumerOffset(SPARE + 300))
        for _ in range(2):
            await linked.copy()
            assert linked.slave.offsets.query(GROUP, TOPIC, 0) == SPARE + 300
            await linked.replicate()


# --- whether it is current -----------------------------------------------------------------------


def refuse(asked: Frame) -> bytes:
    return reply(asked, code=1, remark="not today")


async def test_a_slave_is_current_when_all_tables_are_copied(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with scripted(tmp_path) as link:
        sync = link.sync
        assert sync.why_not_current(trio.current_time()) == "topics: not copied yet"
        async with running(sync.run):
            assert sync.is_current(trio.current_time())
            link.master.answers[GROUPS] = refuse
            await trio.sleep(INTERVAL_S + 0.1)
            assert sync.status.tables[Table.GROUPS].error is not None
            assert sync.is_current(trio.current_time()), "once may be chance"
            await trio.sleep(RETRY_S)
            assert not sync.is_current(trio.current_time())
            why = sync.why_not_current(trio.current_time())
            assert why is not None
            assert why.startswith("groups: not copied: ")
            assert "not today" in why
            del link.master.answers[GROUPS]
            await trio.sleep(RETRY_S)
            assert sync.is_current(trio.current_time())


async def test_a_slave_that_asks_nobody_is_not_current(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with scripted(tmp_path, SECRET) as link:
        link.sync.trust(MASTER)
        assert await link.sync.sync_now()
        assert link.sync.is_current(trio.current_time())
        link.sync.trust(None)
        assert not link.sync.is_current(trio.current_time())
        # It is the same master again: what was copied is not older than it is.
        link.sync.trust(MASTER)
        assert link.sync.is_current(trio.current_time())
        await trio.sleep(CURRENT_S + 1)
        assert link.sync.why_not_current(trio.current_time()) == "topics: last copied 31 s ago"


async def test_what_was_copied_from_another_master_is_not_current(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with scripted(tmp_path) as link:
        assert await link.sync.sync_now()
        link.sync.point_to(OTHER)
        assert link.sync.why_not_current(trio.current_time()) == "topics: not copied yet"
        link.master.bodies[RequestCode.GET_ALL_TOPIC_CONFIG] = topics_body("Other", counter=9)
        assert await link.sync.sync_now()
        assert link.sync.is_current(trio.current_time())


def test_a_table_that_takes_long_to_copy_may_be_older() -> None:
    quick = TableStatus(100.0, None, took_s=1.0)
    slow = TableStatus(100.0, None, took_s=40.0)
    assert quick.why_not_current(130.0) is None
    assert quick.why_not_current(130.5) == "last copied 30 s ago"
    assert slow.why_not_current(220.0) is None
    assert slow.why_not_current(220.5) == "last copied 120 s ago"
