"""The connection to a master as its slave sees it: what it believes, takes and reports."""

from __future__ import annotations

import random
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.ha.protocol.slave_link import EndKind, SlaveLink
from rmq.ha.protocol.wire import (
    DOWN,
    PREAMBLE,
    REPORT,
    TRANSFER,
    UP,
    DownFlag,
    DownKind,
    HelloVerdict,
    UpFlag,
    read_hello,
    read_up,
)
from tests import paths
from tests.ha.protocol.link_kit import (
    filled_log,
    packed_challenge,
    packed_down,
    packed_welcome,
    slave_of,
)
from tests.ha.simulation.disk import SimLog

DATA: Final = paths.DATA / "ha"


def feed(link: SlaveLink, log: SimLog, data: bytes, now: float = 0.0) -> None:
    """Do what the glue does with what was received."""
    while data and link.ending is None:
        if link.body_left:
            piece = data[: link.body_left]
            if not log.end and link.frame_offset:
                log.begin_at(link.frame_offset)
            log.append(piece)
            link.body_received(piece, now)
            data = data[len(piece) :]
        else:
            data = data[link.receive(data, now) :]


def welcomed(log: SimLog, *, epoch: int = 1) -> SlaveLink:
    link = slave_of(log, epoch=epoch)
    assert link.take_output() == PREAMBLE
    link.receive(packed_challenge(), 0.0)
    link.take_output()
    link.receive(packed_welcome(HelloVerdict.START, start=log.end, epoch=epoch), 0.0)
    assert link.is_streaming
    return link


# --- golden bytes -----------------------------------------------------------------------------


def test_it_answers_a_captured_master_as_the_captured_slave_did() -> None:
    log = SimLog()
    log.segment_bytes = 1024**3
    link = slave_of(log, is_native=False)
    reports = bytearray(link.take_output())
    stream = (DATA / "master-to-slave.bin").read_bytes()
    position = 0
    while position < len(stream):
        _, size = TRANSFER.unpack_from(stream, position)
        feed(link, log, stream[position : position + TRANSFER.size + size])
        position += TRANSFER.size + size
        link.report(0.0)
        reports += link.take_output()
    said = [offset for (offset,) in REPORT.iter_unpack(bytes(reports))]
    captured = (DATA / "slave-to-master.bin").read_bytes()
    # The captured slave repeats itself every 5 s; here no time passes.
    assert said == sorted({offset for (offset,) in REPORT.iter_unpack(captured)})
    assert log.end == said[-1]
    assert link.ending is None


# --- greetings --------------------------------------------------------------------------------


def test_its_hello_says_what_it_has() -> None:
    log = filled_log(700)
    log.append(b"more")
    link = slave_of(log, epoch=4)
    link.receive(packed_challenge(begin=512), 0.0)
    output = link.take_output().removeprefix(PREAMBLE)
    header = read_up(output[: UP.size])
    hello = read_hello(output[UP.size :])
    assert (header.appended, header.flushed, header.epoch) == (log.end, log.end - 4, 4)
    assert (hello.begin, hello.end, hello.flushed) == (0, log.end, log.end - 4)
    # Compared is what the master has, too.
    assert hello.tail_offset == 512
    assert hello.tail_digest == log.digest(512, log.end)


@pytest.mark.parametrize(
    ("frame", "kind", "reason"),
    [
        pytest.param(
            packed_welcome(HelloVerdict.RESEED, start=512, epoch=3, reason="r"),
            EndKind.RESEED,
            "r",
            id="reseed",
        ),
        pytest.param(
            packed_welcome(HelloVerdict.DIVERGED, reason="r"), EndKind.DIVERGED, "r", id="diverged"
        ),
        pytest.param(
            packed_welcome(HelloVerdict.STALE, epoch=2),
            EndKind.STALE,
            "followed one of 3",
            id="stale",
        ),
        pytest.param(
            packed_welcome(HelloVerdict.START, epoch=2),
            EndKind.STALE,
            "epoch 2",
            id="stale, unawares",
        ),
        pytest.param(
            packed_welcome(HelloVerdict.RESEED, epoch=2),
            EndKind.STALE,
            "epoch 2",
            id="stale reseed",
        ),
        pytest.param(
            packed_welcome(HelloVerdict.REFUSED, reason="r"), EndKind.REFUSED, "r", id="refused"
        ),
        pytest.param(
            packed_welcome(HelloVerdict.START, start=40, epoch=3),
            EndKind.CLOSED,
            "begins at 40",
            id="gap",
        ),
        pytest.param(
            packed_down(DownKind.WELCOME, b"x"), EndKind.CLOSED, "cannot be read", id="garbage"
        ),
        pytest.param(packed_down(9, b""), EndKind.CLOSED, "frame 9", id="another frame"),
        pytest.param(packed_challenge(), EndKind.CLOSED, "frame 1", id="a second challenge"),
        pytest.param(
            packed_down(DownKind.WELCOME, b"", size=2**31), EndKind.CLOSED, "2147483648", id="huge"
        ),
        pytest.param(bytes(DOWN.size), EndKind.CLOSED, "checksum", id="no frame at all"),
    ],
)
def test_how_a_greeting_ends(frame: bytes, kind: EndKind, reason: str) -> None:
    log = filled_log(100)
    link = slave_of(log, epoch=3)
    link.receive(packed_challenge(), 0.0)
    # Byte by byte: nothing is taken twice, and what is too long is not collected.
    for byte in frame:
        link.receive(bytes((byte,)), 0.0)
    assert link.ending is not None
    assert link.ending.kind is kind
    assert reason in link.ending.reason
    assert link.body_left == 0
    if kind is EndKind.RESEED:
        assert link.ending.offset == 512


def test_an_echo_of_the_preamble_shows_a_stock_master() -> None:
    link = slave_of(SimLog())
    link.receive(PREAMBLE + bytes(4), 0.2)
    assert link.ending is not None
    assert link.ending.kind is EndKind.NOT_NATIVE


def test_a_greeting_that_has_begun_is_given_its_time() -> None:
    link = slave_of(SimLog())
    link.receive(packed_challenge()[:5], 0.4)
    link.tick(0.5)
    assert link.ending is None
    assert link.next_tick == 10.0
    link.tick(10.0)
    assert link.ending is not None
    assert link.ending.kind is EndKind.CLOSED


@pytest.mark.parametrize(
    ("secret", "masters", "kind"),
    [
        pytest.param(b"s", b"s", None, id="the same"),
        pytest.param(b"s", b"x", EndKind.REFUSED, id="another"),
        pytest.param(b"s", b"", EndKind.REFUSED, id="the master has none"),
    ],
)
def test_a_master_must_know_the_secret(secret: bytes, masters: bytes, kind: EndKind | None) -> None:
    link = slave_of(SimLog(), secret=secret)
    link.receive(packed_challenge(needs_secret=1), 0.0)
    link.receive(packed_welcome(HelloVerdict.START, secret=masters), 0.0)
    assert (None if link.ending is None else link.ending.kind) is kind
    assert link.is_streaming == (kind is None)


# --- bytes of the log -------------------------------------------------------------------------


@pytest.mark.parametrize("is_native", [True, False], ids=["native", "stock"])
@pytest.mark.parametrize("seed", range(20))
def test_frames_may_come_in_any_pieces(is_native: bool, seed: int) -> None:
    chance = random.Random(seed)
    source, log = filled_log(900), SimLog()
    link = welcomed(log) if is_native else slave_of(log, is_native=False)
    stream = b""
    position = 0
    while position < source.end:
        size = min(chance.randint(0, 300), 512 - position % 512, source.end - position)
        body = source.read(position, position + size)
        stream += (
            packed_down(DownKind.DATA, body, offset=position, end=source.end)
            if is_native
            else TRANSFER.pack(position, size) + body
        )
        position += size
    while stream:
        size = chance.randint(1, 400)
        feed(link, log, stream[:size])
        stream = stream[size:]
    assert link.ending is None
    assert log.data == source.data
    assert link.master.end == source.end


@pytest.mark.parametrize(
    ("frame", "kind", "reason"),
    [
        pytest.param(
            packed_down(DownKind.DATA, b"x", offset=999), EndKind.DIVERGED, "from 999", id="gap"
        ),
        pytest.param(
            packed_down(DownKind.DATA, b"", offset=0), EndKind.DIVERGED, "from 0", id="heartbeat"
        ),
        pytest.param(
            packed_down(DownKind.DATA, b"x", epoch=2), EndKind.CLOSED, "epoch 2", id="epoch"
        ),
        pytest.param(
            packed_down(DownKind.DATA, b"", size=2**31), EndKind.CLOSED, "frame of", id="huge"
        ),
        pytest.param(
            packed_welcome(HelloVerdict.START), EndKind.CLOSED, "frame 2", id="a greeting"
        ),
    ],
)
def test_what_does_not_continue_the_log_ends_the_link(
    frame: bytes, kind: EndKind, reason: str
) -> None:
    log = filled_log(100)
    link = welcomed(log)
    feed(link, log, frame)
    assert link.ending is not None
    assert link.ending.kind is kind
    assert reason in link.ending.reason
    assert log.end == 120


@pytest.mark.parametrize("size", [-1, 64 * 1024**2 + 1])
def test_a_stock_frame_of_an_impossible_size_ends_the_link(size: int) -> None:
    link = slave_of(SimLog(), is_native=False)
    link.receive(TRANSFER.pack(0, size), 0.0)
    assert link.ending is not None
    assert link.ending.kind is EndKind.CLOSED


def test_an_empty_log_begins_only_where_a_segment_does() -> None:
    log = SimLog()
    link = slave_of(log, is_native=False)
    # A stock master without data may say anything in a heartbeat.
    feed(link, log, TRANSFER.pack(-77, 0) + TRANSFER.pack(100, 0))
    assert link.ending is None
    feed(link, log, TRANSFER.pack(1024, 3) + b"abc")
    assert (log.begin, log.end) == (1024, 1027)
    other = slave_of(SimLog(), is_native=False)
    other.receive(TRANSFER.pack(100, 3), 0.0)
    assert other.ending is not None
    assert "mappedFileSizeCommitLog" in other.ending.reason


def test_what_a_header_says_of_the_master_is_known() -> None:
    log = filled_log(100)
    link = welcomed(log)
    flags = DownFlag.SYNC | DownFlag.YOU_ARE_IN_SYNC
    frame = packed_down(
        DownKind.DATA, b"abc", offset=120, flags=flags, needed=2, in_sync=3, end=500, replicated=90
    )
    feed(link, log, frame, 7.0)
    master = link.master
    assert (master.is_sync, master.is_in_sync, master.wants_flush) == (True, True, False)
    assert (master.needed, master.in_sync, master.end, master.replicated) == (2, 3, 500, 90)
    assert (master.heard_at, master.address, master.store_id) == (7.0, "m:10911", b"m" * 16)


# --- reports and time -------------------------------------------------------------------------


def test_it_reports_what_is_new_and_repeats_it_every_five_seconds() -> None:
    log = filled_log(100)
    link = welcomed(log)

    def reported() -> list[tuple[int, int]]:
        output = link.take_output()
        headers = [read_up(output[at : at + UP.size]) for at in range(0, len(output), UP.size)]
        return [(header.appended, header.flushed) for header in headers]

    link.report(1.0)
    assert reported() == [(120, 120)]
    link.report(2.0)
    assert reported() == []
    feed(link, log, packed_down(DownKind.DATA, b"abc", offset=120), 2.0)
    link.report(2.0)
    link.report(2.0)
    assert reported() == [(123, 120)]
    log.flush()
    link.report(3.0)
    assert reported() == [(123, 123)]
    link.tick(7.9)
    assert reported() == []
    assert link.next_tick == 8.0
    link.tick(8.0)
    assert reported() == [(123, 123)]


def test_a_stock_report_is_not_repeated_for_a_flush() -> None:
    log = filled_log(100)
    log.append(b"abc")
    link = slave_of(log, is_native=False)
    assert link.take_output() == REPORT.pack(123)
    log.flush()
    link.report(1.0)
    assert link.take_output() == b""


@given(st.floats(0, 10**7), st.booleans())
def test_a_tick_leaves_nothing_to_be_done_at_once(start: float, is_native: bool) -> None:
    link = slave_of(SimLog(), is_native=is_native)
    link.receive(b"", start)
    now = start
    for _ in range(20):
        now = max(now, link.next_tick)
        link.tick(now)
        link.take_output()
        if link.ending is not None:
            return
        assert link.next_tick > now
    pytest.fail("a link to a silent master never ends")


@given(st.binary(max_size=300))
def test_garbage_never_raises_nor_gets_into_the_log(garbage: bytes) -> None:
    log = filled_log(100)
    for link in (slave_of(log), slave_of(log, is_native=False), welcomed(log)):
        before = log.end
        taken = link.receive(garbage, 0.0)
        assert taken <= len(garbage)
        assert log.end == before
        assert link.ending is None or link.body_left == 0


# --- checksums -------------------------------------------------------------------------------


def test_what_was_changed_on_its_way_is_not_acknowledged_and_ends_the_link() -> None:
    log = SimLog()
    link = welcomed(log)
    good = packed_down(DownKind.DATA, b"a" * 50, end=50)
    feed(link, log, good)
    link.report(0.0)
    assert read_up(link.take_output()).appended == 50
    bad = bytearray(packed_down(DownKind.DATA, b"b" * 50, offset=50, end=100))
    bad[-10] ^= 1
    # What is not complete was not compared yet.
    feed(link, log, bytes(bad[:-5]))
    assert log.end == 95
    link.report(0.0)
    assert link.take_output() == b""
    feed(link, log, bytes(bad[-5:]))
    assert link.ending is not None
    assert (link.ending.kind, link.ending.offset) == (EndKind.DAMAGED, 50)
    # They are in the log until it is cut, and must not be acknowledged in the meantime.
    link.report(0.0)
    assert link.take_output() == b""


@pytest.mark.parametrize("where", [-1, -20])
def test_a_greeting_that_was_changed_on_its_way_is_none(where: int) -> None:
    link = slave_of(SimLog())
    challenge = bytearray(packed_challenge())
    challenge[where + 8 if where == -20 else where] ^= 1
    link.receive(bytes(challenge), 0.0)
    assert link.ending is not None
    assert "checksum" in link.ending.reason


def test_a_slave_without_its_masters_tables_says_so_until_it_has_them() -> None:
    log, has_tables = SimLog(), [False]
    link = slave_of(log)
    link._is_current = lambda: has_tables[0]
    link.take_output()
    link.receive(packed_challenge(), 0.0)
    link.take_output()
    link.receive(packed_welcome(HelloVerdict.START, start=0, epoch=1), 0.0)
    link.report(0.0)
    assert read_up(link.take_output()).flags == UpFlag.LACKS_TABLES
    assert link.next_tick == pytest.approx(0.1)
    link.tick(0.1)
    assert link.take_output() == b""
    has_tables[0] = True
    link.tick(0.2)
    assert read_up(link.take_output()).flags == 0
    assert link.next_tick > 4
