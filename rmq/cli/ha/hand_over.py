"""What `rmq ha hand-over` does: has a slave in sync take the place of a master that is to stop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq.cli.ha.change import NotNowError, Promotion
from rmq.cli.ha.members import MASTER, ask_member, find_groups, find_one

if TYPE_CHECKING:
    from rmq.cli.ha.client import HaClient
    from rmq.cli.ha.members import Member, Target
    from rmq.remoting.bodies import HaSlave


async def plan_hand_over(client: HaClient, target: Target) -> Promotion | None:
    """Choose the slave in sync that has most; None if the broker that is meant is no master.

    A master that was replaced already has nothing to hand over either.
    """
    member = await _broker_meant(client, target)
    status = member.status
    if status is None or status.role != MASTER or member.is_fenced:
        return None
    slaves = [each for each in status.slaves if each.connected and each.in_sync and each.native]
    if not slaves:
        raise NotNowError(
            f"{member.address} has no slave in sync that could take its place",
            hint=f"see what is missing: rmq ha status -b {member.address}",
        )
    best = max(slaves, key=_has)
    return Promotion(await ask_member(client, best.address), member)


async def _broker_meant(client: HaClient, target: Target) -> Member:
    if target.broker is None:
        return await find_one(client, target, MASTER)
    (group,) = await find_groups(client, target)
    return group.members[0]


def _has(slave: HaSlave) -> int:
    return slave.appended
