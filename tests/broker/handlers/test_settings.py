"""Settings of a running broker: requests 25 and 26."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from rmq.broker.config import load_broker_config
from rmq.remoting.bodies import parse_properties
from rmq.remoting.codes import RequestCode, ResponseCode
from tests.broker.broker_frames import bodies_of, ext, frame, pull, send
from tests.broker.broker_kit import part_broker

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.broker_kit import PartBroker
    from tests.remoting.server_kit import Frame

FILE = """\
# The broker of the tests.
brokerClusterName = TestCluster

flushDiskType=ASYNC_FLUSH
# Not too long.
fileReservedTime=48
"""


def settings_file(folder: Path) -> Path:
    path = folder / "broker.conf"
    path.write_text(FILE)
    return path


async def update(broker: PartBroker, text: str) -> Frame:
    return await broker.call(RequestCode.UPDATE_BROKER_CONFIG, body=text.encode())


async def show(broker: PartBroker) -> dict[str, str]:
    answer = await broker.call(RequestCode.GET_BROKER_CONFIG)
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
    return parse_properties(answer.body)


# --- 26 GET_BROKER_CONFIG ------------------------------------------------------------------------


async def test_all_settings_are_shown_with_their_version(tmp_path: Path) -> None:
    async with part_broker(tmp_path, config_path=settings_file(tmp_path)) as broker:
        answer = await broker.call(RequestCode.GET_BROKER_CONFIG)
        assert json.loads(ext(answer)["version"]) == {"counter": 0, "timestamp": broker.clock()}
        shown = await show(broker)
        assert shown["brokerClusterName"] == "TestCluster"
        assert shown["fileReservedTime"] == "48"
        assert shown["brokerPermission"] == "6"
        assert len(shown) > 150


async def test_what_was_changed_is_shown_with_the_next_version(tmp_path: Path) -> None:
    async with part_broker(tmp_path, config_path=settings_file(tmp_path)) as broker:
        broker.clock.ms += 5
        await update(broker, "fileReservedTime=24")
        answer = await broker.call(RequestCode.GET_BROKER_CONFIG)
        assert json.loads(ext(answer)["version"]) == {"counter": 1, "timestamp": broker.clock()}
        assert (await show(broker))["fileReservedTime"] == "24"


# --- 25 UPDATE_BROKER_CONFIG ---------------------------------------------------------------------


async def test_a_change_is_in_force_and_in_the_file_when_it_is_answered(tmp_path: Path) -> None:
    path = settings_file(tmp_path)
    async with part_broker(tmp_path, config_path=path) as broker:
        broker.put(b"message")
        answer = await update(broker, "fileReservedTime=24\nbrokerPermission=2\n")
        assert (answer.code, answer.remark, answer.fields) == (ResponseCode.SUCCESS, None, None)
        assert (await broker.ask(pull())).code == ResponseCode.NO_PERMISSION
        assert broker.core.config.reserved_hours == 24
        text = path.read_text()
        assert text.startswith(FILE.replace("=48", "=24"))
        assert "brokerPermission=2" in text
        assert path.with_name("broker.conf.bak").read_text() == FILE
        after_restart = load_broker_config(path, {}, {"HOME": str(tmp_path)}).config
        assert (after_restart.permission, after_restart.store.reserved_hours) == (2, 24)


async def test_a_change_counts_for_requests_at_once(tmp_path: Path) -> None:
    async with part_broker(tmp_path, config_path=settings_file(tmp_path)) as broker:
        broker.put_many(20)
        await update(broker, "maxTransferCountOnMessageInMemory=3")
        assert len(bodies_of(await broker.ask(pull()))) == 3
        await update(broker, "autoCreateTopicEnable=false")
        assert (await broker.ask(send(topic="New"))).code == ResponseCode.TOPIC_NOT_EXIST
        await update(broker, "autoCreateSubscriptionGroup=false")
        answer = await broker.ask(pull(group="new"))
        assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


async def test_a_change_that_waits_for_a_restart_says_so(tmp_path: Path) -> None:
    path = settings_file(tmp_path)
    async with part_broker(tmp_path, config_path=path) as broker:
        answer = await update(broker, "serverSocketBacklog=7\nfileReservedTime=24")
        assert (answer.code, answer.remark) == (
            ResponseCode.SUCCESS,
            "takes effect after a restart: serverSocketBacklog",
        )
        assert broker.live.current.server_backlog == 1024
        assert broker.live.current.store.reserved_hours == 24
        assert (await show(broker))["serverSocketBacklog"] == "7"
        assert load_broker_config(path, {}, {"HOME": str(tmp_path)}).config.server_backlog == 7


async def test_a_setting_without_a_meaning_here_is_kept_and_says_so(tmp_path: Path) -> None:
    path = settings_file(tmp_path)
    async with part_broker(tmp_path, config_path=path) as broker:
        answer = await update(broker, "sendMessageThreadPoolNums=8")
        assert answer.code == ResponseCode.SUCCESS
        assert answer.remark == "has no meaning here: sendMessageThreadPoolNums"
        assert "sendMessageThreadPoolNums=8" in path.read_text()
        assert (await show(broker))["sendMessageThreadPoolNums"] == "8"


@pytest.mark.parametrize("key", ["configBlackList", "brokerConfigPath", "rocketmqHome"])
async def test_what_is_on_the_black_list_is_refused(key: str, tmp_path: Path) -> None:
    path = settings_file(tmp_path)
    async with part_broker(tmp_path, config_path=path) as broker:
        answer = await update(broker, f"fileReservedTime=24\n{key}=x")
        assert (answer.code, answer.remark) == (
            ResponseCode.NO_PERMISSION,
            "Can not update config in black list.",
        )
        assert broker.live.current.store.reserved_hours == 48
        assert path.read_text() == FILE


async def test_the_black_list_of_the_file_is_kept_to(tmp_path: Path) -> None:
    path = settings_file(tmp_path)
    path.write_text(FILE + "configBlackList=fileReservedTime;deleteWhen\n")
    async with part_broker(tmp_path, config_path=path) as broker:
        for key in ("deleteWhen", "configBlackList", "brokerConfigPath", "rocketmqHome"):
            assert (await update(broker, f"{key}=05")).code == ResponseCode.NO_PERMISSION


@pytest.mark.parametrize(
    ("text", "named"),
    [
        pytest.param("fileReservedTme=24", "fileReservedTme", id="unknown key"),
        pytest.param("fileReservedTime=soon", "fileReservedTime", id="no number"),
        pytest.param("fileReservedTime=-1", "fileReservedTime", id="below its range"),
        pytest.param("brokerPermission=2\nflushDiskType=NO_FLUSH", "flushDiskType", id="no choice"),
        pytest.param("autoCreateTopicEnable=maybe", "autoCreateTopicEnable", id="no truth value"),
        pytest.param("deleteWhen=25", "deleteWhen", id="no hour"),
    ],
)
async def test_an_update_with_something_wrong_is_refused_as_a_whole(
    text: str, named: str, tmp_path: Path
) -> None:
    path = settings_file(tmp_path)
    async with part_broker(tmp_path, config_path=path) as broker:
        before = broker.live.current
        answer = await update(broker, text)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark is not None
        assert named in answer.remark
        assert broker.live.current is before
        assert path.read_text() == FILE


async def test_a_misspelt_key_is_told_the_nearest_one(tmp_path: Path) -> None:
    async with part_broker(tmp_path, config_path=settings_file(tmp_path)) as broker:
        answer = await update(broker, "fileReservedTme=24")
        assert answer.remark is not None
        assert "fileReservedTime" in answer.remark


async def test_a_body_that_is_no_text_is_refused(tmp_path: Path) -> None:
    async with part_broker(tmp_path, config_path=settings_file(tmp_path)) as broker:
        answer = await broker.call(RequestCode.UPDATE_BROKER_CONFIG, body=b"a=\xff\xfe")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark is not None
        assert "UTF-8" in answer.remark


async def test_an_update_without_a_body_changes_nothing(tmp_path: Path) -> None:
    path = settings_file(tmp_path)
    async with part_broker(tmp_path, config_path=path) as broker:
        answer = await broker.call(RequestCode.UPDATE_BROKER_CONFIG)
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
        assert path.read_text() == FILE


async def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    path = settings_file(tmp_path)
    async with part_broker(tmp_path, config_path=path) as broker:
        (tmp_path / "broker.conf.tmp").mkdir()
        answer = await update(broker, "fileReservedTime=24")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark is not None
        assert answer.remark.startswith("in force until the next restart, but not saved: ")
        assert broker.live.current.store.reserved_hours == 24
        assert path.read_text() == FILE


async def test_without_a_file_of_the_operators_changes_are_kept_in_the_store(
    tmp_path: Path,
) -> None:
    async with part_broker(tmp_path) as broker:
        answer = await update(broker, "fileReservedTime=24")
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
    kept = {"storePathRootDir": str(tmp_path)}
    assert load_broker_config(None, kept, {}).config.store.reserved_hours == 24


async def test_updates_that_come_together_are_all_kept(tmp_path: Path) -> None:
    path = settings_file(tmp_path)
    async with part_broker(tmp_path, config_path=path) as broker:
        peers = [broker.attach(f"10.0.0.9:{n}") for n in range(8)]
        keys = [
            "fileReservedTime",
            "deleteWhen",
            "maxMessageSize",
            "diskMaxUsedSpaceRatio",
            "maxTransferCountOnMessageInDisk",
            "maxTransferCountOnMessageInMemory",
            "defaultQueryMaxNum",
            "maxMsgsNumBatch",
        ]
        for peer, key in zip(peers, keys, strict=True):
            await peer.send(frame(RequestCode.UPDATE_BROKER_CONFIG, None, f"{key}=20".encode()))
        for peer in peers:
            assert (await peer.read()).code == ResponseCode.SUCCESS
        text = path.read_text()
        assert all(f"{key}=20\n" in text for key in keys)
