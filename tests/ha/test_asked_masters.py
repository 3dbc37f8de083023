"""Where a slave asks a master about its log: also one that no nameserver knows at the moment.

A stock master that is told more than it has believes it, so it must be asked before, always.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq.broker.registration.registration import Registered
from tests.ha.pair_kit import pair

if TYPE_CHECKING:
    from pathlib import Path

    from rmq.broker.broker import Broker


def _tell(slave: Broker, ha_address: str | None, master_address: str | None) -> None:
    """Let a nameserver have said who the master is."""
    slave.replication.registered(Registered("127.0.0.1:1", ha_address, master_address, None))


def _asked_at(slave: Broker) -> tuple[str | None, str | None]:
    """Return whom it dials, and where it asks that one."""
    assert slave.replication.slave is not None
    status = slave.replication.slave.status
    return status.ha_address, status.master_address


async def test_a_master_that_nameservers_forgot_is_asked_where_it_was(tmp_path: Path) -> None:
    async with pair(tmp_path) as it:
        slave = await it.start("two", "SLAVE")
        _tell(slave, "127.0.0.1:7", "127.0.0.1:9")
        assert _asked_at(slave) == ("127.0.0.1:7", "127.0.0.1:9")
        _tell(slave, None, None)
        assert _asked_at(slave) == ("127.0.0.1:7", "127.0.0.1:9")


async def test_a_master_that_was_never_known_is_asked_beside_its_port_for_slaves(
    tmp_path: Path,
) -> None:
    async with pair(tmp_path) as it:
        slave = await it.start("two", "SLAVE", {"haMasterAddress": "127.0.0.1:7"})
        assert _asked_at(slave) == ("127.0.0.1:7", "127.0.0.1:6")
        _tell(slave, "127.0.0.1:5", "127.0.0.1:9")
        # The setting says whom to follow, and a nameserver where that one serves clients.
        assert _asked_at(slave) == ("127.0.0.1:7", "127.0.0.1:9")


async def test_another_master_is_not_asked_where_the_last_one_was(tmp_path: Path) -> None:
    async with pair(tmp_path) as it:
        slave = await it.start("two", "SLAVE")
        assert _asked_at(slave) == (None, None)
        _tell(slave, "127.0.0.1:7", "127.0.0.1:9")
        _tell(slave, None, None)
        slave.replication.slave_role.follow("127.0.0.1:3")
        assert _asked_at(slave) == ("127.0.0.1:3", "127.0.0.1:2")
