"""Captured consumers and tools replayed: what a stock broker answered, ours must answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from rmq.model.record import decode_record
from rmq.remoting.codes import FLAG_RESPONSE, RequestCode
from tests.broker.golden_broker import (
    BEFORE_MQADMIN,
    BEFORE_PULL,
    BEFORE_PUSH,
    BEFORE_SQL,
    captured,
    comparable,
    golden_broker,
    requests,
)
from tests.store.golden import stores as golden

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from tests.remoting.server_kit import Frame


async def test_a_captured_pull_consumer_gets_the_captured_answers(tmp_path: Path) -> None:
    async with golden_broker(tmp_path, BEFORE_PULL) as broker:
        peer = broker.attach()
        events = iter(golden.records(golden.CLEAN_MASTER)[BEFORE_PULL:])
        exchanges = requests("pull")
        assert len(exchanges) > 50
        for asked, expected in exchanges:
            if expected.code == 21:
                # Four offsets moved. What was stored then must be stored now, at the same time.
                wanted = decode_record(memoryview(next(events).data))
                broker.clock.ms = wanted.store_ms
            answer = await peer.request(asked.frame)
            assert comparable(answer) == comparable(expected), asked.name
            if expected.code == 21:
                stored = broker.records("OFFSET_MOVED_EVENT")[-1]
                for name in (
                    "physical_offset",
                    "size",
                    "queue_offset",
                    "queue_id",
                    "store_ms",
                    "born_host",
                    "store_host",
                    "sys_flag",
                    "properties_bytes",
                    "body",
                ):
                    assert getattr(stored, name) == getattr(wanted, name), name


async def test_a_captured_consumer_by_condition_gets_the_captured_answers(tmp_path: Path) -> None:
    async with golden_broker(tmp_path, BEFORE_SQL) as broker:
        peer = broker.attach()
        exchanges = requests("sql")
        codes = []
        for asked, expected in exchanges:
            await peer.send(asked.frame)
            while not (answer := await peer.read()).flag & FLAG_RESPONSE:
                assert answer.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
            assert comparable(answer) == comparable(expected), asked.name
            codes.append(answer.code)
        assert {0, 20, 25} <= set(codes)


async def test_a_captured_push_consumer_gets_the_captured_answers_in_the_captured_time(
    tmp_path: Path, mock_clock: MockClock
) -> None:
    async with golden_broker(tmp_path, BEFORE_PUSH) as broker, trio.open_nursery() as nursery:
        # The retry and the dead letter topic came into being during the run.
        for topic in ("%RETRY%golden_push", "%DLQ%golden_push"):
            broker.topics.delete(topic)
        # Of the two levels used before, all messages had been delivered.
        broker.broker.delay.load('{"offsetTable":{1:2,2:2}}')
        broker.broker.delay.start()
        nursery.start_soon(broker.broker.delay.run)
        peer = broker.attach()
        answers: dict[int, tuple[float, Frame]] = {}
        now_ms = 0.0

        async def listen() -> None:
            while True:
                frame = await peer.read()
                if frame.flag & FLAG_RESPONSE:
                    answers[frame.opaque] = (now_ms, frame)

        nursery.start_soon(listen)
        lines = captured("push")
        started_ms = broker.clock.ms
        for line in lines:
            while line.at_ms - now_ms > 0:
                step_ms = min(line.at_ms - now_ms, 50.0)
                now_ms += step_ms
                broker.clock.ms = started_ms + int(now_ms)
                mock_clock.jump(step_ms / 1000)
                await broker.settle()
            if line.sender == "client":
                await peer.send(line.frame)
                await broker.settle()
                # New topics are written by a thread that no clock knows of.
                await broker.tables.topics_writer.save_now()
                await broker.settle()
        for asked, expected in requests("push"):
            at_ms, answer = answers[asked.opaque]
            if b"%RETRY%golden_push" in expected.body:
                # Stored by us a moment ago; the message failed 10 s before.
                assert comparable(answer)[:3] == comparable(expected)[:3]
                assert len(answer.body) == len(expected.body)
                assert 10_000 <= at_ms - asked.at_ms <= 10_300
            else:
                assert comparable(answer) == comparable(expected), asked.name
            if expected.code == 19:
                assert 15_000 <= at_ms - asked.at_ms <= 20_000
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    "run", ["18-queryMsgByKey", "20-queryCq", "22-printMsgByQueue", "24-consumeMessage"]
)
async def test_a_captured_tool_gets_the_captured_answers(run: str, tmp_path: Path) -> None:
    async with golden_broker(tmp_path, BEFORE_MQADMIN) as broker:
        peer = broker.attach()
        exchanges = requests(f"mqadmin-{run}")
        assert exchanges
        for asked, expected in exchanges:
            answer = await peer.request(asked.frame)
            assert comparable(answer) == comparable(expected), asked.name


@pytest.mark.parametrize(
    "run",
    [
        "00-updateTopic",
        "12-updateSubGroup",
        "16-producerConnection",
        "26-cloneGroupOffset",
        "28-updateBrokerConfig",
        "36-cleanExpiredCQ",
        "38-cleanUnusedTopic",
        "44-deleteTopic",
    ],
)
async def test_a_captured_tool_gets_the_captured_forms_of_answer(run: str, tmp_path: Path) -> None:
    async with golden_broker(tmp_path, BEFORE_MQADMIN) as broker:
        peer = broker.attach()
        exchanges = requests(f"mqadmin-{run}")
        assert exchanges
        for asked, expected in exchanges:
            answer = await peer.request(asked.frame)
            if asked.name == "GET_CONSUME_STATS":
                continue  # Its figures depend on what consumed before, and have tests of their own.
            assert comparable(answer)[2:] == comparable(expected)[2:], asked.name
            assert answer.code == expected.code, answer
