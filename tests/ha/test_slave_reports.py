"""When a slave says what it holds: at once if sends wait for it, now and then if none does."""

from __future__ import annotations

import pytest

from rmq.ha.slave_link import REPORT_S, SlaveLink
from rmq.ha.wire import REPORT, TRANSFER, UP, DownFlag, DownKind, Verdict, read_up
from tests.ha.link_kit import packed_challenge, packed_down, packed_welcome, slave_of
from tests.ha.simulation.disk import SimLog


def streaming(log: SimLog) -> SlaveLink:
    """Return a link that has just reported, at time 1."""
    link = slave_of(log)
    link.receive(packed_challenge(), 0.0)
    link.receive(packed_welcome(Verdict.START, start=log.end), 0.0)
    link.take_output()
    take(link, log, b"first", 1.0)
    assert reported(link) == [5]
    return link


def take(link: SlaveLink, log: SimLog, body: bytes, now: float, *, is_sync: bool = False) -> None:
    """Get bytes of the log, or a heartbeat, and finish the turn as the glue does."""
    flags = int(DownFlag.SYNC) if is_sync else 0
    frame = packed_down(DownKind.DATA, body, offset=log.end, flags=flags)
    assert link.receive(frame, now) == len(frame) - len(body)
    log.append(body)
    link.body_received(len(body), now)
    link.report(now)


def reported(link: SlaveLink) -> list[int]:
    output = link.take_output()
    return [read_up(output[at : at + UP.size]).appended for at in range(0, len(output), UP.size)]


def test_while_sends_wait_every_turn_is_reported() -> None:
    log = SimLog()
    link = streaming(log)
    for turn in range(1, 5):
        take(link, log, b"abc", 1.0, is_sync=True)
        assert reported(link) == [5 + 3 * turn]


def test_while_no_send_waits_one_report_covers_many_turns() -> None:
    log = SimLog()
    link = streaming(log)
    for turn in range(5):
        take(link, log, b"abc", 1.0 + turn * REPORT_S / 6)
    assert reported(link) == []
    assert link.next_tick == 1.0 + REPORT_S
    link.tick(link.next_tick)
    assert reported(link) == [20]
    assert link.next_tick > 1.0 + 2 * REPORT_S


def test_after_a_pause_the_first_turn_is_reported_at_once() -> None:
    log = SimLog()
    link = streaming(log)
    take(link, log, b"abc", 1.0 + REPORT_S)
    assert reported(link) == [8]


def test_a_report_that_was_kept_goes_out_when_the_master_begins_to_wait() -> None:
    log = SimLog()
    link = streaming(log)
    take(link, log, b"abc", 1.0)
    assert reported(link) == []
    take(link, log, b"", 1.0, is_sync=True)
    assert reported(link) == [8]
    assert link.next_tick > 1.0 + REPORT_S


@pytest.mark.parametrize("now", [1.0, 1.0 + REPORT_S / 2], ids=["at once", "soon after"])
def test_a_stock_master_gets_a_report_for_every_turn(now: float) -> None:
    log = SimLog()
    link = slave_of(log, is_native=False)
    assert link.take_output() == REPORT.pack(0)
    for end in (3, 6):
        link.receive(TRANSFER.pack(log.end, 3), now)
        log.append(b"abc")
        link.body_received(3, now)
        link.report(now)
        assert link.take_output() == REPORT.pack(end)
