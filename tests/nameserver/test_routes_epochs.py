"""Epochs in the route table: who is master when several say that they are."""

from __future__ import annotations

import pytest

from rmq.errors import RefusedError
from rmq.nameserver.registration import LeapError, Registration, StaleEpochError
from rmq.remoting.codes import ResponseCode
from tests.nameserver.kit import MASTER, SLAVE, WholeTable, saying, topic

OLD = MASTER
NEW = SLAVE
THIRD = "10.0.0.3:10911"


def table_of(*registrations: Registration, records: dict[str, int] | None = None) -> WholeTable:
    """A table after these registrations, each over a connection named like the address.

    `records` holds the epoch of the in-sync record that is kept for a name.
    """
    kept = {} if records is None else records
    table: WholeTable = WholeTable(recorded=lambda name: kept.get(name, 0))
    for said in registrations:
        table.register(said, said.address, 0.0)
    return table


def addresses(table: WholeTable) -> dict[int, str]:
    return table.cluster_info().broker_addr_table["a"].broker_addrs


def promoted() -> WholeTable:
    """A table in which the slave of a master has taken over, with another slave around."""
    return table_of(
        saying(address=OLD, epoch=1, topics=["T"]),
        saying(broker_id=1, address=NEW, epoch=1),
        saying(broker_id=2, address=THIRD, epoch=1),
        saying(address=NEW, epoch=2, topics=["T"]),
    )


# ---- taking over ---------------------------------------------------------------------------------


def test_a_later_epoch_takes_over_at_once() -> None:
    table = table_of(saying(address=OLD, epoch=1), saying(broker_id=1, address=NEW, epoch=1))
    outcome = table.register(saying(address=NEW, epoch=2), NEW, 1.0)
    assert addresses(table) == {0: NEW}
    assert (outcome.epoch, outcome.deposed) == (2, OLD)


def test_a_new_master_brings_its_topics_even_at_a_data_version_it_had_as_a_slave() -> None:
    table = table_of(
        saying(address=OLD, epoch=1, topics=[topic("T", perm=4)]),
        saying(broker_id=1, address=NEW, epoch=1, version=7),
    )
    outcome = table.register(saying(address=NEW, epoch=2, version=7, topics=["T", "U"]), NEW, 1.0)
    assert outcome.topics_changed == 2
    route = table.route("T")
    assert route is not None
    assert [queues.perm for queues in route.queue_datas] == [6]


def test_the_same_epoch_from_another_address_takes_over_as_in_4_9_8() -> None:
    # A broker that was moved.
    table = table_of(saying(address=OLD, epoch=2), saying(address=NEW, epoch=2))
    assert addresses(table) == {0: NEW}
    assert table.data_version(OLD) is not None


def test_a_master_of_ours_takes_over_from_a_stock_one() -> None:
    table = table_of(saying(address=OLD), saying(address=NEW, epoch=1))
    assert addresses(table) == {0: NEW}


def test_slaves_are_told_the_epoch_of_their_master() -> None:
    table = promoted()
    outcome = table.register(saying(broker_id=2, address=THIRD, epoch=1), THIRD, 2.0)
    assert outcome.master == (NEW, f"{NEW}0")
    assert outcome.epoch == 2


def test_a_deposed_master_has_no_data_version_so_that_it_has_to_register() -> None:
    assert promoted().data_version(OLD) is None


def test_a_deposed_master_that_has_another_place_is_not_forgotten() -> None:
    table = table_of(
        saying(name="b", address=OLD), saying(address=OLD, epoch=1), saying(address=NEW, epoch=2)
    )
    assert table.data_version(OLD) is not None
    assert table.cluster_info().broker_addr_table["b"].broker_addrs == {0: OLD}


# ---- coming back ---------------------------------------------------------------------------------


@pytest.mark.parametrize("epoch", [0, 1], ids=["stock", "earlier"])
def test_a_deposed_master_is_refused_and_changes_nothing(epoch: int) -> None:
    table = promoted()
    before = table.cluster_info(), table.topics(), table.address_count
    with pytest.raises(StaleEpochError) as refusal:
        table.register(saying(address=OLD, epoch=epoch, version=9, topics=["X"]), OLD, 1.0)
    assert refusal.value.code == ResponseCode.STALE_EPOCH
    assert refusal.value.epoch == 2
    assert refusal.value.remark == (
        f"registration refused: {OLD} was master of a in epoch {epoch}, there is one of epoch 2:"
        f" it is at {NEW}"
    )
    assert (table.cluster_info(), table.topics(), table.address_count) == before


def test_a_deposed_master_is_refused_while_the_new_one_is_away() -> None:
    table = promoted()
    table.connection_lost(NEW)
    with pytest.raises(StaleEpochError, match="there is one of epoch 2: it is gone"):
        table.register(saying(address=OLD, epoch=1), OLD, 1.0)
    table.register(saying(address=NEW, epoch=2), NEW, 2.0)
    assert addresses(table) == {0: NEW, 2: THIRD}


def test_a_deposed_master_may_come_back_as_a_slave() -> None:
    table = promoted()
    outcome = table.register(saying(broker_id=1, address=OLD, epoch=1), OLD, 1.0)
    assert outcome.master == (NEW, f"{NEW}0")
    assert addresses(table) == {0: NEW, 1: OLD, 2: THIRD}


def test_a_deposed_master_that_is_promoted_again_takes_over() -> None:
    table = promoted()
    outcome = table.register(saying(address=OLD, epoch=3), OLD, 1.0)
    assert addresses(table) == {0: OLD, 2: THIRD}
    assert outcome.deposed == NEW


def test_roles_can_be_swapped_in_either_order() -> None:
    first = table_of(saying(address=OLD, epoch=1), saying(broker_id=1, address=NEW, epoch=1))
    first.register(saying(broker_id=1, address=OLD, epoch=1), OLD, 1.0)
    assert addresses(first) == {1: OLD}
    first.register(saying(address=NEW, epoch=2), NEW, 1.0)
    assert addresses(first) == {0: NEW, 1: OLD}

    second = table_of(saying(address=OLD, epoch=1), saying(broker_id=1, address=NEW, epoch=1))
    second.register(saying(address=NEW, epoch=2), NEW, 1.0)
    assert addresses(second) == {0: NEW}
    second.register(saying(broker_id=1, address=OLD, epoch=2), OLD, 1.0)
    assert addresses(second) == {0: NEW, 1: OLD}


@pytest.mark.parametrize("goodbye", ["unregister", "connection_lost"])
def test_the_goodbye_of_a_deposed_master_does_not_concern_the_new_one(goodbye: str) -> None:
    table = promoted()
    before = table.cluster_info()
    getattr(table, goodbye)(OLD)
    assert table.cluster_info() == before
    assert table.route("T") is not None


def test_what_is_heard_of_a_deposed_master_does_not_keep_it_or_touch_the_new_one() -> None:
    table = promoted()
    table.heard_of(OLD, OLD, 100.0)
    table.heard_of(NEW, NEW, 100.0)
    expired = table.expire(121.0, 120.0)
    assert [each.address for each in expired] == [THIRD]
    assert addresses(table) == {0: NEW}
    assert table.connection_lost(OLD) == []


# ---- what is remembered --------------------------------------------------------------------------


def test_a_nameserver_that_knows_nothing_takes_the_old_master_until_the_new_one_comes() -> None:
    table = table_of(saying(address=OLD, epoch=1))
    assert addresses(table) == {0: OLD}
    table.register(saying(address=NEW, epoch=2), NEW, 1.0)
    assert addresses(table) == {0: NEW}
    with pytest.raises(StaleEpochError):
        table.register(saying(address=OLD, epoch=1), OLD, 2.0)


def test_the_epoch_is_forgotten_with_the_name() -> None:
    table = promoted()
    for address in (NEW, THIRD):
        table.unregister(address)
    table.register(saying(address=OLD, epoch=1), OLD, 1.0)
    assert addresses(table) == {0: OLD}


def test_the_listed_master_is_not_refused_for_an_epoch_that_went_back() -> None:
    # Its store was replaced. Whoever had an earlier epoch than the old store is still kept out.
    table = table_of(saying(address=NEW, epoch=5))
    outcome = table.register(saying(address=NEW, epoch=1), NEW, 1.0)
    assert outcome.epoch == 5
    with pytest.raises(StaleEpochError):
        table.register(saying(address=OLD, epoch=4), OLD, 2.0)


def test_a_slave_of_a_later_epoch_deposes_nobody() -> None:
    # It may be a slave of another master whose brokerName was mistyped.
    table = table_of(saying(address=OLD, epoch=1))
    outcome = table.register(saying(broker_id=1, address=NEW, epoch=9), NEW, 1.0)
    assert outcome.epoch == 1
    table.connection_lost(OLD)
    table.register(saying(address=OLD, epoch=1), OLD, 2.0)
    assert addresses(table) == {0: OLD, 1: NEW}


def test_names_have_epochs_of_their_own() -> None:
    table = table_of(saying(name="b", address=NEW, epoch=9))
    assert table.register(saying(address=OLD, epoch=1), OLD, 1.0).epoch == 1


def test_a_negative_epoch_is_refused() -> None:
    table = table_of(saying(address=OLD, epoch=1))
    with pytest.raises(RefusedError, match="epoch -1") as refusal:
        table.register(saying(address=OLD, epoch=-1), OLD, 1.0)
    assert refusal.value.code == ResponseCode.SYSTEM_ERROR


# ---- leaps, and what backs an epoch --------------------------------------------------------------

LEAP = 2**62
FORGER = "a stranger's connection"


def test_an_epoch_that_leaps_is_refused_in_a_way_that_fences_nobody() -> None:
    table = table_of(saying(address=OLD, epoch=1, topics=["T"]))
    before = table.cluster_info(), table.topics(), table.address_count
    with pytest.raises(LeapError) as refusal:
        table.register(saying(address=NEW, epoch=3, topics=["X"]), FORGER, 1.0)
    assert refusal.value.code == ResponseCode.SYSTEM_ERROR
    assert refusal.value.remark == (
        f"registration refused: {NEW} says that it is master of a in epoch 3, and the last one that"
        " this nameserver knows was of epoch 1; it is taken when the in-sync record of that epoch"
        " is kept here, which a master brings by itself"
    )
    assert (table.cluster_info(), table.topics(), table.address_count) == before
    table.register(saying(address=NEW, epoch=2), NEW, 2.0)


def test_any_epoch_is_taken_while_none_is_known() -> None:
    table = table_of(saying(address=OLD), saying(address=NEW, epoch=7))
    assert addresses(table) == {0: NEW}


@pytest.mark.parametrize("records", [{}, {"a": 1}], ids=["no record", "record"])
def test_a_forged_registration_with_the_masters_own_address_changes_nothing(
    records: dict[str, int],
) -> None:
    table = table_of(
        saying(address=OLD, epoch=1, topics=["T"]),
        saying(broker_id=1, address=NEW, epoch=1),
        records=records,
    )
    with pytest.raises(LeapError):
        table.register(saying(address=OLD, epoch=LEAP), FORGER, 1.0)
    assert table.connection_lost(FORGER) == []
    assert table.register(saying(address=OLD, epoch=1), OLD, 2.0).epoch == 1
    assert addresses(table) == {0: OLD, 1: NEW}


def test_one_above_the_record_counts_as_long_as_its_connection_lives() -> None:
    records = {"a": 1}
    table = table_of(
        saying(address=OLD, epoch=1), saying(broker_id=2, address=THIRD, epoch=1), records=records
    )
    # It was promoted, and its record is on its way.
    outcome = table.register(saying(address=NEW, epoch=2), NEW, 1.0)
    assert (addresses(table), outcome.deposed) == ({0: NEW, 2: THIRD}, OLD)
    assert outcome.epoch == 1, "brokers are told what is backed"
    with pytest.raises(StaleEpochError):
        table.register(saying(address=OLD, epoch=1), OLD, 2.0)
    with pytest.raises(LeapError):
        table.register(saying(address=THIRD, epoch=3), THIRD, 2.0)
    # It was forged, and its writer is gone.
    table.connection_lost(NEW)
    table.register(saying(address=OLD, epoch=1), OLD, 3.0)
    assert addresses(table) == {0: OLD, 2: THIRD}


def test_one_above_the_record_is_not_remembered_either_when_the_record_is_deleted() -> None:
    records = {"a": 1}
    table = table_of(saying(broker_id=2, address=THIRD, epoch=1), records=records)
    table.register(saying(address=NEW, epoch=2), NEW, 1.0)
    table.connection_lost(NEW)
    records.clear()
    table.register(saying(address=OLD, epoch=1), OLD, 2.0)
    assert addresses(table) == {0: OLD, 2: THIRD}


def test_a_record_of_a_later_epoch_keeps_a_deposed_master_out_even_if_it_is_listed() -> None:
    records = {"a": 1}
    table = table_of(saying(address=OLD, epoch=1), records=records)
    records["a"] = 2
    with pytest.raises(StaleEpochError) as refusal:
        table.register(saying(address=OLD, epoch=1), OLD, 1.0)
    assert refusal.value.epoch == 2
    assert refusal.value.remark == (
        f"registration refused: {OLD} was master of a in epoch 1, the in-sync record is of epoch 2"
    )


def test_a_record_keeps_a_deposed_master_out_when_all_brokers_of_the_name_are_gone() -> None:
    table = table_of(records={"a": 2})
    with pytest.raises(StaleEpochError):
        table.register(saying(address=OLD, epoch=1), OLD, 1.0)
    table.register(saying(address=NEW, epoch=2), NEW, 2.0)
    assert addresses(table) == {0: NEW}


def test_what_was_forged_before_there_was_a_record_ends_with_the_record() -> None:
    records: dict[str, int] = {}
    table = table_of(saying(broker_id=1, address=NEW, epoch=1), records=records)
    table.register(saying(address=OLD, epoch=LEAP), FORGER, 1.0)
    table.connection_lost(FORGER)
    records["a"] = 1
    assert table.register(saying(address=OLD, epoch=1), OLD, 2.0).epoch == 1
    records.clear()
    table.connection_lost(OLD)
    table.register(saying(address=OLD, epoch=1), OLD, 3.0)
    assert addresses(table) == {0: OLD, 1: NEW}


def test_a_nameserver_that_missed_promotions_takes_the_master_when_it_has_its_record() -> None:
    records = {"a": 1}
    table = table_of(saying(address=OLD, epoch=1), records=records)
    with pytest.raises(LeapError):
        table.register(saying(address=NEW, epoch=4), NEW, 1.0)
    records["a"] = 4
    outcome = table.register(saying(address=NEW, epoch=4), NEW, 2.0)
    assert (addresses(table), outcome.deposed, outcome.epoch) == ({0: NEW}, OLD, 4)


def test_stock_masters_are_treated_as_in_4_9_8_whatever_record_is_kept() -> None:
    table = table_of(records={"a": 3})
    table.register(saying(address=OLD), OLD, 1.0)
    table.register(saying(address=NEW), NEW, 2.0)
    assert addresses(table) == {0: NEW}
    assert table.data_version(OLD) is not None
    table.register(saying(address=NEW), NEW, 3.0)


def test_the_latest_epoch_of_a_name_is_that_of_its_registrations() -> None:
    table = table_of(saying(address=OLD, epoch=3))
    assert (table.epoch_of("a"), table.epoch_of("b")) == (3, 0)
    table.register(saying(address=NEW, epoch=4), NEW, 1.0)
    assert table.epoch_of("a") == 4


def test_the_epoch_of_a_registration_does_not_outlive_it_where_a_record_is_kept() -> None:
    table = table_of(
        saying(broker_id=1, address=THIRD, epoch=1), saying(address=NEW, epoch=2), records={"a": 1}
    )
    assert table.epoch_of("a") == 2
    table.connection_lost(NEW)
    assert table.epoch_of("a") == 1
