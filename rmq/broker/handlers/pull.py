"""Pulls: PULL_MESSAGE (11), with long polling.

A pull is checked, read and answered at once; the records of the answer are views into the log and
are not copied. One that finds nothing new is held (`rmq.broker.pulling.holds`) if its consumer
agrees to wait. Reading what has likely left memory is done in a thread, so that a consumer far
behind does not stop the others. Order of checks, codes and remarks are those of RocketMQ 4.9.8
PullMessageProcessor.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final, final

import trio

from rmq.broker.config import BrokerRole
from rmq.broker.pulling.filters import filter_for
from rmq.broker.pulling.holds import Hold, PullHolds
from rmq.broker.pulling.parting import Parting
from rmq.broker.pulling.sql_filter import SqlSyntaxError
from rmq.broker.sending.checks import SEE_FAQ
from rmq.errors import RefusedError
from rmq.model.names import MASTER_ID, OFFSET_MOVED_TOPIC, SCHEDULE_TOPIC
from rmq.model.offsets import ConsumerOffset, QueueOffset
from rmq.model.properties import encode_properties
from rmq.model.pull_flags import FLAG_COMMIT_OFFSET, FLAG_SUBSCRIPTION, FLAG_SUSPEND
from rmq.model.queues import MessageQueue
from rmq.model.record import NewMessage
from rmq.model.topic_flags import (
    PERM_READ,
)
from rmq.remoting.bodies import MessageModel, OffsetMovedEvent
from rmq.remoting.codes import ResponseCode
from rmq.remoting.expressions import REMARK_PARSE_FAILED, build_subscription, is_tag_type
from rmq.remoting.groups import PULL
from rmq.remoting.headers import EmptyHeader, PullMessageRequest, PullMessageResponse
from rmq.remoting.protocol import Requests
from rmq.store.append import AppendStatus
from rmq.store.queue_table import is_legal_topic
from rmq.store.reads import GetResult, GetStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rmq.broker.clients.registry import ClientRegistry
    from rmq.broker.config import BrokerConfig
    from rmq.broker.serving_parts import ServingParts
    from rmq.remoting.bodies import SubscriptionData, SubscriptionGroupConfig
    from rmq.remoting.channel import Channel
    from rmq.remoting.dispatch import HandlerTable
    from rmq.remoting.request import Request
    from rmq.store.dispatcher import Dispatched
    from rmq.store.reads import MessageFilter

logger = logging.getLogger(__name__)


SWEEP_INTERVAL_S: Final = 5.0
COLD_READERS: Final = 4
ANSWERS_PER_STEP: Final = 256
"""Held pulls that are answered in one step, about 5 ms; then other tasks run."""
_EMPTY: Final = EmptyHeader()

_CODES: Final = {
    GetStatus.FOUND: ResponseCode.SUCCESS,
    GetStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}
"""Of the two that are missing, the requested offset decides."""


@final
class PullHandlers:
    """Gives messages to consumers."""

    def __init__(
        self,
        parts: ServingParts,
        clients: ClientRegistry,
        *,
        parting: Parting | None = None,
        in_round: Callable[[], bool] = lambda: False,
    ) -> None:
        self._live = parts.live
        self._store = parts.store
        self._reads = parts.store.reads
        self._topics = parts.tables.topics
        self._groups = parts.tables.groups
        self._clients = clients
        self._offsets = parts.tables.offsets
        self._stats = parts.stats
        self._store_stats = parts.stats.store
        self._store_host = parts.origin.store_host
        self._now_ms = parts.origin.now_ms
        self._parting = parting or Parting(parts.store, tuple)
        self.holds = PullHolds(self._watch)
        self._in_round = in_round
        self._wake_up = trio.Event()
        self._is_stopping = False
        self._cold_limiter = trio.CapacityLimiter(COLD_READERS)
        self._nursery: trio.Nursery | None = None
        self.reconfigure(parts.live.current)

    def reconfigure(self, config: BrokerConfig) -> None:
        """Use other settings from now on."""
        # A slave may be behind its master: what it does not have may exist at the master.
        self._reads.keeps_offset = (
            config.role is BrokerRole.SLAVE and not config.offset_check_in_slave
        )

    def add_to(self, table: HandlerTable) -> None:
        table.add_batch(Requests.PULL_MESSAGE, self._pull, group=PULL)

    # --- tasks and notices -------------------------------------------------------------------

    async def run(self) -> None:
        """Answer pulls that waited, until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                nursery.start_soon(self._sweep)
                while True:
                    await self._wake_up.wait()
                    self._wake_up = trio.Event()
                    while self.holds.has_woken:
                        self._answer_woken(ANSWERS_PER_STEP)
                        await trio.lowlevel.checkpoint()
            finally:
                self._nursery = None

    async def _sweep(self) -> None:
        while True:
            config = self._live.current
            await trio.sleep(
                SWEEP_INTERVAL_S if config.long_polling else config.short_polling_ms / 1000
            )
            self.holds.sweep(trio.current_time(), self._max_offset)
            if self.holds.has_woken:
                self._wake_up.set()

    def message_arrived(self, message: Dispatched) -> None:
        """A watched queue has a new entry."""
        self.holds.arrived(message)
        # In a round of requests `answer_woken` follows; a task would cost more than the answer.
        if self.holds.has_woken and not self._in_round():
            self._wake_up.set()

    def answer_woken(self) -> None:
        """Answer the pulls that a round of requests has woken, in the same step unless many."""
        if self.holds.has_woken:
            self._answer_woken(ANSWERS_PER_STEP)
            if self.holds.has_woken:
                self._wake_up.set()

    def topic_changed(self, topic: str) -> None:
        """Wake the held pulls of a topic that was changed or deleted."""
        self.holds.wake_topic(topic)
        if self.holds.has_woken:
            self._wake_up.set()

    def stop_holding(self) -> None:
        """Answer all held pulls, and hold none from now on: the broker stops."""
        self._is_stopping = True
        self.holds.wake_all()
        self._answer_woken(len(self.holds))

    def connection_closed(self, channel: Channel) -> None:
        for hold in self.holds.forget(channel):
            hold.request.drop()

    def _answer_woken(self, count_max: int) -> None:
        for hold in self.holds.take_woken(count_max):
            if hold.request.channel.is_open:
                self._serve(hold.request, is_new=False)
            else:
                hold.request.drop()

    def _watch(self, topic: str, queue_id: int, is_watched: bool) -> None:
        queues = self._store.queues
        if is_watched:
            # Groups may have names with which no retry topic can be stored: nothing will come.
            if is_legal_topic(topic):
                queues.open(topic, queue_id).is_watched = True
        elif topic != SCHEDULE_TOPIC and (queue := queues.get(topic, queue_id)) is not None:
            # Delayed messages are always watched, for their delivery.
            queue.is_watched = False

    def _max_offset(self, topic: str, queue_id: int) -> QueueOffset:
        queue = self._store.queues.get(topic, queue_id)
        return QueueOffset(0) if queue is None else queue.next_offset

    # --- one pull ----------------------------------------------------------------------------

    def _pull(self, requests: Sequence[Request[PullMessageRequest]]) -> None:
        for request in requests:
            self._serve(request, is_new=True)

    def _serve(self, request: Request[PullMessageRequest], *, is_new: bool) -> None:
        """Answer a pull, or hold it if it is new. Never raises."""
        try:
            self._read_and_answer(request, is_new)
        except RefusedError as exc:
            request.reply(_EMPTY, code=exc.code, remark=exc.remark)
        except Exception as exc:
            logger.exception("pull of %s failed", request.channel.peer)
            if not request.answered:
                request.reply(
                    _EMPTY,
                    code=ResponseCode.SYSTEM_ERROR,
                    remark=f"{type(exc).__name__}: {exc}",
                )

    def _read_and_answer(self, request: Request[PullMessageRequest], is_new: bool) -> None:
        header = request.header
        started = time.perf_counter()
        config = self._live.current
        group = self._check(request)
        subscription = self._subscription(header, group)
        message_filter = self._filter(header, subscription)
        offset = QueueOffset(header.queue_offset)
        result = self._reads.get(
            header.topic, header.queue_id, offset, header.max_msg_nums, message_filter
        )
        status = result.status
        code = _CODES.get(status)
        if code is None:
            # To 4.9.8 a queue that was never written to is an empty one.
            status = GetStatus.NO_MESSAGE_IN_QUEUE
            code = (
                ResponseCode.PULL_OFFSET_MOVED
                if header.queue_offset
                else ResponseCode.PULL_NOT_FOUND
            )
        suggested = MASTER_ID
        if config.slave_read_enabled:
            suggested = (
                group.which_broker_when_consume_slowly if result.suggests_slave else group.broker_id
            )
        is_slave = config.role is BrokerRole.SLAVE
        if is_slave and header.sys_flag & (FLAG_SUSPEND | FLAG_COMMIT_OFFSET):
            self._check_is_sure(header)
        if status is GetStatus.OFFSET_OVERFLOW_BADLY:
            if not is_slave and self._parting.is_other(
                header.topic, header.queue_id, header.queue_offset
            ):
                result = self._sent_back(header, result)
        elif self._parting.has_begun:
            # A stock consumer stores offsets with its pulls once it has consumed something.
            stores = bool(header.sys_flag & FLAG_COMMIT_OFFSET)
            is_believed = stores and not is_new
            if is_believed or not self._is_foreign(request, header.queue_offset):
                self._note_served(request, result, suggested)
            elif stores:
                # There are other messages here than those it has read.
                status, code = GetStatus.OFFSET_OVERFLOW_BADLY, ResponseCode.PULL_OFFSET_MOVED
                result = self._sent_back(header, result)
        if is_new:
            # 4.9.8 stores a negative offset, too, and from then on has none for the queue.
            if header.sys_flag & FLAG_COMMIT_OFFSET and header.commit_offset >= 0 and not is_slave:
                self._commit(request)
            if (
                code is ResponseCode.PULL_NOT_FOUND
                and header.sys_flag & FLAG_SUSPEND
                and not self._is_stopping
            ):
                self._hold(request, message_filter)
                return
        if code is ResponseCode.PULL_OFFSET_MOVED:
            if not is_slave:
                self._report_moved(request, result)
                # The consumer is sent there, and slaves are to know that it was not by mistake.
                self._offsets.order_reset(
                    header.consumer_group,
                    header.topic,
                    {header.queue_id: ConsumerOffset(result.next_offset)},
                )
            elif not config.offset_check_in_slave:
                code = ResponseCode.PULL_RETRY_IMMEDIATELY
                suggested = group.broker_id
        answer = PullMessageResponse(
            suggest_which_broker_id=suggested,
            next_begin_offset=result.next_offset,
            min_offset=result.min_offset,
            max_offset=result.max_offset,
        )
        self._count(header, result, started)
        if result.suggests_slave and result.records:
            self._answer_from_disk(request, answer, code, result)
        else:
            request.reply(answer, code=code, remark=status.value, body=result.records or None)

    def _check(self, request: Request[PullMessageRequest]) -> SubscriptionGroupConfig:
        """Return the consumer's group; raise `RefusedError` if it may not pull here."""
        header, config = request.header, self._live.current
        if not config.permission & PERM_READ:
            raise RefusedError(
                ResponseCode.NO_PERMISSION,
                f"the broker[{config.broker_ip1}] pulling message is forbidden",
            )
        group = self._groups.find(header.consumer_group)
        if group is None:
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{header.consumer_group}] does not exist, {SEE_FAQ}",
            )
        if not group.consume_enable:
            raise RefusedError(
                ResponseCode.NO_PERMISSION,
                f"subscription group no permission, {header.consumer_group}",
            )
        topic = self._topics.get(header.topic)
        if topic is None:
            raise RefusedError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{header.topic}] not exist, apply first please! {SEE_FAQ}",
            )
        if not topic.perm & PERM_READ:
            raise RefusedError(
                ResponseCode.NO_PERMISSION,
                f"the topic[{header.topic}] pulling message is forbidden",
            )
        if not 0 <= header.queue_id < topic.read_queue_nums:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}]"
                f" topicConfig.readQueueNums:[{topic.read_queue_nums}]"
                f" consumer:[{request.channel.peer}]",
            )
        return group

    def _subscription(
        self, header: PullMessageRequest, group: SubscriptionGroupConfig
    ) -> SubscriptionData:
        """Return what the consumer wants: from the request, or from the group's heartbeats."""
        if header.sys_flag & FLAG_SUBSCRIPTION:
            return build_subscription(
                header.topic, header.subscription, header.expression_type, header.sub_version
            )
        members = self._clients.consumer_group(header.consumer_group)
        if members is None:
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's group info not exist{SEE_FAQ}"
            )
        if (
            not group.consume_broadcast_enable
            and members.message_model is MessageModel.BROADCASTING
        ):
            raise RefusedError(
                ResponseCode.NO_PERMISSION,
                f"the consumer group[{header.consumer_group}] can not consume by broadcast way",
            )
        subscription = members.subscription(header.topic)
        if subscription is None:
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the consumer's subscription not exist{SEE_FAQ}",
            )
        if subscription.sub_version < header.sub_version:
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest"
            )
        return subscription

    def _filter(
        self, header: PullMessageRequest, subscription: SubscriptionData
    ) -> MessageFilter | None:
        is_by_tags = is_tag_type(subscription.expression_type)
        try:
            message_filter = filter_for(subscription)
        except SqlSyntaxError:
            if header.sys_flag & FLAG_SUBSCRIPTION:
                raise RefusedError(
                    ResponseCode.SUBSCRIPTION_PARSE_FAILED, REMARK_PARSE_FAILED
                ) from None
            raise RefusedError(
                ResponseCode.FILTER_DATA_NOT_EXIST,
                "The broker's consumer filter data is not exist!Your expression may be wrong!",
            ) from None
        if not is_by_tags and not self._live.current.enable_property_filter:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                "The broker does not support consumer to filter message by "
                f"{subscription.expression_type}",
            )
        return message_filter

    # --- responses ---------------------------------------------------------------------------

    def _commit(self, request: Request[PullMessageRequest]) -> None:
        header = request.header
        topic, queue_id = header.topic, header.queue_id
        offset = ConsumerOffset(header.commit_offset)
        if self._parting.is_other(topic, queue_id, offset) or self._is_foreign(request, offset):
            return
        self._offsets.commit(request.channel.peer, header.consumer_group, topic, queue_id, offset)

    def _check_is_sure(self, header: PullMessageRequest) -> None:
        """Refuse a consumer that may have read another log: a stock one asks again after 3 s."""
        stored = self._offsets.query(header.consumer_group, header.topic, header.queue_id)
        if self._parting.is_unsure(header.topic, header.queue_id, header.queue_offset, stored):
            raise RefusedError(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"offset {header.queue_offset} of queue {header.queue_id} of {header.topic} may"
                " have been read from a former master: ask the master, this broker is a slave now",
            )

    def _is_foreign(self, request: Request[PullMessageRequest], offset: int) -> bool:
        """Tell whether a consumer has come to an offset by reading another log."""
        header = request.header
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        stored = self._offsets.query(group, topic, queue_id)
        return self._parting.is_foreign(
            request.channel.peer, group, topic, queue_id, offset, stored
        )

    def _note_served(
        self, request: Request[PullMessageRequest], result: GetResult, suggested: int
    ) -> None:
        header = request.header
        self._parting.served(
            request.channel.peer,
            header.consumer_group,
            header.topic,
            header.queue_id,
            result.next_offset,
            is_sent=suggested != MASTER_ID,
        )

    def _sent_back(self, header: PullMessageRequest, result: GetResult) -> GetResult:
        """Return the answer to a pull whose position is of another log."""
        stored = self._offsets.query(header.consumer_group, header.topic, header.queue_id)
        offset = self._parting.resume_at(header.topic, header.queue_id, stored)
        if offset is not None and header.sys_flag & FLAG_COMMIT_OFFSET and header.commit_offset > 0:
            # What it has read behind that it drops when it is sent elsewhere.
            offset = min(offset, header.commit_offset)
        if offset is None:
            return result
        return GetResult(
            GetStatus.OFFSET_OVERFLOW_BADLY,
            QueueOffset(offset),
            result.min_offset,
            result.max_offset,
        )

    def _hold(
        self, request: Request[PullMessageRequest], message_filter: MessageFilter | None
    ) -> None:
        if not request.channel.is_open:
            # The connection ended in the same step; no later notice would remove the pull.
            return
        config = self._live.current
        wait_ms = (
            request.header.suspend_timeout_millis
            if config.long_polling
            else config.short_polling_ms
        )
        request.defer()
        request.was_held = True
        self.holds.add(Hold(request, trio.current_time() + wait_ms / 1000, message_filter))

    def _answer_from_disk(
        self,
        request: Request[PullMessageRequest],
        answer: PullMessageResponse,
        code: int,
        result: GetResult,
    ) -> None:
        """Answer with records that may have to be read from disk, which takes its time."""
        assert self._nursery is not None, "pulls are served while `run` runs"
        request.defer()
        self._nursery.start_soon(self._read_cold, request, answer, code, result)

    async def _read_cold(
        self,
        request: Request[PullMessageRequest],
        answer: PullMessageResponse,
        code: int,
        result: GetResult,
    ) -> None:
        body = await trio.to_thread.run_sync(b"".join, result.records, limiter=self._cold_limiter)
        if request.channel.is_open:
            request.reply(answer, code=code, remark=result.status.value, body=body)
        else:
            request.drop()

    def _report_moved(self, request: Request[PullMessageRequest], result: GetResult) -> None:
        """Log that a consumer asked for what is not there, and say so in a topic of its own."""
        header = request.header
        request.channel.warn(
            "moved offset",
            "group %s asked for offset %d of queue %d of %s, which has %d to %d%s; it is sent to"
            " %d",
            header.consumer_group,
            header.queue_offset,
            header.queue_id,
            header.topic,
            result.min_offset,
            result.max_offset,
            # Inside the queue it is moved only for this reason.
            ", but was read there from a former master"
            if result.min_offset <= header.queue_offset <= result.max_offset
            else "",
            result.next_offset,
        )
        event = OffsetMovedEvent(
            consumer_group=header.consumer_group,
            message_queue=MessageQueue(
                topic=header.topic,
                broker_name=self._live.current.broker_name,
                queue_id=header.queue_id,
            ),
            offset_request=header.queue_offset,
            offset_new=result.next_offset,
        )
        properties = {"KEYS": header.consumer_group, "DELAY": "0", "TAGS": header.consumer_group}
        (stored,) = self._store.append(
            [
                NewMessage(
                    OFFSET_MOVED_TOPIC,
                    0,
                    event.encode(),
                    encode_properties(properties),
                    born_ms=self._now_ms(),
                    born_host=self._store_host,
                )
            ]
        )
        if stored.status is AppendStatus.PUT_OK:
            self._store_stats.put(1, stored.size)
        else:
            logger.warning("the moved offset was not reported: %s", stored.reason)

    def _count(self, header: PullMessageRequest, result: GetResult, started: float) -> None:
        count = result.count
        elapsed_ms = int((time.perf_counter() - started) * 1000)
        self._store_stats.get(count, elapsed_ms)
        if count:
            self._stats.get(
                header.consumer_group,
                header.topic,
                header.queue_id,
                count,
                result.size,
                elapsed_ms,
                next_offset=result.next_offset,
            )
            if result.suggests_slave:
                self._store_stats.get_count_from_disk += count
            self._stats.broker_get(count)
        if count and self._live.current.fall_recorded:
            behind_ms = 0
            if result.next_offset < result.max_offset:
                # A group that has got everything is not behind, however old the last message is.
                stored_ms = self._reads.store_time(
                    header.topic, header.queue_id, QueueOffset(result.next_offset - 1)
                )
                behind_ms = self._now_ms() - stored_ms if stored_ms > 0 else 0
            self._stats.record_fall(
                header.consumer_group,
                header.topic,
                header.queue_id,
                behind_ms,
                result.behind_bytes,
            )
