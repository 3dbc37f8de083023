"""Consumer groups and connected clients, for admin tools: requests 200, 201, 203, 204, 207 and 328.

A change is answered when it is on disk. Codes and remarks are those of RocketMQ 4.9.8
AdminBrokerProcessor.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, final

import trio

from rmq.broker.handlers.tables import answer_table
from rmq.broker.handlers.topics import refuse_on_slave
from rmq.errors import ProtocolError, RefusedError
from rmq.model import fastjson
from rmq.model.name_rules import group_refusal
from rmq.remoting.bodies import (
    Connection,
    ConsumerConnection,
    ProducerConnection,
    ProducerInfo,
    SubscriptionGroupConfig,
)
from rmq.remoting.bodies.lists import ITEMS_PER_STEP, list_in_steps
from rmq.remoting.codes import ResponseCode
from rmq.remoting.header import SLOW_BYTES_MAX
from rmq.remoting.protocol import Requests
from rmq.steps import in_steps

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from rmq.broker.clients.group_members import ClientInfo
    from rmq.broker.clients.registry import ClientRegistry
    from rmq.broker.serving_parts import ServingParts
    from rmq.remoting.dispatch import HandlerTable
    from rmq.remoting.headers import (
        DeleteSubscriptionGroupRequest,
        EmptyHeader,
        GetConsumerConnectionListRequest,
        GetProducerConnectionListRequest,
    )
    from rmq.remoting.request import Request

logger = logging.getLogger(__name__)

RETRY_QUEUES_MAX: Final = 1024
_TOPICS_PER_STEP: Final = 200
SETTINGS_BYTES_MAX: Final = 64 * 1024
"""Of the settings of a group in a request."""


@final
class GroupHandlers:
    """Creates, shows and deletes groups, and shows their members."""

    def __init__(
        self,
        parts: ServingParts,
        clients: ClientRegistry,
    ) -> None:
        self._live = parts.live
        self._groups = parts.tables.groups
        self._clients = clients
        self._offsets = parts.tables.offsets
        self._writer = parts.tables.groups_writer
        self._stats = parts.stats
        self._now_ms = parts.origin.now_ms

    def add_to(self, table: HandlerTable) -> None:
        table.add_async(
            Requests.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            self.create,
            body_bytes_max=SETTINGS_BYTES_MAX,
        )
        table.add_async(Requests.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, self.list_all)
        table.add_async(Requests.DELETE_SUBSCRIPTIONGROUP, self.delete)
        table.add_async(Requests.GET_CONSUMER_CONNECTION_LIST, self.list_consumers)
        table.add_async(Requests.GET_PRODUCER_CONNECTION_LIST, self.list_producers)
        table.add_async(Requests.GET_ALL_PRODUCER_INFO, self.list_all_producers)

    # --- settings ----------------------------------------------------------------------------

    async def create(self, request: Request[EmptyHeader]) -> None:
        """200 UPDATE_AND_CREATE_SUBSCRIPTIONGROUP."""
        refuse_on_slave(self._live.current)
        try:
            group = SubscriptionGroupConfig.decode(request.body, slow_bytes_max=SLOW_BYTES_MAX)
        except ProtocolError as exc:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, str(exc)) from None
        _check_name(group.group_name)
        if group.retry_queue_nums > RETRY_QUEUES_MAX:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"retryQueueNums {group.retry_queue_nums} is above {RETRY_QUEUES_MAX}",
            )
        logger.info("group %s created or changed by %s", group.group_name, request.channel.peer)
        self._groups.put(group)
        await self._writer.wait_saved(self._writer.mark())
        request.reply()

    async def list_all(self, request: Request[EmptyHeader]) -> None:
        """201 GET_ALL_SUBSCRIPTIONGROUP_CONFIG, by which slaves follow."""
        await answer_table(request, self._groups, "groups")

    async def delete(self, request: Request[DeleteSubscriptionGroupRequest]) -> None:
        """207 DELETE_SUBSCRIPTIONGROUP."""
        refuse_on_slave(self._live.current)
        name = request.header.group_name
        logger.info("group %s deleted by %s", name, request.channel.peer)
        self._groups.delete(name)
        if request.header.remove_offset:
            topics = list(await in_steps(self._offsets.finding_topics(name)))
            for start in range(0, len(topics), _TOPICS_PER_STEP):
                self._offsets.remove_group(name, topics[start : start + _TOPICS_PER_STEP])
                await trio.lowlevel.checkpoint()
        if self._live.current.delete_unused_stats:
            self._stats.remove_group(name)
        await self._writer.wait_saved(self._writer.mark())
        request.reply()

    # --- members -----------------------------------------------------------------------------

    async def list_consumers(self, request: Request[GetConsumerConnectionListRequest]) -> None:
        """203 GET_CONSUMER_CONNECTION_LIST."""
        name = request.header.consumer_group
        group = self._clients.consumer_group(name)
        if group is None:
            raise RefusedError(
                ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online"
            )
        rest = ConsumerConnection(
            subscription_table=dict(group.subscriptions),
            consume_type=group.consume_type,
            message_model=group.message_model,
            consume_from_where=group.consume_from_where,
        )
        request.reply(body=await in_steps(_with_connections(rest, group.clients)))

    async def list_producers(self, request: Request[GetProducerConnectionListRequest]) -> None:
        """204 GET_PRODUCER_CONNECTION_LIST."""
        name = request.header.producer_group
        group = self._clients.producer_group(name)
        if group is None:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
        rest = ProducerConnection()
        request.reply(body=await in_steps(_with_connections(rest, group.members.values())))

    async def list_all_producers(self, request: Request[EmptyHeader]) -> None:
        """328 GET_ALL_PRODUCER_INFO."""
        # Members know when they were heard of by the monotonic clock, tools want the wall's.
        now, now_ms = trio.current_time(), self._now_ms()

        def info(client: ClientInfo) -> ProducerInfo:
            return ProducerInfo(
                client_id=client.client_id,
                # As Java prints an address without a host name.
                remote_ip=f"/{client.channel.peer}",
                language=client.language,
                version=client.version,
                last_update_timestamp=now_ms - int((now - client.last_update) * 1000),
            )

        rows: list[bytes] = []
        for name, group in list(self._clients.producer_groups.items()):
            members = list(group.members.values())
            listed = await in_steps(list_in_steps(map(info, members)))
            rows.append(fastjson.dumps(name) + b":" + listed)
            if len(rows) % ITEMS_PER_STEP == 0:
                await trio.lowlevel.checkpoint()
        request.reply(body=b'{"data":{%b}}' % b",".join(rows))


def _check_name(group: str) -> None:
    """Refuse what no stock client takes for a group, with its words.

    4.9.8 creates such a group. No client can join it, and its retry topic could not be stored.
    """
    reason = group_refusal(group)
    if reason is not None:
        raise RefusedError(ResponseCode.SYSTEM_ERROR, reason)


def _with_connections(
    rest: ConsumerConnection | ProducerConnection, clients: Iterable[ClientInfo]
) -> Generator[None, None, bytes]:
    """Return a body as JSON with the connections of these clients, put together in steps."""
    connections = (
        Connection(
            client_id=client.client_id,
            client_addr=client.channel.peer,
            language=client.language,
            version=client.version,
        )
        for client in list(clients)
    )
    listed = yield from list_in_steps(connections)
    # The list is the first member, and empty where it is not given.
    head, _, others = rest.encode().partition(b"[]")
    return b"".join((head, listed, others))
