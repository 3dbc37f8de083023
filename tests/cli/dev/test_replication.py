"""The self-check of `rmq dev` fails when replication does not do what it should."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rmq.cli.dev.replication import CheckFailedError, check_copy, wait_in_sync
from rmq.cli.ha.client import open_ha_client
from tests.cli.ha.ha_kit import (
    LogOfBytes,
    StandInBroker,
    master_status,
    serving,
    slave_status,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

LOG = bytes(range(256)) * 400


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[StandInBroker, StandInBroker]]:
    """A sync master and a slave with the same log, and little time to wait."""
    monkeypatch.setattr("rmq.cli.dev.replication.IN_SYNC_S", 0.2)
    monkeypatch.setattr("rmq.cli.dev.replication.COPY_S", 0.2)
    master, slave = StandInBroker(), StandInBroker()
    with serving(master, slave):
        master.log = slave.log = LogOfBytes(LOG)
        master.now = master_status(master.address, end=len(LOG))
        slave.now = slave_status(slave.address, master.address, end=len(LOG))
        yield master, slave


async def in_sync(pair: tuple[StandInBroker, StandInBroker], mode: str) -> str:
    async with open_ha_client(5) as client:
        return await wait_in_sync(client, pair[0].address, pair[1].address, mode)


async def copy(pair: tuple[StandInBroker, StandInBroker], mode: str) -> str:
    async with open_ha_client(5) as client:
        return await check_copy(client, pair[0].address, pair[1].address, mode)


async def test_a_pair_in_order_passes(pair: tuple[StandInBroker, StandInBroker]) -> None:
    assert (await in_sync(pair, "sync")).startswith("mode sync, epoch 3; slave in sync, waited ")
    assert await copy(pair, "sync") == (
        "replicated: lag 0 B; 100.0 KiB the same on both, byte for byte"
    )


async def test_another_mode_than_wanted_fails(pair: tuple[StandInBroker, StandInBroker]) -> None:
    with pytest.raises(CheckFailedError, match="is sync, not async"):
        await in_sync(pair, "async")


async def test_a_slave_that_does_not_get_in_sync_fails_with_its_own_words(
    pair: tuple[StandInBroker, StandInBroker],
) -> None:
    master, slave = pair
    master.now = master_status(master.address, slaves=())
    slave.now = slave_status(slave.address, state="refused", last_error="wrong secret")
    with pytest.raises(CheckFailedError, match=r"not in sync after 0\.2 s: refused, wrong secret"):
        await in_sync(pair, "sync")


async def test_a_sync_master_that_answered_too_early_fails_at_once(
    pair: tuple[StandInBroker, StandInBroker],
) -> None:
    pair[1].now = slave_status(pair[1].address, end=len(LOG) - 1024)
    with pytest.raises(CheckFailedError, match=r"does not hold: 1\.0 KiB are missing"):
        await copy(pair, "sync")


async def test_the_slave_of_an_async_master_may_take_its_time_but_not_for_ever(
    pair: tuple[StandInBroker, StandInBroker],
) -> None:
    pair[1].now = slave_status(pair[1].address, end=7)
    with pytest.raises(CheckFailedError, match=r"ends at 7, its master at 102400, after 0\.2 s"):
        await copy(pair, "async")


async def test_logs_that_differ_fail_with_the_place(
    pair: tuple[StandInBroker, StandInBroker],
) -> None:
    pair[1].log = LogOfBytes(LOG[:-1] + b"?")
    with pytest.raises(CheckFailedError, match="differ between offsets 65536 and 102400"):
        await copy(pair, "sync")
