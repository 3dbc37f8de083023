"""Topics and what they leave behind, for admin tools.

Requests 17, 21, 215, 305, 306, 316, 321 and 329. A change is answered when it is on disk. Codes and
remarks are those of RocketMQ 4.9.8 AdminBrokerProcessor.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, final

from rmq.broker.config import BrokerRole
from rmq.broker.handlers.tables import answer_table
from rmq.errors import RefusedError, StorageError
from rmq.model.limits import QUEUES_MAX
from rmq.model.names import SCHEDULE_TOPIC
from rmq.model.offsets import QueueOffset
from rmq.remoting.bodies import (
    ConsumeQueueData,
    QueryConsumeQueueResponseBody,
    TopicConfig,
    TopicFilterType,
    TopicList,
)
from rmq.remoting.codes import ResponseCode
from rmq.remoting.headers import (
    CreateTopicRequest,
    DeleteTopicRequest,
    EmptyHeader,
    QueryConsumeQueueRequest,
)
from rmq.remoting.protocol import Requests

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rmq.broker.clients.registry import ClientRegistry
    from rmq.broker.config import BrokerConfig
    from rmq.broker.serving_parts import ServingParts
    from rmq.remoting.dispatch import HandlerTable
    from rmq.remoting.request import Request

logger = logging.getLogger(__name__)

ENTRIES_MAX: Final = 500
"""Entries of a queue that one request gets: about 5 ms."""
TOPICS_AT_ONCE: Final = 64
"""Topics whose queues are deleted in one step."""
_PERM_MAX: Final = 7


def refuse_on_slave(config: BrokerConfig) -> None:
    """Raise `RefusedError` on a slave: what is changed there is gone with the next copy."""
    if config.role is BrokerRole.SLAVE:
        raise RefusedError(
            ResponseCode.SYSTEM_ERROR,
            "Can't modify topic or subscription group from slave broker,"
            " please execute it from master broker.",
        )


@final
class TopicHandlers:
    """Creates, shows and deletes topics."""

    def __init__(
        self,
        parts: ServingParts,
        clients: ClientRegistry,
        *,
        on_deleted: Callable[[str], None],
        wait_told: Callable[[], Awaitable[None]],
    ) -> None:
        self._live = parts.live
        self._store = parts.store
        self._topics = parts.tables.topics
        self._clients = clients
        self._writer = parts.tables.topics_writer
        self._stats = parts.stats
        self._on_deleted = on_deleted
        self._wait_told = wait_told
        """Waits until nameservers know of what changed."""

    def add_to(self, table: HandlerTable) -> None:
        table.add_async(Requests.UPDATE_AND_CREATE_TOPIC, self.create)
        table.add_async(Requests.DELETE_TOPIC_IN_BROKER, self.delete)
        table.add_async(Requests.GET_ALL_TOPIC_CONFIG, self.list_all)
        table.add(Requests.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, self.list_system)
        table.add_async(Requests.CLEAN_EXPIRED_CONSUMEQUEUE, self.clean_expired_queues)
        table.add_async(Requests.CLEAN_UNUSED_TOPIC, self.clean_unused)
        table.add(Requests.DELETE_EXPIRED_COMMITLOG, self.delete_expired_log)
        table.add(Requests.QUERY_CONSUME_QUEUE, self.show_queue)

    async def create(self, request: Request[CreateTopicRequest]) -> None:
        """17 UPDATE_AND_CREATE_TOPIC. `order` is not applied, as in 4.9.8: nameservers say so."""
        refuse_on_slave(self._live.current)
        header = request.header
        self._refuse_protected(header.topic)
        for name, queues in (
            ("readQueueNums", header.read_queue_nums),
            ("writeQueueNums", header.write_queue_nums),
        ):
            if not 0 <= queues <= QUEUES_MAX:
                raise RefusedError(
                    ResponseCode.SYSTEM_ERROR, f"{name} {queues} is not between 0 and {QUEUES_MAX}"
                )
        if not 0 <= header.perm <= _PERM_MAX:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"perm {header.perm} is not between 0 and {_PERM_MAX}"
            )
        try:
            filter_type = TopicFilterType(header.topic_filter_type)
        except ValueError:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"topicFilterType {header.topic_filter_type!r} is not SINGLE_TAG or MULTI_TAG",
            ) from None
        logger.info("topic %s created or changed by %s", header.topic, request.channel.peer)
        self._topics.put(
            TopicConfig(
                topic_name=header.topic,
                read_queue_nums=header.read_queue_nums,
                write_queue_nums=header.write_queue_nums,
                perm=header.perm,
                topic_filter_type=filter_type,
                topic_sys_flag=header.topic_sys_flag or 0,
            )
        )
        await self._writer.wait_saved(self._writer.mark())
        await self._wait_told()
        request.reply()

    async def delete(self, request: Request[DeleteTopicRequest]) -> None:
        """215 DELETE_TOPIC_IN_BROKER: its settings and queues go, its messages stay in the log."""
        refuse_on_slave(self._live.current)
        topic = request.header.topic
        self._refuse_protected(topic)
        logger.info("topic %s deleted by %s", topic, request.channel.peer)
        self._topics.delete(topic)
        # In the same step: what is sent from here on belongs to a new topic of that name.
        await self._delete_queues(topic)
        await self._writer.wait_saved(self._writer.mark())
        request.reply()

    def _refuse_protected(self, topic: str) -> None:
        reason = self._topics.validate_topic(topic)
        if reason is not None:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, reason)
        if self._topics.is_system(topic):
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"The topic[{topic}] is conflict with system topic."
            )

    async def _delete_queues(self, *topics: str) -> None:
        try:
            await self._store.delete_topics(*topics)
        except StorageError as exc:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, str(exc)) from exc
        finally:
            for topic in topics:
                self._on_deleted(topic)
                if self._live.current.delete_unused_stats:
                    self._stats.remove_topic(topic)

    async def list_all(self, request: Request[EmptyHeader]) -> None:
        """21 GET_ALL_TOPIC_CONFIG, by which slaves follow."""
        await answer_table(request, self._topics, "topics", EmptyHeader())

    def list_system(self, request: Request[EmptyHeader]) -> None:
        """305 GET_SYSTEM_TOPIC_LIST_FROM_BROKER."""
        request.reply(body=TopicList(topic_list=self._topics.system_topics).encode())

    # --- what is left behind -----------------------------------------------------------------

    async def clean_expired_queues(self, request: Request[EmptyHeader]) -> None:
        """306 CLEAN_EXPIRED_CONSUMEQUEUE: queues all of whose messages are gone from the log."""
        deleted = await self._store.delete_expired_queues(keep=frozenset({SCHEDULE_TOPIC}))
        for topic, queue_id in deleted:
            logger.info("queue %d of %s deleted: its messages have expired", queue_id, topic)
        for topic in {topic for topic, _ in deleted}:
            # Held pulls of such a queue would not be woken by its next message.
            self._on_deleted(topic)
        request.reply()

    async def clean_unused(self, request: Request[EmptyHeader]) -> None:
        """316 CLEAN_UNUSED_TOPIC: queues of topics that were deleted."""
        stored = {queue.topic for queue in self._store.queues}
        # Some of the broker's own have messages and no settings.
        unused = [
            topic
            for topic in sorted(stored.difference(self._topics.names()))
            if not self._topics.is_system(topic)
        ]
        for start in range(0, len(unused), TOPICS_AT_ONCE):
            # One of them may have been created again meanwhile.
            some = [
                topic
                for topic in unused[start : start + TOPICS_AT_ONCE]
                if self._topics.get(topic) is None
            ]
            for topic in some:
                logger.info("queues of %s deleted: there is no such topic", topic)
            await self._delete_queues(*some)
        request.reply()

    def delete_expired_log(self, request: Request[EmptyHeader]) -> None:
        """329 DELETE_EXPIRED_COMMITLOG: expired files go in the next rounds, at whatever hour."""
        self._store.request_cleaning()
        request.reply()

    # --- entries of a queue ------------------------------------------------------------------

    def show_queue(self, request: Request[QueryConsumeQueueRequest]) -> None:
        """321 QUERY_CONSUME_QUEUE: raw entries of a queue."""
        header = request.header
        queue = self._store.queues.get(header.topic, header.queue_id)
        if queue is None:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"{header.queue_id}@{header.topic} is not exist!"
            )
        subscription = filter_text = None
        if header.consumer_group is not None:
            group = self._clients.consumer_group(header.consumer_group)
            subscription = None if group is None else group.subscription(header.topic)
            if subscription is None:
                filter_text = f"{header.consumer_group}@{header.topic} is not online!"
            else:
                filter_text = "null"
        if not queue.min_offset <= header.index < queue.next_offset:
            request.reply(
                remark=f"Index {header.index} of {header.queue_id}@{header.topic} is not exist!"
            )
            return
        rows: list[ConsumeQueueData] = []
        for offset in range(header.index, header.index + max(0, min(header.count, ENTRIES_MAX))):
            entry = queue.entry(QueueOffset(offset)) if offset < queue.next_offset else None
            if entry is None:
                break
            physical, size, tags_code = entry
            # `eval` stays false: 4.9.8 sets it for entries with an extension only.
            rows.append(
                ConsumeQueueData(physic_offset=physical, physic_size=size, tags_code=tags_code)
            )
        body = QueryConsumeQueueResponseBody(
            subscription_data=subscription,
            filter_data=filter_text,
            queue_data=tuple(rows),
            max_queue_index=queue.next_offset,
            min_queue_index=queue.min_offset,
        )
        request.reply(body=body.encode())
