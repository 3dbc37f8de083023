"""Settings that change while the broker runs: what counts at once, what waits, what is refused."""

from __future__ import annotations

import dataclasses
import threading
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.broker.config import BrokerRole, LiveConfig, load_broker_config
from rmq.broker.config.live import UpdateOutcome
from rmq.broker.config.schema import SCHEMA
from rmq.broker.config.store import STORE_KEYS
from rmq.errors import ConfigError, RefusedError, StorageError
from rmq.remoting.bodies import DataVersion, parse_properties
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.settings.schema import Effect
from rmq.store.config import FlushMode
from rmq.store.core import FIXED_SETTINGS
from tests.remoting.bodies.captures import captured_bodies

if TYPE_CHECKING:
    from pathlib import Path

    from rmq.broker.config import BrokerConfig

START_MS = 1_700_000_000_000


def live_of(folder: Path, text: str = "") -> LiveConfig:
    path = folder / "broker.conf"
    path.write_text(text)
    return LiveConfig(load_broker_config(path, {}, {"HOME": str(folder)}), now_ms=START_MS)


def restarted(live: LiveConfig, folder: Path) -> BrokerConfig:
    path = live.current.config_path
    assert path is not None
    return load_broker_config(path, {}, {"HOME": str(folder)}).config


def test_what_can_take_effect_does_so_at_once_and_is_told(tmp_path: Path) -> None:
    live = live_of(tmp_path)
    before = live.current
    seen: list[tuple[BrokerConfig, BrokerConfig]] = []
    live.subscribe(lambda old, new: seen.append((old, new)))
    outcome = live.update({"brokerPermission": "4", "fileReservedTime": "24"}, now_ms=START_MS + 1)
    assert outcome.applied == ("brokerPermission", "fileReservedTime")
    assert (outcome.needs_restart, outcome.ignored) == ((), ())
    assert live.current.permission == 4
    assert live.current.store.reserved_hours == 24
    assert before.permission == 6, "whoever holds the old settings holds them unchanged"
    assert seen == [(before, live.current)]
    assert live.version == DataVersion(timestamp=START_MS + 1, counter=1)
    assert live.pending_restart == frozenset()


def test_the_store_can_take_whatever_takes_effect_now() -> None:
    now = {each.name for each in STORE_KEYS if each.setting.effect is Effect.NOW}
    assert now
    assert now.isdisjoint(FIXED_SETTINGS)
    keys = {each.name: each.setting.key for each in STORE_KEYS}
    assert FIXED_SETTINGS.items() <= keys.items()


def test_what_needs_a_restart_is_kept_for_it_and_is_told(tmp_path: Path) -> None:
    live = live_of(tmp_path)
    before = live.current
    seen: list[BrokerConfig] = []
    live.subscribe(lambda _, new: seen.append(new))
    outcome = live.update({"listenPort": "30911"}, now_ms=START_MS)
    assert outcome.needs_restart == ("listenPort",)
    assert outcome.applied == ()
    assert live.current is before
    assert seen == []
    assert live.pending_restart == {"listenPort"}
    assert live.as_properties()["listenPort"] == "30911"
    assert live.as_properties()["haListenPort"] == "30912"
    live.persist()
    assert restarted(live, tmp_path).listen_port == 30_911


def test_a_later_update_does_not_bring_in_what_waits_for_a_restart(tmp_path: Path) -> None:
    live = live_of(tmp_path)
    live.update({"listenPort": "30911"}, now_ms=START_MS)
    live.update({"traceOn": "false"}, now_ms=START_MS)
    assert (live.current.listen_port, live.current.trace_on) == (10_911, False)


def test_a_file_that_was_edited_is_reloaded_as_far_as_possible(tmp_path: Path) -> None:
    live = live_of(tmp_path)
    live.update({"listenPort": "30911"}, now_ms=START_MS)
    path = live.current.config_path
    assert path is not None
    text = "traceOn=false\nserverSocketBacklog=7\n"
    path.write_text(text)
    loaded = load_broker_config(path, {}, {"HOME": str(tmp_path)})
    outcome = live.reload(loaded.values, now_ms=START_MS)
    assert outcome.applied == ("traceOn", "listenPort")
    assert outcome.needs_restart == ("serverSocketBacklog",)
    assert not live.current.trace_on
    assert live.current.server_backlog == 1024
    # Nothing is left to be saved: the file is as it was written.
    live.persist()
    assert path.read_text() == text
    assert live.reload(loaded.values, now_ms=START_MS) == UpdateOutcome(
        applied=(), needs_restart=(), ignored=()
    )


def test_a_subscription_of_the_process_outlives_the_parts_of_a_broker(tmp_path: Path) -> None:
    live = live_of(tmp_path)
    seen: list[str] = []
    live.subscribe(lambda _, new: seen.append(new.log_level), is_lasting=True)
    live.subscribe(lambda _, new: seen.append("a part that is gone"))
    live.forget_subscribers()
    live.update({"logLevel": "debug"}, now_ms=START_MS)
    assert seen == ["debug"]


def test_what_is_set_back_no_longer_waits(tmp_path: Path) -> None:
    live = live_of(tmp_path)
    live.update({"listenPort": "30911"}, now_ms=START_MS)
    outcome = live.update({"listenPort": "10911"}, now_ms=START_MS)
    assert outcome.needs_restart == ()
    assert outcome.applied == ("listenPort",)
    assert live.pending_restart == frozenset()


def test_what_means_nothing_here_is_told_and_kept(tmp_path: Path) -> None:
    live = live_of(tmp_path)
    outcome = live.update({"sendMessageThreadPoolNums": "99"}, now_ms=START_MS)
    assert outcome.ignored == ("sendMessageThreadPoolNums",)
    assert live.as_properties()["sendMessageThreadPoolNums"] == "99"
    assert live.pending_restart == frozenset()


def test_kinds_of_master_change_at_once_and_slaves_after_a_restart(tmp_path: Path) -> None:
    live = live_of(tmp_path)
    assert live.update({"brokerRole": "SYNC_MASTER"}, now_ms=START_MS).applied == ("brokerRole",)
    assert live.current.role == BrokerRole.SYNC_MASTER
    outcome = live.update({"brokerRole": "SLAVE", "brokerId": "1"}, now_ms=START_MS)
    assert outcome.needs_restart == ("brokerRole", "brokerId")
    assert (live.current.role, live.current.broker_id) == (BrokerRole.SYNC_MASTER, 0)
    live.persist()
    slave = restarted(live, tmp_path)
    assert (slave.role, slave.broker_id) == (BrokerRole.SLAVE, 1)
    outcome = live.update({"brokerRole": "ASYNC_MASTER"}, now_ms=START_MS)
    assert outcome.applied == ("brokerRole",)
    assert live.current.role.value == "ASYNC_MASTER"
    assert live.pending_restart == frozenset()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param(
            {"traceOn": "false", "brokerPermision": "4"},
            "brokerPermision: is not a known setting; did you mean brokerPermission?",
            id="an unknown key",
        ),
        pytest.param(
            {"traceOn": "false", "fileReservedTime": "x"},
            "fileReservedTime: 'x' is not a whole number",
            id="a value that is none",
        ),
        pytest.param(
            {"traceOn": "false", "brokerRole": "SLAVE"},
            "brokerId: must be above 0 for a SLAVE",
            id="values that contradict",
        ),
        pytest.param(
            {"traceOn": "false", "brokerId": "2"},
            "brokerId: is 0, whatever is set",
            id="a value that would not count",
        ),
        pytest.param(
            {"traceOn": "false", "enableLmq": "true"},
            "enableLmq: true: light message queues are not supported",
            id="what there is not",
        ),
    ],
)
def test_an_update_with_a_mistake_changes_nothing(
    changes: dict[str, str], reason: str, tmp_path: Path
) -> None:
    live = live_of(tmp_path)
    before, shown = live.current, live.as_properties()
    with pytest.raises(ConfigError) as caught:
        live.update(changes, now_ms=START_MS + 1)
    assert str(caught.value) == reason
    assert live.current is before
    assert live.as_properties() == shown
    assert live.version == DataVersion(timestamp=START_MS, counter=0)
    live.persist()
    assert (tmp_path / "broker.conf").read_text() == ""


@pytest.mark.parametrize("key", ["configBlackList", "brokerConfigPath", "traceOn"])
def test_keys_on_the_black_list_are_refused_as_java_does(key: str, tmp_path: Path) -> None:
    live = live_of(tmp_path, "configBlackList=configBlackList;brokerConfigPath;traceOn")
    with pytest.raises(RefusedError) as caught:
        live.update({"regionId": "x", key: "x"}, now_ms=START_MS)
    assert caught.value.code == ResponseCode.NO_PERMISSION
    assert caught.value.remark == "Can not update config in black list."
    assert live.current.region_id == "DefaultRegion"


def test_the_disk_can_be_waited_for_from_now_on_but_not_with_a_pool_in_use(tmp_path: Path) -> None:
    live = live_of(tmp_path)
    assert live.update({"flushDiskType": "SYNC_FLUSH"}, now_ms=START_MS).applied
    assert live.current.store.flush_mode is FlushMode.SYNC
    pooled = live_of(tmp_path, "transientStorePoolEnable=true")
    with pytest.raises(ConfigError, match="flushDiskType: cannot be changed while"):
        pooled.update({"flushDiskType": "SYNC_FLUSH"}, now_ms=START_MS)
    # Both values for the next start: the pool in use does not see them.
    outcome = pooled.update({"transientStorePoolEnable": "false"}, now_ms=START_MS)
    assert outcome.needs_restart == ("transientStorePoolEnable",)


def test_a_slave_that_is_to_become_a_master_with_a_pool_gets_it_with_the_restart(
    tmp_path: Path,
) -> None:
    live = live_of(tmp_path, "brokerRole=SLAVE\nbrokerId=1\ntransientStorePoolEnable=true")
    outcome = live.update({"brokerRole": "ASYNC_MASTER", "brokerId": "0"}, now_ms=START_MS)
    assert outcome.needs_restart == ("brokerRole", "brokerId")
    live.persist()
    assert restarted(live, tmp_path).store.transient_pool_enabled


def test_the_captured_update_of_a_stock_tool_is_taken(tmp_path: Path) -> None:
    bodies = [
        body.data
        for body in captured_bodies()
        if body.code is RequestCode.UPDATE_BROKER_CONFIG and not body.is_response
    ]
    assert bodies
    for body in bodies:
        live = live_of(tmp_path)
        changes = parse_properties(body)
        outcome = live.update(changes, now_ms=START_MS)
        assert {*outcome.applied, *outcome.needs_restart} == set(changes)
        live.persist()
        assert live.as_properties().items() >= changes.items()


# --- kept in the file ----------------------------------------------------------------------------


def test_only_changed_values_are_written_and_what_was_edited_meanwhile_is_kept(
    tmp_path: Path,
) -> None:
    live = live_of(tmp_path, "# ours\nfileReservedTime = 48\n")
    path = tmp_path / "broker.conf"
    path.write_text("# ours\nfileReservedTime = 48\nregionId=edited\n")
    live.update({"fileReservedTime": " 24 ", "brokerPermission": "4"}, now_ms=START_MS)
    live.persist()
    assert path.read_text() == (
        "# ours\nfileReservedTime = 24\nregionId=edited\nbrokerPermission=4\n"
    )
    assert (tmp_path / "broker.conf.bak").read_text() == (
        "# ours\nfileReservedTime = 48\nregionId=edited\n"
    )


def test_what_is_written_once_is_not_written_over_later_edits(tmp_path: Path) -> None:
    live = live_of(tmp_path)
    live.update({"fileReservedTime": "24"}, now_ms=START_MS)
    live.persist()
    (tmp_path / "broker.conf").write_text("fileReservedTime=96\n")
    live.update({"traceOn": "false"}, now_ms=START_MS)
    live.persist()
    assert (tmp_path / "broker.conf").read_text() == "fileReservedTime=96\ntraceOn=false\n"


def test_a_broker_without_a_file_keeps_its_changes_in_the_store(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path)}
    live = LiveConfig(load_broker_config(None, {}, environ), now_ms=START_MS)
    live.persist()
    assert not (tmp_path / "store").exists(), "without a change there is nothing to keep"
    live.update({"fileReservedTime": "24"}, now_ms=START_MS)
    live.persist()
    assert load_broker_config(None, {}, environ).config.store.reserved_hours == 24


def test_a_broker_that_is_to_keep_nothing_writes_nothing(tmp_path: Path) -> None:
    loaded = load_broker_config(None, {}, {"HOME": str(tmp_path)})
    config = dataclasses.replace(loaded.config, config_path=None)
    live = LiveConfig(dataclasses.replace(loaded, config=config), now_ms=START_MS)
    live.update({"fileReservedTime": "24"}, now_ms=START_MS)
    live.persist()
    assert live.current.store.reserved_hours == 24
    assert list(tmp_path.iterdir()) == []


def test_a_write_that_failed_is_made_up_by_the_next(tmp_path: Path) -> None:
    live = live_of(tmp_path)
    path = tmp_path / "broker.conf"
    path.unlink()
    path.mkdir()
    live.update({"fileReservedTime": "24"}, now_ms=START_MS)
    with pytest.raises(StorageError):
        live.persist()
    assert live.current.store.reserved_hours == 24, "the value counts nevertheless"
    path.rmdir()
    live.persist()
    assert "fileReservedTime=24\n" in path.read_text()


def test_a_secret_is_kept_but_not_shown(tmp_path: Path) -> None:
    live = live_of(tmp_path)
    live.update({"tls.server.keyPassword": "hunter2"}, now_ms=START_MS)
    assert live.as_properties()["tls.server.keyPassword"] == "***"
    live.persist()
    assert (tmp_path / "broker.conf").read_text() == "tls.server.keyPassword=hunter2\n"


def test_updates_while_the_file_is_written_from_threads_all_end_up_in_it(tmp_path: Path) -> None:
    live = live_of(tmp_path)
    writers: list[threading.Thread] = []
    for hours in range(1, 31):
        live.update({"fileReservedTime": str(hours), "slaveTimeout": str(hours)}, now_ms=START_MS)
        writers.append(threading.Thread(target=live.persist))
        writers[-1].start()
    for writer in writers:
        writer.join()
    config = restarted(live, tmp_path)
    assert (config.store.reserved_hours, config.slave_timeout_ms) == (30, 30)


def test_all_settings_are_shown_under_the_keys_of_java(tmp_path: Path) -> None:
    live = live_of(tmp_path, "brokerName=broker-a")
    shown = live.as_properties()
    assert shown["brokerName"] == "broker-a"
    assert shown["adminBrokerThreadPoolNums"] == "16"
    of_the_machine = {"brokerIP1", "brokerIP2", "brokerName", "storePathRootDir"}
    assert of_the_machine <= set(shown)
    unset = {setting.key for setting in SCHEMA if setting.default is None} - of_the_machine
    assert set(SCHEMA.settings) - set(shown) == unset


CHANGES = st.lists(
    st.dictionaries(
        st.sampled_from(
            ["fileReservedTime", "listenPort", "traceOn", "brokerRole", "brokerId", "slaveTimeout"]
        ),
        st.sampled_from(
            ["0", "1", "2", "true", "false", "SLAVE", "SYNC_MASTER", "ASYNC_MASTER", "30911"]
        ),
        min_size=1,
        max_size=3,
    ),
    max_size=6,
)


@given(updates=CHANGES)
def test_after_any_updates_a_restart_gives_what_was_shown(
    updates: list[dict[str, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("live")
    live = live_of(folder)
    started = live.current
    for changes in updates:
        try:
            live.update(changes, now_ms=START_MS)
        except ConfigError:
            continue
    live.persist()
    path = live.current.config_path
    loaded = load_broker_config(path, {}, {"HOME": str(folder)})
    assert SCHEMA.as_properties(loaded.values) == live.as_properties()
    assert live.current.listen_port == started.listen_port
    assert live.current.role is not BrokerRole.SLAVE
    pending = live.pending_restart
    assert (loaded.config == live.current) == (not pending)
    for key in pending:
        assert SCHEMA[key].effect is Effect.RESTART or key == "brokerRole"
