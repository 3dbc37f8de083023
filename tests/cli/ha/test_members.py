"""Which broker an order of `rmq ha` is for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rmq.cli import main
from rmq.cli.common.exit_codes import ExitCode
from rmq.store.core import Refusal
from tests.cli.ha.ha_kit import StandInBroker, StandInNameserver, master_status, serving, slave_seen

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def master() -> Iterator[StandInBroker]:
    broker = StandInBroker()
    with serving(broker):
        broker.now = master_status(broker.address, slaves=(slave_seen("10.0.0.2:10911"),))
        yield broker


def fence(broker: StandInBroker) -> None:
    broker.now = master_status(
        broker.address, state=Refusal.FENCED.value, last_error="epoch 4 is at 10.0.0.9:10911"
    )


def promote(*arguments: str) -> int:
    return main(["--log-level", "warning", "ha", "promote", *arguments, "--yes"])


def test_a_fenced_master_that_is_named_is_promoted(master: StandInBroker) -> None:
    # That is what its log and `rmq ha status` tell operators to do.
    fence(master)
    assert promote("-b", master.address) == ExitCode.OK
    assert [order[0] for order in master.orders if isinstance(order, tuple)] == ["promote"]


@pytest.mark.parametrize("state", ["writable", Refusal.DISK_FULL.value, Refusal.HANDING_OVER.value])
def test_any_other_master_is_not(
    master: StandInBroker, state: str, capsys: pytest.CaptureFixture[str]
) -> None:
    master.now = master_status(master.address, state=state, slaves=(slave_seen("10.0.0.2:10911"),))
    assert promote("-b", master.address) == ExitCode.FAILURE
    assert "is a master; this is for a slave" in capsys.readouterr().err
    assert master.orders == []


def test_a_fenced_master_is_not_taken_for_the_slave_that_was_not_named(
    master: StandInBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    fence(master)
    nameserver = StandInNameserver({"broker-a": {0: master.address}})
    with serving(nameserver):
        assert promote("-n", nameserver.address, "--name", "broker-a") == ExitCode.FAILURE
    assert "there is no slave" in capsys.readouterr().err
    assert master.orders == []
