"""The filter that follows from a subscription by tags (`rmq.remoting.expressions`).

The broker compares Java hash codes only, which ConsumeQueue entries carry; the client compares the
tags themselves, so two tags of one hash cost a transfer and nothing else. Which entries pass is as
in RocketMQ 4.9.8 ExpressionMessageFilter. Conditions on properties are refused here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, final

from rmq.errors import RefusedError
from rmq.remoting.bodies.subscriptions import SUBSCRIBE_ALL, SubscriptionData
from rmq.remoting.codes import ResponseCode
from rmq.remoting.expressions import is_tag_type

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmq.store.reads import MessageFilter


class _TagsCodeTest(Protocol):
    def __call__(self, tags_code: int) -> bool: ...


@final
class TagFilter:
    """Lets through the messages whose tag has one of the given hash codes; none if none is given.

    Entries hold the 32-bit hash extended to 64 bits with its sign, which as a number is the hash
    itself. (Entries of delayed messages hold a time instead: they are never filtered by tag.)
    """

    __slots__ = ("matches_tags_code",)

    matches_tags_code: _TagsCodeTest

    def __init__(self, codes: Iterable[int]) -> None:
        # The set's own method: a pull asks for up to 800 entries and more, a call of ours for each
        # would cost more than all the rest of the loop.
        self.matches_tags_code = frozenset(codes).__contains__  # type: ignore[assignment]

    def matches_record(self, record: memoryview) -> bool:
        return True


def filter_of(subscription: SubscriptionData) -> MessageFilter | None:
    """Return the filter of a subscription by tags, None where everything passes.

    Raises `RefusedError` for another kind of subscription, so that no consumer gets messages
    unfiltered by mistake.
    """
    if subscription.class_filter_mode:
        return None
    if not is_tag_type(subscription.expression_type):
        raise RefusedError(
            ResponseCode.SYSTEM_ERROR,
            "The broker does not support consumer to filter message by "
            f"{subscription.expression_type}",
        )
    expression = subscription.sub_string
    if not expression or expression == SUBSCRIBE_ALL:
        return None
    return TagFilter(subscription.code_set)
