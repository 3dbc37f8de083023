"""The settings that `rmq dev` writes for its two brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rmq.broker.config import BrokerRole, load_broker_config
from rmq.cli.dev.pair import write_pair
from rmq.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

HOST = "127.0.0.1"


def write(data: Path, mode: str = "sync") -> tuple[str, str]:
    """Write both and return the folders of master and slave."""
    master, slave = write_pair(data, HOST, 20911, "127.0.0.1:9876", mode)
    return master.folder.name, slave.folder.name


def change_role(conf: Path, before: str, after: str) -> None:
    """Do what a promotion leaves in a file."""
    text = conf.read_text()
    assert f"brokerRole={before}\n" in text
    conf.write_text(text.replace(f"brokerRole={before}\n", f"brokerRole={after}\n"))


@pytest.mark.parametrize(
    ("mode", "role"), [("sync", BrokerRole.SYNC_MASTER), ("async", BrokerRole.ASYNC_MASTER)]
)
def test_brokers_take_the_settings_without_a_warning(
    tmp_path: Path, mode: str, role: BrokerRole
) -> None:
    pair = write_pair(tmp_path, HOST, 20911, "127.0.0.1:9876", mode)
    loaded = [load_broker_config(broker.conf, {}, {}) for broker in pair]
    assert [warning for each in loaded for warning in each.warnings] == []
    master, slave = (each.config for each in loaded)
    assert (master.role, master.broker_id, master.address) == (role, 0, "127.0.0.1:20911")
    assert (slave.role, slave.broker_id, slave.address) == (BrokerRole.SLAVE, 1, "127.0.0.1:20921")
    assert master.broker_name == slave.broker_name
    assert master.store.root != slave.store.root
    assert [broker.role for broker in pair] == ["master", "slave"]


def test_the_first_is_master_until_a_promotion_and_the_second_after_it(tmp_path: Path) -> None:
    assert write(tmp_path) == ("broker-1", "broker-2")
    assert write(tmp_path) == ("broker-1", "broker-2")
    for folder in ("broker-1", "broker-2"):
        (tmp_path / folder / "store").mkdir()
    change_role(tmp_path / "broker-1" / "broker.conf", "SYNC_MASTER", "SLAVE")
    change_role(tmp_path / "broker-2" / "broker.conf", "SLAVE", "ASYNC_MASTER")
    assert write(tmp_path) == ("broker-2", "broker-1")
    assert write(tmp_path, "async") == ("broker-2", "broker-1")


def test_a_broker_without_data_is_not_made_master_of_one_that_has_some(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "broker-1" / "store").mkdir()
    change_role(tmp_path / "broker-1" / "broker.conf", "SYNC_MASTER", "SLAVE")
    (tmp_path / "broker-2" / "broker.conf").unlink()
    assert write(tmp_path) == ("broker-1", "broker-2")


def test_settings_that_cannot_be_written_are_named(tmp_path: Path) -> None:
    (tmp_path / "broker-2").write_text("in the way")
    with pytest.raises(ConfigError, match=r"--data: .*broker-2.*: File exists"):
        write(tmp_path)


def test_kept_settings_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "broker-1" / "broker.conf").mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"--data: .*broker-1.*: Is a directory"):
        write(tmp_path)
