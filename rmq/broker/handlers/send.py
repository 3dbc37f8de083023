"""Sends: SEND_MESSAGE (10), SEND_MESSAGE_V2 (310) and SEND_BATCH_MESSAGE (320).

All sends that one read of a connection brought are checked, appended together and answered
together. Nothing is awaited on this way: a send that must wait (for the disk, or for its topic to
be created) is deferred and answered by whoever completes it. Order of checks, codes and remarks
are those of RocketMQ 4.9.8 SendMessageProcessor.

Two things differ from it. A message that a client sent to its retry topic once too often goes to
the dead-letter topic at once; 4.9.8 means to, but loses the cleared delay level. And a new topic
is on disk before its first message is taken.
"""

from __future__ import annotations

import logging
import random
import time
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, final

from rmq.broker import inbound
from rmq.broker.config import BrokerRole
from rmq.errors import RefusedError
from rmq.model import flags
from rmq.model.names import RETRY_PREFIX, dlq_topic
from rmq.model.properties import PAIR, decode_properties, encode_properties
from rmq.remoting.bodies import BatchError, TopicFilterType, decode_batch
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.dispatch import reply_all
from rmq.remoting.groups import SEND
from rmq.remoting.headers import (
    SendMessageErrorResponse,
    SendMessageRequest,
    SendMessageRequestV2,
    SendMessageResponse,
)
from rmq.store.append import AppendResult, AppendStatus
from rmq.store.record import NewMessage, pack_host

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rmq.broker.acknowledgement import Acknowledger
    from rmq.broker.config import BrokerConfig, LiveConfig
    from rmq.broker.groups import GroupTable
    from rmq.broker.stats import BrokerStats
    from rmq.broker.store_stats import StoreStats
    from rmq.broker.topic_creation import TopicCreation
    from rmq.broker.topics import TopicTable
    from rmq.remoting.bodies import TopicConfig
    from rmq.remoting.channel import Channel
    from rmq.remoting.dispatch import HandlerTable
    from rmq.remoting.header import Header
    from rmq.remoting.request import Request
    from rmq.store.append import BatchResult
    from rmq.store.store import MessageStore

logger = logging.getLogger(__name__)

SendRequest: TypeAlias = "Request[SendMessageRequest] | Request[SendMessageRequestV2]"

_PERM_READ_WRITE: Final = 6
_PERM_WRITE: Final = 2
_DELAY_MARK: Final = "DELAY\x01"
_HALF_MARK: Final = "TRAN_MSG\x01"
_VERSION_3_4_9: Final = 121
"""Clients of this version and later say themselves how often a message may come back."""
_PUT_OK: Final = AppendStatus.PUT_OK

_STORED: Final = {
    AppendStatus.PUT_OK: ResponseCode.SUCCESS,
    AppendStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    AppendStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    AppendStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
}
BUSY_REMARK: Final = "[REJECTREQUEST]system busy, start flow control for a while"
SEE_FAQ: Final = "\nSee http://rocketmq.apache.org/docs/faq/ for further details."
SLAVE: Final = AppendResult(
    AppendStatus.SERVICE_NOT_AVAILABLE, reason="this broker is a slave, only its master takes them"
)
"""What becomes of a message that is sent to a slave."""


class _Target(NamedTuple):
    """What the way without detours needs to know of a topic."""

    queues: int
    sys_flag: int


class _Prepared(NamedTuple):
    """A checked send."""

    message: NewMessage
    """The message, or what all messages of a batch share."""
    queue_id: int
    """What the producer is told; the message itself may rest elsewhere."""
    waits: bool
    entries: Sequence[tuple[int, bytes, bytes]] | None = None
    """Of a batch: flag, body and properties of each message."""


class _TopicMissing(Exception):
    """A topic other than the one sent to has to be created first."""

    def __init__(self, topic: str) -> None:
        super().__init__(topic)
        self.topic = topic


@final
class SendHandlers:
    """Takes messages from producers."""

    def __init__(
        self,
        live: LiveConfig,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        creation: TopicCreation,
        acknowledger: Acknowledger,
        stats: BrokerStats,
        store_stats: StoreStats,
        *,
        store_host: bytes,
        now_ms: Callable[[], int],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._live = live
        self._store = store
        self._topics = topics
        self._groups = groups
        self._creation = creation
        self._acknowledger = acknowledger
        self._stats = stats
        self._store_stats = store_stats
        self._now_ms = now_ms
        self._clock = clock
        self._id_prefix = store_host.hex().upper()
        self._targets: dict[str, _Target] = {}
        self._targets_at = -1
        self._busy_until = 0.0
        self._adopt(live.current)
        live.subscribe(lambda _, new: self._adopt(new))

    def add_to(self, table: HandlerTable) -> None:
        table.add_batch(
            RequestCode.SEND_MESSAGE_V2, self._send, header=SendMessageRequestV2, group=SEND
        )
        table.add_batch(RequestCode.SEND_MESSAGE, self._send, header=SendMessageRequest, group=SEND)
        table.add_batch(
            RequestCode.SEND_BATCH_MESSAGE, self._send, header=SendMessageRequestV2, group=SEND
        )

    def _adopt(self, config: BrokerConfig) -> None:
        """Work out what only changes with the settings."""
        self._cluster_pair = inbound.cluster_pair(config.cluster_name)
        self._error_header = SendMessageErrorResponse(
            trace_on=config.trace_on, msg_region=config.region_id
        )
        self._trace_on = config.trace_on
        self._region = config.region_id
        self._level_max = len(config.store.delay_levels_ms)
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
        return bool(config.permission & _PERM_WRITE) and not self._is_slave

    # --- all sends of one read ---------------------------------------------------------------

    def _send(self, requests: Sequence[SendRequest]) -> Sequence[Header | None] | None:
        started = self._clock()
        if started < self._busy_until:
            for request in requests:
                request.refuse(ResponseCode.SYSTEM_BUSY, BUSY_REMARK)
            return None
        topics = self._topics
        if self._targets_at != topics.changes:
            self._targets_at = topics.changes
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
                or not 0 <= queue_id < target.queues
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
        prefix, trace_on, region = self._id_prefix, self._trace_on, self._region
        headers: list[Header | None] = []
        counts: dict[tuple[str, int], list[int]] = {}
        is_immediate = self._acknowledger.is_immediate
        waiting: list[tuple[SendRequest, Header]] = []
        end_offset = 0
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
            if count is None:
                counts[key] = [1, result.size]
            else:
                count[0] += 1
                count[1] += result.size
            if is_immediate or not inbound.waits_for_replicas(request.header.properties):
                headers.append(answer)
            else:
                headers.append(None)
                waiting.append((request, answer))
                end_offset = result.physical_offset + result.size
        self._count(counts)
        reply_all(requests, headers)
        if waiting:
            self._answer_when_safe(waiting, end_offset)

    def _target_of(self, topic: str) -> _Target | None:
        """Return what is to be known of a topic that needs no more checks, None for others."""
        if not self._has_short_way or topic.startswith(RETRY_PREFIX):
            return None
        config = self._topics.get(topic)
        if (
            config is None
            or self._creation.is_under_way(topic)
            or self._topics.is_send_forbidden(topic)
            or self._topics.validate_topic(topic) is not None
        ):
            return None
        target = _Target(max(config.write_queue_nums, config.read_queue_nums), _tag_flag(config))
        self._targets[topic] = target
        return target

    # --- one send at a time, with all checks -------------------------------------------------

    def _send_with_care(self, request: SendRequest) -> None:
        """Check a send thoroughly, store it and answer it, now or later."""
        try:
            config = self._check(request)
            if config is None:
                request.defer()
                self._create_topic(request)
                return
            self._put_prepared(request, self._prepare(request, config))
        except _TopicMissing as missing:
            request.defer()
            self._create_dead_letter_topic(request, missing.topic)
        except RefusedError as exc:
            request.reply(self._error_header, code=exc.code, remark=exc.remark)

    def _send_after_creation(self, request: SendRequest, error: Exception | None) -> None:
        """Go on with a send whose topic was to be created."""
        try:
            if error is not None:
                raise RefusedError(ResponseCode.SYSTEM_ERROR, str(error))
            topic = self._topics.get(request.header.topic)
            if topic is None:
                raise _no_topic(request.header.topic)
            _check_queue_id(request, topic)
            self._put_prepared(request, self._prepare(request, topic))
        except _TopicMissing as missing:
            self._create_dead_letter_topic(request, missing.topic)
        except RefusedError as exc:
            request.reply(self._error_header, code=exc.code, remark=exc.remark)
        except Exception as exc:
            # Who sent it waits; nobody else would say that it is in vain.
            if not request.answered:
                request.refuse(ResponseCode.SYSTEM_ERROR, f"{type(exc).__name__}: {exc}")
            raise

    def _create_dead_letter_topic(self, request: SendRequest, topic: str) -> None:
        self._creation.submit(
            topic,
            lambda: self._topics.create_on_send_back(topic, 1, _PERM_READ_WRITE, 0),
            lambda error: self._send_after_creation(request, error),
        )

    def _check(self, request: SendRequest) -> TopicConfig | None:
        """Return the topic, None if it has to be created first; raise `RefusedError`."""
        header, config = request.header, self._live.current
        if self._now_ms() < config.start_accept_send_ms:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"broker unable to service, until {_human_time(config.start_accept_send_ms)}",
            )
        topic = self._topics.get(header.topic)
        if not config.permission & _PERM_WRITE and topic is not None and topic.order:
            raise RefusedError(
                ResponseCode.NO_PERMISSION,
                f"the broker[{config.broker_ip1}] sending message is forbidden",
            )
        reason = self._topics.validate_topic(header.topic)
        if reason is not None:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, reason)
        if self._topics.is_send_forbidden(header.topic):
            raise RefusedError(
                ResponseCode.NO_PERMISSION,
                f"Sending message to topic [{header.topic}] is forbidden.",
            )
        if topic is None or self._creation.is_under_way(header.topic):
            return None
        _check_queue_id(request, topic)
        self._has_short_way = self._is_open(config)
        return topic

    def _create_topic(self, request: SendRequest) -> None:
        header = request.header
        is_retry = header.topic.startswith(RETRY_PREFIX)
        sys_flag = 0
        if header.unit_mode:
            sys_flag = 2 if is_retry else 1

        def create() -> TopicConfig | None:
            created = self._topics.create_on_send(
                header.topic, header.default_topic, header.default_topic_queue_nums, sys_flag
            )
            if created is None and is_retry:
                created = self._topics.create_on_send_back(
                    header.topic, 1, _PERM_READ_WRITE, sys_flag
                )
            return created

        logger.info("topic %s does not exist, wanted by %s", header.topic, request.channel.peer)
        self._creation.submit(
            header.topic, create, lambda error: self._send_after_creation(request, error)
        )

    def _prepare(self, request: SendRequest, topic: TopicConfig) -> _Prepared:
        header = request.header
        queue_id = header.queue_id
        if queue_id < 0:
            if topic.write_queue_nums < 1:
                raise _illegal_queue(request, topic)
            queue_id = random.randrange(topic.write_queue_nums)
        if header.batch:
            return self._prepare_batch(request, topic, queue_id)
        received = (header.properties or "").encode("utf-8", "replace")
        message = NewMessage(
            header.topic,
            queue_id,
            request.command.body or b"",
            inbound.stored_properties(header.properties, self._cluster_pair),
            header.flag,
            header.sys_flag | _tag_flag(topic),
            header.born_timestamp,
            _born_host(request.channel),
            header.reconsume_times or 0,
        )
        waits = inbound.waits_for_replicas(header.properties)
        pairs = decode_properties(received)
        if header.topic.startswith(RETRY_PREFIX):
            dead = self._dead_letter(request, message, pairs)
            if dead is not None:
                return _Prepared(dead, queue_id, waits)
        with_cluster = inbound.joined_properties(received, self._cluster_pair)
        # Clients before 4.6.1 leave the mark on messages that they send again themselves.
        is_retry = message.reconsume_times > 0 and _level(received) > 0
        if pairs.get("TRAN_MSG", "").lower() == "true" and not is_retry:
            config = self._live.current
            if config.reject_transaction_messages:
                raise RefusedError(
                    ResponseCode.NO_PERMISSION,
                    f"the broker[{config.broker_ip1}] sending transaction message is forbidden",
                )
            return _Prepared(inbound.half(message, with_cluster), queue_id, waits)
        level = _level(received)
        if level > 0 and inbound.is_delayable(message.sys_flag):
            message = inbound.parked(message, level, self._level_max, with_cluster)
        return _Prepared(message, queue_id, waits)

    def _dead_letter(
        self, request: SendRequest, message: NewMessage, pairs: dict[str, str]
    ) -> NewMessage | None:
        """Return a message that came back too often as one for the dead-letter topic."""
        header = request.header
        group_name = header.topic.removeprefix(RETRY_PREFIX)
        group = self._groups.find(group_name)
        if group is None:
            raise RefusedError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group not exist, {group_name} {SEE_FAQ}",
            )
        times_max = group.retry_max_times
        if request.command.version >= _VERSION_3_4_9 and header.max_reconsume_times is not None:
            times_max = header.max_reconsume_times
        if message.reconsume_times < times_max:
            return None
        dead_topic = dlq_topic(group_name)
        if self._topics.get(dead_topic) is None or self._creation.is_under_way(dead_topic):
            raise _TopicMissing(dead_topic)
        kept = {name: value for name, value in pairs.items() if name != inbound.WAIT}
        kept["DELAY"] = "0"
        kept[inbound.CLUSTER] = self._live.current.cluster_name
        return NewMessage(
            dead_topic,
            0,
            message.body,
            encode_properties(kept),
            message.flag,
            message.sys_flag,
            message.born_ms,
            message.born_host,
            message.reconsume_times,
        )

    def _prepare_batch(self, request: SendRequest, topic: TopicConfig, queue_id: int) -> _Prepared:
        header, body = request.header, request.command.body
        body_max = self._live.current.store.message_bytes_max
        outer = (header.properties or "").encode("utf-8", "replace").rstrip(PAIR)
        if header.sys_flag & flags.TRANSACTION_MASK or _level(outer) > 0:
            raise _illegal(body_max)
        if body is not None and len(body) > body_max:
            raise _illegal(body_max)
        try:
            entries = decode_batch(body)
        except BatchError as exc:
            raise RefusedError(ResponseCode.MESSAGE_ILLEGAL, str(exc)) from None
        shared = NewMessage(
            header.topic,
            queue_id,
            b"",
            inbound.joined_properties(outer, self._cluster_pair),
            0,
            header.sys_flag | _tag_flag(topic),
            header.born_timestamp,
            _born_host(request.channel),
            header.reconsume_times or 0,
        )
        waits = inbound.waits_for_replicas(header.properties)
        return _Prepared(shared, queue_id, waits, entries)

    def _put_prepared(self, request: SendRequest, prepared: _Prepared) -> None:
        if self._is_slave:
            self._answer_failure(request, SLAVE)
            return
        message, entries = prepared.message, prepared.entries
        prefix = self._id_prefix
        result: AppendResult | BatchResult
        if entries is None:
            (result,) = self._store.append([message])
            ids = f"{prefix}{result.physical_offset:016X}"
        else:
            result = self._store.append_entries(message, entries)
            ids = ",".join([f"{prefix}{offset:016X}" for offset in result.physical_offsets])
        if result.status is not _PUT_OK:
            self._answer_failure(request, result)
            return
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
        if self._acknowledger.is_immediate or not prepared.waits:
            request.reply(answer)
        else:
            self._answer_when_safe([(request, answer)], result.end_offset)

    # --- answers -----------------------------------------------------------------------------

    def _answer_when_safe(self, waiting: list[tuple[SendRequest, Header]], end_offset: int) -> None:
        """Answer sends when the log is safe up to `end_offset`."""
        requests = [request for request, _ in waiting]
        headers = [header for _, header in waiting]
        for request in requests:
            request.defer()

        def answer(status: AppendStatus) -> None:
            if status is _PUT_OK:
                reply_all(requests, headers)
                return
            code = _STORED[status]
            for request, header in zip(requests, headers, strict=True):
                request.reply(header, code=code)

        self._acknowledger.when_safe(end_offset, answer)

    def _answer_failure(self, request: SendRequest, result: AppendResult | BatchResult) -> None:
        code, remark = self._explain(result)
        self._store_stats.put_failed()
        request.reply(self._error_header, code=code, remark=remark)

    def _explain(self, result: AppendResult | BatchResult) -> tuple[int, str]:
        """Return the code and the remark for a message that was not stored."""
        status = result.status
        if status is AppendStatus.CREATE_MAPPED_FILE_FAILED:
            return (
                ResponseCode.SYSTEM_ERROR,
                f"create mapped file failed, server is busy or broken. {result.reason}",
            )
        if status in (AppendStatus.MESSAGE_ILLEGAL, AppendStatus.PROPERTIES_SIZE_EXCEEDED):
            illegal = _illegal(self._live.current.store.message_bytes_max)
            return illegal.code, f"{illegal.remark} {result.reason}"
        if status is AppendStatus.SERVICE_NOT_AVAILABLE:
            return (
                ResponseCode.SERVICE_NOT_AVAILABLE,
                "service not available now. It may be caused by one of the following reasons:"
                " the broker's disk is full, messages are put to the slave, message store has been"
                f" shut down, etc. Here: {result.reason}",
            )
        if status is AppendStatus.OS_PAGE_CACHE_BUSY:
            return (
                ResponseCode.SYSTEM_ERROR,
                "[PC_SYNCHRONIZED]broker busy, start flow control for a while",
            )
        return ResponseCode.SYSTEM_ERROR, f"{status.value} {result.reason}".rstrip()

    def _count(self, counts: dict[tuple[str, int], list[int]], *, is_batch: bool = False) -> None:
        """Count stored messages, by topic and queue; a batch is one send."""
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
    host, _, port = channel.peer.rpartition(":")
    try:
        packed = pack_host(host.strip("[]").partition("%")[0], int(port))
    except ValueError:
        # A connection within the process has no address.
        packed = pack_host("127.0.0.1", 0)
    channel.state["born_host"] = packed
    return packed


def _tag_flag(topic: TopicConfig) -> int:
    is_multi = topic.topic_filter_type is TopicFilterType.MULTI_TAG
    return flags.MULTI_TAGS if is_multi else 0


def _check_queue_id(request: SendRequest, topic: TopicConfig) -> None:
    if request.header.queue_id >= max(topic.write_queue_nums, topic.read_queue_nums):
        raise _illegal_queue(request, topic)


def _illegal_queue(request: SendRequest, topic: TopicConfig) -> RefusedError:
    return RefusedError(
        ResponseCode.SYSTEM_ERROR,
        f"request queueId[{request.header.queue_id}] is illegal, {_describe(topic)}"
        f" Producer: {request.channel.peer}",
    )


def _describe(topic: TopicConfig) -> str:
    """Return a topic in the words of Java's TopicConfig."""
    perm = "".join(
        letter if topic.perm & bit else "-" for letter, bit in (("R", 4), ("W", 2), ("X", 1))
    )
    filter_type = topic.topic_filter_type
    return (
        f"TopicConfig [topicName={topic.topic_name}, readQueueNums={topic.read_queue_nums},"
        f" writeQueueNums={topic.write_queue_nums}, perm={perm},"
        f" topicFilterType={filter_type.value if filter_type else 'null'},"
        f" topicSysFlag={topic.topic_sys_flag}, order={'true' if topic.order else 'false'}]"
    )


def _level(properties: bytes) -> int:
    try:
        return inbound.delay_level(properties)
    except ValueError as exc:
        raise RefusedError(ResponseCode.SYSTEM_ERROR, f"DELAY is no number: {exc}") from None


def _no_topic(topic: str) -> RefusedError:
    return RefusedError(
        ResponseCode.TOPIC_NOT_EXIST,
        f"topic[{topic}] not exist, apply first please!{SEE_FAQ}",
    )


def _illegal(body_max: int) -> RefusedError:
    return RefusedError(
        ResponseCode.MESSAGE_ILLEGAL,
        "the message is illegal, maybe msg body or properties length not matched."
        f" msg body length limit {body_max}B, msg properties length limit 32KB.",
    )


def _human_time(time_ms: int) -> str:
    parts = time.localtime(time_ms / 1000)
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', parts)},{time_ms % 1000:03d}"
