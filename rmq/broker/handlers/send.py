"""Sends: SEND_MESSAGE (10), SEND_MESSAGE_V2 (310) and SEND_BATCH_MESSAGE (320).

All sends that were read together, from one connection or several, are checked, appended together
and answered together. Nothing is awaited on this way: a send that must wait (for the disk, or for
its topic to be created) is deferred and answered when the wait is over. Order of checks, codes
and remarks are those of RocketMQ 4.9.8 SendMessageProcessor.

Most sends need few checks, and take the short way: what has to be known of their topics is kept at
hand. The others are checked and prepared one by one (`checks`, `preparation`), and may
have their topic created first (`topics`): unlike in 4.9.8, a new topic is on disk before its
first message is taken. The first send to a queue waits until the queue has a file
(`queue_creation`).
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, final

from rmq.broker.config import BrokerRole
from rmq.broker.sending import checks as send_checks
from rmq.broker.sending import properties as inbound
from rmq.broker.sending.large_batches import LARGE_BYTES, MESSAGES_AT_ONCE, LargeBatches
from rmq.broker.sending.preparation import (
    PreparedSend,
    ReceivedSend,
    SendPreparation,
    pack_peer,
    refused_batch,
    tag_flag,
)
from rmq.broker.sending.queue_creation import QueueCreation
from rmq.broker.sending.topics import SendTopics
from rmq.broker.stats.sends import NOT_MASTER
from rmq.errors import RefusedError
from rmq.model.named_master import MASTER_FIELD
from rmq.model.names import DLQ_PREFIX, RETRY_PREFIX
from rmq.model.offsets import PhysicalOffset
from rmq.model.properties import decode_properties
from rmq.model.record import NewMessage
from rmq.model.topic_flags import PERM_WRITE
from rmq.remoting.bodies import BatchError, decode_batch_in_steps
from rmq.remoting.codes import ResponseCode
from rmq.remoting.dispatch import reply_all
from rmq.remoting.groups import SEND
from rmq.remoting.headers import SendMessageRequest, SendMessageRequestV2, SendMessageResponse
from rmq.remoting.protocol import Requests
from rmq.remoting.request import defer_all
from rmq.store.append import AppendResult, AppendStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from rmq.broker.config import BrokerConfig
    from rmq.broker.sending.acknowledgement import Acknowledger
    from rmq.broker.serving_parts import ServingParts
    from rmq.remoting.bodies import BatchMessage, TopicConfig
    from rmq.remoting.channel import Channel
    from rmq.remoting.dispatch import HandlerTable
    from rmq.remoting.header import Header
    from rmq.remoting.request import Request
    from rmq.store.append import BatchResult

logger = logging.getLogger(__name__)

SendRequest: TypeAlias = "Request[SendMessageRequest] | Request[SendMessageRequestV2]"

_DELAY_MARK: Final = "DELAY\x01"
_HALF_MARK: Final = "TRAN_MSG\x01"
_PUT_OK: Final = AppendStatus.PUT_OK

_STORED: Final = {
    AppendStatus.PUT_OK: ResponseCode.SUCCESS,
    AppendStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    AppendStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    AppendStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
}
BUSY_REMARK: Final = "[REJECTREQUEST]system busy, start flow control for a while"


class _Target(NamedTuple):
    """What the short way needs to know about a topic."""

    queues: int
    sys_flag: int
    ready: set[int]
    """Queues that messages can be appended to at once."""


@final
class SendHandlers:
    """Takes messages from producers."""

    def __init__(
        self,
        parts: ServingParts,
        acknowledger: Acknowledger,
        *,
        clock: Callable[[], float] = time.perf_counter,
        master_address: Callable[[], str | None] = lambda: None,
    ) -> None:
        """`master_address` returns the address of the master, if this is another known broker."""
        self._live = parts.live
        self._store = parts.store
        self._topics = parts.tables.topics
        self._groups = parts.tables.groups
        self._send_topics = SendTopics(parts.tables.topics, parts.tables.creation)
        self.new_queues: QueueCreation[tuple[SendRequest, PreparedSend]] = QueueCreation(
            parts.store, self._put_waiting, self._refuse_waiting
        )
        self.large_batches = LargeBatches()
        self._acknowledger = acknowledger
        self._stats = parts.stats
        self._store_stats = parts.stats.store
        self._send_stats = parts.stats.sends
        self._started = 0.0
        """When the sends that are handled now were begun with."""
        self._now_ms = parts.origin.now_ms
        self._clock = clock
        self._master_address = master_address
        self._id_prefix = parts.origin.store_host.hex().upper()
        self._targets: dict[str, _Target] = {}
        self._targets_at = -1
        self._busy_until = 0.0
        self._adopt(parts.live.current)
        parts.live.subscribe(lambda _, new: self._adopt(new))

    def add_to(self, table: HandlerTable) -> None:
        table.add_batch(Requests.SEND_MESSAGE_V2, self._send, group=SEND)
        table.add_batch(Requests.SEND_MESSAGE, self._send, group=SEND)
        table.add_batch(Requests.SEND_BATCH_MESSAGE, self._send, group=SEND)

    def _adopt(self, config: BrokerConfig) -> None:
        """Compute what only changes with the settings."""
        self._cluster_pair = inbound.cluster_pair(config.cluster_name)
        self._preparation = SendPreparation(config, config.store, self._groups.find)
        self._error_header = send_checks.error_header(config)
        self._trace_on = config.trace_on
        self._region = config.region_id
        self._busy_s = config.page_cache_busy_timeout_ms / 1000
        self._is_slave = config.role is BrokerRole.SLAVE
        self._has_short_way = self._is_open(config) and (
            config.start_accept_send_ms <= self._now_ms()
        )
        self._targets_at = -1

    def _is_open(self, config: BrokerConfig) -> bool:
        """Tell whether no send has to pass more checks than the others, so that most can be short.

        The time from which sends are taken is left out.
        """
        return bool(config.permission & PERM_WRITE) and not self._is_slave

    # --- all sends read together -------------------------------------------------------------

    def _send(self, requests: Sequence[SendRequest]) -> Sequence[Header | None] | None:
        started = self._started = self._clock()
        if started < self._busy_until:
            self._send_stats.busy += len(requests)
            for request in requests:
                request.refuse(ResponseCode.SYSTEM_BUSY, BUSY_REMARK)
            return None
        topics = self._topics
        changes = topics.changes + self._store.queue_deletions
        if self._targets_at != changes:
            self._targets_at = changes
            self._targets.clear()
        targets = self._targets
        channel: Channel | None = None
        born_host = b""
        cluster_pair = self._cluster_pair
        messages: list[NewMessage] = []
        taken: list[SendRequest] = []
        for request in requests:
            header = request.header
            topic = header.topic
            properties = header.properties
            target = targets.get(topic)
            if target is None:
                target = self._target_of(topic)
            queue_id = header.queue_id
            if (
                target is None
                or header.batch
                or (queue_id not in target.ready and not self._is_ready(topic, target, queue_id))
                or (
                    properties is not None
                    and (_DELAY_MARK in properties or _HALF_MARK in properties)
                )
            ):
                # Order within the connection is kept: what came before is stored before.
                if messages:
                    self._put_plain(taken, messages)
                    messages, taken = [], []
                self._send_with_care(request)
                continue
            if request.channel is not channel:
                channel = request.channel
                born_host = _born_host(channel)
            taken.append(request)
            messages.append(
                NewMessage(
                    topic,
                    queue_id,
                    request.command.body or b"",
                    inbound.stored_properties(properties, cluster_pair),
                    header.flag,
                    header.sys_flag | target.sys_flag,
                    header.born_timestamp,
                    born_host,
                    header.reconsume_times or 0,
                )
            )
        if messages:
            self._put_plain(taken, messages)
        self._notice_duration(self._clock() - started, len(requests))
        return None

    def _put_plain(self, requests: list[SendRequest], messages: list[NewMessage]) -> None:
        """Append messages that have nothing special, and answer them."""
        results = self._store.append(messages)
        took_s = self._clock() - self._started
        prefix, trace_on, region = self._id_prefix, self._trace_on, self._region
        headers: list[Header | None] = []
        counts: dict[tuple[str, int], list[int]] = {}
        is_immediate = self._acknowledger.is_immediate
        by_bits = self._send_stats.sizes.by_bits
        waiting: list[tuple[SendRequest, Header]] = []
        end_offset = PhysicalOffset(0)
        for request, message, result in zip(requests, messages, results, strict=True):
            if result.status is not _PUT_OK:
                self._answer_failure(request, result)
                headers.append(None)
                continue
            answer = SendMessageResponse(
                msg_id=f"{prefix}{result.physical_offset:016X}",
                queue_id=message.queue_id,
                queue_offset=result.queue_offset,
                trace_on=trace_on,
                msg_region=region,
            )
            key = (message.topic, message.queue_id)
            count = counts.get(key)
            size = result.size
            if count is None:
                counts[key] = [1, size]
            else:
                count[0] += 1
                count[1] += size
            by_bits[(size - 1).bit_length()] += 1
            if is_immediate or not inbound.waits_until_safe(request.header.properties):
                headers.append(answer)
            else:
                headers.append(None)
                waiting.append((request, answer))
                end_offset = result.physical_offset + size
        stored = self._count(counts)
        if stored:
            self._send_stats.appended(took_s, stored, len(waiting))
        if len(waiting) < len(requests):
            reply_all(requests, headers)
        if waiting:
            self._answer_when_safe(waiting, end_offset)

    def _target_of(self, topic: str) -> _Target | None:
        """Return what is to be known of a topic that needs no more checks, None for others."""
        if not self._has_short_way or topic.startswith(RETRY_PREFIX):
            return None
        config = self._send_topics.ready(topic)
        if config is None or not send_checks.takes_sends(topic):
            return None
        target = _Target(send_checks.queues_of(config), tag_flag(config), set())
        self._targets[topic] = target
        return target

    def _is_ready(self, topic: str, target: _Target, queue_id: int) -> bool:
        """Tell whether a queue is one that messages can be appended to at once."""
        if not 0 <= queue_id < target.queues or not self.new_queues.is_ready(topic, queue_id):
            return False
        target.ready.add(queue_id)
        return True

    # --- one send at a time, with all checks -------------------------------------------------

    def _send_with_care(self, request: SendRequest) -> None:
        """Check a send thoroughly, store it and answer it, now or later."""
        header, config = request.header, self._live.current
        try:
            known = self._topics.get(header.topic)
            send_checks.check_send(header.topic, known, config, self._now_ms())
            self._has_short_way = self._is_open(config)
            topic = self._send_topics.ready(header.topic)
            if topic is None:
                self._send_topics.create_on_send(
                    request,
                    header,
                    lambda: self._send_after_creation(request),
                    lambda why: self._refuse(request, why),
                )
                return
            self._prepare_and_put(request, topic)
        except RefusedError as exc:
            self._refuse(request, exc)

    def _send_after_creation(self, request: SendRequest) -> None:
        """Go on with a send whose topics were to be created; raise `RefusedError`."""
        topic = self._topics.get(request.header.topic)
        if topic is None:
            raise send_checks.no_such_topic(request.header.topic)
        self._prepare_and_put(request, topic)

    def _prepare_and_put(
        self,
        request: SendRequest,
        topic: TopicConfig,
        entries: Sequence[BatchMessage] | None = None,
    ) -> None:
        """Store a send and answer it, or first create the dead-letter topic it has to go to, or
        read its messages, if they are many.
        """
        channel, command = request.channel, request.command
        header, body = request.header, command.body
        if header.batch and entries is None and body is not None and len(body) > LARGE_BYTES:
            self._preparation.batch_properties(header, body)
            request.defer()
            # Its connection is read no further until it is stored.
            channel.pause()
            self.large_batches.submit(self._read_and_put(request))
            return
        received = ReceivedSend(
            header, body, command.version, channel.peer, _born_host(channel), entries
        )
        prepared = self._preparation.prepare(received, topic)
        rests_in = prepared.message.topic
        if prepared.is_dead_letter and self._send_topics.ready(rests_in) is None:
            self._send_topics.create_for_group(
                request,
                rests_in,
                lambda: self._send_after_creation(request),
                lambda why: self._refuse(request, why),
            )
            return
        self._put_prepared(request, prepared)

    def _read_and_put(self, request: SendRequest) -> Generator[None, None, None]:
        """Read a large batch step by step, then store it. Never leaves it unanswered."""
        try:
            entries = yield from decode_batch_in_steps(request.command.body, MESSAGES_AT_ONCE)
            yield
            topic = self._topics.get(request.header.topic)
            if topic is None:
                # It was deleted meanwhile.
                raise send_checks.no_such_topic(request.header.topic)
            started = self._clock()
            self._prepare_and_put(request, topic, entries)
            self._notice_duration(self._clock() - started, 1)
        except BatchError as exc:
            self._refuse(request, refused_batch(exc))
        except RefusedError as exc:
            self._refuse(request, exc)
        except Exception as exc:
            if not request.answered:
                request.refuse(ResponseCode.SYSTEM_ERROR, f"{type(exc).__name__}: {exc}")
            raise
        finally:
            request.channel.resume()

    def _put_prepared(self, request: SendRequest, prepared: PreparedSend) -> None:
        if self._is_slave:
            self._answer_failure(request, send_checks.SLAVE)
            return
        message = prepared.message
        if not self.new_queues.is_ready(message.topic, message.queue_id):
            request.defer()
            self.new_queues.submit(message.topic, message.queue_id, (request, prepared))
            return
        self._put_special(request, prepared)

    def _put_waiting(self, sends: Sequence[tuple[SendRequest, PreparedSend]]) -> None:
        """Store sends that waited for the file of their queue. Never leaves one unanswered."""
        started = self._started = self._clock()
        plain: list[SendRequest] = []
        messages: list[NewMessage] = []
        try:
            for request, prepared in sends:
                topic, message = request.header.topic, prepared.message
                if self._is_slave:
                    self._answer_failure(request, send_checks.SLAVE)
                elif self._topics.get(topic) is None:
                    # It was deleted meanwhile.
                    self._refuse(request, send_checks.no_such_topic(topic))
                elif prepared.entries is None and message.topic == topic:
                    plain.append(request)
                    messages.append(message)
                else:
                    if messages:
                        self._put_plain(plain, messages)
                        plain, messages = [], []
                    self._put_special(request, prepared)
            if messages:
                self._put_plain(plain, messages)
        except Exception as exc:
            for request, _ in sends:
                if not request.answered:
                    request.refuse(ResponseCode.SYSTEM_ERROR, f"{type(exc).__name__}: {exc}")
            raise
        self._notice_duration(self._clock() - started, len(sends))

    def _refuse_waiting(self, sends: Sequence[tuple[SendRequest, PreparedSend]], why: str) -> None:
        """Answer sends to a queue whose file cannot be made."""
        failed = AppendResult(AppendStatus.CREATE_MAPPED_FILE_FAILED, reason=why)
        for request, _ in sends:
            self._answer_failure(request, failed)

    def _put_special(self, request: SendRequest, prepared: PreparedSend) -> None:
        message, entries = prepared.message, prepared.entries
        if entries is None:
            (one,) = self._store.append([message])
            if one.status is _PUT_OK:
                ids = f"{self._id_prefix}{one.physical_offset:016X}"
                self._answer_special(request, prepared, one, ids)
            else:
                self._answer_failure(request, one)
            return
        result = self._store.append_entries(message, entries)
        if result.status is not _PUT_OK:
            self._answer_failure(request, result)
        elif len(entries) <= MESSAGES_AT_ONCE:
            self._answer_batch(request, prepared, result)
        else:
            request.defer()
            self.large_batches.submit(self._answer_large(request, prepared, result))

    def _answer_large(
        self, request: SendRequest, prepared: PreparedSend, result: BatchResult
    ) -> Generator[None, None, None]:
        yield
        self._answer_batch(request, prepared, result)

    def _answer_batch(
        self, request: SendRequest, prepared: PreparedSend, result: BatchResult
    ) -> None:
        prefix = self._id_prefix
        ids = ",".join([f"{prefix}{offset:016X}" for offset in result.physical_offsets])
        self._answer_special(request, prepared, result, ids)

    def _answer_special(
        self,
        request: SendRequest,
        prepared: PreparedSend,
        result: AppendResult | BatchResult,
        ids: str,
    ) -> None:
        """Answer a send that was stored, when it is as safe as it is to be."""
        message, entries = prepared.message, prepared.entries
        answer = SendMessageResponse(
            msg_id=ids,
            queue_id=prepared.queue_id,
            queue_offset=result.queue_offset,
            trace_on=self._trace_on,
            msg_region=self._region,
        )
        count = 1 if entries is None else len(entries)
        key = (message.topic, message.queue_id)
        self._count({key: [count, result.size]}, is_batch=True)
        if prepared.is_dead_letter:
            origin = decode_properties(message.properties).get(
                inbound.RETRY_TOPIC, request.header.topic
            )
            self._stats.dead_letter(message.topic.removeprefix(DLQ_PREFIX), origin)
        is_safe = self._acknowledger.is_immediate or not prepared.waits
        self._send_stats.appended(self._clock() - self._started, 1, 0 if is_safe else 1)
        self._send_stats.sizes.by_bits[(result.size // count - 1).bit_length()] += count
        if is_safe:
            request.reply(answer)
        else:
            self._answer_when_safe([(request, answer)], result.end_offset)

    # --- answers -----------------------------------------------------------------------------

    def _answer_when_safe(
        self, waiting: list[tuple[SendRequest, Header]], end_offset: PhysicalOffset
    ) -> None:
        """Answer sends when the log is safe up to `end_offset`."""
        started, stats, clock = self._started, self._send_stats, self._clock
        requests = [request for request, _ in waiting]
        headers = [header for _, header in waiting]
        for request in requests:
            # It is stored: while the answer waits, it need not be held.
            request.command.body = None
        defer_all(requests)

        def answer(status: AppendStatus) -> None:
            stats.ended(status, clock() - started, len(requests))
            if status is _PUT_OK:
                reply_all(requests, headers)
                return
            code = _STORED[status]
            for request, header in zip(requests, headers, strict=True):
                request.reply(header, code=code)

        self._acknowledger.when_safe(end_offset, answer, len(requests))

    def _answer_failure(self, request: SendRequest, result: AppendResult | BatchResult) -> None:
        self._store_stats.put_failed()
        body_max = self._live.current.store.message_bytes_max
        master: str | None = None
        why: str | None = None
        if result.status is AppendStatus.SERVICE_NOT_AVAILABLE:
            master = self._master_address()
            refusal = self._store.refusal
            why = NOT_MASTER if self._is_slave or refusal is None else refusal.name.lower()
        self._send_stats.failed(result.status, why)
        extra = None if master is None else {MASTER_FIELD: master}
        self._refuse(request, send_checks.not_stored(result, body_max, master), extra)

    def _refuse(
        self, request: SendRequest, why: RefusedError, extra: Mapping[str, str] | None = None
    ) -> None:
        request.reply(self._error_header, code=why.code, remark=why.remark, extra=extra)

    def _count(self, counts: dict[tuple[str, int], list[int]], *, is_batch: bool = False) -> int:
        """Count stored messages, by topic and queue; a batch is one send. Return how many."""
        stats = self._stats
        total = 0
        size_total = 0
        for (topic, queue_id), (count, size) in counts.items():
            times = 1 if is_batch else count
            stats.put(topic, queue_id, count, size, times)
            total += count
            size_total += size
        if total:
            stats.broker_put(total)
            self._store_stats.put(total, size_total)
            self._send_stats.sizes.sum += size_total
        return total

    def _notice_duration(self, seconds: float, count: int) -> None:
        """Note how long the store took; refuse sends for a while when it was far too long."""
        self._store_stats.put_took(int(seconds * 1000), count)
        if seconds > self._busy_s:
            self._busy_until = self._clock() + min(seconds, self._busy_s)
            logger.warning(
                "storing %d messages took %.1f s; sends are refused for %.1f s so that the disk"
                " can catch up",
                count,
                seconds,
                min(seconds, self._busy_s),
            )


def _born_host(channel: Channel) -> bytes:
    """Return the address of a producer as records hold it."""
    known = channel.state.get("born_host")
    if isinstance(known, bytes):
        return known
    packed = pack_peer(channel.peer)
    channel.state["born_host"] = packed
    return packed
