"""Options of the formats: names in any case, the nearest name for a wrong one, secrets aside."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rmq.errors import ConfigError
from rmq.settings.schema import Schema
from rmq.spark.options import CLUSTER_SETTINGS, COLUMN_SETTINGS, client_config, read_options

if TYPE_CHECKING:
    from pathlib import Path

    from rmq.remoting.signing import Credentials

SCHEMA = Schema((*COLUMN_SETTINGS, *CLUSTER_SETTINGS))


def test_names_are_known_in_any_case() -> None:
    values = read_options(SCHEMA, {"NAMESERVERS": "a:1", "batchrows": "5", "VerifyCRC": "False"})
    assert values.text("nameservers") == "a:1"
    assert values.integer("batchRows") == 5
    assert values.flag("verifyCrc") is False


def test_everything_wrong_is_named_at_once() -> None:
    with pytest.raises(ConfigError) as refused:
        read_options(SCHEMA, {"nameserver": "a:1", "batchRows": "0", "tls": "yes"})
    assert str(refused.value).splitlines() == [
        "option: nameserver: is not a known setting; did you mean nameservers?",
        "option: batchRows: 0 is not between 1 and 1000000",
        "option: tls: 'yes' is neither true nor false",
    ]


def test_a_secret_is_no_option() -> None:
    with pytest.raises(ConfigError, match="secretKeyFile") as refused:
        read_options(SCHEMA, {"nameservers": "a:1", "secretKey": "hush"})
    assert "set RMQ_SECRET_KEY on every machine" in str(refused.value)


def test_secrets_come_from_a_file_or_from_the_environment(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of the file\n")
    values = read_options(
        SCHEMA, {"nameservers": "a:1", "accessKey": "me", "secretKeyFile": str(secret)}
    )
    from_file = client_config(values, {}).credentials
    assert from_file is not None
    assert (from_file.access_key, from_file.secret_key) == ("me", "of the file")
    values = read_options(SCHEMA, {"nameservers": "a:1"})
    environ = {"RMQ_ACCESS_KEY": "us", "RMQ_SECRET_KEY": "of the environment"}
    from_environ = client_config(values, environ).credentials
    assert from_environ is not None
    assert (from_environ.access_key, from_environ.secret_key) == ("us", "of the environment")
    assert client_config(values, {}).credentials is None


@pytest.mark.parametrize(
    ("options", "environ", "says"),
    [
        ({}, {}, "nameservers: is not set"),
        ({"nameservers": " ; "}, {}, "nameservers: is not set"),
        ({"nameservers": "a:1", "accessKey": "me"}, {}, "account me has no secret key"),
        ({"nameservers": "a:1"}, {"RMQ_SECRET_KEY": "x"}, "needs the account"),
        (
            {"nameservers": "a:1", "accessKey": "me", "secretKeyFile": "nowhere/at-all"},
            {},
            "nowhere/at-all: No such file",
        ),
    ],
)
def test_what_is_missing_is_named(
    options: dict[str, str], environ: dict[str, str], says: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        client_config(read_options(SCHEMA, options), environ)
    assert says in str(refused.value)


def test_a_file_of_credentials_is_named_by_an_option_or_found(tmp_path: Path) -> None:
    named = tmp_path / "named.yml"
    named.write_text("accessKey: of the file\nsecretKey: 12345678\n")
    found = tmp_path / "home" / "conf" / "tools.yml"
    found.parent.mkdir(parents=True)
    found.write_text("accessKey: of the home\nsecretKey: 12345678\n")
    environ = {"ROCKETMQ_HOME": str(tmp_path / "home")}
    values = read_options(SCHEMA, {"nameservers": "a:1", "credentialsFile": str(named)})
    assert account(client_config(values, environ).credentials) == "of the file"
    assert "12345678" not in repr(client_config(values, environ))
    values = read_options(SCHEMA, {"nameservers": "a:1"})
    assert account(client_config(values, environ).credentials) == "of the home"
    environ["RMQ_CREDENTIALS"] = str(named)
    assert account(client_config(values, environ).credentials) == "of the file"
    values = read_options(
        SCHEMA, {"nameservers": "a:1", "credentialsFile": str(named), "accessKey": "me"}
    )
    with pytest.raises(ConfigError, match="keys beside it"):
        client_config(values, {})


def account(credentials: Credentials | None) -> str:
    assert credentials is not None
    return credentials.access_key


def test_an_empty_secret_file_is_refused(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b" \n")
    options = {"nameservers": "a:1", "accessKey": "me", "secretKeyFile": str(secret)}
    with pytest.raises(ConfigError, match="is empty"):
        client_config(read_options(SCHEMA, options), {})
    secret.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="is not text"):
        client_config(read_options(SCHEMA, options), {})


def test_a_file_of_certificates_means_encryption() -> None:
    plain = client_config(read_options(SCHEMA, {"nameservers": "a:1"}), {})
    assert plain.tls is None
    anybody = client_config(read_options(SCHEMA, {"nameservers": "a:1", "tls": "true"}), {}).tls
    assert anybody is not None
    assert anybody.auth_server is False
    values = read_options(SCHEMA, {"nameservers": "a:1", "tlsTrustFile": "ca.pem"})
    checked = client_config(values, {}).tls
    assert checked is not None
    assert (checked.auth_server, checked.check_hostname) == (True, False)
    options = {"nameservers": "a:1", "tlsTrustFile": "ca.pem", "tlsCheckHost": "true"}
    named = client_config(read_options(SCHEMA, options), {}).tls
    assert named is not None
    assert named.check_hostname is True
    del options["tlsTrustFile"]
    with pytest.raises(ConfigError, match="tlsTrustFile"):
        client_config(read_options(SCHEMA, options), {})
