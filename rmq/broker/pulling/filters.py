"""Which filter belongs to a subscription, by tags or by a condition on properties (SQL92)."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, final

from rmq.broker.pulling.sql_filter import SqlFilter, SqlSyntaxError, compile_sql
from rmq.broker.pulling.subscriptions import filter_of
from rmq.model.properties import decode_properties
from rmq.remoting.bodies import SubscriptionData
from rmq.remoting.expressions import SQL92, is_tag_type

if TYPE_CHECKING:
    from rmq.broker.pulling.sql_filter import SqlExpression
    from rmq.store.reads import MessageFilter

_CONDITIONS_KEPT: Final = 1024


def filter_for(subscription: SubscriptionData) -> MessageFilter | None:
    """Return the filter of a subscription, None where everything passes; raise `SqlSyntaxError`."""
    if is_tag_type(subscription.expression_type) or subscription.class_filter_mode:
        return filter_of(subscription)
    if subscription.expression_type != SQL92:
        raise SqlSyntaxError(f"unknown type of expression {subscription.expression_type!r}", 0)
    return _sql_filter(subscription.sub_string or "")


@lru_cache(maxsize=_CONDITIONS_KEPT)
def _sql_filter(condition: str) -> MessageFilter:
    return ConditionFilter(compile_sql(condition))


@final
class ConditionFilter:
    """A `SqlFilter` that can also tell whether a message just stored is worth waking for."""

    __slots__ = ("_expression", "matches_record", "matches_tags_code")

    def __init__(self, expression: SqlExpression) -> None:
        inner = SqlFilter(expression)
        self.matches_tags_code = inner.matches_tags_code
        self.matches_record = inner.matches_record
        self._expression = expression

    def matches_properties(self, properties: bytes) -> bool:
        return self._expression.evaluate(decode_properties(properties))


def check_expression(expression_type: str, expression: str) -> None:
    """Raise an `RmqError` if a subscription by this expression would find no filter."""
    filter_for(SubscriptionData(topic="", sub_string=expression, expression_type=expression_type))
