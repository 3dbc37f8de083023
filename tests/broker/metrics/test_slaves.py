"""Which slaves get series of their own: real ones always, made-up ones not without end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rmq.broker.metrics.slaves import (
    GONE_MS_MAX,
    LABEL_CHARS_MAX,
    NEW_MAX,
    NEW_PAUSE_S,
    SHOWN_MAX,
    SlaveChoice,
)
from tests.broker.metrics.metrics_kit import slave

if TYPE_CHECKING:
    from rmq.remoting.bodies import HaSlave


def labels_of(choice: SlaveChoice, *slaves: HaSlave, now: float = 0.0) -> list[tuple[str, str]]:
    return [(shown.name, shown.address) for shown in choice.choose(slaves, now)]


def forged(number: int, **changes: object) -> HaSlave:
    """A slave under a name that nobody had before."""
    return slave(1, **{"name": f"made-up:{number}", "identity": f"f{number}", **changes})


def test_a_peer_that_always_has_a_new_name_makes_few_series_in_a_day() -> None:
    choice = SlaveChoice(0.0)
    day_s = 24 * 3600
    ever: set[tuple[str, str]] = set()
    for second in range(0, day_s, 15):
        ever.update(labels_of(choice, forged(second), now=second))
    assert len(ever) <= NEW_MAX + day_s / NEW_PAUSE_S


def test_a_crowd_of_newcomers_hides_no_slave_that_was_there_before() -> None:
    choice = SlaveChoice(0.0)
    known = [slave(number, appended=0) for number in range(1, 4)]
    before = labels_of(choice, *known)
    assert len(before) == 3
    for number in range(1, 1000):
        crowd = [forged(number * 100 + each, appended=2**40) for each in range(60)]
        shown = labels_of(choice, *crowd, *known, now=number * 15.0)
        assert len(shown) <= SHOWN_MAX
        assert set(before) <= set(shown)


def test_a_slave_in_sync_comes_before_those_that_are_not() -> None:
    choice = SlaveChoice(0.0)
    crowd = [forged(number, in_sync=False) for number in range(SHOWN_MAX + 8)]
    [first, *others] = labels_of(choice, *crowd, slave(1))
    assert first == ("orders:1", "192.0.2.1:10911")
    assert len(others) == SHOWN_MAX - 1


def test_slaves_that_come_and_go_are_shown_each_time() -> None:
    choice = SlaveChoice(0.0)
    for _ in range(10):
        for number in range(NEW_MAX):
            assert len(labels_of(choice, slave(number))) == 1
    assert labels_of(choice, slave(NEW_MAX)) == []
    assert len(labels_of(choice, slave(NEW_MAX), now=NEW_PAUSE_S)) == 1


@pytest.mark.parametrize(
    ("address", "host"),
    [
        pytest.param("192.0.2.5:51234", "192.0.2.5", id="IPv4"),
        pytest.param("[2001:db8::5]:51234", "[2001:db8::5]", id="IPv6"),
        pytest.param("unnamed", "unnamed", id="no port"),
    ],
)
def test_a_stock_slave_is_shown_by_its_host_as_its_port_changes(address: str, host: str) -> None:
    stock = slave(1, name=address, address=address, native=False)
    assert labels_of(SlaveChoice(0.0), stock) == [(host, host)]


def test_of_two_connections_under_the_same_labels_the_better_one_is_shown() -> None:
    old = slave(1, in_sync=False, appended=9_999)
    [shown] = SlaveChoice(0.0).choose([old, slave(1), old], 0.0)
    assert shown.slave == slave(1)


def test_a_slave_that_is_back_under_another_address_is_not_missing() -> None:
    gone = slave(1, address="192.0.2.50:10911", connected=False, in_sync=False)
    assert labels_of(SlaveChoice(0.0), gone, slave(1)) == [("orders:1", "192.0.2.1:10911")]


def test_a_slave_that_is_gone_is_shown_for_a_day() -> None:
    gone = slave(1, connected=False, in_sync=False, heard_ms_ago=GONE_MS_MAX)
    assert len(labels_of(SlaveChoice(0.0), gone)) == 1
    long_gone = slave(1, connected=False, in_sync=False, heard_ms_ago=GONE_MS_MAX + 1)
    assert labels_of(SlaveChoice(0.0), long_gone) == []


def test_texts_of_peers_are_cut_and_cleaned() -> None:
    odd = slave(1, name="a\nb\x00" + "x" * 500, address="\ud800:1")
    [(name, address)] = labels_of(SlaveChoice(0.0), odd)
    assert name == ("a?b?" + "x" * 500)[:LABEL_CHARS_MAX]
    assert address == "?:1"
