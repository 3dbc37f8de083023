"""Settings that a request must not change, and secrets that no answer, file or log shows."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import pytest

from rmq.broker.config import load_broker_config
from rmq.broker.config.schema import SCHEMA
from rmq.broker.handlers.settings import SettingHandlers
from rmq.remoting.bodies import format_properties, parse_properties
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.dispatch import HandlerTable
from tests.broker.broker_frames import frame
from tests.broker.broker_kit import part_broker
from tests.remoting.server_kit import serving

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.broker_kit import PartBroker
    from tests.remoting.server_kit import Frame

SECRET: Final = "sesame, open the door"
FILE: Final = f"haSecret={SECRET}\n"


def settings_file(folder: Path) -> Path:
    path = folder / "broker.conf"
    path.touch(0o600)
    path.write_text(FILE)
    return path


async def update(broker: PartBroker, text: str) -> Frame:
    return await broker.call(RequestCode.UPDATE_BROKER_CONFIG, body=text.encode())


@pytest.mark.parametrize(
    "change",
    [
        "storePathRootDir=/data/elsewhere",
        "storePathCommitLog=/data/elsewhere",
        "haSecret=",
        "haSecret=another one, long enough",
        "haAllowedAddresses=0.0.0.0/0",
        "haTlsMode=permissive",
        "haTlsMasterName=stranger",
        "haDialect=stock",
        "haMasterAddress=10.9.9.9:10912",
        "tls.server.mode=disabled",
        "tls.server.certPath=/data/other.pem",
        "tls.server.keyPassword=other",
        "tls.server.authClient=true",
        "tls.client.authServer=true",
        "useTLS=true",
        "bindAddress=10.9.9.9",
        "brokerIP1=10.9.9.9",
        "brokerIP2=10.9.9.9",
        "listenPort=20911",
        "metricsPort=9999",
        "namesrvAddr=10.9.9.9:9876",
        "storeFileAccess=umask",
        "credentialsFile=/data/other.yml",
    ],
)
async def test_a_request_does_not_change_what_would_give_the_broker_away(
    change: str, tmp_path: Path
) -> None:
    path = settings_file(tmp_path)
    async with part_broker(tmp_path, config_path=path) as broker:
        before = broker.live.as_properties()
        answer = await update(broker, f"fileReservedTime=24\n{change}")
        assert answer.code == ResponseCode.NO_PERMISSION
        assert answer.remark is not None
        assert answer.remark.startswith(f"nothing was changed: {change.partition('=')[0]}")
        assert "settings file" in answer.remark
        assert broker.live.as_properties() == before
        assert path.read_text() == FILE
        assert not path.with_name("broker.conf.bak").exists()


def test_what_is_guarded_are_paths_addresses_ports_secrets_and_encryption() -> None:
    """A new key of one of these kinds is guarded, or is named here with the reason why not."""
    words = ("path", "addr", "port", "secret", "password", "tls", "brokerip", "credential", "acl")
    not_guarded = {
        setting.key
        for setting in SCHEMA
        if any(word in setting.key.lower() for word in words)
        and not setting.needs_admin
        and setting.effect.value != "ignored"
    }
    assert not_guarded == set()


async def test_an_administrator_changes_them(tmp_path: Path) -> None:
    path = settings_file(tmp_path)
    async with part_broker(tmp_path, config_path=path) as broker:
        table = HandlerTable()
        SettingHandlers(broker.live, now_ms=broker.clock, is_admin=lambda _: True).add_to(table)
        async with serving(table) as server:
            answer = await server.attach().request(
                frame(RequestCode.UPDATE_BROKER_CONFIG, body=b"listenPort=20911")
            )
        assert answer.code == ResponseCode.SUCCESS
        assert load_broker_config(path, {}, {"HOME": str(tmp_path)}).config.listen_port == 20911


async def test_all_settings_may_come_back_as_they_were_shown(tmp_path: Path) -> None:
    path = settings_file(tmp_path)
    async with part_broker(tmp_path, config_path=path) as broker:
        body = (await broker.call(RequestCode.GET_BROKER_CONFIG)).body
        assert SECRET.encode() not in body
        shown = parse_properties(body)
        del shown["configBlackList"]
        shown.pop("rocketmqHome", None)
        shown["fileReservedTime"] = "24"
        answer = await update(broker, format_properties(shown).decode())
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        assert "***" not in path.read_text()
    again = load_broker_config(path, {}, {"HOME": str(tmp_path)}).config
    assert (again.ha_secret, again.store.reserved_hours) == (SECRET, 24)


async def test_a_changed_secret_is_not_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with part_broker(tmp_path, config_path=settings_file(tmp_path)) as broker:
        table = HandlerTable()
        SettingHandlers(broker.live, now_ms=broker.clock, is_admin=lambda _: True).add_to(table)
        async with serving(table) as server:
            answer = await server.attach().request(
                frame(RequestCode.UPDATE_BROKER_CONFIG, body=b"haSecret=quite another secret")
            )
        assert answer.code == ResponseCode.SUCCESS
    assert "haSecret" in caplog.text
    assert "quite another secret" not in caplog.text
