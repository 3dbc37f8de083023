"""Our client against the stock broker: what producers and consumers ask."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import trio
from asking import expect_serialization, records_in
from broker_session import (
    CLIENT_ID,
    PRODUCER_GROUP,
    QUEUES,
    BrokerSession,
    queue_of,
    subscription,
)
from stock_servers import BROKER

from interop.support.cases import expect, expect_true
from interop.support.waiting import wait_until
from rmq.remoting import bodies, headers
from rmq.remoting.bodies import BatchMessage, encode_batch
from rmq.remoting.codes import RequestCode, Serialization

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from interop.support.cases import CaseTable


async def run_message_cases(table: CaseTable, session: BrokerSession) -> None:
    for name, case in CASES.items():
        with table.case(session.part, name):
            await case(session)


async def _create_topic(session: BrokerSession) -> None:
    await session.broker.ask(
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        headers.CreateTopicRequest(
            topic=session.topic,
            default_topic="TBW102",
            read_queue_nums=QUEUES,
            write_queue_nums=QUEUES,
            perm=6,
            topic_filter_type="SINGLE_TAG",
            topic_sys_flag=0,
        ),
    )
    route = await session.nameserver.body(
        bodies.TopicRouteData,
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        headers.GetRouteInfoRequest(topic=session.topic),
    )
    (queues,) = route.queue_datas
    expect("write queues", queues.write_queue_nums, QUEUES)


async def _heartbeat(session: BrokerSession) -> None:
    heartbeat = bodies.HeartbeatData(
        client_id=CLIENT_ID,
        producer_data_set=(bodies.ProducerData(group_name=PRODUCER_GROUP),),
        consumer_data_set=(
            bodies.ConsumerData(
                group_name=session.group,
                consume_type=bodies.ConsumeType.CONSUME_PASSIVELY,
                message_model=bodies.MessageModel.CLUSTERING,
                consume_from_where=bodies.ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
                subscription_data_set=(subscription(session.topic),),
            ),
        ),
    )
    await session.broker.ask(RequestCode.HEART_BEAT, body=heartbeat.encode())
    # On this connection the notification was written before the answer.
    expect("notified", session.consumer.notified, [session.group])


async def _send(session: BrokerSession) -> None:
    message = session.message()
    for number in range(2):
        answer = await session.broker.ask(
            RequestCode.SEND_MESSAGE_V2, message, body=b"a message of 22 bytes."
        )
        expect_serialization(answer, session.serialization)
        stored = answer.header(headers.SendMessageResponse)
        expect("queue", (stored.queue_id, stored.queue_offset), (0, number))
        expect("length of the message id", len(stored.msg_id), 32)
        expect("region", stored.msg_region, "DefaultRegion")
    answer = await session.broker.ask(
        RequestCode.SEND_MESSAGE, message.to_v1(), body=b"version one"
    )
    expect("queue offset", answer.header(headers.SendMessageResponse).queue_offset, 2)


async def _send_batch(session: BrokerSession) -> None:
    batch = [BatchMessage(0, b"message %d" % n, b"TAGS\x01tag") for n in range(5)]
    answer = await session.broker.ask(
        RequestCode.SEND_BATCH_MESSAGE,
        session.message(batch=True, queue_id=1),
        body=encode_batch(batch),
    )
    stored = answer.header(headers.SendMessageResponse)
    expect("message ids", len(stored.msg_id.split(",")), len(batch))
    expect("queue", (stored.queue_id, stored.queue_offset), (1, 0))


async def _offsets(session: BrokerSession) -> None:
    broker = session.broker

    # Messages can be read when they are dispatched, a moment after they are stored.
    async def dispatched() -> bool:
        return (await _max_offset(session, 0), await _max_offset(session, 1)) == (3, 5)

    await wait_until("3 messages in one queue and 5 in the other", dispatched)
    smallest = await broker.header(
        headers.GetMinOffsetResponse,
        RequestCode.GET_MIN_OFFSET,
        headers.GetMinOffsetRequest(topic=session.topic, queue_id=0),
    )
    expect("least offset", smallest.offset, 0)
    earliest = await broker.header(
        headers.GetEarliestMsgStoretimeResponse,
        RequestCode.GET_EARLIEST_MSG_STORETIME,
        headers.GetEarliestMsgStoretimeRequest(topic=session.topic, queue_id=0),
    )
    expect_true("a store time", 0 < earliest.timestamp <= time.time() * 1000)
    found = await broker.header(
        headers.SearchOffsetResponse,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        headers.SearchOffsetRequest(topic=session.topic, queue_id=0, timestamp=earliest.timestamp),
    )
    expect("offset of the store time", found.offset, 0)


async def _max_offset(session: BrokerSession, queue_id: int) -> int:
    answer = await session.broker.header(
        headers.GetMaxOffsetResponse,
        RequestCode.GET_MAX_OFFSET,
        headers.GetMaxOffsetRequest(topic=session.topic, queue_id=queue_id, broker_name=BROKER),
    )
    return answer.offset


async def _pull(session: BrokerSession) -> None:
    for queue_id, count in ((0, 3), (1, 5)):
        answer = await session.broker.ask(
            RequestCode.PULL_MESSAGE, session.pull(queue_id, 0, hold_ms=1_000)
        )
        expect_serialization(answer, session.serialization)
        expect("messages", records_in(answer.body), count)
        header = answer.header(headers.PullMessageResponse)
        expect("next offset", header.next_begin_offset, count)
        expect("offsets", (header.min_offset, header.max_offset), (0, count))


async def _pull_held(session: BrokerSession) -> None:
    answers: list[float] = []
    async with trio.open_nursery() as nursery:

        async def pull() -> None:
            answer = await session.broker.ask(
                RequestCode.PULL_MESSAGE, session.pull(0, 3, hold_ms=8_000)
            )
            answers.append(trio.current_time())
            expect("messages", records_in(answer.body), 1)
            # A woken pull is answered in the broker's own serialization.
            expect_serialization(answer, Serialization.JSON)

        nursery.start_soon(pull)
        await trio.sleep(0.3)
        expect("answers before the message", answers, [])
        await session.broker.ask(
            RequestCode.SEND_MESSAGE_V2, session.message(), body=b"the one waited for"
        )


async def _consumer_offsets(session: BrokerSession) -> None:
    update = headers.UpdateConsumerOffsetRequest(
        consumer_group=session.group, topic=session.topic, queue_id=0, commit_offset=2
    )
    await session.broker.ask(RequestCode.UPDATE_CONSUMER_OFFSET, update)
    expect("offset", await _consumer_offset(session), 2)
    await session.client.oneway(
        session.servers.broker,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        headers.UpdateConsumerOffsetRequest(
            consumer_group=session.group, topic=session.topic, queue_id=0, commit_offset=3
        ),
    )

    async def moved() -> bool:
        return await _consumer_offset(session) == 3

    await wait_until("the one-way update to arrive", moved)


async def _consumer_offset(session: BrokerSession) -> int:
    answer = await session.broker.header(
        headers.QueryConsumerOffsetResponse,
        RequestCode.QUERY_CONSUMER_OFFSET,
        headers.QueryConsumerOffsetRequest(
            consumer_group=session.group, topic=session.topic, queue_id=0
        ),
    )
    return answer.offset


async def _find(session: BrokerSession) -> None:
    query = headers.QueryMessageRequest(
        topic=session.topic, key=session.key, max_num=32, begin_timestamp=0, end_timestamp=2**62
    )

    async def indexed() -> bool:
        answer = await session.broker.ask(RequestCode.QUERY_MESSAGE, query)
        return records_in(answer.body) == 4

    await wait_until("4 messages with the key", indexed)
    stored = await session.broker.ask(
        RequestCode.SEND_MESSAGE_V2, session.message(), body=b"to be viewed"
    )
    # A message id is the host (8 bytes) and the physical offset (8 bytes) in hexadecimal.
    offset = int(stored.header(headers.SendMessageResponse).msg_id[16:], 16)
    viewed = await session.broker.ask(
        RequestCode.VIEW_MESSAGE_BY_ID, headers.ViewMessageRequest(offset=offset)
    )
    expect("messages", records_in(viewed.body), 1)
    expect_true("its body", b"to be viewed" in (viewed.body or b""))


async def _lock(session: BrokerSession) -> None:
    queue = queue_of(session.topic, 0)
    locked = await session.broker.body(
        bodies.LockBatchResponseBody,
        RequestCode.LOCK_BATCH_MQ,
        body=bodies.LockBatchRequestBody(
            consumer_group=session.group, client_id=CLIENT_ID, mq_set=(queue,)
        ).encode(),
    )
    expect("locked", tuple(locked.lock_ok_mq_set), (queue,))
    await session.broker.ask(
        RequestCode.UNLOCK_BATCH_MQ,
        body=bodies.UnlockBatchRequestBody(
            consumer_group=session.group, client_id=CLIENT_ID, mq_set=(queue,)
        ).encode(),
    )


CASES: Final[dict[str, Callable[[BrokerSession], Awaitable[None]]]] = {
    "UPDATE_AND_CREATE_TOPIC, then its route": _create_topic,
    "HEART_BEAT, with NOTIFY_CONSUMER_IDS_CHANGED before": _heartbeat,
    "SEND_MESSAGE_V2, SEND_MESSAGE": _send,
    "SEND_BATCH_MESSAGE": _send_batch,
    "GET_MAX, MIN_OFFSET, EARLIEST_STORETIME, SEARCH_OFFSET": _offsets,
    "PULL_MESSAGE": _pull,
    "PULL_MESSAGE held until a message comes": _pull_held,
    "UPDATE and QUERY_CONSUMER_OFFSET": _consumer_offsets,
    "QUERY_MESSAGE, VIEW_MESSAGE_BY_ID": _find,
    "LOCK_BATCH_MQ, UNLOCK_BATCH_MQ": _lock,
}
