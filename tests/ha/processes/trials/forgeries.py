"""What a stranger without a password could do (B3, B4, B6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from rmq.errors import RmqError
from rmq.remoting.bodies import TopicConfigSerializeWrapper
from rmq.remoting.client import open_client
from rmq.remoting.codes import RequestCode
from rmq.remoting.headers import HaDemoteRequest
from tests.ha.processes.load import TOPIC, Consumer
from tests.ha.processes.trials.ground import MASTER, OK, POLL_S, SLAVE
from tests.ha.processes.trials.offsets import commit, committed, until_committed
from tests.ha.processes.trials.outcome import Outcome, trial
from tests.ha.processes.trials.stranger import FAR, GROUP, register, stranger

if TYPE_CHECKING:
    from rmq.remoting.bodies import HaStatusBody
    from tests.ha.processes.trials.ground import Ground, Place

COUNT: Final = 5_000
EPOCHS: Final = (7, 2)
"""What the stranger claims: first what is far ahead, then what could be the next one."""
FORGED: Final = (2**62, 2**31, 2)
TABLES_S: Final = 12.0
"""By then a slave has asked for the tables again, whatever happens (every 10 s)."""
SECRET: Final = {"haSecret": "a secret of sixteen"}


async def _left(it: Ground, name: str) -> int:
    """Return how many of the messages sent are still there; 0 if the broker serves none."""
    consumer = Consumer(it.client)
    try:
        await consumer.read_all(it.address(name))
    except RmqError:
        return 0
    return len(set(it.producer.acknowledged) & set(consumer.bodies))


async def _settle(it: Ground, *names: str) -> None:
    """Wait until those who were told to begin anew have decided what to do."""
    for name in names:
        with trio.move_on_after(5):
            while True:
                try:
                    said = await it.status(name)
                    if said.state in ("outrun", "reseeding") or not said.end:
                        break
                except RmqError:
                    pass
                await trio.sleep(POLL_S)


async def _back(it: Ground, name: str) -> HaStatusBody:
    """Return how a broker is, which may be opening its store anew."""
    return await it.until(name, lambda _: True, "it answers")


@trial("B3-slave", is_repair=True)
async def b3_slave(place: Place) -> Outcome:
    """A stranger registers as master, and tells the slave that calls to begin anew."""
    async with place.pair() as it, stranger(it) as who:
        codes = await it.send(MASTER, COUNT)
        assert codes == {OK: COUNT}, codes
        refused = await who.register(EPOCHS)
        assert await who.until_dialled(), "the slave never called the stranger"
        await _settle(it, SLAVE)
        left, its = await _left(it, SLAVE), await _back(it, SLAVE)
        return Outcome(
            left == COUNT,
            f"epochs refused: {refused or 'none'}, taken: {who.epoch}; the slave has {left} of"
            f' {COUNT} messages left, {its.state}: "{its.last_error or ""}"',
        )


@trial("B3-both", is_repair=True)
async def b3_both(place: Place) -> Outcome:
    """The stranger also orders the master to become his slave."""
    async with place.pair() as it, stranger(it) as who:
        codes = await it.send(MASTER, COUNT)
        assert codes == {OK: COUNT}, codes
        started = trio.current_time()
        await who.register(EPOCHS)
        header = HaDemoteRequest(ha_master_address=who.ha_address, force=True)
        answer = await it.client.request(
            it.address(MASTER), RequestCode.HA_DEMOTE, header, timeout_s=20
        )
        assert await who.until_dialled(2), "the two never called the stranger"
        await _settle(it, MASTER, SLAVE)
        took_s = trio.current_time() - started
        left = [await _left(it, name) for name in (MASTER, SLAVE)]
        states = [(await _back(it, name)).state for name in (MASTER, SLAVE)]
        return Outcome(
            left == [COUNT, COUNT],
            f"demote answered {answer.code}; {left[0]} + {left[1]} of {COUNT} messages left on"
            f" master and slave after {took_s:.1f} s ({states[0]}, {states[1]})",
        )


@trial("B4", is_repair=True)
async def b4(place: Place) -> Outcome:
    """Registrations of the master's own address with forged epochs; each hangs up."""
    async with place.pair() as it:
        answers = []
        for epoch in FORGED:
            async with open_client() as forger:
                (nameserver,) = it.nameservers
                address = it.address(MASTER)
                code, _ = await register(forger, nameserver, address, it.ha_address(MASTER), epoch)
                answers.append(code)
        # A change of topics makes it register at once.
        await it.create_topic(MASTER)
        is_listed = False
        with trio.move_on_after(15):
            while not is_listed:
                is_listed = await it.listed() == [it.address(MASTER)]
                if (await it.status(MASTER)).state != "writable":
                    break
                await trio.sleep(POLL_S)
        codes = await it.send(MASTER, 100)
        its = await it.status(MASTER)
        remedy = ""
        if its.state != "writable":
            said = await it.promote(MASTER)
            remedy = f'; `rmq ha promote`: exit code {said.code}, "{said.sentence}"'
        return Outcome(
            codes == {OK: 100} and is_listed,
            f"epochs 2^62, 2^31 and 2 answered {', '.join(map(str, answers))}; the master is"
            f" {its.state} and {'listed' if is_listed else 'not listed'}, {codes[OK]} of 100 sends"
            f" SEND_OK{remedy}",
        )


@trial("B6", is_repair=True)
async def b6(place: Place) -> Outcome:
    """With a secret: a stranger whom the nameserver names has other topics and offsets."""
    async with place.pair(settings=SECRET) as it:
        await it.send(MASTER, 100)
        await commit(it, MASTER, GROUP, 10)
        await until_committed(it, SLAVE, GROUP, 10)
        async with stranger(it, has_tables=True) as who:
            refused = await who.register(EPOCHS)
            with trio.move_on_after(20):
                # The slave hears of him with its next registration.
                while not who.asked and not who.dialled:  # noqa: ASYNC110 - told by other tasks
                    await trio.sleep(POLL_S)
            with trio.move_on_after(TABLES_S):
                while await committed(it, SLAVE, GROUP) != FAR:  # noqa: ASYNC110 - elsewhere
                    await trio.sleep(POLL_S)
            is_known = bool(who.asked or who.dialled)
        offset = await committed(it, SLAVE, GROUP)
        answer = await it.client.request(
            it.address(SLAVE), RequestCode.GET_ALL_TOPIC_CONFIG, timeout_s=10
        )
        topics = TopicConfigSerializeWrapper.decode(answer.body).topic_config_table
        has_own, has_his = TOPIC in topics, "Stranger" in topics
        return Outcome(
            offset == 10 and has_own and not has_his,
            f"epochs refused: {refused or 'none'}; the slave was told of the stranger:"
            f" {'yes' if is_known else 'no'}; offset of the group 10 -> {offset}; its topic is"
            f" {'there' if has_own else 'gone'}, the stranger's"
            f" {'taken' if has_his else 'not taken'}",
        )
