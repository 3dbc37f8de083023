"""A nameserver, a master and its slave as processes, and messages in topics of theirs.

with wire_cluster(tmp_path) as it:
    it.create_topic("Orders", queues=4)
    it.send("Orders", [b"1", b"2"], queue=0)
    it.kill_master()
    it.promote_slave()
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import trio

from rmq.cli.ha.client import HaClient
from rmq.client.blocking import BlockingAdmin, BlockingConsumer, BlockingProducer
from rmq.client.core.messages import Message
from rmq.errors import NoRouteError
from rmq.model.queues import MessageQueue
from rmq.remoting.client import open_client
from rmq.spark.wire.settings import SourceOptions
from tests.ha.processes.cluster import Cluster
from tests.ha.processes.load import wait_in_sync, wait_settled
from tests.ha.processes.pair import MASTER, QUICK, SLAVE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from rmq.client.core.received import ReceivedMessage

BROKER: Final = "broker-a"
WAIT_S: Final = 30.0
_BATCH: Final = 500


class WireCluster:
    """Topics keep the tests of a module apart. Only the last of them may stop brokers."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.master = MASTER

    @property
    def nameserver(self) -> str:
        return self._cluster.nameserver_address

    @property
    def master_store(self) -> Path:
        return self._cluster.store_of(self.master)

    def options(self, **given: str) -> dict[str, str]:
        """Return options of the source."""
        return {"nameservers": self.nameserver, "requestTimeoutMs": "5000", **given}

    def source(self, **given: str) -> SourceOptions:
        return SourceOptions(self.options(**given))

    # --- topics and messages -----------------------------------------------------------------

    def create_topic(self, topic: str, queues: int = 1) -> None:
        """Create a topic or change how many queues it has; clients find it when this returns."""
        with BlockingAdmin(self.nameserver) as admin:
            admin.create_topic(topic, queues=queues)
            self._wait_for_queues(admin, topic, queues)

    def delete_topic(self, topic: str) -> None:
        with BlockingAdmin(self.nameserver) as admin:
            admin.delete_topic(topic)
            self._wait_for_queues(admin, topic, 0)

    def wait_for_topic(self, topic: str, queues: int = 1) -> None:
        """Return when clients find a topic."""
        with BlockingAdmin(self.nameserver) as admin:
            self._wait_for_queues(admin, topic, queues)

    @staticmethod
    def _wait_for_queues(admin: BlockingAdmin, topic: str, queues: int) -> None:
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                found = len(admin.client.refresh_route(topic).readable)
            except NoRouteError:
                found = 0
            if found == queues:
                return
            assert time.monotonic() < deadline, f"{topic} has {found} queues"
            admin.client.connections.sleep(0.02)

    @staticmethod
    def queue(topic: str, queue_id: int = 0) -> MessageQueue:
        return MessageQueue(topic=topic, broker_name=BROKER, queue_id=queue_id)

    def send(
        self, topic: str, bodies: Sequence[bytes], queue_id: int = 0, tag: str | None = None
    ) -> None:
        """Send messages to one queue, in batches."""
        queue = self.queue(topic, queue_id)
        with BlockingProducer(self.nameserver, "fillers") as producer:
            if topic.startswith("%"):
                # Those of consumer groups are not sent to in batches.
                for body in bodies:
                    producer.send(Message(topic, body, tag=tag), queue=queue)
                return
            for first in range(0, len(bodies), _BATCH):
                messages = [
                    Message(topic, body, tag=tag) for body in bodies[first : first + _BATCH]
                ]
                results = producer.send_batch(messages, queue=queue)
                assert self.master != MASTER or all(result.is_ok for result in results)

    def messages(self, topic: str, queue_id: int = 0) -> list[ReceivedMessage]:
        """Return everything in a queue."""
        queue = self.queue(topic, queue_id)
        with BlockingConsumer(self.nameserver, "lookers") as consumer:
            return list(consumer.read_range(queue, 0, consumer.end_offset(queue)))

    def commit(self, group: str, topic: str, places: dict[int, int]) -> None:
        with BlockingConsumer(self.nameserver, group) as consumer:
            consumer.commit({self.queue(topic, number): at for number, at in places.items()})

    def committed(self, group: str, topic: str, queue_id: int = 0) -> int | None:
        with BlockingConsumer(self.nameserver, group) as consumer:
            return consumer.committed(self.queue(topic, queue_id))

    # --- processes ---------------------------------------------------------------------------

    def start(self) -> None:
        for process in (self._cluster.nameserver, *self._cluster.brokers.values()):
            process.start()
        self.wait_in_sync()

    def stop(self) -> None:
        self._cluster.stop()

    def start_broker(self, name: str) -> None:
        self._cluster.brokers[name].start()

    def kill_master(self) -> None:
        """Kill the master; returns when the nameserver has noticed."""
        self._cluster.brokers[self.master].kill()
        address = self._cluster.addresses[self.master]
        deadline = time.monotonic() + WAIT_S
        with BlockingAdmin(self.nameserver) as admin:
            while any(
                address in broker.broker_addrs.values()
                for broker in admin.cluster_info().broker_addr_table.values()
            ):
                assert time.monotonic() < deadline, f"{address} is still known"
                admin.client.connections.sleep(0.02)

    def promote_slave(self) -> None:
        """Make the slave master; returns when it is."""
        trio.run(self._promote, self.slave_address)
        self.master_changed()

    def master_changed(self) -> None:
        """The slave has been promoted."""
        self.master = SLAVE

    @property
    def slave_address(self) -> str:
        return self._cluster.addresses[SLAVE]

    async def _promote(self, address: str) -> None:
        async with open_client() as client:
            await wait_settled(client, address)
            await HaClient(client, 10.0).promote(address, accept_loss=False, mode=None)

    def wait_in_sync(self) -> None:
        """Wait until the slave has everything that the master has acknowledged."""
        trio.run(self._wait_in_sync, self._cluster.addresses[self.master])

    async def _wait_in_sync(self, address: str) -> None:
        async with open_client() as client:
            await wait_in_sync(client, address)


@contextmanager
def wire_cluster(folder: Path, **settings: str) -> Iterator[WireCluster]:
    """Run a nameserver, a master and its slave for the length of a block."""
    cluster = Cluster(folder)
    wanted = {**QUICK, **settings}
    cluster.add(MASTER, "SYNC_MASTER", 0, wanted)
    cluster.add(SLAVE, "SLAVE", 1, wanted)
    it = WireCluster(cluster)
    try:
        it.start()
        yield it
    finally:
        it.stop()
