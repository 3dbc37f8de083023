"""What a subscription's expression stands for: tags (`a || b`), everything (`*`) or a condition.

The rules are those of RocketMQ 4.9.8 FilterAPI, which clients and brokers share. Conditions on
message properties (`SQL92`) are carried here, not understood.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from rmq.errors import RefusedError
from rmq.model.java import string_hash
from rmq.remoting.bodies.subscriptions import SUBSCRIBE_ALL, SubscriptionData
from rmq.remoting.codes import ResponseCode

_EXPRESSIONS_KEPT: Final = 1024
"""Pull consumers send theirs with every pull."""
_EXPRESSION_CHARS_KEPT: Final = 1024

TAG: Final = "TAG"
SQL92: Final = "SQL92"

TAGS_CHARS_MAX: Final = 64 * 1024
"""How long an expression of tags may be: each of them is hashed while all others wait."""

REMARK_PARSE_FAILED: Final = "parse the consumer's subscription failed"

_JAVA_BLANKS: Final = "".join(map(chr, range(0x21)))
"""What `String.trim` removes: control characters and the space, no other blank."""


def is_tag_type(expression_type: str | None) -> bool:
    """Whether an expression of this type names tags; no type at all means that it does."""
    return not expression_type or expression_type == TAG


def build_subscription(
    topic: str, expression: str | None, expression_type: str | None = None, version: int = 0
) -> SubscriptionData:
    """Return the subscription that an expression stands for.

    Raises `RefusedError` with SUBSCRIPTION_PARSE_FAILED for an expression without meaning.
    """
    if expression is not None and len(expression) > _EXPRESSION_CHARS_KEPT:
        return _build(topic, expression, expression_type, version)
    return _build_once(topic, expression, expression_type, version)


def _build(
    topic: str, expression: str | None, expression_type: str | None, version: int
) -> SubscriptionData:
    if not is_tag_type(expression_type):
        if not expression:
            raise RefusedError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, REMARK_PARSE_FAILED)
        return SubscriptionData(
            topic=topic,
            sub_string=expression,
            expression_type=expression_type,
            sub_version=version,
        )
    if not expression or expression == SUBSCRIBE_ALL:
        return SubscriptionData(topic=topic, sub_string=SUBSCRIBE_ALL, sub_version=version)
    if len(expression) > TAGS_CHARS_MAX:
        raise RefusedError(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            f"{REMARK_PARSE_FAILED}: {len(expression)} characters, above {TAGS_CHARS_MAX}",
        )
    parts = expression.split("||")
    if not any(parts):
        # Nothing but separators. (Blanks between them are an empty set of tags, which is allowed.)
        raise RefusedError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, REMARK_PARSE_FAILED)
    tags = frozenset(tag for part in parts if (tag := part.strip(_JAVA_BLANKS)))
    return SubscriptionData(
        topic=topic,
        sub_string=expression,
        tags_set=tags,
        code_set=frozenset(map(string_hash, tags)),
        sub_version=version,
    )


_build_once = lru_cache(maxsize=_EXPRESSIONS_KEPT)(_build)
