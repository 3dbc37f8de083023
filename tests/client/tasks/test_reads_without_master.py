"""While a name has no master, what only reads goes on from its slave; what writes says why not."""

from __future__ import annotations

import logging
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest
import trio

from rmq.client import Message, SendResult
from rmq.client.blocking import BlockingConsumer
from rmq.client.blocking.admin import BlockingAdmin
from rmq.client.blocking.client import BlockingClient
from rmq.client.core.config import ClientConfig
from rmq.client.core.consuming.offsets import ConsumeFrom
from rmq.client.core.consuming.pulls import PullStatus
from rmq.client.core.routes import Address
from rmq.client.core.slave_reads import SlaveReads
from rmq.client.tasks.client import Client
from rmq.client.trio.loop import TRIO
from rmq.client.trio.opening import (
    open_admin,
    open_lite_pull_consumer,
    open_producer,
    open_pull_consumer,
)
from rmq.errors import BrokersFailedError, NoBrokerError, NoRouteError
from rmq.model.queues import MessageQueue
from tests.ha.pair_kit import QUEUES, TOPIC, pair

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from rmq.broker.broker import Broker
    from rmq.client.tasks.admin import AdminClient
    from tests.ha.pair_kit import Pair

GROUP: Final = "readers"
COUNT: Final = 20
BODIES: Final = {b"m%d" % number for number in range(COUNT)}
QUEUE: Final = MessageQueue(topic=TOPIC, broker_name="broker-a", queue_id=0)


class Lone(NamedTuple):
    """A pair whose master is gone, and what was sent to it."""

    pair: Pair
    slave: Broker
    results: list[SendResult]

    @property
    def nameserver(self) -> str:
        return self.pair.nameserver


@asynccontextmanager
async def full_pair(root: Path) -> AsyncIterator[Lone]:
    """Run a pair with messages, and a group that has read one of them."""
    async with pair(root) as it:
        master = await it.start("master", "SYNC_MASTER")
        await it.create_topic(master)
        slave = await it.start("slave", "SLAVE")
        await it.in_sync(master)
        async with open_producer(it.nameserver, "writers") as producer:
            results = [
                await producer.send(Message(TOPIC, body, keys=("key",))) for body in sorted(BODIES)
            ]
        async with open_admin(it.nameserver) as admin:
            await admin.create_group(GROUP, broker="broker-a")
            await admin.set_consumer_offsets(GROUP, {QUEUE: 1})
        await it.equal(master, slave)
        await slave.replication.metadata.sync_now()
        yield Lone(it, slave, results)


@asynccontextmanager
async def lone_slave(root: Path) -> AsyncIterator[Lone]:
    """Run a pair without its master."""
    async with full_pair(root) as it:
        await it.pair.stop("master")
        yield it


def result_in(it: Lone, queue: MessageQueue = QUEUE) -> SendResult:
    return next(result for result in it.results if result.queue == queue)


# --- admin -----------------------------------------------------------------------------------


async def test_admin_reads_go_on_from_the_slave(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with lone_slave(tmp_path) as it, open_admin(it.nameserver) as admin:
        caplog.clear()
        end = COUNT // QUEUES
        assert await admin.min_offset(QUEUE) == 0
        assert await admin.max_offset(QUEUE) == end
        assert await admin.offset_at(QUEUE, 0) == 0
        assert await admin.offset_at(QUEUE, time.time_ns() // 1_000_000 + 60_000) == end - 1
        first_ms = await admin.first_stored_at_ms(QUEUE)
        assert first_ms is not None
        assert abs(first_ms - time.time_ns() // 1_000_000) < 60_000
        assert await admin.consumer_offset(GROUP, QUEUE) == 1

        sent = result_in(it)
        by_id = await admin.message_by_id(sent.offset_message_id)
        by_unique_key = await admin.message_by_unique_key(TOPIC, sent.message_id)
        found = await admin.find_message(TOPIC, sent.message_id)
        for message in (by_id, by_unique_key, found, await admin.message_at(QUEUE, 0)):
            assert message is not None
            assert (message.queue, message.queue_offset) == (QUEUE, 0)
        by_key = await admin.messages_by_key(TOPIC, "key")
        assert {message.body for message in by_key.messages} == BODIES
        assert not by_key.failures

        stats = await admin.topic_stats(TOPIC)
        assert (stats.count, stats.failures) == (COUNT, ())
        progress = await admin.group_progress(GROUP, topic=TOPIC)
        assert (progress.queues[QUEUE].lag, progress.failures) == (end - 1, ())
        assert GROUP in await admin.broker_progress("broker-a")
        assert (await admin.groups_of_topic(TOPIC)).groups == (GROUP,)
        assert QUEUE in (await admin.group_times(GROUP, TOPIC)).queues
        assert TOPIC in await admin.topic_configs("broker-a", only_own=True)
        assert GROUP in (await admin.list_groups(broker="broker-a")).configs
        assert (await admin.consume_queue(QUEUE, 0)).max_queue_index == end
        (line,) = [
            r.getMessage() for r in caplog.records if "read from its slave" in r.getMessage()
        ]
        assert line.startswith(
            f"broker broker-a has no master now: it is read from its slave at {it.slave.address}"
        )


WRITES: Final[dict[str, Callable[[AdminClient], Awaitable[object]]]] = {
    "create topic": lambda admin: admin.create_topic("New", broker="broker-a"),
    "delete topic": lambda admin: admin.delete_topic(TOPIC),
    "create group": lambda admin: admin.create_group("new"),
    "delete group": lambda admin: admin.delete_group(GROUP),
    "set offsets": lambda admin: admin.set_consumer_offsets(GROUP, {QUEUE: 0}),
    "clone offsets": lambda admin: admin.clone_offsets(GROUP, "clone", topic=TOPIC),
    "reset offsets": lambda admin: admin.reset_offsets(GROUP, TOPIC, 0),
    "settings": lambda admin: admin.update_broker_config("broker-a", {"fileReservedTime": "1"}),
}


async def test_admin_writes_are_left_to_masters(tmp_path: Path) -> None:
    async with lone_slave(tmp_path) as it, open_admin(it.nameserver) as admin:
        for name, write in WRITES.items():
            with pytest.raises((NoBrokerError, BrokersFailedError), match="no master now"):
                await write(admin)
            assert await admin.consumer_offset(GROUP, QUEUE) == 1, name
        assert TOPIC in await admin.topic_configs("broker-a")
        assert "New" not in await admin.topic_configs("broker-a")


# --- consumers that run when the master goes -------------------------------------------------


async def test_a_pull_consumer_reads_on_from_the_slave(tmp_path: Path) -> None:
    async with full_pair(tmp_path) as it, open_pull_consumer(it.nameserver, GROUP) as consumer:
        assert (await consumer.pull(QUEUE, 0)).status is PullStatus.FOUND
        await it.pair.stop("master")
        result = await consumer.pull(QUEUE, 0)
        assert len(result.messages) == COUNT // QUEUES
        assert await consumer.min_offset(QUEUE) == 0
        assert await consumer.max_offset(QUEUE) == COUNT // QUEUES
        assert await consumer.offset_at(QUEUE, 0) == 0
        assert await consumer.first_stored_at_ms(QUEUE) is not None
        assert await consumer.fetch_offset(QUEUE) == 1


@pytest.mark.parametrize("start", ConsumeFrom)
async def test_a_lite_pull_consumer_begins_at_a_lone_slave(
    tmp_path: Path, start: ConsumeFrom
) -> None:
    async with (
        lone_slave(tmp_path) as it,
        open_lite_pull_consumer(
            it.nameserver, "new", consume_from=start, consume_from_ms=1, commits_itself=True
        ) as consumer,
    ):
        queues = await consumer.queues(TOPIC)
        await consumer.assign(queues)
        for queue in queues:
            await consumer.seek_to_end(queue)
            assert await consumer.position(queue) == COUNT // QUEUES
            await consumer.seek_to_time(queue, 1)
            await consumer.seek_to_begin(queue)
            await consumer.seek(queue, 0)
        found: set[bytes] = set()
        with trio.fail_after(20):
            while found != BODIES:
                found |= {message.body for message in await consumer.poll(1.0)}


async def test_a_lite_pull_consumer_reads_on_when_its_master_goes(tmp_path: Path) -> None:
    async with (
        full_pair(tmp_path) as it,
        open_lite_pull_consumer(
            it.nameserver,
            "new",
            consume_from=ConsumeFrom.FIRST,
            queue_messages_max=2,
            pull_messages_max=2,
            pull_pause_s=0.05,
        ) as consumer,
    ):
        await consumer.assign(await consumer.queues(TOPIC))
        found = {message.body for message in await consumer.poll(10.0, 1)}
        assert found
        await it.pair.stop("master")
        with trio.fail_after(20):
            while found != BODIES:
                found |= {message.body for message in await consumer.poll(1.0, 1)}


async def test_the_blocking_client_reads_from_the_slave(tmp_path: Path) -> None:
    def read(nameserver: str) -> None:
        with BlockingConsumer(nameserver, GROUP) as consumer:
            queues = consumer.queues(TOPIC)
            assert consumer.begin_offsets(queues) == dict.fromkeys(queues, 0)
            ends = consumer.end_offsets(queues)
            assert sum(ends.values()) == COUNT
            assert consumer.offset_at(QUEUE, 1) == 0
            assert consumer.committed(QUEUE) == 1
            bodies = {
                message.body for queue in queues for message in consumer.read_range(queue, 0, 10)
            }
            assert bodies == BODIES
            consumer.assign(queues)
            consumer.seek_to_time(1)
            consumer.seek_to_begin()
            polled: set[bytes] = set()
            deadline = time.monotonic() + 20
            while polled != BODIES:
                assert time.monotonic() < deadline
                polled |= {message.body for message in consumer.poll(1.0)}
        with BlockingAdmin(nameserver) as admin:
            assert admin.max_offset(QUEUE) == COUNT // QUEUES
            assert admin.topic_stats(TOPIC).count == COUNT

    async with lone_slave(tmp_path) as it:
        await trio.to_thread.run_sync(read, it.nameserver)


async def test_sends_say_that_there_is_no_master(tmp_path: Path) -> None:
    async with (
        lone_slave(tmp_path) as it,
        open_producer(it.nameserver, "writers", send_timeout_s=0.2) as producer,
    ):
        with pytest.raises(NoRouteError, match="none of its queues takes messages now"):
            await producer.send(Message(TOPIC, b"no"))


# --- what is said ----------------------------------------------------------------------------

SLAVE_A: Final = Address("a", 1, "a:2")


def test_an_outage_is_told_once_until_there_is_a_master_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)

    def told() -> list[str]:
        messages = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return messages

    reads = SlaveReads()
    reads.answered("a")
    assert not told()
    # The master cannot be reached, is forgotten by nameservers, and comes back.
    reads.used(SLAVE_A, "a:1")
    assert told() == [
        "broker a has a master at a:1 that is away: it is read from its slave at a:2, which may"
        " lack the newest messages"
    ]
    reads.used(SLAVE_A, "a:1")
    reads.master_is("a", "a:1")
    reads.master_is("a", None)
    reads.used(SLAVE_A)
    assert not told()
    reads.master_is("a", "a:1")
    assert told() == ["broker a has a master again"]
    # It is gone at once, and the slave is promoted.
    reads.used(SLAVE_A)
    assert len(told()) == 1
    reads.master_is("a", "a:2")
    assert told() == ["broker a has a master again"]


async def test_a_client_tells_it_for_all_of_its_members() -> None:
    for client in (Client(TRIO, ClientConfig(nameservers="n:1")), BlockingClient("n:1")):
        assert client.routes.slave_reads is client.nameservers.slave_reads
