"""The frame decoder: any split of the input, limits before memory, and where a stream ends."""

from __future__ import annotations

import random
import tracemalloc
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq.errors import RemoteProtocolError
from rmq.remoting.codes import Serialization
from rmq.remoting.command import encode_frame
from rmq.remoting.frame import FrameDecoder
from rmq.remoting.layout import FRAME_BYTES_MAX, FRAME_PREFIX
from tests.remoting.drawn_commands import Parts, parts
from tests.remoting.frames import (
    RUNS,
    all_captured,
    captured,
    one_by_one,
    raw_frame,
    receive,
    receive_one,
)

if TYPE_CHECKING:
    from rmq.remoting.command import Command
    from tests.remoting.frames import CapturedFrame

GOOD: Final = raw_frame(b'{"code":105,"opaque":1}', b"body")
FLAGS: Final = {"request": 0, "response": 1, "oneway": 2}

runs = pytest.mark.parametrize("run", RUNS)


def opaques(commands: list[Command]) -> list[int]:
    return [command.opaque for command in commands]


def numbered(count: int) -> list[bytes]:
    return [raw_frame(b'{"opaque":%d}' % number, b"x" * number) for number in range(count)]


# --- captured frames, in every way they can come --------------------------------------------


def assert_says_what_was_recorded(command: Command, frame: CapturedFrame) -> None:
    assert (command.code, command.opaque, command.remark) == (
        frame.code,
        frame.opaque,
        frame.remark,
    )
    assert command.flag == FLAGS[frame.kind]
    assert command.is_response is (frame.kind == "response")
    assert command.is_oneway is (frame.kind == "oneway")
    assert command.serialization is Serialization[frame.ser]
    assert list(command.ext_fields.items()) == list((frame.ext or {}).items())
    if command.serialization is Serialization.JSON:
        assert command.has_ext_fields is (frame.ext is not None)
    if frame.body_length:
        assert command.body == frame.frame[-frame.body_length :]
    else:
        assert command.body is None


@runs
def test_captured_frames_say_what_was_recorded_about_them(run: str) -> None:
    for frame in captured(run):
        commands, error, held_bytes = receive(frame.frame)
        assert (len(commands), error, held_bytes) == (1, None, 0)
        assert_says_what_was_recorded(commands[0], frame)


@runs
def test_captured_frames_may_come_byte_by_byte(run: str) -> None:
    for frame in captured(run):
        expected = receive(frame.frame)
        assert receive(*one_by_one(frame.frame)) == expected


@runs
def test_captured_frames_may_come_with_the_next_one_trailing(run: str) -> None:
    for frame, following in pairwise(captured(run)):
        begun = following.frame[: len(following.frame) // 2]
        commands, error, held_bytes = receive(frame.frame + begun)
        assert (commands, error) == receive(frame.frame)[:2]
        assert held_bytes == len(begun)


@runs
@settings(max_examples=5)
@given(seed=st.integers(0, 2**32), chunk_max=st.sampled_from([3, 50, 700, 20_000]))
def test_whole_runs_may_come_in_any_split(run: str, seed: int, chunk_max: int) -> None:
    chance = random.Random(seed)
    stream = b"".join(frame.frame for frame in captured(run))
    chunks = []
    position = 0
    while position < len(stream):
        size = chance.randint(0, chunk_max)
        chunks.append(stream[position : position + size])
        position += size
    commands, error, held_bytes = receive(*chunks, take=chance.randint(1, 40))
    assert (error, held_bytes) == (None, 0)
    for command, frame in zip(commands, captured(run), strict=True):
        assert_says_what_was_recorded(command, frame)


def test_there_are_as_many_captured_frames_as_ever() -> None:
    assert len(all_captured()) == 1002


@settings(max_examples=60)
@given(
    drawn=st.lists(parts(), min_size=1, max_size=6),
    cuts=st.lists(st.integers(0, 600), max_size=8),
    take=st.integers(1, 4),
)
def test_drawn_frames_may_come_in_any_split(drawn: list[Parts], cuts: list[int], take: int) -> None:
    stream = b"".join(each.encode() for each in drawn)
    edges = [0, *sorted(cut for cut in cuts if cut < len(stream)), len(stream)]
    chunks = [stream[start:end] for start, end in pairwise(edges)]
    commands, error, held_bytes = receive(*chunks, take=take)
    assert (error, held_bytes) == (None, 0)
    assert opaques(commands) == [each.opaque for each in drawn]
    assert [command.ext_fields for command in commands] == [each.ext for each in drawn]
    assert [command.body or b"" for command in commands] == [each.body for each in drawn]


# --- taking ---------------------------------------------------------------------------------


def test_no_more_frames_are_taken_than_asked_for() -> None:
    decoder = FrameDecoder()
    decoder.feed(b"".join(numbered(5)))
    taken = [opaques(decoder.take(2)) for _ in range(4)]
    assert taken == [[0, 1], [2, 3], [4], []]


def test_held_bytes_count_what_is_not_taken_yet() -> None:
    frames = numbered(3)
    decoder = FrameDecoder()
    decoder.feed(b"".join(frames) + frames[0][:5])
    counts = [decoder.held_bytes]
    for _ in range(4):
        decoder.take(1)
        counts.append(decoder.held_bytes)
    sizes = [len(frame) for frame in frames]
    assert counts == [sum(sizes) + 5, sum(sizes[1:]) + 5, sizes[2] + 5, 5, 5]


def test_bytes_that_come_before_all_frames_are_taken_go_behind_them() -> None:
    frames = numbered(4)
    decoder = FrameDecoder()
    decoder.feed(frames[0] + frames[1] + frames[2][:6])
    assert opaques(decoder.take(1)) == [0]
    decoder.feed(frames[2][6:])
    assert opaques(decoder.take(1)) == [1]
    decoder.feed(frames[3])
    assert opaques(decoder.take(5)) == [2, 3]
    assert decoder.held_bytes == 0


def test_nothing_is_taken_when_nothing_came() -> None:
    decoder = FrameDecoder()
    assert decoder.take(1) == []
    decoder.feed(b"")
    assert decoder.take(1) == []
    assert (decoder.error, decoder.held_bytes) == (None, 0)


def test_taking_early_and_often_changes_nothing() -> None:
    decoder = FrameDecoder()
    for chunk in one_by_one(GOOD):
        assert decoder.take(3) == []
        decoder.feed(chunk)
    assert opaques(decoder.take(3)) == [1]
    assert decoder.take(3) == []


def test_the_flags_of_what_was_taken_last_are_known_together() -> None:
    decoder = FrameDecoder()
    decoder.feed(b"".join(raw_frame(b'{"flag":%d}' % flag) for flag in (0, 0, 2, 1, 8)))
    seen = []
    for frames_max in (2, 2, 5, 5):
        decoder.take(frames_max)
        seen.append(decoder.flags_seen)
    assert seen == [0, 3, 8, 0]
    decoder.feed(raw_frame(b'{"flag":1}') + raw_frame(b""))
    decoder.take(5)
    assert decoder.error is not None
    assert decoder.flags_seen == 1


def test_a_frame_that_trickles_in_takes_no_more_memory_than_one_that_comes_at_once() -> None:
    size = 50_000
    frame = raw_frame(b"{}", bytes(size))
    decoder = FrameDecoder()
    tracemalloc.start()
    for position in range(size):
        decoder.feed(frame[position : position + 1])
        assert decoder.take(1) == []
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 1.5 * size
    decoder.feed(frame[size:])
    assert receive(frame).commands == decoder.take(1)


def test_the_pieces_of_a_large_frame_are_not_joined_before_the_last_one_came() -> None:
    body = bytes(4_000_000)
    frame = raw_frame(b"{}", body)
    decoder = FrameDecoder()
    chunk_size = 65_536
    chunks = [frame[at : at + chunk_size] for at in range(0, len(frame), chunk_size)]
    tracemalloc.start()
    for chunk in chunks[:-1]:
        decoder.feed(chunk)
        assert decoder.take(1) == []
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 100_000
    assert peak < 200_000
    decoder.feed(chunks[-1])
    (command,) = decoder.take(1)
    assert command.body == body


# --- frames that are refused ----------------------------------------------------------------

BAD_LENGTHS: Final = [
    pytest.param(0, id="0"),
    pytest.param(1, id="1"),
    pytest.param(2, id="2"),
    pytest.param(3, id="3"),
    pytest.param(-1, id="-1"),
    pytest.param(-(2**31), id="least"),
    pytest.param(FRAME_BYTES_MAX - 3, id="one over the limit"),
    pytest.param(FRAME_BYTES_MAX, id="as large as a whole frame may be"),
    pytest.param(2**31 - 1, id="greatest"),
    pytest.param(0x47455420, id="an HTTP request"),
]


def reason_of(*chunks: bytes, frame_bytes_max: int = FRAME_BYTES_MAX) -> str:
    """Return why bytes are refused, having made sure that nothing of them is kept."""
    commands, error, held_bytes = receive(*chunks, frame_bytes_max=frame_bytes_max)
    assert commands == []
    assert type(error) is RemoteProtocolError
    assert held_bytes == 0
    return str(error)


def test_a_long_header_is_refused_before_it_has_come() -> None:
    frame = raw_frame(b"[" * 2_001, b"body")
    decoder = FrameDecoder(header_bytes_max=2_000)
    decoder.feed(frame[:7])
    assert decoder.take(1) == []
    assert decoder.error is None
    decoder.feed(frame[7:8])
    assert decoder.take(1) == []
    assert str(decoder.error) == "header length 2001 is over the limit (2000)"
    assert decoder.held_bytes == 0
    decoder = FrameDecoder(header_bytes_max=2_001)
    decoder.feed(frame[:100])
    decoder.take(1)
    assert decoder.error is None


@pytest.mark.parametrize("length", BAD_LENGTHS)
def test_impossible_lengths_are_refused_and_named(length: int) -> None:
    assert f"frame length {length} is " in reason_of(FRAME_PREFIX.pack(length, 2) + b"{}")


@pytest.mark.parametrize("length", BAD_LENGTHS)
def test_four_bytes_are_enough_to_refuse_a_length(length: int) -> None:
    assert str(length) in reason_of(length.to_bytes(4, "big", signed=True))


@pytest.mark.parametrize("length", BAD_LENGTHS)
def test_four_bytes_are_enough_even_when_they_come_one_by_one(length: int) -> None:
    chunks = one_by_one(length.to_bytes(4, "big", signed=True))
    assert receive(*chunks[:3]).error is None
    assert str(length) in reason_of(*chunks)


def test_no_memory_is_taken_for_a_length_that_is_refused() -> None:
    decoder = FrameDecoder()
    tracemalloc.start()
    decoder.feed(FRAME_PREFIX.pack(2**31 - 1, 0xFFFFFF) + bytes(100))
    decoder.take(1)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert decoder.error is not None
    assert decoder.held_bytes == 0
    assert peak < 50_000


def test_no_memory_is_taken_for_a_frame_that_has_only_been_announced() -> None:
    decoder = FrameDecoder()
    tracemalloc.start()
    decoder.feed(FRAME_PREFIX.pack(FRAME_BYTES_MAX - 4, 100) + bytes(10))
    assert decoder.take(1) == []
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert decoder.error is None
    assert decoder.held_bytes == 18
    assert peak < 50_000


@pytest.mark.parametrize("header_length", [2, 40, 92])
def test_the_limit_counts_the_length_field_too(header_length: int) -> None:
    frame = raw_frame(b"{}".ljust(header_length), bytes(92 - header_length))
    assert len(frame) == 100
    commands, error, _ = receive(frame, frame_bytes_max=100)
    assert (len(commands), error) == (1, None)
    refusal = "frame length 96 is over the limit (95)"
    assert refusal in reason_of(frame, frame_bytes_max=99)
    assert refusal in reason_of(frame[:4], frame_bytes_max=99)
    assert refusal in reason_of(frame[:8], frame_bytes_max=99)


def test_the_largest_frame_of_all_is_read_and_the_next_larger_refused() -> None:
    largest = raw_frame(b"{}", bytes(FRAME_BYTES_MAX - 10))
    (command,) = receive(largest).commands
    assert len(command.body or b"") == FRAME_BYTES_MAX - 10
    assert "over the limit (16777212)" in reason_of(FRAME_PREFIX.pack(FRAME_BYTES_MAX - 3, 2))


@pytest.mark.parametrize(
    "mark",
    [
        pytest.param(3, id="by one"),
        pytest.param(0xFFFFFF, id="JSON"),
        pytest.param(0x01FFFFFF, id="binary"),
        pytest.param(0xFFFFFFFF, id="all bits"),
    ],
)
def test_a_header_longer_than_its_frame_is_refused_before_it_came(mark: int) -> None:
    reason = reason_of(FRAME_PREFIX.pack(6, mark))
    assert f"header length {mark & 0xFFFFFF} is over what the frame can hold (2)" in reason


@pytest.mark.parametrize("serialization", [2, 3, 127, 128, 255])
def test_unknown_serializations_are_refused_and_named(serialization: int) -> None:
    reason = reason_of(raw_frame(b"{}", serialization=serialization))
    assert reason == f"unknown header serialization {serialization}"


@pytest.mark.parametrize(
    "hello",
    [
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", id="a client hello"),
        pytest.param(b"\x16\x03\x01\x02", id="its first four bytes"),
    ],
)
def test_tls_on_a_plain_connection_is_called_that(hello: bytes) -> None:
    assert reason_of(hello) == "TLS bytes on a plain connection"


@pytest.mark.parametrize("size", range(1, len(GOOD)))
def test_a_frame_cut_off_is_waited_for(size: int) -> None:
    assert receive(GOOD[:size]) == ([], None, size)


# --- where a stream ends --------------------------------------------------------------------

BAD: Final = [
    pytest.param(FRAME_PREFIX.pack(3, 0), id="length"),
    pytest.param(b"\xff\xff\xff\xff", id="length alone"),
    pytest.param(FRAME_PREFIX.pack(6, 3) + b"{}", id="header length"),
    pytest.param(raw_frame(b"{}", serialization=9), id="serialization"),
    pytest.param(raw_frame(b"{"), id="JSON"),
    pytest.param(raw_frame(b"\0" * 20, serialization=1), id="binary"),
    pytest.param(raw_frame(b""), id="no header"),
]


@pytest.mark.parametrize("bad", BAD)
def test_frames_before_a_bad_one_are_delivered_with_the_error_behind_them(bad: bytes) -> None:
    commands, error, held_bytes = receive(b"".join(numbered(3)) + bad + GOOD)
    assert opaques(commands) == [0, 1, 2]
    assert error is not None
    assert held_bytes == 0


@pytest.mark.parametrize("bad", BAD)
def test_the_error_is_not_seen_before_the_frames_in_front_of_it_are_taken(bad: bytes) -> None:
    decoder = FrameDecoder()
    decoder.feed(b"".join(numbered(2)) + bad)
    for expected in ([0], [1]):
        assert opaques(decoder.take(1)) == expected
        assert decoder.error is None
    assert decoder.take(1) == []
    assert decoder.error is not None


@pytest.mark.parametrize("bad", BAD)
def test_nothing_is_delivered_or_kept_after_an_error(bad: bytes) -> None:
    decoder = FrameDecoder()
    decoder.feed(bad + GOOD)
    assert decoder.take(5) == []
    error = decoder.error
    assert error is not None
    decoder.feed(GOOD)
    assert decoder.take(5) == []
    decoder.feed(GOOD[:9])
    assert decoder.take(5) == []
    assert decoder.error is error
    assert decoder.held_bytes == 0


def test_a_frame_without_a_body_has_none_and_not_an_empty_one() -> None:
    assert receive_one(b"{}").body is None
    assert receive_one(b"{}", b"\0").body == b"\0"


def test_frames_of_both_serializations_may_alternate() -> None:
    frames = [
        encode_frame(code=10, opaque=number, serialization=Serialization(number % 2))
        for number in range(6)
    ]
    commands = receive(b"".join(frames)).commands
    assert opaques(commands) == list(range(6))
    assert [command.serialization for command in commands] == [0, 1] * 3
