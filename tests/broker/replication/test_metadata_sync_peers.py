"""Masters that are stock, slow, broken or gone, and when a slave asks them."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from rmq.broker.replication.metadata_status import Table
from rmq.broker.replication.metadata_sync import INTERVAL_S, NEWS_PAUSE_S, RETRY_S, TIMEOUT_S
from rmq.broker.transactions.half import GROUP as CHECKER
from rmq.model.names import HALF_TOPIC
from rmq.model.offsets import ConsumerOffset, PhysicalOffset
from rmq.remoting.bodies import KVTable
from rmq.remoting.codes import RequestCode
from tests.broker.replication.sync_kit import (
    COPIED,
    MASTER,
    OTHER,
    ScriptedMaster,
    groups_body,
    reply,
    running,
    scripted,
    topics_body,
)
from tests.remoting.server_kit import Logs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from trio.testing import MockClock

    from tests.remoting.server_kit import Frame

TOPICS: Final = RequestCode.GET_ALL_TOPIC_CONFIG
GROUPS: Final = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
OFFSETS: Final = RequestCode.GET_ALL_CONSUMER_OFFSET
DELAYS: Final = RequestCode.GET_ALL_DELAY_OFFSET
INFO: Final = RequestCode.GET_BROKER_RUNTIME_INFO

TABLES: Final = dict(zip(COPIED, Table, strict=True))
NAMES: Final = [table.value for table in Table]
COPY: Final[dict[int, object]] = {
    TOPICS: ["Orders"],
    GROUPS: ["billing"],
    OFFSETS: {"Orders@billing": {0: 7, 1: 8}},
    DELAYS: {1: 3},
}


# --- stock masters -------------------------------------------------------------------------------


async def test_a_stock_master_is_copied(tmp_path: Path) -> None:
    async with scripted(tmp_path) as link:
        assert await link.sync.sync_now()
        assert link.seen() == COPY
        status = link.sync.status
        assert status.master == MASTER
        assert set(status.tables) == set(Table)
        assert all(
            table.error is None and table.copied_at is not None for table in status.tables.values()
        )
        # It does not say by itself where its log ends.
        assert sorted(link.master.codes) == sorted([*COPIED, INFO])


async def test_the_progress_of_a_stock_master_waits_for_its_log(tmp_path: Path) -> None:
    async with scripted(tmp_path) as link:
        link.master.bodies[OFFSETS] = (
            f'{{"offsetTable":{{"{HALF_TOPIC}@{CHECKER}":{{0:5}}}}}}'.encode()
        )
        link.master.bodies[INFO] = KVTable(table={"commitLogMaxOffset": "300"}).encode()
        assert await link.sync.sync_now()
        assert link.seen() == COPY | {OFFSETS: {}, DELAYS: {}}
        assert link.sync.status.awaited_end == 300
        link.slave.store.append_raw(PhysicalOffset(0), bytes(299))
        link.sync.take_reached()
        assert link.seen()[DELAYS] == {}
        link.slave.store.append_raw(PhysicalOffset(299), bytes(1))
        link.sync.take_reached()
        assert link.seen()[DELAYS] == {1: 3}
        assert link.slave.offsets.query(CHECKER, HALF_TOPIC, 0) == 5


@pytest.mark.parametrize(
    "table",
    [{}, {"commitLogMaxOffset": "-5"}, {"commitLogMaxOffset": "many"}],
    ids=["nothing", "negative", "words"],
)
async def test_progress_without_an_end_of_the_log_is_not_taken(
    table: dict[str, str], tmp_path: Path
) -> None:
    async with scripted(tmp_path) as link:
        link.master.bodies[INFO] = KVTable(table=table).encode()
        assert not await link.sync.sync_now()
        assert link.seen() == COPY | {DELAYS: {}}
        assert "where its log ends" in (link.sync.status.tables[Table.DELAYS].error or "")
        assert link.sync.status.tables[Table.OFFSETS].error is None


async def test_offsets_of_a_stock_master_only_grow(tmp_path: Path) -> None:
    async with scripted(tmp_path) as link:
        link.slave.offsets.commit("client", "billing", "Orders", 0, ConsumerOffset(50))
        link.slave.offsets.commit("client", "billing", "Orders", 9, ConsumerOffset(1))
        assert await link.sync.sync_now()
        assert link.slave.offsets.offsets("billing", "Orders") == {0: 50, 1: 8, 9: 1}


# --- broken masters ------------------------------------------------------------------------------


def refuse(asked: Frame) -> bytes:
    return reply(asked, code=1, remark="not today")


def cut_off(asked: Frame) -> bytes:
    whole = reply(asked, b'{"offsetTable":{"Orders@billing":{0:7}}}' * 100)
    return whole[: len(whole) // 2] + ScriptedMaster.CUT


def silent(_asked: Frame) -> None:
    return None


def body(data: bytes) -> Callable[[Frame], bytes]:
    return lambda asked: reply(asked, data)


BROKEN: Final[dict[str, Callable[[Frame], bytes | None]]] = {
    "error": refuse,
    "no body": body(b""),
    "no JSON": body(b"\x00\x01garbage"),
    "cut JSON": body(b'{"offsetTable":{"Orders@billing":{0:99'),
    "another shape": body(b'{"offsetTable":[1],"topicConfigTable":7,"subscriptionGroupTable":7}'),
    "bad row": body(
        b'{"offsetTable":{1:9,"Orders@billing":{0:1},"z":{0:9223372036854775808}},'
        b'"topicConfigTable":{"Good":{"topicName":"Good"},"Bad":{"perm":"x"}},'
        b'"subscriptionGroupTable":{"good":{"groupName":"good"},"bad":{"groupName":[]}}}'
    ),
    "silence": silent,
    "gone": lambda _asked: ScriptedMaster.CUT,
    "gone in the middle": cut_off,
}


@pytest.mark.parametrize("how", BROKEN)
@pytest.mark.parametrize("code", COPIED, ids=NAMES)
async def test_what_is_wrong_with_one_table_changes_nothing_of_it_and_spares_the_others(
    code: RequestCode, how: str, tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with scripted(tmp_path) as link:
        before = link.seen()
        link.master.answers[code] = BROKEN[how]
        is_complete = await link.sync.sync_now()
        assert not is_complete
        seen = link.seen()
        assert seen[code] == before[code]
        status = link.sync.status.tables[TABLES[code]]
        assert status.error
        assert status.copied_at is None
        if not how.startswith("gone"):  # with the connection, all that was asked over it is lost
            assert seen == COPY | {code: before[code]}
        # And when it is well again it is copied.
        del link.master.answers[code]
        assert await link.sync.sync_now()
        assert link.seen() == COPY


@pytest.mark.parametrize(
    ("code", "empty"),
    [
        (TOPICS, b"{}"),
        (TOPICS, b'{"dataVersion":{"counter":9,"timestamp":9},"topicConfigTable":{}}'),
        (GROUPS, b"{}"),
        (GROUPS, b'{"dataVersion":{"counter":9,"timestamp":9}}'),
    ],
)
async def test_a_master_without_topics_or_groups_is_not_believed(
    code: RequestCode, empty: bytes, tmp_path: Path
) -> None:
    async with scripted(tmp_path) as link:
        before = link.seen()[code]
        link.master.bodies[code] = empty
        assert not await link.sync.sync_now()
        assert link.seen() == COPY | {code: before}
        assert "every broker has some" in (link.sync.status.tables[TABLES[code]].error or "")


async def test_a_long_table_that_breaks_off_changes_nothing(tmp_path: Path) -> None:
    async with scripted(tmp_path) as link:
        rows = ",".join(f'"topic-{number}@group":{{0:{number}}}' for number in range(20_000))
        whole = f'{{"offsetTable":{{{rows}}}}}'.encode()
        for data in (whole[:-3], whole.replace(b"19999}", b'"x"}'), whole.replace(b":{0:7}", b"")):
            link.master.bodies[OFFSETS] = data
            assert not await link.sync.sync_now()
            assert link.seen()[OFFSETS] == {}
            assert "not plain" in (link.sync.status.tables[Table.OFFSETS].error or "")
        link.master.bodies[OFFSETS] = whole
        assert await link.sync.sync_now()
        assert len(link.slave.offsets) == 20_000


async def test_errors_are_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "rmq.broker.replication.metadata_sync")
    async with scripted(tmp_path) as link:
        link.master.answers[GROUPS] = refuse
        for _ in range(3):
            assert not await link.sync.sync_now()
        (line,) = Logs(caplog).lines
        assert line.startswith(f"groups not copied from {MASTER}: ")
        assert "not today" in line
        link.master.answers[GROUPS] = silent_code
        assert not await link.sync.sync_now()
        assert len(Logs(caplog).lines) == 2
        del link.master.answers[GROUPS]
        assert await link.sync.sync_now()
        assert f"groups copied from {MASTER}" in caplog.messages


def silent_code(asked: Frame) -> bytes:
    return reply(asked, code=14)


# --- when ----------------------------------------------------------------------------------------


async def test_a_slave_asks_at_once_and_then_every_ten_seconds(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with scripted(tmp_path) as link:
        start = trio.current_time()
        async with running(link.sync.run):
            await trio.sleep(INTERVAL_S * 3 + 1)
        assert [time - start for time in link.master.rounds] == pytest.approx(
            [0, INTERVAL_S, 2 * INTERVAL_S, 3 * INTERVAL_S], abs=0.1
        )
        assert link.master.addresses == [MASTER], "one connection does for all of it"


async def test_without_a_master_nobody_is_asked(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with scripted(tmp_path) as link:
        link.sync.point_to(None)
        assert not await link.sync.sync_now()
        async with running(link.sync.run):
            link.sync.news()
            await trio.sleep(60)
            assert link.master.asked == []
            link.sync.point_to(link.slave.live.current.address)  # itself
            await trio.sleep(60)
            assert link.master.asked == []
            link.sync.point_to(MASTER)
            await trio.sleep(0.1)
            assert len(link.master.rounds) == 1
            link.sync.point_to(None)
            await trio.sleep(60)
            assert len(link.master.rounds) == 1
        assert link.seen() == COPY, "what was copied stays"


async def test_news_are_copied_soon_and_many_of_them_together(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with scripted(tmp_path) as link, running(link.sync.run):
        start = trio.current_time()
        assert len(link.master.rounds) == 1
        await trio.sleep(5)
        link.master.bodies[TOPICS] = topics_body("Orders", "New", counter=6)
        link.sync.news()
        await trio.sleep(0.01)
        assert link.seen()[TOPICS] == ["New", "Orders"]
        for _ in range(100):
            link.sync.news()
            await trio.sleep(0.01)
        rounds = [time - start for time in link.master.rounds]
        assert 1 + 1 + 4 <= len(rounds) <= 1 + 1 + 6
        gaps = [later - earlier for earlier, later in pairwise(rounds[1:])]
        assert min(gaps) >= NEWS_PAUSE_S
        await trio.sleep(3 * INTERVAL_S)
        assert 2 <= len(link.master.rounds) - len(rounds) <= 4


async def test_copies_that_take_long_leave_nine_tenths_of_the_time(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with scripted(tmp_path) as link:
        link.master.delays[OFFSETS] = 0.5
        async with running(link.sync.run):
            until = trio.current_time() + 60
            while trio.current_time() < until:
                link.sync.news()
                await trio.sleep(0.05)
        rounds = link.master.rounds
        gaps = [later - earlier for earlier, later in pairwise(rounds)]
        assert min(gaps) >= 5.0
        assert max(gaps) <= 5.5


async def test_after_a_failure_it_is_tried_again_soon(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with scripted(tmp_path) as link:
        link.master.answers[GROUPS] = refuse
        start = trio.current_time()
        async with running(link.sync.run):
            await trio.sleep(RETRY_S * 3 + 0.5)
            assert [time - start for time in link.master.rounds] == pytest.approx(
                [0, RETRY_S, 2 * RETRY_S, 3 * RETRY_S], abs=0.1
            )
            assert link.seen()[GROUPS] != ["billing"]
            del link.master.answers[GROUPS]
            await trio.sleep(RETRY_S)
            assert link.seen() == COPY


async def test_a_silent_master_does_not_hold_up_the_tables_it_answers(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with scripted(tmp_path) as link:
        link.master.answers[TOPICS] = silent
        async with running(link.sync.run):
            await trio.sleep(1)
            assert link.seen()[OFFSETS] == COPY[OFFSETS]
            assert link.seen()[DELAYS] == COPY[DELAYS]
            await trio.sleep(TIMEOUT_S)
            assert "within" in (link.sync.status.tables[Table.TOPICS].error or "")


async def test_a_new_master_is_asked_at_once_and_the_old_one_forgotten(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with scripted(tmp_path) as link:
        link.master.delays[TOPICS] = 5.0
        async with running(link.sync.run):
            await trio.sleep(1)
            # The answer of the first one is on its way, and will not be waited for.
            link.sync.point_to(OTHER)
            link.master.delays.clear()
            link.master.bodies[TOPICS] = topics_body("Other", counter=9)
            link.master.bodies[GROUPS] = groups_body("other", counter=9)
            await trio.sleep(0.1)
            assert link.master.addresses == [MASTER, OTHER]
            assert link.seen()[TOPICS] == ["Other"]
            assert link.seen()[GROUPS] == ["other"]
            await trio.sleep(6)
            assert link.seen()[TOPICS] == ["Other"]
            assert link.sync.status.master == OTHER


async def test_progress_that_waits_is_taken_as_soon_as_the_log_is_there(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with scripted(tmp_path) as link:
        link.master.bodies[INFO] = KVTable(table={"commitLogMaxOffset": "100"}).encode()
        async with running(link.sync.run):
            assert link.seen()[DELAYS] == {}
            link.slave.store.append_raw(PhysicalOffset(0), bytes(100))
            await trio.sleep(0.3)
            assert link.seen()[DELAYS] == {1: 3}
            assert len(link.master.rounds) == 1


async def test_progress_of_another_master_does_not_count(tmp_path: Path) -> None:
    async with scripted(tmp_path) as link:
        link.master.bodies[INFO] = KVTable(table={"commitLogMaxOffset": "100"}).encode()
        assert await link.sync.sync_now()
        link.sync.point_to(None)
        assert link.sync.status.awaited_end == 100, "a promotion may still need it"
        link.sync.point_to(MASTER)
        assert link.sync.status.awaited_end == 100
        link.sync.point_to(OTHER)
        link.slave.store.append_raw(PhysicalOffset(0), bytes(100))
        link.sync.take_reached()
        assert link.seen()[DELAYS] == {}


async def test_copying_may_be_stopped_and_begun_again_at_any_time(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with scripted(tmp_path) as link:
        link.master.delays = dict.fromkeys(COPIED, 0.3)
        for stop_after in (0.0, 0.1, 0.31, 1.0):
            async with running(link.sync.run):
                await trio.sleep(stop_after)
            await wait_all_tasks_blocked()
        async with running(link.sync.run):
            await trio.sleep(5)
        assert link.seen() == COPY
