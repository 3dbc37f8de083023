"""Which master a slave follows and asks, by what nameservers list and operators order."""

from __future__ import annotations

import pytest

from rmq.broker.config import LiveConfig, load_broker_config
from rmq.broker.registration.registration import Registered
from rmq.broker.replication.known_master import KnownMaster

MASTER, HA = "10.0.0.1:10911", "10.0.0.1:10912"


def known(**settings: str) -> KnownMaster:
    wanted = {"storePathRootDir": "/store", "brokerIP1": "10.0.0.2", **settings}
    return KnownMaster(LiveConfig(load_broker_config(None, wanted, {}), now_ms=1))


def listing(master: str | None, ha_address: str | None, epoch: int | None = None) -> Registered:
    return Registered("10.0.0.9:9876", ha_address, master, None, epoch)


def test_the_listed_master_is_followed_and_asked() -> None:
    it = known()
    it.listed(listing(MASTER, HA))
    assert (it.address, it.dialled, it.asked_at(it.dialled)) == (MASTER, HA, MASTER)


def test_a_master_that_is_listed_no_longer_is_still_dialled_and_asked_where_it_was() -> None:
    it = known()
    it.listed(listing("10.0.0.7:1", "10.0.0.1:2"))
    it.listed(listing(None, None))
    assert (it.address, it.dialled) == (None, "10.0.0.1:2")
    assert it.asked_at("10.0.0.1:2") == "10.0.0.7:1"


def test_a_slave_that_is_listed_as_master_still_follows_nobody() -> None:
    """It was master before: the nameserver lists its former role."""
    it = known()
    it.listed(listing("10.0.0.2:10911", "10.0.0.2:10912"))
    assert (it.address, it.dialled) == (None, None)


def test_a_configured_master_is_dialled_whatever_is_listed() -> None:
    it = known(haMasterAddress="10.0.0.5:7")
    it.listed(listing(MASTER, HA))
    assert (it.address, it.dialled) == (MASTER, "10.0.0.5:7")
    it.listed(listing(None, None))
    assert it.asked_at("10.0.0.5:7") == MASTER


def test_a_master_that_no_nameserver_has_listed_is_asked_below_its_port_for_slaves() -> None:
    it = known()
    it.follow("10.0.0.3:20912")
    assert it.asked_at(it.dialled) == "10.0.0.3:20911"
    assert it.asked_at(None) is None


def test_nothing_is_followed_after_the_master_is_forgotten() -> None:
    it = known()
    it.listed(listing(MASTER, HA))
    it.forget()
    assert (it.address, it.dialled) == (None, None)


@pytest.mark.parametrize(("heard", "latest"), [([None], 0), ([3, 2, None], 3), ([1, 4], 4)])
def test_the_latest_epoch_that_was_heard_counts(heard: list[int | None], latest: int) -> None:
    it = known()
    for epoch in heard:
        it.heard_epoch(epoch)
    assert it.epoch == latest
