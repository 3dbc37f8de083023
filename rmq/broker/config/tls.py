"""Settings of TLS, which a Java broker takes as system properties or from a file of their own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from rmq.remoting.tls_config import TlsClientConfig
from rmq.remoting.tls_settings import texts, tls_server_settings, tls_setting

if TYPE_CHECKING:
    from rmq.settings.schema import Values


def tls_client_config(values: Values) -> TlsClientConfig | None:
    """How nameservers and other brokers are dialled; None: without TLS."""
    if not values.flag("useTLS"):
        return None
    return TlsClientConfig.from_properties(texts(values, TLS_SETTINGS))


def tls_replication_config(values: Values) -> TlsClientConfig | None:
    """How a slave dials its master, whatever `useTLS` says; None: without TLS."""
    if values["haTlsMode"] == "disabled":
        return None
    config = TlsClientConfig.from_properties(texts(values, TLS_SETTINGS))
    # A certificate of the same authority, that of a client say, must not make a master.
    return replace(config, check_hostname=config.auth_server)


def tls_client_warnings(values: Values) -> list[str]:
    """What an operator probably did not mean, in sentences for the log."""
    found: list[str] = []
    modes = [key for key in ("haTlsMode", "tls.server.mode") if values[key] == "enforcing"]
    if "haTlsMode" in modes and not values.flag("tls.client.authServer"):
        found.append(
            "haTlsMode=enforcing without tls.client.authServer=true: a slave follows a master with"
            " any certificate; set tls.client.authServer=true and tls.client.trustCertPath"
        )
    if modes and not values.flag("useTLS"):
        found.append(
            f"{modes[0]}=enforcing without useTLS=true: registrations, topics, groups and offsets"
            " go to nameservers and other brokers unencrypted, and those that enforce TLS refuse"
            " them"
        )
    return found


TLS_SETTINGS: Final = (
    *tls_server_settings("broker"),
    tls_setting(
        "useTLS",
        False,
        "Nameservers and other brokers are dialled with TLS.",
        section="client",
    ),
    tls_setting(
        "tls.client.authServer", False, "Certificates of nameservers and other brokers are checked."
    ),
    tls_setting(
        "tls.client.checkHost",
        False,
        "With tls.client.authServer: certificates must carry the host name or address that was "
        "connected to. Links to masters check that always (haTlsMasterName).",
    ),
    tls_setting(
        "tls.client.trustCertPath",
        None,
        "Who may sign the certificates of nameservers and other brokers.",
    ),
    tls_setting(
        "tls.client.certPath", None, "The certificate shown to nameservers and other brokers."
    ),
    tls_setting("tls.client.keyPath", None, "The key of tls.client.certPath.", names_secret=True),
    tls_setting("tls.client.keyPassword", None, "The password of tls.client.keyPath.", secret=True),
)
