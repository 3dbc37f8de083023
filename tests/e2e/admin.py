"""What tests ask brokers and nameservers themselves, in the words of the protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from rmq.remoting.bodies import (
    ConsumerRunningInfo,
    GetConsumerListByGroupResponseBody,
    SubscriptionGroupConfig,
    TopicRouteData,
)
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import (
    CreateTopicRequest,
    GetConsumerListByGroupRequest,
    GetConsumerRunningInfoRequest,
    GetMaxOffsetRequest,
    GetMaxOffsetResponse,
    GetRouteInfoRequest,
    QueryConsumerOffsetRequest,
    QueryConsumerOffsetResponse,
    ResetOffsetRequest,
)

if TYPE_CHECKING:
    from rmq.remoting.client import RemotingClient
    from rmq.remoting.command import Command
    from rmq.remoting.header import Header

_READ_AND_WRITE: Final = 6
_TIMEOUT_S: Final = 10.0


@final
class Admin:
    """Asks; an answer that is not expected is an AssertionError."""

    def __init__(self, client: RemotingClient) -> None:
        self._client = client

    async def create_topic(self, broker: str, topic: str, queues: int) -> None:
        header = CreateTopicRequest(
            topic=topic,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=_READ_AND_WRITE,
            topic_filter_type="SINGLE_TAG",
        )
        await self._ask(broker, RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    async def create_group(self, broker: str, group: str, *, retry_max_times: int) -> None:
        body = SubscriptionGroupConfig(group_name=group, retry_max_times=retry_max_times)
        await self._ask(broker, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body.encode())

    async def brokers_of(self, nameserver: str, topic: str) -> set[str]:
        """Return which brokers the nameserver names for a topic."""
        header = GetRouteInfoRequest(topic=topic)
        answer = await self._client.request(
            nameserver, RequestCode.GET_ROUTEINFO_BY_TOPIC, header, timeout_s=_TIMEOUT_S
        )
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return set()
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        route = TopicRouteData.decode(answer.body)
        return {queue_data.broker_name for queue_data in route.queue_datas}

    async def consumer_ids(self, broker: str, group: str) -> set[str]:
        """Return the ids of the clients in a group; a group without any is an error in 4.9.8."""
        header = GetConsumerListByGroupRequest(consumer_group=group)
        answer = await self._client.request(
            broker, RequestCode.GET_CONSUMER_LIST_BY_GROUP, header, timeout_s=_TIMEOUT_S
        )
        if answer.code != ResponseCode.SUCCESS:
            assert answer.remark == f"no consumer for this group, {group}"
            return set()
        return set(GetConsumerListByGroupResponseBody.decode(answer.body).consumer_id_list)

    async def consumer_offset(self, broker: str, group: str, topic: str, queue_id: int) -> int:
        header = QueryConsumerOffsetRequest(consumer_group=group, topic=topic, queue_id=queue_id)
        answer = await self._ask(broker, RequestCode.QUERY_CONSUMER_OFFSET, header)
        return answer.header(QueryConsumerOffsetResponse).offset

    async def reset_offsets(self, broker: str, group: str, topic: str, *, to_ms: int) -> None:
        """Let a group, and those of it that run, go on with what was stored at a time."""
        header = ResetOffsetRequest(topic=topic, group=group, timestamp=to_ms, is_force=True)
        await self._ask(broker, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)

    async def running_info(self, broker: str, group: str) -> ConsumerRunningInfo:
        """Return what the only consumer of a group tells of itself."""
        [client_id] = await self.consumer_ids(broker, group)
        header = GetConsumerRunningInfoRequest(consumer_group=group, client_id=client_id)
        answer = await self._ask(broker, RequestCode.GET_CONSUMER_RUNNING_INFO, header)
        return ConsumerRunningInfo.decode(answer.body)

    async def max_offset(self, broker: str, topic: str, queue_id: int) -> int:
        """Return how many messages a queue has got."""
        header = GetMaxOffsetRequest(topic=topic, queue_id=queue_id)
        answer = await self._ask(broker, RequestCode.GET_MAX_OFFSET, header)
        return answer.header(GetMaxOffsetResponse).offset

    async def _ask(
        self, address: str, code: RequestCode, header: Header | None = None, *, body: bytes = b""
    ) -> Command:
        answer = await self._client.request(
            address, code, header, body=body or None, timeout_s=_TIMEOUT_S
        )
        assert answer.code == ResponseCode.SUCCESS, f"{code.name}: {answer.code}, {answer.remark}"
        return answer
