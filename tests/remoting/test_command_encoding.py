"""Encoding frames: known bytes, the quick ways against the plain one, and what cannot be sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq.errors import LocalProtocolError
from rmq.remoting.codes import FLAG_RESPONSE, VERSION, LanguageCode, Serialization
from rmq.remoting.command import FrameEncoder, encode_command, encode_frame
from rmq.remoting.header import EmptyHeader, Header, Int32, Int64
from rmq.remoting.headers import (
    GetKvConfigResponse,
    GetRouteInfoRequest,
    PullMessageRequest,
    PullMessageResponse,
    RegisterBrokerResponse,
    SendMessageErrorResponse,
    SendMessageRequestV2,
    SendMessageResponse,
)
from rmq.remoting.layout import FRAME_BYTES_MAX, HEADER_BYTES_MAX
from tests.remoting.drawn_commands import headers, int16s, int32s, texts
from tests.remoting.frames import captured, receive

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmq.remoting.command import Command

examples = settings(max_examples=50)
serializations = pytest.mark.parametrize(
    "serialization", [pytest.param(member, id=member.name) for member in Serialization]
)


def decoded(frame: bytes) -> Command:
    (command,) = receive(frame).commands
    return command


# --- known bytes ----------------------------------------------------------------------------

ROUTE_REQUEST: Final[dict[str, Any]] = {"code": 105, "language": LanguageCode.JAVA}
NO_FIELD_SET: Final[dict[str, Any]] = {
    "code": 0,
    "flag": 1,
    "opaque": 31,
    "header": EmptyHeader(),
    "language": LanguageCode.JAVA,
    "version": 407,
}


def json_frame(prefix: str, header: str) -> bytes:
    return bytes.fromhex(prefix) + header.encode()


VECTORS: Final = [
    pytest.param(
        ROUTE_REQUEST | {"opaque": 1, "header": GetRouteInfoRequest(topic="T")},
        json_frame(
            "0000007F 0000007B",
            '{"code":105,"extFields":{"topic":"T"},"flag":0,"language":"JAVA","opaque":1,'
            '"serializeTypeCurrentRPC":"JSON","version":409}',
        ),
        id="JSON request",
    ),
    pytest.param(
        ROUTE_REQUEST
        | {
            "opaque": 1,
            "header": GetRouteInfoRequest(topic="T"),
            "serialization": Serialization.ROCKETMQ,
        },
        bytes.fromhex(
            "00000025 01000021"
            "0069 00 0199 00000001 00000000 00000000 0000000C 0005 746F706963 00000001 54"
        ),
        id="binary request",
    ),
    pytest.param(
        ROUTE_REQUEST | {"header": GetRouteInfoRequest(topic="GoldenTopic")},
        json_frame(
            "00000089 00000085",
            '{"code":105,"extFields":{"topic":"GoldenTopic"},"flag":0,"language":"JAVA",'
            '"opaque":0,"serializeTypeCurrentRPC":"JSON","version":409}',
        ),
        id="captured JSON request",
    ),
    pytest.param(
        ROUTE_REQUEST
        | {
            "header": GetRouteInfoRequest(topic="GoldenTopic"),
            "serialization": Serialization.ROCKETMQ,
        },
        bytes.fromhex(
            "0000002F 0100002B 0069 00 0199 00000000 00000000 00000000 00000016"
            "0005 746F706963 0000000B 476F6C64656E546F706963"
        ),
        id="captured binary request",
    ),
    pytest.param(
        NO_FIELD_SET,
        json_frame(
            "00000073 0000006F",
            '{"code":0,"extFields":{},"flag":1,"language":"JAVA","opaque":31,'
            '"serializeTypeCurrentRPC":"JSON","version":407}',
        ),
        id="captured JSON answer with no field set",
    ),
    pytest.param(
        NO_FIELD_SET | {"serialization": Serialization.ROCKETMQ},
        bytes.fromhex("00000019 01000015 0000 00 0197 0000001F 00000001 00000000 00000000"),
        id="captured binary answer with no field set",
    ),
]


@pytest.mark.parametrize(("said", "frame"), VECTORS)
def test_known_frames_are_written_and_read(said: dict[str, Any], frame: bytes) -> None:
    assert encode_frame(**said) == frame
    command = decoded(frame)
    assert (command.code, command.opaque) == (said["code"], said.get("opaque", 0))
    assert command.header(type(said["header"])) == said["header"]
    assert encode_command(command) == frame


@pytest.mark.parametrize(
    ("run", "line", "vector"),
    [
        ("producer", 1, 2),
        ("producer-binary", 1, 3),
        ("producer", 33, 4),
        ("producer-binary", 33, 5),
    ],
)
def test_known_frames_are_those_of_the_captures(run: str, line: int, vector: int) -> None:
    assert captured(run)[line - 1].frame == VECTORS[vector].values[1]


def test_members_that_are_null_are_left_out_of_json() -> None:
    assert encode_frame(code=1)[8:] == (
        b'{"code":1,"flag":0,"language":"PYTHON","opaque":0,'
        b'"serializeTypeCurrentRPC":"JSON","version":409}'
    )


def test_texts_are_escaped_in_json_as_far_as_they_must_be() -> None:
    remark = 'a"b\\c/\n\x01é消\U0001f600'
    frame = encode_frame(code=1, remark=remark, extra={remark: remark})
    escaped = r'"a\"b\\c/\n\u0001é消😀"'.encode()
    assert b'"remark":%b,' % escaped in frame
    assert b'"extFields":{%b:%b},' % (escaped, escaped) in frame
    assert decoded(frame).remark == remark
    assert decoded(frame).ext_fields == {remark: remark}


@serializations
def test_fields_of_no_class_go_along_with_those_of_a_header(serialization: Serialization) -> None:
    header = GetRouteInfoRequest(topic="T")
    frame = encode_frame(code=105, header=header, extra={"ReqT": "0"}, serialization=serialization)
    assert decoded(frame).ext_fields == {"topic": "T", "ReqT": "0"}
    assert decoded(frame).header(GetRouteInfoRequest) == header


@serializations
def test_a_field_of_the_header_outranks_one_of_the_same_name(serialization: Serialization) -> None:
    frame = encode_frame(
        code=105,
        header=GetRouteInfoRequest(topic="T"),
        extra={"topic": "other"},
        serialization=serialization,
    )
    assert decoded(frame).ext_fields == {"topic": "T"}


# --- the quick ways -------------------------------------------------------------------------


class EveryKind(Header, frozen=True):
    """Fields of every type there is, in and out of order, with a name that needs care."""

    zulu: str
    count: Int32
    total: Int64 | None = None
    note: str | None = None
    ready: bool = False
    maybe: bool | None = None
    ratio: float = 0.0
    percent: Int32 = msgspec.field(default=5, name="100%d %b")


RESPONSES: Final[list[type[Header]]] = [
    EveryKind,
    EmptyHeader,
    SendMessageResponse,
    SendMessageErrorResponse,
    PullMessageResponse,
    GetKvConfigResponse,
    RegisterBrokerResponse,
]


TEMPLATES: Final[list[type[Header]]] = [EveryKind, SendMessageRequestV2, PullMessageRequest]


def some_headers() -> st.SearchStrategy[Header]:
    return st.sampled_from(RESPONSES).flatmap(headers)


@examples
@given(
    opaque=int32s(),
    code=int16s(),
    header=st.none() | some_headers(),
    body_length=st.integers(0, 10_000_000),
    serialization=st.sampled_from(Serialization),
    remark=st.none() | st.sampled_from(["FOUND", "NO_MATCHED_MESSAGE"]) | texts(),
    extra=st.none() | st.dictionaries(texts(1), texts(1), max_size=2),
    language=st.sampled_from(LanguageCode),
    version=st.integers(0, 700),
)
def test_responses_are_those_that_the_plain_way_makes(
    opaque: int,
    code: int,
    header: Header | None,
    body_length: int,
    serialization: Serialization,
    remark: str | None,
    extra: dict[str, str] | None,
    language: LanguageCode,
    version: int,
) -> None:
    encoder = FrameEncoder(language=language, version=version)
    said: dict[str, Any] = {
        "code": code,
        "opaque": opaque,
        "header": header,
        "extra": extra,
        "remark": remark,
        "body_length": body_length,
        "serialization": serialization,
        "flag": FLAG_RESPONSE,
    }
    plain = encode_frame(**said, language=language, version=version)
    assert encoder.frame(**said) == plain
    quick = encoder.response(opaque, code, header, body_length, serialization, remark, extra)
    assert quick == plain
    quick = encoder.request(opaque, code, header, body_length, serialization, remark, extra)
    assert quick == encode_frame(**said | {"flag": 0}, language=language, version=version)


@examples
@given(
    before=st.one_of(*(st.tuples(headers(each), headers(each)) for each in TEMPLATES)),
    code=int16s(),
    opaque=int32s(),
    body_length=st.integers(0, 10_000_000),
    data=st.data(),
)
def test_a_template_writes_what_the_plain_way_does_whatever_varies(
    before: tuple[Header, Header], code: int, opaque: int, body_length: int, data: st.DataObject
) -> None:
    header, other = before
    settable = [name for name in header.__struct_fields__ if getattr(other, name) is not None]
    varying = data.draw(st.lists(st.sampled_from(settable), unique=True)) if settable else []
    values = tuple(getattr(other, name) for name in varying)
    encoder = FrameEncoder()
    template = encoder.template(code, header, varying)
    expected = msgspec.structs.replace(header, **dict(zip(varying, values, strict=True)))
    for _ in range(2):
        frame = template.frame(opaque, body_length, values)
        assert frame == encoder.request(opaque, code, expected, body_length)


def test_a_template_sends_half_a_surrogate_pair_as_java_does() -> None:
    half = "a\ud800b"
    header = EveryKind(zulu=half, count=1)
    template = FrameEncoder().template(5, header, ["count", "note"])
    for note in ("plain", half):
        expected = EveryKind(zulu=half, count=2, note=note)
        assert template.frame(3, 0, (2, note)) == FrameEncoder().request(3, 5, expected, 0)


def test_a_template_refuses_what_the_peer_would() -> None:
    encoder = FrameEncoder(frame_bytes_max=1000)
    template = encoder.template(5, EveryKind(zulu="z", count=1), ["zulu"])
    assert len(template.frame(1, 100, ("z",))) < 900
    with pytest.raises(LocalProtocolError, match="over the limit of 1000"):
        template.frame(1, 100, ("z" * 900,))
    with pytest.raises(LocalProtocolError, match="over the limit of 1000"):
        template.frame(1, 1000, ("z",))


@examples
@given(header=st.none() | some_headers(), opaque=int32s(), code=int32s(), body=st.binary())
def test_a_quick_response_says_what_it_was_given(
    header: Header | None, opaque: int, code: int, body: bytes
) -> None:
    command = decoded(FrameEncoder().response(opaque, code, header, len(body)) + body)
    assert command.is_response
    assert (command.code, command.opaque, command.version) == (code, opaque, VERSION)
    assert (command.language, command.remark) == (LanguageCode.PYTHON, None)
    assert command.has_ext_fields is (header is not None)
    assert (command.body or b"") == body
    if header is not None:
        assert command.header(type(header)) == header


@examples
@given(header=some_headers(), opaque=int32s(), code=int32s())
def test_writers_of_responses_make_what_follows_the_prefix(
    header: Header, opaque: int, code: int
) -> None:
    encoder = FrameEncoder()
    written = encoder.response_writers[type(header)](header, code, opaque)
    assert written == encoder.response(opaque, code, header, 0)[8:]


# --- what cannot be sent --------------------------------------------------------------------


@serializations
@pytest.mark.parametrize("remark", [None, "why not", "FOUND"])
@pytest.mark.parametrize("header", [None, EmptyHeader(), GetKvConfigResponse(value="v" * 100)])
@pytest.mark.parametrize("body_length", [0, 1000])
def test_a_response_may_be_as_large_as_the_limit_and_no_larger(
    serialization: Serialization, remark: str | None, header: Header | None, body_length: int
) -> None:
    def respond(frame_bytes_max: int) -> bytes:
        encoder = FrameEncoder(frame_bytes_max=frame_bytes_max)
        return encoder.response(7, 0, header, body_length, serialization, remark)

    size = len(respond(FRAME_BYTES_MAX)) + body_length
    assert len(respond(size)) + body_length == size
    with pytest.raises(LocalProtocolError) as refusal:
        respond(size - 1)
    header_length = size - 8 - body_length
    assert str(refusal.value).startswith(
        f"a frame of {size} bytes (header {header_length}, body {body_length})"
        f" is over the limit of {size - 1}"
    )


def test_the_limit_of_a_stock_peer_is_the_default() -> None:
    head = len(encode_frame(code=10))
    assert encode_frame(code=10, body_length=FRAME_BYTES_MAX - head)
    with pytest.raises(LocalProtocolError, match=f"is over the limit of {FRAME_BYTES_MAX}"):
        encode_frame(code=10, body_length=FRAME_BYTES_MAX - head + 1)


HEADER_WAYS: Final[list[Any]] = [
    pytest.param(
        lambda encoder, text: encoder.response(1, 0, GetKvConfigResponse(value=text), 0),
        id="quick response",
    ),
    pytest.param(lambda encoder, text: encoder.frame(code=1, remark=text), id="JSON frame"),
    pytest.param(
        lambda encoder, text: encoder.frame(
            code=1, remark=text, serialization=Serialization.ROCKETMQ
        ),
        id="binary frame",
    ),
]


@pytest.mark.parametrize("encode", HEADER_WAYS)
def test_a_header_may_be_as_long_as_24_bits_can_say_and_no_longer(
    encode: Callable[[FrameEncoder, str], bytes],
) -> None:
    encoder = FrameEncoder(frame_bytes_max=2 * FRAME_BYTES_MAX)
    around = len(encode(encoder, "x")) - 8 - 1
    longest = encode(encoder, "x" * (HEADER_BYTES_MAX - around))
    assert int.from_bytes(longest[5:8], "big") == HEADER_BYTES_MAX
    with pytest.raises(LocalProtocolError) as refusal:
        encode(encoder, "x" * (HEADER_BYTES_MAX - around + 1))
    # The frame as a whole is within its limit, so the error must speak of the header's.
    assert f"header {HEADER_BYTES_MAX + 1}" in str(refusal.value)
    assert f"limit of {HEADER_BYTES_MAX}" in str(refusal.value)


@pytest.mark.parametrize(
    "said",
    [
        pytest.param({"code": 2**15}, id="code"),
        pytest.param({"code": -(2**15) - 1}, id="negative code"),
        pytest.param({"version": 2**15}, id="version"),
        pytest.param({"opaque": 2**31}, id="opaque"),
        pytest.param({"flag": 2**31}, id="flag"),
        pytest.param({"extra": {"k" * 2**15: "v"}}, id="name of a field"),
        pytest.param({"extra": {"é" * 2**14: "v"}}, id="name of a field in UTF-8"),
    ],
)
def test_what_the_binary_header_has_no_room_for_is_not_sent(said: dict[str, Any]) -> None:
    with pytest.raises(LocalProtocolError):
        encode_frame(**{"code": 1} | said, serialization=Serialization.ROCKETMQ)


def test_a_name_that_grew_by_replacements_is_not_written_again() -> None:
    name = b"\xff" * 20_000  # each byte becomes a character of three bytes
    fields = len(name).to_bytes(2, "big") + name + b"\0\0\0\1v"
    header = bytes(17) + len(fields).to_bytes(4, "big") + fields
    mark = (1 << 24 | len(header)).to_bytes(4, "big")
    command = decoded((4 + len(header)).to_bytes(4, "big") + mark + header)
    assert command.ext_fields == {"\ufffd" * 20_000: "v"}
    with pytest.raises(LocalProtocolError):
        encode_command(command)


@serializations
def test_half_a_surrogate_pair_is_sent_as_java_sends_it(serialization: Serialization) -> None:
    frame = encode_frame(
        code=1,
        remark="a\ud800b",
        header=GetRouteInfoRequest(topic="T\udfff"),
        extra={"x": "\ud83d"},
        serialization=serialization,
    )
    command = decoded(frame)
    assert command.remark == "a?b"
    assert command.ext_fields == {"topic": "T?", "x": "?"}


@serializations
def test_half_a_surrogate_pair_in_a_response_is_sent_as_well(serialization: Serialization) -> None:
    header = GetKvConfigResponse(value="v\ud800")
    frame = FrameEncoder().response(1, 0, header, 0, serialization)
    assert decoded(frame).ext_fields == {"value": "v?"}
    frame = FrameEncoder().response(1, 1, None, 0, serialization, remark="\udc80")
    assert decoded(frame).remark == "?"
