"""Brokers that go are marked first and removed in steps, at the cost of what is removed."""

from __future__ import annotations

import pytest

from rmq.errors import RefusedError
from rmq.nameserver.registration import RouteLimits
from rmq.nameserver.table_entries import ENTRIES_PER_STEP
from rmq.remoting.bodies.topics import DataVersion
from tests.nameserver.kit import MASTER, SLAVE, WholeTable, saying
from tests.stepping import count_steps, finish


def crowd(count: int, topics: int = 1) -> WholeTable:
    """A table with so many brokers, all but one of which registered over one connection."""
    table = WholeTable()
    table.register(saying("stays", address="stays:1", topics=["shared"]), "other", 0.0)
    for number in range(count):
        names = [f"t{number}-{each}" for each in range(topics)]
        said = saying(f"b{number}", address=f"x:{number}", topics=["shared", *names])
        table.register(said, "one", 0.0)
    return table


def test_what_a_connection_took_with_it_is_removed_in_steps() -> None:
    table = crowd(3_000, topics=2)
    assert len(table.connection_lost("one")) == 3_000
    # Each broker is an address, a name and three topics.
    steps = count_steps(table.table.clean())[1]
    assert 3_000 * 4 / ENTRIES_PER_STEP < steps < 3_000 * 6 / ENTRIES_PER_STEP
    assert table.topics() == {"shared"}
    assert set(table.cluster_info().broker_addr_table) == {"stays"}
    tables = table.table.tables
    assert (len(tables.topics), len(tables.brokers), len(tables.topics["shared"])) == (1, 1, 1)
    assert len(table.table._live) == 1
    assert table.table._queue_entries == 1


def test_removing_one_of_many_brokers_costs_a_step() -> None:
    table = crowd(3_000)
    table.register(saying("last", address="last:1", topics=["L"]), "two", 0.0)
    table.connection_lost("two")
    assert count_steps(table.table.clean())[1] == 1
    assert table.unregister("x:7")
    assert count_steps(table.table.clean())[1] == 1
    assert table.topics() == {"shared"} | {f"t{n}-0" for n in range(3_000) if n != 7}


def test_brokers_that_expire_together_are_removed_in_steps() -> None:
    table = crowd(2_000)
    table.heard_of("stays:1", "other", 200.0)
    assert len(table.expire(200.0, 120.0)) == 2_000
    assert table.address_count == 1
    assert set(table.cluster_info().broker_addr_table) == {"stays"}
    assert count_steps(table.table.clean())[1] > 2_000 / ENTRIES_PER_STEP
    assert table.topics() == {"shared"}


def test_from_the_first_moment_nothing_tells_of_them() -> None:
    table = crowd(10)
    table.connection_lost("one")
    assert table.table.needs_cleaning
    assert table.topics() == {"shared"}
    assert table.topics_of_cluster("c") == {"shared"}
    assert table.topics_flagged(set_bits=0) == {"shared"}
    assert table.system_topics() == ({"c", "stays"}, "stays:1")
    route = table.route("shared")
    assert route is not None
    assert [queues.broker_name for queues in route.queue_datas] == ["stays"]
    assert table.route("t3-0") is None
    assert table.data_version("x:3") is None
    assert table.holder("x:3") is None
    assert not table.unregister("x:3")
    assert (table.wipe_write_perm("b3"), table.epoch_of("b3")) == (0, 0)
    assert table.expire(1_000.0, 500.0)[0].address == "stays:1"


def test_a_broker_that_comes_back_before_it_is_removed_is_a_new_one() -> None:
    table = WholeTable()
    table.register(saying(topics=["T", "old"], epoch=1), "one", 0.0)
    table.register(saying("b", address="b:1", topics=["T"]), "two", 0.0)
    table.connection_lost("one")
    outcome = table.register(saying(topics=["T", "new"]), "three", 1.0)
    assert (outcome.is_new, outcome.topics_changed, outcome.epoch) == (True, 2, 0)
    assert table.topics() == {"T", "new"}
    table.clean()
    assert table.topics() == {"T", "new"}
    route = table.route("T")
    assert route is not None
    assert len(route.broker_datas) == 2
    assert table.table._queue_entries == 3
    table.connection_lost("three")
    table.clean()
    assert table.topics() == {"T"}


def test_a_slave_takes_the_name_over_while_its_master_is_being_removed() -> None:
    table = WholeTable()
    table.register(saying(topics=["T"], epoch=3), "one", 0.0)
    table.register(saying(broker_id=1, address=SLAVE, epoch=3), "two", 0.0)
    table.connection_lost("one")
    # What is remembered of the name counts, and what was marked does not.
    assert table.epoch_of("a") == 3
    assert table.register(saying(broker_id=1, address=SLAVE), "two", 1.0).master is None
    outcome = table.register(saying(address=SLAVE, epoch=4, topics=["T"]), "two", 2.0)
    assert (outcome.deposed, outcome.topics_changed) == (None, 0)


# ---- registrations in steps ----------------------------------------------------------------------

MANY = [f"t{number}" for number in range(3 * ENTRIES_PER_STEP)]


def test_a_registration_of_many_topics_takes_as_many_steps() -> None:
    table = WholeTable()
    steps = table.table.register(saying(topics=MANY), "one", 0.0)
    outcome, count = count_steps(steps)
    assert outcome.topics_changed == len(MANY)
    assert count >= 2 * 3 - 1
    assert table.data_version(MASTER) == DataVersion(timestamp=1_000, counter=1)


def test_a_registration_that_is_not_completed_is_to_be_repeated() -> None:
    table = WholeTable()
    steps = table.table.register(saying(topics=MANY), "one", 0.0)
    while table.address_count == 0:
        next(steps)
    steps.close()
    assert 0 < len(table.topics()) < len(MANY)
    assert table.data_version(MASTER) is None
    assert table.register(saying(topics=MANY), "one", 1.0).topics_changed > 0
    assert table.topics() == set(MANY)
    assert table.data_version(MASTER) == DataVersion(timestamp=1_000, counter=1)


@pytest.mark.parametrize("first_ends_last", [True, False])
def test_registrations_that_overlap_bring_all_topics_and_are_to_be_repeated(
    first_ends_last: bool,
) -> None:
    table = WholeTable()
    first = table.table.register(saying(version=1, topics=MANY), "one", 0.0)
    while table.address_count == 0:
        next(first)
    second = table.table.register(saying(version=2, topics=[*MANY, "more"]), "one", 0.0)
    for _ in range(4):
        next(second)
    for steps in (second, first) if first_ends_last else (first, second):
        finish(steps)
    assert table.topics() == {*MANY, "more"}
    # Nobody can tell which of the two said more.
    expected = None if first_ends_last else DataVersion(timestamp=1_000, counter=2)
    assert table.data_version(MASTER) == expected


@pytest.mark.parametrize("how", ["its connection ends", "it unregisters", "it is replaced"])
def test_a_master_that_goes_while_its_topics_are_listed_is_refused(how: str) -> None:
    table = WholeTable()
    steps = table.table.register(saying(topics=MANY), "one", 0.0)
    while table.address_count == 0:
        next(steps)
    if how == "its connection ends":
        table.connection_lost("one")
    elif how == "it unregisters":
        table.unregister(MASTER)
    else:
        table.register(saying(address=SLAVE, topics=["T"]), "two", 0.0)
    with pytest.raises(RefusedError, match="is master of a no longer"):
        finish(steps)
    table.clean()
    expected = {"T"} if how == "it is replaced" else set()
    assert table.topics() & {"T"} == expected
    if how != "it is replaced":
        assert table.table._queue_entries == 0


# ---- what is bounded -----------------------------------------------------------------------------


def test_no_address_name_or_cluster_can_be_made_to_grow_without_end() -> None:
    limits = RouteLimits(addresses_max=5, ids_max=3, names_max=2, clusters_max=2)
    table = WholeTable(limits)
    for number in range(3):
        table.register(saying(broker_id=number, address=f"x:{number}"), "c", 0.0)
    with pytest.raises(RefusedError, match="a has 3 brokers, the limit"):
        table.register(saying(broker_id=3, address="x:3"), "c", 0.0)
    table.register(saying("b", address="x:0"), "c", 0.0)
    with pytest.raises(RefusedError, match="x:0 has 2 broker names, the limit"):
        table.register(saying("d", address="x:0"), "c", 0.0)
    table.register(saying("b", address="x:0", cluster="e"), "c", 0.0)
    with pytest.raises(RefusedError, match="b has been in 2 clusters, the limit"):
        table.register(saying("b", address="x:0", cluster="f"), "c", 0.0)
    # A broker that is listed can go on as it is.
    table.register(saying(broker_id=2, address="x:2"), "c", 1.0)


@pytest.mark.parametrize("name", ["a\nb", "a\x00", "\x1b[31m", "a\x7f", "a\u2028b"])
def test_names_with_control_characters_are_not_kept(name: str) -> None:
    table = WholeTable()
    for said in (saying(name), saying(address=name), saying(cluster=name)):
        with pytest.raises(RefusedError, match="contains control characters"):
            table.register(said, "c", 0.0)
    outcome = table.register(saying(topics=["T", name, "", "t" * 1025, "a b", "测试"]), "c", 0.0)
    assert outcome.left_out == 3
    assert table.topics() == {"T", "a b", "测试"}
