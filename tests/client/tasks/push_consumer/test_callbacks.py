"""What operators ask of a running consumer through its broker: as stock tools do."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import pytest
import trio

from rmq.client.core.consuming.results import ConsumeResult
from rmq.client.core.trace import ConsumeCode, ConsumeEndTrace, Trace, decode_traces
from rmq.remoting.bodies import (
    CMResult,
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    GetConsumerStatusBody,
    ResetOffsetBody,
)
from rmq.remoting.client import open_client
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import (
    ConsumeMessageDirectlyRequest,
    GetConsumerRunningInfoRequest,
    GetConsumerStatusRequest,
    ResetOffsetRequest,
)
from tests.client.cluster_kit import cluster
from tests.client.pull_kit import numbered, put, queue, until
from tests.client.push_kit import GROUP, Collector, committed, consumer, quick_client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from rmq.client.core.received import ReceivedMessage
    from rmq.remoting.bodies.base import Body
    from rmq.remoting.header import Header
    from tests.client.cluster_kit import Cluster

B = TypeVar("B", bound="Body")


class Operator:
    """Asks a broker as mqadmin does."""

    def __init__(self, it: Cluster) -> None:
        self._it = it

    async def ask(self, code: RequestCode, header: Header, kind: type[B]) -> B:
        async with open_client() as client:
            answer = await client.request(self._it.address(), code, header, timeout_s=10)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return kind.decode(answer.body)

    async def reset(self, timestamp: int) -> ResetOffsetBody:
        return await self.ask(
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
            ResetOffsetRequest(topic="Orders", group=GROUP, timestamp=timestamp, is_force=True),
            ResetOffsetBody,
        )


@asynccontextmanager
async def operated(tmp_path: Path, queues: int = 1) -> AsyncIterator[tuple[Cluster, Operator]]:
    async with cluster(tmp_path) as it:
        await it.create_topic("Orders", queues=queues)
        yield it, Operator(it)


# --- offsets ---------------------------------------------------------------------------------


@pytest.mark.parametrize("is_orderly", [False, True], ids=["concurrent", "orderly"])
async def test_a_group_is_moved_back_while_it_consumes(tmp_path: Path, is_orderly: bool) -> None:
    async with operated(tmp_path, queues=2) as (it, operator):
        for number in range(2):
            await put(it, queue(number), numbered(50, first=50 * number))
        seen = Collector()
        async with consumer(it, seen, is_orderly=is_orderly) as running:
            await seen.wait(*numbered(100))
            await until(lambda: running.unfinished == 0)
            moved = await operator.reset(0)
            assert set(moved.offset_table) == {queue(0), queue(1)}
            await until(lambda: len(seen.messages) == 200)
            await put(it, queue(1), ["next"])
            await seen.wait("next")
        assert sorted(seen.bodies[100:200]) == sorted(numbered(100))
        assert committed(it) == {0: 50, 1: 51}
        if is_orderly:
            assert len(it.brokers["broker-a"].locks) == 0


async def test_a_group_is_moved_to_the_end_and_skips_what_it_had_pulled(tmp_path: Path) -> None:
    gate = trio.Event()

    class Held(Collector):
        async def __call__(self, messages: Sequence[ReceivedMessage]) -> None:
            await super().__call__(messages)
            if len(self.messages) > 1:
                await gate.wait()

    async with operated(tmp_path) as (it, operator):
        await put(it, queue(), ["known"])
        seen = Held()
        async with consumer(it, seen, listeners_max=2) as running:
            # Brokers move only groups that have stored an offset.
            await seen.wait("known")
            await running.commit()
            await put(it, queue(), numbered(199))
            await until(lambda: running.unfinished == 199 and len(seen.messages) == 3)
            await operator.reset(-1)
            await until(lambda: committed(it) == {0: 200})
            gate.set()
            await put(it, queue(), ["new"])
            await seen.wait("new")
            assert len(seen.messages) == 4
        # What was under way and came to an end later has not moved it.
        assert committed(it) == {0: 201}


async def test_a_call_that_does_not_end_holds_a_move_up_only_so_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmq.client.tasks.assignment.RESET_WAIT_S", 0.2)

    class Stuck(Collector):
        async def __call__(self, messages: Sequence[ReceivedMessage]) -> None:
            await super().__call__(messages)
            if len(self.messages) == 2:
                await trio.sleep_forever()

    async with operated(tmp_path) as (it, operator):
        await put(it, queue(), numbered(3))
        seen = Stuck()
        async with consumer(it, seen, close_wait_s=0.0) as running:
            await seen.wait(*numbered(3))
            await running.commit()
            await operator.reset(0)
            await until(lambda: len(seen.messages) == 6)
            await until(lambda: running.unfinished == 0)
        assert committed(it) == {0: 3}


async def test_how_far_a_consumer_is_can_be_asked(tmp_path: Path) -> None:
    async with operated(tmp_path) as (it, operator):
        await put(it, queue(), numbered(5))
        seen = Collector()
        async with consumer(it, seen) as running:
            await seen.wait(*numbered(5))
            await until(lambda: running.unfinished == 0)
            status = await operator.ask(
                RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
                GetConsumerStatusRequest(topic="Orders", group=GROUP),
                GetConsumerStatusBody,
            )
            assert status.consumer_table == {running.client.client_id: {queue(): 5}}


# --- how it is -------------------------------------------------------------------------------


@pytest.mark.parametrize("is_orderly", [False, True], ids=["concurrent", "orderly"])
async def test_how_a_consumer_is_can_be_asked(tmp_path: Path, is_orderly: bool) -> None:
    async with operated(tmp_path) as (it, operator):
        await put(it, queue(), numbered(5))
        seen = Collector()
        async with consumer(it, seen, is_orderly=is_orderly) as running:
            await seen.wait(*numbered(5))
            await until(lambda: running.unfinished == 0)
            info = await operator.ask(
                RequestCode.GET_CONSUMER_RUNNING_INFO,
                GetConsumerRunningInfoRequest(
                    consumer_group=GROUP, client_id=running.client.client_id
                ),
                ConsumerRunningInfo,
            )
            assert info.properties["PROP_NAMESERVER_ADDR"] == f"{it.nameserver};"
            assert info.properties["PROP_CONSUMEORDERLY"] == str(is_orderly).lower()
            assert set(info.mq_table) == set(running.queues)
            assert info.mq_table[queue()].commit_offset == 5
            assert info.mq_table[queue()].locked is is_orderly
            assert info.status_table["Orders"].consume_ok_tps > 0
            assert {data.topic for data in info.subscription_set} == {"Orders", f"%RETRY%{GROUP}"}


# --- one message -----------------------------------------------------------------------------


async def test_an_operator_has_one_message_consumed(tmp_path: Path) -> None:
    async with operated(tmp_path) as (it, operator):
        await put(it, queue(), ["one"])
        seen = Collector(None, ConsumeResult.LATER, ValueError("no"))
        async with consumer(it, seen) as running:
            await seen.wait("one")

            async def directly() -> ConsumeMessageDirectlyResult:
                return await operator.ask(
                    RequestCode.CONSUME_MESSAGE_DIRECTLY,
                    ConsumeMessageDirectlyRequest(
                        consumer_group=GROUP,
                        client_id=running.client.client_id,
                        msg_id=seen.messages[0].offset_message_id,
                    ),
                    ConsumeMessageDirectlyResult,
                )

            assert (await directly()).consume_result is CMResult.CR_LATER
            result = await directly()
            assert result.consume_result is CMResult.CR_THROW_EXCEPTION
            assert result.remark == "ValueError: no"
            assert (await directly()).consume_result is CMResult.CR_SUCCESS
        assert seen.bodies == ["one"] * 4
        # Nothing was sent back, and no offset moved.
        assert committed(it) == {0: 1}
        assert [each.reconsume_times for each in seen.messages] == [0] * 4


# --- traces ----------------------------------------------------------------------------------


async def test_what_became_of_messages_is_traced_if_the_client_says_so(tmp_path: Path) -> None:
    async with operated(tmp_path) as (it, _):
        await it.create_topic("Traces", queues=1)
        await put(it, queue(), ["good"], properties={"UNIQ_KEY": "A" * 32, "KEYS": "k1"})
        await put(it, queue(), ["bad"], properties={"UNIQ_KEY": "B" * 32})
        seen, written = Collector(None, ValueError("no")), Collector()
        client = replace(quick_client(it), trace_topic="Traces")
        async with consumer(it, seen, client=client):
            await seen.wait("good", "bad")
        async with consumer(it, written, "Traces", group="auditors"):

            def traces() -> list[Trace]:
                return [trace for each in written.messages for trace in decode_traces(each.body)]

            await until(lambda: len(traces()) == 4)
        ends = {each.message_id: each for each in traces() if isinstance(each, ConsumeEndTrace)}
        assert (ends["A" * 32].is_ok, ends["A" * 32].code) == (True, ConsumeCode.SUCCESS)
        assert (ends["B" * 32].is_ok, ends["B" * 32].code) == (False, ConsumeCode.RAISED)
        assert {each.group for each in ends.values()} == {GROUP}
