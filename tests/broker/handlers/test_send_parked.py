"""Sends that rest elsewhere first: delayed messages, and first halves of transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from rmq.model import flags
from rmq.model.names import HALF_TOPIC, SCHEDULE_TOPIC
from rmq.model.offsets import PhysicalOffset, QueueOffset
from rmq.remoting.codes import ResponseCode
from tests.broker.send_kit import (
    START_MS,
    TOPIC,
    ext,
    pairs,
    send_broker,
    send_frame,
    send_frame_v1,
    send_header,
    text,
)

if TYPE_CHECKING:
    from pathlib import Path

PARKED: Final = {
    "CLUSTER": "DefaultCluster",
    "REAL_TOPIC": TOPIC,
    "REAL_QID": "2",
}

# --- delays ----------------------------------------------------------------------------------


async def test_a_delayed_message_rests_in_the_queue_of_its_level(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        answer = await broker.send(
            send_frame(
                queue_id=2,
                flag=5,
                sys_flag=0x301,
                reconsume_times=1,
                properties=text(KEYS="k", TAGS="TagA", WAIT="true", DELAY="3"),
            )
        )
        assert broker.records(queue_id=2) == []
        record = broker.record(SCHEDULE_TOPIC, 2)
        # The queue is the one that was asked for, everything else is of the parked record.
        assert answer.code == 0
        assert ext(answer)["queueId"] == "2"
        assert ext(answer)["msgId"] == record.message_id
        assert ext(answer)["queueOffset"] == "0"
        assert pairs(record) == PARKED | {
            "KEYS": "k",
            "TAGS": "TagA",
            "WAIT": "true",
            "DELAY": "3",
        }
        assert (record.flag, record.sys_flag, record.reconsume_times) == (5, 0x301, 1)
        queue = broker.core.queues.get(SCHEDULE_TOPIC, 2)
        assert queue is not None
        assert queue.entry(QueueOffset(0)) == (0, record.size, START_MS + 10_000)


@pytest.mark.parametrize(
    ("level", "stored", "queue_id"),
    [
        pytest.param("1", "1", 0, id="first"),
        pytest.param("18", "18", 17, id="last"),
        pytest.param("19", "18", 17, id="one more"),
        pytest.param("2147483647", "18", 17, id="the largest number"),
        pytest.param("+2", "2", 1, id="with a sign"),
        pytest.param("007", "7", 6, id="with zeros"),
    ],
)
async def test_a_level_beyond_the_last_is_the_last(
    tmp_path: Path, level: str, stored: str, queue_id: int
) -> None:
    async with send_broker(tmp_path) as broker:
        assert (await broker.send(send_frame(properties=text(DELAY=level)))).code == 0
        assert pairs(broker.record(SCHEDULE_TOPIC, queue_id))["DELAY"] == stored


async def test_levels_are_those_of_the_settings(tmp_path: Path) -> None:
    async with send_broker(tmp_path, {"messageDelayLevel": "2s 7m"}) as broker:
        for level in ("1", "2", "3"):
            await broker.send(send_frame(properties=text(DELAY=level)))
        dues = []
        for queue_id, offset in ((0, 0), (1, 0), (1, 1)):
            queue = broker.core.queues.get(SCHEDULE_TOPIC, queue_id)
            assert queue is not None
            entry = queue.entry(QueueOffset(offset))
            assert entry is not None
            dues.append(entry[2] - START_MS)
        assert dues == [2_000, 420_000, 420_000]


@pytest.mark.parametrize("level", ["0", "-1", "-2147483648"])
async def test_a_level_that_is_none_delays_nothing(tmp_path: Path, level: str) -> None:
    async with send_broker(tmp_path) as broker:
        answer = await broker.send(send_frame(properties=text(DELAY=level, WAIT="true")))
        assert answer.code == 0
        assert pairs(broker.record()) == {"DELAY": level, "CLUSTER": "DefaultCluster"}


@pytest.mark.parametrize("level", ["soon", "1.5", " 1", "1_0", "99999999999", "\uff11"])
async def test_a_malformed_level_is_refused(tmp_path: Path, level: str) -> None:
    async with send_broker(tmp_path) as broker:
        answer = await broker.send(send_frame(properties=text(DELAY=level)))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == f'DELAY is no number: For input string: "{level}"'
        assert broker.core.log.written == 0


@pytest.mark.parametrize(
    ("sys_flag", "is_delayed"),
    [
        pytest.param(flags.TRANSACTION_COMMIT, True, id="committed"),
        pytest.param(flags.TRANSACTION_PREPARED, False, id="prepared"),
        pytest.param(flags.TRANSACTION_ROLLBACK, False, id="rolled back"),
    ],
)
async def test_the_transaction_bits_decide_whether_a_level_counts(
    tmp_path: Path, sys_flag: int, is_delayed: bool
) -> None:
    async with send_broker(tmp_path) as broker:
        await broker.send(send_frame(sys_flag=sys_flag, properties=text(DELAY="1")))
        assert len(broker.records(SCHEDULE_TOPIC, 0)) == is_delayed
        record = broker.store.reads.record_at(PhysicalOffset(0))
        assert record is not None
        assert record.topic == (SCHEDULE_TOPIC if is_delayed else TOPIC)


async def test_a_delayed_message_of_a_retry_topic_rests_for_it(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        answer = await broker.send(
            send_frame("%RETRY%g", properties=text(DELAY="4", RETRY_TOPIC=TOPIC), reconsume_times=1)
        )
        assert answer.code == 0
        record = broker.record(SCHEDULE_TOPIC, 3)
        assert (pairs(record)["REAL_TOPIC"], record.reconsume_times) == ("%RETRY%g", 1)


async def test_a_delayed_send_under_the_old_names_rests_alike(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        await broker.send(send_frame_v1(send_header(queue_id=2, properties=text(DELAY="1"))))
        assert pairs(broker.record(SCHEDULE_TOPIC, 0)) == PARKED | {"DELAY": "1"}


async def test_what_a_client_says_of_the_real_topic_does_not_count(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        await broker.send(
            send_frame(
                queue_id=2,
                properties=text(DELAY="1", REAL_TOPIC="OFFSET_MOVED_EVENT", REAL_QID="9"),
            )
        )
        assert pairs(broker.record(SCHEDULE_TOPIC, 0)) == PARKED | {"DELAY": "1"}


# --- transactions ----------------------------------------------------------------------------


async def test_the_first_half_of_a_transaction_rests_until_it_is_decided(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        answer = await broker.send(
            send_frame(
                queue_id=2,
                sys_flag=flags.TRANSACTION_PREPARED | 1,
                properties=text(
                    TRAN_MSG="true", PGROUP="p", WAIT="true", TAGS="TagA", UNIQ_KEY="u"
                ),
            )
        )
        assert broker.records(queue_id=2) == []
        record = broker.record(HALF_TOPIC)
        assert answer.code == 0
        assert ext(answer)["queueId"] == "2"
        assert ext(answer)["msgId"] == record.message_id
        assert ext(answer)["queueOffset"] == "0"
        assert record.sys_flag == 1
        assert pairs(record) == PARKED | {
            "TRAN_MSG": "true",
            "PGROUP": "p",
            "WAIT": "true",
            "TAGS": "TagA",
            "UNIQ_KEY": "u",
        }


@pytest.mark.parametrize("value", ["true", "TRUE", "True"])
async def test_java_does_not_mind_the_case(tmp_path: Path, value: str) -> None:
    async with send_broker(tmp_path) as broker:
        await broker.send(send_frame(properties=text(TRAN_MSG=value)))
        assert len(broker.records(HALF_TOPIC)) == 1


@pytest.mark.parametrize("value", ["false", "yes", "1"])
async def test_what_is_not_true_is_no_transaction(tmp_path: Path, value: str) -> None:
    async with send_broker(tmp_path) as broker:
        await broker.send(send_frame(properties=text(TRAN_MSG=value)))
        assert pairs(broker.record()) == {"TRAN_MSG": value, "CLUSTER": "DefaultCluster"}


async def test_half_a_transaction_is_not_delayed(tmp_path: Path) -> None:
    # 4.9.8 parks it in the schedule topic and drops it when it is due.
    async with send_broker(tmp_path) as broker:
        await broker.send(send_frame(properties=text(TRAN_MSG="true", DELAY="1")))
        assert broker.records(SCHEDULE_TOPIC, 0) == []
        assert pairs(broker.record(HALF_TOPIC))["DELAY"] == "1"


async def test_transactions_may_be_forbidden(tmp_path: Path) -> None:
    async with send_broker(tmp_path, {"rejectTransactionMessage": "true"}) as broker:
        answer = await broker.send(send_frame(properties=text(TRAN_MSG="true")))
        assert (answer.code, answer.remark) == (
            ResponseCode.NO_PERMISSION,
            "the broker[10.0.0.1] sending transaction message is forbidden",
        )
        assert (await broker.send(send_frame())).code == 0
        broker.update(rejectTransactionMessage="false")
        assert (await broker.send(send_frame(properties=text(TRAN_MSG="true")))).code == 0


async def test_a_retry_of_an_old_client_is_no_transaction(tmp_path: Path) -> None:
    # Before 4.6.1 clients left TRAN_MSG on what they sent back. 4.9.8 still has the rule for it,
    # in code that is not used any more, and takes the message for half a transaction.
    async with send_broker(tmp_path) as broker:
        await broker.send(
            send_frame("%RETRY%g", properties=text(TRAN_MSG="true", DELAY="4"), reconsume_times=1)
        )
        assert broker.records(HALF_TOPIC) == []
        assert pairs(broker.record(SCHEDULE_TOPIC, 3))["REAL_TOPIC"] == "%RETRY%g"
