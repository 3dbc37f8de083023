"""Every generated settings file is read by rmq itself, and says what its place demands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml

from rmq.broker.config import load_broker_config
from rmq.cli.generate.broker_conf import next_name
from rmq.nameserver.config import load_nameserver_config
from tests.cli.generate.generate_kit import generate
from tests.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

OPS = ROOT / "ops"
BROKERS = {
    "single/broker-a": ("broker-a", "ASYNC_MASTER", 0, 0),
    "two-masters/broker-a": ("broker-a", "ASYNC_MASTER", 0, 0),
    "two-masters/broker-b": ("broker-b", "ASYNC_MASTER", 0, 0),
    "async-pair/broker-a-master": ("broker-a", "ASYNC_MASTER", 0, 1),
    "async-pair/broker-a-slave": ("broker-a", "SLAVE", 1, 1),
    "sync-pair/broker-a-master": ("broker-a", "SYNC_MASTER", 0, 1),
    "sync-pair/broker-a-slave": ("broker-a", "SLAVE", 1, 1),
}
"""Name, role, number and expected slaves of each broker."""


def test_there_is_a_file_for_each_broker_of_each_topology() -> None:
    folder = OPS / "broker-conf"
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*.conf")}
    assert found == {*(f"{name}.conf" for name in BROKERS), "namesrv.conf"}


@pytest.mark.parametrize("file", BROKERS)
def test_a_broker_takes_its_file_without_a_warning(file: str) -> None:
    loaded = load_broker_config(OPS / "broker-conf" / f"{file}.conf", {}, {})
    config = loaded.config
    assert loaded.warnings == ()
    assert BROKERS[file] == (
        config.broker_name,
        config.role.value,
        config.broker_id,
        config.expected_slaves,
    )
    assert len(config.namesrv_addrs) == 3
    assert str(config.store.root) == f"/var/lib/rmq/{config.broker_name}/store"
    assert loaded.values["metricsPort"] == 5557


@pytest.mark.parametrize("kind", ["compose", "k8s"])
def test_containers_share_settings_without_a_role(kind: str, tmp_path: Path) -> None:
    if kind == "compose":
        path = OPS / "compose" / "broker.conf"
    else:
        path = tmp_path / "broker.conf"
        path.write_text(config_map(OPS / "k8s" / "rmq.yaml", "rmq-broker-a", "broker.conf"))
    loaded = load_broker_config(path, {}, {})
    assert loaded.warnings == ()
    assert not {"brokerRole", "brokerId"} & {
        line.partition("=")[0] for line in path.read_text().splitlines()
    }
    assert len(loaded.config.namesrv_addrs) == 3
    assert str(loaded.config.store.root) == "/var/lib/rmq/store"


def config_map(path: Path, name: str, key: str) -> str:
    """Return what a ConfigMap of a manifest has."""
    (found,) = [
        document
        for document in yaml.safe_load_all(path.read_text())
        if (document["kind"], document["metadata"]["name"]) == ("ConfigMap", name)
    ]
    text: str = found["data"][key]
    return text


def test_nameservers_take_their_files(tmp_path: Path) -> None:
    in_map = tmp_path / "namesrv.conf"
    in_map.write_text(config_map(OPS / "k8s" / "rmq.yaml", "rmq-namesrv", "namesrv.conf"))
    for path in (OPS / "broker-conf" / "namesrv.conf", OPS / "compose" / "namesrv.conf", in_map):
        loaded = load_nameserver_config(path, environ={})
        assert loaded.warnings == ()
        assert loaded.config.listen_port == 9876
        assert str(loaded.config.kv_path).startswith("/var/lib/rmq/")


@pytest.mark.parametrize(
    ("name", "following"),
    [("broker-a", "broker-b"), ("broker-z", "broker-z-2"), ("orders", "orders-2"), ("a", "a-2")],
)
def test_the_second_master_has_the_next_name(name: str, following: str) -> None:
    assert next_name(name) == following


def test_names_ports_and_places_can_be_chosen(tmp_path: Path) -> None:
    files = generate(
        tmp_path,
        *("broker-conf", "--topology", "two-masters", "--name", "orders", "--port", "20911"),
        *("-n", "10.0.0.5:9876", "--cluster", "Main", "--store", "/data/q"),
    )
    assert set(files) == {"two-masters/orders.conf", "two-masters/orders-2.conf", "namesrv.conf"}
    config = load_broker_config(tmp_path / "two-masters" / "orders-2.conf", {}, {}).config
    assert (config.broker_name, config.cluster_name) == ("orders-2", "Main")
    assert (config.listen_port, str(config.store.root)) == (20911, "/data/q")
    assert config.namesrv_addrs == ("10.0.0.5:9876",)
