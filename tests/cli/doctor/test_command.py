"""`rmq doctor` against files, and against a cluster."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Any

from rmq.cli.common.exit_codes import ExitCode
from rmq.cli.doctor.checks import State
from rmq.cli.doctor.cluster import broker_checks, nameserver_checks
from rmq.client.core.admin.brokers import RuntimeInfo
from rmq.client.core.routes import Address
from rmq.errors import RequestTimeoutError
from rmq.remoting.bodies import BrokerData, ClusterInfo
from tests.cli.admin_kit import registered
from tests.nameserver.kit import saying

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.cli.admin_kit import Rmq
    from tests.cli.client_kit import Processes


def checks_of(output: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Return what was found, by what it is about."""
    return {(each["about"], each["what"]): each for each in json.loads(output)["checks"]}


def test_a_settings_file_and_its_place_are_checked(
    rmq: Rmq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NAMESRV_ADDR")
    file = tmp_path / "broker.conf"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        file.write_text(
            f"brokerIP1=203.0.113.9\nlistenPort={port}\nbindAddress=127.0.0.1\n"
            f"brokerName=a\nstorePathRootDir={tmp_path}/store\n"
        )
        _, output, errors = rmq("doctor", "-c", str(file), "--json")
    assert errors == ""
    found = checks_of(output)
    assert found[str(file), "announced address"]["state"] == "warning"
    assert "brokerIP1" in found[str(file), "announced address"]["todo"]
    assert found[str(file), "disk"]["found"].endswith("to write and flush 4096 bytes")
    assert not (tmp_path / "store").exists()
    ports = [each for each in json.loads(output)["checks"] if each["what"] == "ports"]
    assert [each["state"] for each in ports] == ["failed", "ok"]
    assert f"sport = :{port}" in ports[0]["todo"]
    file.write_text("brokerNam=a\n")
    code, output, _ = rmq("doctor", "-c", str(file))
    assert code == ExitCode.FAILURE
    assert "did you mean brokerName?" in output
    assert "note: -n HOST:PORT checks a cluster, too" in output


def test_a_cluster_is_checked_with_its_silent_brokers(rmq: Rmq, processes: Processes) -> None:
    with registered(processes, saying("broker-z", 1, "127.0.0.1:1", cluster="DefaultCluster")):
        code, output, _ = rmq("doctor", "--timeout", "1", "--json")
    assert code == ExitCode.FAILURE
    found = checks_of(output)
    assert found[processes.nameserver, "nameserver"]["state"] == "ok"
    assert found["broker-a", "master"]["state"] == "ok"
    assert found["broker-a:0", "disk"]["state"] in ("ok", "warning", "failed")
    assert found["broker-z:1", "broker"]["state"] == "failed"
    assert found["broker-z", "master"]["found"] == "none is registered"
    # The broker of these tests is alone.
    replication = found["broker-a", "replication"]
    assert "expectedSlaves=0" in " ".join(
        each["todo"] or "" for each in json.loads(output)["checks"]
    )
    assert replication["about"] == "broker-a"


def test_nameservers_that_disagree_and_mixed_versions_are_told() -> None:
    def info(*addresses: str) -> ClusterInfo:
        data = BrokerData(broker_name="a", broker_addrs=dict(enumerate(addresses)))
        return ClusterInfo(broker_addr_table={"a": data})

    silent = {"n3:1": RequestTimeoutError("n3:1", "GET", 1.0)}
    checks = list(nameserver_checks({"n1:1": info("b:1", "b:2"), "n2:1": info("b:1")}, silent))
    assert [(check.about, check.state) for check in checks] == [
        ("n3:1", State.BAD),
        ("n1:1", State.OK),
        ("n2:1", State.ODD),
    ]
    assert checks[2].found == "lists 1 broker, and not b:2"
    brokers = [Address("a", 0, "b:1"), Address("a", 1, "b:2")]
    infos = {
        brokers[0]: RuntimeInfo(
            table={"brokerVersionDesc": "V4_9_8", "commitLogDiskRatio": "0.95"}
        ),
        brokers[1]: RuntimeInfo(table={"brokerVersionDesc": "V4_9_4", "commitLogDiskRatio": "0.8"}),
    }
    states = [(each.what, each.state) for each in broker_checks(brokers, infos, {})]
    assert states == [
        ("disk", State.BAD),
        ("disk", State.ODD),
        ("versions", State.ODD),
        ("master", State.OK),
    ]
