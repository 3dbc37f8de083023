"""A broker signs its own calls as a file says, also after the file has changed."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from rmq.broker.config import load_broker_config
from rmq.broker.own_credentials import CHECK_S, OwnCredentials
from rmq.errors import ConfigError
from rmq.remoting.client import RemotingClient
from rmq.remoting.signing import Credentials
from tests.broker.broker_kit import live_broker, live_config

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def write(path: Path, text: str) -> None:
    """Replace a file, so that it is another one even within one tick of the file system."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


async def until(condition: Callable[[], bool]) -> None:
    """Let threads and tasks run until something is so."""
    while not condition():
        await trio.lowlevel.checkpoint()


async def test_a_changed_file_counts_at_the_next_check(
    tmp_path: Path, mock_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rmq")
    path = tmp_path / "tools.yml"
    write(path, "accessKey: a\nsecretKey: first-secret\n")
    client = RemotingClient()
    own = OwnCredentials(client, path)
    await own.load()
    first = Credentials(access_key="a", secret_key="first-secret")
    assert client.credentials == first
    async with trio.open_nursery() as nursery:
        nursery.start_soon(own.run)
        await trio.testing.wait_all_tasks_blocked()
        write(path, "accessKey: a\n")
        mock_clock.jump(CHECK_S)
        await until(lambda: "goes on signing as before" in caplog.text)
        assert client.credentials == first
        await trio.testing.wait_all_tasks_blocked()
        write(path, "accessKey: a\nsecretKey: second-secret\n")
        mock_clock.jump(CHECK_S)
        await until(lambda: client.credentials != first)
        nursery.cancel_scope.cancel()
    assert client.credentials == Credentials(access_key="a", secret_key="second-secret")
    assert "secret-" not in caplog.text
    assert "-secret" not in caplog.text
    assert caplog.text.count("goes on signing as before") == 1


async def test_without_a_file_nothing_is_signed() -> None:
    client = RemotingClient()
    own = OwnCredentials(client, None)
    await own.load()
    await own.run()
    assert client.credentials is None


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
