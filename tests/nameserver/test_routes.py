"""The route table, step by step: who comes, who goes, and what clients are told."""

from __future__ import annotations

import pytest

from rmq.errors import RefusedError
from rmq.model.topic_flags import UNIT_FLAG, UNIT_SUB_FLAG
from rmq.nameserver.registration import Registration, RouteLimits
from rmq.remoting.bodies.topics import DataVersion
from rmq.remoting.codes import ResponseCode
from tests.nameserver.kit import CLUSTER, MASTER, SLAVE, WholeTable, saying, topic

OTHER = "10.0.0.3:10911"


def table_of(*registrations: Registration, limits: RouteLimits | None = None) -> WholeTable:
    """A table after these registrations, each over a connection named like the address."""
    table: WholeTable = WholeTable(limits)
    for said in registrations:
        table.register(said, said.address, 0.0)
    return table


def addresses(table: WholeTable, name: str = "a") -> dict[int, str]:
    return table.cluster_info().broker_addr_table[name].broker_addrs


def perms(table: WholeTable, name: str) -> dict[str, int]:
    route = table.route(name)
    return {} if route is None else {each.broker_name: each.perm for each in route.queue_datas}


# ---- registering ---------------------------------------------------------------------------------


def test_a_master_brings_its_topics() -> None:
    table = table_of(saying(topics=[topic("T", perm=4, queues=8, flag=2)]))
    route = table.route("T")
    assert route is not None
    (queues,) = route.queue_datas
    assert (queues.broker_name, queues.read_queue_nums, queues.write_queue_nums) == ("a", 8, 8)
    assert (queues.perm, queues.topic_sys_flag) == (4, 2)
    (broker,) = route.broker_datas
    assert (broker.cluster, broker.broker_name, broker.broker_addrs) == (CLUSTER, "a", {0: MASTER})
    assert (route.order_topic_conf, route.filter_server_table) == (None, {})


def test_a_slave_brings_no_topics() -> None:
    table = table_of(saying(broker_id=1, address=SLAVE, topics=["T"]))
    assert table.route("T") is None
    assert addresses(table) == {1: SLAVE}


def test_a_slave_is_told_where_its_master_is() -> None:
    table = table_of(saying())
    outcome = table.register(saying(broker_id=1, address=SLAVE), "s", 0.0)
    assert outcome.master == (MASTER, f"{MASTER}0")


@pytest.mark.parametrize("first", [(), (saying(name="b"),)], ids=["alone", "another master"])
def test_a_slave_without_a_master_is_told_nothing(first: tuple[Registration, ...]) -> None:
    table = table_of(*first)
    assert table.register(saying(broker_id=1, address=SLAVE), "s", 0.0).master is None


def test_a_master_is_told_nothing_about_masters() -> None:
    table = table_of(saying())
    assert table.register(saying(), "m", 0.0).master is None


def test_the_same_data_version_changes_no_topics() -> None:
    table = table_of(saying(version=1, topics=["T"]))
    outcome = table.register(saying(version=1, topics=["T", "U"]), MASTER, 1.0)
    assert (outcome.is_new, outcome.topics_changed) == (False, 0)
    assert table.topics() == {"T"}


def test_another_data_version_brings_new_and_changed_topics_and_removes_none() -> None:
    table = table_of(saying(version=1, topics=["T", "U", "V"]))
    outcome = table.register(saying(version=2, topics=[topic("T", perm=4), "U", "W"]), MASTER, 1.0)
    assert outcome.topics_changed == 2
    assert table.topics() == {"T", "U", "V", "W"}
    assert perms(table, "T") == {"a": 4}


def test_a_data_version_that_goes_back_counts_as_another() -> None:
    table = table_of(saying(version=2, topics=["T"]))
    table.register(saying(version=1, topics=["U"]), MASTER, 1.0)
    assert table.topics() == {"T", "U"}


def test_a_topic_is_known_by_its_own_name_not_by_its_key() -> None:
    # The table of a registration has keys; RocketMQ 4.9.8 goes by the names inside.
    table = table_of(saying(topics=[topic("inner")]))
    assert table.topics() == {"inner"}


def test_a_topic_on_two_brokers_has_queues_of_both() -> None:
    table = table_of(
        saying(name="a", topics=["T"]), saying(name="b", address=OTHER, topics=["T", "U"])
    )
    route = table.route("T")
    assert route is not None
    assert {each.broker_name for each in route.queue_datas} == {"a", "b"}
    assert {each.broker_name for each in route.broker_datas} == {"a", "b"}
    assert perms(table, "U") == {"b": 6}


def test_queues_and_brokers_come_in_the_order_of_javas_maps() -> None:
    names = ["broker-b", "broker-a", "Broker-Z"]
    table = table_of(
        *(saying(name=n, address=f"10.0.0.{i}:1", topics=["T"]) for i, n in enumerate(names))
    )
    route = table.route("T")
    assert route is not None
    # Hash codes, spread over 16 buckets, put them into 7, 8 and 11.
    expected = ["Broker-Z", "broker-b", "broker-a"]
    assert [each.broker_name for each in route.queue_datas] == expected
    assert [each.broker_name for each in route.broker_datas] == expected


def test_an_address_that_changes_its_id_gives_up_the_old_one() -> None:
    table = table_of(saying(broker_id=1, address=SLAVE))
    table.register(saying(broker_id=0, address=SLAVE, topics=["T"]), SLAVE, 1.0)
    assert addresses(table) == {0: SLAVE}
    assert perms(table, "T") == {"a": 6}


def test_a_slave_that_becomes_master_brings_topics_even_at_its_old_data_version() -> None:
    table = table_of(saying(broker_id=1, address=SLAVE, version=7))
    outcome = table.register(saying(broker_id=0, address=SLAVE, version=7, topics=["T"]), SLAVE, 1)
    assert outcome.topics_changed == 1


def test_a_new_master_takes_the_place_of_the_old_one() -> None:
    table = table_of(saying(topics=["T"]), saying(address=OTHER, topics=["T"]))
    assert addresses(table) == {0: OTHER}
    table.connection_lost(MASTER)
    assert addresses(table) == {0: OTHER}
    assert perms(table, "T") == {"a": 6}


def test_a_broker_keeps_the_cluster_it_first_had_and_is_listed_in_both() -> None:
    table = table_of(saying(), saying(cluster="d", broker_id=1, address=SLAVE))
    info = table.cluster_info()
    assert info.broker_addr_table["a"].cluster == CLUSTER
    assert info.cluster_addr_table == {CLUSTER: {"a"}, "d": {"a"}}
    table.connection_lost(MASTER)
    table.connection_lost(SLAVE)
    assert table.cluster_info().cluster_addr_table == {}


def test_filter_servers_are_told_with_routes_until_a_registration_has_none() -> None:
    table = table_of(saying(topics=["T"], filter_servers=("f:1", "f:2")))
    route = table.route("T")
    assert route is not None
    assert route.filter_server_table == {MASTER: ("f:1", "f:2")}
    # A broker too old to know of filter servers says nothing about them.
    table.register(saying(filter_servers=None), MASTER, 1.0)
    route = table.route("T")
    assert route is not None
    assert route.filter_server_table == {MASTER: ("f:1", "f:2")}
    table.register(saying(filter_servers=()), MASTER, 2.0)
    route = table.route("T")
    assert route is not None
    assert route.filter_server_table == {}


# ---- limits --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "remark"),
    [
        pytest.param(saying(name=""), "brokerName is empty", id="no name"),
        pytest.param(saying(address=""), "brokerAddr is empty", id="no address"),
        pytest.param(saying(cluster=""), "clusterName is empty", id="no cluster"),
        pytest.param(saying(name="n" * 11), "longer than 10 characters", id="long name"),
        pytest.param(saying(filter_servers=("f",) * 3), "3 filter servers", id="filter servers"),
        pytest.param(saying(address="y:1"), "2 brokers are registered", id="brokers"),
        pytest.param(
            saying(name="b", address="x:2", version=2, topics=["T", "U", "V", "W"]),
            "4 more topics of b: with 1 known, the limit of 4 would be passed",
            id="topics",
        ),
    ],
)
def test_what_is_too_much_is_refused_and_changes_nothing(said: Registration, remark: str) -> None:
    limits = RouteLimits(
        addresses_max=2, queue_entries_max=4, filter_servers_max=2, name_chars_max=10
    )
    table = table_of(
        saying(address="x:1", topics=["T"]), saying(name="b", address="x:2"), limits=limits
    )
    before = table.cluster_info(), table.topics()
    with pytest.raises(RefusedError, match=remark) as refusal:
        table.register(said, "c", 1.0)
    assert refusal.value.code == ResponseCode.SYSTEM_ERROR
    assert (table.cluster_info(), table.topics()) == before


def test_a_full_table_still_takes_what_is_not_more() -> None:
    limits = RouteLimits(addresses_max=1, queue_entries_max=2, name_chars_max=20)
    table = table_of(saying(topics=["T", "U"]), limits=limits)
    table.register(saying(version=2, topics=["T", "U"]), MASTER, 1.0)
    table.delete_topic("U")
    table.register(saying(version=3, topics=["T", "V"]), MASTER, 2.0)
    assert table.topics() == {"T", "V"}


# ---- going ---------------------------------------------------------------------------------------


def test_when_the_last_address_of_a_name_goes_everything_about_it_goes() -> None:
    table = table_of(saying(topics=["T"], filter_servers=("f",)))
    assert table.unregister(MASTER)
    assert table.route("T") is None
    info = table.cluster_info()
    assert (info.broker_addr_table, info.cluster_addr_table) == ({}, {})
    assert (table.topic_count, table.address_count) == (0, 0)
    assert table.data_version(MASTER) is None


def test_when_only_the_master_goes_its_topics_stay_with_the_slave() -> None:
    table = table_of(saying(topics=["T"]), saying(broker_id=1, address=SLAVE))
    table.connection_lost(MASTER)
    route = table.route("T")
    assert route is not None
    assert route.broker_datas[0].broker_addrs == {1: SLAVE}
    assert perms(table, "T") == {"a": 6}


def test_a_topic_stays_as_long_as_one_broker_has_it() -> None:
    table = table_of(saying(topics=["T"]), saying(name="b", address=OTHER, topics=["T"]))
    table.unregister(MASTER)
    assert perms(table, "T") == {"b": 6}
    assert table.cluster_info().cluster_addr_table == {CLUSTER: {"b"}}


def test_who_is_not_known_can_go_without_harm() -> None:
    table = table_of(saying(topics=["T"]))
    assert not table.unregister(OTHER)
    assert table.connection_lost("nobody") == []
    assert perms(table, "T") == {"a": 6}


def test_an_old_masters_goodbye_does_not_remove_the_new_master() -> None:
    table = table_of(saying(topics=["T"]), saying(address=OTHER, topics=["T"]))
    assert table.unregister(MASTER)
    assert addresses(table) == {0: OTHER}


def test_a_connection_that_ends_takes_all_its_brokers_with_it() -> None:
    table: WholeTable = WholeTable()
    table.register(saying(topics=["T"]), "one", 0.0)
    table.register(saying(name="b", address=OTHER), "one", 0.0)
    assert table.connection_lost("one") == [MASTER, OTHER]
    assert table.address_count == 0


def test_the_end_of_a_connection_that_a_broker_no_longer_uses_means_nothing() -> None:
    table: WholeTable = WholeTable()
    table.register(saying(), "old", 0.0)
    table.register(saying(), "new", 1.0)
    assert table.connection_lost("old") == []
    assert table.connection_lost("new") == [MASTER]


def test_a_broker_that_only_asks_for_its_version_belongs_to_the_connection_it_asks_on() -> None:
    table: WholeTable = WholeTable()
    table.register(saying(), "old", 0.0)
    table.heard_of(MASTER, "new", 1.0)
    assert table.connection_lost("old") == []
    assert addresses(table) == {0: MASTER}


def test_an_address_that_was_renamed_goes_from_both_names() -> None:
    table = table_of(saying(name="a", topics=["T"]), saying(name="b", topics=["T"]))
    assert perms(table, "T") == {"a": 6, "b": 6}
    table.connection_lost(MASTER)
    assert table.cluster_info().broker_addr_table == {}
    assert table.route("T") is None


# ---- silence -------------------------------------------------------------------------------------


def test_a_broker_expires_only_after_more_than_the_time_allowed() -> None:
    table = table_of(saying(topics=["T"]))
    assert table.expire(120.0, 120.0) == []
    (expired,) = table.expire(120.5, 120.0)
    assert (expired.address, expired.silent_s, expired.connection) == (MASTER, 120.5, MASTER)
    assert table.route("T") is None


def test_registering_and_asking_for_the_version_keep_a_broker_alive() -> None:
    table = table_of(saying(), saying(broker_id=1, address=SLAVE))
    table.register(saying(), MASTER, 100.0)
    table.heard_of(SLAVE, SLAVE, 100.0)
    assert table.expire(200.0, 120.0) == []


def test_hearing_of_an_unknown_broker_does_not_make_it_known() -> None:
    table: WholeTable = WholeTable()
    table.heard_of(MASTER, "c", 0.0)
    assert table.data_version(MASTER) is None
    assert table.connection_lost("c") == []


def test_the_connection_of_an_expired_address_stays_if_another_broker_uses_it() -> None:
    table: WholeTable = WholeTable()
    table.register(saying(address=MASTER), "c", 0.0)
    table.register(saying(address=OTHER), "c", 100.0)
    (expired,) = table.expire(121.0, 120.0)
    assert (expired.address, expired.connection) == (MASTER, None)
    assert addresses(table) == {0: OTHER}


def test_data_versions_are_those_of_the_last_registration_slaves_included() -> None:
    table = table_of(saying(version=3), saying(broker_id=1, address=SLAVE, version=4))
    assert table.data_version(MASTER) == DataVersion(timestamp=1_000, counter=3)
    assert table.data_version(SLAVE) == DataVersion(timestamp=1_000, counter=4)


# ---- what operators change -----------------------------------------------------------------------


def test_wiping_takes_only_the_write_bit_of_that_brokers_topics() -> None:
    table = table_of(
        saying(topics=[topic("T", perm=6), topic("U", perm=7), topic("V", perm=4)]),
        saying(name="b", address=OTHER, topics=["T"]),
    )
    assert table.wipe_write_perm("a") == 3
    assert perms(table, "T") == {"a": 4, "b": 6}
    assert perms(table, "U") == {"a": 5}
    assert perms(table, "V") == {"a": 4}


def test_adding_gives_read_and_write_and_nothing_else() -> None:
    table = table_of(saying(topics=[topic("T", perm=4), topic("TBW102", perm=7)]))
    assert table.add_write_perm("a") == 2
    assert perms(table, "T") == {"a": 6}
    assert perms(table, "TBW102") == {"a": 6}


def test_an_unknown_broker_has_no_permissions_to_change() -> None:
    table = table_of(saying(topics=["T"]))
    assert (table.wipe_write_perm("x"), table.add_write_perm("x")) == (0, 0)
    assert perms(table, "T") == {"a": 6}


def test_a_wiped_permission_returns_with_the_next_change_of_the_broker_only() -> None:
    table = table_of(saying(version=1, topics=["T"]))
    table.wipe_write_perm("a")
    table.register(saying(version=1, topics=["T"]), MASTER, 1.0)
    assert perms(table, "T") == {"a": 4}
    table.register(saying(version=2, topics=["T"]), MASTER, 2.0)
    assert perms(table, "T") == {"a": 6}


def test_a_deleted_topic_is_gone_until_its_broker_changes() -> None:
    table = table_of(saying(version=1, topics=["T"]))
    assert table.delete_topic("T")
    assert table.route("T") is None
    table.register(saying(version=1, topics=["T"]), MASTER, 1.0)
    assert table.route("T") is None
    table.register(saying(version=2, topics=["T"]), MASTER, 2.0)
    assert perms(table, "T") == {"a": 6}


def test_a_topic_can_be_deleted_in_one_cluster_only() -> None:
    table = table_of(
        saying(topics=["T"]), saying(name="b", cluster="d", address=OTHER, topics=["T"])
    )
    assert not table.delete_topic("T", "unknown")
    assert table.delete_topic("T", "d")
    assert perms(table, "T") == {"a": 6}
    assert not table.delete_topic("T", "d")
    assert table.delete_topic("T", CLUSTER)
    assert table.topic_count == 0


def test_an_empty_cluster_name_means_all_clusters() -> None:
    table = table_of(saying(topics=["T"]))
    assert table.delete_topic("T", "")
    assert not table.delete_topic("T", "")


# ---- lists ---------------------------------------------------------------------------------------


def test_topics_of_a_cluster_are_those_of_its_brokers() -> None:
    table = table_of(
        saying(topics=["T", "U"]), saying(name="b", cluster="d", address=OTHER, topics=["U", "V"])
    )
    assert table.topics_of_cluster(CLUSTER) == {"T", "U"}
    assert table.topics_of_cluster("d") == {"U", "V"}
    assert table.topics_of_cluster("unknown") == set()


def test_system_topics_are_clusters_and_brokers_with_some_brokers_address() -> None:
    table = table_of(
        saying(broker_id=1, address=SLAVE), saying(), saying(name="b", cluster="d", address=OTHER)
    )
    system = table.system_topics()
    assert system == ({CLUSTER, "d", "a", "b"}, MASTER)


def test_without_brokers_there_are_no_system_topics_and_no_address() -> None:
    assert table_of().system_topics() == (set(), None)


@pytest.mark.parametrize(
    ("set_bits", "clear_bits", "expected"),
    [
        pytest.param(UNIT_FLAG, 0, {"unit", "both"}, id="unit"),
        pytest.param(UNIT_SUB_FLAG, 0, {"sub", "both"}, id="unit sub"),
        pytest.param(UNIT_SUB_FLAG, UNIT_FLAG, {"sub"}, id="unit sub, not unit"),
    ],
)
def test_topics_are_listed_by_their_unit_flags(
    set_bits: int, clear_bits: int, expected: set[str]
) -> None:
    flags = {"plain": 0, "unit": 1, "sub": 2, "both": 3, "more": 4}
    table = table_of(saying(topics=[topic(name, flag=flag) for name, flag in flags.items()]))
    assert table.topics_flagged(set_bits=set_bits, clear_bits=clear_bits) == expected
