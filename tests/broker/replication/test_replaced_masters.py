"""Which masters are remembered that asked whether they were replaced."""

from __future__ import annotations

from rmq.broker.replication.replaced_masters import HEARD_MAX, HEARD_S, ReplacedMasters


def test_a_master_is_remembered_while_it_asks() -> None:
    masters = ReplacedMasters()
    masters.heard("a", 0.0)
    masters.heard("b", 10.0)
    masters.heard("a", 20.0)
    assert masters.addresses(20.0) == ("b", "a")
    assert masters.addresses(10.0 + HEARD_S) == ("b", "a")
    assert masters.addresses(11.0 + HEARD_S) == ("a",)


def test_only_the_last_ones_are_remembered() -> None:
    masters = ReplacedMasters()
    for number in range(HEARD_MAX + 3):
        masters.heard(str(number), float(number))
    assert masters.addresses(20.0) == tuple(map(str, range(3, HEARD_MAX + 3)))
