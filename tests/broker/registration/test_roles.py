"""Roles that change while a broker runs: nameservers learn of it at once, and slaves of masters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from rmq.broker.config import BrokerRole
from tests.broker.registration.registration_kit import (
    BROKER,
    OTHER,
    PERIOD_S,
    A,
    B,
    cluster,
    settled,
)
from tests.remoting.client_kit import in_virtual_time

if TYPE_CHECKING:
    from pathlib import Path

SLAVE = {"brokerRole": "SLAVE", "brokerId": "1"}


@in_virtual_time(100_000)
@pytest.mark.parametrize(("epoch", "said"), [(0, None), (7, 7)], ids=["none", "seven"])
async def test_a_registration_says_the_epoch_if_there_is_one(
    tmp_path: Path, epoch: int, said: int | None
) -> None:
    async with cluster(tmp_path) as it:
        listener = await it.start_listener()
        it.epoch = epoch
        async with it.running():
            ((header, _),) = listener.registrations
            assert (header.epoch, header.broker_id) == (said, 0)


@in_virtual_time(100_000)
async def test_the_epoch_of_the_moment_is_said(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        listener = await it.start_listener()
        it.epoch = 1
        async with it.running():
            it.epoch = 2
            await trio.sleep(PERIOD_S + 1)
            assert [header.epoch for header, _ in listener.registrations] == [1, 2]


@in_virtual_time(100_000)
async def test_a_slave_that_becomes_master_is_listed_so_at_once_with_its_topics(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path, namesrvAddr=f"{A};{B}", **SLAVE) as it:
        await it.start_nameserver(A)
        await it.start_nameserver(B)
        it.epoch = 1
        it.add_topic("T-1")
        async with it.running():
            assert await it.listed(A) == await it.listed(B) == {1: BROKER}
            assert await it.route("T-1") is None
            started = trio.current_time()
            it.epoch = 2
            it.assume(BrokerRole.SYNC_MASTER, 0)
            await it.registration.wait_told()
            assert trio.current_time() == started
            assert await it.listed(A) == await it.listed(B) == {0: BROKER}
            assert await it.route("T-1", B) is not None


@in_virtual_time(100_000)
async def test_a_slave_that_becomes_master_is_known_with_topics_it_had_said_as_a_slave(
    tmp_path: Path,
) -> None:
    # A stock nameserver that still lists the old master takes them only at another data version.
    async with cluster(tmp_path, **SLAVE) as it:
        listener = await it.start_listener()
        async with it.running():
            it.assume(BrokerRole.ASYNC_MASTER, 0)
            await settled()
            (_, before), (header, after) = listener.registrations
            assert header.broker_id == 0
            versions = [
                body.topic_config_serialize_wrapper.data_version for body in (before, after)
            ]
            assert versions[0] != versions[1]
            assert listener.sizes == [len(it.topics)] * 2


@in_virtual_time(100_000)
async def test_a_master_that_becomes_a_slave_gives_up_its_place_and_hears_of_the_new_master(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as it:
        await it.start_nameserver()
        it.epoch = 1
        async with it.running():
            await it.register_other(0, epoch=2)
            it.answers.clear()
            it.assume(BrokerRole.SLAVE, 1)
            await settled()
            assert await it.listed() == {0: OTHER, 1: BROKER}
            (answer,) = it.answers
            assert (answer.master_address, answer.ha_address) == (OTHER, f"{OTHER}0")
            assert answer.epoch == 2
            it.epoch = 3
            it.assume(BrokerRole.ASYNC_MASTER, 0)
            await settled()
            assert await it.listed() == {0: BROKER}
            assert it.fenced == []


@in_virtual_time(100_000)
async def test_a_broker_says_goodbye_under_the_id_it_has_then(tmp_path: Path) -> None:
    async with cluster(tmp_path, **SLAVE) as it:
        listener = await it.start_listener()
        async with it.running():
            it.assume(BrokerRole.ASYNC_MASTER, 0)
            await settled()
            await it.registration.unregister_all()
        assert [goodbye.broker_id for goodbye in listener.goodbyes] == [0]


@in_virtual_time(100_000)
async def test_a_slave_registers_even_if_its_topics_are_known_for_it_wants_to_know_its_master(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path, forceRegister="false", **SLAVE) as it:
        listener = await it.start_listener()
        listener.is_known = True
        async with it.running():
            await trio.sleep(3 * PERIOD_S + 1)
            assert len(listener.registrations) == len(it.answers) == 4


@in_virtual_time(100_000)
async def test_a_slave_asks_nobody_who_is_master(tmp_path: Path) -> None:
    async with cluster(tmp_path, **SLAVE) as it:
        await it.start_nameserver()
        it.epoch = 1
        rival = await it.start_rival(epoch=5)
        await it.register_other(0, epoch=5)
        async with it.running():
            await trio.sleep(3 * PERIOD_S)
            assert (rival.asked, it.fenced) == (0, [])
            assert await it.listed() == {0: OTHER, 1: BROKER}
