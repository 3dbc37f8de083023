"""SEND_BATCH_MESSAGE bodies against their layout, and every length that can be wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.errors import LocalProtocolError
from rmq.remoting.bodies import (
    BatchError,
    BatchMessage,
    decode_batch,
    decode_batch_in_steps,
    encode_batch,
)
from rmq.remoting.layout import BatchEntry

VECTOR = bytes.fromhex(
    "000000360000000000000000000000000000000568656C6C6F"
    "001B4B455953014B310257414954017472756502544147530154616741"
)
VECTOR_MESSAGE = BatchMessage(
    flag=0, body=b"hello", properties=b"KEYS\x01K1\x02WAIT\x01true\x02TAGS\x01TagA"
)

MESSAGES = st.lists(
    st.builds(
        BatchMessage,
        flag=st.integers(-(2**31), 2**31 - 1),
        body=st.binary(max_size=40),
        properties=st.binary(max_size=40),
    ),
    min_size=1,
    max_size=5,
)


def entry(total_size: int, body_length: int, body: bytes, rest: bytes) -> bytes:
    return b"".join(
        [
            total_size.to_bytes(4, "big", signed=True),
            bytes(12),
            body_length.to_bytes(4, "big", signed=True),
            body,
            rest,
        ]
    )


def test_a_batch_of_a_java_client_is_read_and_written() -> None:
    assert decode_batch(VECTOR) == [VECTOR_MESSAGE]
    assert encode_batch([VECTOR_MESSAGE]) == VECTOR
    assert decode_batch(VECTOR * 3) == [VECTOR_MESSAGE] * 3


@given(messages=MESSAGES)
def test_the_derived_codec_equals_the_declared_layout(messages: list[BatchMessage]) -> None:
    declared = b"".join(BatchEntry.build(message._asdict()) for message in messages)

    assert encode_batch(messages) == declared
    assert decode_batch(declared) == messages
    parsed = BatchEntry.parse(declared)
    assert BatchMessage(parsed.flag, parsed.body, parsed.properties) == messages[0]


@given(messages=MESSAGES, data=st.data())
def test_a_batch_cut_off_anywhere_inside_an_entry_is_refused(
    messages: list[BatchMessage], data: st.DataObject
) -> None:
    whole = encode_batch(messages)
    last_size = len(encode_batch(messages[-1:]))
    cut = data.draw(st.integers(1, last_size - 1))

    with pytest.raises(BatchError) as caught:
        decode_batch(whole[:-cut])

    assert caught.value.entry == len(messages) - 1
    assert caught.value.position == len(whole) - last_size


def read_in_steps(data: bytes | None, at_once: int) -> tuple[int, list[BatchMessage] | str]:
    """Return how many steps reading takes, and what comes of it."""
    steps = decode_batch_in_steps(data, at_once)
    count = 1
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return count, end.value
        except BatchError as exc:
            return count, str(exc)
        count += 1


@given(messages=MESSAGES, at_once=st.integers(1, 4), cut=st.integers(0, 3))
def test_a_batch_that_is_read_in_steps_is_the_same(
    messages: list[BatchMessage], at_once: int, cut: int
) -> None:
    data = encode_batch(messages)
    data = data[: len(data) - cut]
    expected: list[BatchMessage] | str
    try:
        expected = decode_batch(data)
    except BatchError as exc:
        expected = str(exc)

    count, found = read_in_steps(data, at_once)

    assert found == expected
    assert count == -(-len(messages) // at_once)


def test_no_body_is_refused_in_the_first_step() -> None:
    expected = "batch: entry 0 at byte 0: there is no body"
    assert read_in_steps(None, 5) == read_in_steps(b"", 5) == (1, expected)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(None, "batch: entry 0 at byte 0: there is no body", id="no body"),
        pytest.param(b"", "batch: entry 0 at byte 0: there is no body", id="empty body"),
        pytest.param(
            VECTOR + bytes(7),
            "batch: entry 1 at byte 54: needs 22 bytes, 7 are left",
            id="less than the fixed fields",
        ),
        pytest.param(
            entry(22, -1, b"", b"\0\0"),
            "batch: entry 0 at byte 0: body length -1",
            id="negative body length",
        ),
        pytest.param(
            VECTOR + entry(22, 2**31 - 1, b"", b"\0\0"),
            "batch: entry 1 at byte 54: needs 2147483669 bytes, 22 are left",
            id="absurd body length",
        ),
        pytest.param(
            entry(24, 2, b"ab", b""),
            "batch: entry 0 at byte 0: needs 24 bytes, 22 are left",
            id="no room for the length of properties",
        ),
        pytest.param(
            entry(22, 0, b"", b"\xff\xff"),
            "batch: entry 0 at byte 0: properties length -1 with 0 bytes left",
            id="negative properties length",
        ),
        pytest.param(
            entry(23, 0, b"", b"\0\2a"),
            "batch: entry 0 at byte 0: properties length 2 with 1 bytes left",
            id="properties beyond the end",
        ),
        pytest.param(
            entry(21, 0, b"", b"\0\0"),
            "batch: entry 0 at byte 0: total size 21, but the fields make 22",
            id="total size too small",
        ),
        pytest.param(
            VECTOR + entry(-22, 0, b"", b"\0\0"),
            "batch: entry 1 at byte 54: total size -22, but the fields make 22",
            id="negative total size",
        ),
    ],
)
def test_wrong_lengths_are_refused_with_entry_and_position(
    data: bytes | None, message: str
) -> None:
    with pytest.raises(BatchError) as caught:
        decode_batch(data)

    assert str(caught.value) == message


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(BatchMessage(2**31, b"", b""), id="flag"),
        pytest.param(BatchMessage(0, b"", bytes(32768)), id="properties"),
    ],
)
def test_a_message_beyond_the_layout_is_not_sent(message: BatchMessage) -> None:
    with pytest.raises(LocalProtocolError, match="a batch cannot hold flag"):
        encode_batch([message])
