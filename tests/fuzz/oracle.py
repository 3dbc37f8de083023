"""What must hold for any bytes whatever.

`examine` feeds a stream to a decoder and reads everything of the commands that come out, the way
servers and clients do. Our own errors are answers like any other; every other exception, and every
broken promise (an `AssertionError`), is a finding.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from rmq.errors import HeaderError, LocalProtocolError, RmqError
from rmq.remoting.bodies import (
    RegisterBrokerBody,
    decode_batch,
    decode_reset_offset,
    parse_properties,
)
from rmq.remoting.bodies.registration_steps import read_registration
from rmq.remoting.codes import LanguageCode, RequestCode, Serialization
from rmq.remoting.command import Command, encode_command, encode_frame, whole_header_decoder
from rmq.remoting.frame import FrameDecoder
from rmq.remoting.header import EmptyHeader, Header, json_decoder
from rmq.remoting.headers import RegisterBrokerRequest
from rmq.remoting.protocol import REQUESTS
from tests.stepping import finish

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_BodyReaders = dict[int, "Callable[[bytes], object]"]

_REQUEST_HEADERS: Final = {int(code): request.header for code, request in REQUESTS.items()}
_REQUEST_BODIES: Final[_BodyReaders] = {
    **{int(code): each.body.decode for code, each in REQUESTS.items() if each.body},
    RequestCode.SEND_BATCH_MESSAGE: decode_batch,
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET: decode_reset_offset,
    RequestCode.UPDATE_BROKER_CONFIG: parse_properties,
    RequestCode.UPDATE_NAMESRV_CONFIG: parse_properties,
}
_RESPONSE_BODIES: Final[_BodyReaders] = {
    **{
        int(code): each.response_body.decode
        for code, each in REQUESTS.items()
        if each.response_body
    },
    RequestCode.GET_BROKER_CONFIG: parse_properties,
    RequestCode.GET_NAMESRV_CONFIG: parse_properties,
}


_WHOLE_DECODERS: Final = {
    code: whole_header_decoder(kind) for code, kind in _REQUEST_HEADERS.items() if kind is not None
}
_RUN_BYTES_MAX: Final = 8192


class Outcome(NamedTuple):
    """What became of a stream; which of its commands had a header and a body that could be read."""

    decoded: int
    refused: bool
    headers: int
    bodies: int


class _Decoded(NamedTuple):
    """What a stream was read as."""

    commands: list[Command]
    error: RmqError | None
    held_bytes: int
    """Bytes at its end that are no whole frame."""


def examine(chunks: Iterable[bytes], take: int, answers: RequestCode | None) -> Outcome:
    """Read everything of a stream that comes in these chunks.

    `answers` is the request that responses in the stream are taken to answer.
    """
    chunks = list(chunks)
    stream = b"".join(chunks)
    read = _decode(chunks, take)
    if len(chunks) > 1:
        at_once = _decode([stream], 1000)
        assert read.commands == at_once.commands, "the split of the input shows in the commands"
        assert str(read.error) == str(at_once.error), "the split of the input shows in the error"
    _check_runs(stream, read)
    commands, error, _ = read
    headers = bodies = 0
    for command in commands:
        has_header, has_body = examine_command(command, answers)
        headers += has_header
        bodies += has_body
    return Outcome(len(commands), error is not None, headers, bodies)


def _check_runs(stream: bytes, read: _Decoded) -> None:
    """Have the same requests come in a run, which are then read in one pass with their headers.

    `read` is what the stream is without that.
    """
    if len(stream) > _RUN_BYTES_MAX:
        return
    plain = read
    if read.error is None:
        # A stream that ends within a frame is another one when it is repeated.
        plain = (
            _decode([stream * 3], 1000)
            if read.held_bytes
            else read._replace(commands=read.commands * 3)
        )
    whole = _decode([stream * 3], 1000, whole_decoders=_WHOLE_DECODERS)
    assert str(plain.error) == str(whole.error), "reading in one pass shows in the error"
    assert len(plain.commands) == len(whole.commands), "reading in one pass shows in their number"
    for one, other in zip(plain.commands, whole.commands, strict=True):
        if other.raw_header is None:
            assert one == other, "a decoder for runs shows in a command that is in none"
        else:
            assert _facts(one) == _facts(other), "reading in one pass shows in a command"


def _facts(command: Command) -> list[object]:
    """Everything one can ask of a command, errors included."""
    header_class = _REQUEST_HEADERS.get(command.code) or EmptyHeader
    facts: list[object] = []
    for ask in (
        lambda: command.ext_fields,
        lambda: command.header(header_class),
        lambda: encode_command(command),
    ):
        try:
            facts.append(ask())
        except RmqError as exc:
            facts.append(str(exc))
    return facts


def _decode(
    chunks: list[bytes],
    take: int,
    *,
    whole_decoders: Mapping[int, Callable[[bytes], Command]] | None = None,
) -> _Decoded:
    decoder = FrameDecoder(whole_decoders=whole_decoders)
    commands: list[Command] = []
    fed = 0
    for chunk in chunks:
        decoder.feed(chunk)
        fed += len(chunk)
        while taken := decoder.take(take):
            assert len(taken) <= take, "more was taken than asked for"
            commands += taken
        assert decoder.held_bytes <= fed, "more is held than came"
        if decoder.error is not None:
            assert decoder.held_bytes == 0, "something is held of a stream that has ended"
            break
    return _Decoded(commands, decoder.error, decoder.held_bytes)


def examine_command(command: Command, answers: RequestCode | None) -> tuple[bool, bool]:
    """Read everything of a command; return whether header and body could be read."""
    try:
        fields: Mapping[str, str] | None = command.ext_fields
    except HeaderError:
        fields = None
    if fields is not None:
        assert all(type(k) is str and type(v) is str for k, v in fields.items()), "not texts"
    _check_rewriting(command)
    header: Header | None = None
    header_class = _header_class(command, answers)
    if header_class is not None:
        header = _read_header(command, header_class)
    return header is not None, _read_body(command, header, answers)


def _header_class(command: Command, answers: RequestCode | None) -> type[Header] | None:
    if not command.is_response:
        return _REQUEST_HEADERS.get(command.code)
    return None if answers is None else REQUESTS[answers].response_header


def _read_header(command: Command, header_class: type[Header]) -> Header | None:
    """Read the typed header by both ways there are, and write what was read."""
    quick: Header | None = None
    # What the quick reader refuses goes to the other.
    with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        quick = json_decoder(header_class)(command.json_ext)
    try:
        header = command.header(header_class)
    except HeaderError:
        assert quick is None, "the quick reader accepts what the other refuses"
        return None
    if quick is not None:
        assert header == quick, "the two readers differ"
    (again,) = _decode([encode_frame(code=0, header=header)], 2).commands
    assert again.header(header_class) == header, "a header changes when it is written"
    return header


def _decode_compressed_registration(data: bytes | None) -> RegisterBrokerBody:
    return finish(read_registration(data, compressed=True))


def _read_body(command: Command, header: Header | None, answers: RequestCode | None) -> bool:
    data = command.body
    if data is None:
        return False
    if not command.is_response:
        decode = _REQUEST_BODIES.get(command.code)
        if isinstance(header, RegisterBrokerRequest) and header.compressed:
            decode = _decode_compressed_registration
    else:
        decode = None if answers is None else _RESPONSE_BODIES.get(answers)
    if decode is None:
        return False
    try:
        decode(data)
    except RmqError:
        return False
    return True


def _check_rewriting(command: Command) -> None:
    """A command that is written again must be the same when it is read again."""
    try:
        frame = encode_command(command)
    except (LocalProtocolError, HeaderError):
        return
    commands, error, _ = _decode([frame], 2)
    assert error is None, f"our own frame is refused: {error}"
    assert len(commands) == 1, f"our own frame is read as {len(commands)}"
    said, said_again = _said(command), _said(commands[0])
    assert said == said_again, f"written again, {said} became {said_again}"


def _said(command: Command) -> tuple[Any, ...]:
    language = command.language
    if language is None:
        # There is no word for it: JSON leaves it out, which reads as JAVA, and binary says OTHER.
        is_json = command.serialization is Serialization.JSON
        language = LanguageCode.JAVA if is_json else LanguageCode.OTHER
    return (
        (command.code, command.flag, command.opaque, command.version),
        command.remark,
        list(command.ext_fields.items()),
        command.has_ext_fields,
        command.body,
        command.serialization,
        language,
    )
