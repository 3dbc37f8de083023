"""A nameserver and a broker as processes, with topics, groups and connected clients."""

from __future__ import annotations

import itertools
import resource
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from benchmarks.broker_load.answers import AnswerCutter
from benchmarks.broker_load.frames import create_topic_frame
from benchmarks.broker_load.peer import NoAnswerError, connect, read
from benchmarks.broker_servers import BrokerFolder, OurBroker
from benchmarks.fairness.scenario import PROBE_TOPIC, Size, Target, frame
from benchmarks.ha_pairs import running_nameserver
from rmq.remoting.bodies import (
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    ProducerData,
    SubscriptionData,
    SubscriptionGroupConfig,
)
from rmq.remoting.codes import RequestCode

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType

    from benchmarks.broker_servers import RunningBroker

PROBE_QUEUES: Final = 4
_AT_ONCE: Final = 100
"""Requests under way while the state is built."""


def raise_descriptor_limit() -> None:
    """Let this process, and those it starts, have as many descriptors as the system allows."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class RunningSite:
    """The servers of one checkout of rmq; a context manager."""

    def __init__(self, name: str, root: Path, folder: Path, size: Size, *, is_quick: bool) -> None:
        self.name = name
        self.size = size
        self.is_quick = is_quick
        self._root = root
        self._folder = folder / name
        self._numbers = itertools.count()
        self._stack = ExitStack()
        self._crowd: list[socket.socket] = []
        self.nameserver_port = 0
        self.broker: RunningBroker

    def __enter__(self) -> RunningSite:
        self._folder.mkdir()
        try:
            self._start()
            self._build_state()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def port(self, target: Target) -> int:
        return self.nameserver_port if target is Target.NAMESERVER else self.broker.port

    def fresh(self, stem: str) -> str:
        return f"{stem}{next(self._numbers):05d}"

    def ask(self, frames: Sequence[bytes], target: Target = Target.BROKER) -> list[bytes]:
        with connect(self.port(target)) as sock:
            return ask_all(sock, frames)

    # --- the servers -------------------------------------------------------------------------

    def _start(self) -> None:
        address = self._stack.enter_context(running_nameserver(self._folder, root=self._root))
        self.nameserver_port = int(address.rpartition(":")[2])
        settings = {
            "namesrvAddr": address,
            "brokerRole": "ASYNC_MASTER",
            "mappedFileSizeCommitLog": str(256 * 1024 * 1024),
            # All rounds together make some 15,000 queues: 9 GB, not 90.
            "mappedFileSizeConsumeQueue": str(600_000),
        }
        kind = OurBroker(self.name, root=self._root)
        place = BrokerFolder(kind, self._folder / "broker", settings)
        self._stack.callback(place.remove)
        self.broker = self._stack.enter_context(place.running())

    # --- the state ---------------------------------------------------------------------------

    def _build_state(self) -> None:
        size = self.size
        topics = [(PROBE_TOPIC, PROBE_QUEUES)]
        topics += [(size.topic(number), size.queues) for number in range(size.topics)]
        self.ask(
            [
                create_topic_frame(name, queues, 100_000 + number)
                for number, (name, queues) in enumerate(topics)
            ]
        )
        self.ask(
            [
                frame(
                    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
                    body=_group(size.group(number)),
                )
                for number in range(size.groups)
            ]
        )
        self._stack.callback(self._end_crowd)
        for start in range(0, size.connections, _AT_ONCE):
            for number in range(start, min(start + _AT_ONCE, size.connections)):
                sock = connect(self.broker.port)
                self._crowd.append(sock)
                sock.sendall(self._heartbeat(number))
            for sock in self._crowd[start:]:
                ask_all(sock, [], answers=1)

    def _heartbeat(self, number: int) -> bytes:
        subscription = SubscriptionData(topic=self.size.topic(number), sub_string="*")
        consumer = ConsumerData(
            group_name=self.size.group(number),
            consume_type=ConsumeType.CONSUME_PASSIVELY,
            message_model=MessageModel.CLUSTERING,
            subscription_data_set=(subscription,),
        )
        body = HeartbeatData(
            client_id=f"127.0.0.1@{number}",
            producer_data_set=(ProducerData(group_name=f"FairProducer{number % 100}"),),
            consumer_data_set=(consumer,),
        ).encode()
        return frame(RequestCode.HEART_BEAT, body=body)

    def _end_crowd(self) -> None:
        for sock in self._crowd:
            sock.close()


def _group(name: str) -> bytes:
    # These clients do not read the notices that the broker sends to members of a group.
    config = SubscriptionGroupConfig(group_name=name, notify_consumer_ids_changed_enable=False)
    return config.encode()


def ask_all(sock: socket.socket, frames: Sequence[bytes], *, answers: int = 0) -> list[bytes]:
    """Send requests, some at a time, and return the bodies of the answers as they come.

    `answers` are those to requests that were sent already. Raises `NoAnswerError` for an answer
    that is no success.
    """
    cutter = AnswerCutter()
    bodies: list[bytes] = []
    while len(bodies) < answers:
        bodies += (body for _, _, body in cutter.answers(read(sock)))
    for start in range(0, len(frames), _AT_ONCE):
        some = frames[start : start + _AT_ONCE]
        sock.sendall(b"".join(some))
        while len(bodies) < start + len(some):
            bodies += (body for _, _, body in cutter.answers(read(sock)))
    if cutter.failures:
        raise NoAnswerError(str(dict(cutter.failures)))
    return bodies
