"""Where the credentials of a process come from: a file in YAML, options, or the environment.

The file is the one that stock `mqadmin` reads, `tools.yml`:

    accessKey: operator
    secretKey: 12345678

Sync, no trio; reading a file blocks.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from rmq.errors import ConfigError
from rmq.remoting.signing import Credentials
from rmq.settings.yaml_file import read_yaml

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE_NAME: Final = "tools.yml"
HOME_VARIABLE: Final = "ROCKETMQ_HOME"
FILE_VARIABLE: Final = "RMQ_CREDENTIALS"
ACCESS_KEY_VARIABLE: Final = "RMQ_ACCESS_KEY"
SECRET_KEY_VARIABLE: Final = "RMQ_SECRET_KEY"

FILE_BYTES_MAX: Final = 64 * 1024

_MEMBERS: Final = {
    "accessKey": "access_key",
    "secretKey": "secret_key",
    "securityToken": "security_token",
}
_REQUIRED: Final = ("accessKey", "secretKey")


def read_credentials(path: Path) -> Credentials:
    """Return what a file says; raise `ConfigError` that names it, and shows no secret."""
    members = read_yaml(path, bytes_max=FILE_BYTES_MAX)
    found: dict[str, str] = {}
    for name, value in members.items():
        # A stock file may have more in it.
        if name in _MEMBERS and value is not None:
            if not isinstance(value, str):
                raise ConfigError(str(path), f"{name} is not text", hint=f"write `{name}: value`")
            found[_MEMBERS[name]] = value
    for name in _REQUIRED:
        if not found.get(_MEMBERS[name], "").strip():
            raise ConfigError(
                str(path),
                f"has no {name}",
                hint="write `accessKey: ...` and `secretKey: ...` into it, a line each",
            )
    return Credentials(**found)


def default_file(environ: Mapping[str, str], *folders: Path) -> Path | None:
    """Return the `tools.yml` that is there: in one of `folders`, else `$ROCKETMQ_HOME/conf`."""
    home = environ.get(HOME_VARIABLE)
    places = (*folders, Path(home) / "conf") if home else folders
    return next((path for each in places if (path := each / FILE_NAME).is_file()), None)


def find_credentials(
    environ: Mapping[str, str],
    *,
    file: Path | None = None,
    access_key: str | None = None,
    secret_key: str | None = None,
) -> Credentials | None:
    """Return the credentials of a client, None if there are none; raise `ConfigError`.

    The first of these that is given counts: `file`; the two keys, of which the environment may
    supply the other one; the file that $RMQ_CREDENTIALS names; $RMQ_ACCESS_KEY and $RMQ_SECRET_KEY;
    `tools.yml` in $ROCKETMQ_HOME/conf.
    """
    if file is not None:
        if access_key or secret_key:
            raise ConfigError(
                "credentials", "a file is given, and keys beside it", hint="give one of the two"
            )
        return read_credentials(file)
    named = environ.get(FILE_VARIABLE)
    if named and not (access_key or secret_key):
        return read_credentials(Path(named))
    access_key = access_key or environ.get(ACCESS_KEY_VARIABLE)
    secret_key = secret_key or environ.get(SECRET_KEY_VARIABLE)
    if access_key and secret_key:
        return Credentials(access_key=access_key, secret_key=secret_key)
    if access_key:
        raise ConfigError(
            "credentials",
            f"account {access_key} has no secret key",
            hint=f"set ${SECRET_KEY_VARIABLE}, or name a file that has both keys",
        )
    if secret_key:
        raise ConfigError(
            "credentials",
            "a secret key needs the account that it belongs to",
            hint=f"set ${ACCESS_KEY_VARIABLE}, or name a file that has both keys",
        )
    default = default_file(environ)
    return None if default is None else read_credentials(default)
