"""Brokers that answer nonsense, move offsets or drop connections, and clocks that jump."""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trio

from rmq.client.core.config import ClientConfig
from rmq.client.trio.opening import open_push_consumer
from rmq.remoting.bodies import BrokerData, QueueData, TopicRouteData
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.server import RemotingServer, ServerConfig
from tests.client.cluster_kit import cluster
from tests.client.pull_kit import (
    TOPIC,
    ScriptedBroker,
    no_new,
    numbered,
    place,
    put,
    queue,
    scripted_broker,
    until,
)
from tests.client.push_kit import GROUP, Collector, committed, consumer, wait_shared
from tests.store.built_records import build_record

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path
    from typing import Any, Unpack

    from rmq.client.core.consuming.config import PushConsumerOptions
    from rmq.client.tasks.push_consumer import PushConsumer
    from rmq.remoting.headers import PullMessageRequest
    from rmq.remoting.request import Request

    Pull = Callable[[Request[PullMessageRequest]], None]


@asynccontextmanager
async def consumer_of(
    it: ScriptedBroker, listener: Collector, **options: Unpack[PushConsumerOptions]
) -> AsyncIterator[PushConsumer]:
    options.setdefault("pull_pause_s", 0.05)
    options.setdefault("offset_commit_s", 0.05)
    async with open_push_consumer(
        ClientConfig(nameservers=it.address, request_timeout_s=1.0),
        GROUP,
        TOPIC,
        listener,
        **options,
    ) as running:
        yield running


def record(offset: int) -> bytes:
    return build_record(topic=TOPIC.encode(), queue_id=0, queue_offset=offset, body=b"m%d" % offset)


def found(*offsets: int, next_offset: int | None = None) -> Pull:
    """Answer with messages of these offsets."""
    following = offsets[-1] + 1 if next_offset is None else next_offset

    def answer(request: Request[PullMessageRequest]) -> None:
        request.reply(place(following), body=b"".join(map(record, offsets)))

    return answer


def answered(code: int, next_offset: int | None = None, body: bytes | None = None) -> Pull:
    """Answer so; without an offset there is no header."""

    def answer(request: Request[PullMessageRequest]) -> None:
        header = None if next_offset is None else place(next_offset)
        request.reply(header, code=code, body=body, remark="as the test says")

    return answer


def dropped(request: Request[PullMessageRequest]) -> None:
    request.channel.close("the broker died")


def in_turn(*answers: Pull) -> Pull:
    """Answer one after the other; then no pull is answered."""
    left = list(answers)

    def answer(request: Request[PullMessageRequest]) -> None:
        (left.pop(0) if left else no_new)(request)

    return answer


def pulled_from(it: ScriptedBroker) -> list[int]:
    return [int(asked.fields["queueOffset"]) for asked in it.asked_for(RequestCode.PULL_MESSAGE)]


# --- what is asked for -----------------------------------------------------------------------


async def test_pulls_are_those_of_a_stock_consumer() -> None:
    async with scripted_broker() as it:
        it.offsets[0] = 7
        it.on_pull = in_turn(found(7, 8))
        seen = Collector()
        async with consumer_of(it, seen):
            await seen.wait("m7", "m8")
            await until(lambda: len(pulled_from(it)) == 2)
        first, second = (asked.fields for asked in it.asked_for(RequestCode.PULL_MESSAGE))
        heartbeat = it.heartbeats()[-1].consumer_data_set[0]
        (data,) = (each for each in heartbeat.subscription_data_set if each.topic == TOPIC)
        assert first == {
            "consumerGroup": GROUP,
            "topic": TOPIC,
            "queueId": "0",
            "queueOffset": "7",
            "maxMsgNums": "32",
            "sysFlag": "3",
            "commitOffset": "7",
            "suspendTimeoutMillis": "15000",
            "subVersion": str(data.sub_version),
            "expressionType": "TAG",
            "bname": "broker-a",
        }
        assert (second["queueOffset"], second["sysFlag"]) == ("9", "3")
        # Stored one-way while it runs, with an answer at its end, and said good-bye.
        updates = it.asked_for(RequestCode.UPDATE_CONSUMER_OFFSET)
        assert updates[-1].fields["commitOffset"] == "9"
        assert not updates[-1].is_oneway
        assert len(it.asked_for(RequestCode.UNREGISTER_CLIENT)) >= 1
        assert it.offsets == {0: 9}


async def test_a_new_group_commits_nothing_before_it_has_consumed() -> None:
    async with scripted_broker() as it:
        async with consumer_of(it, Collector()) as running:
            await until(lambda: pulled_from(it))
            assert running.consumed_offsets(TOPIC) == {}
        # Behind the last message, as it is configured.
        assert pulled_from(it) == [100]
        (asked,) = it.asked_for(RequestCode.PULL_MESSAGE)
        assert (asked.fields["sysFlag"], asked.fields["commitOffset"]) == ("2", "0")
        assert it.offsets == {}


# --- nonsense --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(answered(ResponseCode.SUCCESS, 2, b"garbage" * 50), id="garbage"),
        pytest.param(answered(ResponseCode.SUCCESS, 2), id="no body"),
        pytest.param(answered(ResponseCode.SUCCESS, None, record(0)), id="no header"),
        pytest.param(answered(ResponseCode.SUCCESS, 2, record(0)[:-3]), id="cut off"),
        pytest.param(answered(ResponseCode.SUBSCRIPTION_NOT_LATEST), id="not latest"),
        pytest.param(answered(ResponseCode.FLOW_CONTROL), id="busy"),
        pytest.param(answered(ResponseCode.SYSTEM_ERROR), id="error"),
        pytest.param(answered(12345), id="no such code"),
        pytest.param(answered(ResponseCode.PULL_OFFSET_MOVED, -5), id="moved to nowhere"),
        pytest.param(answered(ResponseCode.PULL_OFFSET_MOVED, 0), id="moved to where it is"),
        pytest.param(answered(ResponseCode.PULL_RETRY_IMMEDIATELY, 0), id="no progress"),
        pytest.param(dropped, id="connection lost"),
    ],
)
async def test_after_a_bad_answer_the_queue_is_pulled_again(bad: Pull) -> None:
    async with scripted_broker() as it:
        it.offsets[0] = 0
        it.on_pull = in_turn(bad, bad, found(0, 1))
        seen = Collector()
        async with consumer_of(it, seen):
            await seen.wait("m0", "m1")
        assert seen.bodies == ["m0", "m1"]
        assert pulled_from(it)[:3] == [0, 0, 0]
        assert it.offsets == {0: 2}


async def test_what_is_sound_before_garbage_is_consumed() -> None:
    async with scripted_broker() as it:
        it.offsets[0] = 0
        it.on_pull = in_turn(
            answered(ResponseCode.SUCCESS, 5, record(0) + record(1) + b"garbage"), found(2, 3)
        )
        seen = Collector()
        async with consumer_of(it, seen):
            await seen.wait("m0", "m1", "m2", "m3")
        assert seen.bodies == numbered(4)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(found(0, 1), id="the same again"),
        pytest.param(answered(ResponseCode.PULL_RETRY_IMMEDIATELY, 2), id="no match"),
        pytest.param(answered(ResponseCode.PULL_NOT_FOUND, 2), id="empty at once"),
    ],
)
async def test_a_broker_that_repeats_itself_is_not_asked_without_pause(answer: Pull) -> None:
    async with scripted_broker() as it:
        it.offsets[0] = 0
        first = found(0, 1)
        calls = 0

        def on_pull(request: Request[PullMessageRequest]) -> None:
            nonlocal calls
            calls += 1
            (first if calls == 1 else answer)(request)

        it.on_pull = on_pull
        seen = Collector()
        async with consumer_of(it, seen, pull_pause_s=0.1):
            await seen.wait("m0", "m1")
            await trio.sleep(0.5)
            assert calls < 10
        assert seen.bodies == ["m0", "m1"]


# --- offsets that are not there --------------------------------------------------------------


@pytest.mark.parametrize("target", [50, 3], ids=["forward", "back"])
async def test_a_queue_goes_on_where_it_has_messages(target: int) -> None:
    async with scripted_broker() as it:
        it.offsets[0] = 10
        it.on_pull = in_turn(
            found(10, 11), answered(ResponseCode.PULL_OFFSET_MOVED, target), found(target)
        )
        seen = Collector()
        async with consumer_of(it, seen):
            await seen.wait("m10", "m11", f"m{target}")
        assert pulled_from(it)[:3] == [10, 12, target]
        assert it.offsets == {0: target + 1}


async def test_before_a_gap_all_is_finished_first() -> None:
    gate = trio.Event()

    class Held(Collector):
        async def __call__(self, messages: Any) -> None:  # noqa: ANN401 - as of the base
            await gate.wait()
            await super().__call__(messages)

    async with scripted_broker() as it:
        it.offsets[0] = 0
        it.on_pull = in_turn(found(0, 1), answered(ResponseCode.PULL_OFFSET_MOVED, 50), found(50))
        seen = Held()
        async with consumer_of(it, seen) as running:
            await until(lambda: len(pulled_from(it)) == 2)
            await trio.sleep(0.3)
            # A crash now must not lose the two.
            assert it.offsets == {0: 0}
            assert running.unfinished == 2
            gate.set()
            await seen.wait("m0", "m1", "m50")
        assert it.offsets == {0: 51}


# --- others of the name ----------------------------------------------------------------------


class WithSlave(ScriptedBroker):
    """A master whose route names a slave too."""

    def __init__(self, slave: str) -> None:
        super().__init__(1)
        self._slave = slave

    def _route(self, request: Any) -> None:  # noqa: ANN401 - as of the base
        if self.asked[-1].fields["topic"] != TOPIC:
            request.reply(code=ResponseCode.TOPIC_NOT_EXIST, remark="no such topic")
            return
        route = TopicRouteData(
            queue_datas=(
                QueueData(broker_name="broker-a", read_queue_nums=1, write_queue_nums=1, perm=6),
            ),
            broker_datas=(
                BrokerData(
                    cluster="c",
                    broker_name="broker-a",
                    broker_addrs={0: self.address, 1: self._slave},
                ),
            ),
        )
        request.reply(body=route.encode())


async def test_a_broker_that_cannot_keep_up_sends_to_its_slave_and_back() -> None:
    def suggesting(offset: int, broker_id: int) -> Pull:
        def answer(request: Request[PullMessageRequest]) -> None:
            request.reply(place(offset + 1, broker_id=broker_id), body=record(offset))

        return answer

    async with scripted_broker() as slave, trio.open_nursery() as nursery:
        master = WithSlave(slave.address)
        server = RemotingServer(master.table(), ServerConfig(host="127.0.0.1"))
        await nursery.start(server.run)
        master.address = f"127.0.0.1:{server.port}"
        master.offsets[0] = 5
        master.on_pull = in_turn(suggesting(5, 1), suggesting(7, 0))
        slave.on_pull = in_turn(suggesting(6, 0))
        seen = Collector()
        async with consumer_of(master, seen):
            await seen.wait("m5", "m6", "m7")
        (at_slave,) = slave.asked_for(RequestCode.PULL_MESSAGE)
        # A slave is told no offset with a pull.
        assert at_slave.fields["sysFlag"] == "2"
        assert pulled_from(master)[:2] == [5, 7]
        nursery.cancel_scope.cancel()


# --- clocks ----------------------------------------------------------------------------------


class JumpingTime:
    """The `time` module, with a wall clock that can be moved."""

    def __init__(self) -> None:
        self.offset_s = 0

    def time_ns(self) -> int:
        return time.time_ns() + self.offset_s * 10**9

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the module has
        return getattr(time, name)


@pytest.mark.parametrize("is_orderly", [False, True], ids=["concurrent", "orderly"])
async def test_a_wall_clock_that_jumps_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_orderly: bool
) -> None:
    clock = JumpingTime()
    for module in ("rmq.model.clock", "rmq.client.tasks.status"):
        monkeypatch.setattr(f"{module}.time", clock)
    async with cluster(tmp_path) as it:
        await it.create_topic("Orders", queues=4)
        seen = Collector()
        async with consumer(it, seen, is_orderly=is_orderly) as first:
            expected: list[str] = []
            for number, jump_s in enumerate((0, -7_200, 86_400 * 400, -86_400 * 900)):
                clock.offset_s = jump_s
                # A member that comes and goes: versions, offsets and locks change.
                async with consumer(it, seen, is_orderly=is_orderly) as second:
                    await wait_shared(5, first, second)
                    texts = numbered(40, first=40 * number)
                    expected += texts
                    for each in range(4):
                        await put(it, queue(each), texts[each::4])
                    await seen.wait(*texts)
                await until(lambda: len(first.queues) == 5)
            assert first.running_info().mq_table[queue()].commit_offset == 40
        assert set(seen.bodies) == set(expected)
        assert committed(it) == dict.fromkeys(range(4), 40)
