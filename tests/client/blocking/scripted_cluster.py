"""A nameserver and brokers that a test plays: what they answer to sends and pulls is its choice."""

from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from rmq.remoting.bodies import BrokerData, QueueData, TopicRouteData
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import GetRouteInfoRequest, SendMessageRequestV2, SendMessageResponse
from tests.client.blocking.scripted_peer import ScriptedPeer, scripted_peer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rmq.remoting.command import Command
    from tests.client.blocking.scripted_peer import Link

    Play = Callable[[Link, Command], None]

TOPIC = "Scripted"


class Broker:
    """Stores what it is sent, unless `play` does something else."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.play: Play = self.store
        self.stored: list[bytes] = []
        self.peer: ScriptedPeer | None = None

    @property
    def address(self) -> str:
        assert self.peer is not None
        return self.peer.address

    def serve(self, link: Link, request: Command) -> None:
        if request.code in (RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT):
            link.answer(request)
        else:
            self.play(link, request)

    def store(self, link: Link, request: Command, code: int = ResponseCode.SUCCESS) -> None:
        """Take a message, and say so."""
        self.stored.append(request.body or b"")
        queue_id = request.header(SendMessageRequestV2).queue_id
        if not request.is_oneway:
            link.answer(
                request,
                code=code,
                header=SendMessageResponse(
                    msg_id="0" * 32, queue_id=queue_id, queue_offset=len(self.stored) - 1
                ),
            )

    def refuse(self, code: ResponseCode) -> Play:
        """Return a play that says no."""

        def play(link: Link, request: Command) -> None:
            link.answer(request, code=code, remark=f"says {self.name}")

        return play


class ScriptedCluster:
    """What the nameserver says, and the brokers."""

    def __init__(self, brokers: dict[str, Broker]) -> None:
        self.brokers = brokers
        self.queues = 2
        self.nameserver = ""
        self.asked = 0
        self.routed: tuple[str, ...] | None = None
        """The brokers that are in routes; None: all."""
        self.addresses: dict[str, str] = {}
        """Addresses to tell in place of the true ones."""
        self.slaves: frozenset[str] = frozenset()
        """Brokers that are said to be slaves: their names have no master."""
        self.slave_of: dict[str, str] = {}
        """Brokers that are listed as slaves of another one, by its name; not in routes as such."""
        self.on_asked: Callable[[], None] = lambda: None
        self.lock = threading.Lock()

    def __getitem__(self, name: str) -> Broker:
        return self.brokers[name]

    def route(self) -> TopicRouteData:
        names = tuple(self.brokers) if self.routed is None else self.routed
        return TopicRouteData(
            queue_datas=tuple(
                QueueData(
                    broker_name=name,
                    read_queue_nums=self.queues,
                    write_queue_nums=self.queues,
                    perm=6,
                )
                for name in names
            ),
            broker_datas=tuple(
                BrokerData(
                    cluster="c",
                    broker_name=name,
                    broker_addrs={
                        1 if name in self.slaves else 0: self.addresses.get(
                            name, self.brokers[name].address
                        ),
                        **(
                            {1: self.brokers[self.slave_of[name]].address}
                            if name in self.slave_of
                            else {}
                        ),
                    },
                )
                for name in names
            ),
        )

    def answer_route(self, link: Link, request: Command) -> None:
        with self.lock:
            self.asked += 1
            self.on_asked()
        if request.header(GetRouteInfoRequest).topic == TOPIC:
            link.answer(request, body=self.route().encode())
        else:
            link.answer(request, code=ResponseCode.TOPIC_NOT_EXIST)


@contextmanager
def scripted_cluster(*names: str) -> Iterator[ScriptedCluster]:
    """Run a nameserver and brokers of these names for the length of a block."""
    cluster = ScriptedCluster({name: Broker(name) for name in names or ("a",)})
    with ExitStack() as stack:
        for broker in cluster.brokers.values():
            broker.peer = stack.enter_context(scripted_peer(broker.serve))
        peer = stack.enter_context(scripted_peer(cluster.answer_route))
        cluster.nameserver = peer.address
        yield cluster
