"""Secrets of the settings are shown by no value that an error or a log line may hold."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from rmq.broker.config import LiveConfig, load_broker_config
from rmq.broker.config.schema import SCHEMA
from rmq.client.core.config import ClientConfig
from rmq.ha.protocol.master import MasterSettings
from rmq.ha.protocol.slave_link import SlaveSettings
from rmq.remoting.signing import Credentials

if TYPE_CHECKING:
    from pathlib import Path

SECRET: Final = "sesame, open the door"


def test_settings_and_what_is_made_of_them_do_not_show_secrets(tmp_path: Path) -> None:
    secrets = [setting.key for setting in SCHEMA if setting.secret]
    assert {"haSecret", "tls.server.keyPassword", "tls.client.keyPassword"} <= set(secrets)
    conf = tmp_path / "broker.conf"
    conf.write_text("useTLS=true\n" + "".join(f"{key}={SECRET}\n" for key in secrets))
    loaded = load_broker_config(conf, {}, {"HOME": str(tmp_path)})
    config = loaded.config
    assert config.ha_secret == SECRET
    assert config.tls_client is not None
    credentials = Credentials(access_key="operator", secret_key=SECRET)
    names: dict[str, Any] = {
        "cluster": "c",
        "broker_name": "b",
        "address": "a:1",
        "store_id": bytes(16),
    }
    shown = (
        loaded,
        config,
        replace(config, listen_port=1),
        loaded.format_lines(),
        LiveConfig(loaded, now_ms=0).as_properties(),
        ClientConfig(nameservers="a:1", tls=config.tls_client, credentials=credentials),
        MasterSettings(**names, secret=SECRET.encode()),
        SlaveSettings(**names, broker_id=1, secret=SECRET.encode()),
    )
    for value in shown:
        assert SECRET not in repr(value)


def test_a_start_names_files_with_secrets_that_other_users_may_read(tmp_path: Path) -> None:
    key, store = tmp_path / "server.key", tmp_path / "store"
    key.touch(0o644)
    store.mkdir(0o755)
    conf = tmp_path / "broker.conf"
    conf.write_text(f"haSecret={SECRET}\ntls.client.keyPath={key}\nstorePathRootDir={store}\n")
    for path, mode in ((conf, 0o644), (key, 0o640), (store, 0o755)):
        path.chmod(mode)
    lines = load_broker_config(conf, {}, {"HOME": str(tmp_path)}).warnings
    for command in (f"chmod 600 {conf}", f"chmod 600 {key}", f"chmod -R go-rwx {store}"):
        assert sum(command in line for line in lines) == 1
    for path, mode in ((conf, 0o600), (key, 0o400), (store, 0o700)):
        path.chmod(mode)
    lines = load_broker_config(conf, {}, {"HOME": str(tmp_path)}).warnings
    assert not any("chmod" in line for line in lines)
