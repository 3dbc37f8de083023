"""What a broker shows of its replication."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq.broker.metrics.replication import COUNTERS
from rmq.broker.metrics.slaves import SHOWN_MAX
from rmq.ha.protocol.master import LinkCounters
from rmq.ha.slave_status import SlaveState
from rmq.remoting.bodies import HaStatusBody
from rmq.store.core import Refusal
from tests.broker.metrics.metrics_kit import (
    collected,
    master_status,
    metrics_of,
    ones,
    pages_of,
    shown,
    slave,
    slave_status,
    statistics,
    value,
)

if TYPE_CHECKING:
    from rmq.remoting.bodies import HaSlave

ONE = {"slave": "orders:1", "address": "192.0.2.1:10911"}


# --- masters ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "labels", "expected"),
    [
        ("rocketmq_broker_epoch", {}, 7),
        ("rocketmq_commitlog_min_offset_bytes", {}, 100),
        ("rocketmq_commitlog_max_offset_bytes", {}, 10_000),
        ("rocketmq_commitlog_flushed_offset_bytes", {}, 9_500),
        ("rocketmq_commitlog_dispatched_offset_bytes", {}, 9_900),
        ("rocketmq_commitlog_replicated_offset_bytes", {}, 9_000),
        ("rocketmq_commitlog_visible_offset_bytes", {}, 10_000),
        ("rocketmq_storage_flush_behind_bytes", {}, 500),
        ("rocketmq_storage_dispatch_behind_bytes", {}, 100),
        ("rocketmq_ha_mode", {"mode": "sync"}, 1),
        ("rocketmq_ha_mode", {"mode": "async"}, 0),
        ("rocketmq_ha_mode_offset_bytes", {}, 512),
        ("rocketmq_ha_needed_slaves", {}, 1),
        ("rocketmq_ha_minimum_slaves", {}, 1),
        ("rocketmq_ha_expected_slaves", {}, 2),
        ("rocketmq_ha_in_sync_slaves", {}, 1),
        ("rocketmq_ha_connections", {}, 1),
        ("rocketmq_ha_sync_waiting_requests", {}, 3),
        ("rocketmq_ha_unprotected_bytes", {}, 1_000),
        ("rocketmq_ha_unlisted_slaves", {}, 0),
        ("rocketmq_ha_slave_connected", ONE, 1),
        ("rocketmq_ha_slave_in_sync", ONE, 1),
        ("rocketmq_ha_replication_lag_bytes", ONE, 1_000),
        ("rocketmq_ha_replication_lag_seconds", ONE, 0.25),
        ("rocketmq_ha_slave_ack_offset_bytes", ONE, 9_000),
        ("rocketmq_ha_slave_flushed_offset_bytes", ONE, 8_000),
        ("rocketmq_ha_slave_silence_seconds", ONE, 0.04),
    ],
)
def test_a_master_shows_what_its_status_says(
    name: str, labels: dict[str, str], expected: float
) -> None:
    assert value(collected(metrics_of(master_status())), name, **labels) == expected


def test_a_master_shows_nothing_that_only_a_slave_has() -> None:
    found = collected(metrics_of(master_status()))
    assert ones(found, "rocketmq_ha_slave_state", "state") == []
    for name in ("master_connected", "lag_behind_master_bytes", "master_silence_seconds"):
        assert value(found, f"rocketmq_ha_{name}") is None


def test_a_slave_that_has_gone_stays_in_sight_with_its_growing_lag() -> None:
    gone = slave(connected=False, in_sync=False, lag_bytes=4_000, lag_ms=90_000)
    found = collected(metrics_of(master_status(slaves=(gone,), replicated=-1)))
    assert value(found, "rocketmq_ha_slave_connected", **ONE) == 0
    assert value(found, "rocketmq_ha_slave_in_sync", **ONE) == 0
    assert value(found, "rocketmq_ha_replication_lag_seconds", **ONE) == 90
    assert value(found, "rocketmq_ha_in_sync_slaves") == 0
    assert value(found, "rocketmq_ha_connections") == 0
    # It has not forgotten what it holds.
    assert value(found, "rocketmq_ha_unprotected_bytes") == 1_000


def test_without_any_slave_the_whole_log_is_unprotected() -> None:
    found = collected(metrics_of(master_status(slaves=(), replicated=-1)))
    assert value(found, "rocketmq_ha_unprotected_bytes") == 9_900


def test_how_many_slaves_are_meant_is_shown_where_the_operator_has_said_so() -> None:
    shown = [
        value(
            collected(metrics_of(master_status(expected=expected))), "rocketmq_ha_expected_slaves"
        )
        for expected in (-1, 0, 2)
    ]
    assert shown == [None, 0, 2]


def test_what_is_not_known_has_no_sample() -> None:
    new = slave(in_sync=False, appended=-1, flushed=-1, lag_ms=-1, heard_ms_ago=-1)
    unknown = {"replicated": -1, "visible": -1, "expected": -1}
    found = collected(metrics_of(master_status(slaves=(new,), **unknown)))
    assert value(found, "rocketmq_ha_slave_connected", **ONE) == 1
    for name in (
        "rocketmq_ha_slave_ack_offset_bytes",
        "rocketmq_ha_slave_flushed_offset_bytes",
        "rocketmq_ha_replication_lag_seconds",
        "rocketmq_ha_slave_silence_seconds",
    ):
        assert value(found, name, **ONE) is None
    assert value(found, "rocketmq_commitlog_replicated_offset_bytes") is None
    assert value(found, "rocketmq_commitlog_visible_offset_bytes") is None
    assert value(found, "rocketmq_ha_expected_slaves") is None
    assert min(found.values()) >= 0


def test_two_connections_of_one_slave_count_once() -> None:
    twice = tuple(
        slave(address=f"192.0.2.1:{port}", native=False, identity="stock 192.0.2.1")
        for port in (40_001, 40_002)
    )
    found = collected(metrics_of(master_status(slaves=twice)))
    assert value(found, "rocketmq_ha_in_sync_slaves") == 1
    assert value(found, "rocketmq_ha_connections") == 1
    assert value(found, "rocketmq_ha_unlisted_slaves") == 0


# --- slaves -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("rocketmq_ha_master_connected", 1),
        ("rocketmq_ha_lag_behind_master_bytes", 1_500),
        ("rocketmq_ha_lag_behind_master_seconds", 0.3),
        ("rocketmq_ha_master_silence_seconds", 0.02),
        ("rocketmq_ha_master_epoch", 7),
        ("rocketmq_ha_in_sync_with_master", 1),
        ("rocketmq_ha_connects_total", 2),
        ("rocketmq_ha_received_bytes_total", 8_400),
        ("rocketmq_commitlog_max_offset_bytes", 8_500),
    ],
)
def test_a_slave_shows_what_its_status_says(name: str, expected: float) -> None:
    assert value(collected(metrics_of(slave_status())), name) == expected


def test_a_slave_shows_nothing_that_only_a_master_has() -> None:
    found = collected(metrics_of(slave_status()))
    assert ones(found, "rocketmq_ha_mode", "mode") == []
    for name in ("in_sync_slaves", "needed_slaves", "connections", "unprotected_bytes"):
        assert value(found, f"rocketmq_ha_{name}") is None


@pytest.mark.parametrize("state", SlaveState, ids=lambda state: state.name.lower())
def test_a_slave_is_in_one_state(state: SlaveState) -> None:
    found = collected(metrics_of(slave_status(state.value)))
    assert ones(found, "rocketmq_ha_slave_state", "state") == [state.name.lower()]
    is_live = state in (SlaveState.CATCHING_UP, SlaveState.STREAMING)
    assert value(found, "rocketmq_ha_master_connected") == is_live


def test_a_broker_between_two_roles_says_so() -> None:
    between = HaStatusBody(role="SLAVE", mode="SLAVE", state="changing role")
    found = collected(metrics_of(between))
    assert ones(found, "rocketmq_ha_slave_state", "state") == ["changing_role"]


def test_a_slave_that_never_heard_its_master_claims_no_lag() -> None:
    unheard = slave_status("connecting", end=0, lag_bytes=0, lag_ms=-1, heard_ms_ago=-1)
    found = collected(metrics_of(unheard))
    for name in ("lag_behind_master_bytes", "lag_behind_master_seconds", "master_silence_seconds"):
        assert value(found, f"rocketmq_ha_{name}") is None
    assert value(found, "rocketmq_ha_master_connected") == 0


# --- every broker -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "role", "modes"),
    [
        pytest.param(master_status(), "sync_master", ["sync"], id="sync"),
        pytest.param(master_status(mode="ASYNC_MASTER"), "async_master", ["async"], id="async"),
        pytest.param(slave_status(), "slave", [], id="slave"),
    ],
)
def test_role_and_mode_are_sets_of_states(
    status: HaStatusBody, role: str, modes: list[str]
) -> None:
    found = collected(metrics_of(status))
    assert ones(found, "rocketmq_broker_role", "role") == [role]
    assert ones(found, "rocketmq_ha_mode", "mode") == modes


@pytest.mark.parametrize("refusal", [None, *Refusal], ids=str)
def test_why_messages_are_refused_is_a_set_of_states(refusal: Refusal | None) -> None:
    found = collected(metrics_of(master_status(), statistics(refusal)))
    expected = [] if refusal is None else [refusal.name.lower()]
    assert ones(found, "rocketmq_broker_refusal", "reason") == expected


def test_every_counter_of_a_master_is_there_from_the_start() -> None:
    assert {field.name for field in dataclasses.fields(LinkCounters)} <= COUNTERS.keys()
    found = collected(metrics_of(master_status()))
    counters = {name for name, _ in found if name.endswith("_total")}
    assert counters == {
        "rocketmq_ha_links_accepted_total",
        "rocketmq_ha_links_closed_total",
        "rocketmq_ha_unreplicated_sends_total",
    }
    assert all(found[series] == 0 for series in found if series[0] in counters)


@pytest.mark.parametrize(
    ("key", "name", "labels"),
    [
        ("accepted", "links_accepted", {}),
        ("refused", "links_closed", {"reason": "refused"}),
        ("forged", "links_closed", {"reason": "forged"}),
        ("diverged", "links_closed", {"reason": "diverged"}),
        ("silent", "links_closed", {"reason": "silent"}),
        ("reseeded", "links_closed", {"reason": "reseeded"}),
        ("timeouts", "unreplicated_sends", {"status": "FLUSH_SLAVE_TIMEOUT"}),
        ("unavailable", "unreplicated_sends", {"status": "SLAVE_NOT_AVAILABLE"}),
    ],
)
def test_counters_are_shown_by_reason(key: str, name: str, labels: dict[str, str]) -> None:
    counters = {**dataclasses.asdict(LinkCounters()), key: 5}
    found = collected(metrics_of(master_status(counters=counters)))
    assert value(found, f"rocketmq_ha_{name}_total", **labels) == 5
    assert sum(number for series, number in found.items() if series[0].endswith("_total")) == 5


def test_a_counter_that_nobody_named_makes_no_series() -> None:
    found = collected(metrics_of(master_status(counters={"made_up": 1})))
    assert not any(name.endswith("_total") for name, _ in found)


anything = st.text(max_size=100)
slaves = st.builds(
    slave,
    st.integers(0, 3),
    name=anything,
    address=anything | st.just("192.0.2.1:5000"),
    native=st.booleans(),
    connected=st.booleans(),
    in_sync=st.booleans(),
    appended=st.integers(-1, 2**40),
    lag_ms=st.integers(-1, 10**9),
)


@settings(max_examples=50)
@given(st.lists(slaves, max_size=100))
def test_whatever_slaves_call_themselves_the_scrape_can_be_read(crowd: list[HaSlave]) -> None:
    found = shown(pages_of(metrics_of(master_status(slaves=tuple(crowd)))))
    labels = {labels for name, labels in found if name == "rocketmq_ha_slave_connected"}
    assert len(labels) <= SHOWN_MAX
    unlisted = value(found, "rocketmq_ha_unlisted_slaves")
    assert unlisted is not None
    assert unlisted >= 0
