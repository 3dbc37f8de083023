"""Tables of any size are copied: in parts, with others between the steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
import trio

from rmq.broker.handlers import tables
from rmq.broker.replication import metadata_sync
from rmq.broker.replication.metadata_status import Table
from rmq.broker.replication.metadata_sync import NEWS_PAUSE_S, RESTARTS_MAX
from rmq.broker.transactions.half import GROUP as CHECKER
from rmq.model.names import HALF_TOPIC
from rmq.model.offsets import ConsumerOffset
from rmq.remoting.bodies import ConsumerOffsetSerializeWrapper
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.layout import FRAME_BYTES_MAX
from tests.broker.broker_frames import GROUP, TOPIC, frame
from tests.broker.broker_kit import part_broker
from tests.broker.replication.sync_kit import (
    Pair,
    groups_body,
    pair,
    reply,
    running,
    scripted,
    topics_body,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from trio.testing import MockClock

    from rmq.remoting.command import Command
    from tests.remoting.server_kit import Frame

HOST: Final = "client:1"
LONG: Final = (
    "a-group-whose-name-was-made-up-by-a-framework-which-numbers-its-instances-" + "x" * 24
)
TOPICS: Final = RequestCode.GET_ALL_TOPIC_CONFIG
GROUPS: Final = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
OFFSETS: Final = RequestCode.GET_ALL_CONSUMER_OFFSET


def fill(linked: Pair, count: int) -> None:
    """Give the master the offsets of so many groups."""
    table = {f"{TOPIC}@{LONG}{number}": {0: number % 100} for number in range(count)}
    linked.master.offsets.merge(ConsumerOffsetSerializeWrapper(offset_table=table))


def answers(linked: Pair, monkeypatch: pytest.MonkeyPatch) -> list[Command]:
    """Return a list that gets every answer of the master from now on."""
    client = linked.sync._client
    found: list[Command] = []
    ask = client.request

    async def listen(
        address: str, code: RequestCode, *, timeout_s: float, extra: Mapping[str, str]
    ) -> Command:
        found.append(await ask(address, code, timeout_s=timeout_s, extra=extra))
        return found[-1]

    monkeypatch.setattr(client, "request", listen)
    return found


# --- offsets -------------------------------------------------------------------------------------


async def test_offsets_that_no_answer_holds_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mock_clock: MockClock
) -> None:
    async with pair(tmp_path) as linked:
        fill(linked, 150_000)
        linked.master.offsets.commit(HOST, GROUP, TOPIC, 0, ConsumerOffset(25))
        linked.master.offsets.commit(HOST, CHECKER, HALF_TOPIC, 0, ConsumerOffset(0))
        told = answers(linked, monkeypatch)
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(count)
            await linked.copy()
            nursery.cancel_scope.cancel()
        assert turns > 500
        assert linked.slave.offsets.to_body() == linked.master.offsets.to_body()
        sizes = [len(answer.body or b"") for answer in told]
        assert sum(sizes) > FRAME_BYTES_MAX
        assert max(sizes) < FRAME_BYTES_MAX // 8, "neither side holds more than a part"


async def test_offsets_that_are_committed_meanwhile_come_now_or_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_sync, "PART_BYTES", 2000)
    async with pair(tmp_path) as linked:
        master, slave = linked.master.offsets, linked.slave.offsets
        fill(linked, 100)
        await linked.copy()
        client, asked = linked.sync._client, 0
        ask = client.request

        async def meddle(
            address: str, code: RequestCode, *, timeout_s: float, extra: Mapping[str, str]
        ) -> Command:
            nonlocal asked
            if code == OFFSETS:
                asked += 1
                master.remove_group(f"{LONG}{asked}")
                master.commit(HOST, f"new-{asked}", TOPIC, 0, ConsumerOffset(asked))
                master.reset(HOST, f"{LONG}{99 - asked}", TOPIC, 0, ConsumerOffset(0))
            return await ask(address, code, timeout_s=timeout_s, extra=extra)

        monkeypatch.setattr(client, "request", meddle)
        await linked.copy()
        assert asked > 5
        untouched = [f"{LONG}{number}" for number in range(asked + 1, 99 - asked)]
        assert untouched
        for group in untouched:
            assert slave.query(group, TOPIC, 0) == master.query(group, TOPIC, 0) >= 0
        monkeypatch.setattr(client, "request", ask)
        await linked.copy()
        assert slave.to_body().offset_table == master.to_body().offset_table


async def test_a_copy_that_ends_in_the_middle_keeps_what_it_got_and_says_so(
    tmp_path: Path,
) -> None:
    async with scripted(tmp_path) as link:

        def halves(asked: Frame) -> bytes:
            if "partFrom" in (asked.fields or {}):
                return reply(asked, code=1, remark="not today")
            return reply(asked, b'{"offsetTable":{"a@g":{0:1}}}', extra={"partNext": "1:0:1"})

        link.master.answers[OFFSETS] = halves
        assert not await link.sync.sync_now()
        assert link.slave.offsets.offsets("g", "a") == {0: 1}
        status = link.sync.status.tables[Table.OFFSETS]
        assert status.copied_at is None
        assert "not today" in (status.error or "")


@pytest.mark.parametrize(
    ("code", "table", "body"),
    [
        (OFFSETS, Table.OFFSETS, b'{"offsetTable":{"a@g":{0:1}}}'),
        (TOPICS, Table.TOPICS, topics_body("Orders")),
    ],
    ids=["offsets", "topics"],
)
async def test_a_table_without_an_end_is_given_up(
    code: RequestCode, table: Table, body: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_sync, "PARTS_MAX", 20)
    async with scripted(tmp_path) as link:
        link.master.answers[code] = lambda asked: reply(asked, body, extra={"partNext": "1:0:1"})
        assert not await link.sync.sync_now()
        assert "within 20 parts" in (link.sync.status.tables[table].error or "")
        assert link.master.codes.count(code) == 20


# --- topics and groups ---------------------------------------------------------------------------


async def test_topics_and_groups_come_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_sync, "PART_BYTES", 20_000)
    async with pair(tmp_path) as linked:
        master, slave = linked.master, linked.slave
        for number in range(1500):
            master.create_topic(f"Topic-{number}", queues=1 + number % 7)
            master.change_group(f"group-{number}", retry_max_times=number)
        told = answers(linked, monkeypatch)
        await linked.copy()
        assert len(told) > 20
        assert max(len(answer.body or b"") for answer in told) < 21_000
        for mine, theirs in ((slave.topics, master.topics), (slave.groups, master.groups)):
            assert dict(mine.items()) == dict(theirs.items())
            assert mine.version == theirs.version


async def test_tables_that_the_slave_has_are_not_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pair(tmp_path) as linked:
        await linked.copy()
        told = answers(linked, monkeypatch)

        def same() -> list[int]:
            return [len(each.body or b"") for each in told if "sameVersion" in each.ext_fields]

        await linked.copy()
        assert same() == [0, 0]
        linked.master.create_topic("New")
        told.clear()
        await linked.copy()
        assert same() == [0]
        assert linked.slave.topics.get("New") is not None


def changing(versions: list[int], parts: int) -> Callable[[Frame], bytes]:
    """Answer in parts, each of the next version that is given; the last one stays."""

    def answer(asked: Frame) -> bytes:
        place = (asked.fields or {}).get("partFrom", "1:0:0")
        number = int(place.split(":")[2])
        version = versions.pop(0) if len(versions) > 1 else versions[0]
        body = topics_body(f"Topic-{number}-of-{version}", counter=version)
        is_end = number == parts - 1
        return reply(asked, body, extra=None if is_end else {"partNext": f"1:0:{number + 1}"})

    return answer


async def test_topics_that_change_between_two_parts_are_asked_for_anew(tmp_path: Path) -> None:
    async with scripted(tmp_path) as link:
        link.master.answers[TOPICS] = changing([5, 5, 6, 6], 3)
        assert await link.sync.sync_now()
        assert sorted(link.slave.topics.names()) == [f"Topic-{number}-of-6" for number in range(3)]
        assert link.slave.topics.version.counter == 6
        assert link.master.codes.count(TOPICS) == 3 + 3


async def test_topics_that_change_all_the_time_are_taken_and_asked_for_again_soon(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with scripted(tmp_path) as link:
        restless = list(range(10, 10 + 2 * RESTARTS_MAX + 3))
        first = restless[2 * RESTARTS_MAX]
        link.master.answers[TOPICS] = changing([*restless, 99], 3)
        async with running(link.sync.run):
            assert sorted(link.slave.topics.names()) == [
                f"Topic-{number}-of-{first + number}" for number in range(3)
            ]
            assert link.slave.topics.version.counter == first, "which no table of the master has"
            await trio.sleep(NEWS_PAUSE_S + 0.1)
            assert link.slave.topics.version.counter == 99
            assert sorted(link.slave.topics.names()) == [
                f"Topic-{number}-of-99" for number in range(3)
            ]


async def test_topics_without_end_take_a_bounded_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_sync, "TABLE_BYTES_MAX", 1000)
    async with scripted(tmp_path) as link:
        before = sorted(link.slave.groups.names())
        link.master.answers[GROUPS] = lambda asked: reply(
            asked, groups_body("billing"), extra={"partNext": "1:0:1"}
        )
        assert not await link.sync.sync_now()
        assert "larger than 1000 bytes" in (link.sync.status.tables[Table.GROUPS].error or "")
        assert sorted(link.slave.groups.names()) == before


# --- what masters answer -------------------------------------------------------------------------


@pytest.mark.parametrize("code", [TOPICS, GROUPS, OFFSETS])
async def test_a_stock_slave_is_told_that_a_table_is_too_large(
    code: RequestCode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with part_broker(tmp_path) as broker:
        for number in range(100):
            broker.offsets.commit(HOST, f"{LONG}{number}", TOPIC, 0, ConsumerOffset(1))
        whole = await broker.call(code)
        assert whole.code == ResponseCode.SUCCESS
        monkeypatch.setattr(tables, "_HEADER_BYTES", FRAME_BYTES_MAX - 500)
        answer = await broker.call(code)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "more than the 500 bytes that one answer holds" in (answer.remark or "")
        assert "delete" in (answer.remark or "")
        # And a slave of our own gets it all the same.
        answer = await broker.ask(frame(code, extra={"partBytes": "1000000"}))
        assert len(answer.body) == len(whole.body)


@pytest.mark.parametrize("code", [TOPICS, GROUPS, OFFSETS])
async def test_requests_for_parts_that_make_no_sense_are_refused(
    code: RequestCode, tmp_path: Path
) -> None:
    async with part_broker(tmp_path) as broker:
        for fields in ({"partBytes": "many"}, {"partBytes": "9", "partFrom": "there"}):
            answer = await broker.ask(frame(code, extra=fields))
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "is not" in (answer.remark or "")
