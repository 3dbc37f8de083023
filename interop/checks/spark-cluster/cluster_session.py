"""What the cases of this check share: a pair of rmq with messages, Spark, and rmq in a zip file."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

import rmq
from interop.support.cases import MismatchError
from interop.support.topics import create_topics, max_offset
from interop.support.waiting import wait_until
from rmq.client.blocking import BlockingConsumer, BlockingProducer
from rmq.client.core.messages import Message
from rmq.errors import ClientError
from rmq.model.queues import MessageQueue

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from standalone import Standalone, Submitted

    from interop.support.cases import Case
    from interop.support.cluster import Broker, Cluster
    from interop.support.results import Operations

TOPICS: Final[Mapping[str, int]] = {"Orders": 4, "Payments": 2}
"""With their numbers of queues."""
COPIES: Final = "Copies"
BROKER_SETTINGS: Final[Mapping[str, str]] = {
    "mappedFileSizeCommitLog": str(2 << 20),
    "mappedFileSizeConsumeQueue": "60000",
    "maxMessageSize": str(512 << 10),
    "bindAddress": "127.0.0.1",
}
_BATCH: Final = 500
_COPIED_WITHIN_S: Final = 60
_PIPELINES: Final = Path(rmq.__file__).parent / "spark" / "pipelines"


@dataclass(frozen=True)
class ClusterSession:
    """A master with its slave, both of rmq, and Spark."""

    operations: Operations
    cluster: Cluster
    master: Broker
    slave: Broker
    spark: Standalone
    bundle: Path
    """rmq as one file, which `spark-submit` sends to the workers."""
    folder: Path
    """For tables; it is the same for all workers."""
    ledger: Counter[str] = field(default_factory=Counter)
    """How many messages were sent to each topic."""
    filled_at: float = 0.0
    """When the first messages were sent, on the clock of trio."""
    prefix: str = ""
    """Stands before the parts when cases are run once more."""

    @property
    def nameserver(self) -> str:
        return self.cluster.nameserver

    def table(self, name: str) -> Path:
        """Return where a case may write; it is a new place when cases are run once more."""
        return self.folder / f"{self.prefix.strip(': ')}{name}"

    def read(self, topic: str) -> dict[tuple[int, int], bytes]:
        """Return the bodies of a topic by queue and offset, as our blocking client reads them."""
        with BlockingConsumer(self.nameserver, "readers") as consumer:
            ends = consumer.end_offsets(consumer.queues(topic))
            return {
                (queue.queue_id, message.queue_offset): message.body
                for queue, end in ends.items()
                for message in consumer.read_range(queue, 0, end)
            }

    def operation(
        self, part: str, name: str, *, timeout_s: float = 240
    ) -> AbstractContextManager[Case]:
        return self.operations.operation(f"{self.prefix}{part}", name, timeout_s=timeout_s)

    async def submit(self, pipeline: str, *arguments: str) -> Submitted:
        """Run a pipeline with `spark-submit`; it prints its verdict as JSON."""
        program = _PIPELINES / f"{pipeline}.py"
        return await self.spark.submit(program, *arguments, "--json", py_files=self.bundle)

    async def create_topics(self) -> None:
        await create_topics(self.cluster, self.master, {**TOPICS, COPIES: 3})

    async def fill(self, counts: Mapping[str, int]) -> None:
        """Send that many more messages to topics, and wait until the slave has them.

        Each begins with its number in the topic, and has a few hundred bytes.
        """

        def send() -> None:
            with BlockingProducer(self.nameserver, "fillers") as producer:
                for topic, count in counts.items():
                    first = self.ledger[topic]
                    messages = [_message(topic, n) for n in range(first, first + count)]
                    for at in range(0, count, _BATCH):
                        queue_id = at // _BATCH % TOPICS[topic]
                        queue = MessageQueue(
                            topic=topic, broker_name=self.master.name, queue_id=queue_id
                        )
                        producer.send_batch(messages[at : at + _BATCH], queue=queue)

        await trio.to_thread.run_sync(send)
        self.ledger.update(counts)
        await self.wait_copied()

    async def wait_copied(self) -> None:
        """Wait until the slave has everything that the master has."""

        async def are_equal() -> bool:
            try:
                return await self._ends(self.slave) == await self._ends(self.master)
            except (ClientError, MismatchError):
                # The slave has not heard of a topic yet.
                return False

        await wait_until("everything on the slave", are_equal, timeout_s=_COPIED_WITHIN_S)

    async def _ends(self, broker: Broker) -> list[int]:
        return [
            await max_offset(broker, topic, queue_id)
            for topic, queues in TOPICS.items()
            for queue_id in range(queues)
        ]


def _message(topic: str, number: int) -> Message:
    return Message(
        topic,
        f"{number} {topic} ".encode() + b"." * (number % 400),
        tag=f"tag{number % 3}",
        keys=(f"{topic}-{number}",),
        properties={"n": str(number)},
    )
