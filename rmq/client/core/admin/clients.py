"""Connected clients for admin tools: who consumes, who produces, and calls to consumers. Pure.

Consumers and producers send heartbeats to the brokers of their topics only, so all brokers that may
know one are asked, and their answers are merged. No connected client is a result, not an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmq.client.core.admin.calls import AdminCall
from rmq.client.core.admin.groups import brokers_of_group
from rmq.client.core.admin.messages import find_message
from rmq.client.core.admin.targets import SLOW_S, TIMEOUT_S, failed, find_broker, read_each
from rmq.client.core.admin.topics import brokers_of_topic
from rmq.client.core.flows import Ask, ask, expect
from rmq.errors import BrokersFailedError, ClientError, NoBrokerError
from rmq.remoting.bodies import (
    Connection,
    ConsumeMessageDirectlyResult,
    ConsumerConnection,
    ConsumerRunningInfo,
    GetConsumerStatusBody,
    ProducerConnection,
    ProducerTableInfo,
)
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import (
    ConsumeMessageDirectlyRequest,
    GetConsumerConnectionListRequest,
    GetConsumerRunningInfoRequest,
    GetConsumerStatusRequest,
    GetProducerConnectionListRequest,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmq.client.core.admin.targets import Failure, Group
    from rmq.client.core.flows import Flow
    from rmq.client.core.nameservers import Nameservers
    from rmq.client.core.routes import Address
    from rmq.model.queues import MessageQueue
    from rmq.remoting.bodies import (
        ConsumeFromWhere,
        ConsumeType,
        MessageModel,
        ProducerInfo,
        SubscriptionData,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConnections:
    """Who is in a consumer group now, and what the group says of itself."""

    group: str
    connections: tuple[Connection, ...]
    """By client id."""
    subscriptions: dict[str, SubscriptionData]
    """By topic."""
    consume_type: ConsumeType | None
    message_model: MessageModel | None
    consume_from: ConsumeFromWhere | None
    failures: tuple[Failure, ...]
    """Brokers that may know of more."""

    @property
    def is_online(self) -> bool:
        return bool(self.connections)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConnections:
    """Who is in a producer group now."""

    group: str
    connections: tuple[Connection, ...]
    """By client id."""
    failures: tuple[Failure, ...]


def consumer_connections(
    nameservers: Nameservers, group: str, *, broker: str | None = None
) -> Flow[ConsumerConnections]:
    """Return who consumes in a group, as all of its brokers know it, or as one does."""
    header = GetConsumerConnectionListRequest(consumer_group=group)

    def call(target: Address) -> Flow[ConsumerConnection | None]:
        answer = yield Ask(
            target.address, RequestCode.GET_CONSUMER_CONNECTION_LIST, header, None, TIMEOUT_S
        )
        if answer is not None and answer.code == ResponseCode.CONSUMER_NOT_ONLINE:
            return None
        return expect(answer).body(ConsumerConnection)

    if broker is None:
        groups = yield from brokers_of_group(nameservers, group)
    else:
        groups = [[(yield from find_broker(nameservers, broker))]]
    tried = yield from read_each(
        f"consumers of group {group}", groups, call, nameservers.slave_reads
    )
    told = [body for _, body in tried.answers if body is not None]
    subscriptions = {
        topic: data for body in told for topic, data in body.subscription_table.items()
    }
    first = told[0] if told else ConsumerConnection()
    return ConsumerConnections(
        group=group,
        connections=_by_client(one for body in told for one in body.connection_set),
        subscriptions=dict(sorted(subscriptions.items())),
        consume_type=first.consume_type,
        message_model=first.message_model,
        consume_from=first.consume_from_where,
        failures=tried.failures,
    )


def producer_connections(
    nameservers: Nameservers, group: str, topic: str
) -> Flow[ProducerConnections]:
    """Return who produces in a group, as the brokers of a topic know it."""
    header = GetProducerConnectionListRequest(producer_group=group)

    def call(target: Address) -> Flow[ProducerConnection]:
        answer = yield Ask(
            target.address, RequestCode.GET_PRODUCER_CONNECTION_LIST, header, None, TIMEOUT_S
        )
        # There is no code of its own for "the group has no members".
        if answer is not None and answer.code == ResponseCode.SYSTEM_ERROR:
            return ProducerConnection()
        return expect(answer).body(ProducerConnection)

    groups = yield from brokers_of_topic(nameservers, topic)
    tried = yield from read_each(
        f"producers of group {group}", groups, call, nameservers.slave_reads
    )
    return ProducerConnections(
        group=group,
        connections=_by_client(one for _, body in tried.answers for one in body.connection_set),
        failures=tried.failures,
    )


def broker_producers(
    nameservers: Nameservers, broker: str
) -> Flow[dict[str, tuple[ProducerInfo, ...]]]:
    """Return all producers of one broker, by group."""
    target = yield from find_broker(nameservers, broker)
    answer = yield from ask(target.address, RequestCode.GET_ALL_PRODUCER_INFO, timeout_s=TIMEOUT_S)
    return dict(sorted(answer.body(ProducerTableInfo).data.items()))


# --- calls that brokers hand on to consumers --------------------------------------------------


def running_info(
    nameservers: Nameservers, group: str, client_id: str, *, with_stacks: bool = False
) -> Flow[ConsumerRunningInfo]:
    """Ask one consumer how it is, through a broker that knows it."""
    header = GetConsumerRunningInfoRequest(
        consumer_group=group, client_id=client_id, jstack_enable=with_stacks
    )
    groups = yield from brokers_of_group(nameservers, group)

    def call(target: Address) -> Flow[ConsumerRunningInfo]:
        answer = yield from ask(
            target.address, RequestCode.GET_CONSUMER_RUNNING_INFO, header, timeout_s=SLOW_S
        )
        return answer.body(ConsumerRunningInfo)

    failures: list[tuple[str, ClientError]] = []
    # The first that knows the consumer is as good as any other.
    for group_of_name in groups:
        try:
            tried = yield from read_each(
                f"consumer {client_id}", [group_of_name], call, nameservers.slave_reads
            )
        except BrokersFailedError as exc:
            failures += exc.failures
        else:
            return tried.answers[0][1]
    if not failures:
        raise NoBrokerError(f"consumer {client_id}", f"no broker has group {group}")
    raise BrokersFailedError(f"consumer {client_id} of group {group}", failures, ())


def consumer_status(
    nameservers: Nameservers, group: str, topic: str, *, client_id: str | None = None
) -> Flow[dict[str, dict[MessageQueue, int]]]:
    """Ask consumers how far they have come; return it by client id.

    Queues of other brokers are told, too: one broker is enough to reach a consumer.
    """
    header = GetConsumerStatusRequest(topic=topic, group=group, client_addr=client_id)

    def call(target: Address) -> Flow[GetConsumerStatusBody]:
        answer = yield from ask(
            target.address,
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
            header,
            timeout_s=SLOW_S,
        )
        return answer.body(GetConsumerStatusBody)

    groups = yield from brokers_of_topic(nameservers, topic)
    tried = yield from read_each(
        f"consumers of group {group}", groups, call, nameservers.slave_reads
    )
    found: dict[str, dict[MessageQueue, int]] = {}
    for _, body in tried.answers:
        for name, offsets in body.consumer_table.items():
            found.setdefault(name, {}).update(offsets)
    return {name: dict(sorted(offsets.items())) for name, offsets in sorted(found.items())}


def consume_directly(
    nameservers: Nameservers, group: str, client_id: str, topic: str, message_id: str
) -> Flow[ConsumeMessageDirectlyResult]:
    """Let one consumer consume a message now; offsets do not change by it."""
    message = yield from find_message(nameservers, topic, message_id)
    if message is None:
        raise NoBrokerError(f"message {message_id}", f"no broker of topic {topic} has it")
    header = ConsumeMessageDirectlyRequest(
        consumer_group=group, client_id=client_id, msg_id=message.offset_message_id
    )

    def call(target: Address) -> Flow[ConsumeMessageDirectlyResult]:
        answer = yield from ask(
            target.address, RequestCode.CONSUME_MESSAGE_DIRECTLY, header, timeout_s=SLOW_S
        )
        return answer.body(ConsumeMessageDirectlyResult)

    groups = yield from brokers_of_topic(nameservers, topic)
    holders = [brokers for brokers in groups if _has(brokers, message.queue.broker_name)]
    tried = yield from read_each(
        f"message {message_id} to {client_id}", holders, call, nameservers.slave_reads
    )
    if not tried.answers:
        raise failed(f"message {message_id} to {client_id}", tried.failures)
    return tried.answers[0][1]


def _has(brokers: Group, name: str) -> bool:
    return any(broker.broker_name == name for broker in brokers)


def _by_client(connections: Iterable[Connection]) -> tuple[Connection, ...]:
    found = {one.client_id or one.client_addr or "": one for one in connections}
    return tuple(found[name] for name in sorted(found))


class ClientCalls:
    """The flows of this module that admin clients offer."""

    consumer_connections = AdminCall(consumer_connections)
    producer_connections = AdminCall(producer_connections)
    broker_producers = AdminCall(broker_producers)
    running_info = AdminCall(running_info)
    consumer_status = AdminCall(consumer_status)
    consume_directly = AdminCall(consume_directly)
