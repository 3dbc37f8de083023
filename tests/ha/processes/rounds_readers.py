"""A consumer group that reads through all rounds, and what is to be said of its offsets."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import trio

from rmq.client import ConsumeFrom, open_push_consumer
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import (
    GetMaxOffsetRequest,
    GetMaxOffsetResponse,
    QueryConsumerOffsetRequest,
    QueryConsumerOffsetResponse,
)
from tests.ha.processes.load import QUEUES, TOPIC
from tests.ha.processes.rounds_account import DELAYS_MS, Kind

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from rmq.client import ReceivedMessage
    from rmq.remoting.client import RemotingClient

GROUP: Final = "rounds-readers"
TABLES_S: Final = 30.0
"""A slave that counts has tables that are no older (docs/ha.md)."""
_DELAYED: Final = Kind.DELAYED.value.encode()


class Readers:
    """One push consumer of our client: what it got, and where its group stands."""

    def __init__(self, client: RemotingClient) -> None:
        self._client = client
        self.bodies: Counter[bytes] = Counter()
        """How many times it got each message."""
        self.latest_delay_ms = 0
        """By how much the latest delayed message came later than it was due."""
        self.longest_step_back = 0
        """By how many messages of a queue the offset of the group went back at most."""
        self.faults: list[str] = []
        self._samples: list[tuple[float, list[int]]] = []

    @asynccontextmanager
    async def running(self, nameserver: str) -> AsyncIterator[None]:
        async with open_push_consumer(
            nameserver,
            GROUP,
            TOPIC,
            self._listen,
            consume_from=ConsumeFrom.FIRST,
            batch_messages_max=32,
        ):
            yield

    async def _listen(self, messages: Sequence[ReceivedMessage]) -> None:
        now_ms = time.time_ns() // 1_000_000
        for message in messages:
            body = message.body
            if body.startswith(_DELAYED) and body not in self.bodies:
                # The level is that of the number: see the loads.
                level = 1 + int(body.split()[1]) % len(DELAYS_MS)
                late_ms = now_ms - message.born_at_ms - DELAYS_MS[level]
                self.latest_delay_ms = max(self.latest_delay_ms, late_ms)
                if late_ms < 0:
                    self.faults.append(f"{body!r} came {-late_ms} ms before its time")
            self.bodies[body] += 1

    async def wait_for(self, wanted: set[bytes], wait_s: float) -> set[bytes]:
        """Wait until it has got all of these; return what it has not got in time."""
        missing = wanted - self.bodies.keys()
        with trio.move_on_after(wait_s):
            while missing:
                await trio.sleep(0.2)
                missing -= self.bodies.keys()
        return missing

    # --- offsets -----------------------------------------------------------------------------

    async def look(self, address: str, when: str, *, is_new_master: bool = False) -> None:
        """See where the group stands on a master: within its queues, and hardly ever back."""
        now = time.monotonic()
        committed = []
        for queue_id in range(QUEUES):
            committed.append(await self._committed(address, queue_id))
            end = await self._end(address, queue_id)
            if committed[-1] > end:
                self.faults.append(
                    f"{when}: the group is at {committed[-1]} of queue {queue_id}, which ends at"
                    f" {end}"
                )
        if self._samples:
            steps = (a - b for a, b in zip(self._samples[-1][1], committed, strict=True))
            self.longest_step_back = max(self.longest_step_back, *steps)
        if is_new_master:
            self._check_not_older(committed, now, when)
            # From here on this one counts: what lay beyond is gone with the old master.
            self._samples.clear()
        self._samples.append((now, committed))

    def _check_not_older(self, committed: list[int], now: float, when: str) -> None:
        old = [offsets for at, offsets in self._samples if at <= now - TABLES_S]
        if old and any(a < b for a, b in zip(committed, old[-1], strict=True)):
            self.faults.append(
                f"{when}: the group is at {committed}, and was at {old[-1]} {TABLES_S:g} s before"
            )

    async def _committed(self, address: str, queue_id: int) -> int:
        header = QueryConsumerOffsetRequest(consumer_group=GROUP, topic=TOPIC, queue_id=queue_id)
        answer = await self._client.request(
            address, RequestCode.QUERY_CONSUMER_OFFSET, header, timeout_s=10
        )
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return 0
        return answer.header(QueryConsumerOffsetResponse).offset

    async def _end(self, address: str, queue_id: int) -> int:
        header = GetMaxOffsetRequest(topic=TOPIC, queue_id=queue_id)
        answer = await self._client.request(
            address, RequestCode.GET_MAX_OFFSET, header, timeout_s=10
        )
        return answer.header(GetMaxOffsetResponse).offset
