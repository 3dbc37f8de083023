"""How JSON bodies are read and written: the forms that are tolerated, and the one written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rmq.errors import MalformedJsonError
from rmq.model.queues import MessageQueue
from rmq.remoting.bodies import (
    Body,
    BodyError,
    BrokerData,
    CheckClientRequestBody,
    ClusterInfo,
    CMResult,
    Connection,
    ConsumeMessageDirectlyResult,
    ConsumerConnection,
    ConsumerOffsetSerializeWrapper,
    ConsumerRunningInfo,
    ConsumeStats,
    DelayOffsetSerializeWrapper,
    GroupList,
    KVTable,
    MessageModel,
    MessageQueueForC,
    OffsetWrapper,
    ProducerTableInfo,
    QueueData,
    ResetOffsetBody,
    ResetOffsetBodyForC,
    SubscriptionData,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicFilterType,
    TopicRouteData,
    TopicStatsTable,
    decode_reset_offset,
)
from rmq.remoting.codes import LanguageCode

if TYPE_CHECKING:
    from collections.abc import Callable

QUEUE = MessageQueue(topic="T", broker_name="a", queue_id=3)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            '{"offsetTable":{"T@g":{0:12,1:-13}}}',
            ConsumerOffsetSerializeWrapper(offset_table={"T@g": {0: 12, 1: -13}}),
            id="bare integer keys",
        ),
        pytest.param(
            '{"offsetTable":{"T@g":{"0":12,"1":-13}}}',
            ConsumerOffsetSerializeWrapper(offset_table={"T@g": {0: 12, 1: -13}}),
            id="quoted integer keys",
        ),
        pytest.param(
            '{"offsetTable":{"{0:x,1:":{0:12}}}',
            ConsumerOffsetSerializeWrapper(offset_table={"{0:x,1:": {0: 12}}),
            id="a string that looks like bare keys",
        ),
        pytest.param(
            '{offsetTable:{ 1 :"100", 2:7 ,, },}',
            DelayOffsetSerializeWrapper(offset_table={1: 100, 2: 7}),
            id="bare names, blanks, stray commas and a quoted number",
        ),
        pytest.param(
            '{"offsetTable":{{"brokerName":"a","queueId":3,"topic":"T"}:{"maxOffset":9}}}',
            TopicStatsTable.decode(
                b'{"offsetTable":{"{\\"topic\\":\\"T\\",\\"queueId\\":3,\\"brokerName\\":\\"a\\"}"'
                b':{"maxOffset":9}}}'
            ),
            id="raw objects and quoted objects as keys",
        ),
        pytest.param(
            '{"offsetTable":{{"brokerName":"a","queueId":"3","topic":"T"}:"5"}}',
            ResetOffsetBody(offset_table={QUEUE: 5}),
            id="a quoted number inside an object key",
        ),
        pytest.param(
            '{"order":"true","perm":"7","readQueueNums":8.0,"topicName":12,"topicSysFlag":""}',
            TopicConfig(topic_name="12", read_queue_nums=8, perm=7, order=True),
            id="numbers and booleans as text, text as a number",
        ),
        pytest.param(
            '{"consumeEnable":0,"consumeBroadcastEnable":"FALSE","groupName":true}',
            SubscriptionGroupConfig(
                group_name="true", consume_enable=False, consume_broadcast_enable=False
            ),
            id="booleans as numbers and in capitals, text as a boolean",
        ),
        pytest.param(
            '{"consumeTps":"1.5e3","offsetTable":{}}',
            ConsumeStats(consume_tps=1500.0),
            id="a decimal as text",
        ),
        pytest.param(
            '{"consumeTps":"","offsetTable":{}}',
            ConsumeStats(),
            id="an empty text where a decimal belongs",
        ),
        pytest.param(
            '{"consumeTps":2,"offsetTable":null}',
            ConsumeStats(consume_tps=2.0),
            id="an integer where a decimal belongs, null where a table does",
        ),
        pytest.param(
            '{"table":{"a":1.50,"b":null}}',
            KVTable(table={"a": "1.5"}),
            id="a decimal as text, null in a table",
        ),
        pytest.param(
            '{"topicFilterType":null,"topicName":"T","perm":null,"x":{"y":[1]}}',
            TopicConfig(topic_name="T"),
            id="null keeps the default, unknown members are ignored",
        ),
        pytest.param(
            '{"topicFilterType":"THREE_TAGS","topicName":"T"}',
            TopicConfig(topic_name="T", topic_filter_type=None),
            id="an unknown enum name is None",
        ),
        pytest.param(
            '{"consumeResult":3}',
            ConsumeMessageDirectlyResult(consume_result=CMResult.CR_COMMIT),
            id="an enum by position",
        ),
        pytest.param(
            "{'connectionSet':[{'clientId':'c','language':'GO','version':409},{'language':'COBOL'}]"
            ",'messageModel':'BROADCASTING'}",
            ConsumerConnection(
                connection_set=(
                    Connection(client_id="c", language=LanguageCode.GO, version=409),
                    Connection(),
                ),
                message_model=MessageModel.BROADCASTING,
            ),
            id="languages by name, single quotes",
        ),
        pytest.param(
            '{"groupList":["a","b","a"]}',
            GroupList(group_list=frozenset({"a", "b"})),
            id="an item twice in a set",
        ),
        pytest.param(
            '{"subscriptionData":{"topic":"T","codeSet":["5"],"tagsSet":[7]}}',
            CheckClientRequestBody(
                subscription_data=SubscriptionData(
                    topic="T", code_set=frozenset({5}), tags_set=frozenset({"7"})
                )
            ),
            id="numbers as text inside sets, and the reverse",
        ),
        pytest.param(
            '\ufeff{"table":{"k\\uD83D\\uDE00":"\\uD83D"}}',
            KVTable(table={"k\N{GRINNING FACE}": "?"}),
            id="a byte order mark and halves of surrogate pairs",
        ),
    ],
)
def test_tolerated_forms(text: str, expected: Body) -> None:
    assert type(expected).decode(text.encode()) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            '{"brokerDatas":[{"brokerAddrs":{0:"h:1"},"brokerName":"a"},'
            '{"$ref":"$.brokerDatas[0]"}],"queueDatas":[{"brokerName":"a"}]}',
            TopicRouteData(
                broker_datas=(BrokerData(broker_name="a", broker_addrs={0: "h:1"}),) * 2,
                queue_datas=(QueueData(broker_name="a"),),
            ),
            id="an item of a list",
        ),
        pytest.param(
            '{"brokerAddrTable":{"a":{"brokerAddrs":{0:"h:1"},"brokerName":"a"},'
            '"b":{"brokerAddrs":{"$ref":"$.brokerAddrTable.a.brokerAddrs"},"brokerName":"b"}}}',
            ClusterInfo(
                broker_addr_table={
                    "a": BrokerData(broker_name="a", broker_addrs={0: "h:1"}),
                    "b": BrokerData(broker_name="b", broker_addrs={0: "h:1"}),
                }
            ),
            id="a table inside a table",
        ),
        pytest.param(
            '{"data":{"g":[{"clientId":"c"}],"h":{"$ref":"$.data.g"}}}',
            ProducerTableInfo.decode(b'{"data":{"g":[{"clientId":"c"}],"h":[{"clientId":"c"}]}}'),
            id="a list",
        ),
    ],
)
def test_references_are_replaced_by_what_they_name(text: str, expected: Body) -> None:
    assert type(expected).decode(text.encode()) == expected


@pytest.mark.parametrize("decode", [ResetOffsetBody.decode, decode_reset_offset])
def test_a_reset_is_read_in_the_form_for_java(
    decode: Callable[[bytes | None], ResetOffsetBody],
) -> None:
    text = b'{"offsetTable":{{"brokerName":"a","queueId":3,"topic":"T"}:7}}'

    assert decode(text) == ResetOffsetBody(offset_table={QUEUE: 7})
    assert decode(text).encode() == text


def test_a_reset_is_read_in_the_form_for_other_clients() -> None:
    text = b'{"offsetTable":[{"brokerName":"a","offset":7,"queueId":3,"topic":"T"}]}'
    row = MessageQueueForC(topic="T", broker_name="a", queue_id=3, offset=7)

    assert ResetOffsetBodyForC.decode(text) == ResetOffsetBodyForC(offset_table=(row,))
    assert ResetOffsetBodyForC.decode(text).encode() == text
    assert decode_reset_offset(text) == ResetOffsetBody(offset_table={QUEUE: 7})


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(
            b'{"offsetTable":5}',
            "ResetOffsetBody: $.offsetTable: expected an object, found 5",
            id="neither form",
        ),
        pytest.param(None, "ResetOffsetBody: $: there is no body", id="no body"),
        pytest.param(b"{", "malformed JSON at character 1: unexpected end", id="no JSON"),
    ],
)
def test_a_reset_in_neither_form_is_refused(data: bytes | None, message: str) -> None:
    with pytest.raises((BodyError, MalformedJsonError)) as caught:
        decode_reset_offset(data)

    assert str(caught.value) == message


def test_beans_are_written_sorted_without_nulls_and_with_empty_collections() -> None:
    assert ConsumerRunningInfo().encode() == (
        b'{"mqTable":{},"properties":{},"statusTable":{},"subscriptionSet":[]}'
    )
    assert ConsumeStats(offset_table={QUEUE: OffsetWrapper(broker_offset=5)}).encode() == (
        b'{"consumeTps":0.0,"offsetTable":{{"brokerName":"a","queueId":3,"topic":"T"}:'
        b'{"brokerOffset":5,"consumerOffset":0,"lastTimestamp":0}}}'
    )
    assert TopicConfig(topic_name="T", topic_filter_type=TopicFilterType.MULTI_TAG).encode() == (
        b'{"order":false,"perm":6,"readQueueNums":16,"topicFilterType":"MULTI_TAG",'
        b'"topicName":"T","topicSysFlag":0,"writeQueueNums":16}'
    )


def test_integer_keys_are_bare_unless_standard_json_is_asked_for() -> None:
    route = TopicRouteData(
        broker_datas=(BrokerData(cluster="c", broker_name="a", broker_addrs={0: "h:1", 1: "h:2"}),)
    )
    start, end = (
        b'{"brokerDatas":[{"brokerAddrs":{',
        (b'},"brokerName":"a","cluster":"c"}],"filterServerTable":{},"queueDatas":[]}'),
    )

    assert route.encode() == start + b'0:"h:1",1:"h:2"' + end
    assert route.encode(standard=True) == start + b'"0":"h:1","1":"h:2"' + end


def test_a_number_that_a_client_never_set_is_read_all_the_same() -> None:
    """The C++ client sends 64 bits of whatever was in memory, without a sign."""
    body = ConsumerRunningInfo.decode(
        b'{"mqTable":{{"brokerName":"b","queueId":0,"topic":"t"}:'
        b'{"lastLockTimestamp":"11529351726658387200"}}}'
    )
    (info,) = body.mq_table.values()
    assert info.last_lock_timestamp == 11529351726658387200 - 2**64
