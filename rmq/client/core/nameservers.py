"""Asking nameservers: one of several, the next one if it does not answer. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from rmq.client.core.flows import Ask, Flow, expect
from rmq.client.core.routes import TopicRoute
from rmq.client.core.slave_reads import SlaveReads
from rmq.errors import ClientError, ConfigError, NoNameserverError, NoRouteError
from rmq.model.names import AUTO_CREATE_TOPIC
from rmq.remoting.addresses import parse_address
from rmq.remoting.bodies import ClusterInfo, TopicRouteData
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import GetRouteInfoRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmq.client.core.flows import Answer
    from rmq.remoting.header import Header

_ROUTE: Final = RequestCode.GET_ROUTEINFO_BY_TOPIC
_NOT_CREATED: Final = (
    "create it, or let brokers create topics on the first send (autoCreateTopicEnable)"
)


def parse_nameservers(text: str | Iterable[str]) -> tuple[str, ...]:
    """Return the addresses in `host:port;host:port`, or in a list of them; commas are taken, too.

    Raises `ConfigError` if there is none, or one is not an address.
    """
    parts = text.replace(",", ";").split(";") if isinstance(text, str) else list(text)
    addresses = tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))
    if not addresses:
        raise ConfigError(
            "nameservers",
            "no address is given",
            hint="write them as host:port, several joined by ;",
        )
    for address in addresses:
        parse_address(address)
    return addresses


@final
class Nameservers:
    """The nameservers of a cluster. The one that answered last is asked first."""

    def __init__(self, addresses: Iterable[str], *, first: int = 0) -> None:
        """`first` spreads clients over nameservers: it says which one is asked first."""
        self._addresses = parse_nameservers(addresses)
        self._current = first % len(self._addresses)
        self.slave_reads = SlaveReads()
        """Which brokers of the cluster are read from slaves now."""

    @property
    def addresses(self) -> tuple[str, ...]:
        return self._addresses

    def ask(
        self,
        code: RequestCode,
        header: Header | None = None,
        *,
        timeout_s: float | None = None,
        what: str = "",
    ) -> Flow[Answer]:
        """Ask nameservers until one answers, with any code; raise `NoNameserverError`.

        `what` says for people what is asked. A server that does not know the request that all
        nameservers serve, for routes, is none.
        """
        count = len(self._addresses)
        failures: dict[str, str] = {}
        for number in range(self._current, self._current + count):
            address = self._addresses[number % count]
            try:
                answer = yield Ask(address, code, header, None, timeout_s)
            except ClientError as exc:
                failures[address] = exc.text
                continue
            assert answer is not None
            if code is _ROUTE and answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                failures[address] = "it serves no routes: is that the port of a broker?"
                continue
            self._current = number % count
            return answer
        raise NoNameserverError(what or code.name, failures)

    def _ask_route(self, topic: str) -> Flow[Answer]:
        what = f"the route of topic {topic}"
        return self.ask(_ROUTE, GetRouteInfoRequest(topic=topic), what=what)

    def route(self, topic: str) -> Flow[TopicRoute]:
        """Return the route of a topic; raise `NoRouteError` if no broker has it."""
        answer = yield from self._ask_route(topic)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            raise NoRouteError(answer.ask.address, topic, "no broker has it", hint=_NOT_CREATED)
        expect(answer)
        return TopicRoute(topic, answer.body(TopicRouteData))

    def route_to_send(self, topic: str, queues: int) -> Flow[TopicRoute]:
        """Return the route of a topic, or the one that it will have once a send has created it.

        In that case it has at most `queues` queues per broker: what brokers that create topics give
        the first one.
        """
        try:
            return (yield from self.route(topic))
        except NoRouteError as exc:
            answer = yield from self._ask_route(AUTO_CREATE_TOPIC)
            if answer.code == ResponseCode.TOPIC_NOT_EXIST:
                raise exc from None
            expect(answer)
            data = answer.body(TopicRouteData)
        return TopicRoute(topic, with_queues(data, queues))

    def cluster(self) -> Flow[ClusterInfo]:
        """Return all brokers."""
        answer = yield from self.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
        return expect(answer).body(ClusterInfo)


def with_queues(route: TopicRouteData, queues: int) -> TopicRouteData:
    """Return a route with at most `queues` queues per broker."""
    return TopicRouteData(
        order_topic_conf=route.order_topic_conf,
        queue_datas=tuple(
            type(data)(
                broker_name=data.broker_name,
                read_queue_nums=min(queues, data.read_queue_nums),
                write_queue_nums=min(queues, data.write_queue_nums),
                perm=data.perm,
                topic_sys_flag=data.topic_sys_flag,
            )
            for data in route.queue_datas
        ),
        broker_datas=route.broker_datas,
    )
