"""A pair with round trips of 600 ms between the two."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.ha.processes.load import wait_settled
from tests.ha.processes.trials.ground import MASTER, OK, SLAVE
from tests.ha.processes.trials.outcome import Outcome, trial

if TYPE_CHECKING:
    from tests.ha.processes.trials.ground import Place

COUNT: Final = 200
SETTINGS: Final = {
    "slaveTimeout": "3000",
    "haHousekeepingInterval": "8000",
    "haMaxTimeSlaveNotCatchup": "15000",
}
"""As they are by default; only silence is noticed sooner."""


@trial("slow-link", needs_network=True)
async def slow_link(place: Place) -> Outcome:
    """Sends, a planned promotion, and one after a kill."""
    assert place.network is not None
    place.network.wire.set(delay_s=0.3)
    async with place.ground() as it:
        await it.add(MASTER, "SYNC_MASTER", 0, SETTINGS, side=0)
        await it.add(SLAVE, "SLAVE", 1, SETTINGS, side=1)
        await it.start_all()
        await it.until_in_sync(MASTER)
        first = await it.send(MASTER, COUNT)
        slowest_s = it.producer.slowest_s
        planned = await it.promote(SLAVE)
        assert not planned.code, planned.text
        await it.until_in_sync(SLAVE)
        second = await it.send(SLAVE, COUNT)
        it.kill(SLAVE)
        await wait_settled(it.client, it.address(MASTER))
        said = await it.promote(MASTER)
        lost = await it.lost_at(MASTER)
        return Outcome(
            first == second == {OK: COUNT} and not said.code and not lost,
            f"{first[OK] + second[OK]} of {2 * COUNT} SEND_OK, the slowest {slowest_s:.1f} s;"
            f" planned promotion: exit code {planned.code} in {planned.seconds:.1f} s; after a"
            f" kill: exit code {said.code} in {said.seconds:.1f} s; lost {lost} of"
            f" {it.acknowledged}",
        )
