"""Messages that are not taken back: every check, its code and remark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from rmq.remoting.bodies import SubscriptionGroupConfig
from rmq.remoting.codes import ResponseCode
from tests.broker.send_kit import put_work, send_back_frame, send_broker, text

if TYPE_CHECKING:
    from pathlib import Path

RETRY: Final = "%RETRY%group"
DEAD: Final = "%DLQ%group"
SEE: Final = "\nSee http://rocketmq.apache.org/docs/faq/ for further details."


async def test_the_group_must_exist(tmp_path: Path) -> None:
    async with send_broker(tmp_path, {"autoCreateSubscriptionGroup": "false"}) as broker:
        answer = await broker.send(send_back_frame(put_work(broker)))
        assert (answer.code, answer.remark) == (
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            f"subscription group not exist, group {SEE}",
        )


async def test_a_broker_that_is_not_written_takes_nothing_back(tmp_path: Path) -> None:
    async with send_broker(tmp_path, {"brokerPermission": "4"}) as broker:
        answer = await broker.send(send_back_frame(put_work(broker)))
        assert (answer.code, answer.remark) == (
            ResponseCode.NO_PERMISSION,
            "the broker[10.0.0.1] sending message is forbidden",
        )


@pytest.mark.parametrize("queues", [0, -1])
async def test_a_group_without_retries_drops_what_comes_back(tmp_path: Path, queues: int) -> None:
    async with send_broker(tmp_path) as broker:
        broker.groups.put(SubscriptionGroupConfig(group_name="group", retry_queue_nums=queues))
        offset = put_work(broker)
        written = broker.core.log.written
        answer = await broker.send(send_back_frame(offset, delay_level=-1))
        assert (answer.code, answer.remark) == (0, None)
        assert broker.core.log.written == written
        assert broker.topics.get(RETRY) is None


@pytest.mark.parametrize("level", [pytest.param(0, id="retry"), pytest.param(-1, id="dead letter")])
async def test_the_retry_topic_must_be_writable(tmp_path: Path, level: int) -> None:
    async with send_broker(tmp_path) as broker:
        await broker.create_topic(RETRY, 1)
        broker.change_topic(RETRY, perm=4)
        answer = await broker.send(send_back_frame(put_work(broker), delay_level=level))
        assert (answer.code, answer.remark) == (
            ResponseCode.NO_PERMISSION,
            f"the topic[{RETRY}] sending message is forbidden",
        )
        assert broker.topics.get(DEAD) is None


@pytest.mark.parametrize(
    "offset",
    [
        pytest.param(-1, id="negative"),
        pytest.param(1, id="not where a record begins"),
        pytest.param(1_000_000, id="beyond the end"),
        pytest.param(2**62, id="far beyond the end"),
    ],
)
async def test_the_message_must_be_there(tmp_path: Path, offset: int) -> None:
    async with send_broker(tmp_path) as broker:
        put_work(broker)
        written = broker.core.log.written
        answer = await broker.send(send_back_frame(offset))
        assert (answer.code, answer.remark) == (
            ResponseCode.SYSTEM_ERROR,
            f"look message by offset failed, {offset}",
        )
        assert broker.core.log.written == written
        # As in 4.9.8 the topic is made before the message is looked for.
        assert broker.topics.get(RETRY) is not None


@pytest.mark.parametrize("level", [pytest.param(0, id="retry"), pytest.param(-1, id="dead letter")])
async def test_a_store_that_takes_nothing_takes_nothing_back(tmp_path: Path, level: int) -> None:
    async with send_broker(tmp_path) as broker:
        offset = put_work(broker)
        broker.core.set_disk_full(True)
        answer = await broker.send(send_back_frame(offset, delay_level=level))
        assert (answer.code, answer.remark) == (
            ResponseCode.SYSTEM_ERROR,
            "SERVICE_NOT_AVAILABLE the disk is full",
        )
        assert broker.broker.stats.store.put_failures == 1


async def test_a_slave_takes_nothing_back(tmp_path: Path) -> None:
    async with send_broker(tmp_path, {"brokerRole": "SLAVE", "brokerId": "1"}) as broker:
        offset = put_work(broker)
        answer = await broker.send(send_back_frame(offset))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark is not None
        assert answer.remark.startswith("SERVICE_NOT_AVAILABLE")


@pytest.mark.parametrize("group", ["a b", "../g", "g/h"])
async def test_an_illegal_group_does_not_come_into_being(tmp_path: Path, group: str) -> None:
    async with send_broker(tmp_path) as broker:
        offset = put_work(broker)
        for level in (0, -1):
            answer = await broker.send(send_back_frame(offset, group, delay_level=level))
            assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert broker.topics.get(f"%RETRY%{group}") is None


async def test_a_group_whose_retries_no_topic_could_hold_is_refused(tmp_path: Path) -> None:
    group = "g" * 121
    async with send_broker(tmp_path) as broker:
        offset = put_work(broker)
        for level in (0, -1):
            answer = await broker.send(send_back_frame(offset, group, delay_level=level))
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert answer.remark is not None
            assert answer.remark.startswith("The specified topic ")
        assert broker.topics.get(f"%RETRY%{group}") is None
        longest = "g" * 120
        assert (await broker.send(send_back_frame(offset, longest))).code == 0


async def test_properties_that_grow_too_long_are_refused(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        offset = put_work(broker, properties=text(a="x" * 32700).encode())
        answer = await broker.send(send_back_frame(offset))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark is not None
        assert answer.remark.startswith("PROPERTIES_SIZE_EXCEEDED the properties have")
