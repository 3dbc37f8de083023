"""A small cluster for tests of pipelines, and what is needed to fill it and to look into it."""

from __future__ import annotations

import io
import json
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from rmq.client.blocking import BlockingAdmin, BlockingConsumer, BlockingProducer
from rmq.client.core.flows import ask
from rmq.client.core.messages import Message
from rmq.errors import NoRouteError
from rmq.remoting.codes import RequestCode
from rmq.remoting.headers import ConsumerSendMsgBackRequest
from rmq.spark.pipelines.job import build_parser, run_pipeline
from tests.client.blocking.cluster_process import WAIT_S, ProcessCluster, process_cluster

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from rmq.client.core.received import ReceivedMessage
    from rmq.model.queues import MessageQueue
    from rmq.spark.pipelines.job import Pipeline

DEAD_LEVEL: Final = -1
"""The delay level at which a message that is sent back is dead at once."""


class PipelineCluster:
    """A nameserver and one broker."""

    def __init__(self, processes: ProcessCluster) -> None:
        self.processes = processes
        self.nameserver = processes.nameserver

    def create_topic(self, topic: str, queues: int = 2) -> None:
        self.processes.create_topic(topic, queues=queues)

    def create_group(self, group: str) -> None:
        with BlockingAdmin(self.nameserver) as admin:
            admin.create_group(group, broker=self.processes.address())

    def delete_topic(self, topic: str) -> None:
        """Delete a topic, and wait until nobody knows it."""
        with BlockingAdmin(self.nameserver) as admin:
            admin.delete_topic(topic)
            deadline = time.monotonic() + WAIT_S
            while True:
                try:
                    admin.client.refresh_route(topic)
                except NoRouteError:
                    return
                assert time.monotonic() < deadline, f"{topic} is still known"
                admin.client.connections.sleep(0.02)

    def commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        with BlockingConsumer(self.nameserver, group) as consumer:
            consumer.commit({queue: offset})

    def fill_segment(self) -> None:
        """Send to topic Filler until what follows is in another segment of the log."""
        log = self.processes.root / "broker-a" / "store" / "commitlog"
        before = len(_written(log))
        while len(_written(log)) == before:
            self.send([Message("Filler", bytes(8192))] * 4)

    def expire_segment(self) -> None:
        """Lose the oldest segment of the log, as retention does it. The broker is restarted."""
        self.processes.stop()
        _written(self.processes.root / "broker-a" / "store" / "commitlog")[0].unlink()
        self.processes.start()

    def send(self, messages: Iterable[Message]) -> None:
        with BlockingProducer(self.nameserver, "tests") as producer:
            for message in messages:
                producer.send(message)

    def messages(self, topic: str) -> list[ReceivedMessage]:
        """Return all messages of a topic, queue by queue."""
        with BlockingConsumer(self.nameserver, "tests") as consumer:
            queues = consumer.queues(topic)
            ends = consumer.end_offsets(queues)
            starts = consumer.begin_offsets(queues)
            return [
                message
                for queue in queues
                for message in consumer.read_range(queue, starts[queue], ends[queue])
            ]

    def wait_for(self, topic: str, count: int) -> None:
        """Wait until a topic has so many messages."""
        deadline = time.monotonic() + WAIT_S
        with BlockingConsumer(self.nameserver, "tests") as consumer:
            while True:
                try:
                    queues = consumer.queues(topic)
                    if sum(consumer.end_offsets(queues).values()) >= count:
                        return
                except NoRouteError:
                    pass
                assert time.monotonic() < deadline, f"{topic} does not get {count} messages"
                consumer.client.connections.sleep(0.02)

    def bury(
        self, group: str, messages: Iterable[ReceivedMessage], level: int = DEAD_LEVEL
    ) -> None:
        """Send messages back as a consumer of the group; by default as dead letters."""
        with BlockingAdmin(self.nameserver) as admin:
            for message in messages:
                header = ConsumerSendMsgBackRequest(
                    offset=message.physical_offset, group=group, delay_level=level
                )
                admin.run(ask(self.processes.address(), RequestCode.CONSUMER_SEND_MSG_BACK, header))


def _written(log: Path) -> list[Path]:
    """Return the segments that have messages, the oldest first; a broker makes one ahead."""
    return [path for path in sorted(log.iterdir()) if path.read_bytes().strip(b"\0")]


@contextmanager
def pipeline_cluster(root: Path, **settings: str) -> Iterator[PipelineCluster]:
    """Run a nameserver and a broker for the length of a block."""
    root.mkdir(parents=True, exist_ok=True)
    with process_cluster(root, ("broker-a",), tls=None, **settings) as processes:
        yield PipelineCluster(processes)


def run_json(pipeline: Pipeline, *argv: str) -> tuple[int, dict[str, Any]]:
    """Run a pipeline with `--json`; return its exit code and the verdict."""
    out, err = io.StringIO(), io.StringIO()
    args = build_parser(pipeline).parse_args([*argv, "--json"])
    code = run_pipeline(pipeline, args, stdout=out, stderr=err)
    return code, json.loads(out.getvalue())
