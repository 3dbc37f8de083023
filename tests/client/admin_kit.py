"""Messages and consumers for tests of the admin client, made without the rest of the client."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import trio

from rmq.model.properties import encode_properties
from rmq.model.queues import MessageQueue
from rmq.remoting.bodies import (
    CMResult,
    ConsumeFromWhere,
    ConsumeMessageDirectlyResult,
    ConsumerData,
    ConsumerRunningInfo,
    ConsumeType,
    DataVersion,
    MessageModel,
    RegisterBrokerBody,
    SubscriptionData,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import RegisterBrokerRequest, SendMessageRequestV2, SendMessageResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from rmq.client.core.routes import TopicRoute
    from rmq.client.tasks.client import Client
    from rmq.model.record import StoredRecord
    from tests.client.cluster_kit import Cluster

WAIT_S: Final = 20.0
POLL_S: Final = 0.01


async def send(
    it: Cluster,
    client: Client,
    topic: str,
    body: bytes,
    *,
    broker: str = "broker-a",
    queue_id: int = 0,
    sys_flag: int = 0,
    **properties: str,
) -> str:
    """Store a message; return its offset message id."""
    header = SendMessageRequestV2(
        producer_group="kit",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=queue_id,
        sys_flag=sys_flag,
        born_timestamp=time.time_ns() // 1_000_000,
        flag=0,
        properties=encode_properties(properties).decode(),
    )
    answer = await client.remoting.request(
        it.address(broker), RequestCode.SEND_MESSAGE_V2, header, body=body
    )
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return answer.header(SendMessageResponse).msg_id


def queue(topic: str, queue_id: int = 0, broker: str = "broker-a") -> MessageQueue:
    return MessageQueue(topic=topic, broker_name=broker, queue_id=queue_id)


async def until(is_so: Callable[[], bool]) -> None:
    """Wait for a condition."""
    with trio.fail_after(WAIT_S):
        while not is_so():  # noqa: ASYNC110 - the condition is the broker's
            await trio.sleep(POLL_S)


async def register(
    it: Cluster, client: Client, name: str, broker_id: int, address: str, *topics: str
) -> None:
    """Let the nameserver know of a broker that is not there, or is another one."""
    table = {
        topic: TopicConfig(topic_name=topic, read_queue_nums=1, write_queue_nums=1)
        for topic in topics
    }
    body = RegisterBrokerBody(
        topic_config_serialize_wrapper=TopicConfigSerializeWrapper(
            topic_config_table=table, data_version=DataVersion(timestamp=1, counter=1)
        )
    )
    header = RegisterBrokerRequest(
        broker_name=name,
        broker_addr=address,
        cluster_name="DefaultCluster",
        ha_server_addr=address,
        broker_id=broker_id,
    )
    answer = await client.remoting.request(
        it.nameserver, RequestCode.REGISTER_BROKER, header, body=body.encode()
    )
    assert answer.code == ResponseCode.SUCCESS, answer.remark


class KitConsumer:
    """A member that consumes nothing and notes what brokers ask of it."""

    def __init__(
        self,
        group: str,
        topic: str,
        *,
        tags: frozenset[str] = frozenset(),
        consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY,
    ) -> None:
        self.group = group
        self.resets: list[Mapping[MessageQueue, int]] = []
        self.consumed: list[bytes] = []
        self.offsets: dict[MessageQueue, int] = {}
        self._topic = topic
        self._presence = ConsumerData(
            group_name=group,
            consume_type=consume_type,
            message_model=MessageModel.CLUSTERING,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            subscription_data_set=(
                SubscriptionData(
                    topic=topic, sub_string=" || ".join(tags) or "*", tags_set=tags, sub_version=1
                ),
            ),
        )

    def topics(self) -> Iterable[str]:
        return (self._topic,)

    def presence(self) -> ConsumerData:
        return self._presence

    def route_changed(self, route: TopicRoute) -> None:
        pass

    def members_changed(self) -> None:
        pass

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        self.resets.append(dict(offsets))

    def consumed_offsets(self, topic: str) -> Mapping[MessageQueue, int]:
        return self.offsets

    def running_info(self) -> ConsumerRunningInfo:
        return ConsumerRunningInfo(properties={"PROP_CONSUME_TYPE": "kit"})

    async def consume_directly(
        self, record: StoredRecord, broker_name: str
    ) -> ConsumeMessageDirectlyResult:
        self.consumed.append(record.body)
        return ConsumeMessageDirectlyResult(consume_result=CMResult.CR_SUCCESS)


async def joined(client: Client, consumer: KitConsumer, topic: str) -> None:
    """Let a consumer be known to the brokers of a topic."""
    client.join(consumer)
    await client.route(topic)
    await client.beat()
