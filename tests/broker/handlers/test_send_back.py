"""Messages that a consumer could not process: where they go, and what is stored of them."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

import pytest
from trio.testing import wait_all_tasks_blocked

from rmq.errors import StorageError
from rmq.files import ConfigFile
from rmq.model import flags
from rmq.model.names import SCHEDULE_TOPIC
from rmq.model.offsets import PhysicalOffset, QueueOffset
from rmq.model.record import pack_host
from rmq.remoting.bodies import SubscriptionGroupConfig
from rmq.remoting.codes import RequestCode, ResponseCode, Serialization
from rmq.remoting.headers import ConsumerSendMsgBackRequest
from tests.broker.send_kit import (
    START_MS,
    TOPIC,
    frame,
    pairs,
    put_work,
    send_back_frame,
    send_broker,
    send_frame,
    text,
)
from tests.remoting.server_kit import Logs

if TYPE_CHECKING:
    from pathlib import Path

RETRY: Final = "%RETRY%group"
DEAD: Final = "%DLQ%group"
SEE: Final = "\nSee http://rocketmq.apache.org/docs/faq/ for further details."

V3_4_8: Final = 119


# --- where it goes ---------------------------------------------------------------------------


async def test_a_message_that_comes_back_is_parked_for_the_retry_topic(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        put_work(broker)
        offset = put_work(broker, flag=9, sys_flag=0x301)
        answer = await broker.send(send_back_frame(offset))
        assert (answer.code, answer.remark, answer.body) == (0, None, b"")
        assert not answer.fields
        record = broker.record(SCHEDULE_TOPIC, 2)
        original = broker.store.reads.record_at(PhysicalOffset(offset))
        assert original is not None
        assert pairs(record) == {
            "KEYS": "k",
            "TAGS": "TagA",
            "RETRY_TOPIC": TOPIC,
            "WAIT": "false",
            "DELAY": "3",
            "ORIGIN_MESSAGE_ID": original.message_id,
            "REAL_TOPIC": RETRY,
            "REAL_QID": "0",
        }
        assert (record.body, record.flag, record.sys_flag) == (b"work", 9, 0x301)
        assert (record.born_ms, record.born_host) == (77, pack_host("10.1.1.1", 5))
        assert (record.reconsume_times, record.prepared_offset) == (1, 0)
        queue = broker.core.queues.get(SCHEDULE_TOPIC, 2)
        assert queue is not None
        entry = queue.entry(QueueOffset(0))
        assert entry is not None
        assert entry[2] == START_MS + 10_000


@pytest.mark.parametrize(
    ("asked", "times", "level"),
    [
        pytest.param(0, 0, 3, id="the first time"),
        pytest.param(0, 5, 8, id="later"),
        pytest.param(0, 15, 18, id="the last time"),
        pytest.param(1, 5, 1, id="a level that was asked for"),
        pytest.param(18, 0, 18, id="the last level"),
        pytest.param(99, 0, 18, id="beyond it"),
    ],
)
async def test_the_delay_grows_unless_the_consumer_says_how_long(
    tmp_path: Path, asked: int, times: int, level: int
) -> None:
    async with send_broker(tmp_path) as broker:
        offset = put_work(broker, reconsume_times=times)
        await broker.send(send_back_frame(offset, delay_level=asked))
        record = broker.record(SCHEDULE_TOPIC, level - 1)
        assert (pairs(record)["DELAY"], record.reconsume_times) == (str(level), times + 1)


@pytest.mark.parametrize(
    ("level", "times", "limit", "version", "is_dead"),
    [
        pytest.param(0, 15, None, 409, False, id="below the group's limit"),
        pytest.param(0, 16, None, 409, True, id="at the group's limit"),
        pytest.param(0, 3, 3, 409, True, id="at the consumer's limit"),
        pytest.param(0, 20, 30, 409, False, id="below the consumer's limit"),
        pytest.param(0, 20, 30, V3_4_8, True, id="an old consumer's does not count"),
        pytest.param(0, 0, 0, 409, True, id="never again"),
        pytest.param(-1, 0, None, 409, True, id="given up"),
        pytest.param(5, 16, None, 409, True, id="the limit before the level"),
    ],
)
async def test_what_came_back_too_often_goes_to_the_dead_letter_topic(
    tmp_path: Path, level: int, times: int, limit: int | None, version: int, is_dead: bool
) -> None:
    async with send_broker(tmp_path) as broker:
        offset = put_work(broker, reconsume_times=times)
        answer = await broker.send(
            send_back_frame(offset, delay_level=level, max_reconsume_times=limit, version=version)
        )
        assert answer.code == 0
        assert len(broker.records(DEAD)) == is_dead
        parked = sum(len(broker.records(SCHEDULE_TOPIC, queue_id)) for queue_id in range(18))
        assert parked == (not is_dead)


async def test_a_dead_letter_is_stored_at_once(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        offset = put_work(
            broker,
            topic=RETRY,
            queue_id=0,
            reconsume_times=16,
            properties=text(
                KEYS="k",
                RETRY_TOPIC=TOPIC,
                WAIT="false",
                DELAY="18",
                ORIGIN_MESSAGE_ID="0A00000100002A9F0000000000000000",
                REAL_TOPIC=RETRY,
                REAL_QID="0",
            ).encode(),
        )
        await broker.send(send_back_frame(offset))
        record = broker.record(DEAD)
        assert pairs(record) == {
            "KEYS": "k",
            "RETRY_TOPIC": TOPIC,
            "WAIT": "false",
            "DELAY": "0",
            "ORIGIN_MESSAGE_ID": "0A00000100002A9F0000000000000000",
            "REAL_TOPIC": RETRY,
            "REAL_QID": "0",
        }
        assert (record.body, record.reconsume_times) == (b"work", 17)


async def test_a_message_knows_its_first_topic_and_id_however_often_it_comes_back(
    tmp_path: Path,
) -> None:
    async with send_broker(tmp_path) as broker:
        offset = put_work(
            broker, properties=text(RETRY_TOPIC="First", ORIGIN_MESSAGE_ID="id").encode()
        )
        await broker.send(send_back_frame(offset))
        stored = pairs(broker.record(SCHEDULE_TOPIC, 2))
        assert (stored["RETRY_TOPIC"], stored["ORIGIN_MESSAGE_ID"]) == ("First", "id")


async def test_a_blank_first_id_is_none(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        offset = put_work(broker, properties=b"ORIGIN_MESSAGE_ID\x01  ")
        await broker.send(send_back_frame(offset))
        record = broker.record(SCHEDULE_TOPIC, 2)
        original = broker.store.reads.record_at(PhysicalOffset(offset))
        assert original is not None
        assert pairs(record)["ORIGIN_MESSAGE_ID"] == original.message_id


async def test_a_committed_message_of_a_transaction_comes_back_as_such(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        offset = put_work(
            broker,
            sys_flag=flags.TRANSACTION_COMMIT,
            prepared_offset=5,
            properties=b"TRAN_MSG\x01true",
        )
        await broker.send(send_back_frame(offset))
        record = broker.record(SCHEDULE_TOPIC, 2)
        assert (record.sys_flag, record.prepared_offset) == (flags.TRANSACTION_COMMIT, 0)


async def test_send_backs_in_the_binary_serialization_are_taken(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        header = ConsumerSendMsgBackRequest(
            offset=put_work(broker), group="group", delay_level=0, origin_topic=TOPIC
        )
        answer = await broker.send(
            frame(RequestCode.CONSUMER_SEND_MSG_BACK, header, serialization=Serialization.ROCKETMQ)
        )
        assert (answer.code, answer.serialization) == (0, Serialization.ROCKETMQ)


# --- topics of the group ---------------------------------------------------------------------


async def test_the_topics_of_a_group_are_made_when_they_are_needed(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        broker.groups.put(SubscriptionGroupConfig(group_name="group", retry_queue_nums=3))
        offset = put_work(broker)
        await broker.send(send_back_frame(offset, unit_mode=True))
        retry = broker.topic(RETRY)
        assert (retry.read_queue_nums, retry.write_queue_nums) == (3, 3)
        assert (retry.perm, retry.topic_sys_flag) == (6, 2)
        await broker.send(send_back_frame(offset, delay_level=-1, unit_mode=True))
        dead = broker.topic(DEAD)
        assert (dead.read_queue_nums, dead.write_queue_nums) == (1, 1)
        assert (dead.perm, dead.topic_sys_flag) == (6, 0)
        saved = (tmp_path / "config" / "topics.json").read_text()
        assert f'"{RETRY}"' in saved
        assert f'"{DEAD}"' in saved


async def test_a_dead_letter_of_a_new_group_makes_both_topics(tmp_path: Path) -> None:
    # mqadmin finds the brokers of a group by the route of its retry topic.
    async with send_broker(tmp_path) as broker:
        await broker.send(send_back_frame(put_work(broker), delay_level=-1))
        assert broker.topics.get(RETRY) is not None
        assert len(broker.records(DEAD)) == 1
        assert f'"{RETRY}"' in (tmp_path / "config" / "topics.json").read_text()


async def test_retries_are_spread_over_the_queues_of_the_group(tmp_path: Path) -> None:
    random.seed(1)
    async with send_broker(tmp_path) as broker:
        broker.groups.put(SubscriptionGroupConfig(group_name="group", retry_queue_nums=3))
        peer = broker.attach()
        offset = put_work(broker)
        for number in range(40):
            assert (await peer.request(send_back_frame(offset, opaque=number))).code == 0
        queues = {pairs(record)["REAL_QID"] for record in broker.records(SCHEDULE_TOPIC, 2)}
        assert queues == {"0", "1", "2"}


async def test_a_retry_rests_in_a_queue_that_consumers_read(tmp_path: Path) -> None:
    # A group whose queues were made more than its topic has: 4.9.8 loses such messages.
    random.seed(1)
    async with send_broker(tmp_path) as broker:
        await broker.create_topic(RETRY, 2)
        broker.groups.put(SubscriptionGroupConfig(group_name="group", retry_queue_nums=8))
        peer = broker.attach()
        offset = put_work(broker)
        for number in range(40):
            assert (await peer.request(send_back_frame(offset, opaque=number))).code == 0
        queues = {pairs(record)["REAL_QID"] for record in broker.records(SCHEDULE_TOPIC, 2)}
        assert queues == {"0", "1"}


async def test_send_backs_wait_for_their_topic(tmp_path: Path) -> None:
    async with send_broker(tmp_path, creates_topics=False) as broker:
        offset = put_work(broker)
        peer = broker.attach()
        await peer.send(
            *(
                send_back_frame(offset, delay_level=-1 if number % 2 else 0, opaque=number)
                for number in range(6)
            )
        )
        assert await peer.ping() == []
        assert broker.served.group("send").unanswered == 6
        broker.start_creation()
        answers = await peer.read_many(6)
        assert {(answer.opaque, answer.code) for answer in answers} == {(n, 0) for n in range(6)}
        assert (len(broker.records(DEAD)), len(broker.records(SCHEDULE_TOPIC, 2))) == (3, 3)


async def test_a_topic_that_cannot_be_saved_takes_no_messages_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(file: ConfigFile, _text: str) -> None:
        raise StorageError("write", file.path.name, "No space left on device")

    async with send_broker(tmp_path) as broker:
        offset = put_work(broker)
        written = broker.core.log.written
        with monkeypatch.context() as patch:
            patch.setattr(ConfigFile, "write", refuse)
            for level in (0, -1, 0, -1):
                answer = await broker.send(send_back_frame(offset, delay_level=level))
                assert (answer.code, answer.remark) == (
                    ResponseCode.SYSTEM_ERROR,
                    "cannot write topics.json: No space left on device",
                )
        assert broker.core.log.written == written
        for level in (0, -1):
            assert (await broker.send(send_back_frame(offset, delay_level=level))).code == 0


async def test_what_fails_unexpectedly_is_answered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with send_broker(tmp_path) as broker:
        offset = put_work(broker)

        def broken(*_: object) -> None:
            raise RuntimeError("broken")

        broker.store.append = broken  # type: ignore[assignment, method-assign]
        answer = await broker.send(send_back_frame(offset))
        assert (answer.code, answer.remark) == (
            ResponseCode.SYSTEM_ERROR,
            "RuntimeError: broken",
        )
        assert broker.served.group("send").unanswered == 0
        assert Logs(caplog).lines == [f"callback for the creation of topic {RETRY} raised"]


async def test_a_consumer_that_is_gone_has_sent_its_message_back(tmp_path: Path) -> None:
    async with send_broker(tmp_path, creates_topics=False) as broker:
        peer = broker.attach()
        await peer.send(send_back_frame(put_work(broker)))
        await wait_all_tasks_blocked()
        await peer.aclose()
        await wait_all_tasks_blocked()
        broker.start_creation()
        await broker.settle_topics()
        assert len(broker.records(SCHEDULE_TOPIC, 2)) == 1
        assert broker.served.group("send").unanswered == 0


# --- counts and groups -------------------------------------------------------------------------


async def test_what_came_back_is_counted(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        offset = put_work(broker)
        for level in (0, 0, -1):
            await broker.send(send_back_frame(offset, delay_level=level))
        stats = broker.broker.stats
        stats.sample(START_MS)

        def total(name: str, key: str) -> int:
            view = stats.view(name, key)
            assert view is not None
            assert view.stats_minute is not None
            return view.stats_minute.sum

        assert total("SNDBCK_PUT_NUMS", f"{TOPIC}@group") == 3
        assert total("TOPIC_PUT_NUMS", SCHEDULE_TOPIC) == 2
        assert stats.view("TOPIC_PUT_NUMS", DEAD) is None
        assert broker.broker.stats.store.put_count == 3


async def test_a_message_may_come_back_to_several_groups(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        peer = broker.attach()
        await peer.request(send_frame(properties=text(KEYS="k")))
        for group in ("a", "b"):
            assert (await peer.request(send_back_frame(0, group))).code == 0
        topics = [pairs(record)["REAL_TOPIC"] for record in broker.records(SCHEDULE_TOPIC, 2)]
        assert topics == ["%RETRY%a", "%RETRY%b"]
