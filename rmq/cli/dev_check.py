"""The self-check of `rmq dev`: messages through a nameserver and a broker, as a client would.

It finds the broker through the nameserver, creates a topic, sends, pulls everything back and
compares. Whatever differs raises.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import trio

from rmq.errors import ResponseError, RmqError
from rmq.model.names import AUTO_CREATE_TOPIC
from rmq.remoting.bodies import TopicRouteData
from rmq.remoting.client import open_client
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import (
    CreateTopicRequest,
    GetRouteInfoRequest,
    PullMessageRequest,
    PullMessageResponse,
    SendMessageRequestV2,
    SendMessageResponse,
)
from rmq.store.record import decode_records

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.remoting.client import RemotingClient
    from rmq.remoting.command import Command
    from rmq.remoting.header import Header

TOPIC: Final = "RMQ_DEV_CHECK"
GROUP: Final = "rmq_dev_check"
QUEUES: Final = 8
SENDERS: Final = 64
ROUTE_S: Final = 10.0
_PULL_FLAGS: Final = 4
"""The filter is in the request, and nothing waits."""


class CheckFailedError(RmqError):
    """The self-check found something else than it should have."""


async def check(nameserver: str, count: int, say: Callable[[str], None]) -> None:
    """Send and consume `count` messages; raise if any of them is lost, doubled or changed."""
    async with open_client() as client:
        broker = await _create_topic(client, nameserver)
        say(f"  topic {TOPIC} created, its route found at the nameserver")
        starts = [await _end_of(client, broker, queue_id) for queue_id in range(QUEUES)]
        started = time.perf_counter()
        sent = await _send(client, broker, count)
        took = time.perf_counter() - started
        say(f"  {count} messages sent      {count / took:10,.0f} per second")
        started = time.perf_counter()
        received: dict[bytes, int] = {}
        for queue_id, start in enumerate(starts):
            await _consume(client, broker, queue_id, start, received)
        took = time.perf_counter() - started
        say(f"  {count} messages consumed  {count / took:10,.0f} per second")
    lost = sent - received.keys()
    doubled = [body for body, times in received.items() if times > 1]
    foreign = received.keys() - sent
    if lost or doubled or foreign:
        raise CheckFailedError(
            f"of {count} messages {len(lost)} were lost, {len(doubled)} doubled"
            f" and {len(foreign)} not ours"
        )


async def _create_topic(client: RemotingClient, nameserver: str) -> str:
    """Create the topic where a built-in one lives; return the address of the broker."""
    default = await _route(client, nameserver, AUTO_CREATE_TOPIC)
    broker = default.broker_datas[0].broker_addrs[0]
    header = CreateTopicRequest(
        topic=TOPIC,
        default_topic=AUTO_CREATE_TOPIC,
        read_queue_nums=QUEUES,
        write_queue_nums=QUEUES,
        perm=6,
        topic_filter_type="SINGLE_TAG",
    )
    await _call(client, broker, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
    route = await _route(client, nameserver, TOPIC)
    return route.broker_datas[0].broker_addrs[0]


async def _route(client: RemotingClient, nameserver: str, topic: str) -> TopicRouteData:
    with trio.move_on_after(ROUTE_S):
        while True:
            answer = await client.request(
                nameserver, RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequest(topic=topic)
            )
            if answer.code == ResponseCode.SUCCESS:
                return TopicRouteData.decode(answer.body)
            if answer.code != ResponseCode.TOPIC_NOT_EXIST:
                raise ResponseError(nameserver, "route", answer.code, answer.remark)
            await trio.sleep(0.05)
    raise CheckFailedError(f"nameserver {nameserver} has no route for {topic} after {ROUTE_S:g} s")


async def _send(client: RemotingClient, broker: str, count: int) -> set[bytes]:
    run = time.time_ns()
    numbers = iter(range(count))
    sent: set[bytes] = set()

    async def send_some() -> None:
        for number in numbers:
            body = b"%d-%d" % (run, number)
            header = SendMessageRequestV2(
                producer_group=GROUP,
                topic=TOPIC,
                default_topic=AUTO_CREATE_TOPIC,
                default_topic_queue_nums=QUEUES,
                queue_id=number % QUEUES,
                sys_flag=0,
                born_timestamp=time.time_ns() // 1_000_000,
                flag=0,
                properties=f"KEYS\x01key-{number}\x02TAGS\x01check",
            )
            answer = await _call(client, broker, RequestCode.SEND_MESSAGE_V2, header, body)
            answer.header(SendMessageResponse)
            sent.add(body)

    async with trio.open_nursery() as nursery:
        for _ in range(SENDERS):
            nursery.start_soon(send_some)
    return sent


async def _end_of(client: RemotingClient, broker: str, queue_id: int) -> int:
    """Return where a queue ends before anything is sent: a kept store may hold earlier runs."""
    answer = await _pull(client, broker, queue_id, 0)
    return answer.header(PullMessageResponse).max_offset


async def _consume(
    client: RemotingClient, broker: str, queue_id: int, offset: int, received: dict[bytes, int]
) -> None:
    while True:
        answer = await _pull(client, broker, queue_id, offset)
        header = answer.header(PullMessageResponse)
        if answer.code == ResponseCode.SUCCESS:
            for record in decode_records(answer.body or b""):
                received[record.body] = received.get(record.body, 0) + 1
        if header.next_begin_offset >= header.max_offset:
            return
        offset = header.next_begin_offset


async def _pull(client: RemotingClient, broker: str, queue_id: int, offset: int) -> Command:
    header = PullMessageRequest(
        consumer_group=GROUP,
        topic=TOPIC,
        queue_id=queue_id,
        queue_offset=offset,
        max_msg_nums=32,
        sys_flag=_PULL_FLAGS,
        commit_offset=0,
        suspend_timeout_millis=0,
        subscription="*",
        sub_version=0,
    )
    answer = await client.request(broker, RequestCode.PULL_MESSAGE, header, timeout_s=10)
    found = (
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    )
    if answer.code not in found:
        raise ResponseError(broker, "PULL_MESSAGE", answer.code, answer.remark)
    return answer


async def _call(
    client: RemotingClient,
    address: str,
    code: RequestCode,
    header: Header,
    body: bytes | None = None,
) -> Command:
    answer = await client.request(address, code, header, body=body, timeout_s=10)
    if answer.code != ResponseCode.SUCCESS:
        raise ResponseError(address, code.name, answer.code, answer.remark)
    return answer
