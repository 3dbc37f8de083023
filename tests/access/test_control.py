"""Files behind a running server: read again when they change, changed by requests, never half."""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from rmq.access.control import AccessControl
from rmq.access.files import FILES_MAX, AccessFiles, find_files
from rmq.access.rules import AccessRefusedError
from rmq.access.watch import POLL_S, watch
from rmq.errors import ConfigError, StorageError
from rmq.remoting.bodies import DataVersion
from rmq.remoting.codes import RequestCode
from tests.access.access_kit import ACL, ADMIN, NOW_MS, USER, access_in, signed_frame
from tests.access.test_document import CHANGE
from tests.access.test_rules import command_of

if TYPE_CHECKING:
    from pathlib import Path

    from rmq.remoting.signing import Credentials

OTHER = "accounts:\n- {accessKey: another, secretKey: anothers, topicPerms: [T=PUB]}\n"


def knows(access: AccessControl, access_key: str) -> bool:
    return access_key in access._loaded.rules.accounts


def lines_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


# --- where the files are -------------------------------------------------------------------------


def test_the_file_is_in_the_java_installation_or_beside_the_settings(tmp_path: Path) -> None:
    settings, home = tmp_path / "etc" / "broker.conf", tmp_path / "rocketmq"
    beside, in_home = tmp_path / "etc" / "plain_acl.yml", home / "conf" / "plain_acl.yml"
    for path in (beside, in_home):
        path.parent.mkdir(parents=True)
    beside.write_text(ACL)
    assert find_files(None, None, settings).main == beside
    assert find_files(None, str(home), settings).main == beside
    in_home.write_text(ACL)
    assert find_files(None, str(home), settings).main == in_home
    assert find_files("conf/plain_acl.yml", str(home), settings).main == in_home
    assert find_files("plain_acl.yml", None, settings).main == beside
    assert find_files(str(beside), str(home), settings).main == beside


def test_a_file_that_is_nowhere_is_named_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        find_files(None, str(tmp_path / "rocketmq"), tmp_path / "broker.conf")
    assert caught.value.text == (
        f"aclEnable: there is no file of accounts: {tmp_path}/rocketmq/conf/plain_acl.yml and"
        f" {tmp_path}/plain_acl.yml do not exist"
    )
    assert caught.value.hint is not None
    with pytest.raises(
        ConfigError, match=r"there is no file of accounts: \S+/x.yml does not exist"
    ):
        find_files("x.yml", None, tmp_path / "broker.conf")


def test_every_yaml_file_of_the_folder_counts(tmp_path: Path) -> None:
    (tmp_path / "acl" / "deeper").mkdir(parents=True)
    (tmp_path / "acl" / "deeper" / "more.yaml").write_text(OTHER)
    (tmp_path / "acl" / "team.yml").write_text("globalWhiteRemoteAddresses: ['*']\n")
    (tmp_path / "acl" / "team.yml.bak").write_text("{")
    access = access_in(tmp_path)
    assert knows(access, "another")
    assert knows(access, "the-user")
    _, versions = access.versions()
    assert list(versions) == [
        str(tmp_path / name) for name in ("acl/deeper/more.yaml", "acl/team.yml", "plain_acl.yml")
    ]


def test_the_number_of_files_is_bounded(tmp_path: Path) -> None:
    (tmp_path / "acl").mkdir()
    for number in range(FILES_MAX):
        (tmp_path / "acl" / f"{number}.yml").touch()
    with pytest.raises(ConfigError, match=f"has more than {FILES_MAX - 1} files"):
        access_in(tmp_path)


def test_the_first_account_with_a_key_counts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "acl").mkdir()
    other = tmp_path / "acl" / "a.yml"
    other.write_text("accounts:\n- {accessKey: the-user, secretKey: user-secret, admin: true}\n")
    other.chmod(0o600)
    access = access_in(tmp_path)
    assert access._loaded.rules.accounts["the-user"].is_admin
    assert lines_of(caplog) == [
        f"{tmp_path}/plain_acl.yml: access key the-user does not count, because {other} has it, too"
    ]


def test_a_file_that_others_may_read_is_warned_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    access_in(tmp_path)
    assert lines_of(caplog) == []
    path = tmp_path / "plain_acl.yml"
    path.chmod(0o644)
    AccessControl(AccessFiles(path))
    assert lines_of(caplog) == [
        f"{path} (accounts) is secret, and other users of this machine may read or change it (mode"
        f" 644): chmod 600 {path}"
    ]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "names no account and no address, so every request would be refused"),
        ("accounts: []\nglobalWhiteRemoteAddresses: ['']", "names no account and no address"),
        ("accounts:\n- accessKey: &a b\n", "line 2 has an anchor"),
        ("accounts:\n- {accessKey: some-key, secretKey: x}\n", "entry 1"),
    ],
)
def test_a_file_that_is_wrong_ends_the_start(tmp_path: Path, text: str, wrong: str) -> None:
    with pytest.raises(ConfigError, match=wrong) as caught:
        access_in(tmp_path, text)
    assert str(tmp_path / "plain_acl.yml") in str(caught.value)


# --- read again ----------------------------------------------------------------------------------


async def test_a_changed_file_is_read_again_within_seconds(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    access = access_in(tmp_path)
    told, outcomes = trio.open_memory_channel[bool](math.inf)

    def poll() -> None:
        trio.from_thread.run_sync(told.send_nowait, access.poll())

    async with trio.open_nursery() as nursery:
        # While it polls no task has a deadline, so the clock stands still for the thread.
        nursery.start_soon(watch, poll)
        assert not await outcomes.receive()
        (tmp_path / "plain_acl.yml").write_text(ACL.replace("the-user", "the-other"))
        changed_at = trio.current_time()
        while not await outcomes.receive():
            pass
        assert trio.current_time() - changed_at <= 2 * POLL_S
        nursery.cancel_scope.cancel()
    assert knows(access, "the-other")
    assert not knows(access, "the-user")


def test_a_file_is_read_only_when_it_has_changed(tmp_path: Path) -> None:
    access = access_in(tmp_path)
    loaded = access._loaded
    assert not access.poll()
    assert access._loaded is loaded
    (tmp_path / "acl").mkdir()
    (tmp_path / "acl" / "a.yml").write_text(OTHER)
    assert access.poll()
    assert knows(access, "another")
    (tmp_path / "acl" / "a.yml").unlink()
    assert access.poll()
    assert not knows(access, "another")


@pytest.mark.parametrize("wrong", ["accounts: [", "", "\x00", "accounts: [{accessKey: short}]"])
def test_a_file_that_becomes_wrong_changes_nothing_and_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, wrong: str
) -> None:
    access = access_in(tmp_path)
    path = tmp_path / "plain_acl.yml"
    path.write_text(wrong)
    for _ in range(3):
        assert not access.poll()
    (line,) = lines_of(caplog)
    assert line.startswith(f"access control goes on with the rules it has: {path}")
    assert "secret" not in line.replace("secretKey", "")
    assert knows(access, "the-user")
    path.write_text(ACL.replace("the-user", "the-other"))
    assert access.poll()
    assert knows(access, "the-other")


def test_a_file_that_is_gone_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    access = access_in(tmp_path)
    (tmp_path / "plain_acl.yml").unlink()
    assert not access.poll()
    assert not access.poll()
    (line,) = lines_of(caplog)
    assert line.endswith("plain_acl.yml: does not exist (write the file, or name another one)")
    assert knows(access, "the-user")


# --- changed by requests -------------------------------------------------------------------------


def may(access: AccessControl, credentials: Credentials) -> bool:
    command = command_of(signed_frame(credentials, RequestCode.GET_BROKER_RUNTIME_INFO))
    try:
        access._loaded.rules.check("192.0.2.1:1", command)
    except AccessRefusedError:
        return False
    return True


def test_a_change_counts_at_once_and_is_in_the_file(tmp_path: Path) -> None:
    access = access_in(tmp_path)
    path = tmp_path / "plain_acl.yml"
    access.put_account(CHANGE)
    assert knows(access, "newcomer")
    assert path.stat().st_mode & 0o777 == 0o600
    assert sorted(each.name for each in tmp_path.iterdir()) == ["plain_acl.yml"]
    assert access.versions()[0] == DataVersion(timestamp=NOW_MS, counter=1)
    reopened = AccessControl(AccessFiles(path))
    assert knows(reopened, "newcomer")
    assert reopened.versions() == access.versions()
    assert access.remove_account("newcomer")
    assert not access.remove_account("newcomer")
    assert not knows(AccessControl(AccessFiles(path)), "newcomer")


def test_an_account_is_changed_in_its_own_file(tmp_path: Path) -> None:
    (tmp_path / "acl").mkdir()
    other = tmp_path / "acl" / "a.yml"
    other.write_text(OTHER)
    access = access_in(tmp_path)
    access.put_account(replace(CHANGE, access_key="another"))
    assert "newcomers" in other.read_text()
    assert (tmp_path / "plain_acl.yml").read_text() == ACL
    assert access.put_white_lists(["10.0.0.1"], str(other))
    assert "10.0.0.1" in other.read_text()
    assert access.remove_account("another")
    assert "another" not in other.read_text()


def test_a_link_is_followed_and_permissions_stay(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    access_in(real)
    link = tmp_path / "plain_acl.yml"
    link.symlink_to(real / "plain_acl.yml")
    (real / "plain_acl.yml").chmod(0o640)
    access = AccessControl(AccessFiles(link))
    access.put_account(CHANGE)
    assert link.is_symlink()
    assert "newcomer" in (real / "plain_acl.yml").read_text()
    assert (real / "plain_acl.yml").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("named", ["/etc/passwd", "plain_acl.yml", "acl/../../x.yml", "../x.yml"])
def test_no_other_file_is_written(tmp_path: Path, named: str) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "x.yml").write_text(OTHER)
    access = access_in(tmp_path / "conf")
    assert not access.put_white_lists(["*"], named)
    assert not access.put_white_lists(["*"], str(tmp_path / "conf" / "acl" / ".." / ".." / "x.yml"))
    assert not access.put_white_lists(["*"], str(tmp_path / "x.yml"))
    assert (tmp_path / "x.yml").read_text() == OTHER
    assert access.put_white_lists(["10.0.0.1"], None)
    assert access.put_white_lists(["10.0.0.2"], "")


def test_the_last_account_cannot_be_removed(tmp_path: Path) -> None:
    access = access_in(tmp_path, "accounts:\n- {accessKey: the-admin, secretKey: admin-secret}\n")
    text = (tmp_path / "plain_acl.yml").read_text()
    with pytest.raises(ConfigError, match="every request would be refused"):
        access.remove_account("the-admin")
    assert (tmp_path / "plain_acl.yml").read_text() == text
    assert may(access, ADMIN)


def test_a_change_that_cannot_be_written_does_not_count(tmp_path: Path) -> None:
    access = access_in(tmp_path)
    (tmp_path / "plain_acl.yml.tmp").mkdir()
    with pytest.raises(StorageError, match="cannot write"):
        access.put_account(replace(CHANGE, access_key=USER.access_key))
    assert may(access, USER)
    assert (tmp_path / "plain_acl.yml").read_text() == ACL


def test_what_was_edited_meanwhile_is_kept(tmp_path: Path) -> None:
    access = access_in(tmp_path)
    path = tmp_path / "plain_acl.yml"
    path.write_text(ACL.replace("the-user", "the-other"))
    access.put_account(CHANGE)
    assert knows(access, "the-other")
    assert knows(access, "newcomer")
    assert "the-other" in path.read_text()
