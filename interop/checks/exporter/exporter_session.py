"""What the exporter is shown: a pair, a steady flow of messages, and three consumer groups.

- `readers` are online and have read everything;
- `strollers` have read the first messages and left: they are behind by all the others;
- `refusers` want the broken messages only, refuse each twice, and so give it up.
"""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

import trio

from interop.checks.exporter.stock_exporter import FORGETS_AFTER_S
from interop.support.cases import MismatchError, expect
from interop.support.expectations import expect_sent
from interop.support.java_messages import Outgoing
from interop.support.topics import create_topics
from interop.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from interop.checks.exporter.stock_exporter import Exporter, Scrape
    from interop.support.cluster import Against, Broker, Cluster
    from interop.support.java_client import Driver, DriverKit, Producer
    from interop.support.java_consumers import PushConsumer
    from interop.support.results import Operations

TOPIC: Final = "Shop"
QUEUES: Final = 4
PRODUCERS: Final = "shop-producers"
READERS: Final = "readers"
STROLLERS: Final = "strollers"
REFUSERS: Final = "refusers"
BROKEN: Final = "Broken"
READ_FIRST: Final = 20
"""Messages that the strollers have read."""

_INTERVAL_S: Final = 0.1
_BROKEN_EVERY: Final = 20
_RATE_SPAN_S: Final = 50
_BODY: Final = b"x" * 200
_ROUTE_WITHIN_S: Final = 40

_SETTINGS: Final[Mapping[str, str]] = {
    "mappedFileSizeCommitLog": str(64 << 20),
    # Retries, which begin at level 3, come soon.
    "messageDelayLevel": "1s 5s 1s 1s 1s",
    "registerNameServerPeriod": "10000",
    "haSendHeartbeatInterval": "1000",
    # Refuse no sends because the machine is slow.
    "waitTimeMillsInSendQueue": "20000",
    "osPageCacheBusyTimeOutMills": "20000",
}


@final
@dataclass
class Flow:
    """Messages that are sent one after the other, ten a second, each answered SEND_OK."""

    producer: Producer
    sent: int = 0
    broken: int = 0
    first_ms: int = 0
    """When the first message was stored."""
    begun_ms: int = 0
    """When the first message was sent that the strollers have not read."""
    stored_bytes: int = 0
    """What a message takes in the log."""
    last_offset: int = 0
    """Where the last message begins in the log."""
    _times: list[float] = field(default_factory=list)
    _scope: trio.CancelScope = field(default_factory=trio.CancelScope)

    async def send_first(self) -> None:
        """Send the first messages of the log, and learn from two of them what each takes."""
        messages = [Outgoing(TOPIC, _BODY) for _ in range(READ_FIRST)]
        answers = await self.producer.send(*messages)
        expect_sent(answers)
        self.sent += len(answers)
        first, second = (physical_offset(answer.offset_message_id) for answer in answers[:2])
        expect("where the first message begins", first, 0)
        self.stored_bytes = second
        self.first_ms = (await self.producer.view(answers[0].offset_message_id)).store_ms

    async def run(self) -> None:
        """Send ten messages a second until `stop`."""
        self.begun_ms = time.time_ns() // 1_000_000
        due = trio.current_time()
        with self._scope:
            while True:
                # What has begun to be sent is counted, too.
                with trio.CancelScope(shield=True):
                    await self._send_one()
                due += _INTERVAL_S
                await trio.sleep_until(due)

    async def _send_one(self) -> None:
        is_broken = len(self._times) % _BROKEN_EVERY == _BROKEN_EVERY - 1
        (answer,) = await self.producer.send(Outgoing(TOPIC, _BODY, BROKEN if is_broken else None))
        expect_sent([answer])
        self._times.append(trio.current_time())
        self.sent += 1
        self.broken += is_broken
        self.last_offset = physical_offset(answer.offset_message_id)

    def stop(self) -> None:
        """End it before its next message."""
        self._scope.cancel()

    @property
    def rate(self) -> float:
        """Messages per second, of late."""
        return _rate(self._times)

    @property
    def broken_rate(self) -> float:
        """Broken messages among them."""
        return _rate(self._times) * self.broken / max(1, len(self._times))


def _rate(times: Sequence[float]) -> float:
    now = trio.current_time()
    late = [at for at in times if now - at <= _RATE_SPAN_S]
    return len(late) / (now - late[0]) if late else 0.0


def physical_offset(offset_message_id: str) -> int:
    """Return where in the log a message begins."""
    return int(offset_message_id[-16:], 16)


@dataclass(frozen=True)
class ExporterSession:
    """Servers of one kind with an exporter, and the clients that keep them busy."""

    operations: Operations
    against: Against
    cluster: Cluster
    master: Broker
    slave: Broker
    exporter: Exporter
    driver: Driver
    flow: Flow
    reader: PushConsumer
    refuser: PushConsumer

    async def eventually(
        self,
        part: str,
        name: str,
        check: Callable[[ExporterSession, Scrape], None],
        *,
        within_s: float = 60,
    ) -> None:
        """Scrape until `check` finds everything right, as it must be in time."""
        with self.operations.operation(part, name, timeout_s=within_s + FORGETS_AFTER_S):
            deadline = trio.current_time() + within_s
            while True:
                try:
                    return check(self, await self.exporter.scrape())
                except MismatchError:
                    if trio.current_time() >= deadline:
                        raise
                await trio.sleep(1)


async def start_pair(cluster: Cluster) -> tuple[Broker, Broker]:
    """Start a nameserver, a master and its slave."""
    await cluster.add_nameserver()
    master = cluster.place_broker("broker-a")
    await cluster.start_broker(master, {**_SETTINGS, "brokerRole": "ASYNC_MASTER"})
    slave = cluster.place_broker("broker-a", folder="slave")
    await cluster.start_broker(slave, {**_SETTINGS, "brokerRole": "SLAVE", "brokerId": "1"})
    return master, slave


@asynccontextmanager
async def open_session(
    operations: Operations,
    against: Against,
    cluster: Cluster,
    pair: tuple[Broker, Broker],
    kit: DriverKit,
    exporter: Exporter,
) -> AsyncIterator[ExporterSession]:
    """Give a session whose strollers have left and whose flow has not begun."""
    master, slave = pair
    # A retry topic that comes with its group is found by the client up to 30 s later.
    retry_topics = {f"%RETRY%{group}": 1 for group in (READERS, STROLLERS, REFUSERS)}
    await create_topics(cluster, master, {TOPIC: QUEUES, **retry_topics})
    async with (
        kit.driver(cluster.nameserver) as driver,
        driver.producer("producer", group=PRODUCERS) as producer,
    ):
        flow = Flow(producer)
        await flow.send_first()
        async with driver.push_consumer(STROLLERS, group=STROLLERS, topic=TOPIC) as stroller:
            await stroller.wait_received(READ_FIRST)

            async def has_retry_queue() -> bool:
                return bool(await stroller.queues(f"%RETRY%{STROLLERS}"))

            await wait_until("a queue for retries", has_retry_queue, timeout_s=_ROUTE_WITHIN_S)
        async with (
            driver.push_consumer(READERS, group=READERS, topic=TOPIC) as reader,
            driver.push_consumer(
                REFUSERS,
                group=REFUSERS,
                topic=TOPIC,
                expression=BROKEN,
                failures=1000,
                reconsumeTimesMax=1,
            ) as refuser,
        ):
            yield ExporterSession(
                operations,
                against,
                cluster,
                master,
                slave,
                exporter,
                driver,
                flow,
                reader,
                refuser,
            )
