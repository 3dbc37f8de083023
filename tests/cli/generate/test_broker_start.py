"""How a broker in a container gets its settings: a shared file, and the role from its volume."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from rmq.broker.config import LiveConfig, load_broker_config
from rmq.broker.config.service import BrokerRole
from tests.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = ROOT / "ops" / "compose" / "broker-start.sh"


class Pod:
    """A volume, and settings that are shared with other pods."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.data.mkdir()
        self.shared = folder / "shared.conf"
        self.shared.write_text((ROOT / "ops" / "compose" / "broker.conf").read_text())

    def start(self, **environ: str) -> LiveConfig:
        """Run the script; return the settings that the broker would have."""
        given = {
            "PATH": "/usr/bin:/bin",
            "RMQ_SHARED": str(self.shared),
            "RMQ_SECRET": str(self.folder / "secret.conf"),
            "RMQ_DATA": str(self.data),
            "RMQ_PROGRAM": "echo",
            **environ,
        }
        done = subprocess.run(["sh", SCRIPT], env=given, capture_output=True, text=True, check=True)
        own = self.data / "broker.conf"
        assert (done.stdout, done.stderr) == (f"broker -c {own}\n", "")
        assert own.stat().st_mode & 0o077 == 0
        assert [path.name for path in self.data.iterdir()] == ["broker.conf"]
        loaded = load_broker_config(own, {}, {})
        assert loaded.warnings == ()
        return LiveConfig(loaded, now_ms=0)


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    return Pod(tmp_path)


@pytest.mark.parametrize(
    ("environ", "role", "number"),
    [
        ({"RMQ_NUMBER": "0"}, "SYNC_MASTER", 0),
        ({"RMQ_NUMBER": "0", "RMQ_ROLE": "ASYNC_MASTER"}, "ASYNC_MASTER", 0),
        ({"RMQ_NUMBER": "1"}, "SLAVE", 1),
        ({"HOSTNAME": "rmq-broker-a-0"}, "SYNC_MASTER", 0),
        ({"HOSTNAME": "rmq-broker-a-2"}, "SLAVE", 2),
    ],
)
def test_the_first_start_is_by_the_number(
    pod: Pod, environ: dict[str, str], role: str, number: int
) -> None:
    config = pod.start(**environ).current
    assert (config.role.value, config.broker_id) == (role, number)


def test_a_role_that_a_promotion_gave_is_kept_and_other_settings_are_read_again(pod: Pod) -> None:
    live = pod.start(RMQ_NUMBER="1")
    live.assume_role(BrokerRole.ASYNC_MASTER, 0, now_ms=1)
    live.persist()
    # The folder of the volume may hold what a replaced file leaves.
    for path in pod.data.iterdir():
        if path.name != "broker.conf":
            path.unlink()
    pod.shared.write_text(
        pod.shared.read_text().replace("fileReservedTime=72", "fileReservedTime=9")
    )
    config = pod.start(RMQ_NUMBER="1", RMQ_ADDRESS="10.1.2.3").current
    assert (config.role, config.broker_id) == (BrokerRole.ASYNC_MASTER, 0)
    assert (config.broker_ip1, config.broker_ip2) == ("10.1.2.3", "10.1.2.3")
    loaded = load_broker_config(pod.data / "broker.conf", {}, {})
    assert loaded.values["fileReservedTime"] == 9


def test_a_secret_comes_from_a_file_of_its_own(pod: Pod) -> None:
    (pod.folder / "secret.conf").write_text("haSecret=correct horse battery")
    assert pod.start(RMQ_NUMBER="0").current.ha_secret == "correct horse battery"
