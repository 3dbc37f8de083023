"""Offsets of groups and of queues: requests 14, 15, 29, 30, 31 and 32.

Rules and remarks are those of RocketMQ 4.9.8 ConsumerManageProcessor and AdminBrokerProcessor. A
group that has no offset for a queue begins at 0 while the queue is young, whatever its consumers
wish for; only later does the broker say that it knows none.

A slave takes offsets as well, as in 4.9.8: clients commit to it when they find no master. They are
not lost when the master comes back, because what a slave copies does not make an offset fall.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from rmq.errors import RefusedError
from rmq.model.offsets import ConsumerOffset, QueueOffset
from rmq.remoting.codes import ResponseCode
from rmq.remoting.groups import ADMIN, CLIENT_MANAGEMENT
from rmq.remoting.headers import (
    EmptyHeader,
    GetEarliestMsgStoretimeRequest,
    GetEarliestMsgStoretimeResponse,
    GetMaxOffsetRequest,
    GetMaxOffsetResponse,
    GetMinOffsetRequest,
    GetMinOffsetResponse,
    QueryConsumerOffsetRequest,
    QueryConsumerOffsetResponse,
    SearchOffsetRequest,
    SearchOffsetResponse,
    UpdateConsumerOffsetRequest,
)
from rmq.remoting.protocol import Requests

if TYPE_CHECKING:
    from rmq.broker.clients.registry import ClientRegistry
    from rmq.broker.pulling.parting import Parting
    from rmq.broker.tables.consumer_offsets import ConsumerOffsets
    from rmq.broker.tables.offset_admission import OffsetAdmission
    from rmq.remoting.dispatch import HandlerTable
    from rmq.remoting.request import Request
    from rmq.store.store import MessageStore


@final
class OffsetHandlers:
    """Answers requests for consumer offsets and for the bounds of queues."""

    def __init__(
        self,
        store: MessageStore,
        offsets: ConsumerOffsets,
        clients: ClientRegistry | None = None,
        parting: Parting | None = None,
        admission: OffsetAdmission | None = None,
    ) -> None:
        self._store = store
        self._reads = store.reads
        self._offsets = offsets
        self._clients = clients
        """Knows which clients consume; without it every client counts as a consumer."""
        self._parting = parting
        """Knows which positions are of another master's log; without it none is."""
        self._admission = admission
        """Knows which topics and groups there are; without it all are taken for existing."""

    def add_to(self, table: HandlerTable) -> None:
        table.add(Requests.QUERY_CONSUMER_OFFSET, self.query, group=CLIENT_MANAGEMENT)
        table.add(Requests.UPDATE_CONSUMER_OFFSET, self.update, group=CLIENT_MANAGEMENT)
        table.add(Requests.SEARCH_OFFSET_BY_TIMESTAMP, self.search, group=ADMIN)
        table.add(Requests.GET_MAX_OFFSET, self.max_offset, group=ADMIN)
        table.add(Requests.GET_MIN_OFFSET, self.min_offset, group=ADMIN)
        table.add(Requests.GET_EARLIEST_MSG_STORETIME, self.earliest, group=ADMIN)

    def query(self, request: Request[QueryConsumerOffsetRequest]) -> None:
        """14 QUERY_CONSUMER_OFFSET."""
        header = request.header
        offset = self._offsets.query(header.consumer_group, header.topic, header.queue_id)
        if offset < 0:
            queue = self._store.queues.get(header.topic, header.queue_id)
            if queue is not None and (
                queue.min_offset > 0
                or self._reads.is_on_disk(header.topic, header.queue_id, QueueOffset(0))
            ):
                request.reply(
                    EmptyHeader(),
                    code=ResponseCode.QUERY_NOT_FOUND,
                    remark="Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
                )
                return
            offset = ConsumerOffset(0)
        request.reply(QueryConsumerOffsetResponse(offset=offset))

    def update(self, request: Request[UpdateConsumerOffsetRequest]) -> None:
        """15 UPDATE_CONSUMER_OFFSET. A smaller offset than the one stored is taken, too.

        It is a reset if it comes from a client that does not consume: mqadmin resets the offsets of
        groups that are not connected this way. What can only have been read from another log is not
        stored (`rmq.broker.pulling.parting`): the group would miss as much. The first offset of a
        queue is not stored for any group and topic (`rmq.broker.tables.offset_admission`).
        """
        header = request.header
        if header.commit_offset < 0:
            # 4.9.8 stores it and from then on has no offset for the queue.
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"offset {header.commit_offset} of group {header.consumer_group} is negative",
            )
        if self._is_of_another_log(request):
            request.reply(EmptyHeader())
            return
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        if self._admission is not None and self._offsets.query(group, topic, queue_id) < 0:
            self._admission.check(group, topic, queue_id)
        store = self._offsets.commit if self._is_consumer(request) else self._offsets.reset
        store(
            request.channel.peer,
            group,
            topic,
            queue_id,
            ConsumerOffset(header.commit_offset),
        )
        request.reply(EmptyHeader())

    def _is_of_another_log(self, request: Request[UpdateConsumerOffsetRequest]) -> bool:
        header, parting = request.header, self._parting
        if parting is None:
            return False
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        # From any client: consumers commit before their first heartbeat reaches this broker.
        if parting.is_other(topic, queue_id, header.commit_offset):
            return True
        stored = self._offsets.query(group, topic, queue_id)
        if not parting.has_begun:
            # Consumers may take a slave for the master that it was.
            return parting.is_unsure(topic, queue_id, header.commit_offset, stored)
        if not (parting.is_recent or self._is_consumer(request)):
            return False
        return parting.is_foreign(
            request.channel.peer, group, topic, queue_id, header.commit_offset, stored
        )

    def _is_consumer(self, request: Request[UpdateConsumerOffsetRequest]) -> bool:
        if self._clients is None:
            return True
        group = self._clients.consumer_group(request.header.consumer_group)
        return group is not None and request.channel in group.members

    def search(self, request: Request[SearchOffsetRequest]) -> None:
        """29 SEARCH_OFFSET_BY_TIMESTAMP."""
        header = request.header
        offset = self._reads.offset_by_time(header.topic, header.queue_id, header.timestamp)
        request.reply(SearchOffsetResponse(offset=offset))

    def max_offset(self, request: Request[GetMaxOffsetRequest]) -> None:
        """30 GET_MAX_OFFSET."""
        queue = self._store.queues.get(request.header.topic, request.header.queue_id)
        request.reply(GetMaxOffsetResponse(offset=0 if queue is None else queue.next_offset))

    def min_offset(self, request: Request[GetMinOffsetRequest]) -> None:
        """31 GET_MIN_OFFSET."""
        queue = self._store.queues.get(request.header.topic, request.header.queue_id)
        request.reply(GetMinOffsetResponse(offset=0 if queue is None else queue.min_offset))

    def earliest(self, request: Request[GetEarliestMsgStoretimeRequest]) -> None:
        """32 GET_EARLIEST_MSG_STORETIME."""
        header = request.header
        stored = self._reads.earliest_store_time(header.topic, header.queue_id)
        request.reply(GetEarliestMsgStoretimeResponse(timestamp=stored))
