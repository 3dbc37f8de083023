"""Offsets of groups and calls to consumers, for admin tools and slaves.

Requests 43, 45, 222, 223, 307, 308, 309 and 314. Codes and remarks are those of RocketMQ 4.9.8
AdminBrokerProcessor.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, final

import trio

from rmq.broker.handlers.tables import part_of, refuse_long
from rmq.broker.tables.offsets_body import LOG_END_FIELD
from rmq.broker.transactions.half import PROGRESS_PAIRS
from rmq.errors import RefusedError
from rmq.model import fastjson
from rmq.model.offsets import QueueOffset
from rmq.model.record import parse_message_id
from rmq.remoting.bodies import QueryCorrectionOffsetBody
from rmq.remoting.bodies.lists import ITEMS_PER_STEP
from rmq.remoting.codes import LanguageCode, ResponseCode
from rmq.remoting.protocol import Requests
from rmq.steps import in_steps

if TYPE_CHECKING:
    from rmq.broker.clients.calls import ConsumerCalls
    from rmq.broker.clients.registry import ClientRegistry
    from rmq.broker.delays.delivery import DelayDelivery
    from rmq.broker.tables.consumer_offsets import ConsumerOffsets
    from rmq.broker.tables.offset_admission import OffsetAdmission
    from rmq.broker.tables.topics import TopicTable
    from rmq.remoting.command import Command
    from rmq.remoting.dispatch import HandlerTable
    from rmq.remoting.headers import (
        CloneGroupOffsetRequest,
        ConsumeMessageDirectlyRequest,
        EmptyHeader,
        GetConsumerRunningInfoRequest,
        GetConsumerStatusRequest,
        QueryCorrectionOffsetRequest,
        ResetOffsetRequest,
    )
    from rmq.remoting.request import Request
    from rmq.store.store import MessageStore

logger = logging.getLogger(__name__)

_PIECES_PER_STEP: Final = 2
_TOO_MANY_OFFSETS: Final = (
    "delete groups that are gone together with their offsets (mqadmin deleteSubGroup -r true)"
)


@final
class ConsumerHandlers:
    """Moves groups and asks their members."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        clients: ClientRegistry,
        offsets: ConsumerOffsets,
        delay: DelayDelivery,
        calls: ConsumerCalls,
        admission: OffsetAdmission,
    ) -> None:
        self._store = store
        self._topics = topics
        self._clients = clients
        self._offsets = offsets
        self._delay = delay
        self._calls = calls
        self._admission = admission

    def add_to(self, table: HandlerTable) -> None:
        table.add_async(Requests.GET_ALL_CONSUMER_OFFSET, self.list_offsets)
        table.add(Requests.GET_ALL_DELAY_OFFSET, self.list_delays)
        table.add_async(Requests.INVOKE_BROKER_TO_RESET_OFFSET, self.reset)
        table.add_async(Requests.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, self.status)
        table.add_async(Requests.GET_CONSUMER_RUNNING_INFO, self.running_info)
        table.add_async(Requests.CONSUME_MESSAGE_DIRECTLY, self.consume_directly)
        table.add_async(Requests.QUERY_CORRECTION_OFFSET, self.correction)
        table.add_async(Requests.CLONE_GROUP_OFFSET, self.clone)

    # --- what slaves copy --------------------------------------------------------------------

    async def list_offsets(self, request: Request[EmptyHeader]) -> None:
        """43 GET_ALL_CONSUMER_OFFSET: all of them, or the part that is asked for."""
        wanted = part_of(request)
        if wanted is not None:
            part = await in_steps(self._offsets.part(wanted, PROGRESS_PAIRS))
            request.reply(body=part.body, extra={**self._as_of(request), **part.fields} or None)
            return
        pieces: list[bytes] = []
        size = 0
        for piece in self._offsets.encode_pieces(last=PROGRESS_PAIRS):
            if len(pieces) % _PIECES_PER_STEP == _PIECES_PER_STEP - 1:
                await trio.lowlevel.checkpoint()
            pieces.append(piece)
            size += len(piece)
            refuse_long(request, "consumer offsets", size, _TOO_MANY_OFFSETS)
        request.reply(body=b"".join(pieces), extra=self._as_of(request) or None)

    def list_delays(self, request: Request[EmptyHeader]) -> None:
        """45 GET_ALL_DELAY_OFFSET."""
        request.reply(body=self._delay.to_body().encode(), extra=self._as_of(request) or None)

    def _as_of(self, request: Request[EmptyHeader]) -> dict[str, str]:
        """Return where the log ends: before that lies what the progress in an answer rests on.

        Only slaves of our own make ask for it.
        """
        if LOG_END_FIELD not in request.command.ext_fields:
            return {}
        return {LOG_END_FIELD: str(self._store.log.readable)}

    # --- offsets -----------------------------------------------------------------------------

    async def reset(self, request: Request[ResetOffsetRequest]) -> None:
        """222 INVOKE_BROKER_TO_RESET_OFFSET."""
        header = request.header
        logger.info(
            "offsets of group %s in %s reset to %d by %s",
            header.group,
            header.topic,
            header.timestamp,
            request.channel.peer,
        )
        body = await self._calls.reset_offset(
            header.topic,
            header.group,
            header.timestamp,
            is_force=header.is_force,
            for_cpp=request.command.language is LanguageCode.CPP,
        )
        request.reply(body=body.encode())

    async def correction(self, request: Request[QueryCorrectionOffsetRequest]) -> None:
        """308 QUERY_CORRECTION_OFFSET: the lowest offsets of all groups."""
        header = request.header
        lowest = await in_steps(
            self._offsets.finding_min_offsets(header.topic, header.filter_groups, self._min_offset)
        )
        request.reply(body=QueryCorrectionOffsetBody(correction_offsets=dict(lowest)).encode())

    def _min_offset(self, topic: str, queue_id: int) -> QueueOffset:
        queue = self._store.queues.get(topic, queue_id)
        return QueueOffset(0) if queue is None else queue.min_offset

    async def clone(self, request: Request[CloneGroupOffsetRequest]) -> None:
        """314 CLONE_GROUP_OFFSET: one group goes on where another is."""
        header = request.header
        if header.topic is not None and header.topic.strip():
            topics = {header.topic}
        else:
            topics = await in_steps(self._offsets.finding_topics(header.src_group))
        source = self._clients.consumer_group(header.src_group)
        for topic in sorted(topics):
            if self._topics.get(topic) is None:
                logger.warning("offsets of %s not cloned: there is no such topic", topic)
                continue
            if (
                not header.offline
                and source is not None
                and source.subscriptions
                and source.subscription(topic) is None
            ):
                logger.warning(
                    "offsets of %s not cloned: group %s does not subscribe to it",
                    topic,
                    header.src_group,
                )
                continue
            for queue_id in self._offsets.offsets(header.src_group, topic):
                if self._offsets.query(header.dest_group, topic, queue_id) < 0:
                    self._admission.check(header.dest_group, topic, queue_id)
            # 4.9.8 clones the topic of the request here, which is blank when all are meant.
            self._offsets.clone(header.src_group, header.dest_group, topic)
        request.reply()

    # --- calls to consumers ------------------------------------------------------------------

    async def status(self, request: Request[GetConsumerStatusRequest]) -> None:
        """223 INVOKE_BROKER_TO_GET_CONSUMER_STATUS."""
        header = request.header
        body = await self._calls.consumer_status(header.topic, header.group, header.client_addr)
        rows: list[bytes] = []
        for client_id, table in body.consumer_table.items():
            queues: list[bytes] = []
            for queue, offset in table.items():
                queues.append(b"%b:%d" % (fastjson.dumps(queue), offset))
                if len(queues) % ITEMS_PER_STEP == 0:
                    await trio.lowlevel.checkpoint()
            rows.append(fastjson.dumps(client_id) + b":{" + b",".join(queues) + b"}")
            await trio.lowlevel.checkpoint()
        request.reply(body=b'{"consumerTable":{%b},"messageQueueTable":{}}' % b",".join(rows))

    async def running_info(self, request: Request[GetConsumerRunningInfoRequest]) -> None:
        """307 GET_CONSUMER_RUNNING_INFO, handed on."""
        header = request.header
        answer = await self._calls.running_info(
            header.consumer_group, header.client_id, request.command.ext_fields
        )
        _hand_back(request, answer)

    async def consume_directly(self, request: Request[ConsumeMessageDirectlyRequest]) -> None:
        """309 CONSUME_MESSAGE_DIRECTLY, handed on with the message."""
        header = request.header
        try:
            _, offset = parse_message_id(header.msg_id or "")
        except ValueError as exc:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, f"msgId {header.msg_id}: {exc}") from None
        record = self._store.reads.record_at(offset)
        view = None if record is None else self._store.log.view(offset, record.size)
        if view is None:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"there is no message {header.msg_id} here"
            )
        answer = await self._calls.consume_directly(
            header.consumer_group, header.client_id, request.command.ext_fields, view
        )
        _hand_back(request, answer)


def _hand_back(
    request: Request[GetConsumerRunningInfoRequest] | Request[ConsumeMessageDirectlyRequest],
    answer: Command,
) -> None:
    """Answer with what a consumer answered."""
    request.reply(
        code=answer.code,
        body=answer.body,
        remark=answer.remark,
        extra=answer.ext_fields or None,
    )
