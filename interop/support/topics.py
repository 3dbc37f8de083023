"""Topics of a broker, made and looked at through its own protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from interop.support.cases import expect
from interop.support.waiting import wait_until
from rmq.remoting.client import open_client
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import (
    CreateTopicRequest,
    GetMaxOffsetRequest,
    GetMaxOffsetResponse,
    GetRouteInfoRequest,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from interop.support.cluster import Broker, Cluster
    from rmq.remoting.client import RemotingClient
    from rmq.remoting.command import Command
    from rmq.remoting.header import Header

_READ_AND_WRITE: Final = 6
_ROUTE_TIMEOUT_S: Final = 10


async def create_topics(cluster: Cluster, broker: Broker, topics: Mapping[str, int]) -> None:
    """Create topics with some numbers of queues; every nameserver knows them afterwards."""
    async with open_client() as client:
        for topic, queues in topics.items():
            header = CreateTopicRequest(
                topic=topic,
                read_queue_nums=queues,
                write_queue_nums=queues,
                perm=_READ_AND_WRITE,
                topic_filter_type="SINGLE_TAG",
            )
            await _ask(client, broker.address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        for nameserver in cluster.nameservers:
            for topic in topics:
                await _wait_for_route(client, nameserver.address, topic)


async def max_offset(broker: Broker, topic: str, queue_id: int = 0) -> int:
    """Return how many messages a queue has got."""
    async with open_client() as client:
        header = GetMaxOffsetRequest(topic=topic, queue_id=queue_id)
        answer = await _ask(client, broker.address, RequestCode.GET_MAX_OFFSET, header)
    return answer.header(GetMaxOffsetResponse).offset


async def _ask(client: RemotingClient, address: str, code: RequestCode, header: Header) -> Command:
    answer = await client.request(address, code, header)
    expect(f"{code.name} ({answer.remark})", answer.code, int(ResponseCode.SUCCESS))
    return answer


async def _wait_for_route(client: RemotingClient, nameserver: str, topic: str) -> None:
    header = GetRouteInfoRequest(topic=topic)

    async def is_known() -> bool:
        answer = await client.request(nameserver, RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        return answer.code == ResponseCode.SUCCESS

    await wait_until(f"a route to {topic}", is_known, timeout_s=_ROUTE_TIMEOUT_S)
