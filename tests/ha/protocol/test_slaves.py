"""Who holds what, and who counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq.ha.protocol.slaves import NOTHING, REMEMBERED_MAX, InSyncRules, SlaveProgress, SlaveSet
from rmq.model.offsets import PhysicalOffset

RULES: Final = InSyncRules(lag_s_max=15.0, lag_bytes_max=1000)


def progress_of(identity: str, *, host: str | None = None, is_native: bool = True) -> SlaveProgress:
    return SlaveProgress(
        identity, identity, identity, broker_id=1, is_native=is_native, host=host or identity
    )


def joined(slaves: SlaveSet, *holdings: tuple[str, int], now: float = 0.0) -> list[SlaveProgress]:
    found = []
    for identity, offset in holdings:
        slave = progress_of(identity)
        slaves.join(slave, now)
        slaves.holds(slave, PhysicalOffset(offset), PhysicalOffset(offset), now)
        found.append(slave)
    return found


@pytest.mark.parametrize(
    ("needed", "replicated"),
    [
        pytest.param(1, 500, id="one"),
        pytest.param(2, 480, id="two"),
        pytest.param(3, 450, id="three"),
        pytest.param(4, NOTHING, id="more than there are"),
    ],
)
def test_replicated_is_the_needed_th_largest(needed: int, replicated: int) -> None:
    slaves = SlaveSet(replace(RULES, needed=needed), PhysicalOffset(500))
    a, b, c = joined(slaves, ("a", 500), ("b", 500), ("c", 500))
    slaves.grew(PhysicalOffset(600), 1.0)
    for slave, offset in ((a, 500), (b, 500), (c, 500)):
        slaves.holds(slave, PhysicalOffset(offset), PhysicalOffset(offset), 1.0)
    for slave, offset in ((a, 480), (b, 450), (c, 500)):
        # Reports may come late, and never take anything back.
        slave.appended = PhysicalOffset(offset)
    slaves.refresh(1.0)
    assert slaves.replicated == replicated
    assert slaves.in_sync_count == 3
    assert slaves.is_enough == (needed <= 3)


def test_a_slave_counts_from_when_it_has_caught_up() -> None:
    slaves = SlaveSet(RULES, PhysicalOffset(500))
    (a,) = joined(slaves, ("a", 100))
    assert not a.in_sync
    assert slaves.replicated == NOTHING
    # The log grows while it catches up; it was caught up with what there was when it came.
    slaves.grew(PhysicalOffset(700), 2.0)
    slaves.holds(a, PhysicalOffset(499), PhysicalOffset(0), 2.0)
    assert not a.in_sync
    slaves.holds(a, PhysicalOffset(500), PhysicalOffset(0), 3.0)
    assert a.in_sync
    assert a.caught_up_at == 0.0
    assert slaves.replicated == 500
    assert a.lag_bytes(700) == 200
    assert a.lag_s(700, 4.0) == 4.0
    assert a.lag_s(500, 4.0) == 0.0


def test_reports_alone_keep_nobody_in_sync() -> None:
    slaves = SlaveSet(RULES, PhysicalOffset(500))
    (a,) = joined(slaves, ("a", 500))
    slaves.grew(PhysicalOffset(600), 10.0)
    for now in (11.0, 20.0, 25.0):
        slaves.holds(a, PhysicalOffset(500), PhysicalOffset(500), now)
        assert a.in_sync
    assert slaves.refresh(25.1) == [a]
    assert not a.in_sync
    assert slaves.in_sync_count == 0


def test_who_lacks_too_much_does_not_count() -> None:
    slaves = SlaveSet(RULES, PhysicalOffset(500))
    (a,) = joined(slaves, ("a", 500))
    slaves.grew(PhysicalOffset(1499), 1.0)
    slaves.refresh(1.0)
    assert a.in_sync
    slaves.grew(PhysicalOffset(1500), 1.0)
    assert slaves.refresh(1.0) == [a]
    assert not a.in_sync


def test_an_idle_slave_stays_in_sync_for_ever() -> None:
    slaves = SlaveSet(RULES, PhysicalOffset(500))
    (a,) = joined(slaves, ("a", 500))
    slaves.refresh(10**6)
    assert a.in_sync


def test_marks_never_fall() -> None:
    slaves = SlaveSet(RULES, PhysicalOffset(500))
    (a,) = joined(slaves, ("a", 500))
    slaves.holds(a, PhysicalOffset(300), PhysicalOffset(200), 1.0)
    assert (a.appended, a.flushed) == (500, 500)


def test_a_slave_that_has_flushed_more_than_it_holds_is_a_mistake_of_ours() -> None:
    slaves = SlaveSet(RULES, PhysicalOffset(500))
    (a,) = joined(slaves, ("a", 300))
    with pytest.raises(AssertionError, match="flushed 400 <= appended 300"):
        slaves.holds(a, PhysicalOffset(300), PhysicalOffset(400), 1.0)


def test_only_what_is_flushed_counts_if_the_rules_say_so() -> None:
    slaves = SlaveSet(replace(RULES, counts_flushed=True), PhysicalOffset(500))
    (a,) = joined(slaves, ("a", 0))
    slaves.holds(a, PhysicalOffset(500), PhysicalOffset(200), 0.0)
    assert a.in_sync
    assert slaves.replicated == 200


def test_a_newer_link_of_a_slave_takes_the_place_of_the_older() -> None:
    slaves = SlaveSet(replace(RULES, needed=2), PhysicalOffset(500))
    old, _ = joined(slaves, ("a", 500), ("b", 500))
    assert slaves.replicated == 500
    # It comes back with less than it had.
    (new,) = joined(slaves, ("a", 400), now=1.0)
    assert old.is_superseded
    assert not old.in_sync
    assert not new.in_sync
    assert slaves.replicated == NOTHING
    slaves.holds(old, PhysicalOffset(500), PhysicalOffset(500), 2.0)
    assert slaves.in_sync_count == 1
    slaves.holds(new, PhysicalOffset(500), PhysicalOffset(500), 2.0)
    assert slaves.replicated == 500


@pytest.mark.parametrize(
    ("natives", "stock", "held"),
    [
        pytest.param([], 300, [300], id="alone"),
        pytest.param([200], 300, [300], id="further than the native one"),
        pytest.param([400], 300, [400], id="not as far"),
        pytest.param([200, 250], 300, [300, 200], id="beside two"),
    ],
)
def test_a_stock_slave_may_be_a_native_one_of_its_host(
    natives: list[int], stock: int, held: list[int]
) -> None:
    for needed in range(1, len(held) + 1):
        slaves = SlaveSet(InSyncRules(needed=needed), PhysicalOffset(0))
        for number, offset in enumerate(natives):
            slave = progress_of(f"n{number}", host="h")
            slaves.join(slave, 0.0)
            slaves.holds(slave, PhysicalOffset(offset), PhysicalOffset(offset), 0.0)
        slave = progress_of("stock h", host="h", is_native=False)
        slaves.join(slave, 0.0)
        slaves.holds(slave, PhysicalOffset(stock), PhysicalOffset(stock), 0.0)
        assert slaves.in_sync_count == len(held)
        assert slaves.replicated == held[needed - 1]


def test_who_is_gone_is_remembered_until_it_is_back() -> None:
    slaves = SlaveSet(RULES, PhysicalOffset(500))
    (a,) = joined(slaves, ("a", 500))
    slaves.leave(a, 3.0, "cut")
    assert (len(slaves), slaves.replicated, slaves.in_sync_count) == (0, NOTHING, 0)
    assert slaves.gone == [a]
    assert (a.gone_at, a.why_gone) == (3.0, "cut")
    slaves.leave(a, 4.0, "again")
    assert a.why_gone == "cut"
    joined(slaves, ("a", 500))
    assert slaves.gone == []


def test_not_more_are_remembered_than_a_few() -> None:
    slaves = SlaveSet(RULES, PhysicalOffset(0))
    for number in range(REMEMBERED_MAX + 5):
        (slave,) = joined(slaves, (f"s{number}", 0))
        slaves.leave(slave, 0.0, "")
    gone = [slave.identity for slave in slaves.gone]
    assert gone == [f"s{number}" for number in range(5, REMEMBERED_MAX + 5)]


# --- against a slow and simple model ----------------------------------------------------------


def test_connections_of_one_host_count_once_and_are_all_suspected() -> None:
    """A stock slave may be the native one beside it, or another that confirms instead of it."""
    slaves = SlaveSet(RULES, PhysicalOffset(500))
    native = progress_of("native", host="h")
    stock = [progress_of(f"stock{number}", host="h", is_native=False) for number in range(2)]
    for slave in (native, *stock):
        slaves.join(slave, 0.0)
        slaves.holds(slave, PhysicalOffset(500), PhysicalOffset(500), 0.0)
    assert (slaves.in_sync_count, slaves.in_sync_most) == (1, 3)
    slaves.leave(stock[0], 1.0, "")
    assert (slaves.in_sync_count, slaves.in_sync_most) == (1, 2)


@settings(max_examples=60)
@given(
    st.integers(1, 3),
    st.lists(
        st.one_of(
            st.tuples(st.just("grow"), st.integers(1, 400)),
            st.tuples(st.just("wait"), st.integers(1, 8)),
            st.tuples(st.just("hold"), st.tuples(st.integers(0, 2), st.integers(0, 600))),
            st.tuples(st.just("leave"), st.integers(0, 2)),
        ),
        max_size=60,
    ),
)
def test_it_agrees_with_the_definition(needed: int, steps: list[tuple[str, object]]) -> None:
    rules = replace(RULES, needed=needed)
    slaves = SlaveSet(rules, PhysicalOffset(0))
    now = 0.0
    growth = [(0.0, 0)]
    """When the log ended where."""
    present: dict[int, SlaveProgress] = {}
    for kind, value in steps:
        if kind == "grow" and isinstance(value, int):
            slaves.grew(slaves.end + value, now)
            growth.append((now, slaves.end))
        elif kind == "wait" and isinstance(value, int):
            now += value
        elif kind == "leave" and isinstance(value, int):
            if value in present:
                slaves.leave(present.pop(value), now, "")
        elif isinstance(value, tuple):
            number, more = value
            if number not in present:
                present[number] = progress_of(f"s{number}")
                slaves.join(present[number], now)
            slave = present[number]
            offset = min(slaves.end, max(0, slave.appended) + more)
            slaves.holds(slave, offset, offset, now)
        slaves.refresh(now)
        counted = []
        for slave in present.values():
            if slave.in_sync:
                counted.append(slave.appended)
                # Truly caught up at some time that is not too long ago: the log had no more then.
                behind_since = next((at for at, end in growth if end > slave.appended), None)
                assert behind_since is None or now - behind_since <= rules.lag_s_max
                assert slaves.end - slave.appended < rules.lag_bytes_max
            else:
                assert slave.appended < slaves.end
        counted.sort(reverse=True)
        assert slaves.in_sync_count == len(counted)
        assert slaves.replicated == (counted[needed - 1] if len(counted) >= needed else NOTHING)
