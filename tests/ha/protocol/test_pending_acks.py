"""Sends that wait for slaves, and when they are answered."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.ha.protocol.pending_acks import AckOutcome, ModeSwitch, PendingAcks, ReplicationMode
from rmq.ha.protocol.slaves import InSyncRules, SlaveProgress, SlaveSet
from rmq.model.offsets import PhysicalOffset

SYNC, ASYNC = ReplicationMode.SYNC, ReplicationMode.ASYNC


class Pair:
    """The pending acks of a master, and one slave."""

    def __init__(self, mode: ReplicationMode, *, end: int = 100, minimum: int = 0) -> None:
        self.slaves = SlaveSet(InSyncRules(minimum=minimum), PhysicalOffset(end))
        self.pending_acks: PendingAcks[str] = PendingAcks(
            self.slaves, mode, end=PhysicalOffset(end), timeout_s=3.0
        )
        self.slave = SlaveProgress("s", "s", "s", broker_id=1, is_native=True)

    def join(self) -> None:
        self.slaves.join(self.slave, 0.0)
        self.hold(self.slaves.end)

    def hold(self, offset: int) -> list[str]:
        self.slaves.holds(self.slave, PhysicalOffset(offset), PhysicalOffset(offset), 0.0)
        return self.pending_acks.release()

    def send(self, name: str, size: int = 10, now: float = 0.0) -> AckOutcome | None:
        end = self.slaves.end + size
        self.slaves.grew(end, now)
        return self.pending_acks.ask(end, now, name)


@pytest.mark.parametrize(
    ("mode", "has_slave", "answer"),
    [
        pytest.param(ASYNC, False, AckOutcome.REPLICATED, id="async, alone"),
        pytest.param(ASYNC, True, AckOutcome.REPLICATED, id="async, with a slave"),
        pytest.param(SYNC, False, AckOutcome.NOT_AVAILABLE, id="sync, alone"),
        pytest.param(SYNC, True, None, id="sync, with a slave"),
    ],
)
def test_what_a_send_is_answered_at_once(
    mode: ReplicationMode, has_slave: bool, answer: AckOutcome | None
) -> None:
    pair = Pair(mode)
    if has_slave:
        pair.join()
    assert pair.send("m") is answer
    assert len(pair.pending_acks) == (answer is None)


def test_a_report_answers_all_it_covers_in_order() -> None:
    pair = Pair(SYNC)
    pair.join()
    for name in ("a", "b", "c"):
        pair.send(name)
    assert pair.hold(109) == []
    assert pair.hold(120) == ["a", "b"]
    assert pair.pending_acks.visible == 120
    assert pair.hold(130) == ["c"]
    assert pair.pending_acks.next_deadline() is None


def test_each_waits_until_its_own_deadline() -> None:
    pair = Pair(SYNC)
    pair.join()
    pair.send("a", now=1.0)
    pair.send("b", now=2.0)
    assert pair.pending_acks.next_deadline() == 4.0
    assert pair.pending_acks.expire(3.999) == []
    assert pair.pending_acks.expire(4.0) == ["a"]
    assert pair.pending_acks.expire(5.0) == ["b"]


def test_what_is_held_already_needs_no_waiting() -> None:
    pair = Pair(SYNC)
    pair.join()
    pair.slaves.grew(PhysicalOffset(200), 0.0)
    pair.hold(200)
    assert pair.pending_acks.ask(PhysicalOffset(200), 0.0, "m") is AckOutcome.REPLICATED


def test_a_switch_takes_effect_at_the_end_of_the_log() -> None:
    pair = Pair(ASYNC)
    pair.join()
    assert pair.pending_acks.switch(ASYNC, PhysicalOffset(150)) == ModeSwitch(
        PhysicalOffset(100), ASYNC
    )
    pair.slaves.grew(PhysicalOffset(150), 0.0)
    assert pair.pending_acks.switch(SYNC, PhysicalOffset(150)) == ModeSwitch(
        PhysicalOffset(150), SYNC
    )
    assert pair.pending_acks.visible == 150
    # It was appended before the switch.
    assert pair.pending_acks.ask(PhysicalOffset(150), 0.0, "old") is AckOutcome.REPLICATED
    assert pair.send("new") is None


def test_those_who_wait_go_on_waiting_after_a_switch_to_async() -> None:
    pair = Pair(SYNC)
    pair.join()
    pair.send("m")
    pair.pending_acks.switch(ASYNC, PhysicalOffset(110))
    assert pair.pending_acks.release() == []
    assert pair.hold(110) == ["m"]


@pytest.mark.parametrize(
    ("mode", "minimum", "has_slave", "refuses"),
    [
        pytest.param(SYNC, 1, False, True, id="too few"),
        pytest.param(SYNC, 1, True, False, id="enough"),
        pytest.param(SYNC, 2, True, True, id="still too few"),
        pytest.param(SYNC, 0, False, False, id="no minimum"),
        pytest.param(ASYNC, 1, False, False, id="async"),
    ],
)
def test_when_a_send_is_refused(
    mode: ReplicationMode, minimum: int, has_slave: bool, refuses: bool
) -> None:
    pair = Pair(mode, minimum=minimum)
    if has_slave:
        pair.join()
    assert pair.pending_acks.refuses() is refuses


def test_whoever_has_gone_is_forgotten() -> None:
    pair = Pair(SYNC)
    pair.join()
    pair.send("a")
    pair.send("b")
    pair.pending_acks.forget("a")
    assert pair.pending_acks.give_up() == ["b"]
    assert len(pair.pending_acks) == 0


def test_where_a_slave_must_begin_to_cover_those_who_wait() -> None:
    pair = Pair(SYNC)
    pair.join()
    assert pair.pending_acks.awaited_from(PhysicalOffset(100)) == 100
    pair.send("a", 10)
    pair.send("b", 90)
    assert pair.pending_acks.awaited_from(PhysicalOffset(200)) == 109
    pair.hold(110)
    assert pair.pending_acks.awaited_from(PhysicalOffset(200)) == 110
    pair.hold(200)
    assert pair.pending_acks.awaited_from(PhysicalOffset(200)) == 200
    pair.send("c", 50)
    assert pair.pending_acks.awaited_from(PhysicalOffset(250)) == 249


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("send"), st.integers(1, 50)),
            st.tuples(st.just("hold"), st.integers(0, 80)),
            st.tuples(st.just("wait"), st.integers(0, 4)),
            st.tuples(st.just("switch"), st.integers(0, 1)),
            st.tuples(st.just("needed"), st.integers(1, 2)),
        ),
        max_size=80,
    )
)
def test_every_pending_ack_is_released_once_and_only_when_due(steps: list[tuple[str, int]]) -> None:
    pair = Pair(SYNC)
    pair.join()
    pending_acks, slaves = pair.pending_acks, pair.slaves
    now, waiting, visible = 0.0, dict[str, tuple[int, float]](), pending_acks.visible
    for number, (kind, value) in enumerate(steps):
        if kind == "send":
            outcome = pair.send(str(number), value, now)
            if outcome is None:
                waiting[str(number)] = (slaves.end, now + 3.0)
            elif pending_acks.is_sync:
                is_held = slaves.end <= max(slaves.replicated, pending_acks.in_force.offset)
                assert (outcome is AckOutcome.REPLICATED) == is_held
        elif kind == "hold":
            slaves.holds(
                pair.slave, min(slaves.end, pair.slave.appended + value), PhysicalOffset(0), now
            )
        elif kind == "wait":
            now += value
        elif kind == "switch":
            pending_acks.switch((SYNC, ASYNC)[value], slaves.end)
        else:
            slaves.rules = replace(slaves.rules, needed=value)
            slaves.refresh(now)
        for name in pending_acks.release():
            assert waiting.pop(name)[0] <= slaves.replicated
        for name in pending_acks.expire(now):
            assert waiting.pop(name)[1] <= now
        assert all(end > slaves.replicated and at > now for end, at in waiting.values())
        assert all(end > pending_acks.awaited_from(slaves.end) for end, _ in waiting.values())
        assert len(pending_acks) == len(waiting)
        assert visible <= pending_acks.advance_visible(slaves.end) <= slaves.end
        visible = pending_acks.visible
