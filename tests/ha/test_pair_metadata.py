"""Tables beside the log: a slave takes them from the master of its link, and from nobody else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from rmq.broker.registration.registration import Registered
from tests.ha.pair_kit import pair

if TYPE_CHECKING:
    from pathlib import Path

SECRET = {"haSecret": "s" * 16}


async def test_with_a_secret_a_forged_registration_brings_no_tables(tmp_path: Path) -> None:
    """The nameserver names a stranger that answers 21, 43, 45 and 201."""
    async with pair(tmp_path) as it:
        master = await it.start("one", "ASYNC_MASTER", SECRET)
        await it.create_topic(master)
        slave = await it.start("two", "SLAVE", SECRET)
        stranger = await it.start("three", "ASYNC_MASTER", {"brokerName": "stranger"})
        await it.create_topic(stranger, "Forged")
        metadata = slave.replication.metadata
        await it.until(
            lambda: metadata.is_current(trio.current_time()), "the tables are those of the master"
        )
        assert metadata.status.master == master.address
        slave.replication.registered(
            Registered(it.nameserver, None, stranger.address, order_topics=None)
        )
        assert metadata.status.master == master.address
        assert await metadata.sync_now()
        assert slave.topics.get("Forged") is None
        # And when the link is gone, nobody is asked.
        await it.stop("one")
        await it.until(lambda: metadata.status.master is None, "nobody is asked")
        slave.replication.registered(
            Registered(it.nameserver, None, stranger.address, order_topics=None)
        )
        assert not await metadata.sync_now()
        assert slave.topics.get("Forged") is None
        assert not metadata.is_current(trio.current_time())


async def test_a_slave_without_nameservers_has_the_tables_of_its_master(tmp_path: Path) -> None:
    """The link says where its master is."""
    async with pair(tmp_path) as it:
        master = await it.start("one", "ASYNC_MASTER")
        await it.create_topic(master)
        port = int(master.address.rpartition(":")[2])
        slave = await it.start(
            "two", "SLAVE", {"namesrvAddr": "", "haMasterAddress": f"127.0.0.1:{port + 1}"}
        )
        await it.until(lambda: slave.topics.get("PairTopic") is not None, "the topic is copied")
        assert slave.replication.metadata.is_current(trio.current_time())
