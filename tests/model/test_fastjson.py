"""Reading and writing, against bytes of RocketMQ and answers of fastjson 1.2.69."""

from __future__ import annotations

import contextlib
import enum
import time
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rmq.errors import MalformedJsonError
from rmq.model.fastjson import MAX_DEPTH, JsonValue, dumps, dumps_in_steps, loads, pretty
from tests.stepping import count_steps, finish

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable


class Topic(str):
    __slots__ = ()


class Offset(int):
    pass


class MessageQueue(msgspec.Struct, frozen=True, rename="camel"):
    topic: str
    broker_name: str
    queue_id: int


HEARTBEAT = (
    b'{"clientID":"192.0.2.2@11020#1469354060455","consumerDataSet":[{"consumeFromWhere":'
    b'"CONSUME_FROM_FIRST_OFFSET","consumeType":"CONSUME_PASSIVELY","groupName":"golden_push",'
    b'"messageModel":"CLUSTERING","subscriptionDataSet":[{"classFilterMode":false,"codeSet":[],'
    b'"expressionType":"TAG","subString":"*","subVersion":1794797307706,"tagsSet":[],"topic":'
    b'"%RETRY%golden_push"},{"classFilterMode":false,"codeSet":[2598919,2598920],"expressionType":'
    b'"TAG","subString":"TagA || TagB","subVersion":1794797308302,"tagsSet":["TagA","TagB"],'
    b'"topic":"GoldenTopic"}],"unitMode":false}],"producerDataSet":[{"groupName":'
    b'"CLIENT_INNER_PRODUCER"}]}'
)
ROUTE = (
    b'{"brokerDatas":[{"brokerAddrs":{"0":"127.0.0.1:10911","1":"127.0.0.1:10921"},"brokerName":'
    b'"broker-golden","cluster":"GoldenCluster"}],"filterServerTable":{},"queueDatas":[{'
    b'"brokerName":"broker-golden","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4'
    b"}]}"
)
CLUSTER_INFO = (
    b'{"brokerAddrTable":{"broker-golden":{"brokerAddrs":{0:"127.0.0.1:10911",'
    b'1:"127.0.0.1:10921"},"brokerName":"broker-golden","cluster":"GoldenCluster"}},'
    b'"clusterAddrTable":{"GoldenCluster":["broker-golden"]}}'
)
CONSUME_STATS = (
    b'{"consumeTps":0.0,"offsetTable":{{"brokerName":"broker-golden","queueId":0,"topic":'
    b'"%RETRY%golden_push"}:{"brokerOffset":2,"consumerOffset":2,"lastTimestamp":1794797318421},'
    b'{"brokerName":"broker-golden","queueId":3,"topic":"GoldenTopic"}:{"brokerOffset":8,'
    b'"consumerOffset":5,"lastTimestamp":1794797299086}}}'
)
TOPICS_FILE = (
    b'{\n\t"dataVersion":{\n\t\t"counter":15,\n\t\t"timestamp":1794798079404\n\t},\n'
    b'\t"topicConfigTable":{\n\t\t"%RETRY%golden_lite":{\n\t\t\t"order":false,\n\t\t\t"perm":6,\n'
    b'\t\t\t"readQueueNums":1,\n\t\t\t"topicFilterType":"SINGLE_TAG",\n'
    b'\t\t\t"topicName":"%RETRY%golden_lite",\n\t\t\t"topicSysFlag":0,\n'
    b'\t\t\t"writeQueueNums":1\n\t\t}\n\t}\n}'
)
CONSUMER_OFFSET_FILE = (
    b'{\n\t"offsetTable":{\n\t\t"GoldenTopic@golden_lite":{0:9,1:6,2:13,3:6\n\t\t},\n'
    b'\t\t"%RETRY%golden_orderly@golden_orderly":{0:0\n\t\t}\n\t}\n}'
)
DELAY_OFFSET_FILE = b'{\n\t"offsetTable":{1:3,2:3,3:2\n\t}\n}'
CONSUMER_FILTER_FILE = (
    b'{\n\t"filterDataByTopic":{\n\t\t"GoldenTopic":{\n\t\t\t"groupFilterData":{\n'
    b'\t\t\t\t"golden_sql":{\n\t\t\t\t\t"bloomFilterData":{\n\t\t\t\t\t\t"bitNum":112,\n'
    b'\t\t\t\t\t\t"bitPos":[56,55,89]\n\t\t\t\t\t},\n\t\t\t\t\t"bornTime":1794797418021,\n'
    b'\t\t\t\t\t"dead":true,\n\t\t\t\t\t"expression":"color = \'blue\' AND n BETWEEN 40 AND 50"\n'
    b'\t\t\t\t}\n\t\t\t},\n\t\t\t"topic":"GoldenTopic"\n\t\t}\n\t}\n}'
)
BODIES = [HEARTBEAT, CLUSTER_INFO, CONSUME_STATS]
FILES = [TOPICS_FILE, CONSUMER_OFFSET_FILE, DELAY_OFFSET_FILE, CONSUMER_FILTER_FILE]


def with_java_keys(value: JsonValue) -> object:
    """Give maps back the number and MessageQueue keys that `loads` turned into text."""
    if isinstance(value, list):
        return [with_java_keys(item) for item in value]
    if isinstance(value, dict):
        return {java_key(key): with_java_keys(member) for key, member in value.items()}
    return value


def java_key(key: str) -> Hashable:
    if key.startswith("{"):
        return msgspec.convert(loads(key), MessageQueue)
    return int(key) if key.isdecimal() else key


# --- bytes of the real system --------------------------------------------------------------------


@pytest.mark.parametrize("body", BODIES, ids=["heartbeat", "number keys", "object keys"])
def test_a_captured_body_is_written_as_it_was_read(body: bytes) -> None:
    assert dumps(with_java_keys(loads(body))) == body


@pytest.mark.parametrize("file", FILES, ids=["topics", "offsets", "delays", "filters"])
def test_a_config_file_of_the_broker_is_written_as_it_was_read(file: bytes) -> None:
    assert pretty(with_java_keys(loads(file))) == file


def test_a_captured_route_answer_is_in_the_standard_form() -> None:
    assert dumps(with_java_keys(loads(ROUTE)), standard=True) == ROUTE
    assert dumps(loads(ROUTE)) == ROUTE


def test_beans_with_sets_and_enums_give_the_bytes_of_a_java_client() -> None:
    class ConsumeType(enum.Enum):
        CONSUME_PASSIVELY = "push"

    class FilterType(enum.IntEnum):
        SINGLE_TAG = 0

    class SubscriptionData(msgspec.Struct, rename="camel"):
        topic: str
        tags_set: set[str]
        code_set: frozenset[int]
        filter_type: FilterType
        consume_type: ConsumeType
        filter_class_source: str | None = None
        extra: str | msgspec.UnsetType = msgspec.UNSET

    subscription = SubscriptionData(
        topic="GoldenTopic",
        tags_set={"TagB", "TagA"},
        code_set=frozenset({2598920, 2598919}),
        filter_type=FilterType.SINGLE_TAG,
        consume_type=ConsumeType.CONSUME_PASSIVELY,
    )
    assert dumps(subscription) == (
        b'{"codeSet":[2598919,2598920],"consumeType":"CONSUME_PASSIVELY","filterType":"SINGLE_TAG",'
        b'"tagsSet":["TagA","TagB"],"topic":"GoldenTopic"}'
    )


# --- reading -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{1:2,-3:4,01:5}", {"1": 5, "-3": 4}),
        ("{1.5:3}", {"1.5": 3}),
        ("{a:1,b_2:2,null:3,测:4}", {"a": 1, "b_2": 2, "null": 3, "测": 4}),
        ("{'a':'b\\'c\"'}", {"a": "b'c\""}),
        ('{"b":"x\\ty","a":1}', {"b": "x\ty", "a": 1}),
        ('{,"a":1,,"b":[,1,,2,],}', {"a": 1, "b": [1, 2]}),
        ("[,]", []),
        ("{,}", {}),
        ('{{"b":1,"a":"é"}:3}', {'{"a":"é","b":1}': 3}),
        ('{{"b":1, a:{z:"/",y:[null]}}:3}', {'{"a":{"y":[null],"z":"/"},"b":1}': 3}),
        ("{[1,2]:3}", {"[1,2]": 3}),
        ("[1e5,-1E+2,1.5e-3,-0.5]", [1e5, -1e2, 1.5e-3, -0.5]),
        ("[12345678901234567890,01]", [12345678901234567890, 1]),
        ("[NaN,undefined,null,true,false]", [None, None, None, True, False]),
        ("// c\n[1/* , ** /x*/,2]//", [1, 2]),
        ('\ufeff{"a":1}', {"a": 1}),
        (' \t\r\n\f\b"a" ', "a"),
        ("12", 12),
        ("['\\x41\\u00e9\\/\\v\\F\\0\\7']", ["Aé/\v\f\0\7"]),
        ('["a\nb\x01"]', ["a\nb\x01"]),
        ("['\\ud83d\\ude00']", ["😀"]),
        ("{a:1,'a':2}", {"a": 2}),
    ],
)
def test_what_java_accepts_is_read_as_java_reads_it(text: str, expected: JsonValue) -> None:
    assert loads(text) == expected
    assert loads(text.encode()) == expected
    assert loads(memoryview(text.encode())) == expected


def test_an_object_key_and_a_string_with_the_same_json_are_one_key() -> None:
    raw = loads('{{"topic":"T","brokerName":"a","queueId":0}:12}')
    quoted = loads(b'{"{\\"brokerName\\":\\"a\\",\\"queueId\\":0,\\"topic\\":\\"T\\"}":12}')
    assert raw == quoted == {'{"brokerName":"a","queueId":0,"topic":"T"}': 12}


@pytest.mark.parametrize("text", ["['\\ud800']", '["\\udc00"]', '["\ud800"]'])
def test_half_a_surrogate_pair_becomes_a_question_mark_as_java_writes_it(text: str) -> None:
    assert loads(text) == ["?"]


def test_broken_utf8_is_replaced() -> None:
    assert loads(b'{"a\xff":"\xc3(\xe6\xb5"}') == {"a\ufffd": "\ufffd(\ufffd"}


@pytest.mark.parametrize(
    ("text", "position"),
    [
        pytest.param("", 0, id="empty"),
        pytest.param(" \n", 2, id="blank"),
        pytest.param('{"a":1', 6, id="unclosed object"),
        pytest.param("[1,", 3, id="unclosed list"),
        pytest.param('["abc', 1, id="unclosed string"),
        pytest.param("['abc\\'", 1, id="unclosed single-quoted string"),
        pytest.param("[1,/*", 3, id="unclosed comment"),
        pytest.param('{"a":1}x', 7, id="garbage"),
        pytest.param('{"a":1},', 7, id="comma after the value"),
        pytest.param("[1]]", 3, id="one bracket too many"),
        pytest.param("[1}", 2, id="wrong bracket"),
        pytest.param("{1]", 2, id="key and wrong bracket"),
        pytest.param('{"a"}', 4, id="key without value"),
        pytest.param('{"a":}', 5, id="colon without value"),
        pytest.param('{"a":,}', 5, id="colon and comma"),
        pytest.param("{:1}", 1, id="value without key"),
        pytest.param('{"a":1 "b":2}', 7, id="missing comma in an object"),
        pytest.param("[1 2]", 3, id="missing comma in a list"),
        pytest.param("[1:2]", 2, id="colon in a list"),
        pytest.param("[nul]", 1, id="unknown word"),
        pytest.param("[Infinity]", 1, id="infinity"),
        pytest.param("[1.]", 1, id="number without fraction"),
        pytest.param("[1.5.2]", 1, id="number with two points"),
        pytest.param("[1e]", 1, id="number without exponent"),
        pytest.param("[-]", 1, id="minus"),
        pytest.param("[1e999]", 1, id="decimal out of range"),
        pytest.param("[" + "9" * 5000 + "]", 1, id="integer out of range"),
        pytest.param("{" + "9" * 5000 + ":1}", 1, id="key out of range"),
        pytest.param("['ab\\q']", 4, id="unknown escape"),
        pytest.param("['\\u12']", 2, id="short escape"),
        pytest.param("{{{}:1}:2}", 2, id="key in a key"),
        pytest.param('[[1],{{"a":{"$ref":"$[0]"}}:2}]', 6, id="reference in a key"),
        pytest.param('[[1],{{"$ref":"$[0]"}:2}]', 6, id="reference as a key"),
    ],
)
def test_everything_else_is_refused_with_its_position(text: str, position: int) -> None:
    with pytest.raises(MalformedJsonError) as caught:
        loads(text)
    assert caught.value.position == position
    with pytest.raises(MalformedJsonError):
        loads(text.encode())


@pytest.mark.parametrize(
    "nested",
    [
        pytest.param(lambda depth: "[" * depth + "]" * depth, id="lists"),
        pytest.param(lambda depth: '{"a":' * depth + "1" + "}" * depth, id="objects"),
        pytest.param(lambda depth: "['a'," * depth + "]" * depth, id="tolerant"),
        pytest.param(
            # The brackets in strings must not hide the real ones from the depth check.
            lambda depth: '["]",' * depth + "1" + ',"["]' * depth,
            id="brackets in strings",
        ),
    ],
)
def test_nesting_is_read_up_to_the_limit_and_refused_beyond(nested: Callable[[int], str]) -> None:
    assert loads(nested(MAX_DEPTH))
    assert loads(nested(3), max_depth=3) == loads(nested(3))
    with pytest.raises(MalformedJsonError, match="more than 64 levels"):
        loads(nested(MAX_DEPTH + 1))
    with pytest.raises(MalformedJsonError, match="more than 3 levels"):
        loads(nested(4), max_depth=3)
    with pytest.raises(MalformedJsonError, match="more than 64 levels"):
        loads(nested(5000))


def test_many_containers_side_by_side_are_not_deep() -> None:
    assert loads("[" + "[{}]," * 1000 + "[]]") == [[{}]] * 1000 + [[]]


# --- references ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a":[1],"b":{"$ref":"$.a"}}', {"a": [1], "b": [1]}),
        ('{"b":{"$ref":"$.a"},"a":[1]}', {"b": [1], "a": [1]}),
        ('{"a":[[7],{"$ref":"$.a[0]"}]}', {"a": [[7], [7]]}),
        ('{"a":{"q":5},"b":{"$ref":"$.a.q"}}', {"a": {"q": 5}, "b": 5}),
        (
            '{"a":{"%x.y[\\\\":[1]},"b":{"$ref":"$.a.\\\\%x\\\\.y\\\\[\\\\\\\\"}}',
            {"a": {"%x.y[\\": [1]}, "b": [1]},
        ),
        ('{"a":{1:[5]},"b":{"$ref":"$.a[1]"}}', {"a": {"1": [5]}, "b": [5]}),
        ('{"a":{1:[5]},"b":{"$ref":"$.a.1"}}', {"a": {"1": [5]}, "b": [5]}),
        ("{'a':[1],'b':{'$ref':'$.a'}}", {"a": [1], "b": [1]}),
        ('{"":[1],"b":{"$ref":"$."}}', {"": [1], "b": [1]}),
        # Through other references, in both directions.
        ('{"c":{"$ref":"$.b[0]"},"b":{"$ref":"$.a"},"a":[{"x":1}]}', None),
        ('{"a":[{"x":1}],"b":{"$ref":"$.a"},"c":{"$ref":"$.b[0]"}}', None),
        # Not a reference: at the root, beside other members, not a string.
        ('{"$ref":"$.a"}', {"$ref": "$.a"}),
        ('{"a":{"$ref":"$.x","c":1}}', {"a": {"$ref": "$.x", "c": 1}}),
        ('{"a":{"c":1,"$ref":"$.x"}}', {"a": {"c": 1, "$ref": "$.x"}}),
        ('{"a":{"$ref":5}}', {"a": {"$ref": 5}}),
        # Replaced by a later member of the same name.
        ('{"a":{"$ref":"$.b"},"b":[1],"a":2}', {"a": 2, "b": [1]}),
    ],
)
def test_a_reference_is_read_as_the_value_it_names(text: str, expected: JsonValue) -> None:
    assert loads(text) == (expected or {"a": [{"x": 1}], "b": [{"x": 1}], "c": {"x": 1}})


def test_a_referenced_value_is_shared_and_not_copied() -> None:
    value: Any = loads('{"a":{"x":[1]},"b":[{"$ref":"$.a"},{"$ref":"$.a.x"}]}')
    assert value["b"][0] is value["a"]
    assert value["b"][1] is value["a"]["x"]


def test_references_to_what_encloses_them_follow_their_writer() -> None:
    # "@" is written for the container that holds the reference, ".." for the one around that.
    value: Any = loads('{"a":{"b":{"$ref":"$"},"c":{"$ref":".."},"d":{"$ref":"@"}}}')
    assert value["a"]["b"] is value
    assert value["a"]["c"] is value
    assert value["a"]["d"] is value["a"]
    items: Any = loads('{"a":[{"$ref":".."},{"$ref":"@"},{"$ref":"$.a"}]}')
    assert items["a"][0] is items
    assert items["a"][1] is items["a"][2] is items["a"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param('{"a":{"$ref":"$.b"},"b":{"$ref":"$.a"}}', "circle", id="two in a circle"),
        pytest.param('{"a":{"$ref":"$.a"}}', "circle", id="itself"),
        pytest.param('{"a":{"$ref":"$.a.b"}}', "circle", id="inside itself"),
        pytest.param('{"a":{"$ref":"$.z"}}', "no value", id="unknown member"),
        pytest.param('{"a":[1,{"$ref":"$.a[2]"}]}', "no value", id="beyond the list"),
        pytest.param('{"a":[{"$ref":"$.a.b"}]}', "no value", id="member of a list"),
        pytest.param('{"a":"b","c":{"$ref":"$.a.b"}}', "no value", id="member of a string"),
        pytest.param('{"a":null,"c":{"$ref":"$.a[0]"}}', "no value", id="item of null"),
        pytest.param('{"a":{"$ref":".."}}', "no value", id="around the root"),
        pytest.param('{"a":{"$ref":""}}', "no value", id="empty"),
        pytest.param('{"a":{"$ref":"a"}}', "no value", id="no root"),
        pytest.param('{"a":{"$ref":"$a"}}', "no value", id="no separator"),
        pytest.param('{"a":[1,{"$ref":"$.a[0"}]}', "no value", id="open bracket"),
    ],
)
def test_a_reference_that_names_nothing_is_refused(text: str, reason: str) -> None:
    with pytest.raises(MalformedJsonError, match=reason):
        loads(text)


def chained_references(count: int) -> str:
    links = "".join(f'"a{i}":{{"$ref":"$.a{i + 1}"}},' for i in range(count))
    return f'{{{links}"a{count}":[1]}}'


def lists_of_references(levels: int, width: int, *, forward: bool = False) -> str:
    """Return lists that each hold the next smaller one `width` times: width ** levels values."""
    lists = ['"a0":[1]']
    for level in range(1, levels):
        items = [f'{{"$ref":"$.a{level - 1}"}}'] * width
        lists.append(f'"a{level}":[{",".join(items)}]')
    return "{" + ",".join(reversed(lists) if forward else lists) + "}"


@pytest.mark.parametrize("forward", [False, True])
def test_references_neither_deepen_nor_multiply_a_value_beyond_bounds(forward: bool) -> None:
    assert loads(lists_of_references(MAX_DEPTH - 1, 1, forward=forward))
    with pytest.raises(MalformedJsonError, match="more than 64 levels"):
        loads(lists_of_references(MAX_DEPTH, 1, forward=forward))
    assert loads(lists_of_references(14, 2, forward=forward))
    with pytest.raises(MalformedJsonError, match="too many values"):
        loads(lists_of_references(40, 2, forward=forward))


def test_references_to_references_are_followed_up_to_a_limit() -> None:
    assert loads(chained_references(MAX_DEPTH))
    with pytest.raises(MalformedJsonError, match="long chain"):
        loads(chained_references(MAX_DEPTH + 1))


# --- writing -------------------------------------------------------------------------------------

ODD_TEXT = 'a/b"c\\\b\t\n\v\f\r\0\x1f\x7f\x9f é测\u2028\u2029😀'


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (
            ODD_TEXT,
            '"a/b\\"c\\\\\\b\\t\\n\\u000B\\f\\r\\u0000\\u001F\\u007F\\u009F é测\\u2028\\u2029😀"',
        ),
        ({"b": 1, "a": None, "c": [None, True, False]}, '{"b":1,"c":[null,true,false]}'),
        ({0: "a", 1: {-2: 3}}, '{0:"a",1:{-2:3}}'),
        ([], "[]"),
        ({}, "{}"),
        ({"a": None}, "{}"),
        ((1, "b"), '[1,"b"]'),
        ([1.0, 1e10, 0.5, float("nan"), float("-inf")], "[1.0,1.0E10,0.5,null,null]"),
        (1 << 63, "9223372036854775808"),
        ({MessageQueue("T", "a", 0): 12}, '{{"brokerName":"a","queueId":0,"topic":"T"}:12}'),
        ({enum.Enum("Kind", "RED").RED: 1}, '{"RED":1}'),  # type: ignore[attr-defined]
        ({(1, 2), (1, 1)}, "[[1,1],[1,2]]"),
        ("\ud800", '"?"'),
        ({Topic("T"): Offset(5), Offset(6): Topic("U")}, '{"T":5,6:"U"}'),
    ],
)
def test_values_are_written_as_java_does(value: object, expected: str) -> None:
    assert dumps(value).decode() == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (
            ODD_TEXT,
            b'"a\\/b\\"c\\\\\\b\\t\\n\\u000B\\f\\r\\u0000\\u001F\\u007F\\u009F \\u00E9\\u6D4B'
            b'\\u2028\\u2029\\uD83D\\uDE00"',
        ),
        ({12: "v", 3: None, 1: "w", -1: "x"}, b'{"-1":"x","1":"w","12":"v"}'),
        ({"b": 1, "a": 2, "\uffff": 3, "😀": 4}, b'{"a":2,"b":1,"\\uD83D\\uDE00":4,"\\uFFFF":3}'),
        (
            {MessageQueue("T/é", "a", 0): 12},
            b'{"{\\"brokerName\\":\\"a\\",\\"queueId\\":0,\\"topic\\":\\"T\\/\\u00E9\\"}":12}',
        ),
        ({"b": 1, 0: 2}, b'{"b":1,"0":2}'),
    ],
)
def test_the_standard_form_is_ascii_with_quoted_and_sorted_keys(
    value: object, expected: bytes
) -> None:
    assert dumps(value, standard=True) == expected


def test_object_keys_are_indented_like_values_in_the_file_of_a_broadcast_consumer() -> None:
    offsets = {"offsetTable": {MessageQueue("T", "a", 0): 12, MessageQueue("T", "a", 1): 3}}
    assert pretty(offsets).decode() == (
        '{\n\t"offsetTable":{{\n\t\t\t"brokerName":"a",\n\t\t\t"queueId":0,\n\t\t\t"topic":"T"\n\t\t'
        '}:12,{\n\t\t\t"brokerName":"a",\n\t\t\t"queueId":1,\n\t\t\t"topic":"T"\n\t\t}:3\n\t}\n}'
    )


def test_lists_and_empty_values_are_laid_out_as_java_does() -> None:
    value = {"a": ["x", {}, []], "b": {}, "c": {"x", "y"}}
    assert pretty(value) == (
        b'{\n\t"a":[\n\t\t"x",\n\t\t{},\n\t\t[]\n\t],\n\t"b":{},\n\t"c":["x","y"]\n}'
    )


@pytest.mark.parametrize("value", [b"a", {"a": object()}, {True: 1}, {1.5: 1}, {None: 1}])
def test_what_has_no_json_form_is_refused(value: object) -> None:
    with pytest.raises(TypeError):
        dumps(value)


def test_a_value_that_contains_itself_is_not_written() -> None:
    with pytest.raises(ValueError, match="contains itself"):
        dumps(loads('{"a":{"$ref":"$"}}'))


# --- any input -----------------------------------------------------------------------------------

scalars = st.one_of(
    st.booleans(), st.integers(), st.text(), st.floats(allow_nan=False, allow_infinity=False)
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(st.none() | inner),
        st.dictionaries(st.text().filter(lambda key: key != "$ref"), inner),
    ),
)


@given(values)
def test_what_was_written_is_read_back(value: JsonValue) -> None:
    assert loads(dumps(value)) == value
    assert loads(dumps(value, standard=True)) == value
    assert loads(pretty(value)) == value


@given(values | st.frozensets(st.text()), st.booleans())
def test_what_is_written_in_steps_is_the_same(value: object, standard: bool) -> None:
    assert finish(dumps_in_steps(value, standard=standard)) == dumps(value, standard=standard)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param([f"topic-{number}" for number in range(20_000)], id="names"),
        pytest.param({"table": {str(number): "v" for number in range(20_000)}}, id="members"),
        pytest.param({"s": frozenset(map(str, range(20_000)))}, id="a set"),
        pytest.param([[{"a": [1, 2, 3]}] * 3_000], id="objects"),
        pytest.param({"text": '"' * 100_000}, id="one long text"),
    ],
)
def test_a_long_value_is_written_in_small_steps(value: object) -> None:
    written, steps = count_steps(dumps_in_steps(value))
    assert written == dumps(value)
    assert steps >= 20


@given(values)
def test_the_tolerant_parser_agrees_with_the_fast_one(value: JsonValue) -> None:
    # A stray comma is enough to keep a value off the fast path.
    assert loads(b"[" + dumps(value) + b",]") == [value]


@given(st.dictionaries(st.integers(), st.lists(st.integers())))
def test_number_keys_are_read_back_as_digits(table: dict[int, list[int]]) -> None:
    assert loads(dumps(table)) == {str(key): value for key, value in table.items()}


SEEDS = [
    *BODIES,
    *FILES,
    ROUTE,
    b'{"a":[{"b":1},{"$ref":"$.a[0]"}],\'c\':{"$ref":"$.a"},d:NaN,"e":{"$ref":".."}}',
    b'{"a":{"x.y":[1.5,2e3]},"b":{"$ref":"$.a.x\\\\.y"},/*c*/"c":"\\u0041\\x41\\ud800"}',
]
edits = st.lists(
    st.tuples(
        st.integers(0, 1 << 16),
        st.integers(0, 3),
        st.sampled_from([bytes([byte]) for byte in range(256)]) | st.sampled_from(SEEDS),
    ),
    min_size=1,
    max_size=6,
)


@given(st.sampled_from(SEEDS), edits)
@example(b'{"a":{"$ref":"$"}}', [(0, 0, b"")])
def test_any_damage_to_a_body_is_read_or_refused_and_never_crashes(
    body: bytes, edits: list[tuple[int, int, bytes]]
) -> None:
    for place, removed, added in edits:
        position = place % (len(body) + 1)
        body = body[:position] + added + body[position + removed :]
    with contextlib.suppress(MalformedJsonError):
        value = loads(body)
        # Whatever was read can be written, unless references made it contain itself.
        with contextlib.suppress(*[ValueError] if b"$ref" in body else []):
            dumps(value)


MEGABYTE = 1_000_000


@pytest.mark.parametrize(
    "unit",
    ["[", "{", '"', "'", "/*", "/", "\\", "-", "1", ",", " ", "a", "$", '{"a":', "{{}:", "{[", "é"],
)
def test_a_megabyte_of_anything_is_refused_quickly(unit: str) -> None:
    started = time.process_time()
    for prefix in ("", "[", '["', "{a:"):
        with pytest.raises(MalformedJsonError):
            loads(prefix + unit * (MEGABYTE // len(unit)))
    # Linear work takes a second at worst; going back over a megabyte takes hours.
    assert time.process_time() - started < 30


def test_a_long_text_has_to_be_standard_json_where_that_is_asked() -> None:
    standard, almost = b'{"a":"%b"}' % (b"x" * 100), b'{a:"%b"}' % (b"x" * 100)
    assert loads(standard, slow_bytes_max=100) == {"a": "x" * 100}
    assert loads(almost, slow_bytes_max=len(almost)) == {"a": "x" * 100}
    with pytest.raises(MalformedJsonError, match="106 bytes that are not standard JSON"):
        loads(almost, slow_bytes_max=100)
    broken = b'{"a":"%b"}' % (b"\xff" * 200)
    assert loads(broken, slow_bytes_max=100) == {"a": "\ufffd" * 200}
