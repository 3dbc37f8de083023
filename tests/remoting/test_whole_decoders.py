"""Reading command and header in one pass gives what reading them one after the other gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.errors import HeaderError
from rmq.remoting.codes import FLAG_ONEWAY, FLAG_RESPONSE, RequestCode, Serialization
from rmq.remoting.command import Command, encode_command, encode_frame, whole_header_decoder
from rmq.remoting.frame import FrameDecoder
from rmq.remoting.headers import (
    GetKvConfigRequest,
    GetRouteInfoRequest,
    SendMessageRequestV2,
    SendMessageResponse,
    UnregisterClientRequest,
)
from tests.remoting.frames import raw_frame

if TYPE_CHECKING:
    from rmq.remoting.header import Header

SEND: Final = RequestCode.SEND_MESSAGE_V2
ROUTE: Final = RequestCode.GET_ROUTEINFO_BY_TOPIC
LEAVE: Final = RequestCode.UNREGISTER_CLIENT

CLASSES: Final[dict[int, type[Header]]] = {
    SEND: SendMessageRequestV2,
    ROUTE: GetRouteInfoRequest,
    LEAVE: UnregisterClientRequest,
}
WHOLE: Final = {code: whole_header_decoder(header) for code, header in CLASSES.items()}


def send(opaque: int = 1, topic: str = "T") -> bytes:
    header = SendMessageRequestV2(
        producer_group="g",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=3,
        sys_flag=0,
        born_timestamp=1_700_000_000_000,
        flag=0,
        properties="KEYS\x01ké",
    )
    return encode_frame(code=SEND, opaque=opaque, header=header, body_length=5) + b"hello"


ANSWER: Final = whole_header_decoder(SendMessageResponse)


def decode(
    data: bytes, *, whole: bool, expects_answers: bool = False, at_a_time: int = 1_000
) -> tuple[list[Command], str | None]:
    decoder = FrameDecoder(whole_decoders=WHOLE if whole else None)
    decoder.feed(data)
    commands: list[Command] = []
    while True:
        if expects_answers:
            decoder.expected_answer = ANSWER
        taken = decoder.take(at_a_time)
        commands += taken
        if not taken:
            return commands, None if decoder.error is None else str(decoder.error)


def facts(command: Command) -> tuple[object, ...]:
    """Everything one can ask of a command."""
    try:
        fields: object = command.ext_fields
    except HeaderError as exc:
        fields = str(exc)
    try:
        header: object = command.header(CLASSES.get(command.code, GetKvConfigRequest))
    except HeaderError as exc:
        header = str(exc)
    try:
        answer: object = command.header(SendMessageResponse)
    except HeaderError as exc:
        answer = str(exc)
    return (
        command.code,
        command.flag,
        command.opaque,
        command.version,
        command.language,
        command.remark,
        command.body,
        command.serialization,
        command.has_ext_fields,
        fields,
        header,
        answer,
    )


def stored(opaque: int, remark: str | None = None) -> bytes:
    header = SendMessageResponse(msg_id="00FF", queue_id=3, queue_offset=opaque)
    return encode_frame(code=0, flag=FLAG_RESPONSE, opaque=opaque, header=header, remark=remark)


FRAMES: Final = [
    stored(1),
    stored(2, "well"),
    raw_frame(b'{"code":0,"flag":1,"extFields":{"msgId":"A","queueId":"x","queueOffset":"1"}}'),
    raw_frame(
        b'{"code":0,"flag":1,"extFields":{"msgId":"A","queueId":"1","queueOffset":"1"},'
        b'"~binaryExt":{"msgId":"B","queueId":"1","queueOffset":"1"},"~body":"e30="}'
    ),
    raw_frame(b'{"code":10,"extFields":{"msgId":"A","queueId":"1","queueOffset":"1"}}'),
    encode_frame(
        code=0,
        flag=FLAG_RESPONSE,
        header=SendMessageResponse(msg_id="00FF", queue_id=3, queue_offset=4),
        serialization=Serialization.ROCKETMQ,
    ),
    send(),
    send(2, "Ünïcode"),
    encode_frame(code=ROUTE, opaque=3, header=GetRouteInfoRequest(topic="A")),
    encode_frame(code=ROUTE, opaque=4, header=GetRouteInfoRequest(topic="B"), extra={"ReqT": "0"}),
    encode_frame(code=LEAVE, opaque=5, header=UnregisterClientRequest(client_id="c")),
    # A response whose code is that of a request.
    encode_frame(code=SEND, opaque=6, flag=FLAG_RESPONSE, remark="no"),
    encode_frame(code=LEAVE, opaque=6, flag=FLAG_RESPONSE, extra={"clientID": "c"}),
    encode_frame(code=ROUTE, opaque=7, flag=FLAG_ONEWAY, header=GetRouteInfoRequest(topic="C")),
    encode_frame(
        code=ROUTE,
        opaque=8,
        header=GetRouteInfoRequest(topic="D"),
        serialization=Serialization.ROCKETMQ,
    ),
    # What only the lenient reader takes, what no reader takes, and what nobody sent fields for.
    raw_frame(b'{"code":105,"opaque":9,"extFields":{"topic":5},}'),
    raw_frame(b'{"code":105,"opaque":10,"extFields":{}}'),
    raw_frame(b'{"code":105,"opaque":11}'),
    raw_frame(b'{"code":105,"opaque":12,"extFields":null}'),
    raw_frame(b'{"code":105,"extFields":{"topic":"x"},"extFields":{"topic":"y"}}'),
    raw_frame(
        b'{"code":105,"extFields":{"topic":"A"},"~rawHeader":"e30=","~body":"e30=",'
        b'"~binaryExt":{"topic":"B"},"~serialization":1}'
    ),
    raw_frame(b'{"code":105,"extFields":{"topic":"A"},"json_ext":{"topic":"B"}}'),
]


@given(st.lists(st.sampled_from(FRAMES), max_size=30), st.integers(1, 30))
def test_any_run_of_frames_is_read_the_same_way_whatever_is_expected(
    frames: list[bytes], at_a_time: int
) -> None:
    plain, plain_error = decode(b"".join(frames), whole=False)
    for whole in (False, True):
        expected, error = decode(
            b"".join(frames), whole=whole, expects_answers=True, at_a_time=at_a_time
        )
        assert [facts(command) for command in expected] == [facts(command) for command in plain]
        assert [encode_command(it) for it in expected] == [encode_command(it) for it in plain]
        assert error == plain_error


def test_answers_that_are_expected_are_read_in_one_pass() -> None:
    commands, _ = decode(stored(1) + stored(2), whole=False, expects_answers=True)
    typed: list[object] = [command.json_ext for command in commands]
    assert all(isinstance(each, SendMessageResponse) for each in typed)
    assert len(typed) == 2


@given(st.lists(st.sampled_from(FRAMES), max_size=30))
def test_any_run_of_frames_is_read_the_same_way(frames: list[bytes]) -> None:
    plain, plain_error = decode(b"".join(frames), whole=False)
    whole, whole_error = decode(b"".join(frames), whole=True)
    assert [facts(command) for command in whole] == [facts(command) for command in plain]
    assert [encode_command(each) for each in whole] == [encode_command(each) for each in plain]
    assert whole_error == plain_error


def test_the_third_of_a_run_is_read_in_one_pass() -> None:
    commands, _ = decode(send() * 4, whole=True)
    assert [command.raw_header is not None for command in commands] == [False, False, True, True]


@pytest.mark.parametrize("frame", FRAMES)
def test_every_frame_is_read_the_same_way_inside_a_run_of_each_code(frame: bytes) -> None:
    for around in (FRAMES[0], FRAMES[2], FRAMES[4]):
        data = around * 3 + frame + around * 3
        plain, _ = decode(data, whole=False)
        whole, _ = decode(data, whole=True)
        assert [facts(command) for command in whole] == [facts(command) for command in plain]
