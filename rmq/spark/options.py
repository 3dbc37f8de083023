"""The options of both formats: what Spark hands over as text, checked and typed.

Options are settings (`rmq.settings.schema`): declared once, with a default, limits and a sentence
for the documentation. Spark keeps their names in lower case, so any case is accepted; an unknown
name is an error with the nearest one that exists.

Secrets never are options, because options are shown in plans, logs and the pages of Spark: a
secret key is read from a file or from the environment, on the machine that uses it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rmq.client.core.config import ClientConfig
from rmq.client.core.credentials import ACCESS_KEY_VARIABLE, FILE_VARIABLE, find_credentials
from rmq.errors import ConfigError
from rmq.remoting.tls_config import TlsClientConfig
from rmq.settings.schema import Schema, Setting, Values, load

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmq.remoting.signing import Credentials

COLUMN_SETTINGS: Final = (
    Setting(
        key="columns",
        default="",
        help="the columns to read, joined by commas; all if it is empty",
    ),
    Setting(
        key="includeProperties",
        default=True,
        help="whether the column `properties` is there when `columns` is not given",
    ),
    Setting(
        key="decompress",
        default=True,
        help="whether compressed bodies are given as they were sent, or as they are stored",
    ),
    Setting(
        key="verifyCrc",
        default=True,
        help="whether the CRC of every body that is read is checked",
    ),
    Setting(
        key="batchRows",
        default=20_000,
        minimum=1,
        maximum=1_000_000,
        help="rows of one Arrow batch",
    ),
)
"""The options of a table, for both sources."""

CLUSTER_SETTINGS: Final = (
    Setting(
        key="nameservers",
        default=None,
        help="`host:port` of the nameservers, several joined by `;`",
    ),
    Setting(
        key="credentialsFile",
        default=None,
        default_text=f"`${FILE_VARIABLE}`, else `$ROCKETMQ_HOME/conf/tools.yml` if it is there",
        help="file with accessKey and secretKey of an account, on every machine (tools.yml)",
    ),
    Setting(
        key="accessKey",
        default=None,
        default_text=f"`${ACCESS_KEY_VARIABLE}`",
        help="account at brokers with access control",
    ),
    Setting(
        key="secretKey",
        default=None,
        secret=True,
        refused=(
            "options are shown in plans and logs: set RMQ_SECRET_KEY on every machine,"
            " or name a file with credentialsFile or secretKeyFile"
        ),
        help="refused; see credentialsFile and secretKeyFile",
    ),
    Setting(
        key="secretKeyFile",
        default=None,
        help="file with the secret of the account, on every machine (default: RMQ_SECRET_KEY)",
    ),
    Setting(key="tls", default=False, help="whether connections are encrypted"),
    Setting(
        key="tlsTrustFile",
        default=None,
        help="PEM file of the certificates that servers are checked against; implies tls",
    ),
    Setting(
        key="tlsCheckHost",
        default=False,
        help="whether certificates must carry the host that was connected to; needs tlsTrustFile",
    ),
    Setting(key="tlsCertFile", default=None, help="PEM file of the certificate to show"),
    Setting(key="tlsKeyFile", default=None, help="PEM file of its key"),
    Setting(
        key="requestTimeoutMs",
        default=10_000,
        minimum=1,
        help="how long one answer of a broker or nameserver is waited for, in ms",
    ),
)
"""Addresses, account and encryption of a cluster, for source and sink."""

CREDENTIALS_KEYS: Final = ("credentialsFile", "accessKey", "secretKeyFile")
"""The options that lead to secrets, which only the machines that use them have."""


def read_options(schema: Schema, options: Mapping[str, str]) -> Values:
    """Return the values of all options; raise `ConfigError` that names everything wrong.

    `path` is an option that Spark adds by itself for `load(path)` and `save(path)`.
    """
    by_lower = {setting.key.lower(): setting.key for setting in schema}
    named = {by_lower.get(key.lower(), key): str(value) for key, value in options.items()}
    return load(schema, "", "", overrides=named, overrides_name="option").values


def client_config(values: Values, environ: Mapping[str, str] = os.environ) -> ClientConfig:
    """Return how to reach the cluster. Files and the environment are those of this machine."""
    nameservers = values.text("nameservers")
    if not nameservers.strip(" ;"):
        raise ConfigError(
            "nameservers", "is not set", hint="give the address of a nameserver: host:port"
        )
    return ClientConfig(
        nameservers=nameservers,
        credentials=_credentials(values, environ),
        tls=_tls(values),
        request_timeout_s=values.integer("requestTimeoutMs") / 1000,
    )


def _credentials(values: Values, environ: Mapping[str, str]) -> Credentials | None:
    file, secret_file = values.text("credentialsFile"), values.text("secretKeyFile")
    return find_credentials(
        environ,
        file=Path(file) if file else None,
        access_key=values.text("accessKey"),
        secret_key=_read_secret(secret_file) if secret_file else None,
    )


def _read_secret(path: str) -> str:
    try:
        secret = Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "is not text"
        raise ConfigError("secretKeyFile", f"{path}: {reason}") from exc
    if not secret:
        raise ConfigError("secretKeyFile", f"{path}: is empty")
    return secret


def _tls(values: Values) -> TlsClientConfig | None:
    files = [values.text(key) for key in ("tlsTrustFile", "tlsCertFile", "tlsKeyFile")]
    if values.flag("tlsCheckHost") and not files[0]:
        raise ConfigError("tlsCheckHost", "needs tlsTrustFile: whose certificates to believe")
    if not values.flag("tls") and not any(files):
        return None
    trust, cert, key = (Path(name) if name else None for name in files)
    return TlsClientConfig(
        auth_server=trust is not None,
        check_hostname=values.flag("tlsCheckHost"),
        trust_cert_path=trust,
        cert_path=cert,
        key_path=key,
    )
