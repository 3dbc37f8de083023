"""A slave's connection as its master sees it: what it believes, sends and ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.ha.protocol.master import STOCK_FRAME_BYTES_MAX
from rmq.ha.protocol.master_link import LinkState, MasterLink
from rmq.ha.protocol.pending_acks import ReplicationMode
from rmq.ha.protocol.slaves import NOTHING, InSyncRules
from rmq.ha.protocol.wire import (
    DOWN,
    PREAMBLE,
    REPORT,
    TRANSFER,
    DownFlag,
    HelloVerdict,
    UpFlag,
    UpHeader,
    UpKind,
    pack_up,
    read_down,
)
from rmq.model.offsets import PhysicalOffset
from tests.ha.protocol.link_kit import (
    NONCE,
    filled_log,
    hello_of,
    link_to,
    master_of,
    packed_ack,
    packed_hello,
    read_verdict,
)
from tests.ha.simulation.disk import SimLog

if TYPE_CHECKING:
    from rmq.ha.protocol.master import Master

# ruff: noqa: ANN401 - fields are put in by name

LOG: Final = filled_log(1000)


def greeted(link: MasterLink, **fields: Any) -> HelloVerdict:
    """Let a slave with `LOG` greet, with other fields put in; return the verdict."""
    link.receive(PREAMBLE, 0.0)
    link.receive(packed_hello(hello_of(LOG, **fields)), 0.0)
    return HelloVerdict(read_verdict(link.take_output()).verdict)


def sent(link: MasterLink, now: float = 0.0) -> list[tuple[int, int]]:
    """Return what it sends now, as offsets and sizes."""
    found: list[tuple[int, int]] = []
    while (chunk := link.next_chunk(now)) is not None:
        link.chunk_sent(chunk, now)
        found.append((chunk.offset, chunk.size))
    return found


# --- greetings --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "verdict", "reason"),
    [
        pytest.param({}, HelloVerdict.START, "", id="the same log"),
        pytest.param({"cluster": "x"}, HelloVerdict.REFUSED, "x/b called", id="another cluster"),
        pytest.param({"broker_name": "x"}, HelloVerdict.REFUSED, "c/x called", id="another name"),
        pytest.param(
            {"store_id": b"m" * 16}, HelloVerdict.REFUSED, "same store", id="its own store"
        ),
        pytest.param({"epoch": 2}, HelloVerdict.STALE, "epoch 2", id="a later epoch"),
        pytest.param({"epoch": 0}, HelloVerdict.START, "", id="an earlier epoch"),
        pytest.param(
            {"segment_bytes": 1024}, HelloVerdict.REFUSED, "mappedFileSizeCommitLog", id="segments"
        ),
        pytest.param({"catch_up": 9}, HelloVerdict.REFUSED, "catch-up 9", id="no such catch-up"),
        pytest.param({"end": LOG.end + 1}, HelloVerdict.DIVERGED, "1 bytes", id="longer"),
        pytest.param({"tail_digest": bytes(32)}, HelloVerdict.DIVERGED, "differ", id="different"),
        pytest.param(
            {"tail_offset": 1}, HelloVerdict.REFUSED, "compares from 1", id="another range"
        ),
        pytest.param(
            {"begin": LOG.end + 512}, HelloVerdict.REFUSED, "compares", id="ends before it begins"
        ),
        pytest.param(
            {"begin": 600, "end": 600, "tail_offset": 600},
            HelloVerdict.START,
            "",
            id="got nothing yet",
        ),
        pytest.param({"begin": 0, "end": 0}, HelloVerdict.START, "", id="empty"),
        pytest.param({"begin": -9, "end": -5}, HelloVerdict.RESEED, "ends at -5", id="negative"),
        pytest.param({"flushed": 2**62}, HelloVerdict.START, "", id="flushed beyond its end"),
    ],
)
def test_what_becomes_of_a_slave(
    fields: dict[str, Any], verdict: HelloVerdict, reason: str
) -> None:
    master = master_of(LOG)
    link = link_to(master)
    assert greeted(link, **fields) is verdict
    assert reason in (link.end_reason or "")
    assert (link.end_reason is None) == (verdict is HelloVerdict.START)
    assert len(master.slaves) == (verdict is HelloVerdict.START)
    for slave in master.slaves:
        assert slave.appended <= LOG.end
        assert slave.flushed <= slave.appended
    if fields.get("epoch") == 2:
        assert master.outdated_by == 2


@pytest.mark.parametrize(
    ("secret", "slaves", "is_served"),
    [
        pytest.param(b"s", b"s", True, id="the same"),
        pytest.param(b"s", b"x", False, id="another"),
        pytest.param(b"s", b"", False, id="none"),
        pytest.param(b"", b"x", True, id="none is asked for"),
    ],
)
def test_only_who_knows_the_secret_is_served(secret: bytes, slaves: bytes, is_served: bool) -> None:
    link = link_to(master_of(LOG, secret=secret))
    link.receive(PREAMBLE + packed_hello(hello_of(LOG), slaves), 0.0)
    assert (link.end_reason is None) == is_served


def test_a_greeting_may_come_in_any_pieces() -> None:
    data = PREAMBLE + packed_hello(hello_of(LOG)) + packed_ack(LOG.end, LOG.end)
    whole, bits = link_to(master_of(LOG)), link_to(master_of(LOG))
    whole.receive(data, 0.0)
    for byte in data:
        bits.receive(bytes((byte,)), 0.0)
    assert whole.take_output() == bits.take_output()
    assert whole.state is bits.state is LinkState.NATIVE


def test_an_earlier_link_of_a_slave_ends_when_it_comes_again() -> None:
    master = master_of(LOG)
    old = link_to(master)
    greeted(old)
    new = link_to(master)
    greeted(new)
    assert old.next_chunk(1.0) is None
    assert old.end_reason == "its slave has connected again"
    assert master.slaves.in_sync_count == 1


def test_a_slave_that_begins_anew_does_not_count_on_its_earlier_link() -> None:
    master = master_of(LOG)
    old = link_to(master)
    greeted(old)
    assert master.slaves.in_sync_count == 1
    assert greeted(link_to(master), end=-5, begin=-5) is HelloVerdict.RESEED
    assert master.slaves.in_sync_count == 0


def test_an_empty_slave_of_a_log_without_content_is_in_sync_at_once() -> None:
    log = SimLog()
    log.begin_at(1024)
    master = master_of(log, rules=InSyncRules(minimum=1))
    link = link_to(master)
    link.receive(PREAMBLE + packed_hello(hello_of(SimLog())), 0.0)
    # Otherwise nothing could ever be appended.
    assert not master.pending_acks.refuses()


# --- reports ----------------------------------------------------------------------------------


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1), st.integers(0, 3))
def test_no_acknowledgement_counts_that_cannot_be_true(
    appended: int, flushed: int, epoch: int
) -> None:
    master = master_of(LOG)
    link = link_to(master)
    link.receive(PREAMBLE + packed_hello(hello_of(LOG, begin=0, end=0)), 0.0)
    chunk = link.next_chunk(0.0)
    assert chunk is not None
    link.receive(packed_ack(appended, flushed, epoch), 0.0)
    slave = link.slave
    assert slave is not None
    can_be = flushed <= appended <= chunk.size and epoch == 1
    assert (link.end_reason is None) == can_be
    assert slave.appended == (max(appended, 0) if can_be else 0)
    assert slave.flushed <= max(slave.appended, 0)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=4))
def test_no_report_of_a_stock_slave_counts_that_cannot_be_true(offsets: list[int]) -> None:
    master = master_of(LOG)
    link = link_to(master)
    link.receive(b"".join(map(REPORT.pack, offsets)), 0.0)
    slave = link.slave
    if slave is not None:
        assert 0 <= offsets[0] <= LOG.end
        # Nothing was sent: it cannot have more than it began with.
        assert slave.appended <= offsets[0]
    assert master.slaves.replicated <= LOG.end


def test_the_first_report_of_a_stock_slave_counts_nothing() -> None:
    master = master_of(LOG)
    link = link_to(master)
    link.receive(REPORT.pack(LOG.end), 0.0)
    assert link.slave is not None
    assert link.slave.appended == NOTHING
    assert master.slaves.in_sync_count == 0


def test_many_reports_at_once_are_no_offence() -> None:
    master = master_of(LOG)
    link = link_to(master)
    assert greeted(link) is HelloVerdict.START
    link.receive(packed_ack(LOG.end, LOG.end) * 3000, 1.0)
    assert link.end_reason is None


@given(st.binary(max_size=200))
def test_garbage_never_counts_nor_raises(garbage: bytes) -> None:
    for before in (b"", PREAMBLE, PREAMBLE + packed_hello(hello_of(LOG, begin=0, end=0))):
        master = master_of(LOG)
        link = link_to(master)
        link.receive(before + garbage, 0.0)
        link.tick(100.0)
        assert master.slaves.replicated <= 0


# --- what is sent -----------------------------------------------------------------------------


def test_chunks_are_bounded_by_frames_and_segments() -> None:
    link = link_to(master_of(LOG, frame_bytes=300))
    assert greeted(link, begin=0, end=0) is HelloVerdict.START
    assert sent(link) == [(0, 300), (300, 212), (512, 300), (812, 212), (1024, LOG.end - 1024)]


def test_stock_chunks_fit_into_the_buffer_of_a_stock_slave() -> None:
    link = link_to(master_of(LOG, stock_frame_bytes=2**31))
    link.receive(REPORT.pack(0), 0.0)
    chunk = link.next_chunk(0.0)
    assert chunk is not None
    assert chunk.header == TRANSFER.pack(0, 512)
    assert STOCK_FRAME_BYTES_MAX + TRANSFER.size < 4 * 1024**2


def test_headers_say_how_the_master_stands() -> None:
    master = master_of(LOG, rules=InSyncRules(needed=2, counts_flushed=True), epoch=7)
    link = link_to(master)
    assert greeted(link) is HelloVerdict.START
    chunk = link.next_chunk(1.5)
    assert chunk is not None
    header = read_down(chunk.header[: DOWN.size])
    assert header.flags == DownFlag.SYNC | DownFlag.YOU_ARE_IN_SYNC | DownFlag.WANTS_FLUSH
    assert (header.needed, header.in_sync, header.epoch) == (2, 1, 7)
    assert (header.end, header.sent_ms) == (LOG.end, 1500)
    # Nothing behind this has been answered.
    assert header.replicated == LOG.end


@pytest.mark.parametrize("change", ["mode", "news", "rules"])
def test_a_change_is_told_at_once(change: str) -> None:
    master = master_of(LOG)
    link = link_to(master)
    greeted(link)
    assert sent(link) == [(LOG.end, 0)]
    assert sent(link) == []
    if change == "mode":
        master.pending_acks.switch(ReplicationMode.ASYNC, PhysicalOffset(LOG.end))
    elif change == "news":
        master.announce()
    else:
        master.slaves.rules = InSyncRules(needed=2)
    assert sent(link) == [(LOG.end, 0)]
    assert sent(link) == []


def test_catching_up_is_throttled_and_the_rest_is_not() -> None:
    master = master_of(LOG, catch_up_bytes_per_s=100)
    link = link_to(master)
    assert greeted(link, begin=0, end=0) is HelloVerdict.START
    # It is told how the master stands, but gets no bytes yet.
    assert sent(link) == [(0, 0)]
    assert 0.0 < link.next_tick <= 5.12
    in_sync = link_to(master)
    in_sync.receive(PREAMBLE + packed_hello(hello_of(LOG, store_id=b"x" * 16, broker_id=2)), 0.0)
    assert in_sync.slave is not None
    assert in_sync.slave.in_sync
    assert sent(in_sync) == [(LOG.end, 0)]
    total = 0
    now = 0.0
    while total < LOG.end:
        now = link.next_tick
        link.tick(now)
        total += sum(size for _, size in sent(link, now))
        link.receive(packed_ack(link.position), now)
        assert link.next_tick > now
    assert now >= LOG.end / 100 - 1


# --- time -------------------------------------------------------------------------------------


@given(st.floats(0, 10**7))
def test_a_tick_leaves_nothing_to_be_done_at_once(now: float) -> None:
    for data in (b"", REPORT.pack(0), PREAMBLE):
        link = link_to(master_of(SimLog()), now=now)
        link.receive(data, now)
        link.take_output()
        for _ in range(20):
            if link.end_reason is not None:
                break
            now = link.next_tick
            link.tick(now)
            sent(link, now)
            assert link.end_reason is not None or link.next_tick > now
        else:
            pytest.fail("a silent connection never ends")


def test_settings_hold_from_the_moment_they_are_changed() -> None:
    master = master_of(LOG)
    link = link_to(master)
    greeted(link)
    assert master.slaves.is_enough
    settings = master.settings
    master.reconfigure(
        type(settings)(
            cluster="c",
            broker_name="b",
            address="m:10911",
            store_id=b"m" * 16,
            rules=InSyncRules(needed=2),
            timeout_s=1.0,
        ),
        1.0,
    )
    assert not master.slaves.is_enough
    assert master.pending_acks.timeout_s == 1.0


# --- doubles ---------------------------------------------------------------------------------


def _connect(master: Master[str], now: float, host: str = "10.0.0.7", **fields: Any) -> MasterLink:
    """Greet a master with the hello of an empty slave."""
    link = MasterLink(master, host, f"{host}:4711", nonce=NONCE, now=now)
    link.receive(PREAMBLE + packed_hello(hello_of(SimLog(), **fields)), now)
    return link


@pytest.mark.parametrize(
    ("host", "fields", "reason"),
    [
        pytest.param("10.0.0.8", {}, "is a copy", id="a copied store elsewhere"),
        pytest.param("10.0.0.7", {"address": "t:10911"}, "is a copy", id="a copied store here"),
        pytest.param(
            "10.0.0.8",
            {"store_id": b"t" * 16, "address": "t:10911"},
            "the same brokerId, 1",
            id="the same brokerId",
        ),
    ],
)
def test_who_cannot_be_told_from_a_healthy_slave_is_refused(
    host: str, fields: dict[str, Any], reason: str
) -> None:
    master = master_of(filled_log(500))
    first = _connect(master, 0.0)
    assert first.is_streaming
    second = _connect(master, 9.0, host, **fields)
    assert reason in (second.end_reason or "")
    assert "s:10911" in (second.end_reason or "")
    assert first.is_streaming
    assert first.slave is not None
    assert not first.slave.is_superseded, "the healthy one is not disturbed"
    # One that was not heard of for long is not healthy.
    third = _connect(master, 30.0, host, **fields)
    assert third.is_streaming


def test_a_slave_that_connects_anew_takes_its_own_place() -> None:
    master = master_of(filled_log(500))
    first = _connect(master, 0.0)
    assert _connect(master, 1.0).is_streaming
    assert first.slave is not None
    assert first.slave.is_superseded


def test_a_slave_that_lacks_tables_is_not_in_sync() -> None:
    master = master_of(LOG)
    link = link_to(master)
    assert greeted(link) is HelloVerdict.START
    assert link.slave is not None
    assert link.slave.in_sync
    for flags, in_sync in ((UpFlag.LACKS_TABLES, False), (0, True)):
        header = UpHeader(UpKind.ACK, flags, 0, 0, 1, LOG.end, LOG.end, 0)
        link.receive(pack_up(header), 1.0)
        assert link.slave.in_sync is in_sync
        assert master.slaves.in_sync_count == in_sync
