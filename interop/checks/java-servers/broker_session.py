"""What the cases against a stock broker share: a client that is also a consumer of the broker."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

from asking import Asker
from stock_servers import BROKER

from interop.support.cases import expect_true
from rmq.model.queues import MessageQueue
from rmq.remoting import bodies, headers
from rmq.remoting.bodies import decode_reset_offset
from rmq.remoting.dispatch import HandlerTable
from rmq.remoting.protocol import Requests

if TYPE_CHECKING:
    from stock_servers import StockServers

    from rmq.remoting.client import RemotingClient
    from rmq.remoting.request import Request

CLIENT_ID: Final = "127.0.0.1@interop"
PRODUCER_GROUP: Final = "interop_producers"
QUEUES: Final = 2

_SUSPEND: Final = 0x2
_WITH_SUBSCRIPTION: Final = 0x4


@final
@dataclass
class Consumer:
    """The handlers a consumer has for its broker, and what came in through them."""

    notified: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    resets: list[bodies.ResetOffsetBody] = field(default_factory=list)

    def table(self) -> HandlerTable:
        table = HandlerTable()
        table.add(Requests.NOTIFY_CONSUMER_IDS_CHANGED, self._notified)
        table.add(Requests.GET_CONSUMER_RUNNING_INFO, self._asked)
        table.add(Requests.RESET_CONSUMER_CLIENT_OFFSET, self._reset)
        table.add(Requests.GET_CONSUMER_STATUS_FROM_CLIENT, self._status)
        return table

    def _notified(self, request: Request[headers.NotifyConsumerIdsChangedRequest]) -> None:
        expect_true("a one-way request", request.command.is_oneway)
        self.notified.append(request.header.consumer_group)

    def _asked(self, request: Request[headers.GetConsumerRunningInfoRequest]) -> None:
        self.asked.append(request.header.client_id)
        request.reply(body=running_info().encode())

    def _reset(self, request: Request[headers.ResetOffsetRequest]) -> None:
        expect_true("a one-way request", request.command.is_oneway)
        self.resets.append(decode_reset_offset(request.body))

    def _status(self, request: Request[headers.GetConsumerStatusRequest]) -> None:
        status = bodies.GetConsumerStatusBody(
            message_queue_table={queue_of(request.header.topic, 0): 42}
        )
        request.reply(body=status.encode())


@final
class BrokerSession:
    """One client of the broker, with a topic and groups of its own."""

    def __init__(self, client: RemotingClient, consumer: Consumer, servers: StockServers) -> None:
        self.client = client
        self.consumer = consumer
        self.servers = servers
        self.serialization = client.config.serialization
        self.part = f"broker, {self.serialization.name}"
        self.topic = f"InteropTopic{self.serialization.name}"
        self.group = f"interop_consumers_{self.serialization.name}"
        self.key = f"key-{self.topic}"
        self.broker = Asker(client, servers.broker)
        self.nameserver = Asker(client, servers.nameserver)
        self.vip = Asker(client, servers.broker_vip)

    def message(self, *, batch: bool = False, queue_id: int = 0) -> headers.SendMessageRequestV2:
        return headers.SendMessageRequestV2(
            producer_group=PRODUCER_GROUP,
            topic=self.topic,
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=queue_id,
            sys_flag=0,
            born_timestamp=int(time.time() * 1000),
            flag=0,
            properties="" if batch else f"KEYS\x01{self.key}\x02TAGS\x01tag",
            reconsume_times=0,
            batch=batch,
            broker_name=BROKER,
        )

    def pull(self, queue_id: int, offset: int, *, hold_ms: int) -> headers.PullMessageRequest:
        return headers.PullMessageRequest(
            consumer_group=self.group,
            topic=self.topic,
            queue_id=queue_id,
            queue_offset=offset,
            max_msg_nums=32,
            sys_flag=_SUSPEND | _WITH_SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_millis=hold_ms,
            subscription="*",
            sub_version=0,
            expression_type="TAG",
            broker_name=BROKER,
        )


def queue_of(topic: str, queue_id: int) -> MessageQueue:
    return MessageQueue(topic=topic, broker_name=BROKER, queue_id=queue_id)


def subscription(topic: str) -> bodies.SubscriptionData:
    return bodies.SubscriptionData(
        topic=topic, sub_string=bodies.SUBSCRIBE_ALL, sub_version=1_700_000_000_000
    )


def running_info() -> bodies.ConsumerRunningInfo:
    return bodies.ConsumerRunningInfo(
        properties={"PROP_CONSUME_TYPE": "CONSUME_PASSIVELY"},
        subscription_set=(subscription("topic"),),
        mq_table={queue_of("topic", 1): bodies.ProcessQueueInfo(commit_offset=5, locked=True)},
        status_table={"topic": bodies.ConsumeStatus(pull_tps=1.5)},
    )
