"""Which code has which body."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import inspect

from rmq.remoting.bodies import (
    MessageQueueForC,
    OffsetMovedEvent,
    ResetOffsetBodyForC,
    TopicList,
)
from rmq.remoting.codes import RequestCode
from rmq.remoting.protocol import REQUESTS
from tests.remoting.bodies.strategies import BODY_CLASSES

NOT_DECLARED: set[type[msgspec.Struct]] = {
    OffsetMovedEvent,  # the body of a message, not of a command
    ResetOffsetBodyForC,  # the other form of a body that is declared
    MessageQueueForC,
}


def test_every_body_class_belongs_to_a_code_or_is_part_of_one_that_does() -> None:
    reached: set[type[msgspec.Struct]] = set()

    def reach(info: inspect.Type) -> None:
        if isinstance(info, inspect.StructType):
            reached.add(info.cls)
        for name in info.__struct_fields__:
            inner = getattr(info, name)
            for part in inner if isinstance(inner, tuple) else (inner,):
                kind = part.type if isinstance(part, inspect.Field) else part
                if isinstance(kind, inspect.Type):
                    reach(kind)

    for request in REQUESTS.values():
        for body_class in (request.body, request.response_body):
            if body_class is not None:
                reach(inspect.type_info(body_class))

    assert set(BODY_CLASSES) - reached == NOT_DECLARED


@pytest.mark.parametrize(
    "code",
    [
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        RequestCode.GET_TOPICS_BY_CLUSTER,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
        RequestCode.GET_UNIT_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
    ],
    ids=lambda code: code.name,
)
def test_all_lists_of_topics_are_of_one_class(code: RequestCode) -> None:
    assert REQUESTS[code].response_body is TopicList
