"""Forgetting a slave that was taken out for good. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq.broker.replication.changes.refusal import refuse

if TYPE_CHECKING:
    from rmq.ha.protocol.slaves import SlaveProgress, SlaveSet


def forget_slave(slaves: SlaveSet, named: str) -> None:
    """Forget the slaves with this name or address; refuse unless none of them can matter.

    Only disconnected ones are forgotten. One that the in-sync record names may hold what was
    answered SEND_OK, and may be promoted by that record: it has to be out of it first.
    """
    found = [slave for slave in slaves.gone if named in (slave.address, slave.name)]
    if not found:
        if any(named in (slave.address, slave.name) for slave in slaves):
            refuse(
                f"the slave {named} is connected, and no other store that was there before is"
                " remembered. To take this one out for good, stop it first"
            )
        known = ", ".join(_label(slave) for slave in slaves.gone) or "none"
        refuse(f"no slave {named} is remembered; of slaves that are gone: {known}")
    for slave in found:
        if any(record.is_sync and record.allows(slave.member) for record in slaves.keeper.chain):
            refuse(
                f"the in-sync record names the slave {_label(slave)}: it may hold what was answered"
                " SEND_OK. Bring another slave in sync, after which the record names this one for"
                " haMaxTimeSlaveNotCatchup more, or stop waiting for slaves (rmq ha switch async)"
            )
    for slave in found:
        slaves.forget(slave)


def _label(slave: SlaveProgress) -> str:
    return f"{slave.name} ({slave.address})"
