"""From a `broker.conf`, a command line and the environment to the settings of a broker.

A value of the command line counts before one in the file, that before the environment (of which
only NAMESRV_ADDR and ROCKETMQ_HOME are read), and that before the default. Credentials for the
broker's own calls are read from `tools.yml` beside the file, if there is one.

Without a file of the operator's, `config/broker.properties` in the store is read if it is there:
that is where changes made while such a broker runs are kept. (RocketMQ 4.9.8 writes them to a file
of that name, too, but never reads it.)
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rmq.broker.config.machine import machine_defaults
from rmq.broker.config.schema import SCHEMA, adjusted, adjustments, build_config
from rmq.broker.config.tls import tls_client_warnings
from rmq.client.core.credentials import default_file
from rmq.errors import ConfigError
from rmq.model.names import NAMESERVERS_VARIABLE
from rmq.remoting.tls_settings import tls_server_warnings
from rmq.settings.exposure import exposed_store_warnings, secret_file_warnings
from rmq.settings.schema import Problem, SettingsError, decode_settings, load

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmq.broker.config.values import BrokerConfig
    from rmq.settings.schema import Values

KEPT_FILE: Final = Path("config") / "broker.properties"
"""Within `storePathRootDir`: where changes are kept when no file was given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedConfig:
    """The settings a broker starts with."""

    config: BrokerConfig
    values: Values
    warnings: tuple[str, ...]
    """What the operator should know, a sentence each."""

    def format_lines(self, *, important_only: bool = False) -> list[str]:
        """`key=value` for all settings, or for the important ones."""
        return SCHEMA.format_lines(self.values, important_only=important_only)


def load_broker_config(
    path: Path | None, overrides: Mapping[str, str], environ: Mapping[str, str]
) -> LoadedConfig:
    """Read the settings of a broker; raise `ConfigError` with everything that is wrong.

    `overrides` are values of the command line, under the keys of the file.
    """
    addresses = environ.get(NAMESERVERS_VARIABLE, "").strip() or None
    defaults = {**machine_defaults(environ), "namesrvAddr": addresses}
    if path is None:
        root = overrides.get("storePathRootDir", "").strip() or str(defaults["storePathRootDir"])
        path = Path(root) / KEPT_FILE
        text = _read(path) if path.exists() else ""
        credentials_file = default_file(environ)
    else:
        text = _read(path)
        credentials_file = default_file(environ, path.parent)
    if credentials_file is not None:
        defaults["credentialsFile"] = str(credentials_file)
    loaded = load(SCHEMA, text, str(path), overrides=overrides, defaults=defaults)
    if addresses is not None and "namesrvAddr" not in loaded.origins:
        _check_environment(addresses)
    values = adjusted(loaded.values)
    config = build_config(values, path)
    return LoadedConfig(
        config=config,
        values=values,
        warnings=(
            *loaded.warnings,
            *adjustments(loaded.values),
            *_account_warnings(values),
            *tls_server_warnings(values),
            *tls_client_warnings(values),
            *secret_file_warnings(SCHEMA, values, path),
            *exposed_store_warnings(
                (config.store.root, *config.store.commit_log_paths), config.store_file_access
            ),
        ),
    )


def _account_warnings(values: Values) -> list[str]:
    """What an operator probably forgot, a sentence each."""
    if not values.flag("aclEnable") or values["credentialsFile"]:
        return []
    return [
        "aclEnable=true without credentialsFile: nameservers, masters and peers that have access"
        " control refuse this broker; write accessKey and secretKey of an account with admin rights"
        " into tools.yml beside the settings file"
    ]


def _read(path: Path) -> str:
    try:
        data = path.read_bytes()
    except OSError as exc:
        reason = exc.strerror or str(exc)
        raise SettingsError([Problem(str(path), "", f"cannot be read: {reason}")]) from exc
    return decode_settings(data, str(path))


def _check_environment(addresses: str) -> None:
    try:
        SCHEMA["namesrvAddr"].parse(addresses)
    except ConfigError as error:
        problem = Problem(f"environment variable {NAMESERVERS_VARIABLE}", "", error.reason)
        raise SettingsError([problem]) from None
