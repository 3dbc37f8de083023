"""A master with a slave: our consumers read from the slave when the master is dead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio
from inbox import Inbox
from our_messages import as_received, as_sent, ours
from python_session import BROKER_SETTINGS

from interop.support.cases import MismatchError, expect
from interop.support.expectations import expect_in_order, expect_once, expect_sent, numbered
from interop.support.java_messages import Outgoing
from interop.support.topics import create_topics, max_offset
from interop.support.waiting import wait_until
from rmq.client.core.messages import SendStatus
from rmq.client.trio.opening import open_producer, open_pull_consumer
from rmq.errors import ClientError
from rmq.model.queues import MessageQueue
from rmq.remoting.bodies import HaStatusBody
from rmq.remoting.client import open_client
from rmq.remoting.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from python_session import PythonSession

    from interop.support.cluster import Broker
    from rmq.client.tasks.producer import Producer

PART: Final = "slave"
TOPIC: Final = "PyCopiedThere"
# A stock slave learns where its master is from a registration, 10 s apart.
COPIED_WITHIN_S: Final = 60
# Consumers ask for routes every 30 s.
READ_WITHIN_S: Final = 60
RETRY_S: Final = 0.2


async def run_slave_cases(session: PythonSession) -> None:
    cluster = session.cluster
    master = cluster.place_broker("broker-m")
    slave = cluster.place_broker("broker-m", folder="broker-m-slave")
    master_settings = {**BROKER_SETTINGS, "brokerRole": "SYNC_MASTER"}
    await cluster.start_broker(master, master_settings)
    await create_topics(cluster, master, {TOPIC: 1})
    messages = numbered(TOPIC, 60)

    async with open_producer(session.nameserver, "py-copied") as producer:
        with session.operation(PART, "a sync master without its slave answers SLAVE_NOT_AVAILABLE"):
            result = await producer.send(ours(messages[0]))
            expect("status", result.status, SendStatus.SLAVE_NOT_AVAILABLE)

        with session.operation(PART, "with its slave SEND_OK, and the slave has it", timeout_s=120):
            slave_settings = {**BROKER_SETTINGS, "brokerId": "1", "brokerRole": "SLAVE"}
            await cluster.start_broker(slave, slave_settings)
            await _wait_copied(slave, 1)
            await _wait_counted(master)
            results = [await producer.send(ours(message)) for message in messages[1:40]]
            expect_sent([as_sent(result) for result in results])
            await _wait_copied(slave, 40)

    with session.operation(PART, "raw pull: from the slave, by its number"):
        queue = MessageQueue(topic=TOPIC, broker_name="broker-m", queue_id=0)
        async with open_pull_consumer(session.nameserver, "py-from-slave") as puller:
            page = await puller.pull(queue, 0, broker_id=1, max_messages=10)
            expect_in_order([as_received(message) for message in page.messages], messages[:10])

    reading, late = Inbox("reading"), Inbox("late")
    async with session.push_consumer("py-reading", TOPIC, reading):
        expect_once(await reading.wait(40), messages[:40])
        await cluster.kill_broker(master)

        with session.operation(
            PART, "the master is dead: sends fail, a new group reads everything", timeout_s=120
        ):
            async with open_producer(session.nameserver, "py-no-master") as producer:
                try:
                    await producer.send(ours(Outgoing(TOPIC, b"lost")))
                except ClientError:
                    pass
                else:
                    raise MismatchError("a message was stored nowhere, and acknowledged")
            async with session.push_consumer("py-late", TOPIC, late):
                expect_once(await late.wait(40, timeout_s=READ_WITHIN_S), messages[:40])

        with session.operation(
            PART, "the master is back: sends and consumers go on", timeout_s=150
        ):
            await cluster.start_broker(master, master_settings)
            async with open_producer(session.nameserver, "py-back") as producer:
                for message in messages[40:]:
                    await _send_until_stored(producer, message)
            received = await reading.wait(60, timeout_s=READ_WITHIN_S)
            bodies = {message.body for message in received}
            expect("messages", bodies, {message.body for message in messages})
    await cluster.stop_broker(slave)
    await cluster.stop_broker(master)


async def _send_until_stored(producer: Producer, message: Outgoing) -> None:
    """Send a message until there is an answer: it may wait for a slave that is not back yet."""
    with trio.fail_after(READ_WITHIN_S):
        while True:
            try:
                await producer.send(ours(message))
            except ClientError:
                await trio.sleep(RETRY_S)
            else:
                return


async def _wait_copied(slave: Broker, count: int) -> None:
    async def is_copied() -> bool:
        try:
            return await max_offset(slave, TOPIC) >= count
        except (ClientError, MismatchError):
            # It may not have heard of the topic yet.
            return False

    await wait_until(f"{count} messages on the slave", is_copied, timeout_s=COPIED_WITHIN_S)


async def _wait_counted(master: Broker) -> None:
    """Wait until a master of ours has recorded that its slave counts: that takes a moment more."""

    async def is_counted() -> bool:
        answer = await client.request(master.address, RequestCode.HA_STATUS, timeout_s=5)
        if answer.code != ResponseCode.SUCCESS:
            # A stock master counts whatever is connected.
            return True
        told = HaStatusBody.decode(answer.body)
        return bool(told.in_sync) and not told.waits_for

    async with open_client() as client:
        await wait_until("the slave counts", is_counted, timeout_s=COPIED_WITHIN_S)
