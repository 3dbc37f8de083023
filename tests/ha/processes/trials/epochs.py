"""Epochs that are large, stale or forged, and records that a stranger wrote."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import trio

from rmq.model.in_sync_record import NAMESPACE, InSyncRecord, read_record
from rmq.remoting.client import open_client
from rmq.remoting.codes import RequestCode
from rmq.remoting.headers import GetKvConfigRequest, GetKvConfigResponse, PutKvConfigRequest
from tests.ha.processes.load import wait_settled
from tests.ha.processes.trials.forgeries import SECRET
from tests.ha.processes.trials.ground import MASTER, NAME, OK, POLL_S, SLAVE
from tests.ha.processes.trials.outcome import Outcome, trial
from tests.ha.processes.trials.stranger import register, stranger

if TYPE_CHECKING:
    from tests.ha.processes.trials.ground import Ground, Place

COUNT: Final = 500
LARGE: Final = (2**31 - 1, 2**32, 2**62)
LAST: Final = 2**63 - 1


async def _begin_with(it: Ground, epoch: int) -> None:
    """Prepare a pair whose stores are of an epoch already."""
    for name, role, number in ((MASTER, "SYNC_MASTER", 0), (SLAVE, "SLAVE", 1)):
        await it.add(name, role, number)
        path = it.store_of(name) / "config" / "haState.json"
        path.parent.mkdir(parents=True)
        state = {"replica": bytes([number] * 16).hex(), "epoch": epoch, "history": [[epoch, 0]]}
        path.write_text(json.dumps(state))
    await it.start_all()
    await it.until_in_sync(MASTER)


@trial("large-epochs")
async def large_epochs(place: Place) -> Outcome:
    """Pairs of epochs of 31 bits and more: a planned promotion, then one after a kill."""
    happened: list[str] = []
    holds = True
    for epoch in LARGE:
        (folder := place.folder / str(epoch)).mkdir()
        async with type(place)(place.code, folder).ground() as it:
            await _begin_with(it, epoch)
            await it.send(MASTER, COUNT)
            planned = await it.promote(SLAVE)
            assert not planned.code, planned.text
            await it.until_in_sync(SLAVE)
            await it.send(SLAVE, COUNT)
            it.kill(SLAVE)
            await wait_settled(it.client, it.address(MASTER))
            said = await it.promote(MASTER)
            its, lost = await it.status(MASTER), await it.lost_at(MASTER)
            holds &= not said.code and its.epoch == epoch + 2 and not lost
            holds &= it.acknowledged == 2 * COUNT
            happened.append(f"{epoch} -> {its.epoch}, lost {lost} of {it.acknowledged}")
    return Outcome(holds, "; ".join(happened))


@trial("last-epoch")
async def last_epoch(place: Place) -> Outcome:
    """A pair of the last epoch there is: no other one can follow."""
    async with place.ground() as it:
        await _begin_with(it, LAST)
        await it.send(MASTER, COUNT)
        said = await it.promote(SLAVE)
        codes = await it.send(MASTER, COUNT)
        lost = await it.lost_at(MASTER)
        its = await it.status(MASTER)
        return Outcome(
            bool(said.code) and codes == {OK: COUNT} and not lost,
            f"promote: exit code {said.code}; the master is {its.role}, {its.state}; {codes[OK]} of"
            f" {COUNT} SEND_OK after it, lost {lost} of {it.acknowledged};"
            f' "{said.line("refused to become")}"',
        )


@trial("stale-registration")
async def stale_registration(place: Place) -> Outcome:
    """After a promotion somebody registers the old master again, with its old epoch and none."""
    async with place.pair() as it, open_client() as forger:
        await it.send(MASTER, COUNT)
        planned = await it.promote(SLAVE)
        assert not planned.code, planned.text
        await it.until_in_sync(SLAVE)
        (nameserver,) = it.nameservers
        answers = [
            await register(forger, nameserver, it.address(MASTER), it.ha_address(MASTER), epoch)
            for epoch in (1, 0, None)
        ]
        listed = await it.listed()
        codes = await it.send(SLAVE, COUNT)
        lost = await it.lost_at(SLAVE)
        return Outcome(
            listed == [it.address(SLAVE)] and codes == {OK: COUNT} and not lost,
            f"epochs 1, 0 and none answered {[code for code, _ in answers]}; the new master is"
            f" listed: {'yes' if listed == [it.address(SLAVE)] else 'no'}; {codes[OK]} of {COUNT}"
            f' SEND_OK, lost {lost} of {it.acknowledged}; "{answers[0][1]}"',
        )


@trial("forged-registration")
async def forged_registration(place: Place) -> Outcome:
    """A stranger registers with the next epoch, stays a while and hangs up."""
    async with place.pair() as it:
        await it.send(MASTER, COUNT)
        async with stranger(it) as who:
            await who.register((2,))
            assert await who.until_dialled(), "the slave never called the stranger"
            health = await it.health()
            while_there = await it.send(MASTER, COUNT)
        started = trio.current_time()
        await it.until_listed(MASTER, 20)
        await it.until_in_sync(MASTER)
        healed_s = trio.current_time() - started
        codes = await it.send(MASTER, COUNT)
        lost = await it.lost_at(SLAVE)
        its = await it.status(MASTER)
        return Outcome(
            codes == {OK: COUNT} and not lost and its.state == "writable" and bool(health.code),
            f"while he is listed the master answers {dict(while_there)} and status exits"
            f' {health.code}: "{health.line("problem:")}"; {healed_s:.1f} s after he hung up all is'
            f" as before: {codes[OK]} of {COUNT} SEND_OK, lost {lost} of {it.acknowledged}",
        )


async def _forge_record(it: Ground, epoch: int) -> int:
    record = InSyncRecord(epoch=epoch, version=1, is_sync=True, needed=1, members=("nobody.0",))
    (nameserver,) = it.nameservers
    header = PutKvConfigRequest(
        namespace=NAMESPACE, key=NAME, value=record.encode(b"", NAME).decode()
    )
    async with open_client() as forger:
        answer = await forger.request(nameserver, RequestCode.PUT_KV_CONFIG, header, timeout_s=5)
    return answer.code


@trial("forged-record")
async def forged_record(place: Place) -> Outcome:
    """A stranger writes an in-sync record of the next epoch; there is no secret."""
    async with place.pair() as it:
        await it.send(MASTER, COUNT)
        leap, forged = [await _forge_record(it, epoch) for epoch in (9, 2)]
        await it.create_topic(MASTER)
        with trio.move_on_after(15):
            while (await it.status(MASTER)).state == "writable":  # noqa: ASYNC110 - elsewhere
                await trio.sleep(POLL_S)
        its = await it.status(MASTER)
        health = await it.rmq("ha", "status", "-b", it.address(MASTER))
        said = await it.promote(MASTER)
        forced = await it.promote(MASTER, "--accept-loss") if said.code else said
        await it.until_in_sync(MASTER)
        codes = await it.send(MASTER, COUNT)
        lost = await it.lost_at(SLAVE)
        return Outcome(
            not lost and codes == {OK: COUNT} and (its.state == "writable" or bool(health.code)),
            f"records of epochs 9 and 2 answered {leap} and {forged}; the master is"
            f' "{its.state}": "{its.last_error}"; promote it again: exit code {said.code}'
            f"{f', with --accept-loss {forced.code}' if said.code else ''}; then {codes[OK]} of"
            f" {COUNT} SEND_OK, lost {lost} of {it.acknowledged}",
        )


async def _is_record_genuine(it: Ground) -> bool:
    (nameserver,) = it.nameservers
    header = GetKvConfigRequest(namespace=NAMESPACE, key=NAME)
    answer = await it.client.request(nameserver, RequestCode.GET_KV_CONFIG, header, timeout_s=5)
    if answer.code != OK:
        return False
    record = read_record(answer.header(GetKvConfigResponse).value or "")
    return record.is_genuine(SECRET["haSecret"].encode(), NAME)


@trial("forged-record-and-secret")
async def forged_record_and_secret(place: Place) -> Outcome:
    """The same where the brokers have a secret."""
    async with place.pair(settings=SECRET) as it:
        await it.send(MASTER, COUNT)
        code = await _forge_record(it, 2)
        await it.create_topic(MASTER)
        started, is_genuine = trio.current_time(), False
        with trio.move_on_after(40):
            while not (is_genuine := await _is_record_genuine(it)):  # noqa: ASYNC110
                await trio.sleep(POLL_S)
        took_s = trio.current_time() - started
        its = await it.status(MASTER)
        codes = await it.send(MASTER, COUNT)
        it.kill(MASTER)
        await wait_settled(it.client, it.address(SLAVE))
        said = await it.promote(SLAVE)
        lost = await it.lost_at(SLAVE)
        return Outcome(
            its.state == "writable" and codes == {OK: COUNT} and not said.code and not lost,
            f"the record was answered {code}; the master is {its.state}, {codes[OK]} of {COUNT}"
            f" SEND_OK; the true record was"
            f" {f'back after {took_s:.1f} s' if is_genuine else 'not back after 40 s'}; promote"
            f" after a kill: exit code {said.code}, lost {lost} of {it.acknowledged}",
        )
