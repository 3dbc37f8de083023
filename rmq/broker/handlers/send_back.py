"""Messages that a consumer could not process: CONSUMER_SEND_MSG_BACK (36).

The message is stored again for its group alone, in the retry topic after a delay that grows with
each attempt, or in the dead-letter topic when it came back too often. Rules, codes and remarks are
those of RocketMQ 4.9.8 SendMessageProcessor.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final, final

from rmq.broker.config import BrokerRole
from rmq.broker.sending import checks as send_checks
from rmq.broker.sending import properties as inbound
from rmq.broker.sending.topics import SendTopics
from rmq.errors import RefusedError
from rmq.model.names import SCHEDULE_TOPIC, dlq_topic, retry_topic
from rmq.model.offsets import PhysicalOffset
from rmq.model.properties import WAIT, encode_properties
from rmq.model.record import NewMessage
from rmq.model.topic_flags import PERM_WRITE
from rmq.remoting.codes import ResponseCode
from rmq.remoting.groups import SEND
from rmq.remoting.protocol import Requests
from rmq.store.append import AppendStatus

if TYPE_CHECKING:
    from rmq.broker.sending.acknowledgement import Acknowledger
    from rmq.broker.serving_parts import ServingParts
    from rmq.model.record import StoredRecord
    from rmq.remoting.bodies import SubscriptionGroupConfig
    from rmq.remoting.dispatch import HandlerTable
    from rmq.remoting.headers import ConsumerSendMsgBackRequest
    from rmq.remoting.request import Request
    from rmq.store.append import AppendResult

ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
FIRST_RETRY_LEVEL: Final = 3


@final
class SendBackHandlers:
    """Takes messages back from consumers."""

    def __init__(
        self,
        parts: ServingParts,
        acknowledger: Acknowledger,
    ) -> None:
        self._live = parts.live
        self._store = parts.store
        self._topics = parts.tables.topics
        self._groups = parts.tables.groups
        self._send_topics = SendTopics(parts.tables.topics, parts.tables.creation)
        self._acknowledger = acknowledger
        self._stats = parts.stats
        self._store_stats = parts.stats.store

    def add_to(self, table: HandlerTable) -> None:
        table.add(Requests.CONSUMER_SEND_MSG_BACK, self.send_back, group=SEND)

    def send_back(self, request: Request[ConsumerSendMsgBackRequest]) -> None:
        """36 CONSUMER_SEND_MSG_BACK."""
        header, config = request.header, self._live.current
        group = self._groups.find(header.group)
        if group is None:
            raise send_checks.no_such_group(header.group)
        if not config.permission & PERM_WRITE:
            raise send_checks.broker_forbids(config)
        if group.retry_queue_nums <= 0:
            request.reply()
            return
        offset = PhysicalOffset(header.offset)
        record = self._store.reads.record_at(offset) if offset >= 0 else None
        times_max = send_checks.attempts_max(
            group, header.max_reconsume_times, request.command.version
        )
        is_dead = record is not None and (
            record.reconsume_times >= times_max or header.delay_level < 0
        )
        self._take(request, group, record, is_dead=is_dead)

    def _take(
        self,
        request: Request[ConsumerSendMsgBackRequest],
        group: SubscriptionGroupConfig,
        record: StoredRecord | None,
        *,
        is_dead: bool,
    ) -> None:
        """Store a message again, once its topics are there; a dead letter needs both of them.

        Of a group without a retry topic the admin tools would not find the brokers.
        """

        def go_on() -> None:
            self._take(request, group, record, is_dead=is_dead)

        def refuse(why: RefusedError) -> None:
            request.reply(code=why.code, remark=why.remark)

        retry, dead = retry_topic(request.header.group), dlq_topic(request.header.group)
        reason = self._topics.validate_topic(retry)
        if reason is not None:
            # Taken now, it could not be delivered when its time has come.
            raise RefusedError(ResponseCode.SYSTEM_ERROR, reason)
        settings = self._send_topics.ready(retry)
        if settings is None:
            self._send_topics.create_for_group(
                request,
                retry,
                go_on,
                refuse,
                queues=group.retry_queue_nums,
                has_unit_sub=request.header.unit_mode,
            )
            return
        if not settings.perm & PERM_WRITE:
            raise RefusedError(
                ResponseCode.NO_PERMISSION, f"the topic[{retry}] sending message is forbidden"
            )
        if not is_dead:
            # Not beyond what consumers read, should the group have more queues than its topic.
            queues = max(1, min(group.retry_queue_nums, settings.read_queue_nums))
            self._store_again(request, record, retry, queues, is_dead=False)
        elif self._send_topics.ready(dead) is None:
            self._send_topics.create_for_group(request, dead, go_on, refuse)
        else:
            self._store_again(request, record, dead, 1, is_dead=True)

    def _store_again(
        self,
        request: Request[ConsumerSendMsgBackRequest],
        record: StoredRecord | None,
        topic: str,
        queues: int,
        *,
        is_dead: bool,
    ) -> None:
        header = request.header
        if record is None:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {header.offset}"
            )
        level = 0 if is_dead else header.delay_level or FIRST_RETRY_LEVEL + record.reconsume_times
        message, origin_topic = self._again(record, topic, random.randrange(queues), level)
        if self._live.current.role is BrokerRole.SLAVE:
            raise _not_stored(send_checks.SLAVE)
        (result,) = self._store.append([message])
        if result.status is not AppendStatus.PUT_OK:
            self._store_stats.put_failed()
            raise _not_stored(result)
        self._store_stats.put(1, result.size)
        if message.topic == SCHEDULE_TOPIC:
            self._stats.put(message.topic, message.queue_id, 1, result.size)
        self._stats.send_back(header.group, origin_topic)
        if is_dead:
            self._stats.dead_letter(header.group, origin_topic)
        # The consumer gives the message up when it gets this answer, so it must be worth it; the
        # message itself says that a producer does not wait (WAIT=false), which 4.9.8 goes by.
        if self._acknowledger.is_immediate:
            request.reply()
        else:
            request.defer()
            self._acknowledger.when_safe(result.end_offset, lambda status: _answer(request, status))

    def _again(
        self, record: StoredRecord, topic: str, queue_id: int, level: int
    ) -> tuple[NewMessage, str]:
        """Return the message to store in place of one that came back, and its own topic."""
        pairs = record.properties
        pairs.setdefault(inbound.RETRY_TOPIC, record.topic)
        pairs[WAIT] = "false"
        pairs["DELAY"] = str(level)
        if not pairs.get(ORIGIN_MESSAGE_ID, "").strip():
            pairs[ORIGIN_MESSAGE_ID] = record.message_id
        message = NewMessage(
            topic,
            queue_id,
            record.body,
            encode_properties(pairs),
            record.flag,
            record.sys_flag,
            record.born_ms,
            record.born_host,
            record.reconsume_times + 1,
        )
        if level > 0 and inbound.is_delayable(record.sys_flag):
            levels = len(self._live.current.store.delay_levels_ms)
            message = inbound.parked(message, level, levels, message.properties)
        return message, pairs[inbound.RETRY_TOPIC]


def _not_stored(result: AppendResult) -> RefusedError:
    return RefusedError(
        ResponseCode.SYSTEM_ERROR, f"{result.status.value} {result.reason}".rstrip()
    )


def _answer(request: Request[ConsumerSendMsgBackRequest], status: AppendStatus) -> None:
    if status is AppendStatus.PUT_OK:
        request.reply()
    else:
        request.reply(code=ResponseCode.SYSTEM_ERROR, remark=status.value)
