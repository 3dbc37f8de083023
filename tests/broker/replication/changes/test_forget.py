"""Which slaves a master may be told to forget."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rmq.broker.replication.changes.forget import forget_slave
from rmq.errors import RefusedError
from rmq.ha.protocol.slaves import InSyncRules, SlaveProgress, SlaveSet
from rmq.model.offsets import PhysicalOffset
from tests.ha.protocol.test_record_keeper import go_async, keeper_of

if TYPE_CHECKING:
    from rmq.ha.protocol.record_keeper import RecordKeeper


def slave(number: int, *, store: str = "") -> SlaveProgress:
    return SlaveProgress(
        store or f"store{number}",
        f"broker-a:{number}",
        f"10.0.0.{number}:10911",
        broker_id=number,
        is_native=True,
        member=f"store{number}.1",
    )


def slaves_of(*gone: SlaveProgress, keeper: RecordKeeper | None = None) -> SlaveSet:
    """Return a set with one slave that is connected, number 9, and these that are not."""
    slaves = SlaveSet(InSyncRules(), PhysicalOffset(0))
    if keeper is not None:
        slaves.keeper = keeper
    slaves.join(slave(9), 0.0)
    for each in gone:
        slaves.join(each, 0.0)
        slaves.leave(each, 1.0, "it closed the connection")
    return slaves


@pytest.mark.parametrize("named", ["10.0.0.1:10911", "broker-a:1"])
def test_a_slave_that_is_gone_is_forgotten(named: str) -> None:
    slaves = slaves_of(slave(1), slave(2))
    forget_slave(slaves, named)
    assert [each.name for each in slaves.gone] == ["broker-a:2"]


def test_all_stores_that_a_slave_ever_had_are_forgotten() -> None:
    slaves = slaves_of(slave(1, store="one"), slave(1, store="other"))
    forget_slave(slaves, "broker-a:1")
    assert slaves.gone == []


@pytest.mark.parametrize(
    ("named", "why"),
    [
        ("broker-a:9", "the slave broker-a:9 is connected, and no other store"),
        ("10.0.0.9:10911", "is connected"),
        (
            "broker-a:3",
            "no slave broker-a:3 is remembered; of slaves that are gone: broker-a:1 (10.0.0.1:",
        ),
    ],
)
def test_one_that_is_connected_or_not_known_is_not(named: str, why: str) -> None:
    slaves = slaves_of(slave(1))
    with pytest.raises(RefusedError) as refused:
        forget_slave(slaves, named)
    assert why in str(refused.value)
    assert len(slaves.gone) == 1


def test_one_that_may_hold_what_was_acknowledged_is_forgotten_when_the_rule_has_changed() -> None:
    keeper = keeper_of("store1.1")
    slaves = slaves_of(slave(1), slave(2), keeper=keeper)
    with pytest.raises(RefusedError, match="the in-sync record names the slave broker-a:1"):
        forget_slave(slaves, "broker-a:1")
    # The record does not name this one.
    forget_slave(slaves, "broker-a:2")
    record = go_async(keeper)
    with pytest.raises(RefusedError, match="names the slave"):
        # The new rule does not count yet.
        forget_slave(slaves, "broker-a:1")
    for nameserver in record.nameservers:
        keeper.stored(nameserver, record.order)
    forget_slave(slaves, "broker-a:1")
    assert slaves.gone == []
