"""A producer that goes on until its broker is gone, and remembers what it was told of each message.

It is our own client: what counts is which answer each message got and where it lies, also for those
whose broker was killed a moment later.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Final, final

import trio

from rmq.errors import ClientError
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import SendMessageRequestV2, SendMessageResponse

if TYPE_CHECKING:
    from ha_members import Member

    from rmq.remoting.client import RemotingClient

QUEUES: Final = 4
_SENDERS: Final = 16
_BODY_BYTES: Final = 1000


@final
class Load:
    """Numbered messages of one topic; every number is used once."""

    def __init__(
        self, client: RemotingClient, topic: str, *, body_bytes: int = _BODY_BYTES
    ) -> None:
        self.topic = topic
        self.acknowledged: dict[bytes, int] = {}
        """By body, where in the log a message lies that was answered SEND_OK."""
        self.stored: dict[bytes, int] = {}
        """The same of messages of which the answer said anything: they are on the master."""
        self.codes: Counter[int] = Counter()
        self._client = client
        self._body_bytes = body_bytes
        self._next = 0

    async def send_until_gone(self, member: Member) -> None:
        """Keep messages in flight until the broker is gone."""
        async with trio.open_nursery() as nursery:
            for _ in range(_SENDERS):
                nursery.start_soon(self._send_on, member.address)

    async def send(self, member: Member, count: int) -> Counter[int]:
        """Send messages one after the other; return how many were answered with each code."""
        codes: Counter[int] = Counter()
        for _ in range(count):
            codes[await self._send(member.address)] += 1
        return codes

    async def _send_on(self, address: str) -> None:
        try:
            while True:
                await self._send(address)
        except ClientError:
            return

    async def _send(self, address: str) -> int:
        number, self._next = self._next, self._next + 1
        body = (b"%08d " % number).ljust(self._body_bytes, b"x")
        header = SendMessageRequestV2(
            producer_group="load",
            topic=self.topic,
            default_topic="TBW102",
            default_topic_queue_nums=QUEUES,
            queue_id=number % QUEUES,
            sys_flag=0,
            born_timestamp=time.time_ns() // 1_000_000,
            flag=0,
            properties=f"KEYS\x01k{number}",
        )
        answer = await self._client.request(
            address, RequestCode.SEND_MESSAGE_V2, header, body=body, timeout_s=15
        )
        self.codes[answer.code] += 1
        offset = (
            int(answer.header(SendMessageResponse).msg_id[-16:], 16)
            if _is_stored(answer.code)
            else None
        )
        if offset is not None:
            self.stored[body] = offset
            if answer.code == ResponseCode.SUCCESS:
                self.acknowledged[body] = offset
        return answer.code


def _is_stored(code: int) -> bool:
    return code in (
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
    )
