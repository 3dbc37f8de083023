"""From a broker.conf, a command line and the environment to the settings of a broker."""

from __future__ import annotations

import dataclasses
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.broker.config import BrokerConfig, BrokerRole, LoadedConfig, load_broker_config
from rmq.broker.config.machine import local_address
from rmq.broker.config.schema import SCHEMA, SECTIONS
from rmq.broker.config.store import STORE_KEYS
from rmq.errors import ConfigError
from rmq.remoting.tls_config import ClientAuth, TlsMode
from rmq.settings.declaration import attributes
from rmq.settings.schema import Effect
from rmq.store.config import FlushMode, StoreConfig


def load(text: str, folder: Path, /, **environ: str) -> LoadedConfig:
    path = folder / "broker.conf"
    path.write_text(text)
    return load_broker_config(path, {}, {"HOME": str(folder), **environ})


def problems(text: str, folder: Path, /, **environ: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(text, folder, **environ)
    return str(caught.value).replace(f"{folder}/", "").splitlines()


# --- what there is -------------------------------------------------------------------------------


def test_every_setting_has_a_place_a_sentence_and_one_owner() -> None:
    keys = [each.setting.key for each in attributes(BrokerConfig, section="broker")]
    keys += [each.setting.key for each in STORE_KEYS]
    assert len(keys) == len(set(keys))
    for setting in SCHEMA:
        assert setting.section in SECTIONS
        assert setting.help.endswith("."), setting.key
        owned = setting.key in keys or setting.section == "tls" or setting.key == "useTLS"
        assert owned == (setting.effect is not Effect.IGNORED), setting.key


def test_every_field_of_the_stores_settings_has_a_key_with_the_same_default(tmp_path: Path) -> None:
    fields = {field.name for field in dataclasses.fields(StoreConfig) if field.init}
    assert {each.name for each in STORE_KEYS} == fields
    loaded = load("", tmp_path)
    assert loaded.config.store == StoreConfig(root=tmp_path / "store")


def test_a_config_made_directly_has_the_defaults_of_the_settings(tmp_path: Path) -> None:
    loaded = load("", tmp_path).config
    direct = BrokerConfig(
        store=loaded.store,
        config_path=loaded.config_path,
        tls_server=loaded.tls_server,
        broker_ip1=loaded.broker_ip1,
        broker_ip2=loaded.broker_ip2,
        broker_name=loaded.broker_name,
    )
    assert direct == loaded


@pytest.mark.parametrize(
    ("line", "attribute", "value"),
    [
        pytest.param("brokerName=broker-a", "broker_name", "broker-a", id="a name"),
        pytest.param("brokerIP1=10.0.0.7", "broker_ip1", "10.0.0.7", id="an address"),
        pytest.param("namesrvAddr=a:1; b:2;", "namesrv_addrs", ("a:1", "b:2"), id="nameservers"),
        pytest.param("namesrvAddr=[::1]:9876", "namesrv_addrs", ("[::1]:9876",), id="IPv6"),
        pytest.param("namesrvAddr=", "namesrv_addrs", (), id="no nameservers"),
        pytest.param("brokerRole=SYNC_MASTER", "role", BrokerRole.SYNC_MASTER, id="role"),
        pytest.param("brokerPermission=4", "permission", 4, id="permission"),
        pytest.param("registerNameServerPeriod=1", "register_period_ms", 10_000, id="too often"),
        pytest.param("registerNameServerPeriod=60001", "register_period_ms", 60_000, id="too rare"),
        pytest.param("configBlackList=a; b", "config_black_list", frozenset("ab"), id="black list"),
        pytest.param("haMasterAddress=m:10912", "ha_master_address", "m:10912", id="master"),
        pytest.param("listenPort=0", "ha_port", 0, id="any port"),
        pytest.param("listenPort=30911", "ha_port", 30_912, id="port for slaves"),
        pytest.param("listenPort=30911", "vip_port", 30_909, id="second port for clients"),
        pytest.param(
            "rocketmq.broker.rebalance.lockMaxLiveTime=5000",
            "lock_live_ms",
            5000,
            id="a system property",
        ),
        pytest.param("maxMsgsNumBatch=5", "query_count_max", 5, id="of the store, but asked here"),
    ],
)
def test_keys_become_attributes(line: str, attribute: str, value: object, tmp_path: Path) -> None:
    assert getattr(load(line, tmp_path).config, attribute) == value


@pytest.mark.parametrize(
    ("line", "attribute", "value"),
    [
        pytest.param("storePathRootDir=/data/rmq", "root", Path("/data/rmq"), id="root"),
        pytest.param(
            "storePathRootDir=/data/rmq",
            "commit_log_paths",
            (Path("/data/rmq/commitlog"),),
            id="log",
        ),
        pytest.param(
            "storePathCommitLog=/a, /b", "commit_log_paths", (Path("/a"), Path("/b")), id="two logs"
        ),
        pytest.param("flushDiskType=SYNC_FLUSH", "flush_mode", FlushMode.SYNC, id="flush mode"),
        pytest.param("deleteWhen=04;16", "delete_hours", frozenset({4, 16}), id="hours"),
        pytest.param("diskMaxUsedSpaceRatio=88", "disk_used_ratio_max", 0.88, id="percent"),
        pytest.param("diskMaxUsedSpaceRatio=99", "disk_used_ratio_max", 0.95, id="too much"),
        pytest.param("diskMaxUsedSpaceRatio=0", "disk_used_ratio_max", 0.10, id="too little"),
        pytest.param("accessMessageInMemoryMaxRatio=30", "memory_ratio", 0.30, id="memory"),
        pytest.param("messageDelayLevel=1s 2m", "delay_levels_ms", (1000, 120_000), id="delays"),
        pytest.param(
            "rocketmq.broker.diskSpaceWarningLevelRatio=0.95", "disk_full_ratio", 0.95, id="full"
        ),
    ],
)
def test_keys_become_attributes_of_the_store(
    line: str, attribute: str, value: object, tmp_path: Path
) -> None:
    assert getattr(load(line, tmp_path).config.store, attribute) == value


def test_parts_get_their_own_settings(tmp_path: Path) -> None:
    config = load(
        "listenPort=30911\nbindAddress=127.0.0.1\nserverSocketBacklog=7\n"
        "serverChannelMaxIdleTimeSeconds=60\nconnectTimeoutMillis=500\n"
        "clientChannelMaxIdleTimeSeconds=30\nclientAsyncSemaphoreValue=9\n"
        "clientOnewaySemaphoreValue=8\nbrokerIP1=10.0.0.1\nbrokerIP2=10.1.0.1\n",
        tmp_path,
    ).config
    assert (config.server.host, config.server.port) == ("127.0.0.1", 30_911)
    assert (config.server.backlog, config.server.channel.idle_timeout_s) == (7, 60)
    assert config.vip_server == dataclasses.replace(config.server, port=30_909)
    assert config.client.connect_timeout_s == 0.5
    assert config.client.channel.idle_timeout_s == 30
    assert (config.client.channel.calls_max, config.client.channel.oneways_max) == (9, 8)
    assert config.address == "10.0.0.1:30911"
    assert config.ha_address == "10.1.0.1:30912"


def test_tls_is_set_in_the_same_file(tmp_path: Path) -> None:
    plain = load("", tmp_path).config
    assert plain.tls_server is not None
    assert (plain.tls_server.mode, plain.tls_server.cert_path) == (TlsMode.PERMISSIVE, None)
    assert plain.tls_client is None
    loaded = load(
        "tls.server.mode=enforcing\ntls.server.certPath=/c\ntls.server.keyPath=/k\n"
        "tls.server.keyPassword=secret\ntls.server.need.client.auth=require\n"
        "tls.server.trustCertPath=/t\nuseTLS=true\ntls.client.authServer=true\n"
        "tls.client.trustCertPath=/ct\n",
        tmp_path,
    )
    server, client = loaded.config.tls_server, loaded.config.tls_client
    assert server is not None
    assert (server.mode, server.cert_path, server.key_path) == (
        TlsMode.ENFORCING,
        Path("/c"),
        Path("/k"),
    )
    assert (server.client_auth, server.trust_cert_path) == (ClientAuth.REQUIRE, Path("/t"))
    assert server.key_password == "secret"
    assert client is not None
    assert (client.auth_server, client.trust_cert_path) == (True, Path("/ct"))
    assert not any("secret" in line for line in loaded.format_lines())


# --- where values come from ----------------------------------------------------------------------


def test_the_command_line_counts_before_the_file_and_that_before_the_environment(
    tmp_path: Path,
) -> None:
    environ = {"HOME": str(tmp_path), "NAMESRV_ADDR": "env:1"}
    path = tmp_path / "broker.conf"
    path.write_text("")
    assert load_broker_config(path, {}, environ).config.namesrv_addrs == ("env:1",)
    path.write_text("namesrvAddr=file:2")
    assert load_broker_config(path, {}, environ).config.namesrv_addrs == ("file:2",)
    overrides = {"namesrvAddr": "line:3"}
    assert load_broker_config(path, overrides, environ).config.namesrv_addrs == ("line:3",)


def test_the_environment_is_checked_only_where_it_counts(tmp_path: Path) -> None:
    assert problems("", tmp_path, NAMESRV_ADDR="nowhere") == [
        "environment variable NAMESRV_ADDR: 'nowhere' is not of the form host:port"
    ]
    assert load("namesrvAddr=a:1", tmp_path, NAMESRV_ADDR="nowhere").config.namesrv_addrs == (
        "a:1",
    )


def test_nameservers_of_the_environment_are_enough(tmp_path: Path) -> None:
    text = "fetchNamesrvAddrByAddressServer=true"
    assert load(text, tmp_path, NAMESRV_ADDR="a:1").config.namesrv_addrs == ("a:1",)


def test_rocketmq_home_is_taken_but_not_needed(tmp_path: Path) -> None:
    assert load("", tmp_path).values["rocketmqHome"] is None
    assert load("", tmp_path, ROCKETMQ_HOME="/opt/rocketmq").values["rocketmqHome"] == (
        "/opt/rocketmq"
    )


def test_without_a_file_the_one_in_the_store_is_read_if_it_is_there(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path)}
    kept = tmp_path / "store" / "config" / "broker.properties"
    fresh = load_broker_config(None, {}, environ)
    assert fresh.config.config_path == kept
    assert fresh.config.store.reserved_hours == 72
    kept.parent.mkdir(parents=True)
    kept.write_text("fileReservedTime=24\n")
    assert load_broker_config(None, {}, environ).config.store.reserved_hours == 24
    elsewhere = load_broker_config(None, {"storePathRootDir": str(tmp_path / "other")}, environ)
    assert elsewhere.config.store.reserved_hours == 72
    assert elsewhere.config.config_path == tmp_path / "other" / "config" / "broker.properties"
    assert load("", tmp_path).config.store.reserved_hours == 72, "a file that was given is enough"


def test_by_default_a_broker_has_the_name_and_the_address_of_its_machine(tmp_path: Path) -> None:
    config = load("", tmp_path).config
    assert config.broker_name == socket.gethostname()
    assert config.broker_ip1 == config.broker_ip2 == local_address()
    socket.inet_aton(config.broker_ip1)


@pytest.mark.parametrize(
    ("addresses", "found"),
    [
        pytest.param(["127.0.1.1", "10.0.0.5"], "10.0.0.5", id="not the loopback, if possible"),
        pytest.param(["127.0.1.1"], "127.0.0.1", id="the loopback otherwise"),
        pytest.param(None, "127.0.0.1", id="a host whose name means nothing"),
    ],
)
def test_a_machine_without_a_way_out_is_asked_what_its_name_stands_for(
    addresses: list[str] | None, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Unconnected(socket.socket):
        def connect(self, address: object, /) -> None:
            raise OSError(101, "Network is unreachable")

    def lookup(*_: object) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        if addresses is None:
            raise socket.gaierror(-2, "Name or service not known")
        return [(2, 1, 6, "", (address, 0)) for address in addresses]

    monkeypatch.setattr(socket, "socket", Unconnected)
    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    assert local_address() == found


# --- mistakes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param(
            "brokerIp1=10.0.0.1",
            "1: brokerIp1: is not a known setting; did you mean brokerIP1?",
            id="a misspelt key",
        ),
        pytest.param(
            "listenPort=2",
            "1: listenPort: 2 is not between 3 and 65534: the ports 2 below and 1 above are "
            "needed, too",
            id="a port with no room below",
        ),
        pytest.param(
            "listenPort=65535",
            "1: listenPort: 65535 is not between 3 and 65534: the ports 2 below and 1 above are "
            "needed, too",
            id="a port with no room above",
        ),
        pytest.param(
            "listenPort=70000",
            "1: listenPort: 70000 is not between 3 and 65534: the ports 2 below and 1 above are "
            "needed, too",
            id="no port",
        ),
        pytest.param(
            "\nbrokerRole=SLAVE",
            "2: brokerId: must be above 0 for a SLAVE",
            id="a slave with no id",
        ),
        pytest.param(
            "brokerPermission=5",
            "1: brokerPermission: 5 is not 0, 2 (write), 4 (read) or 6 (both)",
            id="a permission",
        ),
        pytest.param(
            "namesrvAddr=a:1;b",
            "1: namesrvAddr: 'b' is not of the form host:port",
            id="a nameserver without a port",
        ),
        pytest.param(
            "namesrvAddr=a:0",
            "1: namesrvAddr: 'a:0' is not of the form host:port",
            id="a nameserver on port 0",
        ),
        pytest.param("brokerName=", "1: brokerName: must not be empty", id="no name"),
        pytest.param(
            "brokerName=a b",
            "1: brokerName: 'a b' contains blanks",
            id="a name with a blank",
        ),
        pytest.param("storePathRootDir=", "1: storePathRootDir: must not be empty", id="no root"),
        pytest.param(
            r"storePathCommitLog=/a\u0000",
            "1: storePathCommitLog: '/a\\x00' contains control characters",
            id="a path that cannot be",
        ),
        pytest.param(
            "storePathRootDir=/r/\nstorePathCommitLog=/x,/r",
            "2: storePathCommitLog: must not be storePathRootDir itself, where other files are",
            id="a log in the root",
        ),
        pytest.param(
            "deleteWhen=04;24", "1: deleteWhen: '24' is not an hour between 00 and 23", id="an hour"
        ),
        pytest.param("deleteWhen=", "1: deleteWhen: must not be empty", id="no hour"),
        pytest.param(
            "messageDelayLevel=1s 5x",
            "1: messageDelayLevel: '5x' is not a delay such as 1s, 5m or 2h",
            id="a delay",
        ),
        pytest.param(
            "maxMessageSize=0",
            "1: maxMessageSize: 0 is not between 1 and 2147418111",
            id="no room for messages",
        ),
        pytest.param(
            "mappedFileSizeCommitLog=100",
            "1: mappedFileSizeCommitLog: 100 is not between 4096 and 2147483647",
            id="a segment too small",
        ),
        pytest.param(
            "rocketmq.broker.diskSpaceWarningLevelRatio=0.8",
            "1: rocketmq.broker.diskSpaceWarningLevelRatio: must not be below "
            "rocketmq.broker.diskSpaceCleanForciblyRatio",
            id="full before cleaned",
        ),
        pytest.param(
            "haHousekeepingInterval=5000",
            "1: haHousekeepingInterval: must be above haSendHeartbeatInterval, or idle links are "
            "closed all the time",
            id="closed before alive",
        ),
        pytest.param(
            "fetchNamesrvAddrByAddressServer=true",
            "1: fetchNamesrvAddrByAddressServer: there is no address server here; set namesrvAddr",
            id="nameservers from nowhere",
        ),
        pytest.param(
            "enableLmq=true",
            "1: enableLmq: true: light message queues are not supported",
            id="what is not there and must not be ignored",
        ),
        pytest.param(
            "\ntls.server.certPath=/c",
            "2: tls.server.certPath: certificate and key go together: set both or neither",
            id="what a part finds out",
        ),
    ],
)
def test_a_mistake_is_named_with_line_and_key(text: str, problem: str, tmp_path: Path) -> None:
    assert problems(text, tmp_path) == [f"broker.conf:{problem}"]


def test_all_mistakes_of_a_file_are_in_one_error(tmp_path: Path) -> None:
    found = problems("listenPort=x\nbrokerRole=SLAVE\nfoo=1\nflushDiskType=SYNC\n", tmp_path)
    assert found == [
        "broker.conf:1: listenPort: 'x' is not a whole number",
        "broker.conf:3: foo: is not a known setting",
        "broker.conf:4: flushDiskType: 'SYNC' is not one of ASYNC_FLUSH, SYNC_FLUSH",
        "broker.conf:2: brokerId: must be above 0 for a SLAVE",
    ]


def test_a_file_that_is_not_there_or_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_broker_config(tmp_path / "none.conf", {}, {})
    assert str(caught.value) == f"{tmp_path}/none.conf: cannot be read: No such file or directory"
    with pytest.raises(ConfigError) as caught:
        load_broker_config(tmp_path, {}, {})
    assert str(caught.value) == f"{tmp_path}: cannot be read: Is a directory"


# --- what counts otherwise -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        pytest.param("brokerId=3", "brokerId is 0 for a master, not 3", id="the id of a master"),
        pytest.param(
            "diskMaxUsedSpaceRatio=99", "diskMaxUsedSpaceRatio counts as 95, not 99", id="the disk"
        ),
        pytest.param(
            "registerNameServerPeriod=500",
            "registerNameServerPeriod counts as 10000, not 500",
            id="the period",
        ),
        pytest.param(
            "transientStorePoolEnable=true\nflushDiskType=SYNC_FLUSH",
            "transientStorePoolEnable counts for masters with ASYNC_FLUSH only",
            id="the pool",
        ),
        pytest.param(
            "mappedFileSizeCommitLog=1048576",
            "maxMessageSize is 4194304, but a segment of mappedFileSizeCommitLog=1048576 bytes may "
            "have no room for such a message",
            id="a small segment",
        ),
        pytest.param(
            "sendMessageThreadPoolNums=99\nserverWorkerThreads=9\nserverSelectorThreads=3",
            "broker.conf: these settings have no meaning here: sendMessageThreadPoolNums, "
            "serverWorkerThreads",
            id="what means nothing",
        ),
        pytest.param(
            "traceOn=true\ntraceOn=false",
            "broker.conf:2: traceOn is set again; broker.conf:1 does not count",
            id="a line too many",
        ),
    ],
)
def test_what_counts_otherwise_than_written_is_told(
    text: str, warning: str, tmp_path: Path
) -> None:
    loaded = load(text, tmp_path)
    assert [each.replace(f"{tmp_path}/", "") for each in loaded.warnings] == [warning]


def test_a_masters_id_and_the_port_for_slaves_are_printed_as_they_are(tmp_path: Path) -> None:
    loaded = load("brokerId=3\nlistenPort=30911\nhaListenPort=1", tmp_path)
    assert loaded.config.broker_id == 0
    lines = loaded.format_lines()
    assert "brokerId=0" in lines
    assert "haListenPort=30912" in lines


def test_a_slave_has_no_pool_of_buffers(tmp_path: Path) -> None:
    text = "brokerRole=SLAVE\nbrokerId=1\ntransientStorePoolEnable=true"
    assert not load(text, tmp_path).config.store.transient_pool_enabled
    assert load("transientStorePoolEnable=true", tmp_path).config.store.transient_pool_enabled


def test_all_settings_are_printed_or_the_important_ones(tmp_path: Path) -> None:
    loaded = load("brokerName=broker-a\n", tmp_path)
    lines = loaded.format_lines()
    assert len(lines) == len(list(SCHEMA))
    important = loaded.format_lines(important_only=True)
    assert set(important) < set(lines)
    assert "brokerName=broker-a" in important
    assert "namesrvAddr=" in important


def test_what_is_printed_loads_as_the_same_settings(tmp_path: Path) -> None:
    loaded = load("brokerName=broker-a\nlistenPort=30911\nbrokerRole=SLAVE\nbrokerId=2", tmp_path)
    again = load("\n".join(loaded.format_lines()), tmp_path)
    assert again.values == loaded.values
    assert again.config == loaded.config


@given(
    st.dictionaries(
        st.sampled_from([*SCHEMA.settings, "brokerIp1", "x"]),
        st.one_of(
            st.integers(-2, 2**40).map(str),
            st.sampled_from(["", "true", "false", "SLAVE", "0.5", "1s", "a:1", "/a", "\x00"]),
            st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
        ),
        max_size=6,
    )
)
def test_any_settings_are_refused_key_by_key_or_read_back_as_they_are_printed(
    settings: dict[str, str],
) -> None:
    try:
        loaded = load_broker_config(None, settings, {"HOME": "/nowhere"})
    except ConfigError as error:
        lines = str(error).splitlines()
    else:
        shown = SCHEMA.as_properties(loaded.values)
        again = load_broker_config(None, {**shown, **_secrets(settings)}, {"HOME": "/nowhere"})
        assert again.values == loaded.values
        lines = []
    for line in lines:
        where, key, _ = line.split(": ", 2)
        assert where == "command line"
        assert key in settings or key in SCHEMA


def _secrets(settings: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in settings.items() if SCHEMA[key].secret}
