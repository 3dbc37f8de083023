"""A master that was deposed: it finds out, is in nobody's way, and comes back only when it may."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import pytest
import trio

from rmq.broker.config import BrokerRole
from rmq.model.in_sync_record import read_record
from rmq.nameserver import broker_handlers
from rmq.remoting.headers import RegisterBrokerResponse
from tests.broker.registration.registration_kit import (
    BROKER,
    OTHER,
    PERIOD_S,
    A,
    B,
    cluster,
    record,
    settled,
    warnings,
)
from tests.remoting.client_kit import in_virtual_time

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rmq.nameserver.registration import Registration
    from rmq.remoting.headers import RegisterBrokerRequest
    from rmq.remoting.request import Request


@pytest.fixture
def stock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nameservers do not know of epochs."""
    read: Callable[..., Registration] = broker_handlers._read_registration
    monkeypatch.setattr(
        broker_handlers, "_read_registration", lambda *given: replace(read(*given), epoch=0)
    )


# --- a nameserver of ours --------------------------------------------------------------------


@in_virtual_time(100_000)
async def test_a_deposed_master_that_comes_back_is_told_and_not_listed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(tmp_path) as it:
        await it.start_nameserver()
        it.epoch = 1
        await it.put_record(2)
        await it.register_other(0, epoch=2)
        async with it.running() as count:
            assert count == 0
            ((epoch, reason),) = it.fenced
            assert epoch == 2
            assert reason == (
                f"nameserver {A} keeps an in-sync record of broker-a of epoch 2, this broker was"
                f" master in epoch 1; it lists {OTHER} as master"
            )
            assert it.registration.fence == (epoch, reason, "")
            await trio.sleep(4 * PERIOD_S)
            assert len(it.fenced) == 1, "it is news only once"
            assert it.registration.registered_at == ()
            (warning,) = warnings(caplog)
            assert "rmq ha demote" in warning


@in_virtual_time(100_000)
async def test_a_master_that_is_deposed_while_it_runs_finds_out_within_a_period(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as it:
        await it.start_nameserver()
        it.epoch = 1
        async with it.running():
            await it.put_record(2)
            other = await it.register_other(0, epoch=2)
            await trio.sleep(PERIOD_S + 1)
            assert [epoch for epoch, _ in it.fenced] == [2]
            await trio.sleep(2 * PERIOD_S)
            assert await it.listed() == {0: OTHER}
            await other.aclose()


@in_virtual_time(100_000)
async def test_a_fenced_broker_stays_so_when_the_new_master_is_gone(tmp_path: Path) -> None:
    # The other one may have messages that this one lacks.
    async with cluster(tmp_path) as it:
        await it.start_nameserver()
        it.epoch = 1
        await it.put_record(2)
        other = await it.register_other(0, epoch=2)
        async with it.running():
            await other.aclose()
            await trio.sleep(4 * PERIOD_S)
            assert await it.listed() == {}
            assert it.registration.fence is not None


@in_virtual_time(100_000)
async def test_a_fenced_broker_that_is_promoted_registers_normally(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.start_nameserver()
        it.epoch = 1
        await it.put_record(2)
        await it.register_other(0, epoch=2)
        it.add_topic("T-1")
        async with it.running():
            it.epoch = 3
            it.registration.register_again()
            await it.registration.wait_told()
            assert await it.listed() == {0: BROKER}
            assert await it.route("T-1") is not None
            assert it.registration.fence is None
            assert it.registration.registered_at == (A,)


@in_virtual_time(100_000)
async def test_a_fenced_broker_that_becomes_a_slave_registers_normally(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.start_nameserver()
        it.epoch = 1
        await it.put_record(2)
        await it.register_other(0, epoch=2)
        async with it.running():
            it.assume(BrokerRole.SLAVE, 1)
            await it.registration.wait_told()
            assert await it.listed() == {0: OTHER, 1: BROKER}
            assert it.registration.fence is None


@in_virtual_time(100_000)
async def test_the_goodbye_of_a_fenced_broker_leaves_the_new_master_alone(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.start_nameserver()
        it.epoch = 1
        await it.put_record(2)
        await it.register_other(0, epoch=2)
        async with it.running():
            await it.registration.unregister_all()
            assert await it.listed() == {0: OTHER}


@in_virtual_time(100_000)
async def test_a_nameserver_that_was_restarted_lists_the_new_master_again_whoever_comes_first(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as it:
        await it.start_nameserver()
        it.epoch = 1
        async with it.running():
            # The new master has not come back yet.
            assert await it.listed() == {0: BROKER}
            await it.put_record(2)
            await it.register_other(0, epoch=2)
            assert await it.listed() == {0: OTHER}
            await trio.sleep(PERIOD_S + 1)
            assert await it.listed() == {0: OTHER}
            assert len(it.fenced) == 1


@in_virtual_time(100_000)
async def test_one_nameserver_that_knows_is_enough_and_the_others_are_told_at_once(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path, namesrvAddr=f"{A};{B}") as it:
        await it.start_nameserver(A)
        await it.start_nameserver(B)
        it.epoch = 1
        async with it.running():
            assert await it.listed(B) == {0: BROKER}
            # The new master does not reach the other nameserver.
            await it.put_record(2, A)
            await it.register_other(0, epoch=2, nameserver=A)
            it.add_topic("T-1")
            await settled()
            assert [epoch for epoch, _ in it.fenced] == [2]
            assert await it.listed(A) == {0: OTHER}
            assert await it.listed(B) == {}
            assert it.registration.registered_at == ()


@in_virtual_time(100_000)
async def test_nobody_waits_for_nameservers_when_a_topic_is_made_on_a_fenced_broker(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as it:
        await it.start_nameserver()
        it.epoch = 1
        await it.put_record(2)
        await it.register_other(0, epoch=2)
        async with it.running():
            started = trio.current_time()
            it.add_topic("T-1")
            await it.registration.wait_told()
            assert trio.current_time() == started


@in_virtual_time(100_000)
async def test_a_record_of_the_own_epoch_or_an_earlier_one_keeps_nobody_out(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        listener = await it.start_listener()
        for kept, epoch in ((4, 4), (3, 5)):
            listener.record = record(kept)
            it.epoch = epoch
            assert await it.register_now() == 1
        assert it.fenced == []


@in_virtual_time(100_000)
async def test_a_later_epoch_than_the_one_it_was_fenced_for_is_news(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.start_listener()
        await it.start_rival(epoch=2)
        await it.start_rival(epoch=3, address="10.0.0.3:10911")
        it.epoch = 1
        async with it.running():
            for address in (OTHER, "10.0.0.3:10911", OTHER):
                assert await it.registration.ask_whether_deposed(address)
            assert [epoch for epoch, _ in it.fenced] == [2, 3]


@in_virtual_time(100_000)
async def test_a_record_that_a_broker_made_itself_while_it_asks_does_not_fence_it(
    tmp_path: Path,
) -> None:
    # It is promoted between the question and the answer.
    async with cluster(tmp_path) as it:
        listener = await it.start_listener()
        it.epoch = 1

        def promote() -> str:
            it.epoch = 2
            return record(2)

        listener.on_record_asked = promote
        async with it.running() as count:
            assert it.fenced == []
            assert count == 1


# --- a nameserver that is deceived -----------------------------------------------------------


@in_virtual_time(100_000)
async def test_a_refusal_that_nobody_confirms_fences_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(tmp_path) as it:
        listener = await it.start_listener()
        listener.answer = lambda request: listener.refuse(request, 2**62)
        listener.listed = {0: OTHER}
        it.epoch = 4
        async with it.running() as count:
            assert (count, it.fenced) == (0, [])
            await trio.sleep(4 * PERIOD_S)
            assert it.fenced == []
            (warning,) = warnings(caplog)
            assert warning == (
                f"cannot register at nameserver {A}: REGISTER_BROKER to {A}: answered code 9101:"
                " deposed; but neither the broker that it lists nor an in-sync record confirms that"
                " there is a later epoch, so this broker stays master; trying again"
            )
            listener.answer = listener.take
            await trio.sleep(PERIOD_S + 1)
            assert it.registration.registered_at == (A,)


@in_virtual_time(100_000)
async def test_a_master_is_listed_again_when_a_forger_has_hung_up(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.start_nameserver()
        await it.put_record(1)
        it.epoch = 1
        async with it.running():
            # It says what a broker says whose record is on its way.
            forger = await it.register_other(0, epoch=2)
            await trio.sleep(PERIOD_S + 1)
            assert await it.listed() == {0: OTHER}
            assert it.fenced == []
            await forger.aclose()
            await trio.sleep(PERIOD_S + 1)
            assert await it.listed() == {0: BROKER}


@in_virtual_time(100_000)
async def test_a_refusal_is_confirmed_by_the_broker_that_is_listed(tmp_path: Path) -> None:
    # The new master registers between the question whom the nameserver lists and the refusal.
    async with cluster(tmp_path) as it:
        listener = await it.start_listener()
        it.epoch = 1

        def refuse(request: Request[RegisterBrokerRequest]) -> None:
            listener.listed = {0: OTHER}
            listener.refuse(request, 2)

        listener.answer = refuse
        await it.start_rival(epoch=2)
        async with it.running():
            assert [epoch for epoch, _ in it.fenced] == [2]


@in_virtual_time(100_000)
async def test_a_refusal_is_confirmed_by_a_record(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        listener = await it.start_listener()
        it.epoch = 1

        def refuse(request: Request[RegisterBrokerRequest]) -> None:
            listener.record = record(2)
            listener.refuse(request, 2)

        listener.answer = refuse
        async with it.running():
            assert [epoch for epoch, _ in it.fenced] == [2]


# --- with a secret ---------------------------------------------------------------------------

SECRET = "correct horse battery"


@in_virtual_time(100_000)
@pytest.mark.parametrize("kind", ["forged", "genuine"])
async def test_with_a_secret_only_records_that_were_made_with_it_fence(
    tmp_path: Path, kind: str
) -> None:
    async with cluster(tmp_path, haSecret=SECRET) as it:
        listener = await it.start_listener()
        listener.record = record(2, "a guess" if kind == "forged" else SECRET)
        it.epoch = 1
        async with it.running() as count:
            assert count == (1 if kind == "forged" else 0)
            assert [epoch for epoch, _ in it.fenced] == ([] if kind == "forged" else [2])


@in_virtual_time(100_000)
@pytest.mark.parametrize(
    ("told", "is_fenced"),
    [("", False), (record(2), False), (record(1, SECRET), False), (record(2, SECRET), True)],
    ids=["no record", "forged", "replayed", "genuine"],
)
@pytest.mark.usefixtures("stock")
async def test_with_a_secret_a_broker_has_to_know_a_record_of_its_epoch(
    tmp_path: Path, told: str, is_fenced: bool
) -> None:
    async with cluster(tmp_path, haSecret=SECRET) as it:
        await it.start_nameserver()
        rival = await it.start_rival(epoch=2)
        assert rival.status is not None
        rival.status = msgspec.structs.replace(rival.status, record=told)
        await it.register_other(0, epoch=2)
        it.epoch = 1
        async with it.running():
            assert bool(it.fenced) == is_fenced
            assert await it.listed() == {0: OTHER if is_fenced else BROKER}


@in_virtual_time(100_000)
async def test_with_a_secret_a_forged_record_that_keeps_a_master_out_is_deleted(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path, haSecret=SECRET) as it:
        listener = await it.start_listener()
        listener.record = record(2)

        def answer(request: Request[RegisterBrokerRequest]) -> None:
            listener.take(request) if listener.record is None else listener.refuse(request, 2)

        listener.answer = answer
        it.epoch = 1
        async with it.running():
            await trio.sleep(PERIOD_S)
            assert listener.record is None
            assert it.fenced == []
            assert it.registration.registered_at == (A,)


@in_virtual_time(100_000)
async def test_without_a_secret_no_record_is_deleted(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        listener = await it.start_listener()
        listener.record = kept = record(1)
        listener.answer = lambda request: listener.refuse(request, 2)
        it.epoch = 1
        async with it.running():
            await trio.sleep(PERIOD_S)
            assert listener.record == kept


# --- a fence that nothing confirms any longer ------------------------------------------------


@in_virtual_time(100_000)
async def test_a_fence_is_lifted_when_its_record_is_gone_for_a_period(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(tmp_path) as it:
        await it.start_nameserver()
        await it.put_record(2)
        it.epoch = 1
        async with it.running():
            assert it.registration.fence is not None
            await it.delete_record()
            await trio.sleep(PERIOD_S + 1)
            assert it.registration.fence is not None, "a new master may bring it again"
            await trio.sleep(PERIOD_S)
            assert it.registration.fence is None
            assert await it.listed() == {0: BROKER}
            assert len(it.answers) == 1
            assert (
                "nothing confirms any longer that another broker is master" in warnings(caplog)[1]
            )


@in_virtual_time(100_000)
async def test_a_nameserver_that_lost_the_record_of_this_broker_lifts_no_fence(
    tmp_path: Path,
) -> None:
    """It was emptied, and kept the record of the later epoch before."""
    async with cluster(tmp_path) as it:
        listener = await it.start_listener()
        listener.record = record(2)
        it.epoch, it.record = 1, read_record(record(1))
        async with it.running():
            assert it.registration.fence is not None
            listener.record = None
            await trio.sleep(10 * PERIOD_S)
            assert it.registration.fence is not None
            assert listener.registrations == []
            # One that keeps the record of this broker has lost nothing.
            listener.record = record(1)
            await trio.sleep(3 * PERIOD_S)
            assert it.registration.fence is None


@in_virtual_time(100_000)
async def test_a_record_that_comes_back_keeps_the_fence(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        listener = await it.start_listener()
        listener.record = record(2)
        it.epoch = 1
        async with it.running():
            for _ in range(4):
                listener.record = None
                await trio.sleep(PERIOD_S)
                listener.record = record(2)
                await trio.sleep(PERIOD_S)
            assert it.registration.fence is not None
            assert listener.registrations == []


@in_virtual_time(100_000)
@pytest.mark.parametrize("by", ["record elsewhere", "listed broker", "the broker that fenced it"])
async def test_a_fence_stays_as_long_as_anybody_confirms_it(tmp_path: Path, by: str) -> None:
    async with cluster(tmp_path, namesrvAddr=f"{A};{B}") as it:
        first = await it.start_listener(A)
        second = await it.start_listener(B)
        rival = await it.start_rival(epoch=2)
        it.epoch = 1
        async with it.running():
            assert await it.registration.ask_whether_deposed(OTHER)
            if by == "record elsewhere":
                second.record = record(2)
            elif by == "listed broker":
                second.listed = {0: "10.0.0.3:10911"}
                await it.start_rival(epoch=2, address="10.0.0.3:10911")
            if by != "the broker that fenced it":
                rival.status = None
            for listener in (first, second):
                listener.registrations.clear()
            await trio.sleep(10 * PERIOD_S)
            assert it.registration.fence is not None
            assert first.registrations == second.registrations == []
            rival.status = second.record = second.listed = None
            await trio.sleep(3 * PERIOD_S)
            assert it.registration.fence is None
            assert it.registration.registered_at == (A, B)


@in_virtual_time(100_000)
async def test_a_fence_stays_while_too_few_nameservers_answer(tmp_path: Path) -> None:
    # One that does not may keep the record.
    async with cluster(tmp_path, namesrvAddr=f"{A};{B}") as it:
        first = await it.start_listener(A)
        second = await it.start_listener(B)
        second.record = record(2)
        it.epoch = 1
        async with it.running():
            it.stop(B)
            first.registrations.clear()
            await trio.sleep(10 * PERIOD_S)
            assert it.registration.fence is not None
            assert first.registrations == []


@in_virtual_time(100_000)
async def test_a_fence_between_two_masters_of_one_epoch_is_left_to_an_operator(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as it:
        listener = await it.start_listener()
        rival = await it.start_rival(epoch=1)
        it.epoch = 1
        async with it.running():
            assert await it.registration.ask_whether_deposed(OTHER)
            rival.status = None
            listener.registrations.clear()
            await trio.sleep(10 * PERIOD_S)
            assert it.registration.fence is not None
            assert listener.registrations == []


# --- a stock nameserver ----------------------------------------------------------------------


@in_virtual_time(100_000)
@pytest.mark.usefixtures("stock")
async def test_a_deposed_master_does_not_take_its_place_back_at_a_stock_nameserver(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as it:
        await it.start_nameserver()
        rival = await it.start_rival(epoch=2)
        await it.register_other(0, epoch=2)
        it.epoch = 1
        async with it.running():
            ((epoch, reason),) = it.fenced
            assert (epoch, rival.asked) == (2, 1)
            assert reason == (
                f"{OTHER} is master of broker-a in epoch 2, this broker was in epoch 1"
            )
            assert await it.listed() == {0: OTHER}
            await it.registration.unregister_all()
            assert await it.listed() == {0: OTHER}


@in_virtual_time(100_000)
@pytest.mark.usefixtures("stock")
async def test_a_master_that_is_deposed_while_it_runs_asks_the_new_one(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        await it.start_nameserver()
        await it.start_rival(epoch=2)
        it.epoch = 1
        async with it.running():
            await it.register_other(0, epoch=2)
            await trio.sleep(PERIOD_S + 1)
            assert [epoch for epoch, _ in it.fenced] == [2]
            assert await it.listed() == {0: OTHER}


@in_virtual_time(100_000)
@pytest.mark.usefixtures("stock")
async def test_a_new_topic_does_not_make_a_deposed_master_take_its_place_back(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as it:
        await it.start_nameserver()
        await it.start_rival(epoch=2)
        it.epoch = 1
        async with it.running():
            await it.register_other(0, epoch=2)
            it.add_topic("T-1")
            await settled()
            assert [epoch for epoch, _ in it.fenced] == [2]
            assert await it.listed() == {0: OTHER}


@in_virtual_time(100_000)
async def test_a_nameserver_of_ours_is_asked_once_in_a_period_not_for_every_new_topic(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as it:
        listener = await it.start_listener()
        listener.answer = lambda request: request.reply(RegisterBrokerResponse(epoch=1))
        it.epoch = 1
        async with it.running():
            for number in range(20):
                it.add_topic(f"T-{number}")
                await settled()
            assert (len(listener.registrations), listener.questions) == (21, 1)
            await trio.sleep(2 * PERIOD_S + 1)
            assert (len(listener.registrations), listener.questions) == (23, 3)


@in_virtual_time(100_000)
@pytest.mark.usefixtures("stock")
async def test_of_two_masters_of_one_epoch_the_one_that_is_not_listed_gives_way(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as it:
        await it.start_nameserver()
        await it.start_rival(epoch=1)
        await it.register_other(0, epoch=1)
        it.epoch = 1
        async with it.running():
            ((epoch, reason),) = it.fenced
            assert epoch == 1
            assert "too" in reason
            assert await it.listed() == {0: OTHER}


@in_virtual_time(100_000)
@pytest.mark.usefixtures("stock")
@pytest.mark.parametrize("kind", ["of an earlier epoch", "stock", "dead", "a slave"])
async def test_whoever_cannot_say_that_it_is_master_keeps_nobody_from_being_one(
    tmp_path: Path, kind: str
) -> None:
    async with cluster(tmp_path) as it:
        await it.start_nameserver()
        it.epoch = 2
        if kind == "dead":
            it.hangs.add(OTHER)
        else:
            role = "SLAVE" if kind == "a slave" else "MASTER"
            rival = await it.start_rival(2 if kind == "a slave" else 1, role)
            if kind == "stock":
                rival.status = None
        await it.register_other(0, epoch=0)
        started = trio.current_time()
        async with it.running() as count:
            assert count == 1
            assert trio.current_time() - started <= 1.0
            assert await it.listed() == {0: BROKER}
            assert it.fenced == []


@in_virtual_time(100_000)
async def test_a_master_whose_place_was_taken_for_no_reason_takes_it_back(tmp_path: Path) -> None:
    # The nameserver knows its topics, but lists somebody else who does not answer.
    async with cluster(tmp_path, forceRegister="false") as it:
        listener = await it.start_listener()
        listener.is_known = True
        listener.listed = {0: BROKER}
        it.epoch = 1
        async with it.running():
            await trio.sleep(PERIOD_S + 1)
            assert len(listener.registrations) == 1
            listener.listed = {0: OTHER}
            await trio.sleep(PERIOD_S + 1)
            assert len(listener.registrations) == 2


@in_virtual_time(100_000)
async def test_a_stock_nameserver_gets_no_goodbye_that_would_remove_the_new_master(
    tmp_path: Path,
) -> None:
    # RocketMQ 4.9.8 removes whoever has the id that says goodbye.
    async with cluster(tmp_path) as it:
        listener = await it.start_listener()
        listener.listed = {0: BROKER}
        it.epoch = 1
        async with it.running():
            listener.listed = {0: OTHER}
            await it.registration.unregister_all()
            assert listener.goodbyes == []


@in_virtual_time(100_000)
@pytest.mark.parametrize("listed", [None, {}, {0: BROKER}], ids=["unknown", "nobody", "itself"])
async def test_a_master_says_goodbye_where_it_may_be_listed(
    tmp_path: Path, listed: dict[int, str] | None
) -> None:
    async with cluster(tmp_path) as it:
        listener = await it.start_listener()
        listener.listed = listed
        it.epoch = 1
        async with it.running():
            await it.registration.unregister_all()
            assert [goodbye.broker_id for goodbye in listener.goodbyes] == [0]


@in_virtual_time(100_000)
async def test_a_broker_that_is_promoted_while_it_asks_is_not_fenced_for_what_it_was(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as it:
        listener = await it.start_listener()
        listener.listed = {0: OTHER}
        it.epoch = 1
        rival = await it.start_rival(epoch=2)

        def promote() -> None:
            it.epoch = 3

        rival.on_asked = promote
        async with it.running() as count:
            assert it.fenced == []
            assert count == 1
            assert [header.epoch for header, _ in listener.registrations] == [3]


@in_virtual_time(100_000)
async def test_a_broker_that_becomes_a_slave_while_it_asks_registers_as_one(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        listener = await it.start_listener()
        listener.listed = {0: OTHER}
        it.epoch = 1
        rival = await it.start_rival(epoch=2)
        rival.on_asked = lambda: it.assume(BrokerRole.SLAVE, 1)
        async with it.running():
            await settled()
            assert it.fenced == []
            assert {header.broker_id for header, _ in listener.registrations} == {1}


@in_virtual_time(100_000)
@pytest.mark.usefixtures("stock")
async def test_the_record_keeps_a_deposed_master_out_of_a_stock_nameserver_as_well(
    tmp_path: Path,
) -> None:
    # The new master is down.
    async with cluster(tmp_path) as it:
        await it.start_nameserver()
        await it.put_record(2)
        it.epoch = 1
        async with it.running():
            assert [epoch for epoch, _ in it.fenced] == [2]
            await trio.sleep(10 * PERIOD_S)
            assert await it.listed() == {}
