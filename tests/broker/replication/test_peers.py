"""Who the other brokers of a name are, while some of those who know do not answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from rmq.broker.replication.peers import ASK_S, Peers
from tests.broker.registration.registration_kit import OTHER, A, B, cluster
from tests.remoting.client_kit import in_virtual_time

if TYPE_CHECKING:
    from pathlib import Path

C = "ns-c:9876"
SILENT = "10.0.0.3:10911"


@in_virtual_time(100_000)
async def test_nameservers_that_hang_are_waited_for_together(tmp_path: Path) -> None:
    async with cluster(tmp_path, namesrvAddr=f"{A};{B};{C}") as it:
        it.hangs = {A, B}
        listener = await it.start_listener(C)
        listener.listed = {0: OTHER}
        await it.start_rival(epoch=2)
        async with it.client.running():
            (member,) = await Peers(it.live, it.client).members()
            assert trio.current_time() == ASK_S
        assert (member.address, member.broker_id) == (OTHER, 0)
        assert member.status is not None


@in_virtual_time(100_000)
async def test_of_two_nameservers_that_disagree_the_later_in_the_settings_counts(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path, namesrvAddr=f"{A};{B}") as it:
        (await it.start_listener(A)).listed = {0: OTHER, 1: SILENT}
        (await it.start_listener(B)).listed = {2: OTHER}
        async with it.client.running():
            members = await Peers(it.live, it.client).members()
        assert [(each.address, each.broker_id, each.status) for each in members] == [
            (OTHER, 2, None),
            (SILENT, 1, None),
        ]
