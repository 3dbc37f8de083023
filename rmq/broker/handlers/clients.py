"""Clients come, go and share out queues: requests 34, 35, 38, 41, 42 and 46.

A heartbeat puts a client into its groups. For a consumer group it also creates what the group needs
on this broker: its settings, and its retry topic, through whose route admin tools find the broker.
A new consumer is told to rebalance before its heartbeat is answered, as clients are used to.

Order of checks, codes and remarks are those of RocketMQ 4.9.8 ClientManageProcessor,
ConsumerManageProcessor and AdminBrokerProcessor. One thing differs: a consumer that leaves a group
this broker never heard of does not create it.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final, TypeVar, final

import msgspec
import trio

from rmq.broker.clients.registry import ClientIdentity
from rmq.errors import ProtocolError, RefusedError, RmqError
from rmq.model.names import retry_topic
from rmq.remoting.bodies.base import Body
from rmq.remoting.bodies.heartbeat import HeartbeatData
from rmq.remoting.bodies.locks import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    UnlockBatchRequestBody,
)
from rmq.remoting.bodies.subscriptions import CheckClientRequestBody
from rmq.remoting.codes import ResponseCode
from rmq.remoting.expressions import is_tag_type
from rmq.remoting.groups import CLIENT_MANAGEMENT, HEARTBEAT
from rmq.remoting.header import EmptyHeader
from rmq.remoting.protocol import Requests

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.broker.clients.locks import QueueLocks
    from rmq.broker.clients.registry import ClientRegistry
    from rmq.broker.config import LiveConfig
    from rmq.broker.tables.groups import GroupTable
    from rmq.broker.tables.topics import TopicTable
    from rmq.remoting.bodies.heartbeat import ConsumerData
    from rmq.remoting.dispatch import HandlerTable
    from rmq.remoting.headers import GetConsumerListByGroupRequest, UnregisterClientRequest
    from rmq.remoting.request import Request

logger = logging.getLogger(__name__)

_LOGGED_CHARS: Final = 200
"""How much of an expression that makes no sense is logged: it may have megabytes."""

B = TypeVar("B", bound=Body)


@final
class ClientHandlers:
    """Handlers of the requests by which clients join and leave groups, and lock queues."""

    def __init__(
        self,
        config: LiveConfig,
        topics: TopicTable,
        groups: GroupTable,
        clients: ClientRegistry,
        locks: QueueLocks,
        create_retry_topic: Callable[[str, int, bool], None],
        *,
        compile_filter: Callable[[str, str], object] | None = None,
        after_registration: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        """`create_retry_topic` gets a group, a number of queues and whether it is in unit mode.

        `compile_filter` gets the type and the text of an expression and raises `ValueError` or an
        `RmqError` if it makes no sense of it; without it only tags are taken. `after_registration`
        calls back when nameservers have been told of new topics.
        """
        self._config = config
        self._topics = topics
        self._groups = groups
        self._clients = clients
        self._locks = locks
        self._create_retry_topic = create_retry_topic
        self._compile_filter = compile_filter
        self._after_registration = after_registration

    def add_to(self, table: HandlerTable) -> None:
        table.add(Requests.HEART_BEAT, self.heartbeat, group=HEARTBEAT)
        table.add(Requests.UNREGISTER_CLIENT, self.unregister, group=CLIENT_MANAGEMENT)
        table.add(Requests.CHECK_CLIENT_CONFIG, self.check_client_config, group=CLIENT_MANAGEMENT)
        table.add(Requests.GET_CONSUMER_LIST_BY_GROUP, self.list_consumers, group=CLIENT_MANAGEMENT)
        table.add(Requests.LOCK_BATCH_MQ, self.lock_queues, group=CLIENT_MANAGEMENT)
        table.add(Requests.UNLOCK_BATCH_MQ, self.unlock_queues, group=CLIENT_MANAGEMENT)

    # ---- groups ----------------------------------------------------------------------------------

    def heartbeat(self, request: Request[EmptyHeader]) -> None:
        """34 HEART_BEAT: the groups of a client."""
        data = _read(HeartbeatData, request)
        has_new_topics = False
        for consumer in data.consumer_data_set:
            has_new_topics |= self._prepare_group(consumer)
        if has_new_topics and self._after_registration is not None:
            # A consumer asks for the route of its retry topic next; not finding it, it asks again
            # only 30 s later.
            request.defer()
            self._after_registration(lambda: self._register(request, data))
        else:
            self._register(request, data)

    def _prepare_group(self, data: ConsumerData) -> bool:
        """Create what a consumer group needs; tell whether nameservers have to know of it."""
        group = data.group_name
        settings = self._groups.find(group)
        if settings is None or self._topics.get(retry_topic(group)) is not None:
            return False
        self._create_retry_topic(group, settings.retry_queue_nums, data.unit_mode)
        return True

    def _register(self, request: Request[EmptyHeader], data: HeartbeatData) -> None:
        """Put a client into its groups, and answer its heartbeat."""
        channel = request.channel
        if not channel.is_open:
            # It ended after the heartbeat was read. The registry would never remove it.
            request.drop()
            return
        command = request.command
        client = ClientIdentity(data.client_id, command.language, command.version)
        now = trio.current_time()
        for consumer in data.consumer_data_set:
            settings = self._groups.get(consumer.group_name)
            self._clients.register_consumer(
                consumer.group_name,
                channel,
                client,
                _dated(consumer),
                now,
                notify=settings is None or settings.notify_consumer_ids_changed_enable,
            )
        for producer in data.producer_data_set:
            self._clients.register_producer(producer.group_name, channel, client, now)
        request.reply()

    def unregister(self, request: Request[UnregisterClientRequest]) -> None:
        """35 UNREGISTER_CLIENT: a client leaves a group; whether it was in it does not matter."""
        header = request.header
        if header.producer_group is not None:
            self._clients.unregister_producer(header.producer_group, request.channel)
        if header.consumer_group is not None:
            settings = self._groups.get(header.consumer_group)
            self._clients.unregister_consumer(
                header.consumer_group,
                request.channel,
                notify=settings is None or settings.notify_consumer_ids_changed_enable,
            )
        request.reply(EmptyHeader())

    def list_consumers(self, request: Request[GetConsumerListByGroupRequest]) -> None:
        """38 GET_CONSUMER_LIST_BY_GROUP: the ids among which queues are dealt out."""
        group = request.header.consumer_group
        consumers = self._clients.consumer_group(group)
        if consumers is None:
            request.reply(
                EmptyHeader(),
                code=ResponseCode.SYSTEM_ERROR,
                remark=f"no consumer for this group, {group}",
            )
        else:
            request.reply(EmptyHeader(), body=consumers.member_list())

    def check_client_config(self, request: Request[EmptyHeader]) -> None:
        """46 CHECK_CLIENT_CONFIG: can the broker filter by what a consumer is about to ask for?"""
        body = _read(CheckClientRequestBody, request) if request.body else None
        subscription = None if body is None else body.subscription_data
        if body is None or subscription is None or is_tag_type(subscription.expression_type):
            request.reply()
            return
        kind = subscription.expression_type or ""
        if not self._config.current.enable_property_filter or self._compile_filter is None:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"The broker does not support consumer to filter message by {kind}",
            )
        try:
            self._compile_filter(kind, subscription.sub_string or "")
        except (ValueError, RmqError) as exc:
            logger.warning(
                "%s in group %s: cannot filter by %r: %s",
                body.client_id,
                body.group,
                (subscription.sub_string or "")[:_LOGGED_CHARS],
                exc,
            )
            raise RefusedError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(exc)) from exc
        request.reply()

    # ---- locks -----------------------------------------------------------------------------------

    def lock_queues(self, request: Request[EmptyHeader]) -> None:
        """41 LOCK_BATCH_MQ: take or renew queues that are consumed in order."""
        body = _read(LockBatchRequestBody, request)
        held = self._locks.lock_batch(
            body.consumer_group, body.client_id, body.mq_set, trio.current_time()
        )
        queues = tuple(dict.fromkeys(queue for queue in body.mq_set if queue in held))
        request.reply(body=LockBatchResponseBody(lock_ok_mq_set=queues).encode())

    def unlock_queues(self, request: Request[EmptyHeader]) -> None:
        """42 UNLOCK_BATCH_MQ: give queues back."""
        body = _read(UnlockBatchRequestBody, request)
        self._locks.unlock_batch(body.consumer_group, body.client_id, body.mq_set)
        request.reply()


def _read(kind: type[B], request: Request[EmptyHeader]) -> B:
    try:
        return kind.decode(request.body)
    except ProtocolError as exc:
        raise RefusedError(ResponseCode.SYSTEM_ERROR, str(exc)) from exc


def _dated(data: ConsumerData) -> ConsumerData:
    """Give subscriptions without a version the present time, as Java does when it reads them."""
    subscriptions = data.subscription_data_set
    if all(subscription.sub_version for subscription in subscriptions):
        return data
    now_ms = time.time_ns() // 1_000_000
    return msgspec.structs.replace(
        data,
        subscription_data_set=tuple(
            subscription
            if subscription.sub_version
            else msgspec.structs.replace(subscription, sub_version=now_ms)
            for subscription in subscriptions
        ),
    )
