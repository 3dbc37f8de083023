"""`namesrv.conf`: what it may say, what is refused, and how it changes at run time."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmq.errors import ConfigError, RefusedError, StorageError
from rmq.nameserver.config import OWN_KEYS, SCHEMA, LiveConfig, load_nameserver_config
from rmq.remoting.codes import ResponseCode
from rmq.remoting.tls_config import TlsMode, TlsServerConfig
from rmq.remoting.tls_settings import tls_server_settings
from tests.nameserver.kit import config_for

# The fields of RocketMQ 4.9.8 NamesrvConfig and NettyServerConfig, and their defaults. Paths and
# what comes from the environment are tested on their own.
JAVA_DEFAULTS = {
    "productEnvName": "center",
    "clusterTest": "false",
    "orderMessageEnable": "false",
    "configBlackList": "configBlackList;configStorePath;kvConfigPath",
    "listenPort": "9876",
    "serverWorkerThreads": "8",
    "serverCallbackExecutorThreads": "0",
    "serverSelectorThreads": "3",
    "serverOnewaySemaphoreValue": "256",
    "serverAsyncSemaphoreValue": "64",
    "serverChannelMaxIdleTimeSeconds": "120",
    "serverSocketSndBufSize": "0",
    "serverSocketRcvBufSize": "0",
    "writeBufferHighWaterMark": "0",
    "writeBufferLowWaterMark": "0",
    "serverSocketBacklog": "1024",
    "serverPooledByteBufAllocatorEnable": "true",
    "useEpollNativeSelector": "false",
}
PATHS = {"rocketmqHome", "kvConfigPath", "configStorePath"}
TLS = {setting.key for setting in tls_server_settings("nameserver")}


def write(folder: Path, text: str) -> Path:
    path = folder / "namesrv.conf"
    path.write_text(text)
    return path


# ---- loading -------------------------------------------------------------------------------------


def test_every_key_of_the_original_is_known_with_its_default() -> None:
    config = load_nameserver_config(environ={"HOME": "here"}).config
    shown = config.as_properties()
    assert {key: shown[key] for key in JAVA_DEFAULTS} == JAVA_DEFAULTS
    assert {setting.key for setting in SCHEMA} == JAVA_DEFAULTS.keys() | PATHS | TLS | OWN_KEYS


def test_defaults_are_those_of_the_original_in_code_too() -> None:
    config = load_nameserver_config(environ={"HOME": "here", "ROCKETMQ_HOME": "mq"}).config
    assert config.kv_path == Path("here/namesrv/kvConfig.json")
    assert config.file_path == Path("here/namesrv/namesrv.properties")
    assert config.as_properties()["rocketmqHome"] == "mq"
    assert (config.server.host, config.server.port) == ("0.0.0.0", 9876)
    assert (config.server.backlog, config.server.channel.idle_timeout_s) == (1024, 120)
    assert (config.scan_interval_s, config.broker_expiry_s) == (10, 120)
    assert config.order_topics is False


def test_a_file_is_read_with_the_command_line_above_it(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "# a nameserver\nlistenPort = 9999\norderMessageEnable=true\nkvConfigPath=k\n"
        "scanNotActiveBrokerInterval=500\nbrokerExpiredTime=1500\n"
        "serverChannelMaxIdleTimeSeconds=7\nserverConnectionsMax=9\nserverSocketBacklog=3\n",
    )
    loaded = load_nameserver_config(path, {"listenPort": "0"}, environ={})
    config = loaded.config
    assert (config.server.port, config.server.connections_max, config.server.backlog) == (0, 9, 3)
    assert config.server.channel.idle_timeout_s == 7
    assert (config.scan_interval_s, config.broker_expiry_s) == (0.5, 1.5)
    assert config.order_topics is True
    assert config.kv_path == Path("k")
    assert loaded.warnings == ()


def test_updates_go_to_the_file_that_was_read_whatever_it_says(tmp_path: Path) -> None:
    path = write(tmp_path, "configStorePath=elsewhere\n")
    assert load_nameserver_config(path, environ={}).config.file_path == path


def test_keys_that_mean_nothing_here_are_warned_about(tmp_path: Path) -> None:
    path = write(tmp_path, "serverWorkerThreads=16\nuseEpollNativeSelector=true\n")
    (warning,) = load_nameserver_config(path, environ={}).warnings
    assert "serverWorkerThreads, useEpollNativeSelector" in warning


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("\nlistenPrt=1", "2: listenPrt: .*did you mean listenPort", id="misspelt"),
        pytest.param("listenPort=70000", "1: listenPort: 70000 is not between", id="port"),
        pytest.param("listenPort=x", "1: listenPort: 'x' is not a whole number", id="number"),
        pytest.param("orderMessageEnable=yes", "neither true nor false", id="flag"),
        pytest.param("brokerExpiredTime=0", "brokerExpiredTime: 0 is not between", id="time"),
        pytest.param("kvConfigPath=", "kvConfigPath: must not be empty", id="no path"),
        pytest.param("bindAddress= ", "bindAddress: must not be empty", id="no address"),
        pytest.param("clusterTest=true", "another environment does not exist here", id="test"),
        pytest.param("listenPort=1\\u12", "four hexadecimal digits", id="escape"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path: Path, text: str, expected: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigError, match=expected) as error:
        load_nameserver_config(path, environ={})
    assert str(path) in str(error.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "no.conf"
    with pytest.raises(ConfigError, match=r"no\.conf: cannot be read: No such file"):
        load_nameserver_config(path, environ={})


def test_all_settings_are_printed(tmp_path: Path) -> None:
    lines = config_for(tmp_path).lines()
    assert len(lines) == len(JAVA_DEFAULTS) + len(PATHS) + len(TLS) + len(OWN_KEYS)
    assert "orderMessageEnable=false" in lines
    assert "listenPort=0" in lines


# ---- updates -------------------------------------------------------------------------------------


def update(live: LiveConfig, **changes: str) -> tuple[str, ...]:
    change = live.plan(changes)
    live.write(changes)
    live.apply(change)
    return change.restart


def test_an_update_counts_at_once_and_is_written_beside_what_people_wrote(tmp_path: Path) -> None:
    path = write(tmp_path, "# ours\nlistenPort=1\n\norderMessageEnable : false\n")
    live = LiveConfig(load_nameserver_config(path, environ={}).config)
    assert update(live, orderMessageEnable="true", brokerExpiredTime="5000") == ()
    assert live.current.order_topics is True
    assert live.current.broker_expiry_s == 5
    assert path.read_text() == (
        "# ours\nlistenPort=1\n\norderMessageEnable : true\nbrokerExpiredTime=5000\n"
    )
    assert load_nameserver_config(path, environ={}).config.order_topics is True


def test_what_needs_a_restart_is_said(tmp_path: Path) -> None:
    live = LiveConfig(config_for(tmp_path))
    assert update(live, serverSocketBacklog="1234", orderMessageEnable="true") == (
        "serverSocketBacklog",
    )
    assert live.current.as_properties()["serverSocketBacklog"] == "1234"
    assert "serverSocketBacklog=1234\n" in live.current.file_path.read_text()


@pytest.mark.parametrize(
    "key", ["configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome", "listenPort"]
)
def test_keys_of_the_black_list_are_not_updated(tmp_path: Path, key: str) -> None:
    live = LiveConfig(config_for(tmp_path, configBlackList="listenPort; bindAddress"))
    with pytest.raises(RefusedError) as refusal:
        live.plan({"orderMessageEnable": "true", key: "1"})
    assert refusal.value.code == ResponseCode.NO_PERMISSION
    assert refusal.value.remark == "Can not update config in black list."


@pytest.mark.parametrize(
    ("changes", "remark"),
    [
        pytest.param({"orderMessageEnable": "x"}, "neither true nor false", id="value"),
        pytest.param({"orderMesageEnable": "true"}, "did you mean orderMessageEnable", id="key"),
    ],
)
def test_an_update_that_makes_no_sense_is_refused_as_a_whole(
    tmp_path: Path, changes: dict[str, str], remark: str
) -> None:
    live = LiveConfig(config_for(tmp_path))
    with pytest.raises(RefusedError, match=remark) as refusal:
        live.plan({"brokerExpiredTime": "5000", **changes})
    assert refusal.value.code == ResponseCode.SYSTEM_ERROR
    assert live.current.broker_expiry_s == 120


def test_an_update_that_says_nothing_new_writes_nothing(tmp_path: Path) -> None:
    path = write(tmp_path, "orderMessageEnable=true\n")
    live = LiveConfig(load_nameserver_config(path, environ={}).config)
    update(live, orderMessageEnable="true")
    assert [each.name for each in tmp_path.iterdir()] == ["namesrv.conf"]


def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    live = LiveConfig(config_for(tmp_path, configStorePath=str(tmp_path / "file" / "conf")))
    with pytest.raises(StorageError, match="cannot write"):
        live.write({"orderMessageEnable": "true"})


def test_a_certificate_without_its_key_is_refused() -> None:
    with pytest.raises(ConfigError, match="certificate and key go together"):
        load_nameserver_config(None, {"tls.server.certPath": "cert.pem"}, environ={"HOME": "here"})


def test_tls_settings_are_understood() -> None:
    given = {
        "tls.server.mode": "enforcing",
        "tls.server.certPath": "cert.pem",
        "tls.server.keyPath": "key.pem",
    }
    tls = load_nameserver_config(None, given, environ={"HOME": "here"}).config.tls
    assert tls == TlsServerConfig(
        mode=TlsMode.ENFORCING, cert_path=Path("cert.pem"), key_path=Path("key.pem")
    )
