"""The table of consumer groups, against the files and answers of a stock broker and its rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rmq.broker.tables.groups import BUILT_IN_GROUPS, GroupTable
from rmq.errors import MalformedJsonError
from rmq.remoting.bodies import (
    BodyError,
    DataVersion,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
)
from rmq.remoting.codes import RequestCode
from tests.broker.tables.table_kit import Clock, Settings, finish, golden_files, group_table
from tests.remoting.bodies.captures import captured_bodies

if TYPE_CHECKING:
    from collections.abc import Callable

FILES = golden_files("subscriptionGroup.json")


@pytest.mark.parametrize("text", FILES.values(), ids=FILES.keys())
def test_a_golden_file_is_read_and_written_again_byte_for_byte(text: str) -> None:
    groups = group_table()
    assert groups.load(text) == len(groups)
    assert groups.render() == text


def test_there_are_golden_files() -> None:
    assert len(FILES) == 6


def test_a_new_broker_has_the_groups_that_a_stock_one_has() -> None:
    answers = [
        body.data
        for body in captured_bodies()
        if body.code is RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG and body.is_response
    ]
    slave = group_table()
    for data in answers:
        master = SubscriptionGroupWrapper.decode(data)
        clock = Clock()
        clock.now_ms = master.data_version.timestamp
        groups = group_table(clock=clock)
        while groups.version.counter < master.data_version.counter:
            groups.find("CID_RMQ_SYS_TRANS")
        assert groups.to_body().encode() == data
        finish(slave.replacing(master))
        assert slave.to_body().encode() == data
    assert len(answers) > 3
    assert finish(slave.replacing(SubscriptionGroupWrapper(data_version=DataVersion(counter=99))))
    assert len(slave) == 0


def test_a_loaded_file_comes_on_top_of_the_built_in_groups() -> None:
    groups = group_table()
    assert (
        groups.load(
            '{"dataVersion":{"counter":7,"timestamp":9},"subscriptionGroupTable":'
            '{"g":{"groupName":"g","retryMaxTimes":3}}}'
        )
        == 1
    )
    assert set(groups.names()) == {*BUILT_IN_GROUPS, "g"}
    assert groups.get("g") == SubscriptionGroupConfig(group_name="g", retry_max_times=3)
    assert groups.version == DataVersion(counter=7, timestamp=9)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", BodyError),
        ('{"subscriptionGroupTable":{', MalformedJsonError),
        ("\x1f\x8b\x08", MalformedJsonError),
        (
            '{"subscriptionGroupTable":{"g":{"groupName":"g","brokerId":9223372036854775808}}}',
            BodyError,
        ),
    ],
    ids=["empty", "truncated", "binary", "too-large"],
)
def test_a_bad_file_is_refused_and_changes_nothing(text: str, error: type[Exception]) -> None:
    groups = group_table()
    before = groups.render(), groups.changes
    with pytest.raises(error):
        groups.load(text)
    assert (groups.render(), groups.changes) == before


# --- groups made by their first use ---


def test_a_group_is_made_when_it_is_first_looked_for() -> None:
    groups, calls = watched(group_table())
    assert groups.get("g") is None
    created = groups.find("g")
    assert created == SubscriptionGroupConfig(group_name="g")
    assert groups.find("g") is created
    assert groups.get("g") is created
    assert groups.version.counter == 1
    assert calls == [created]


def test_without_auto_creation_only_groups_of_the_system_are_made() -> None:
    groups, calls = watched(group_table(Settings(auto_create_group=False)))
    assert groups.find("g") is None
    assert groups.find("TOOLS_CONSUMER") is not None
    assert calls == []
    assert groups.find("CID_RMQ_SYS_TRANS") is not None
    assert len(calls) == 1


def test_auto_creation_can_be_turned_on_and_off_in_flight() -> None:
    groups = group_table()
    groups.reconfigure(Settings(auto_create_group=False))
    assert groups.find("g") is None
    groups.reconfigure(Settings())
    assert groups.find("g") is not None


@pytest.mark.parametrize(
    "group",
    ["", "  ", "g" * 256, "CID_RMQ_SYS_" + "g" * 256],
    ids=["empty", "blank", "long", "sys"],
)
def test_no_group_is_made_with_a_name_that_no_client_can_have(group: str) -> None:
    groups, calls = watched(group_table())
    assert groups.find(group) is None
    assert group not in groups
    assert calls == []


def test_the_longest_name_of_a_client_makes_a_group() -> None:
    assert group_table().find("g" * 255) is not None


# --- changes ---


def watched(groups: GroupTable) -> tuple[GroupTable, list[SubscriptionGroupConfig | None]]:
    calls: list[SubscriptionGroupConfig | None] = []
    groups.on_change = calls.append
    return groups, calls


CHANGES: dict[str, Callable[[GroupTable], object]] = {
    "put": lambda groups: groups.put(SubscriptionGroupConfig(group_name="new")),
    "put-the-same": lambda groups: groups.put(SubscriptionGroupConfig(group_name="g")),
    "delete": lambda groups: groups.delete("g"),
    "find": lambda groups: groups.find("new"),
    "disable": lambda groups: groups.disable_consume("g"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_every_change_moves_the_version_and_is_told(change: Callable[[GroupTable], object]) -> None:
    clock = Clock()
    groups, calls = watched(group_table(clock=clock))
    groups.put(SubscriptionGroupConfig(group_name="g"))
    calls.clear()
    changes, text = groups.changes, groups.render()
    clock.now_ms = 2_000
    change(groups)
    assert groups.version == DataVersion(timestamp=2_000, counter=2)
    assert groups.changes > changes
    assert groups.render() != text
    assert len(calls) == 1


def test_putting_tells_whether_anything_is_different() -> None:
    groups = group_table()
    assert groups.put(SubscriptionGroupConfig(group_name="g"))
    assert not groups.put(SubscriptionGroupConfig(group_name="g"))
    assert groups.put(SubscriptionGroupConfig(group_name="g", retry_queue_nums=2))


def test_a_group_that_may_not_consume_keeps_its_other_settings() -> None:
    groups = group_table()
    groups.put(SubscriptionGroupConfig(group_name="g", retry_queue_nums=2))
    assert groups.disable_consume("g")
    assert groups.get("g") == SubscriptionGroupConfig(
        group_name="g", retry_queue_nums=2, consume_enable=False
    )


def test_what_is_not_there_is_neither_disabled_nor_deleted() -> None:
    groups, calls = watched(group_table())
    assert not groups.disable_consume("g")
    assert not groups.delete("g")
    assert "g" not in groups
    assert (groups.version.counter, calls) == (0, [])


def test_the_answer_to_slaves_is_made_once_per_change() -> None:
    groups = group_table()
    first = finish(groups.encoding())
    assert first == groups.to_body().encode()
    assert finish(groups.encoding()) is first
    groups.find("g")
    assert finish(groups.encoding()) == groups.to_body().encode() != first
    groups.delete("g")
    assert finish(groups.encoding()) == groups.to_body().encode()
    finish(groups.replacing(SubscriptionGroupWrapper(data_version=DataVersion(counter=99))))
    assert finish(groups.encoding()) == groups.to_body().encode()
