"""JSON bodies that are refused, and the words for it."""

from __future__ import annotations

import msgspec
import pytest

from rmq.errors import ProtocolError
from rmq.remoting.bodies import (
    Body,
    BodyError,
    ConsumeMessageDirectlyResult,
    ConsumeStatus,
    DataVersion,
    DelayOffsetSerializeWrapper,
    GroupList,
    HeartbeatData,
    KVTable,
    LockBatchRequestBody,
    RegisterBrokerBody,
    ResetOffsetBody,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicRouteData,
)
from rmq.remoting.bodies.reading import reader_of
from rmq.remoting.bodies.registration_steps import read_registration
from tests.stepping import finish


def test_a_value_that_contains_itself_is_refused() -> None:
    text = b'{"brokerDatas":[{"brokerName":"a","brokerAddrs":{"$ref":"$"}}]}'

    with pytest.raises(BodyError, match=r"brokerAddrs\.brokerDatas: expected str, found a list"):
        TopicRouteData.decode(text)


@pytest.mark.parametrize(
    ("body_class", "text", "message"),
    [
        pytest.param(
            TopicConfigSerializeWrapper,
            '{"topicConfigTable":{"T":{"topicName":"T","perm":"rw"}}}',
            "TopicConfigSerializeWrapper: $.topicConfigTable.T.perm:"
            " expected int of 32 bits, found 'rw'",
            id="text for a number",
        ),
        pytest.param(
            TopicConfig,
            '{"topicName":"T","readQueueNums":2147483648}',
            "TopicConfig: $.readQueueNums: expected int of 32 bits, found 2147483648",
            id="a number too large for a Java int",
        ),
        pytest.param(
            DataVersion,
            '{"counter":1' + "0" * 40 + "}",
            "DataVersion: $.counter: expected int of 64 bits, found a number of more than 64 bits",
            id="a number too large for anything",
        ),
        pytest.param(
            DataVersion,
            '{"counter":1.5}',
            "DataVersion: $.counter: expected int of 64 bits, found 1.5",
            id="a decimal for an integer",
        ),
        pytest.param(
            ConsumeStatus,
            '{"pullRT":"fast"}',
            "ConsumeStatus: $.pullRT: expected float, found 'fast'",
            id="text for a decimal",
        ),
        pytest.param(
            ConsumeStatus,
            '{"pullTPS":%s}' % ("9" * 400),
            "ConsumeStatus: $.pullTPS: expected float, found a number of more than 64 bits",
            id="a decimal out of range",
        ),
        pytest.param(
            SubscriptionGroupConfig,
            '{"groupName":"g","consumeEnable":"maybe"}',
            "SubscriptionGroupConfig: $.consumeEnable: expected bool, found 'maybe'",
            id="text for a boolean",
        ),
        pytest.param(
            HeartbeatData,
            '{"clientID":{"a":1}}',
            "HeartbeatData: $.clientID: expected str, found an object",
            id="an object for text",
        ),
        pytest.param(
            HeartbeatData,
            '{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":'
            '[{"topic":"A"},{"subString":"*"}]}]}',
            "HeartbeatData: $.consumerDataSet[0].subscriptionDataSet[1].topic: is missing",
            id="a missing name",
        ),
        pytest.param(
            HeartbeatData,
            '{"clientID":null}',
            "HeartbeatData: $.clientID: is missing",
            id="null for a name",
        ),
        pytest.param(
            HeartbeatData,
            '{"clientID":"c","consumerDataSet":{}}',
            "HeartbeatData: $.consumerDataSet: expected a list, found an object",
            id="an object for a list",
        ),
        pytest.param(
            GroupList,
            '{"groupList":["a",null]}',
            "GroupList: $.groupList[1]: a list has no place for null",
            id="null inside a list",
        ),
        pytest.param(
            KVTable,
            '{"table":[]}',
            "KVTable: $.table: expected an object, found a list",
            id="a list for an object",
        ),
        pytest.param(
            ConsumeMessageDirectlyResult,
            '{"consumeResult":6}',
            "ConsumeMessageDirectlyResult: $.consumeResult: expected name of a CMResult, found 6",
            id="an enum position beyond the last",
        ),
        pytest.param(
            DelayOffsetSerializeWrapper,
            '{"offsetTable":{"one":1}}',
            "DelayOffsetSerializeWrapper: $.offsetTable.one: expected int of 32 bits, found 'one'",
            id="a key that is no number",
        ),
        pytest.param(
            DelayOffsetSerializeWrapper,
            '{"offsetTable":{"":1}}',
            "DelayOffsetSerializeWrapper: $.offsetTable.: expected a key, found ''",
            id="an empty key where numbers belong",
        ),
        pytest.param(
            ResetOffsetBody,
            '{"offsetTable":{"{]":1}}',
            "ResetOffsetBody: $.offsetTable.{]: expected an object as key, found '{]'",
            id="a key that is no object",
        ),
        pytest.param(
            ResetOffsetBody,
            '{"offsetTable":{{"topic":"T","brokerName":"a"}:1}}',
            'ResetOffsetBody: $.offsetTable.{"brokerName":"a","topic":"T"}.queueId: is missing',
            id="half a queue as key",
        ),
        pytest.param(
            KVTable,
            '{"table":{"%s":[]}}' % ("k" * 500),
            f"KVTable: $.table.{'k' * 59}…: expected str, found a list",
            id="a very long key",
        ),
        pytest.param(
            KVTable, "[1]", "KVTable: $: expected an object, found a list", id="a list at the top"
        ),
        pytest.param(
            KVTable, "null", "KVTable: $: expected an object, found null", id="null at the top"
        ),
        pytest.param(
            KVTable,
            '{"table":{"a":%s}}' % ("1" * 5000),
            "malformed JSON at character 14: number out of range",
            id="a number longer than Python reads",
        ),
        pytest.param(
            KVTable,
            '{"table":{"a":"b"',
            "malformed JSON at character 17: unexpected end",
            id="half a body",
        ),
        pytest.param(
            KVTable,
            '{"x":' + "[" * 200_000 + "]" * 200_000 + "}",
            "malformed JSON at character 68: more than 64 levels",
            id="deep nesting where nobody looks",
        ),
    ],
)
def test_refused_forms_name_the_body_and_the_member(
    body_class: type[Body], text: str, message: str
) -> None:
    with pytest.raises(ProtocolError) as caught:
        body_class.decode(text.encode())

    assert str(caught.value) == message


@pytest.mark.parametrize("data", [None, b""], ids=["none", "empty"])
def test_a_missing_body_is_refused_unless_stock_peers_take_it_for_the_defaults(
    data: bytes | None,
) -> None:
    with pytest.raises(BodyError, match=r"^KVTable: \$: there is no body$"):
        KVTable.decode(data)
    assert RegisterBrokerBody.decode(data) == RegisterBrokerBody()
    assert finish(read_registration(data, compressed=True)) == RegisterBrokerBody()


@pytest.mark.parametrize("kind", [int, bytes, list[str], dict[str, int]], ids=str)
def test_a_member_of_a_type_without_rules_is_refused_when_the_reader_is_built(kind: object) -> None:
    struct = msgspec.defstruct("Odd", [("member", kind)])

    with pytest.raises(TypeError, match="cannot be part of a body"):
        reader_of(struct)


def test_facts_of_an_error_are_attributes() -> None:
    with pytest.raises(BodyError) as caught:
        LockBatchRequestBody.decode(b'{"clientId":"c","consumerGroup":"g","mqSet":[5]}')

    assert caught.value.body == "LockBatchRequestBody"
    assert caught.value.path == "$.mqSet[0]"
    assert caught.value.reason == "expected an object, found 5"
