"""A broker signs its own calls as a file says, also after the file has changed."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from rmq.access.watch import POLL_S
from rmq.broker.config import load_broker_config
from rmq.broker.own_credentials import OwnCredentials
from rmq.errors import ConfigError
from rmq.remoting.client import RemotingClient
from rmq.remoting.signing import Credentials
from tests.broker.broker_kit import live_broker, live_config

if TYPE_CHECKING:
    from pathlib import Path


def write(path: Path, text: str) -> None:
    """Replace a file, so that it is another one even within one tick of the file system."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


def test_a_changed_file_counts_at_the_next_check(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rmq")
    path = tmp_path / "tools.yml"
    write(path, "accessKey: a\nsecretKey: first-secret\n")
    client = RemotingClient()
    own = OwnCredentials(client, path)
    own.load()
    first = Credentials(access_key="a", secret_key="first-secret")
    assert client.credentials == first
    write(path, "accessKey: a\n")
    own.poll()
    own.poll()
    assert client.credentials == first
    assert caplog.text.count("goes on signing as before: ") == 1
    write(path, "accessKey: a\nsecretKey: second-secret\n")
    own.poll()
    assert client.credentials == Credentials(access_key="a", secret_key="second-secret")
    path.unlink()
    own.poll()
    assert client.credentials == Credentials(access_key="a", secret_key="second-secret")
    assert "-secret" not in caplog.text


def test_without_a_file_nothing_is_signed() -> None:
    client = RemotingClient()
    own = OwnCredentials(client, None)
    own.load()
    own.poll()
    assert client.credentials is None


def test_a_file_that_others_may_read_is_warned_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, conf = tmp_path / "tools.yml", tmp_path / "broker.conf"
    (tmp_path / "store").mkdir(0o700)
    conf.write_text(f"credentialsFile={path}\nstorePathRootDir={tmp_path / 'store'}\n")
    write(path, "accessKey: a\nsecretKey: b\n")
    path.chmod(0o600)
    assert load_broker_config(conf, {}, {}).warnings == ()
    own = OwnCredentials(RemotingClient(), path)
    own.load()
    path.chmod(0o640)
    warning = (
        f"{path} (credentialsFile) is secret, and other users of this machine may read or change it"
        f" (mode 640): chmod 600 {path}"
    )
    assert load_broker_config(conf, {}, {}).warnings == (warning,)
    assert "chmod" not in caplog.text
    # A file that takes its place while the broker runs is looked at, too, and once.
    write(path, "accessKey: a\nsecretKey: c\n")
    path.chmod(0o640)
    own.poll()
    own.poll()
    assert caplog.text.count(warning) == 1


async def test_a_running_broker_reads_its_file_again(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    path = tmp_path / "tools.yml"
    write(path, "accessKey: a\nsecretKey: first\n")
    live = live_config(tmp_path / "store", {"credentialsFile": str(path)})
    async with live_broker(live) as served:
        client = served.broker._client
        assert client.credentials == Credentials(access_key="a", secret_key="first")
        write(path, "accessKey: a\nsecretKey: second\n")
        while client.credentials != Credentials(access_key="a", secret_key="second"):
            mock_clock.jump(POLL_S)
            await trio.testing.wait_all_tasks_blocked()


async def test_a_broker_does_not_start_with_a_file_that_cannot_be_used(tmp_path: Path) -> None:
    settings = {"credentialsFile": str(tmp_path / "none.yml")}
    with pytest.RaisesGroup(
        pytest.RaisesExc(ConfigError, match=r"none\.yml: does not exist"),
        allow_unwrapped=True,
        flatten_subgroups=True,
    ):
        async with live_broker(live_config(tmp_path / "store", settings)):
            raise AssertionError("it has started")


def test_the_file_of_mqadmin_is_found_beside_the_settings_or_in_the_home(tmp_path: Path) -> None:
    conf = tmp_path / "etc" / "broker.conf"
    conf.parent.mkdir()
    conf.write_text("brokerName=a\n")
    environ = {"ROCKETMQ_HOME": str(tmp_path / "home")}
    assert load_broker_config(conf, {}, environ).config.credentials_file is None
    in_home = tmp_path / "home" / "conf" / "tools.yml"
    in_home.parent.mkdir(parents=True)
    write(in_home, "")
    assert load_broker_config(conf, {}, environ).config.credentials_file == in_home
    beside = conf.with_name("tools.yml")
    write(beside, "")
    assert load_broker_config(conf, {}, environ).config.credentials_file == beside
    conf.write_text(f"credentialsFile={os.devnull}\n")
    loaded = load_broker_config(conf, {}, environ)
    assert str(loaded.config.credentials_file) == os.devnull


def test_access_control_without_credentials_is_warned_about(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("aclEnable=true\n")
    (warning,) = load_broker_config(conf, {}, {}).warnings
    assert "aclEnable=true without credentialsFile" in warning
    write(tmp_path / "tools.yml", "")
    (tmp_path / "tools.yml").chmod(0o600)
    assert load_broker_config(conf, {}, {}).warnings == ()
