"""What a consumer subscribes to, as heartbeats and pulls tell brokers. Pure.

Every subscription has a version. Brokers serve a pull only if the version they heard of in a
heartbeat is not older than the pull's, so a version grows whenever the subscription, or the queues
that it is read from, have changed. Versions are milliseconds of the wall clock, and grow even when
that clock is set back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, final

import msgspec

from rmq.client.core.messages import check_topic
from rmq.errors import ConfigError, IllegalMessageError, RefusedError
from rmq.model.names import retry_topic
from rmq.remoting.bodies import (
    SUBSCRIBE_ALL,
    ConsumerData,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)
from rmq.remoting.expressions import SQL92, TAG, build_subscription, is_tag_type

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmq.remoting.bodies import ConsumeFromWhere


class Sql(NamedTuple):
    """A condition on the properties of messages: `Sql("amount > 10 AND region = 'north'")`."""

    condition: str


Expression: TypeAlias = str | Sql
"""Tags joined by `||`, `*` for everything, or a condition."""

Subscriptions: TypeAlias = str | Iterable[str] | Mapping[str, Expression]
"""One topic, several, or expressions by topic. Topics alone stand for all of their messages."""


@final
class SubscriptionSet:
    """The topics of one consumer, each with its expression and version."""

    def __init__(
        self, group: str, subscriptions: Subscriptions, *, is_broadcasting: bool, now_ms: int
    ) -> None:
        """Raises `ConfigError` for a topic or an expression that no broker would take.

        A group whose members share messages also gets what it sent back: its retry topic.
        """
        self.group = group
        self.is_broadcasting = is_broadcasting
        self._retry_topic = retry_topic(group)
        self._table: dict[str, SubscriptionData] = {}
        for topic, expression in _pairs(subscriptions):
            self.put(topic, expression, now_ms)
        if not self._table:
            raise ConfigError("subscriptions", "no topic is given")
        if not is_broadcasting:
            self._table[self._retry_topic] = build_subscription(
                self._retry_topic, SUBSCRIBE_ALL, TAG, now_ms
            )

    def __iter__(self) -> Iterator[SubscriptionData]:
        return iter(self._table.values())

    def __contains__(self, topic: str) -> bool:
        return topic in self._table

    @property
    def topics(self) -> tuple[str, ...]:
        """All topics, the retry topic included."""
        return tuple(self._table)

    def get(self, topic: str) -> SubscriptionData | None:
        return self._table.get(topic)

    def put(self, topic: str, expression: Expression, now_ms: int) -> SubscriptionData:
        """Subscribe to a topic, or to other messages of it than before; raise `ConfigError`."""
        wanted = _subscription(topic, expression)
        known = self._table.get(topic)
        version = now_ms if known is None else max(now_ms, known.sub_version + 1)
        data = self._table[topic] = msgspec.structs.replace(wanted, sub_version=version)
        return data

    def restore(self, topic: str, data: SubscriptionData | None) -> None:
        """Have a topic subscribed as it was before; None: it was not."""
        if data is None:
            self._table.pop(topic, None)
        else:
            self._table[topic] = data

    def remove(self, topic: str) -> bool:
        """Give up a topic; tell whether it was subscribed. The retry topic stays."""
        return topic != self._retry_topic and self._table.pop(topic, None) is not None

    def bump(self, topic: str, now_ms: int) -> None:
        """Raise the version of a topic whose queues have changed, so that brokers take it again."""
        known = self._table.get(topic)
        if known is not None:
            version = max(now_ms, known.sub_version + 1)
            self._table[topic] = msgspec.structs.replace(known, sub_version=version)

    def conditions(self) -> tuple[SubscriptionData, ...]:
        """Return the subscriptions that only some brokers can serve: those that are no tags."""
        return tuple(data for data in self if not is_tag_type(data.expression_type))

    def presence(self, consume_from: ConsumeFromWhere, *, unit_mode: bool = False) -> ConsumerData:
        """Return what a heartbeat says of the consumer."""
        return ConsumerData(
            group_name=self.group,
            consume_type=ConsumeType.CONSUME_PASSIVELY,
            message_model=(
                MessageModel.BROADCASTING if self.is_broadcasting else MessageModel.CLUSTERING
            ),
            consume_from_where=consume_from,
            subscription_data_set=tuple(self),
            unit_mode=unit_mode,
        )


def _pairs(subscriptions: Subscriptions) -> Iterator[tuple[str, Expression]]:
    if isinstance(subscriptions, str):
        yield subscriptions, SUBSCRIBE_ALL
    elif isinstance(subscriptions, Mapping):
        yield from subscriptions.items()
    else:
        for topic in subscriptions:
            yield topic, SUBSCRIBE_ALL


def _subscription(topic: str, expression: Expression) -> SubscriptionData:
    kind = SQL92 if isinstance(expression, Sql) else TAG
    text = expression.condition if isinstance(expression, Sql) else expression
    try:
        check_topic(topic)
        return build_subscription(topic, text, kind)
    except IllegalMessageError as exc:
        raise ConfigError("subscriptions", exc.reason) from exc
    except RefusedError as exc:
        raise ConfigError(
            "subscriptions",
            f"{text!r} says nothing of which messages of {topic} are wanted",
            hint="name tags as a || b, everything as *, or a condition as Sql('a > 5')",
        ) from exc
