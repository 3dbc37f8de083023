"""Decoding headers: what a stock peer would understand is read, everything else refused cleanly."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rmq.errors import HeaderError, RemoteProtocolError
from rmq.remoting.codes import LanguageCode, Serialization
from rmq.remoting.command import Command, encode_command
from rmq.remoting.headers import GetRouteInfoRequest
from rmq.remoting.layout import BinaryHeader, ExtEntry
from tests.remoting.drawn_commands import Parts, int32s, parts, texts
from tests.remoting.frames import RUNS, captured, receive, receive_one

examples = settings(max_examples=60)


def topic_of(command: Command) -> str:
    return command.header(GetRouteInfoRequest).topic


# --- JSON: as sent by anyone ----------------------------------------------------------------


def test_members_that_are_missing_have_the_defaults_of_the_original() -> None:
    command = receive_one(b"{}")
    assert (command.code, command.flag, command.opaque, command.version) == (0, 0, 0, 0)
    assert (command.remark, command.language, command.body) == (None, LanguageCode.JAVA, None)
    assert (command.ext_fields, command.has_ext_fields) == ({}, False)
    assert command.serialization is Serialization.JSON


READ: Final = [
    pytest.param(b'{"code":"105","opaque":"-7"}', {"code": 105, "opaque": -7}, id="quoted numbers"),
    pytest.param(b'{"code":1.0,"opaque":7e0}', {"code": 1, "opaque": 7}, id="whole decimals"),
    pytest.param(b'{"opaque":2147483647}', {"opaque": 2**31 - 1}, id="greatest number"),
    pytest.param(b'{"opaque":-2147483648}', {"opaque": -(2**31)}, id="least number"),
    pytest.param(
        b'{"code":null,"flag":null,"opaque":null,"version":null,"remark":null,"extFields":null}',
        {"code": 0, "flag": 0, "opaque": 0, "version": 0, "remark": None, "ext_fields": {}},
        id="nulls",
    ),
    pytest.param(
        b'{"x":[{"code":9}],"":{},"code":3,"body":"x","serializeTypeCurrentRPC":"ROCKETMQ"}',
        {"code": 3, "body": None, "serialization": Serialization.JSON},
        id="unknown members",
    ),
    pytest.param(b'{"code":1,"code":2}', {"code": 2}, id="a member twice"),
    pytest.param(b' { "code" : 5 } ', {"code": 5}, id="white space"),
    pytest.param(b"{code:5,'opaque':6,}", {"code": 5, "opaque": 6}, id="almost JSON"),
    pytest.param(b'\xef\xbb\xbf{"code":5}', {"code": 5}, id="byte order mark"),
    pytest.param(b'{"language":"GO"}', {"language": LanguageCode.GO}, id="language"),
    pytest.param(b'{"language":12}', {"language": LanguageCode.RUST}, id="language as a number"),
    pytest.param(b'{"language":"KOTLIN"}', {"language": None}, id="unknown language"),
    pytest.param(b'{"language":13}', {"language": None}, id="unknown number of a language"),
    pytest.param(b'{"language":-1}', {"language": None}, id="negative number of a language"),
    pytest.param(b'{"remark":5}', {"remark": "5"}, id="number for a remark"),
    pytest.param(b'{"remark":{"a":[1]}}', {"remark": '{"a":[1]}'}, id="object for a remark"),
    pytest.param(b'{"remark":"null"}', {"remark": "null"}, id="remark that says null"),
    pytest.param(b'{"remark":""}', {"remark": ""}, id="empty remark"),
    pytest.param(b'{"remark":"a\xffb"}', {"remark": "a\ufffdb"}, id="broken UTF-8"),
    pytest.param(b'{"remark":"\xf0\x9f\x98"}', {"remark": "\ufffd"}, id="cut UTF-8"),
    pytest.param(rb'{"remark":"\ud83d\ude00"}', {"remark": "\U0001f600"}, id="surrogate pair"),
    pytest.param(rb'{"remark":"a\ud83d"}', {"remark": "a?"}, id="half a surrogate pair"),
    pytest.param(b'{"extFields":{}}', {"ext_fields": {}, "has_ext_fields": True}, id="no fields"),
    pytest.param(b'{"extFields": null }', {"has_ext_fields": False}, id="null fields"),
    pytest.param(
        b'{"extFields":{"b":"1","a":2,"c":true,"d":null,"e":[1,"x"],"f":1.5}}',
        {"ext_fields": {"b": "1", "a": "2", "c": "true", "e": '[1,"x"]', "f": "1.5"}},
        id="fields that are no texts",
    ),
    pytest.param(b'{"extFields":{"a":"1","a":"2"}}', {"ext_fields": {"a": "2"}}, id="field twice"),
    pytest.param(b'{"extFields":{"":""}}', {"ext_fields": {"": ""}}, id="empty texts"),
    pytest.param(
        b'{"extFields":{"\xff":"\xfe"}}', {"ext_fields": {"\ufffd": "\ufffd"}}, id="bytes"
    ),
    pytest.param(rb'{"extFields":{"a":"\udc00"}}', {"ext_fields": {"a": "?"}}, id="surrogate"),
]


@pytest.mark.parametrize(("header", "expected"), READ)
def test_json_headers_are_read_as_the_original_reads_them(
    header: bytes, expected: dict[str, Any]
) -> None:
    command = receive_one(header)
    assert {name: getattr(command, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("header", "topic"),
    [
        pytest.param(b'{"extFields":{"topic":"\xff"}}', "\ufffd", id="broken UTF-8"),
        pytest.param(rb'{"extFields":{"topic":"\ud800"}}', "?", id="half a surrogate pair"),
        pytest.param(b'{"extFields":{"topic":7}}', "7", id="number"),
        pytest.param(b'{"extFields":{topic:"T",}}', "T", id="almost JSON"),
        pytest.param(b'{"extFields":{"topic":"A","topic":"B"}}', "B", id="twice"),
    ],
)
def test_typed_headers_are_read_as_tolerantly(header: bytes, topic: str) -> None:
    assert topic_of(receive_one(header)) == topic


NUMBERS: Final = int32s() | int32s().map(str) | st.none()
MEMBERS: Final = st.fixed_dictionaries(
    {},
    optional={
        "code": NUMBERS,
        "flag": NUMBERS,
        "opaque": NUMBERS,
        "version": NUMBERS,
        "remark": st.none() | texts() | st.integers(0, 9),
        "language": st.none() | st.sampled_from([*LanguageCode.__members__, "?", 3, 99]),
        "extFields": st.none()
        | st.dictionaries(texts(), st.none() | st.booleans() | int32s() | texts(), max_size=4),
        "other": st.none() | texts(),
    },
)


@examples
@example({"language": None})
@example({"code": "1", "opaque": None, "extFields": None})
@given(MEMBERS)
def test_one_stray_comma_changes_nothing_else(members: dict[str, Any]) -> None:
    """Two readers, a strict and a tolerant one, take turns; nobody should notice which."""
    strict = json.dumps(members, ensure_ascii=False).encode()
    tolerant = strict[:-1] + b",}"
    readings = []
    for header in (strict, tolerant):
        command = receive_one(header)
        numbers = (command.code, command.flag, command.opaque, command.version)
        fields = list(command.ext_fields.items())
        readings.append((numbers, command.remark, command.language, fields))
    assert readings[0] == readings[1]


# --- JSON: refused --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "header",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"null", id="null"),
        pytest.param(b"[]", id="list"),
        pytest.param(b"105", id="number"),
        pytest.param(b'"{}"', id="text"),
        pytest.param(b"{", id="unfinished"),
        pytest.param(b'{"code":1}}', id="one bracket too many"),
        pytest.param(b'{"code":1}{"code":2}', id="two objects"),
        pytest.param(b'{"code":}', id="no value"),
        pytest.param(b'{"code" 1}', id="no colon"),
        pytest.param(b'{"remark":"x}', id="unfinished text"),
        pytest.param(b"\0" * 20, id="zeros"),
        pytest.param(b"\xff" * 20, id="no text at all"),
        pytest.param(b'{"code":"x"}', id="text for a number"),
        pytest.param(b'{"code":1.5}', id="half a number"),
        pytest.param(b'{"code":[1]}', id="list for a number"),
        pytest.param(b'{"opaque":{}}', id="object for a number"),
        pytest.param(b'{"opaque":1e999}', id="infinite number"),
        pytest.param(b'{"opaque":' + b"9" * 10_000 + b"}", id="endless number"),
        pytest.param(b'{"opaque":"' + b"9" * 10_000 + b'"}', id="endless quoted number"),
        pytest.param(b'{"language":[]}', id="list for a language"),
        pytest.param(b'{extFields:["a"]}', id="list for fields, almost JSON"),
    ],
)
def test_json_headers_that_say_nothing_are_refused(header: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="malformed JSON header: ") as refusal:
        receive_one(header)
    assert len(str(refusal.value)) < 200


@pytest.mark.parametrize("name", ["code", "flag", "opaque", "version"])
def test_numbers_that_a_java_int_cannot_hold_are_refused(name: str) -> None:
    for number in (2**31, -(2**31) - 1, 2**63, 2**64, 10**30, 10**4000):
        for text in (b"%d" % number, b'"%d"' % number):
            with pytest.raises(RemoteProtocolError, match="malformed JSON header: "):
                receive_one(b'{"%b":%b}' % (name.encode(), text))


@pytest.mark.parametrize("fields", [b"[1]", b'"x"', b"5", b"true", b"1.5"])
def test_fields_that_are_no_object_are_refused_by_all_who_ask(fields: bytes) -> None:
    command = receive_one(b'{"extFields":%b}' % fields)
    for read in (lambda: command.ext_fields, lambda: topic_of(command)):
        with pytest.raises(HeaderError, match="extFields is not an object"):
            read()


@examples
@given(parts(Serialization.JSON), st.data())
def test_a_json_header_cut_anywhere_is_refused(drawn: Parts, data: st.DataObject) -> None:
    header = drawn.encode()[8:].removesuffix(drawn.body)
    size = data.draw(st.integers(0, len(header) - 1))
    with pytest.raises(RemoteProtocolError):
        receive_one(header[:size], drawn.body)


# --- binary ---------------------------------------------------------------------------------

FIXED: Final[dict[str, Any]] = {
    "code": 105,
    "language": 0,
    "version": 409,
    "opaque": 7,
    "flag": 0,
    "remark": b"",
    "ext": [],
}


def entry(key: bytes, value: bytes) -> bytes:
    return ExtEntry.build({"key": {"text": key}, "value": {"text": value}})


def binary(entries: bytes = b"", *, declared: int | None = None, **changed: object) -> bytes:
    """Return a binary header with these entries, and maybe another length declared for them."""
    fixed = BinaryHeader.build(FIXED | changed)[:-4]
    size = len(entries) if declared is None else declared
    return fixed + size.to_bytes(4, "big", signed=True) + entries


def receive_binary(header: bytes) -> Command:
    return receive_one(header, b"body", Serialization.ROCKETMQ)


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        pytest.param(b"", {}, id="none"),
        pytest.param(entry(b"b", b"1") + entry(b"a", b"2"), {"b": "1", "a": "2"}, id="order"),
        pytest.param(entry(b"a", b"1") + entry(b"a", b"2"), {"a": "2"}, id="last of two"),
        pytest.param(entry(b"a", b""), {}, id="empty value is no field"),
        pytest.param(entry(b"a", b"1") + entry(b"a", b""), {}, id="and takes the one before away"),
        pytest.param(entry(b"a", b"") + entry(b"a", b"1"), {"a": "1"}, id="but not the one behind"),
        pytest.param(entry(b"", b"1") + entry(b"a", b"2"), {"a": "2"}, id="empty key is no field"),
        pytest.param(entry(b"\xff", b"\xc3"), {"\ufffd": "\ufffd"}, id="broken UTF-8"),
        pytest.param(entry("é".encode(), "消息".encode()), {"é": "消息"}, id="UTF-8"),
    ],
)
def test_binary_fields_are_read_as_the_original_reads_them(
    entries: bytes, expected: dict[str, str]
) -> None:
    command = receive_binary(binary(entries))
    assert list(command.ext_fields.items()) == list(expected.items())
    assert command.has_ext_fields is bool(expected)
    assert (command.code, command.opaque, command.version) == (105, 7, 409)
    assert (command.remark, command.body) == (None, b"body")


def test_a_binary_length_of_fields_below_zero_means_none() -> None:
    assert receive_binary(binary(entry(b"a", b"1"), declared=-5)).ext_fields == {}


@pytest.mark.parametrize("number", [13, 127, -1, -128])
def test_an_unknown_language_byte_is_no_language(number: int) -> None:
    assert receive_binary(binary(language=number)).language is None


@pytest.mark.parametrize("language", LanguageCode)
def test_known_language_bytes_are_read(language: LanguageCode) -> None:
    assert receive_binary(binary(language=language)).language is language


def test_a_binary_remark_that_is_not_utf_8_is_read_with_replacements() -> None:
    assert receive_binary(binary(remark=b"a\xffb")).remark == "a\ufffdb"


def remark_length(length: int) -> bytes:
    header = bytearray(binary(remark=b"text"))
    header[13:17] = length.to_bytes(4, "big", signed=True)
    return bytes(header)


@pytest.mark.parametrize(
    "header",
    [
        pytest.param(remark_length(-1), id="remark of -1 bytes"),
        pytest.param(remark_length(-(2**31)), id="remark of the least length"),
        pytest.param(remark_length(9), id="remark up to the end"),
        pytest.param(remark_length(2**31 - 1), id="remark of the greatest length"),
        pytest.param(binary(declared=1), id="fields beyond the header"),
        pytest.param(binary(declared=2**31 - 1), id="fields of the greatest length"),
        pytest.param(binary(b"\xff\xff"), id="key of -1 bytes"),
        pytest.param(binary(b"\x80\x00" + bytes(50)), id="key of the least length"),
        pytest.param(binary(b"\x7f\xff" + bytes(50)), id="key beyond the header"),
        pytest.param(binary(b"\0\1a\xff\xff\xff\xff"), id="value of -1 bytes"),
        pytest.param(binary(b"\0\1a\0\0\0\2b"), id="value beyond the header"),
        pytest.param(binary(b"\0\1a\x7f\xff\xff\xff"), id="value of the greatest length"),
        pytest.param(binary(b"\0\1a\0\0\0\1bc", declared=7), id="value beyond the fields"),
        pytest.param(binary(b"\0\2ab\0\0\0\1c", declared=3), id="key beyond the fields"),
        pytest.param(binary(b"\0\1a"), id="key without a value"),
        pytest.param(binary(entry(b"a", b"1") + b"\0"), id="half a key length"),
    ],
)
def test_binary_headers_with_wrong_lengths_are_refused(header: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="binary header ") as refusal:
        receive_binary(header)
    assert len(str(refusal.value)) < 200


@examples
@given(parts(Serialization.ROCKETMQ))
def test_a_binary_header_cut_at_any_byte_is_refused(drawn: Parts) -> None:
    header = drawn.encode()[8:].removesuffix(drawn.body)
    for size in range(len(header)):
        with pytest.raises(RemoteProtocolError, match="binary header "):
            receive_binary(header[:size])


def test_captured_binary_headers_cut_at_any_byte_are_refused() -> None:
    for frame in captured("producer-binary"):
        header = frame.frame[8 : len(frame.frame) - frame.body_length]
        for size in range(len(header)):
            with pytest.raises(RemoteProtocolError, match="binary header "):
                receive_binary(header[:size])


# --- written again --------------------------------------------------------------------------


@pytest.mark.parametrize("run", RUNS)
def test_captured_commands_are_written_again_byte_for_byte(run: str) -> None:
    for frame in captured(run):
        (command,) = receive(frame.frame).commands
        assert encode_command(command) == frame.frame


@examples
@given(parts())
def test_drawn_commands_are_written_again_byte_for_byte(drawn: Parts) -> None:
    frame = drawn.encode()
    (command,) = receive(frame).commands
    assert encode_command(command) == frame


def test_an_unknown_language_is_left_out_or_called_other() -> None:
    in_json = encode_command(receive_one(b'{"language":"KOTLIN"}'))
    assert b"language" not in in_json
    in_binary = encode_command(receive_binary(binary(language=99)))
    assert receive(in_binary).commands[0].language is LanguageCode.OTHER
