"""The self-check of `rmq dev`: messages through a nameserver, a master and its slave.

It finds the brokers through the nameserver as a client would, creates a topic, sends, and pulls
everything back from both of them. Whatever is lost, doubled or changed raises, and so does a slave
that does not hold what its master promised (`dev_replication`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import trio

from rmq.cli.dev_replication import CheckFailedError, check_copy, wait_in_sync
from rmq.cli.ha_client import HaClient
from rmq.errors import ResponseError
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
    from collections.abc import Callable, Mapping

    from rmq.remoting.client import RemotingClient
    from rmq.remoting.command import Command
    from rmq.remoting.header import Header

TOPIC: Final = "RMQ_DEV_CHECK"
GROUP: Final = "rmq_dev_check"
QUEUES: Final = 8
SENDERS: Final = 64
ROUTE_S: Final = 10.0
READ_S: Final = 15.0
"""How long a slave may take until consumers get from it what its master had."""
REQUEST_S: Final = 10.0
_POLL_S: Final = 0.05
_PULL_FLAGS: Final = 4
"""The filter is in the request, and nothing waits."""
_NOT_THERE_YET: Final = (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)
"""What a slave answers that has not heard of a new topic."""
_PULLED: Final = (
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)


@dataclass(frozen=True, slots=True)
class Brokers:
    """The addresses of a master and its slave."""

    master: str
    slave: str


async def check(nameserver: str, mode: str, count: int, say: Callable[[str], None]) -> None:
    """Send and consume `count` messages; raise if any of them is lost, doubled or changed."""
    async with open_client() as client:
        ha = HaClient(client, REQUEST_S)
        brokers = await _create_topic(client, nameserver)
        say(f"  topic {TOPIC} created, its route found at the nameserver")
        say(f"  {await wait_in_sync(ha, brokers.master, brokers.slave, mode)}")
        starts = {
            queue_id: await _end_of(client, brokers.master, queue_id) for queue_id in range(QUEUES)
        }
        started = time.perf_counter()
        sent = await _send(client, brokers.master, count)
        took = time.perf_counter() - started
        say(f"  {count} messages sent      {count / took:10,.0f} per second, {mode}")
        say(f"  {await check_copy(ha, brokers.master, brokers.slave, mode)}")
        ends = {queue_id: await _end_of(client, brokers.master, queue_id) for queue_id in starts}
        for role, broker in (("master", brokers.master), ("slave", brokers.slave)):
            started = time.perf_counter()
            received = await _consume_all(client, broker, role, starts, ends)
            took = time.perf_counter() - started
            _compare(sent, received, f"from the {role} {broker}")
            say(f"  {count} messages consumed  {count / took:10,.0f} per second, from the {role}")


def _compare(sent: set[bytes], received: Mapping[bytes, int], where: str) -> None:
    lost = sent - received.keys()
    doubled = [body for body, times in received.items() if times > 1]
    foreign = received.keys() - sent
    if lost or doubled or foreign:
        raise CheckFailedError(
            f"of {len(sent)} messages {len(lost)} were lost, {len(doubled)} doubled"
            f" and {len(foreign)} not ours, {where}"
        )


# --- the topic --------------------------------------------------------------------------------


async def _create_topic(client: RemotingClient, nameserver: str) -> Brokers:
    """Create the topic where a built-in one lives; return the brokers of its route."""
    default = await _route(client, nameserver, AUTO_CREATE_TOPIC)
    header = CreateTopicRequest(
        topic=TOPIC,
        default_topic=AUTO_CREATE_TOPIC,
        read_queue_nums=QUEUES,
        write_queue_nums=QUEUES,
        perm=6,
        topic_filter_type="SINGLE_TAG",
    )
    await _call(client, default.master, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
    return await _route(client, nameserver, TOPIC)


async def _route(client: RemotingClient, nameserver: str, topic: str) -> Brokers:
    """Return the brokers of a topic as soon as the nameserver knows both of them."""
    with trio.move_on_after(ROUTE_S):
        while True:
            answer = await client.request(
                nameserver, RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequest(topic=topic)
            )
            if answer.code == ResponseCode.SUCCESS:
                addresses = TopicRouteData.decode(answer.body).broker_datas[0].broker_addrs
                slaves = [address for number, address in addresses.items() if number != 0]
                if 0 in addresses and slaves:
                    return Brokers(addresses[0], slaves[0])
            elif answer.code != ResponseCode.TOPIC_NOT_EXIST:
                raise ResponseError(nameserver, "route", answer.code, answer.remark)
            await trio.sleep(_POLL_S)
    raise CheckFailedError(
        f"nameserver {nameserver} has no route for {topic} to a master and a slave"
        f" after {ROUTE_S:g} s"
    )


# --- messages ---------------------------------------------------------------------------------


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
    """Return where a queue ends: a kept store may hold earlier runs."""
    answer = await _pull(client, broker, queue_id, 0)
    _check_pulled(answer, broker)
    return answer.header(PullMessageResponse).max_offset


async def _consume_all(
    client: RemotingClient,
    broker: str,
    role: str,
    starts: Mapping[int, int],
    ends: Mapping[int, int],
) -> dict[bytes, int]:
    """Pull all queues from where they began to where they end on the master."""
    received: dict[bytes, int] = {}
    positions = dict(starts)
    with trio.move_on_after(READ_S):
        for queue_id, end in ends.items():
            while positions[queue_id] < end:
                positions[queue_id] = await _consume(
                    client, broker, queue_id, positions[queue_id], received
                )
        return received
    behind = sum(end - positions[queue_id] for queue_id, end in ends.items())
    raise CheckFailedError(
        f"the {role} {broker} gave no more messages: {behind} are missing after {READ_S:g} s"
    )


async def _consume(
    client: RemotingClient, broker: str, queue_id: int, offset: int, received: dict[bytes, int]
) -> int:
    """Pull once, and note what came; return where to go on."""
    answer = await _pull(client, broker, queue_id, offset)
    if answer.code == ResponseCode.SUCCESS:
        for record in decode_records(answer.body or b""):
            received[record.body] = received.get(record.body, 0) + 1
        return answer.header(PullMessageResponse).next_begin_offset
    if answer.code not in _NOT_THERE_YET:
        _check_pulled(answer, broker)
    await trio.sleep(_POLL_S)
    return offset


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
    return await client.request(broker, RequestCode.PULL_MESSAGE, header, timeout_s=REQUEST_S)


def _check_pulled(answer: Command, broker: str) -> None:
    if answer.code not in _PULLED:
        raise ResponseError(broker, "PULL_MESSAGE", answer.code, answer.remark)


async def _call(
    client: RemotingClient,
    address: str,
    code: RequestCode,
    header: Header,
    body: bytes | None = None,
) -> Command:
    answer = await client.request(address, code, header, body=body, timeout_s=REQUEST_S)
    if answer.code != ResponseCode.SUCCESS:
        raise ResponseError(address, code.name, answer.code, answer.remark)
    return answer
