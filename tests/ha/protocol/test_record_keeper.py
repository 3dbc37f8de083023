"""How a master changes what it relies on: when a record counts, and what counts until then."""

from __future__ import annotations

from typing import Final

import msgspec
import pytest

from rmq.errors import RemoteProtocolError
from rmq.ha.protocol.record_keeper import RecordKeeper
from rmq.model.in_sync_record import InSyncRecord, member_name, newest, read_record
from rmq.model.offsets import PhysicalOffset

S1: Final = member_name(b"1" * 16, 0)
S1_AGAIN: Final = member_name(b"1" * 16, 1)
S2: Final = member_name(b"2" * 16, 0)
STOCK: Final = "stock 10.0.0.9"
NS: Final = ("n1:9876", "n2:9876", "n3:9876")


def want(
    keeper: RecordKeeper,
    *members: str,
    is_sync: bool = True,
    needed: int = 1,
    nameservers: tuple[str, ...] = NS,
    acknowledged: int = 100,
    held: int = 100,
) -> InSyncRecord | None:
    """Want a record and have it saved; None if it is not wanted, or not true."""
    keeper.want(
        is_sync=is_sync,
        needed=needed,
        members=frozenset(members),
        nameservers=nameservers,
        acknowledged=PhysicalOffset(acknowledged),
        held=lambda member: PhysicalOffset(held),
    )
    record = keeper.to_save
    if record is not None:
        keeper.saved(record)
    return record


def keeper_of(*members: str, nameservers: tuple[str, ...] = NS) -> RecordKeeper:
    """Return one whose record names these members, and is with them and all nameservers."""
    keeper = RecordKeeper(1, (), is_known=True)
    record = want(keeper, *members, nameservers=nameservers)
    assert record is not None
    for place in (*members, *nameservers):
        keeper.stored(place, record.order)
    assert keeper.is_confirmed
    return keeper


def go_async(keeper: RecordKeeper, nameservers: tuple[str, ...] = NS) -> InSyncRecord:
    record = want(keeper, is_sync=False, nameservers=nameservers)
    assert record is not None
    return record


def test_who_knows_nothing_relies_on_nothing() -> None:
    keeper = RecordKeeper(1, (), is_known=False)
    assert not keeper.allows(S1)
    assert not keeper.is_async
    assert want(keeper, S1) is None
    keeper.learned([])
    assert keeper.is_async
    assert keeper.allows(S1)


def test_what_others_may_decide_by_counts_also_if_it_was_forgotten_here() -> None:
    """The store of a master was emptied, and its name has a past."""
    keeper = RecordKeeper(1, (), is_known=False)
    keeper.learned([InSyncRecord(epoch=1, version=9, is_sync=True, needed=1, members=(S1,))])
    assert not keeper.is_async
    record = go_async(keeper)
    assert record.order == (1, 10)
    assert not keeper.is_async
    assert keeper.stored(S1, record.order)
    assert keeper.is_async


def test_the_first_record_names_no_slaves_that_lack_something() -> None:
    keeper = RecordKeeper(1, (), is_known=True)
    record = want(keeper, S1, needed=2, held=99)
    assert record is not None
    assert (record.is_sync, record.needed, record.members) == (True, 2, ())
    assert not keeper.allows(S1)


def test_a_record_without_slaves_says_nothing_about_those_that_join() -> None:
    """What was answered before it, asynchronously, a slave that joins may lack (seed 231168)."""
    keeper = RecordKeeper(1, (), is_known=True)
    keeper.stored(NS[0], go_async(keeper).order)
    none = want(keeper, needed=2)
    assert none is not None
    for name in NS:
        keeper.stored(name, none.order)
    assert want(keeper, S1, needed=2, acknowledged=200, held=100) is None
    assert want(keeper, S1, S2, needed=2, acknowledged=200, held=100) is None
    assert want(keeper, S1, needed=2, acknowledged=200, held=200) is not None


def test_a_record_with_too_few_slaves_says_nothing_about_the_next_one() -> None:
    keeper = keeper_of(S1)
    assert want(keeper, S1, needed=2) is not None, "it holds everything, and may be promoted"
    assert want(keeper, S1, S2, needed=2, acknowledged=200, held=100) is None
    assert want(keeper, S1, S2, needed=2, acknowledged=200, held=200) is not None


def test_async_counts_when_most_nameservers_have_it() -> None:
    keeper = keeper_of(S1)
    record = go_async(keeper)
    assert keeper.newest is record
    assert not keeper.is_async
    assert not keeper.stored(NS[0], record.order)
    assert keeper.allows(S1), "until then answers rest on the slave, as before"
    assert keeper.stored(NS[2], record.order)
    assert keeper.is_async
    assert keeper.is_confirmed


def test_async_counts_when_the_slave_has_it() -> None:
    keeper = keeper_of(S1, nameservers=())
    record = go_async(keeper, ())
    assert not keeper.is_async
    assert keeper.stored(S1, record.order)
    assert keeper.is_async


def test_a_slave_that_came_back_as_another_speaks_for_the_one_it_was() -> None:
    keeper = keeper_of(S1, nameservers=())
    record = go_async(keeper, ())
    assert keeper.stored(S1_AGAIN, record.order)
    assert keeper.is_async


def test_a_new_slave_counts_when_it_and_the_others_know() -> None:
    keeper = keeper_of(S1)
    record = want(keeper, S1, S2)
    assert record is not None
    assert record.members == (S1, S2)
    assert keeper.allows(S1)
    assert not keeper.allows(S2)
    keeper.stored(NS[0], record.order)
    keeper.stored(NS[1], record.order)
    assert not keeper.allows(S2), "it does not know itself"
    assert keeper.stored(S2, record.order)
    assert keeper.allows(S2)


def test_who_is_left_out_counts_no_longer_at_once() -> None:
    keeper = keeper_of(S1, S2)
    assert want(keeper, S2) is not None
    assert not keeper.allows(S1)
    assert keeper.allows(S2)


def test_nobody_is_left_out_while_the_others_lack_something() -> None:
    keeper = keeper_of(S1, S2)
    assert want(keeper, S2, held=99) is None
    assert keeper.allows(S1)
    assert want(keeper, S2, held=100) is not None


def test_sync_is_recorded_when_slaves_hold_what_was_answered_before() -> None:
    keeper = RecordKeeper(1, (), is_known=True)
    go_async(keeper)
    assert keeper.is_async
    assert want(keeper, S1, held=50) is None
    assert want(keeper, S1, held=100) is not None
    assert not keeper.is_async


def test_more_or_fewer_slaves_are_needed_only_when_that_is_known() -> None:
    keeper = keeper_of(S1, S2)
    record = want(keeper, S1, S2, needed=2)
    assert record is not None
    assert keeper.needed == 2
    for nameserver in NS:
        keeper.stored(nameserver, record.order)
    fewer = want(keeper, S1, S2, needed=1)
    assert fewer is not None
    assert keeper.needed == 2
    keeper.stored(NS[0], fewer.order)
    keeper.stored(NS[1], fewer.order)
    assert keeper.needed == 1


def test_two_changes_under_way_both_bind() -> None:
    keeper = keeper_of(S1)
    first = want(keeper, S1, S2)
    second = want(keeper, S1, S2, STOCK)
    assert first is not None
    assert second is not None
    assert keeper.newest is second
    assert not keeper.allows(STOCK)
    for nameserver in NS[:2]:
        keeper.stored(nameserver, first.order)
    assert not keeper.allows(S2), "the first is overtaken"
    for place in (S2, *NS[:2]):
        keeper.stored(place, second.order)
    assert keeper.allows(S2)
    assert keeper.allows(STOCK)


def test_stock_slaves_need_not_know() -> None:
    keeper = RecordKeeper(1, (), is_known=True)
    assert want(keeper, STOCK) is not None
    assert keeper.is_confirmed
    go_async(keeper)
    assert keeper.is_async, "nobody can be promoted by the record before"


def test_a_new_epoch_relies_on_nothing_before_the_last_one_is_over() -> None:
    last = InSyncRecord(
        epoch=1, version=4, is_sync=True, needed=1, members=(S1, S2), nameservers=NS
    )
    keeper = RecordKeeper(2, [last], member=S1, is_known=True)
    assert not keeper.allows(S2)
    assert not keeper.is_async
    record = want(keeper, is_sync=True)
    assert record is not None
    assert record.order == (2, 1)
    assert not keeper.stored(S2, record.order), "the master before does not know"
    assert not keeper.stored(NS[0], record.order)
    assert keeper.stored(NS[1], record.order)
    assert keeper.is_confirmed


def test_without_nameservers_a_new_epoch_is_known_to_all_members() -> None:
    last = InSyncRecord(epoch=1, version=4, is_sync=True, needed=1, members=(S1, S2))
    keeper = RecordKeeper(2, [last], member=S1, is_known=True)
    record = want(keeper, is_sync=True, nameservers=())
    assert record is not None
    assert not keeper.is_confirmed
    assert keeper.stored(S2, record.order), "this one knows, too"
    assert keeper.is_confirmed


def test_an_operator_may_give_up_what_others_decide_by() -> None:
    last = InSyncRecord(epoch=1, version=4, is_sync=True, needed=1, members=(S1,), nameservers=NS)
    keeper = RecordKeeper(2, [last], is_known=True, is_forced=True)
    go_async(keeper)
    for nameserver in NS:
        keeper.asked(nameserver)
    assert keeper.is_async
    assert keeper.is_confirmed


def test_what_an_operator_forced_counts_when_every_nameserver_was_asked() -> None:
    keeper, last = taking_over(is_forced=True)
    assert [keeper.asked(name) for name in NS[:2]] == [False, False]
    assert keeper.met(last)
    assert (keeper.is_confirmed, keeper.confirmed) == (False, None)
    assert not keeper.allows(S2)
    assert not keeper.has_begun
    # It need not have answered.
    assert keeper.asked(NS[2])
    assert keeper.has_begun
    assert not keeper.asked(NS[2])
    assert keeper.is_confirmed


def test_without_nameservers_what_an_operator_forced_counts_at_once() -> None:
    keeper = RecordKeeper(2, [], is_known=True, is_forced=True)
    go_async(keeper, ())
    assert keeper.is_async


def test_who_is_forced_into_an_epoch_that_another_has_begun_is_fenced() -> None:
    keeper, last = taking_over(is_forced=True)
    theirs = msgspec.structs.replace(last, epoch=2, version=1, master="another")
    assert keeper.asked(NS[0]) is False
    assert not keeper.met(theirs)
    assert keeper.is_fenced
    for nameserver in NS:
        keeper.asked(nameserver)
    assert not keeper.allows(S2)
    assert not keeper.is_async


@pytest.mark.parametrize("is_forced", [True, False])
def test_the_record_of_another_master_of_the_epoch_is_never_replaced(is_forced: bool) -> None:
    """One of the two was forced, and what it acknowledged must be known to who decides next."""
    keeper, last = taking_over(is_forced=is_forced)
    for nameserver in NS:
        keeper.stored(nameserver, (2, 1))
        keeper.asked(nameserver)
    assert keeper.is_confirmed
    assert not keeper.met(msgspec.structs.replace(last, epoch=2, version=1, master="another"))
    assert not keeper.is_fenced
    assert keeper.overtaken_by is None
    assert keeper.is_confirmed


def test_a_restart_goes_on_with_all_that_was_under_way() -> None:
    before = keeper_of(S1)
    pending = go_async(before)
    keeper = RecordKeeper(1, before.chain, is_known=True)
    assert not keeper.is_async
    assert keeper.newest == pending
    assert keeper.places_without(NS) == list(NS)
    keeper.stored(NS[0], pending.order)
    assert keeper.stored(NS[1], pending.order)
    assert keeper.is_async


def test_a_new_master_that_was_restarted_knows_that_it_knows() -> None:
    last = InSyncRecord(epoch=1, version=4, is_sync=True, needed=1, members=(S1,))
    before = RecordKeeper(2, [last], member=S1, is_known=True)
    record = go_async(before, ())
    keeper = RecordKeeper(2, [last, record], member=S1_AGAIN, is_known=True)
    assert keeper.is_async


def test_the_same_again_is_not_recorded_again() -> None:
    keeper = keeper_of(S1)
    assert want(keeper, S1) is None
    assert want(keeper, S1, held=0, acknowledged=1000) is None


def test_an_emptied_nameserver_gets_it_again() -> None:
    keeper = keeper_of(S1)
    assert keeper.places_without(NS) == []
    keeper.forgot(NS[1])
    assert keeper.places_without(NS) == [NS[1]]


def test_a_fenced_master_records_nothing_and_counts_on_nobody() -> None:
    keeper = keeper_of(S1)
    assert keeper.allows(S1)
    keeper.is_fenced = True
    assert not keeper.allows(S1)
    assert want(keeper, S1, S2) is None
    assert want(keeper, is_sync=False) is None
    keeper.is_fenced = False
    assert keeper.allows(S1)
    assert want(keeper, S1, S2) is not None


def test_a_fenced_master_that_was_async_does_not_answer_by_itself() -> None:
    keeper = keeper_of(S1)
    record = go_async(keeper)
    for nameserver in NS:
        keeper.stored(nameserver, record.order)
    assert keeper.is_async
    keeper.is_fenced = True
    assert not keeper.is_async


# --- records ---------------------------------------------------------------------------------


def test_a_record_comes_back_and_its_proof_is_checked() -> None:
    record = InSyncRecord(epoch=2, version=3, is_sync=True, needed=1, members=(S1, STOCK))
    assert record.native_members == (S1,)
    for secret, other in ((b"", b""), (b"secret", b"other")):
        back = read_record(record.encode(secret, "broker-a"))
        assert back.is_genuine(secret, "broker-a")
        assert back.order == record.order
        if other:
            assert not back.is_genuine(other, "broker-a")
            assert not back.is_genuine(secret, "broker-b")
            assert not record.is_genuine(secret, "broker-a"), "without a proof"
            strange = msgspec.structs.replace(record, proof="\xe9\ud800")
            assert not strange.is_genuine(secret, "broker-a")
    assert newest(None, record, None) is record
    assert newest() is None


def test_a_record_with_bytes_that_are_no_text_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="cannot be read"):
        read_record(b'{"epoch":1,"version":1,"is_sync":true,"members":["\xe1x"]}')


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'{"epoch":1}',
        b'{"epoch":-1,"version":1,"is_sync":true}',
        b'{"epoch":1,"version":9223372036854775808,"is_sync":true}',
        b'{"epoch":1,"version":1,"is_sync":true}' + b" " * 9000,
    ],
)
def test_what_is_no_record_is_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="in-sync record"):
        read_record(data)


# --- an epoch that begins -------------------------------------------------------------------------


def taking_over(*, is_forced: bool = False) -> tuple[RecordKeeper, InSyncRecord]:
    """Return the keeper of a slave that becomes master in epoch 2, and what it decided by."""
    last = InSyncRecord(
        epoch=1, version=3, is_sync=True, needed=1, members=(S1,), nameservers=NS, master="old"
    )
    keeper = RecordKeeper(2, [last], member=S1, master="new", is_known=True, is_forced=is_forced)
    assert want(keeper) is not None
    return keeper, last


def after(last: InSyncRecord, **changes: object) -> InSyncRecord:
    return msgspec.structs.replace(last, version=last.version + 1, **changes)


def test_the_first_record_of_an_epoch_takes_the_place_of_what_it_was_decided_by() -> None:
    keeper, last = taking_over()
    assert keeper.is_pending
    assert all(keeper.met(last) for _ in NS)
    assert not keeper.stored(NS[0], (2, 1))
    assert not keeper.has_begun
    assert keeper.stored(NS[1], (2, 1))
    assert not keeper.is_pending
    assert keeper.has_begun


def test_a_record_that_was_written_meanwhile_ends_an_epoch_before_it_begins() -> None:
    keeper, last = taking_over()
    keeper.stored(NS[0], (2, 1))
    assert not keeper.met(after(last, is_sync=False, members=()))
    assert keeper.overtaken_by is not None
    assert keeper.is_pending
    # Whoever takes the record now: nothing counts by it.
    assert not keeper.stored(NS[1], (2, 1))
    assert not keeper.stored(NS[2], (2, 1))
    assert not keeper.allows(S1)
    assert not keeper.is_async
    assert want(keeper, S2) is None


@pytest.mark.parametrize(
    ("epoch", "version", "master"), [(2, 1, "another"), (2, 7, "another"), (3, 1, "another")]
)
def test_two_that_take_over_at_once_do_not_both_begin(
    epoch: int, version: int, master: str
) -> None:
    keeper, last = taking_over()
    other = msgspec.structs.replace(last, epoch=epoch, version=version, master=master)
    assert not keeper.met(other)
    assert keeper.overtaken_by == other


def test_its_own_record_is_in_nobodys_way() -> None:
    keeper, last = taking_over()
    assert keeper.met(msgspec.structs.replace(last, epoch=2, version=1, master="new"))
    assert keeper.overtaken_by is None


@pytest.mark.parametrize("version", [0, 2])
def test_a_nameserver_that_was_emptied_meanwhile_is_no_witness(version: int) -> None:
    keeper, last = taking_over()
    earlier = msgspec.structs.replace(last, version=version) if version else None
    assert not keeper.met(earlier)
    # It may be one of three: the others decide.
    assert keeper.overtaken_by is None


def test_what_an_operator_accepted_is_not_looked_for() -> None:
    keeper, last = taking_over(is_forced=True)
    assert not keeper.is_pending
    assert keeper.met(after(last, is_sync=False))
    assert keeper.met(None)


def test_an_epoch_that_has_begun_goes_on_whatever_is_found() -> None:
    """A nameserver that was away has a record of the former master that never counted."""
    keeper, last = taking_over()
    keeper.stored(NS[0], (2, 1))
    keeper.stored(NS[1], (2, 1))
    assert keeper.met(after(last))
    assert keeper.met(None)
    assert keeper.overtaken_by is None


def test_a_master_that_is_restarted_before_its_epoch_began_asks_again() -> None:
    before, last = taking_over()
    keeper = RecordKeeper(2, before.chain, member=S1, master="new", is_known=True)
    assert keeper.is_pending
    assert not keeper.met(after(last))
    assert keeper.overtaken_by is not None


# --- a master that may have lost the end of its log -----------------------------------------------


def test_a_master_that_lost_something_relies_on_no_record_of_the_past() -> None:
    """Who held bytes that it lost may hold others than those it writes there now."""
    before = keeper_of(S1, S2)
    keeper = RecordKeeper(1, before.chain, is_known=True, renews=True)
    assert keeper.is_renewing
    assert not keeper.allows(S1)
    assert not keeper.is_confirmed
    # The same set is recorded again, as one of slaves that have compared their logs.
    record = want(keeper, S1)
    assert record is not None
    assert record.version == 2
    assert not keeper.allows(S1)
    keeper.stored(NS[0], record.order)
    assert keeper.stored(NS[2], record.order) or keeper.stored(S1, record.order)
    assert keeper.allows(S1)
    assert not keeper.allows(S2)
    assert keeper.is_confirmed


def test_a_master_that_lost_something_may_note_it_with_its_slaves_alone() -> None:
    before = keeper_of(S1, nameservers=())
    keeper = RecordKeeper(1, before.chain, is_known=True, renews=True)
    record = want(keeper, S1, nameservers=())
    assert record is not None
    assert keeper.stored(S1, record.order)
    assert keeper.allows(S1)


def test_an_async_master_that_lost_something_goes_on_at_once() -> None:
    before = keeper_of()
    go = go_async(before)
    for name in NS:
        before.stored(name, go.order)
    keeper = RecordKeeper(1, before.chain, is_known=True, renews=True)
    assert not keeper.is_async
    assert go_async(keeper).version == go.version + 1
    keeper.stored("itself", keeper.newest.order if keeper.newest else (0, 0))
    assert keeper.is_async


def test_a_master_that_was_stopped_in_order_goes_on_by_its_record() -> None:
    before = keeper_of(S1)
    keeper = RecordKeeper(1, before.chain, is_known=True)
    assert not keeper.is_renewing
    assert keeper.allows(S1)


def test_a_new_master_has_nothing_to_renew() -> None:
    assert not RecordKeeper(1, (), is_known=True, renews=True).is_renewing


def test_a_master_of_the_past_that_finds_a_later_one_does_not_withdraw() -> None:
    """It is fenced, as any other one: there is no epoch that it could go back to."""
    before = keeper_of(S1)
    keeper = RecordKeeper(1, before.chain, is_known=True, renews=True)
    later = InSyncRecord(epoch=2, version=1, is_sync=True, needed=1, nameservers=NS, master="new")
    assert keeper.met(later)
    assert keeper.overtaken_by is None
    assert not keeper.allows(S1)


# --- without nameservers --------------------------------------------------------------------------


def test_without_nameservers_a_record_names_those_who_may_not_have_heard_of_it() -> None:
    keeper = keeper_of(S1, nameservers=())
    record = want(keeper, S2, nameservers=())
    assert record is not None
    assert record.rivals == (S1,)
    # As soon as they have, another record says so.
    keeper.stored(S2, record.order)
    assert keeper.stored(S1, record.order)
    record = want(keeper, S2, nameservers=())
    assert record is not None
    assert (record.version, record.rivals) == (3, ())


def test_a_new_master_answers_nothing_before_the_rivals_of_the_last_record_have_heard_of_it() -> (
    None
):
    """It was handed over the last record only, and S1 may be promoted by one before that."""
    former = InSyncRecord(epoch=1, version=8, is_sync=False, needed=0, rivals=(S1,), master="old")
    keeper = RecordKeeper(2, (former,), member=S2, master="new", is_known=True)
    record = go_async(keeper, ())
    assert record.rivals == (S1,)
    assert not keeper.is_async
    assert keeper.stored(S1, record.order)
    assert keeper.is_async
    assert want(keeper, is_sync=False, nameservers=()) is not None
    assert keeper.newest is not None
    assert keeper.newest.rivals == ()


def test_with_nameservers_nobody_is_named_who_does_not_count() -> None:
    record = want(keeper_of(S1), S2)
    assert record is not None
    assert record.rivals == ()
