"""What pulling consumers read, and what brokers hear of them. Pure.

A lite pull consumer either subscribes to topics, whose queues are dealt out among the members of
its group, or is assigned queues by its application; never both, as in RocketMQ 4.9.8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from rmq import PROTOCOL_VERSION
from rmq.client.core.consuming.subscription_set import Expression, SubscriptionSet
from rmq.errors import ConfigError
from rmq.remoting.bodies import (
    SUBSCRIBE_ALL,
    ConsumeFromWhere,
    ConsumerData,
    ConsumerRunningInfo,
    ConsumeType,
    MessageModel,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rmq.model.queues import MessageQueue
    from rmq.remoting.bodies import ProcessQueueInfo, SubscriptionData

_CONFLICT: Final = "a consumer that {} cannot also {}"


def subscription(topic: str, expression: Expression) -> SubscriptionData:
    """Return what an expression means for a topic; raise `ConfigError` if it means nothing."""
    # A set of one: it makes the same checks as push consumers do.
    (only,) = SubscriptionSet("", {topic: expression}, is_broadcasting=True, now_ms=0)
    return only


def presence(
    group: str, message_model: MessageModel, subscriptions: Iterable[SubscriptionData]
) -> ConsumerData:
    """Return what heartbeats say of a pulling consumer."""
    return ConsumerData(
        group_name=group,
        consume_type=ConsumeType.CONSUME_ACTIVELY,
        message_model=message_model,
        # Whatever it is set to, as in 4.9.8.
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        subscription_data_set=tuple(subscriptions),
    )


def running_info(
    nameservers: Iterable[str],
    started_at_ms: int,
    subscriptions: Iterable[SubscriptionData],
    queues: Mapping[MessageQueue, ProcessQueueInfo] | None = None,
) -> ConsumerRunningInfo:
    """Return what operators are told of a pulling consumer."""
    return ConsumerRunningInfo(
        properties={
            "PROP_NAMESERVER_ADDR": "".join(f"{address};" for address in nameservers),
            "PROP_CONSUME_TYPE": ConsumeType.CONSUME_ACTIVELY.value,
            "PROP_CLIENT_VERSION": PROTOCOL_VERSION,
            "PROP_CONSUMER_START_TIMESTAMP": str(started_at_ms),
        },
        subscription_set=tuple(sorted(subscriptions, key=lambda data: data.topic)),
        mq_table=dict(sorted((queues or {}).items())),
    )


@final
class PullSubscriptions:
    """What one lite pull consumer reads."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._subscribed: SubscriptionSet | None = None
        self._assigned: dict[str, SubscriptionData] | None = None

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that are subscribed to."""
        return () if self._subscribed is None else self._subscribed.topics

    @property
    def told(self) -> tuple[SubscriptionData, ...]:
        """The subscriptions in heartbeats. Assigned queues are not announced."""
        return () if self._subscribed is None else tuple(self._subscribed)

    def of(self, topic: str) -> SubscriptionData:
        """Return what is wanted of a topic; the same object until something else is."""
        found = self._subscribed.get(topic) if self._subscribed is not None else None
        if found is None and self._assigned is not None:
            found = self._assigned.get(topic)
        if found is None:
            found = subscription(topic, SUBSCRIBE_ALL)
            if self._assigned is not None:
                self._assigned[topic] = found
        return found

    def wants_same(self, topic: str, expression: Expression) -> bool:
        """Tell whether a topic is subscribed to, by an expression that says the same."""
        known = None if self._subscribed is None else self._subscribed.get(topic)
        wanted = subscription(topic, expression)
        return known is not None and (known.sub_string, known.expression_type) == (
            wanted.sub_string,
            wanted.expression_type,
        )

    def subscribe(self, topic: str, expression: Expression, now_ms: int) -> None:
        """Read a topic, or something else of it than before; raise `ConfigError`."""
        self.check_subscribe()
        if self._subscribed is None:
            self._subscribed = SubscriptionSet(
                self._group, {topic: expression}, is_broadcasting=True, now_ms=now_ms
            )
        else:
            self._subscribed.put(topic, expression, now_ms)

    def check_subscribe(self) -> None:
        if self._assigned is not None:
            raise ConfigError("subscribe", _CONFLICT.format("was assigned queues", "subscribe"))

    def unsubscribe(self, topic: str) -> bool:
        """Give a topic up; tell whether it was subscribed to."""
        return self._subscribed is not None and self._subscribed.remove(topic)

    def assign(self, expressions: Mapping[str, Expression]) -> None:
        """Read what the application assigns; topics without an expression are read whole."""
        if self.topics:
            raise ConfigError("assign", _CONFLICT.format("subscribes", "be assigned queues"))
        self._assigned = {topic: subscription(topic, text) for topic, text in expressions.items()}
