"""A nameserver and brokers that a test plays, for what the driver asks: routes and offsets.

with played_cluster("a", "b") as cluster:
    cluster.fill("T", "a", 0, end=10)
    cluster["b"].is_up = False
    cluster.nameserver_answers = False
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from rmq.model.queues import MessageQueue
from rmq.remoting.bodies import BrokerData, ClusterInfo, QueueData, TopicList, TopicRouteData
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import (
    GetMaxOffsetRequest,
    GetMaxOffsetResponse,
    GetMinOffsetRequest,
    GetMinOffsetResponse,
    GetRouteInfoRequest,
    UpdateConsumerOffsetRequest,
)
from rmq.spark.wire.settings import SourceOptions
from tests.client.blocking.scripted_peer import scripted_peer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pytest

    from rmq.remoting.command import Command
    from tests.client.blocking.scripted_peer import Link, ScriptedPeer


def queue_of(topic: str, broker: str, number: int = 0) -> MessageQueue:
    return MessageQueue(topic=topic, broker_name=broker, queue_id=number)


class PlayedBroker:
    """A master and a slave. Both have places of their own for the same queues."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_up = True
        """Whether the master is in routes."""
        self.has_slave = False
        """Whether the slave is."""
        self.perm = 6
        self.places: dict[tuple[str, int], tuple[int, int]] = {}
        """Where queues begin and end, by topic and number."""
        self.slave_places: dict[tuple[str, int], tuple[int, int]] = {}
        self.busy = 0
        """How many questions the master refuses from now on."""
        self.committed: dict[tuple[str, int], int] = {}
        self.peers: list[ScriptedPeer] = []

    @property
    def addresses(self) -> dict[int, str]:
        shown = {0: self.is_up, 1: self.has_slave}
        return {
            number: self.peers[number].address for number, is_shown in shown.items() if is_shown
        }

    def play(self, link: Link, request: Command) -> None:
        if self.busy:
            self.busy -= 1
            link.answer(request, code=ResponseCode.SYSTEM_BUSY, remark="[OVERLOAD]system busy")
        elif request.code == RequestCode.UPDATE_CONSUMER_OFFSET:
            told = request.header(UpdateConsumerOffsetRequest)
            self.committed[told.topic, told.queue_id] = told.commit_offset
            link.answer(request)
        else:
            self._tell(link, request, self.places)

    def play_slave(self, link: Link, request: Command) -> None:
        self._tell(link, request, self.slave_places)

    @staticmethod
    def _tell(link: Link, request: Command, places: dict[tuple[str, int], tuple[int, int]]) -> None:
        match request.code:
            case RequestCode.GET_MIN_OFFSET:
                least = request.header(GetMinOffsetRequest)
                place = places[least.topic, least.queue_id][0]
                link.answer(request, header=GetMinOffsetResponse(offset=place))
            case RequestCode.GET_MAX_OFFSET:
                most = request.header(GetMaxOffsetRequest)
                place = places[most.topic, most.queue_id][1]
                link.answer(request, header=GetMaxOffsetResponse(offset=place))
            case _:
                link.answer(request)


class PlayedCluster:
    """What the nameserver says, and the brokers."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.brokers = {name: PlayedBroker(name) for name in names}
        self.nameserver = ""
        self.nameserver_answers = True
        self.asked: list[str] = []
        """What the nameserver was asked: topics, or names of requests."""

    def __getitem__(self, name: str) -> PlayedBroker:
        return self.brokers[name]

    def options(self, **given: str) -> SourceOptions:
        return SourceOptions({"nameservers": self.nameserver, "pullRetries": "2", **given})

    def fill(self, topic: str, broker: str, number: int = 0, *, first: int = 0, end: int) -> None:
        """Say where a queue begins and ends, at the master and the slave."""
        self[broker].places[topic, number] = self[broker].slave_places[topic, number] = (first, end)

    def delete(self, topic: str, broker: str, number: int = 0) -> None:
        del self[broker].places[topic, number]

    def play(self, link: Link, request: Command) -> None:
        if not self.nameserver_answers:
            link.close()
            return
        code = request.code
        if code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            topic = request.header(GetRouteInfoRequest).topic
            self.asked.append(topic)
            self._answer_route(link, request, topic)
            return
        self.asked.append(RequestCode(code).name)
        if code == RequestCode.GET_BROKER_CLUSTER_INFO:
            table = {name: self._broker_data(name) for name in self._present()}
            link.answer(request, body=ClusterInfo(broker_addr_table=table).encode())
        elif code == RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER:
            topics = frozenset(topic for name in self._present() for topic, _ in self[name].places)
            link.answer(request, body=TopicList(topic_list=topics).encode())
        else:
            link.answer(request, body=TopicList().encode())

    def _present(self) -> list[str]:
        return [name for name, broker in self.brokers.items() if broker.addresses]

    def _broker_data(self, name: str) -> BrokerData:
        return BrokerData(cluster="c", broker_name=name, broker_addrs=self[name].addresses)

    def _answer_route(self, link: Link, request: Command, topic: str) -> None:
        counts = {
            name: count
            for name in self._present()
            if (count := sum(own == topic for own, _ in self[name].places))
        }
        if not counts:
            link.answer(request, code=ResponseCode.TOPIC_NOT_EXIST)
            return
        route = TopicRouteData(
            queue_datas=tuple(
                QueueData(
                    broker_name=name,
                    read_queue_nums=count,
                    write_queue_nums=count,
                    perm=self[name].perm,
                )
                for name, count in counts.items()
            ),
            broker_datas=tuple(self._broker_data(name) for name in counts),
        )
        link.answer(request, body=route.encode())


class Clock:
    """The time of the driver, which passes only while it waits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.then: Callable[[], None] | None = None
        """What happens while the driver waits, once."""
        self.after = 3
        """In the wait of this number."""
        self.waits = 0
        monkeypatch.setattr("rmq.spark.wire.cluster._monotonic", lambda: self.now)
        monkeypatch.setattr(
            "rmq.client.blocking.connections.Connections.sleep",
            lambda _self, seconds: self._sleep(seconds),
        )

    def _sleep(self, seconds: float) -> None:
        self.now += seconds
        self.waits += 1
        if self.waits == self.after and self.then is not None:
            self.then()

    @property
    def passed(self) -> float:
        return self.now - 1000.0


@contextmanager
def played_cluster(*names: str) -> Iterator[PlayedCluster]:
    """Run a nameserver and brokers of these names for the length of a block."""
    cluster = PlayedCluster(names or ("a",))
    with ExitStack() as stack:
        for broker in cluster.brokers.values():
            broker.peers = [
                stack.enter_context(scripted_peer(play))
                for play in (broker.play, broker.play_slave)
            ]
        cluster.nameserver = stack.enter_context(scripted_peer(cluster.play)).address
        yield cluster
