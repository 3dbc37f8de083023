"""Header classes against the Java classes they stand for (java_headers.py)."""

from __future__ import annotations

import json
from itertools import combinations
from typing import Any, Final

import pytest

from rmq.model.java import hash_map_order, string_hash
from rmq.remoting import headers
from rmq.remoting.codes import Serialization
from rmq.remoting.command import encode_frame
from rmq.remoting.header import EmptyHeader, Header, Int32, Int64
from rmq.remoting.headers import (
    PullMessageRequest,
    PullMessageResponse,
    SendMessageErrorResponse,
    SendMessageRequestV2,
    SendMessageResponse,
)
from tests.remoting.header_fields import ALL_CLASSES, decode, full_ext, info_of, kind_of, sent
from tests.remoting.java_headers import JAVA_HEADERS, JavaField, JavaHeader

ADDED_BY_HAND: Final = {"TRACE_ON", "MSG_REGION", "_UNIQUE_KEY_QUERY"}
"""Fields that the original puts into extFields beside its header class."""

OURS: Final[set[tuple[type[Header], str]]] = {
    (headers.PutKvConfigRequest, "insteadOf"),
    (headers.RegisterBrokerRequest, "epoch"),
    (headers.RegisterBrokerResponse, "epoch"),
}
"""Fields that stock peers do not know, and are not sent unless there is something to say."""

OWN_CLASSES: Final = {c for c in ALL_CLASSES if c.__module__ == "rmq.remoting.headers.ha"}
"""Of requests that only our servers know."""

LEFT_OUT: Final = {(SendMessageRequestV2, "bname")}
"""Inherited by the Java class but never set: `n` takes its place."""

OPTIONAL_IN_SPITE_OF_THE_MARK: Final = {
    # Never read by the side that receives it.
    (headers.CreateTopicRequest, "defaultTopic"),
    (headers.EndTransactionRequest, "msgId"),
    (headers.PushReplyMessageRequest, "producerGroup"),
    (headers.PushReplyMessageRequest, "defaultTopic"),
    (headers.PushReplyMessageRequest, "defaultTopicQueueNums"),
    (headers.QueryDataVersionRequest, "brokerName"),
    (headers.QueryDataVersionRequest, "clusterName"),
    (headers.QueryDataVersionRequest, "brokerId"),
    # Checked for null.
    (headers.PushReplyMessageRequest, "bornHost"),
    (headers.PushReplyMessageRequest, "storeHost"),
    (headers.UpdateGlobalWhiteAddrsConfigRequest, "aclFileFullPath"),
}

MANDATORY_BESIDES: Final = {
    (headers.QueryConsumeQueueRequest, "topic"),
    (headers.ResetOffsetRequest, "timestamp"),
}
"""Unmarked or 0 when missing in Java, but without them a request cannot be meant seriously."""

FIXED_ORDER: Final[dict[type[Header], str]] = {
    SendMessageRequestV2: "a b c d e f g h i j k l m n",
    SendMessageResponse: "msgId queueId queueOffset transactionId TRACE_ON MSG_REGION",
    PullMessageRequest: "consumerGroup topic queueId queueOffset maxMsgNums sysFlag commitOffset"
    " suspendTimeoutMillis subscription subVersion expressionType bname",
    PullMessageResponse: "suggestWhichBrokerId nextBeginOffset minOffset maxOffset",
}

KINDS: Final[dict[str, Any]] = {
    "String": str,
    "Integer": Int32,
    "int": Int32,
    "Long": Int64,
    "long": Int64,
    "Boolean": bool,
    "boolean": bool,
}

java_headers = pytest.mark.parametrize(
    "java", [pytest.param(java, id=java.header.__name__) for java in JAVA_HEADERS]
)


def test_every_class_but_the_two_that_java_has_no_fields_for_has_a_counterpart() -> None:
    assert {java.header for java in JAVA_HEADERS} == set(ALL_CLASSES) - OWN_CLASSES - {
        EmptyHeader,
        SendMessageErrorResponse,
    }


def test_fields_of_ours_in_stock_headers_come_last_and_may_be_left_out() -> None:
    for header_class, name in OURS:
        *_, (last, info) = info_of(header_class).items()
        assert (last, info.default) == (name, None)


def known_fields(java: JavaHeader) -> list[JavaField]:
    return [field for field in java.fields if (java.header, field.name) not in LEFT_OUT]


@java_headers
def test_fields_have_the_names_and_types_of_the_java_class(java: JavaHeader) -> None:
    ours = {
        name: kind_of(info)
        for name, info in info_of(java.header).items()
        if name not in ADDED_BY_HAND and (java.header, name) not in OURS
    }
    assert ours == {field.name: KINDS[field.type] for field in known_fields(java)}


@java_headers
def test_fields_are_mandatory_or_have_the_defaults_of_the_java_class(java: JavaHeader) -> None:
    infos = info_of(java.header)
    for field in known_fields(java):
        info = infos[field.name]
        key = (java.header, field.name)
        initial = field.initial or {"int": "0", "long": "0", "boolean": "false"}.get(field.type)
        if key in MANDATORY_BESIDES:
            assert info.required, field.name
        elif initial is not None:
            assert info.default == json.loads(initial), field.name
            assert info.type == KINDS[field.type], field.name
        elif field.not_null and key not in OPTIONAL_IN_SPITE_OF_THE_MARK:
            assert info.required, field.name
        else:
            assert info.default is None, field.name


@java_headers
def test_fields_of_one_bucket_are_declared_in_the_order_java_puts_them_in(java: JavaHeader) -> None:
    """A HashMap keeps the fields of one bucket in insertion order, so that order shows in bytes.

    RocketMQ 4.9.8 RemotingCommand takes them from a HashSet of `java.lang.reflect.Field`, whose
    hash is the one of the declaring class's name xor the one of its own name.
    """
    names = {string_hash(f.declaring_class) ^ string_hash(f.name): f.name for f in java.fields}
    put = [names[hash_code] for hash_code in hash_map_order(list(names))]
    declared = [name for name in info_of(java.header) if (java.header, name) not in OURS]
    for first, second in combinations(declared, 2):
        share_a_bucket = hash_map_order([first, second]) != hash_map_order([second, first])
        if share_a_bucket:
            assert not {first, second} & ADDED_BY_HAND
            assert put.index(first) < put.index(second)


@pytest.mark.parametrize(
    "header_class",
    [pytest.param(header_class, id=header_class.__name__) for header_class in FIXED_ORDER],
)
def test_the_four_fast_classes_are_written_in_their_fixed_order(header_class: type[Header]) -> None:
    command = sent(full_ext(header_class), Serialization.ROCKETMQ)
    frame = encode_frame(
        code=0,
        header=command.header(header_class),
        extra={"ReqT": "0"},
        serialization=Serialization.ROCKETMQ,
    )
    assert list(decode(frame).ext_fields) == [*FIXED_ORDER[header_class].split(), "ReqT"]


def test_no_other_class_has_a_fixed_order() -> None:
    assert {c for c in ALL_CLASSES if c.declared_order} == set(FIXED_ORDER)
