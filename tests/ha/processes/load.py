"""A producer that never stops sending, and remembers what it was told about each message."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import trio

from rmq.errors import ClientError, RmqError
from rmq.model.record import decode_records
from rmq.remoting.bodies import HaStatusBody, TopicConfigSerializeWrapper
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import (
    CreateTopicRequest,
    PullMessageRequest,
    PullMessageResponse,
    SendMessageRequestV2,
    SendMessageResponse,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from rmq.remoting.client import RemotingClient

TOPIC: Final = "Kills"
QUEUES: Final = 4
_WAIT_S: Final = 30.0
_AGAIN_S: Final = 0.05


class Producer:
    """Sends numbered messages, many at a time, and counts what becomes of them."""

    def __init__(self, client: RemotingClient, senders: int = 64, topic: str = TOPIC) -> None:
        self._client = client
        self._senders = senders
        self._topic = topic
        self._next = 0
        self.acknowledged: dict[bytes, int] = {}
        """By body, where in the log a message lies that was answered SEND_OK."""
        self.codes: Counter[int] = Counter()
        """How many answers of each code there were."""
        self.unanswered = 0
        self.slowest_s = 0.0
        """The longest that an answer took; set it back to begin anew."""

    async def send_until_gone(self, address: str) -> None:
        """Send until the broker does not answer."""

        async def send() -> None:
            while await self.send_one(address):
                pass

        async with trio.open_nursery() as nursery:
            for _ in range(self._senders):
                nursery.start_soon(send)

    @asynccontextmanager
    async def sending(self, address: str) -> AsyncIterator[None]:
        """Send all the time, also to a broker that is gone for a while."""

        async def send() -> None:
            while True:
                if not await self.send_one(address):
                    await trio.sleep(_AGAIN_S)

        async with trio.open_nursery() as nursery:
            for _ in range(self._senders):
                nursery.start_soon(send)
            yield
            nursery.cancel_scope.cancel()

    async def send_one(self, address: str, properties: str = "") -> bool:
        """Send the next message; tell whether it was answered."""
        number, self._next = self._next, self._next + 1
        body = (b"%012d " % number).ljust(100 + number % 400, b"x")
        header = SendMessageRequestV2(
            producer_group="kills",
            topic=self._topic,
            default_topic="TBW102",
            default_topic_queue_nums=QUEUES,
            queue_id=number % QUEUES,
            sys_flag=0,
            born_timestamp=time.time_ns() // 1_000_000,
            flag=0,
            properties=f"KEYS\x01k{number}\x02{properties}",
        )
        started = trio.current_time()
        try:
            answer = await self._client.request(
                address, RequestCode.SEND_MESSAGE_V2, header, body=body, timeout_s=10
            )
        except ClientError:
            self.unanswered += 1
            return False
        self.slowest_s = max(self.slowest_s, trio.current_time() - started)
        self.codes[answer.code] += 1
        if answer.code == ResponseCode.SUCCESS:
            message_id = answer.header(SendMessageResponse).msg_id
            self.acknowledged[body] = int(message_id[-16:], 16)
        return True


class Consumer:
    """Reads a topic from any broker, going on where it was."""

    def __init__(self, client: RemotingClient, topic: str = TOPIC) -> None:
        self._client = client
        self._topic = topic
        self._offsets = [0] * QUEUES
        self.bodies: Counter[bytes] = Counter()
        """How many times it got each message."""

    async def read_all(self, address: str) -> None:
        for queue_id in range(QUEUES):
            while await self._read(address, queue_id):
                pass

    async def _read(self, address: str, queue_id: int) -> bool:
        offset = self._offsets[queue_id]
        header = PullMessageRequest(
            consumer_group="kills",
            topic=self._topic,
            queue_id=queue_id,
            queue_offset=offset,
            max_msg_nums=32,
            sys_flag=4,
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription="*",
            sub_version=0,
        )
        answer = await self._client.request(address, RequestCode.PULL_MESSAGE, header, timeout_s=10)
        if answer.code == ResponseCode.SUCCESS:
            self.bodies.update(bytes(record.body) for record in decode_records(answer.body or b""))
        told = answer.header(PullMessageResponse)
        self._offsets[queue_id] = max(offset, told.next_begin_offset)
        return self._offsets[queue_id] < told.max_offset


async def fill(client: RemotingClient, address: str, size: int) -> None:
    """Send so many bytes in large messages."""
    body = bytes(range(256)) * 512
    left = size

    async def send() -> None:
        nonlocal left
        while left > 0:
            left -= len(body)
            header = SendMessageRequestV2(
                producer_group="kills",
                topic=TOPIC,
                default_topic="TBW102",
                default_topic_queue_nums=QUEUES,
                queue_id=0,
                sys_flag=0,
                born_timestamp=time.time_ns() // 1_000_000,
                flag=0,
                properties="",
            )
            answer = await client.request(
                address, RequestCode.SEND_MESSAGE_V2, header, body=body, timeout_s=10
            )
            told = (ResponseCode.SUCCESS, ResponseCode.SLAVE_NOT_AVAILABLE)
            assert answer.code in told, (answer.code, answer.remark)

    async with trio.open_nursery() as nursery:
        for _ in range(8):
            nursery.start_soon(send)


async def create_topic(client: RemotingClient, address: str) -> None:
    header = CreateTopicRequest(
        topic=TOPIC,
        default_topic="TBW102",
        read_queue_nums=QUEUES,
        write_queue_nums=QUEUES,
        perm=6,
        topic_filter_type="SINGLE_TAG",
    )
    answer = await client.request(
        address, RequestCode.UPDATE_AND_CREATE_TOPIC, header, timeout_s=10
    )
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def wait_topic(client: RemotingClient, address: str) -> None:
    """Wait until a slave has heard of the topic."""
    with trio.fail_after(_WAIT_S):
        while True:
            answer = await client.request(address, RequestCode.GET_ALL_TOPIC_CONFIG, timeout_s=10)
            known = TopicConfigSerializeWrapper.decode(answer.body).topic_config_table
            if TOPIC in known:
                return
            await trio.sleep(0.02)


async def wait_end(client: RemotingClient, address: str, end: int) -> None:
    """Wait until the log of a slave has come to `end`."""
    with trio.fail_after(_WAIT_S):
        while (await status(client, address)).end < end:  # noqa: ASYNC110 - in another process
            await trio.sleep(0.02)


async def status(client: RemotingClient, address: str) -> HaStatusBody:
    answer = await client.request(address, RequestCode.HA_STATUS, timeout_s=10)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return HaStatusBody.decode(answer.body)


async def wait_in_sync(client: RemotingClient, address: str, count: int = 1) -> HaStatusBody:
    """Wait until a master has so many slaves in sync."""
    found: HaStatusBody | None = None
    with trio.move_on_after(_WAIT_S):
        while True:
            try:
                found = await status(client, address)
                if len(found.in_sync) >= count:
                    return found
            except RmqError:
                pass
            await trio.sleep(0.02)
    raise AssertionError(f"{count} slaves are not in sync after {_WAIT_S:g} s: {found}")


async def wait_settled(client: RemotingClient, address: str) -> HaStatusBody:
    """Wait until a slave whose master is gone has taken in all that was on its way."""
    before = await status(client, address)
    with trio.fail_after(_WAIT_S):
        while True:
            await trio.sleep(0.1)
            now = await status(client, address)
            if now.end == before.end and now.state not in ("streaming", "catching up"):
                return now
            before = now
