"""Where credentials come from, in which order, and what is said of a file that cannot be used."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rmq.client.core.credentials import default_file, find_credentials, read_credentials
from rmq.errors import ConfigError
from rmq.remoting.signing import Credentials

if TYPE_CHECKING:
    from pathlib import Path


def written(folder: Path, name: str) -> Path:
    """Write a credentials file with the account `name`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "tools.yml"
    path.write_text(f"accessKey: {name}\nsecretKey: secret of {name}\n")
    return path


def account(credentials: Credentials | None) -> str | None:
    if credentials is None:
        return None
    assert credentials.secret_key == f"secret of {credentials.access_key}"
    return credentials.access_key


def test_the_file_that_rocketmq_ships_is_read(tmp_path: Path) -> None:
    path = tmp_path / "tools.yml"
    path.write_text("# licence\n\naccessKey: rocketmq2\nsecretKey: 12345678\n\n")
    expected = Credentials(access_key="rocketmq2", secret_key="12345678")
    assert read_credentials(path) == expected


def test_a_token_and_members_of_others_may_stand_there(tmp_path: Path) -> None:
    path = tmp_path / "tools.yml"
    path.write_text("accessKey: a\nsecretKey: b\nsecurityToken: c\nnamesrvAddr: x\n")
    expected = Credentials(access_key="a", secret_key="b", security_token="c")
    assert read_credentials(path) == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "has no accessKey"),
        ("accessKey: a\n", "has no secretKey"),
        ("accessKey:\nsecretKey: hush-hush\n", "has no accessKey"),
        ("accessKey: '  '\nsecretKey: hush-hush\n", "has no accessKey"),
        ("accessKey: a\nsecretKey: [hush-hush]\n", "secretKey is not text"),
        ("accessKey: a\nsecretKey: hush-hush: x\n", "line 2 is not YAML"),
    ],
)
def test_a_file_without_both_keys_is_refused_without_the_secret(
    tmp_path: Path, text: str, problem: str
) -> None:
    path = tmp_path / "tools.yml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=problem) as caught:
        read_credentials(path)
    assert caught.value.key == str(path)
    assert "hush-hush" not in f"{caught.value} {caught.value.hint}"


def test_the_first_that_is_given_counts(tmp_path: Path) -> None:
    home = tmp_path / "home"
    environ = {"ROCKETMQ_HOME": str(home)}
    assert find_credentials(environ) is None
    written(home / "conf", "home")
    assert account(find_credentials(environ)) == "home"
    environ |= {"RMQ_ACCESS_KEY": "environ", "RMQ_SECRET_KEY": "secret of environ"}
    assert account(find_credentials(environ)) == "environ"
    environ["RMQ_CREDENTIALS"] = str(written(tmp_path / "named", "named"))
    assert account(find_credentials(environ)) == "named"
    keys = find_credentials(environ, access_key="keys", secret_key="secret of keys")
    assert account(keys) == "keys"
    assert find_credentials(environ, access_key="k") == Credentials(
        access_key="k", secret_key="secret of environ"
    )
    file = written(tmp_path / "option", "option")
    assert account(find_credentials(environ, file=file)) == "option"
    with pytest.raises(ConfigError, match="keys beside it"):
        find_credentials(environ, file=file, access_key="k")


def test_half_an_account_is_refused() -> None:
    with pytest.raises(ConfigError, match="account me has no secret key"):
        find_credentials({}, access_key="me")
    with pytest.raises(ConfigError, match="needs the account"):
        find_credentials({"RMQ_SECRET_KEY": "hush"})


def test_a_named_file_has_to_be_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        find_credentials({"RMQ_CREDENTIALS": str(tmp_path / "none.yml")})


def test_the_default_file_is_the_first_that_is_there(tmp_path: Path) -> None:
    beside, home = tmp_path / "etc", tmp_path / "home"
    environ = {"ROCKETMQ_HOME": str(home)}
    assert default_file(environ, beside) is None
    in_home = written(home / "conf", "home")
    assert default_file(environ, beside) == in_home
    assert default_file({}, beside) is None
    in_folder = written(beside, "beside")
    assert default_file(environ, beside) == in_folder
