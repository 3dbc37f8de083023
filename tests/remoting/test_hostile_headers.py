"""JSON headers made to hurt: nesting, references, sheer size, and members named like our own."""

from __future__ import annotations

import signal
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

import pytest

from rmq.errors import HeaderError, RemoteProtocolError, RmqError
from rmq.remoting.codes import LanguageCode, Serialization
from rmq.remoting.command import Command, encode_command
from rmq.remoting.header import LENIENT_BYTES_MAX, SLOW_BYTES_MAX, json_decoder
from rmq.remoting.headers import GetRouteInfoRequest
from tests.remoting.frames import raw_frame, receive, receive_one

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HEADER_BYTES_HUGE: Final = 16_000_000


def topic_of(command: Command) -> str:
    return command.header(GetRouteInfoRequest).topic


def survives(header: bytes) -> None:
    """Read everything of a frame with this header; only errors of ours may come of it."""
    commands, _, _ = receive(raw_frame(header))
    readers: tuple[Callable[[Command], object], ...] = (
        lambda command: command.ext_fields,
        lambda command: command.has_ext_fields,
        topic_of,
        encode_command,
    )
    for command in commands:
        for read in readers:
            with suppress(RmqError):
                read(command)


def deeper(levels: int, action: Callable[[], None]) -> None:
    """Act with as many calls more on the stack."""
    if levels:
        deeper(levels - 1, action)
    else:
        action()


PLACES: Final = [
    pytest.param(b'{"x":%b}', id="unknown member"),
    pytest.param(b'{"remark":%b}', id="remark"),
    pytest.param(b'{"code":%b}', id="number"),
    pytest.param(b'{"extFields":%b}', id="fields"),
    pytest.param(b'{"extFields":{"topic":%b}}', id="field"),
    pytest.param(b'{"extFields":{"x":%b}}', id="unknown field"),
    pytest.param(b'{"extFields":{"x":%b},}', id="field, almost JSON"),
    pytest.param(b"{%b:1}", id="key"),
]


@pytest.mark.parametrize("place", PLACES)
def test_deep_nesting_is_read_or_refused(place: bytes) -> None:
    for depth in (*range(1, 1200, 13), 5_000, 200_000):
        for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
            inner = b"1" if closing == b"}" else b""
            survives(place % (opening * depth + inner + closing * depth))
            survives(place % (opening * depth))


@pytest.mark.parametrize("place", PLACES)
def test_nesting_that_was_read_once_can_be_read_from_anywhere(place: bytes) -> None:
    """How deep a call is must not decide between an answer and a crash."""
    for depth in range(40, 1000, 40):
        header = place % (b"[" * depth + b"]" * depth)
        for levels in (0, 300, 600):
            deeper(levels, lambda header=header: survives(header))  # type: ignore[misc]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("path", ["$", "..", "@", "$.x", "$.extFields", "$.extFields.x", "$.none"])
def test_references_to_anything_are_read_or_refused(place: bytes, path: str) -> None:
    reference = b'{"$ref":"%b"}' % path.encode()
    survives(place % reference)
    survives(place % (b"[%b]" % reference))
    survives(place % (b'{"a":%b,"b":[%b]}' % (reference, reference)))


@pytest.mark.parametrize(
    "place",
    [
        pytest.param('{"remark":["%s",%s]}', id="remark"),
        pytest.param('{"extFields":{"topic":["%s",%s]}}', id="field"),
    ],
)
@pytest.mark.parametrize("word", ["$ref", r"\u0024ref", r"$r\x65f"])
def test_references_do_not_make_a_small_frame_large(place: str, word: str) -> None:
    path = "$.remark[0]" if "remark" in place else "$.topic[0]"
    references = ",".join([f'{{"{word}":"{path}"}}'] * 200)
    header = (place % ("x" * 20_000, references)).encode()
    readers: tuple[Callable[[Command], str], ...] = (
        lambda command: command.remark or "",
        lambda command: "".join(command.ext_fields.values()),
        topic_of,
    )
    for command in receive(raw_frame(header)).commands:
        for read in readers:
            with suppress(RmqError):
                assert len(read(command)) < 10 * len(header)


@contextmanager
def cpu_seconds_max(seconds: float) -> Iterator[None]:
    """Fail what takes longer, while it does; time of other processes does not count."""

    def fail(*_: object) -> None:
        raise AssertionError(f"took more than {seconds} s")

    previous = signal.signal(signal.SIGPROF, fail)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)


@pytest.mark.parametrize(
    ("start", "repeated", "end"),
    [
        pytest.param(b'{"x":[', b"1,", b"],,}", id="almost JSON"),
        pytest.param(b'{"extFields":{"x":[', b"{},", b"{}]}}", id="field"),
        pytest.param(b'{"x":"', b"\\", b"", id="endless escapes"),
        pytest.param(b"", b"/*", b"", id="endless comments"),
    ],
)
def test_a_header_as_large_as_allowed_does_not_stop_everyone_else(
    start: bytes, repeated: bytes, end: bytes
) -> None:
    header = start + repeated * (HEADER_BYTES_HUGE // len(repeated)) + end
    with cpu_seconds_max(2):
        survives(header)


def test_only_standard_json_is_read_at_any_length() -> None:
    def padded(start: bytes, size: int) -> bytes:
        return start.ljust(size - 1) + b"}"

    standard, almost = (
        b'{"opaque":7,"extFields":{"topic":"T"}',
        b'{opaque:7,"extFields":{"topic":"T"}',
    )
    for header in (
        padded(standard, HEADER_BYTES_HUGE),
        padded(almost, SLOW_BYTES_MAX),
    ):
        command = receive_one(header)
        assert (command.opaque, topic_of(command)) == (7, "T")
    for size in (SLOW_BYTES_MAX + 1, LENIENT_BYTES_MAX + 1):
        with pytest.raises(RemoteProtocolError, match=f"{size} bytes"):
            receive_one(padded(almost, size))


def test_only_standard_fields_are_read_at_any_length() -> None:
    def fields(topic: bytes, size: int) -> bytes:
        filler = b"x" * (size - len(b'{"topic":%b,"x":""}' % topic))
        return b'{"extFields":{"topic":%b,"x":"%b"}}' % (topic, filler)

    assert topic_of(receive_one(fields(b'"7"', HEADER_BYTES_HUGE))) == "7"
    assert topic_of(receive_one(fields(b"7", LENIENT_BYTES_MAX))) == "7"
    command = receive_one(fields(b"7", LENIENT_BYTES_MAX + 1))
    for read in (lambda: command.ext_fields, lambda: topic_of(command)):
        with pytest.raises(HeaderError, match=f"{LENIENT_BYTES_MAX + 1} bytes"):
            read()


def test_a_long_header_that_is_not_utf_8_is_read() -> None:
    header = b'{"opaque":7,"extFields":{"topic":"%b"}}' % (b"\xd6\xd0" * 15_000)
    assert topic_of(receive_one(header)) == "\ufffd\ufffd" * 15_000


PLAIN: Final = b'{"code":105,"opaque":3,"extFields":{"topic":"A"}}'
SPECIAL: Final = (
    b'"~body":"c2VjcmV0","~binaryExt":{"topic":"B"},"~serialization":1,'
    b'"body":"c2VjcmV0","binary_ext":{"topic":"B"},"serialization":1,'
    b'"language_sent":"GO","json_ext":{"topic":"B"}'
)


@pytest.mark.parametrize("body", [b"", b"real"])
@pytest.mark.parametrize(
    "header",
    [
        pytest.param(PLAIN[:-1] + b"," + SPECIAL + b"}", id="behind"),
        pytest.param(b"{" + SPECIAL + b"," + PLAIN[1:], id="in front"),
        pytest.param(PLAIN[:-1] + b"," + SPECIAL + b",}", id="almost JSON"),
        pytest.param(b"{" + SPECIAL.replace(b"~", rb"\u007e") + b"," + PLAIN[1:], id="escaped"),
    ],
)
def test_members_named_like_our_own_attributes_change_nothing(header: bytes, body: bytes) -> None:
    command = receive_one(header, body)
    plain = receive_one(PLAIN, body)
    assert command.body == plain.body == (body or None)
    assert command.serialization is Serialization.JSON
    assert command.ext_fields == {"topic": "A"}
    assert topic_of(command) == "A"
    # Handlers get what the fast reader makes of the fields, guards look at `ext_fields`.
    assert json_decoder(GetRouteInfoRequest)(command.json_ext).topic == "A"
    assert command.language is LanguageCode.JAVA
    assert encode_command(command) == encode_command(plain)
