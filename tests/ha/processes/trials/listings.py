"""What `rmq ha status` says while no nameserver lists a master (B14)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq.remoting.codes import RequestCode
from rmq.remoting.headers import UnregisterBrokerRequest
from tests.ha.processes.trials.ground import MASTER, NAME
from tests.ha.processes.trials.outcome import Outcome, trial

if TYPE_CHECKING:
    from tests.ha.processes.trials.ground import Place


@trial("B14", is_repair=True)
async def b14(place: Place) -> Outcome:
    """The master's registration is withdrawn; it will register again in a while."""
    async with place.pair(settings={"registerNameServerPeriod": "60000"}) as it:
        await it.until_listed(MASTER)
        header = UnregisterBrokerRequest(
            broker_name=NAME, broker_addr=it.address(MASTER), cluster_name="C", broker_id=0
        )
        (nameserver,) = it.nameservers
        await it.client.request(nameserver, RequestCode.UNREGISTER_BROKER, header, timeout_s=5)
        said = await it.health()
        listed = await it.listed()
        assert listed == [None], listed
        return Outcome(
            bool(said.code),
            f'status: exit code {said.code}; "{said.line("listed by no nameserver", "healthy")}"',
        )
