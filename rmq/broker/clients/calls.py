"""Requests of a broker to its clients.

`MemberNotifier` tells consumers that their group changed, so that they rebalance.
`ConsumerCalls` is what admin tools ask a broker to do with consumers: move their offsets, ask for
their state, hand them a message. Order of checks, codes, remarks and waits are those of RocketMQ
4.9.8 Broker2Client and AdminBrokerProcessor.callConsumer; a refusal is a `RefusedError`.

Two things differ from it. Whether all members are new enough is checked before the first one is
told to move its offsets, so that a refusal leaves nothing half done. And members are asked for
their state at the same time instead of one after the other: the tool that asks waits for 5 s.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Final, final

import trio

from rmq.broker.clients.versions import RESETS_OFFSETS, TELLS_RUNNING_INFO, version_name
from rmq.errors import ClientError, ProtocolError, RefusedError, RequestTimeoutError
from rmq.model.offsets import ConsumerOffset
from rmq.model.queues import MessageQueue
from rmq.remoting.bodies.base import BodyError
from rmq.remoting.bodies.offsets import (
    GetConsumerStatusBody,
    MessageQueueForC,
    ResetOffsetBody,
    ResetOffsetBodyForC,
)
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import (
    GetConsumerStatusRequest,
    NotifyConsumerIdsChangedRequest,
    ResetOffsetRequest,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rmq.broker.clients.registry import ClientInfo, ClientRegistry, ConsumerGroupInfo
    from rmq.broker.config import LiveConfig
    from rmq.broker.tables.consumer_offsets import ConsumerOffsets
    from rmq.broker.tables.topics import TopicTable
    from rmq.remoting.channel import Channel
    from rmq.remoting.command import Command
    from rmq.store.store import MessageStore

logger = logging.getLogger(__name__)

CALL_TIMEOUT_S: Final = 10.0
STATUS_TIMEOUT_S: Final = 5.0
NOTICE_PAUSE_S: Final = 0.1
CLIENTS_PER_STEP: Final = 64
"""Clients that are told something before other tasks run."""
_ASKED_PER_STEP: Final = 16
_FAILURES_SHOWN: Final = 8
STATUS_BYTES_MAX: Final = 1024 * 1024
"""Of the table of offsets that one consumer answers with; some 10,000 queues."""
_STATUS_BYTES_AT_ONCE: Final = 4096
"""Tables by queue are read slowly: a millisecond per KiB."""
_QUEUES_PER_STEP: Final = 64
QUEUE_ENDS: Final = -1
"""The time to which a group is reset that is to skip everything there is."""


@final
class MemberNotifier:
    """Tells consumers of a group that members came or went.

    A notice makes every member ask for the list of members and rebalance. When thousands of members
    come or go together, as after a restart, each change would otherwise be sent to all of them:
    while `run` runs, a group is notified soon and then again only after `NOTICE_PAUSE_S`, of all
    that changed meanwhile. A new member is always notified at once. The members of a large group
    are told some at a time, with other work in between.
    """

    def __init__(self, config: LiveConfig) -> None:
        self._config = config
        self._is_paced = False
        self._due: dict[ConsumerGroupInfo, Channel | None] = {}
        """Groups to be told now, with the member that was told of the last change already."""
        self._told: set[ConsumerGroupInfo] = set()
        self._late: dict[ConsumerGroupInfo, None] = {}
        self._noticed = trio.Event()

    def notify_members(self, group: ConsumerGroupInfo, newcomer: Channel | None) -> None:
        """Ask the clients to rebalance, now or soon; never raises."""
        if not self._config.current.notify_consumer_ids_changed:
            return
        if not self._is_paced:
            self._tell(group, group.channels)
            return
        if newcomer is not None:
            self._tell(group, (newcomer,))
        if group in self._told:
            self._late[group] = None
            return
        # Members that were told of an earlier change have to be told again.
        self._due[group] = newcomer
        self._noticed.set()

    async def run(self) -> None:
        """Notify groups of what changed since their last notice, until cancelled."""
        # Stays so at the end: clients need no notice of the connections that are closed then.
        self._is_paced = True
        pause_ends = math.inf
        while True:
            with trio.move_on_at(pause_ends):
                await self._noticed.wait()
            self._noticed = trio.Event()
            if trio.current_time() >= pause_ends:
                self._told.clear()
                self._due.update(dict.fromkeys(self._late))
                self._late = {}
                pause_ends = math.inf
            while self._due:
                group = next(iter(self._due))
                newcomer = self._due.pop(group)
                self._told.add(group)
                await self._tell_others(group, newcomer)
            if self._told and pause_ends == math.inf:
                pause_ends = trio.current_time() + NOTICE_PAUSE_S

    async def _tell_others(self, group: ConsumerGroupInfo, newcomer: Channel | None) -> None:
        channels = [channel for channel in group.channels if channel is not newcomer]
        for start in range(0, len(channels), CLIENTS_PER_STEP):
            if start:
                await trio.lowlevel.checkpoint()
            some = channels[start : start + CLIENTS_PER_STEP]
            self._tell(group, [channel for channel in some if channel.is_open])

    def _tell(self, group: ConsumerGroupInfo, channels: Iterable[Channel]) -> None:
        header = NotifyConsumerIdsChangedRequest(consumer_group=group.name)
        for channel in channels:
            try:
                channel.oneway(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header)
            except (ClientError, ProtocolError) as exc:
                # It finds out by itself within the 20 s of its timer, or is gone.
                logger.warning(
                    "group %s: %s not told to rebalance: %s", group.name, channel.peer, exc
                )


@final
class ConsumerCalls:
    """What a broker asks of consumers on behalf of admin tools."""

    def __init__(
        self,
        config: LiveConfig,
        clients: ClientRegistry,
        topics: TopicTable,
        offsets: ConsumerOffsets,
        store: MessageStore,
    ) -> None:
        self._config = config
        self._clients = clients
        self._topics = topics
        self._offsets = offsets
        self._store = store
        self._limiter = trio.CapacityLimiter(1)

    # ---- 222 and 220: move a group's offsets -----------------------------------------------------

    async def reset_offset(
        self,
        topic: str,
        group: str,
        timestamp_ms: int,
        *,
        is_force: bool = False,
        for_cpp: bool = False,
    ) -> ResetOffsetBody:
        """Tell every consumer of a group to go on from a time, and return where that is.

        Without `is_force` offsets only move back. `for_cpp` sends the table in the form of C++
        clients: it depends on the tool that asked, not on the clients.
        """
        table = await self._offsets_at(topic, group, timestamp_ms, is_force=is_force)
        consumers = self._clients.consumer_group(group)
        if consumers is None:
            raise RefusedError(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"Consumer not online, so can not reset offset, Group: {group} Topic: {topic}"
                f" Timestamp: {timestamp_ms}",
            )
        clients = list(consumers.clients)
        for client in clients:
            _check_resets_offsets(client)
        # Before the first one can commit what it is told.
        self._offsets.order_reset(
            group,
            topic,
            {queue.queue_id: ConsumerOffset(offset) for queue, offset in table.items()},
        )
        answer = ResetOffsetBody(offset_table=table)
        body = (_rows_of(table) if for_cpp else answer).encode()
        header = ResetOffsetRequest(topic=topic, group=group, timestamp=timestamp_ms)
        told = 0
        for number, client in enumerate(clients, 1):
            try:
                client.channel.oneway(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, header, body=body)
                told += 1
            except (ClientError, ProtocolError) as exc:
                logger.error("group %s: %s not told to reset offsets: %s", group, client, exc)
            if number % CLIENTS_PER_STEP == 0:
                await trio.lowlevel.checkpoint()
        logger.info(
            "group %s: %d of %d members told to reset offsets of %s",
            group,
            told,
            len(clients),
            topic,
        )
        return answer

    async def _offsets_at(
        self, topic: str, group: str, timestamp_ms: int, *, is_force: bool
    ) -> dict[MessageQueue, int]:
        config = self._topics.get(topic)
        if config is None:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"[reset-offset] reset offset failed, no topic in this broker. topic={topic}",
            )
        broker_name = self._config.current.broker_name
        table: dict[MessageQueue, int] = {}
        for queue_id in range(config.write_queue_nums):
            consumed = self._offsets.query(group, topic, queue_id)
            if consumed == -1:
                raise RefusedError(
                    ResponseCode.SYSTEM_ERROR, f"THe consumer group <{group}> not exist"
                )
            wanted = max(0, self._offset_at(topic, queue_id, timestamp_ms))
            queue = MessageQueue(topic=topic, broker_name=broker_name, queue_id=queue_id)
            table[queue] = wanted if is_force or wanted < consumed else consumed
            if len(table) % _QUEUES_PER_STEP == 0:
                await trio.lowlevel.checkpoint()
        return table

    def _offset_at(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        if timestamp_ms != QUEUE_ENDS:
            return self._store.reads.offset_by_time(topic, queue_id, timestamp_ms)
        queue = self._store.queues.get(topic, queue_id)
        return 0 if queue is None else queue.next_offset

    # ---- 223 and 221: consumer offsets as consumers know them ------------------------------------

    async def consumer_status(
        self, topic: str, group: str, client_id: str | None = None
    ) -> GetConsumerStatusBody:
        """Ask consumers of a group, or only one of them, for their offsets in a topic.

        A consumer that does not answer, or not with a table, is left out.
        """
        consumers = self._clients.consumer_group(group)
        if consumers is None:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"No Any Consumer online in the consumer group: [{group}]",
            )
        asks_all = client_id is None or not client_id.strip()
        asked = [
            client for client in consumers.clients if asks_all or client.client_id == client_id
        ]
        for client in asked:
            _check_resets_offsets(client)
        tables: dict[str, dict[MessageQueue, int]] = {}
        failures: list[str] = []
        header = GetConsumerStatusRequest(topic=topic, group=group)

        async def ask(client: ClientInfo) -> None:
            try:
                answer = await client.channel.request(
                    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, header, timeout_s=STATUS_TIMEOUT_S
                )
                if answer.code == ResponseCode.SUCCESS and answer.body:
                    tables[client.client_id] = await self._status_table(answer.body)
            except (ClientError, ProtocolError) as exc:
                failures.append(f"{client}: {exc}")

        async with trio.open_nursery() as nursery:
            for number, client in enumerate(asked, 1):
                nursery.start_soon(ask, client)
                if number % _ASKED_PER_STEP == 0:
                    await trio.lowlevel.checkpoint()
        if failures:
            logger.error(
                "group %s: no consumer status of %d of %d members: %s",
                group,
                len(failures),
                len(asked),
                "; ".join(failures[:_FAILURES_SHOWN]),
            )
        return GetConsumerStatusBody(consumer_table=tables)

    async def _status_table(self, body: bytes) -> dict[MessageQueue, int]:
        """Read the table of one consumer, in a thread if it is long."""
        if len(body) > STATUS_BYTES_MAX:
            raise BodyError(
                f"{len(body)} bytes, the limit is {STATUS_BYTES_MAX}",
                body=GetConsumerStatusBody.__name__,
                path="$",
            )
        if len(body) <= _STATUS_BYTES_AT_ONCE:
            return GetConsumerStatusBody.decode(body).message_queue_table
        read = await trio.to_thread.run_sync(
            GetConsumerStatusBody.decode, body, limiter=self._limiter
        )
        return read.message_queue_table

    # ---- 307 and 309: handed on to one consumer --------------------------------------------------

    async def running_info(
        self, group: str, client_id: str | None, ext_fields: Mapping[str, str]
    ) -> Command:
        """Ask a consumer what it is doing; `ext_fields` are those of the request handed on."""
        return await self._call(
            RequestCode.GET_CONSUMER_RUNNING_INFO, group, client_id, ext_fields, None
        )

    async def consume_directly(
        self,
        group: str,
        client_id: str | None,
        ext_fields: Mapping[str, str],
        record: bytes | memoryview,
    ) -> Command:
        """Have a consumer consume a message; `ext_fields` are those of the request handed on."""
        fields = {**ext_fields, "brokerName": self._config.current.broker_name}
        return await self._call(
            RequestCode.CONSUME_MESSAGE_DIRECTLY, group, client_id, fields, bytes(record)
        )

    async def _call(
        self,
        code: RequestCode,
        group: str,
        client_id: str | None,
        ext_fields: Mapping[str, str],
        body: bytes | None,
    ) -> Command:
        """Hand a request on and return the answer, whatever its code."""
        consumers = self._clients.consumer_group(group)
        client = None if consumers is None else consumers.find_client(client_id)
        who = f"<{group}> <{'null' if client_id is None else client_id}>"
        if client is None:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, f"The Consumer {who} not online")
        if client.version < TELLS_RUNNING_INFO:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"The Consumer <{client_id}> Version <{version_name(client.version)}> too low to"
                " finish, please upgrade it to V3_1_8_SNAPSHOT",
            )
        try:
            return await client.channel.request(
                code, extra=ext_fields, body=body, timeout_s=CALL_TIMEOUT_S
            )
        except RequestTimeoutError as exc:
            raise RefusedError(
                ResponseCode.CONSUME_MSG_TIMEOUT, f"consumer {who} Timeout: {exc}"
            ) from exc
        except (ClientError, ProtocolError) as exc:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"invoke consumer {who} Exception: {exc}"
            ) from exc


def _check_resets_offsets(client: ClientInfo) -> None:
    if client.version < RESETS_OFFSETS:
        raise RefusedError(
            ResponseCode.SYSTEM_ERROR,
            f"the client does not support this feature. version={version_name(client.version)}",
        )


def _rows_of(table: Mapping[MessageQueue, int]) -> ResetOffsetBodyForC:
    return ResetOffsetBodyForC(
        offset_table=tuple(
            MessageQueueForC(
                topic=queue.topic,
                broker_name=queue.broker_name,
                queue_id=queue.queue_id,
                offset=offset,
            )
            for queue, offset in table.items()
        )
    )
