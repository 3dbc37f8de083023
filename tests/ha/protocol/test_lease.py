"""How long a master that hears from nobody goes on."""

from __future__ import annotations

import pytest

from rmq.ha.protocol.lease import Lease

NAMES = ("n1", "n2", "n3")


@pytest.mark.parametrize(
    ("heard", "slaves", "until"),
    [
        pytest.param({}, [], 13, id="nobody: from the start on"),
        pytest.param({"n1": 50}, [], 13, id="one of three is not most"),
        pytest.param({"n1": 50, "n2": 40}, [], 43, id="two of three"),
        pytest.param({"n1": 50, "n2": 40, "n3": 45}, [], 48, id="all three"),
        pytest.param({"n1": 50}, [60.0, 70.0], 73, id="a slave"),
        pytest.param({"n1": 50, "n2": 90}, [20.0], 53, id="whoever was heard of last"),
        pytest.param({"other": 99, "n1": 50}, [], 13, id="who is no nameserver any longer"),
    ],
)
def test_it_holds_while_most_nameservers_or_a_slave_are_heard_of(
    heard: dict[str, float], slaves: list[float], until: float
) -> None:
    lease = Lease(10.0)
    for name, at in heard.items():
        lease.heard(name, at)
    assert lease.held_until(NAMES, slaves, 3.0) == until


def test_without_nameservers_slaves_count() -> None:
    assert Lease(10.0).held_until((), [30.0], 3.0) == 33.0
    assert Lease(10.0).held_until((), [], 3.0) == 13.0
