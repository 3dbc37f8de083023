"""Clients come, go and share out queues: requests 34, 35, 38, 41, 42 and 46.

A heartbeat puts a client into its groups. For a consumer group it also creates what the group needs
on this broker: its settings, and its retry topic, through whose route admin tools find the broker.
A new consumer is told to rebalance before its heartbeat is answered, as clients are used to.

Order of checks, codes and remarks are those of RocketMQ 4.9.8 ClientManageProcessor,
ConsumerManageProcessor and AdminBrokerProcessor. Three things differ. A consumer that leaves a
group this broker never heard of does not create it. Names are checked before anything is made of
them (`rmq.model.name_rules`). And what one request may carry has bounds, far above what clients
send; long ones are served in steps, group by group and queue by queue, with other requests in
between.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, TypeVar, final

import msgspec
import trio

from rmq.broker.clients.locks import LockTally
from rmq.broker.clients.registry import ClientIdentity
from rmq.errors import ProtocolError, RefusedError, RmqError
from rmq.model.clock import system_ms
from rmq.model.name_rules import (
    GROUP_CHARS_MAX,
    client_id_refusal,
    group_refusal,
    is_subscribable,
)
from rmq.model.names import retry_topic
from rmq.remoting.bodies.base import REQUEST_LENIENT_BYTES_MAX, Body
from rmq.remoting.bodies.heartbeat import HeartbeatData
from rmq.remoting.bodies.lists import list_in_steps
from rmq.remoting.bodies.locks import LockBatchRequestBody, UnlockBatchRequestBody
from rmq.remoting.bodies.subscriptions import CheckClientRequestBody
from rmq.remoting.codes import ResponseCode
from rmq.remoting.expressions import is_tag_type
from rmq.remoting.groups import CLIENT_MANAGEMENT, HEARTBEAT
from rmq.remoting.header import SLOW_BYTES_MAX, EmptyHeader
from rmq.remoting.protocol import Requests

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from rmq.broker.clients.locks import QueueLocks
    from rmq.broker.clients.registry import ClientRegistry
    from rmq.broker.config import LiveConfig
    from rmq.broker.tables.groups import GroupTable
    from rmq.broker.tables.saved import Tables
    from rmq.model.queues import MessageQueue
    from rmq.remoting.bodies.heartbeat import ConsumerData
    from rmq.remoting.dispatch import HandlerTable
    from rmq.remoting.headers import GetConsumerListByGroupRequest, UnregisterClientRequest
    from rmq.remoting.request import Request


CLIENT_GROUPS_MAX: Final = 2_000
"""Groups of one connection, producers and consumers together."""
CLIENT_SUBSCRIPTIONS_MAX: Final = 10_000
"""Subscriptions in one heartbeat."""
HEARTBEAT_BYTES_MAX: Final = 512 * 1024
LOCK_BYTES_MAX: Final = 1024 * 1024
CHECK_BYTES_MAX: Final = 256 * 1024
"""An expression has 32,768 characters at most, which JSON may write with six each."""

WORK_PER_STEP: Final = 512
"""Of a heartbeat: what takes about a millisecond, in groups that are only refreshed."""
_NEW_GROUP_WORK: Final = 64
_NEW_MEMBER_WORK: Final = 16
_BYTES_AS_WORK: Final = 128
_LONG_BYTES: Final = 32 * 1024
"""Reading a longer heartbeat is a step by itself."""
_QUEUES_PER_STEP: Final = 500
_LOGGED_CHARS: Final = 200
"""How much of an expression that makes no sense is logged: it may have megabytes."""

B = TypeVar("B", bound=Body)


@final
class ClientHandlers:
    """Handlers of the requests by which clients join and leave groups, and lock queues."""

    def __init__(
        self,
        config: LiveConfig,
        tables: Tables,
        clients: ClientRegistry,
        locks: QueueLocks,
        create_retry_topic: Callable[[str, int, bool], None],
        *,
        compile_filter: Callable[[str, str], object] | None = None,
        when_told: Callable[[Generator[None, None, None]], bool] | None = None,
    ) -> None:
        """`create_retry_topic` gets a group, a number of queues and whether it is in unit mode.

        `compile_filter` gets the type and the text of an expression and raises `ValueError` or an
        `RmqError` if it makes no sense of it; without it only tags are taken. `when_told` takes
        steps to do when nameservers have been told of new topics, or returns False if there is
        nothing to wait for.
        """
        self._config = config
        self._topics = tables.topics
        self._groups = tables.groups
        self._clients = clients
        self._locks = locks
        self._create_retry_topic = create_retry_topic
        self._compile_filter = compile_filter
        self._when_told = when_told

    def add_to(self, table: HandlerTable) -> None:
        table.add_steps(
            Requests.HEART_BEAT,
            self.heartbeat,
            group=HEARTBEAT,
            body_bytes_max=HEARTBEAT_BYTES_MAX,
        )
        table.add(Requests.UNREGISTER_CLIENT, self.unregister, group=CLIENT_MANAGEMENT)
        table.add(
            Requests.CHECK_CLIENT_CONFIG,
            self.check_client_config,
            group=CLIENT_MANAGEMENT,
            body_bytes_max=CHECK_BYTES_MAX,
        )
        table.add(Requests.GET_CONSUMER_LIST_BY_GROUP, self.list_consumers, group=CLIENT_MANAGEMENT)
        for code, handler in (
            (Requests.LOCK_BATCH_MQ, self.lock_queues),
            (Requests.UNLOCK_BATCH_MQ, self.unlock_queues),
        ):
            table.add_steps(code, handler, group=CLIENT_MANAGEMENT, body_bytes_max=LOCK_BYTES_MAX)

    # ---- groups ----------------------------------------------------------------------------------

    def heartbeat(self, request: Request[EmptyHeader]) -> Generator[None, None, None]:
        """34 HEART_BEAT: the groups of a client."""
        data = _read(HeartbeatData, request)
        if len(request.body or b"") > _LONG_BYTES:
            yield
        self._check_size(request, data)
        said = _Said(request, data, self._groups)
        has_new_topics = False
        pace = _Pace(1 + len(request.body or b"") // _BYTES_AS_WORK)
        for consumer in said.consumers:
            is_new, needs_topic = self._prepare_group(consumer)
            has_new_topics |= needs_topic
            if pace.is_over(_NEW_GROUP_WORK if is_new or needs_topic else 1):
                yield
        register = self._register(request, said)
        # A consumer asks for the route of its retry topic next; not finding it, it asks again only
        # 30 s later.
        if has_new_topics and self._when_told is not None and self._when_told(register):
            request.defer()
        else:
            yield from register

    def _check_size(self, request: Request[EmptyHeader], data: HeartbeatData) -> None:
        """Raise `RefusedError` for more than a client of any kind needs."""
        reason = client_id_refusal(data.client_id)
        if reason is not None:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, reason)
        groups = len(data.consumer_data_set) + len(data.producer_data_set)
        # Groups of earlier heartbeats count, too, until they expire.
        if groups + self._clients.groups_on(request.channel) > CLIENT_GROUPS_MAX:
            groups = self._clients.groups_on(
                request.channel,
                [consumer.group_name for consumer in data.consumer_data_set],
                [producer.group_name for producer in data.producer_data_set],
            )
            _refuse_above(groups, CLIENT_GROUPS_MAX, "groups on one connection")
        subscriptions = sum(len(each.subscription_data_set) for each in data.consumer_data_set)
        _refuse_above(subscriptions, CLIENT_SUBSCRIPTIONS_MAX, "subscriptions in one heartbeat")

    def _prepare_group(self, data: ConsumerData) -> tuple[bool, bool]:
        """Create what a consumer group needs; tell whether the group is new, and its topic."""
        group = data.group_name
        is_new = group not in self._groups
        settings = self._groups.find(group)
        if settings is None or self._topics.get(retry_topic(group)) is not None:
            return is_new, False
        self._create_retry_topic(group, settings.retry_queue_nums, data.unit_mode)
        return is_new, True

    def _register(self, request: Request[EmptyHeader], said: _Said) -> Generator[None, None, None]:
        """Put a client into its groups, and answer its heartbeat."""
        channel = request.channel
        now = trio.current_time()
        pace = _Pace()
        for consumer in said.consumers:
            if not channel.is_open:
                break
            settings = self._groups.get(consumer.group_name)
            changed = self._clients.register_consumer(
                consumer.group_name,
                channel,
                said.client,
                _dated(consumer),
                now,
                notify=settings is None or settings.notify_consumer_ids_changed_enable,
            )
            work = 1 + len(consumer.subscription_data_set)
            if pace.is_over(_NEW_MEMBER_WORK + work if changed else work):
                yield
        for producer in said.producers:
            if not channel.is_open:
                break
            is_new = self._clients.register_producer(producer, channel, said.client, now)
            if pace.is_over(_NEW_MEMBER_WORK if is_new else 1):
                yield
        if not channel.is_open:
            # It ended after the heartbeat was read. The registry would never remove it.
            request.drop()
        elif said.refusal is not None:
            request.reply(code=ResponseCode.SYSTEM_ERROR, remark=said.refusal)
        else:
            request.reply()

    def unregister(self, request: Request[UnregisterClientRequest]) -> None:
        """35 UNREGISTER_CLIENT: a client leaves a group; whether it was in it does not matter."""
        header = request.header
        if header.producer_group is not None:
            self._clients.unregister_producer(header.producer_group, request.channel)
        if header.consumer_group is not None:
            settings = self._groups.get(header.consumer_group)
            self._clients.unregister_consumer(
                header.consumer_group,
                request.channel,
                notify=settings is None or settings.notify_consumer_ids_changed_enable,
            )
        request.reply(EmptyHeader())

    def list_consumers(self, request: Request[GetConsumerListByGroupRequest]) -> None:
        """38 GET_CONSUMER_LIST_BY_GROUP: the ids among which queues are dealt out."""
        group = request.header.consumer_group
        consumers = self._clients.consumer_group(group)
        if consumers is None:
            request.reply(
                EmptyHeader(),
                code=ResponseCode.SYSTEM_ERROR,
                remark=f"no consumer for this group, {group}",
            )
        else:
            request.reply(EmptyHeader(), body=consumers.member_list())

    def check_client_config(self, request: Request[EmptyHeader]) -> None:
        """46 CHECK_CLIENT_CONFIG: can the broker filter by what a consumer is about to ask for?"""
        body = _read(CheckClientRequestBody, request) if request.body else None
        subscription = None if body is None else body.subscription_data
        if body is None or subscription is None or is_tag_type(subscription.expression_type):
            request.reply()
            return
        kind = subscription.expression_type or ""
        if not self._config.current.enable_property_filter or self._compile_filter is None:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"The broker does not support consumer to filter message by {kind}",
            )
        try:
            self._compile_filter(kind, subscription.sub_string or "")
        except (ValueError, RmqError) as exc:
            request.channel.warn(
                "filter",
                "%s in group %s: cannot filter by %r: %s",
                body.client_id,
                body.group,
                (subscription.sub_string or "")[:_LOGGED_CHARS],
                exc,
            )
            raise RefusedError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(exc)) from exc
        request.reply()

    # ---- locks -----------------------------------------------------------------------------------

    def lock_queues(self, request: Request[EmptyHeader]) -> Generator[None, None, None]:
        """41 LOCK_BATCH_MQ: take or renew queues that are consumed in order."""
        body = _read(LockBatchRequestBody, request)
        group, client_id = body.consumer_group, body.client_id
        self._check_names(group, client_id)
        now = trio.current_time()
        tally = LockTally()
        held: dict[MessageQueue, None] = {}
        for queues in _some_at_a_time(body.mq_set):
            lockable = [queue for queue in queues if _may_be_locked(queue)]
            locked = self._locks.lock_batch(group, client_id, lockable, now, tally)
            held.update((queue, None) for queue in lockable if queue in locked)
            if len(queues) == _QUEUES_PER_STEP:
                yield
        if tally.text:
            request.channel.log(
                logging.INFO, "locked", "group %s: %s locked %s", group, client_id, tally.text
            )
        listed = yield from list_in_steps(held)
        request.reply(body=b'{"lockOKMQSet":' + listed + b"}")

    def unlock_queues(self, request: Request[EmptyHeader]) -> Generator[None, None, None]:
        """42 UNLOCK_BATCH_MQ: give queues back."""
        body = _read(UnlockBatchRequestBody, request)
        group, client_id = body.consumer_group, body.client_id
        tally = LockTally()
        for queues in _some_at_a_time(body.mq_set):
            self._locks.unlock_batch(group, client_id, queues, tally)
            if len(queues) == _QUEUES_PER_STEP:
                yield
        if tally.text:
            request.channel.log(
                logging.INFO, "unlocked", "group %s: %s unlocked %s", group, client_id, tally.text
            )
        request.reply()

    def _check_names(self, group: str, client_id: str) -> None:
        """Raise `RefusedError` for names that no group or client of this broker can have."""
        reason = _group_refusal(group, self._groups) or client_id_refusal(client_id)
        if reason is not None:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, reason)


@final
class _Said:
    """What counts of a heartbeat: groups and topics with names that they can have.

    A group of another name is left out and refused, the others of the same client are not: 4.9.8
    takes both. Topics of other names are left out without a word, because stock consumers may
    subscribe to anything; there are no messages of such topics.
    """

    def __init__(
        self, request: Request[EmptyHeader], data: HeartbeatData, groups: GroupTable
    ) -> None:
        command = request.command
        self.client = ClientIdentity(data.client_id, command.language, command.version)
        self.refusal: str | None = None
        self.consumers: list[ConsumerData] = []
        for consumer in data.consumer_data_set:
            if self._may_be(consumer.group_name, groups):
                self.consumers.append(_with_legal_topics(consumer))
        self.producers: list[str] = [
            producer.group_name
            for producer in data.producer_data_set
            if self._may_be(producer.group_name, groups)
        ]
        if self.refusal is not None:
            request.channel.warn(
                "names",
                "%s of %s: not all groups taken: %.400s",
                request.channel.peer,
                data.client_id,
                self.refusal,
            )

    def _may_be(self, group: str, groups: GroupTable) -> bool:
        reason = _group_refusal(group, groups)
        if reason is not None and self.refusal is None:
            self.refusal = reason
        return reason is None


@final
class _Pace:
    """Tells when a step has done enough."""

    def __init__(self, done: int = 0) -> None:
        self._done = done

    def is_over(self, work: int) -> bool:
        self._done += work
        if self._done < WORK_PER_STEP:
            return False
        self._done = 0
        return True


def _group_refusal(group: str, groups: GroupTable) -> str | None:
    """Return why a group may not have this name; None if it may, or is there from other times."""
    return None if group in groups else group_refusal(group)


def _with_legal_topics(data: ConsumerData) -> ConsumerData:
    subscriptions = data.subscription_data_set
    if all(is_subscribable(subscription.topic) for subscription in subscriptions):
        return data
    return msgspec.structs.replace(
        data,
        subscription_data_set=tuple(
            subscription for subscription in subscriptions if is_subscribable(subscription.topic)
        ),
    )


def _may_be_locked(queue: MessageQueue) -> bool:
    return is_subscribable(queue.topic) and len(queue.broker_name) <= GROUP_CHARS_MAX


def _some_at_a_time(queues: Sequence[MessageQueue]) -> Iterator[Sequence[MessageQueue]]:
    for start in range(0, len(queues), _QUEUES_PER_STEP):
        yield queues[start : start + _QUEUES_PER_STEP]


def _refuse_above(count: int, most: int, what: str) -> None:
    if count > most:
        raise RefusedError(
            ResponseCode.SYSTEM_ERROR, f"{count} {what}, which is above the limit of {most}"
        )


def _read(kind: type[B], request: Request[EmptyHeader]) -> B:
    try:
        return kind.decode(
            request.body,
            lenient_bytes_max=REQUEST_LENIENT_BYTES_MAX,
            slow_bytes_max=SLOW_BYTES_MAX,
        )
    except ProtocolError as exc:
        raise RefusedError(ResponseCode.SYSTEM_ERROR, str(exc)) from exc


def _dated(data: ConsumerData) -> ConsumerData:
    """Give subscriptions without a version the present time, as Java does when it reads them."""
    subscriptions = data.subscription_data_set
    if all(subscription.sub_version for subscription in subscriptions):
        return data
    now_ms = system_ms()
    return msgspec.structs.replace(
        data,
        subscription_data_set=tuple(
            subscription
            if subscription.sub_version
            else msgspec.structs.replace(subscription, sub_version=now_ms)
            for subscription in subscriptions
        ),
    )
