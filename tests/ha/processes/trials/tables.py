"""Topics and offsets of a stranger, where no secret tells him from the master."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq.remoting.bodies import TopicConfigSerializeWrapper
from rmq.remoting.codes import RequestCode
from rmq.remoting.headers import HaDemoteRequest
from tests.ha.processes.load import TOPIC
from tests.ha.processes.trials.ground import MASTER, SLAVE
from tests.ha.processes.trials.offsets import commit, committed, until_committed
from tests.ha.processes.trials.outcome import Outcome, trial
from tests.ha.processes.trials.stranger import FAR, GROUP, stranger

if TYPE_CHECKING:
    from tests.ha.processes.trials.ground import Ground, Place


@trial("strangers-tables")
async def strangers_tables(place: Place) -> Outcome:
    """A stranger makes the master his slave, by force, and has other topics and offsets."""
    async with place.pair() as it, stranger(it, has_tables=True) as who:
        await it.send(MASTER, 100)
        await commit(it, MASTER, GROUP, 10)
        await until_committed(it, SLAVE, GROUP, 10)
        await who.register((2,))
        header = HaDemoteRequest(ha_master_address=who.ha_address, force=True)
        await it.client.request(it.address(MASTER), RequestCode.HA_DEMOTE, header, timeout_s=20)
        assert await who.until_dialled(2), "the two never called the stranger"
        for name in (MASTER, SLAVE):
            await until_committed(it, name, GROUP, FAR, 12)
        has_topic = [TOPIC in await _topics(it, name) for name in (MASTER, SLAVE)]
        offsets = [await committed(it, name, GROUP) for name in (MASTER, SLAVE)]
        states = [await it.status(name) for name in (MASTER, SLAVE)]
        return Outcome(
            all(has_topic) and offsets == [10, 10],
            f"its topic is left on {sum(has_topic)} of 2 brokers, the group is at {offsets}"
            f" (10 before); both logs are there ({states[0].end} and {states[1].end} bytes,"
            f" {states[0].state}, {states[1].state})",
        )


async def _topics(it: Ground, name: str) -> set[str]:
    answer = await it.client.request(
        it.address(name), RequestCode.GET_ALL_TOPIC_CONFIG, timeout_s=10
    )
    return set(TopicConfigSerializeWrapper.decode(answer.body).topic_config_table)
