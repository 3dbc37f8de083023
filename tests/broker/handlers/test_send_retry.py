"""Sends to a retry topic: what a consumer does itself when it could not send a message back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
import pytest

from rmq.model.names import HALF_TOPIC, SCHEDULE_TOPIC
from rmq.remoting.bodies import SubscriptionGroupConfig
from rmq.remoting.codes import ResponseCode
from tests.broker.send_kit import ext, pairs, send_broker, send_frame, text

if TYPE_CHECKING:
    from pathlib import Path

RETRY: Final = "%RETRY%g"
DEAD: Final = "%DLQ%g"
SEE: Final = "\nSee http://rocketmq.apache.org/docs/faq/ for further details."

V3_4_8: Final = 119
V3_4_9: Final = 121


async def test_a_retry_below_the_limit_is_stored_in_the_retry_topic(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        answer = await broker.send(send_frame(RETRY, reconsume_times=15, max_reconsume_times=16))
        assert answer.code == 0
        assert broker.record(RETRY).reconsume_times == 15
        assert broker.topics.get(DEAD) is None


@pytest.mark.parametrize("times", [16, 17, 1000])
async def test_a_retry_at_the_limit_goes_to_the_dead_letter_topic(
    tmp_path: Path, times: int
) -> None:
    async with send_broker(tmp_path) as broker:
        answer = await broker.send(
            send_frame(
                RETRY,
                reconsume_times=times,
                max_reconsume_times=16,
                flag=3,
                properties=text(KEYS="k", WAIT="true", DELAY="18", RETRY_TOPIC="T"),
            )
        )
        record = broker.record(DEAD)
        assert answer.code == 0
        assert ext(answer)["msgId"] == record.message_id
        assert (record.body, record.flag, record.reconsume_times) == (b"body", 3, times)
        assert pairs(record) == {
            "KEYS": "k",
            "DELAY": "0",
            "RETRY_TOPIC": "T",
            "CLUSTER": "DefaultCluster",
        }
        # At once: 4.9.8 sets the delay aside, and then takes it from the properties again.
        assert broker.records(SCHEDULE_TOPIC, 17) == []
        assert broker.records(RETRY) == []
        dead = broker.topic(DEAD)
        assert (dead.read_queue_nums, dead.write_queue_nums, dead.perm) == (1, 1, 6)
        await broker.settle_topics()
        assert f'"{DEAD}"' in (tmp_path / "config" / "topics.json").read_text()


@pytest.mark.parametrize(
    ("version", "limit", "is_dead"),
    [
        pytest.param(V3_4_9, 5, True, id="the client's limit"),
        pytest.param(V3_4_9, 6, False, id="the client's limit, below"),
        pytest.param(V3_4_9, None, True, id="no limit of the client"),
        pytest.param(V3_4_8, 99, True, id="an old client's does not count"),
        pytest.param(V3_4_9, 0, True, id="never again"),
        pytest.param(V3_4_9, -1, True, id="a negative limit"),
    ],
)
async def test_whose_limit_counts(
    tmp_path: Path, version: int, limit: int | None, is_dead: bool
) -> None:
    async with send_broker(tmp_path) as broker:
        broker.groups.put(SubscriptionGroupConfig(group_name="g", retry_max_times=5))
        await broker.send(
            send_frame(RETRY, version=version, reconsume_times=5, max_reconsume_times=limit)
        )
        assert (len(broker.records(DEAD)), len(broker.records(RETRY))) == (is_dead, not is_dead)


async def test_without_a_count_a_message_came_back_never(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        await broker.send(send_frame(RETRY, reconsume_times=None))
        assert broker.record(RETRY).reconsume_times == 0


async def test_a_group_comes_into_being_with_its_first_retry(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        assert broker.groups.get("g") is None
        await broker.send(send_frame(RETRY))
        assert broker.groups.get("g") is not None


async def test_the_group_must_exist(tmp_path: Path) -> None:
    async with send_broker(tmp_path, {"autoCreateSubscriptionGroup": "false"}) as broker:
        answer = await broker.send(send_frame(RETRY))
        assert (answer.code, answer.remark) == (
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            f"subscription group not exist, g {SEE}",
        )
        assert broker.core.log.written == 0
        broker.groups.put(SubscriptionGroupConfig(group_name="g"))
        assert (await broker.send(send_frame(RETRY))).code == 0


async def test_a_retry_topic_is_made_even_where_topics_are_not(tmp_path: Path) -> None:
    settings = {"autoCreateTopicEnable": "false"}
    async with send_broker(tmp_path, settings) as broker:
        assert (await broker.send(send_frame("Other"))).code == ResponseCode.TOPIC_NOT_EXIST
        assert (await broker.send(send_frame(RETRY))).code == 0
        topic = broker.topic(RETRY)
        assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (1, 1, 6)
        assert (await broker.send(send_frame(RETRY, queue_id=1))).code == ResponseCode.SYSTEM_ERROR


async def test_a_retry_topic_is_made_after_the_default_where_topics_are(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        assert (await broker.send(send_frame(RETRY, queue_id=3))).code == 0
        assert broker.topic(RETRY).write_queue_nums == 4


async def test_a_dead_letter_of_a_transaction_is_a_dead_letter(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        await broker.send(
            send_frame(
                RETRY,
                reconsume_times=16,
                properties=text(TRAN_MSG="true", DELAY="18"),
            )
        )
        assert broker.records(HALF_TOPIC) == []
        assert len(broker.records(DEAD)) == 1


async def test_dead_letters_keep_their_order_while_their_topic_is_made(tmp_path: Path) -> None:
    async with send_broker(tmp_path, creates_topics=False) as broker:
        await broker.create_topic(RETRY)
        peer = broker.attach()
        await peer.send(
            *(
                send_frame(RETRY, b"%d" % number, reconsume_times=16, opaque=number)
                for number in range(5)
            )
        )
        assert await peer.ping() == []
        assert broker.served.group("send").unanswered == 5
        broker.start_creation()
        answers = await peer.read_many(5)
        assert [(answer.opaque, answer.code) for answer in answers] == [(n, 0) for n in range(5)]
        assert broker.bodies(DEAD) == [b"0", b"1", b"2", b"3", b"4"]


async def test_both_topics_of_a_dead_letter_may_be_new(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        answer = await broker.send(send_frame(RETRY, reconsume_times=16))
        assert answer.code == 0
        assert broker.bodies(DEAD) == [b"body"]
        assert broker.topics.get(RETRY) is not None


async def test_settings_of_a_group_are_looked_at_each_time(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        await broker.send(send_frame(RETRY, reconsume_times=4))
        group = broker.groups.get("g")
        assert group is not None
        broker.groups.put(msgspec.structs.replace(group, retry_max_times=3))
        await broker.send(send_frame(RETRY, reconsume_times=4))
        assert (len(broker.records(RETRY)), len(broker.records(DEAD))) == (1, 1)
