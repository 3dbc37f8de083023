"""Codes about the KV config and the nameserver's own settings, over a connection."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from rmq.nameserver.config import LiveConfig
from rmq.nameserver.handlers import ConfigHandlers
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.dispatch import HandlerTable
from rmq.remoting.headers import (
    DeleteKvConfigRequest,
    GetKvConfigRequest,
    GetKvListByNamespaceRequest,
    PutKvConfigRequest,
)
from rmq.settings.settings_file import NEW_FILE_TEXT
from tests.nameserver.kit import Running, config_for, frame, running
from tests.remoting.server_kit import raw_frame, serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.remoting.server_kit import Frame, Peer

code = RequestCode


@pytest.fixture
async def nameserver(tmp_path: Path) -> AsyncIterator[Running]:
    async with running(config_for(tmp_path)) as served:
        yield served


async def put(peer: Peer, namespace: str, key: str, value: str) -> Frame:
    header = PutKvConfigRequest(namespace=namespace, key=key, value=value)
    return await peer.request(frame(code.PUT_KV_CONFIG, header))


async def get(peer: Peer, namespace: str, key: str) -> Frame:
    header = GetKvConfigRequest(namespace=namespace, key=key)
    return await peer.request(frame(code.GET_KV_CONFIG, header))


async def delete(peer: Peer, namespace: str, key: str) -> Frame:
    header = DeleteKvConfigRequest(namespace=namespace, key=key)
    return await peer.request(frame(code.DELETE_KV_CONFIG, header))


async def values_of(peer: Peer, namespace: str) -> Frame:
    header = GetKvListByNamespaceRequest(namespace=namespace)
    return await peer.request(frame(code.GET_KVLIST_BY_NAMESPACE, header))


# ---- KV config -----------------------------------------------------------------------------------


async def test_a_value_is_put_read_and_deleted(nameserver: Running) -> None:
    peer = nameserver.attach()
    answer = await put(peer, "n", "k", "v ☺")
    assert (answer.code, answer.fields, answer.remark) == (ResponseCode.SUCCESS, None, None)
    assert (await get(peer, "n", "k")).fields == {"value": "v ☺"}
    assert (await values_of(peer, "n")).body == '{"table":{"k":"v ☺"}}'.encode()
    assert (await delete(peer, "n", "k")).code == ResponseCode.SUCCESS
    assert (await values_of(peer, "n")).body == b'{"table":{}}'


async def test_what_is_not_there_is_told_with_the_remarks_of_the_original(
    nameserver: Running,
) -> None:
    peer = nameserver.attach()
    answer = await get(peer, "n", "k")
    assert (answer.code, answer.fields) == (ResponseCode.QUERY_NOT_FOUND, {})
    assert answer.remark == "No config item, Namespace: n Key: k"
    answer = await values_of(peer, "n")
    assert (answer.code, answer.fields, answer.body) == (ResponseCode.QUERY_NOT_FOUND, None, b"")
    assert answer.remark == "No config item, Namespace: n"
    assert (await delete(peer, "n", "k")).code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    "fields", [b'{"key":"k","value":"v"}', b'{"namespace":"n","value":"v"}', b"null"]
)
async def test_a_put_without_namespace_or_key_is_refused(
    nameserver: Running, fields: bytes
) -> None:
    answer = await nameserver.attach().request(raw_frame(b'{"code":100,"extFields":%b}' % fields))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark


async def test_a_change_is_on_disk_when_it_is_answered_and_there_after_a_restart(
    tmp_path: Path,
) -> None:
    config = config_for(tmp_path)
    async with running(config) as served:
        peer = served.attach()
        await put(peer, "n", "k", "v")
        assert config.kv_path.read_text() == '{"configTable":{"n":{"k":"v"}}}'
        await put(peer, "n", "l", "w")
        await delete(peer, "n", "k")
        assert config.kv_path.read_text() == '{"configTable":{"n":{"l":"w"}}}'
    async with running(config) as served:
        peer = served.attach()
        assert (await get(peer, "n", "l")).fields == {"value": "w"}
        assert (await get(peer, "n", "k")).code == ResponseCode.QUERY_NOT_FOUND
        assert served.nameserver.statistics().kv_values == 1


async def test_many_changes_at_once_are_all_answered_and_the_last_one_stays(
    nameserver: Running, tmp_path: Path
) -> None:
    peer = nameserver.attach()
    for number in range(500):
        header = PutKvConfigRequest(namespace="n", key="k", value=str(number))
        await peer.send(frame(code.PUT_KV_CONFIG, header, opaque=number))
    answers = await peer.read_many(500)
    assert [answer.opaque for answer in answers] == list(range(500))
    assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}
    assert (tmp_path / "kvConfig.json").read_text() == '{"configTable":{"n":{"k":"499"}}}'


async def test_a_change_that_cannot_be_written_is_refused_and_does_not_count(
    tmp_path: Path,
) -> None:
    config = config_for(tmp_path, kvConfigPath=str(tmp_path / "folder" / "kv.json"))
    async with running(config) as served:
        (tmp_path / "folder").write_text("a file where the folder should be")
        peer = served.attach()
        answer = await put(peer, "n", "k", "v")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark is not None
        assert answer.remark.endswith("nothing was changed")
        assert (await get(peer, "n", "k")).code == ResponseCode.QUERY_NOT_FOUND


async def test_a_peer_that_leaves_before_its_answer_loses_nothing_but_the_answer(
    nameserver: Running,
) -> None:
    peer = nameserver.attach()
    header = PutKvConfigRequest(namespace="n", key="k", value="v")
    await peer.send(frame(code.PUT_KV_CONFIG, header))
    await peer.aclose()
    other = nameserver.attach()
    await put(other, "n", "l", "w")
    assert (await get(other, "n", "l")).fields == {"value": "w"}


# ---- settings ------------------------------------------------------------------------------------


async def update(peer: Peer, text: str) -> Frame:
    return await peer.request(frame(code.UPDATE_NAMESRV_CONFIG, body=text.encode()))


async def settings_of(peer: Peer) -> dict[str, str]:
    answer = await peer.request(frame(code.GET_NAMESRV_CONFIG))
    assert (answer.code, answer.fields) == (ResponseCode.SUCCESS, None)
    return dict(line.split("=", 1) for line in answer.body.decode().splitlines())


async def test_settings_are_told_as_properties(nameserver: Running, tmp_path: Path) -> None:
    settings = await settings_of(nameserver.attach())
    assert settings["orderMessageEnable"] == "false"
    assert settings["serverWorkerThreads"] == "8"
    assert settings["kvConfigPath"] == str(tmp_path / "kvConfig.json")


async def test_an_update_counts_and_is_written(nameserver: Running, tmp_path: Path) -> None:
    peer = nameserver.attach()
    answer = await update(peer, "orderMessageEnable=true\n")
    assert (answer.code, answer.fields, answer.remark) == (ResponseCode.SUCCESS, None, None)
    assert (await settings_of(peer))["orderMessageEnable"] == "true"
    assert (tmp_path / "namesrv.properties").read_text() == (
        NEW_FILE_TEXT + "orderMessageEnable=true\n"
    )
    assert nameserver.nameserver.config.current.order_topics is True


async def test_an_update_that_needs_a_restart_says_so(
    nameserver: Running, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    answer = await update(nameserver.attach(), "serverSocketBacklog=1\n")
    assert (answer.code, answer.remark) == (
        ResponseCode.SUCCESS,
        "effective after a restart: serverSocketBacklog",
    )
    assert "serverSocketBacklog" in caplog.text


async def test_an_update_without_a_body_changes_nothing(
    nameserver: Running, tmp_path: Path
) -> None:
    assert (await update(nameserver.attach(), "")).code == ResponseCode.SUCCESS
    assert not (tmp_path / "namesrv.properties").exists()


@pytest.mark.parametrize(
    "change",
    [
        "bindAddress=10.0.0.1",
        "listenPort=1",
        "tls.server.mode=disabled",
        "tls.server.certPath=/data/other.pem",
        "tls.server.keyPassword=other",
        "tls.test.mode.enable=false",
    ],
)
async def test_guarded_settings_are_not_changed_by_requests(
    change: str, nameserver: Running, tmp_path: Path
) -> None:
    peer = nameserver.attach()
    before = await settings_of(peer)
    answer = await update(peer, f"orderMessageEnable=true\n{change}\n")
    assert answer.code == ResponseCode.NO_PERMISSION
    assert answer.remark is not None
    assert change.partition("=")[0] in answer.remark
    assert await settings_of(peer) == before
    assert not (tmp_path / "namesrv.properties").exists()


async def test_all_settings_may_come_back_as_they_were_shown(tmp_path: Path) -> None:
    secret = "not for strangers"
    config = config_for(tmp_path, **{"tls.server.keyPassword": secret})
    async with running(config) as served:
        peer = served.attach()
        shown = await settings_of(peer)
        assert secret not in str(shown)
        listed = ("configStorePath", "kvConfigPath", "configBlackList", "rocketmqHome")
        text = "".join(f"{key}={value}\n" for key, value in shown.items() if key not in listed)
        answer = await update(peer, text)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        assert "***" not in (tmp_path / "namesrv.properties").read_text()
        values = served.nameserver.config.current.values
        assert values["tls.server.keyPassword"] == secret


async def test_an_administrator_changes_guarded_settings(tmp_path: Path) -> None:
    live = LiveConfig(config_for(tmp_path))
    table = HandlerTable()
    ConfigHandlers(live, is_admin=lambda _: True).add_to(table)
    async with serving(table) as server:
        answer = await server.attach().request(
            frame(code.UPDATE_NAMESRV_CONFIG, body=b"listenPort=1")
        )
        assert answer.code == ResponseCode.SUCCESS
        assert live.current.values["listenPort"] == 1


@pytest.mark.parametrize(
    ("text", "response_code", "remark"),
    [
        pytest.param(
            "kvConfigPath=x",
            ResponseCode.NO_PERMISSION,
            "Can not update config in black list.",
            id="black list",
        ),
        pytest.param(
            "orderMessageEnable=x",
            ResponseCode.SYSTEM_ERROR,
            "nothing was updated: orderMessageEnable: 'x' is neither true nor false",
            id="value",
        ),
        pytest.param(
            "orderMesageEnable=true",
            ResponseCode.SYSTEM_ERROR,
            "nothing was updated: orderMesageEnable: is not a known setting;"
            " did you mean orderMessageEnable?",
            id="key",
        ),
        pytest.param(
            "a=\\u1",
            ResponseCode.SYSTEM_ERROR,
            "string2Properties error: properties: line 1: \\u without four hexadecimal digits",
            id="text",
        ),
    ],
)
async def test_an_update_that_cannot_be_is_refused_without_a_traceback(
    nameserver: Running,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
    text: str,
    response_code: ResponseCode,
    remark: str,
) -> None:
    answer = await update(nameserver.attach(), text)
    assert (answer.code, answer.remark) == (response_code, remark)
    assert not any(record.exc_info for record in caplog.records)
    assert not (tmp_path / "namesrv.properties").exists()


async def test_an_update_that_cannot_be_written_is_refused_and_does_not_count(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_text("")
    config = config_for(tmp_path, configStorePath=str(tmp_path / "file" / "conf"))
    async with running(config) as served:
        peer = served.attach()
        answer = await update(peer, "orderMessageEnable=true")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark is not None
        assert answer.remark.startswith("nothing was updated: cannot write")
        assert (await settings_of(peer))["orderMessageEnable"] == "false"
