"""Layouts of the replication link: declarations and derived structs agree, damage is noticed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.errors import RemoteProtocolError
from rmq.ha.protocol import wire
from tests import paths

if TYPE_CHECKING:
    import struct

    import construct

DATA: Final = paths.DATA / "ha"

int8u = st.integers(0, 2**8 - 1)
int16u = st.integers(0, 2**16 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
int32u = st.integers(0, 2**32 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
texts = st.text(st.characters(codec="utf-8"), max_size=60)

down_headers = st.builds(
    wire.DownHeader,
    int8u, int8u, int8u, int8u, int32u, int64, int64, int32u, int64, int64, int64, int32u,
)  # fmt: skip
up_headers = st.builds(wire.UpHeader, int8u, int8u, int16u, int32u, int64, int64, int64, int64)
hellos = st.builds(
    wire.HelloBody,
    version=int8u,
    catch_up=int8u,
    cluster=texts,
    broker_name=texts,
    broker_id=int64,
    address=texts,
    store_id=st.binary(min_size=16, max_size=16),
    incarnation=int64,
    nonce=st.binary(min_size=16, max_size=16),
    epoch=int64,
    segment_bytes=int64,
    begin=int64,
    end=int64,
    flushed=int64,
    tail_offset=int64,
    tail_digest=st.binary(min_size=32, max_size=32),
    mac=st.binary(min_size=32, max_size=32),
)
welcomes = st.builds(
    wire.WelcomeBody,
    verdict=int8u,
    cluster=texts,
    broker_name=texts,
    address=texts,
    store_id=st.binary(min_size=16, max_size=16),
    epoch=int64,
    begin=int64,
    end=int64,
    start=int64,
    reason=texts,
    mac=st.binary(min_size=32, max_size=32),
)
challenges = st.builds(wire.ChallengeBody, int8u, int8u, st.binary(min_size=16, max_size=16))


@pytest.mark.parametrize(
    ("declaration", "packer", "size"),
    [
        pytest.param(wire.Report, wire.REPORT, 8, id="report"),
        pytest.param(wire.Transfer, wire.TRANSFER, 12, id="transfer"),
        pytest.param(wire.Down, wire.DOWN, 60, id="down"),
        pytest.param(wire.Up, wire.UP, 44, id="up"),
    ],
)
def test_headers_have_the_size_of_their_declarations(
    declaration: construct.Struct, packer: struct.Struct, size: int
) -> None:
    assert declaration.sizeof() == packer.size == size


@given(int64, int32)
def test_stock_headers_are_as_declared(offset: int, size: int) -> None:
    assert wire.REPORT.pack(offset) == wire.Report.build({"offset": offset})
    packed = wire.TRANSFER.pack(offset, size)
    assert packed == wire.Transfer.build({"offset": offset, "size": size})
    parsed = wire.Transfer.parse(packed)
    assert (parsed.offset, parsed.size) == wire.TRANSFER.unpack(packed) == (offset, size)


@given(down_headers)
def test_down_headers_are_as_declared_and_come_back(header: wire.DownHeader) -> None:
    packed = wire.pack_down(header)
    parsed = wire.Down.parse(packed)
    assert [parsed[name] for name in header._fields] == list(header)
    assert wire.Down.build(parsed) == packed
    assert wire.read_down(packed) == header


@given(up_headers)
def test_up_headers_are_as_declared_and_come_back(header: wire.UpHeader) -> None:
    packed = wire.pack_up(header)
    parsed = wire.Up.parse(packed)
    assert [parsed[name] for name in header._fields] == list(header)
    assert wire.Up.build(parsed) == packed
    assert wire.read_up(packed) == header


@given(down_headers, up_headers, st.data())
def test_a_flipped_bit_is_noticed(
    down: wire.DownHeader, up: wire.UpHeader, data: st.DataObject
) -> None:
    for packed, read in ((wire.pack_down(down), wire.read_down), (wire.pack_up(up), wire.read_up)):
        damaged = bytearray(packed)
        bit = data.draw(st.integers(0, 8 * len(packed) - 1))
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(RemoteProtocolError, match="checksum"):
            read(damaged)


@given(hellos)
def test_a_hello_comes_back(hello: wire.HelloBody) -> None:
    assert wire.read_hello(wire.pack_body(wire.Hello, hello)) == hello


@given(welcomes)
def test_a_welcome_comes_back(welcome: wire.WelcomeBody) -> None:
    assert wire.read_welcome(wire.pack_body(wire.Welcome, welcome)) == welcome


@given(challenges)
def test_a_challenge_comes_back(challenge: wire.ChallengeBody) -> None:
    assert wire.read_challenge(wire.pack_body(wire.Challenge, challenge)) == challenge


@given(hellos, st.data())
def test_a_greeting_that_is_too_short_or_too_long_is_refused(
    hello: wire.HelloBody, data: st.DataObject
) -> None:
    packed = wire.pack_body(wire.Hello, hello)
    for damaged in (packed[: data.draw(st.integers(0, len(packed) - 1))], packed + b"x"):
        with pytest.raises(RemoteProtocolError):
            wire.read_hello(damaged)


@given(st.binary(max_size=300))
def test_garbage_in_place_of_a_greeting_is_read_or_refused(garbage: bytes) -> None:
    for read in (wire.read_challenge, wire.read_hello, wire.read_welcome):
        try:
            body = read(garbage)
        except RemoteProtocolError:
            continue
        assert isinstance(body, msgspec.Struct)


def test_the_preamble_reads_as_an_offset_that_no_slave_reports() -> None:
    (offset,) = wire.REPORT.unpack(wire.PREAMBLE)
    assert offset < -1
    assert len(wire.PREAMBLE) == wire.REPORT.size


def test_captured_reports_and_frames_are_read() -> None:
    reports = (DATA / "slave-to-master.bin").read_bytes()
    offsets = [offset for (offset,) in wire.REPORT.iter_unpack(reports)]
    assert offsets == sorted(offsets)
    stream = (DATA / "master-to-slave.bin").read_bytes()
    position, end, acknowledged = 0, 0, set()
    while position < len(stream):
        offset, size = wire.TRANSFER.unpack_from(stream, position)
        assert offset == end
        end += size
        acknowledged.add(end)
        position += wire.TRANSFER.size + size
    # Every end of a frame is what the slave reports next, and nothing else is.
    assert set(offsets) == acknowledged | {0}
