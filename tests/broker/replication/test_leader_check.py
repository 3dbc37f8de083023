"""What another broker says of itself, and whether that keeps this one from being master."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rmq.broker.config import load_broker_config
from rmq.broker.replication.leader_check import fence_of
from rmq.remoting.bodies import HaStatusBody

if TYPE_CHECKING:
    from rmq.broker.config import BrokerConfig

OTHER = "10.0.0.2:10911"
EPOCH = 3


@pytest.fixture(scope="module")
def config() -> BrokerConfig:
    settings = {"brokerIP1": "10.0.0.1", "brokerName": "broker-a"}
    return load_broker_config(None, settings, {}).config


@pytest.mark.parametrize(
    ("role", "epoch", "fenced_by"),
    [
        pytest.param("MASTER", 4, 4, id="a later master"),
        pytest.param("SLAVE", 4, 4, id="one that was a later master or followed one"),
        pytest.param("MASTER", 3, 3, id="a master of the same epoch"),
        pytest.param("SLAVE", 3, None, id="a slave of the same epoch"),
        pytest.param("MASTER", 2, None, id="an earlier master"),
        pytest.param("MASTER", 0, None, id="one without an epoch"),
    ],
)
def test_who_is_master_is_told_by_the_epoch(
    config: BrokerConfig, role: str, epoch: int, fenced_by: int | None
) -> None:
    status = HaStatusBody(role=role, epoch=epoch, broker_name="broker-a", address=OTHER)
    fence = fence_of(OTHER, status, config, EPOCH)
    assert (None if fence is None else fence.epoch) == fenced_by


def test_a_broker_does_not_fence_itself_at_an_address_it_had_before(config: BrokerConfig) -> None:
    status = HaStatusBody(role="MASTER", epoch=3, broker_name="broker-a", address=config.address)
    assert fence_of("10.0.0.9:10911", status, config, EPOCH) is None


def test_a_broker_of_another_name_that_got_the_address_is_no_rival(config: BrokerConfig) -> None:
    status = HaStatusBody(role="MASTER", epoch=9, broker_name="broker-b", address=OTHER)
    assert fence_of(OTHER, status, config, EPOCH) is None
