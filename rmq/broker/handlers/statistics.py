"""Statistics of a broker, its topics and its groups: requests 28, 202, 208, 300, 303, 315 and 317.

What is in an answer, codes and remarks are those of RocketMQ 4.9.8 AdminBrokerProcessor. Two things
differ. A group that has not begun to read a queue (303) is behind by the age of the first message
there is, and by nothing if there is none; 4.9.8 subtracts "unknown" from the clock then. And queues
are gone through some at a time, with other requests in between: a topic may have thousands.
"""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar, final

import trio

from rmq.broker.stats.runtime_info import Load, runtime_info, store_facts
from rmq.errors import RefusedError
from rmq.model.limits import INT64_MAX
from rmq.model.offsets import QueueOffset
from rmq.model.queues import MessageQueue
from rmq.remoting.bodies.groups import GroupList
from rmq.remoting.bodies.kv import KVTable
from rmq.remoting.bodies.stats import (
    ConsumeStats,
    ConsumeStatsList,
    OffsetWrapper,
    QueryConsumeTimeSpanBody,
    QueueTimeSpan,
    TopicOffset,
    TopicStatsTable,
)
from rmq.remoting.codes import ResponseCode
from rmq.remoting.groups import PULL, QUERY, SEND
from rmq.remoting.layout import FRAME_BYTES_MAX
from rmq.remoting.protocol import Requests
from rmq.steps import in_steps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from rmq.broker.clients.registry import ClientRegistry
    from rmq.broker.serving_parts import ServingParts
    from rmq.remoting.bodies.base import Body
    from rmq.remoting.bodies.topics import TopicConfig
    from rmq.remoting.dispatch import HandlerTable
    from rmq.remoting.groups import GroupStatistics
    from rmq.remoting.header import EmptyHeader
    from rmq.remoting.headers import (
        GetBrokerConsumeStatsRequest,
        GetConsumeStatsRequest,
        GetTopicStatsInfoRequest,
        QueryConsumeTimeSpanRequest,
        QueryTopicConsumeByWhoRequest,
        ViewBrokerStatsDataRequest,
    )
    from rmq.remoting.request import Request

END_TRANSACTION_GROUP: Final = "end_transaction"
"""The name of the handler group of END_TRANSACTION, on brokers that have one for it."""

V = TypeVar("V")

QUEUES_AT_ONCE: Final = 200
"""Queues whose statistics are encoded at once; more of them are in a thread."""
QUEUES_PER_STEP: Final = 100
"""Queues that are gone through before others get their turn: about a millisecond."""
ANSWERED_QUEUES_MAX: Final = FRAME_BYTES_MAX // 100
"""Queues that an answer can hold at best."""
_THREADS: Final = 2
_LATEST_MS: Final = 253_402_214_400_000
"""The last day that a date can have in any time zone."""


class _Ends(NamedTuple):
    """Where a queue begins and ends."""

    first: int
    end: int


@final
class StatisticsHandlers:
    """Answers requests of admin tools and exporters for statistics."""

    def __init__(
        self,
        parts: ServingParts,
        clients: ClientRegistry,
        *,
        loads: Callable[[], Iterable[GroupStatistics]],
        delay_progress: Callable[[], Mapping[int, tuple[int, int]]],
    ) -> None:
        """`loads` gives the handler groups of all servers of the broker, `delay_progress` what is
        delivered of each delay level in use, and the end of its queue.
        """
        self._live = parts.live
        self._store = parts.store
        self._topics = parts.tables.topics
        self._groups = parts.tables.groups
        self._offsets = parts.tables.offsets
        self._clients = clients
        self._stats = parts.stats
        self._store_stats = parts.stats.store
        self._now_ms = parts.origin.now_ms
        self._loads = loads
        self._delay_progress = delay_progress
        self._limiter = trio.CapacityLimiter(_THREADS)

    def add_to(self, table: HandlerTable) -> None:
        table.add(Requests.GET_BROKER_RUNTIME_INFO, self.broker)
        table.add(Requests.VIEW_BROKER_STATS_DATA, self.statistic)
        table.add_async(Requests.GET_TOPIC_STATS_INFO, self.topic)
        table.add_async(Requests.QUERY_TOPIC_CONSUME_BY_WHO, self.groups_of_topic)
        table.add_async(Requests.GET_CONSUME_STATS, self.group)
        table.add_async(Requests.QUERY_CONSUME_TIME_SPAN, self.times)
        table.add_async(Requests.GET_BROKER_CONSUME_STATS, self.all_groups)

    # --- the broker --------------------------------------------------------------------------

    def broker(self, request: Request[EmptyHeader]) -> None:
        """28 GET_BROKER_RUNTIME_INFO."""
        config = self._live.current
        waiting: dict[str, int] = {}
        for load in self._loads():
            waiting[load.name] = waiting.get(load.name, 0) + load.waiting

        def of(group_name: str, capacity: int) -> Load:
            return Load(waiting=waiting.get(group_name, 0), capacity=capacity)

        table = runtime_info(
            stats=self._store_stats,
            store=store_facts(self._store),
            now_ms=self._now_ms(),
            send=of(SEND.name, config.send_queue_capacity),
            pull=of(PULL.name, config.pull_queue_capacity),
            query=of(QUERY.name, config.query_queue_capacity),
            end_transaction=of(END_TRANSACTION_GROUP, config.end_transaction_queue_capacity),
            delay_progress=self._delay_progress(),
            accept_sends_from_ms=config.start_accept_send_ms,
        )
        request.reply(body=KVTable(table=table).encode())

    def statistic(self, request: Request[ViewBrokerStatsDataRequest]) -> None:
        """315 VIEW_BROKER_STATS_DATA."""
        name, key = request.header.stats_name, request.header.stats_key
        data = self._stats.view(name, key)
        if data is None:
            request.reply(
                code=ResponseCode.SYSTEM_ERROR, remark=f"The stats <{name}> <{key}> not exist"
            )
        else:
            request.reply(body=data.encode())

    # --- topics ------------------------------------------------------------------------------

    async def topic(self, request: Request[GetTopicStatsInfoRequest]) -> None:
        """202 GET_TOPIC_STATS_INFO."""
        config = self._topics.get(request.header.topic)
        if config is None:
            _refuse_topic(request, request.header.topic)
            return

        def offset(queue: MessageQueue) -> TopicOffset:
            first, end = self._ends(queue)
            return TopicOffset(
                min_offset=first,
                max_offset=end,
                last_update_timestamp=self._stored_ms(queue, end - 1) if end else 0,
            )

        table = await _of_each(self._write_queues(config), offset, _Pace())
        body = TopicStatsTable(offset_table=table)
        request.reply(body=await self._encoded(body, len(table)))

    async def groups_of_topic(self, request: Request[QueryTopicConsumeByWhoRequest]) -> None:
        """300 QUERY_TOPIC_CONSUME_BY_WHO."""
        topic = request.header.topic
        stored = await in_steps(self._offsets.finding_groups(topic))
        groups = self._clients.groups_subscribing(topic) | stored
        body = GroupList(group_list=frozenset(groups))
        request.reply(body=await self._encoded(body, len(groups)))

    # --- groups ------------------------------------------------------------------------------

    async def group(self, request: Request[GetConsumeStatsRequest]) -> None:
        """208 GET_CONSUME_STATS."""
        group, topic = request.header.consumer_group, request.header.topic
        if topic and not topic.isspace():
            topics = [topic]
        else:
            topics = sorted(await in_steps(self._offsets.finding_topics(group)))
        table: dict[MessageQueue, OffsetWrapper] = {}
        tps = 0.0
        pace = _Pace()
        for name in topics:
            config = self._topics.get(name)
            if config is not None and self._may_read(group, name):
                queues = self._queues(config, config.read_queue_nums)
                table |= await _of_each(queues, partial(self._progress, group), pace)
                tps += self._stats.group_get_tps(group, name)
        body = ConsumeStats(offset_table=table, consume_tps=tps)
        request.reply(body=await self._encoded(body, len(table)))

    async def all_groups(self, request: Request[GetBrokerConsumeStatsRequest]) -> None:
        """317 GET_BROKER_CONSUME_STATS."""
        topics_of = await in_steps(self._offsets.finding_topics_by_group())
        found: list[dict[str, tuple[ConsumeStats, ...]]] = []
        behind = count = 0
        pace = _Pace()
        for group in list(self._groups.names()):
            stats: list[ConsumeStats] = []
            for topic in topics_of.get(group, ()):
                config = self._topics.get(topic)
                if (
                    config is None
                    or (request.header.is_order and not config.order)
                    or not self._may_read(group, topic)
                ):
                    continue
                table = await _of_each(
                    self._write_queues(config), partial(self._progress, group), pace
                )
                count += len(table)
                if count > ANSWERED_QUEUES_MAX:
                    raise RefusedError(
                        ResponseCode.SYSTEM_ERROR,
                        f"the groups of this broker read more than {ANSWERED_QUEUES_MAX} queues,"
                        " which no answer can hold; ask for one group at a time",
                    )
                tps = self._stats.group_get_tps(group, topic)
                stats.append(ConsumeStats(offset_table=table, consume_tps=tps))
                behind += sum(
                    progress.broker_offset - progress.consumer_offset for progress in table.values()
                )
            found.append({group: tuple(stats)})
            await pace(1)
        body = ConsumeStatsList(
            consume_stats_list=tuple(found),
            broker_addr=self._live.current.address,
            # A client can commit any offset, and many of them make more than a long holds.
            total_diff=max(-INT64_MAX, min(behind, INT64_MAX)),
        )
        request.reply(body=await self._encoded(body, count + len(found)))

    async def times(self, request: Request[QueryConsumeTimeSpanRequest]) -> None:
        """303 QUERY_CONSUME_TIME_SPAN."""
        group = request.header.group
        config = self._topics.get(request.header.topic)
        if config is None:
            _refuse_topic(request, request.header.topic)
            return
        now_ms = self._now_ms()
        spans = await _of_each(
            self._write_queues(config), lambda queue: self._span(group, queue, now_ms), _Pace()
        )
        body = QueryConsumeTimeSpanBody(consume_time_span_set=tuple(spans.values()))
        request.reply(body=await self._encoded(body, len(spans)))

    def _span(self, group: str, queue: MessageQueue, now_ms: int) -> QueueTimeSpan:
        first, end = self._ends(queue)
        first_ms = self._stored_ms(queue, first)
        last_ms = self._stored_ms(queue, end - 1)
        consumer_offset = self._offsets.query(group, queue.topic, queue.queue_id)
        consumed_ms = (
            self._stored_ms(queue, consumer_offset - 1) if consumer_offset > 0 else first_ms
        )
        next_offset = max(consumer_offset, first)
        next_ms = self._stored_ms(queue, next_offset) if next_offset < end else -1
        return QueueTimeSpan(
            message_queue=queue,
            min_time_stamp=first_ms,
            max_time_stamp=last_ms,
            consume_time_stamp=consumed_ms,
            delay_time=now_ms - next_ms if next_ms >= 0 else 0,
            min_time_stamp_str=_local_time(first_ms),
            max_time_stamp_str=_local_time(last_ms),
            consume_time_stamp_str=_local_time(consumed_ms),
        )

    async def _encoded(self, body: Body, members: int) -> bytes:
        """Return a body as bytes, made in a thread if it takes long."""
        if members <= QUEUES_AT_ONCE:
            return body.encode()
        return await trio.to_thread.run_sync(body.encode, limiter=self._limiter)

    # --- queues ------------------------------------------------------------------------------

    def _write_queues(self, config: TopicConfig) -> list[MessageQueue]:
        return self._queues(config, config.write_queue_nums)

    def _queues(self, config: TopicConfig, count: int) -> list[MessageQueue]:
        broker_name = self._live.current.broker_name
        return [
            MessageQueue(topic=config.topic_name, broker_name=broker_name, queue_id=queue_id)
            for queue_id in range(count)
        ]

    def _ends(self, queue: MessageQueue) -> _Ends:
        stored = self._store.queues.get(queue.topic, queue.queue_id)
        return _Ends(0, 0) if stored is None else _Ends(stored.min_offset, stored.next_offset)

    def _stored_ms(self, queue: MessageQueue, offset: int) -> int:
        """Return when a message was stored, -1 if there is none at that offset."""
        if offset < 0:
            return -1
        return self._store.reads.store_time(queue.topic, queue.queue_id, QueueOffset(offset))

    def _progress(self, group: str, queue: MessageQueue) -> OffsetWrapper:
        consumer_offset = max(0, self._offsets.query(group, queue.topic, queue.queue_id))
        return OffsetWrapper(
            broker_offset=self._ends(queue).end,
            consumer_offset=consumer_offset,
            last_timestamp=max(0, self._stored_ms(queue, consumer_offset - 1)),
        )

    def _may_read(self, group: str, topic: str) -> bool:
        """Tell whether a group reads a topic, as far as its members, if any, say what they read."""
        consumers = self._clients.consumer_group(group)
        if consumers is None or not consumers.subscriptions:
            return True
        return consumers.subscription(topic) is not None


@final
class _Pace:
    """Lets other tasks run after every few queues."""

    def __init__(self) -> None:
        self._done = 0

    async def __call__(self, queues: int) -> None:
        self._done += queues
        if self._done >= QUEUES_PER_STEP:
            self._done = 0
            await trio.lowlevel.checkpoint()


async def _of_each(
    queues: Sequence[MessageQueue], tell: Callable[[MessageQueue], V], pace: _Pace
) -> dict[MessageQueue, V]:
    """Return the statistics of each queue."""
    table: dict[MessageQueue, V] = {}
    for start in range(0, len(queues), QUEUES_PER_STEP):
        some = queues[start : start + QUEUES_PER_STEP]
        table.update((queue, tell(queue)) for queue in some)
        await pace(len(some))
    return table


def _refuse_topic(
    request: Request[GetTopicStatsInfoRequest] | Request[QueryConsumeTimeSpanRequest], topic: str
) -> None:
    request.reply(code=ResponseCode.TOPIC_NOT_EXIST, remark=f"topic[{topic}] not exist")


def _local_time(ms: int) -> str:
    """Return a time as 4.9.8 writes it, `yyyy-MM-dd#HH:mm:ss:SSS`."""
    seconds, rest = divmod(max(-1, min(ms, _LATEST_MS)), 1000)
    local = datetime.fromtimestamp(seconds)  # noqa: DTZ006 - local time is what is wanted
    return f"{local:%Y-%m-%d#%H:%M:%S}:{rest:03d}"
