"""`rmq ha` against brokers with access control: signed with every source of credentials."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from rmq.cli import main
from rmq.cli.common.exit_codes import ExitCode
from rmq.remoting.codes import RequestCode
from rmq.remoting.signing import Credentials
from tests.cli.ha.ha_kit import (
    StandInBroker,
    StandInNameserver,
    master_status,
    serving,
    slave_seen,
    slave_status,
)
from tests.remoting.signing_kit import SignatureGuard

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ADMIN: Final = Credentials(access_key="operator", secret_key="correct-horse")


class Guarded:
    """A master and a slave behind one guard, and the nameserver that lists them."""

    def __init__(self) -> None:
        self.guard = SignatureGuard(ADMIN)
        self.master, self.slave = StandInBroker(), StandInBroker()
        self.master.guard = self.slave.guard = self.guard
        self.nameserver = StandInNameserver({})


@pytest.fixture
def it(monkeypatch: pytest.MonkeyPatch) -> Iterator[Guarded]:
    for name in (
        "NAMESRV_ADDR",
        "RMQ_CREDENTIALS",
        "RMQ_ACCESS_KEY",
        "RMQ_SECRET_KEY",
        "ROCKETMQ_HOME",
    ):
        monkeypatch.delenv(name, raising=False)
    it = Guarded()
    with serving(it.master, it.slave, it.nameserver):
        seen = slave_seen(it.slave.address)
        it.master.now = master_status(it.master.address, slaves=(seen,))
        it.slave.now = slave_status(it.slave.address)
        it.nameserver.groups["broker-a"] = {0: it.master.address, 1: it.slave.address}
        yield it


def ha(*arguments: str) -> int:
    return main(["--log-level", "warning", "ha", *arguments])


def file_of(folder: Path, credentials: Credentials = ADMIN) -> Path:
    path = folder / "tools.yml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"accessKey: {credentials.access_key}\nsecretKey: {credentials.secret_key}\n")
    return path


def test_an_unsigned_request_is_refused_and_told_what_to_do(
    it: Guarded, capsys: pytest.CaptureFixture[str]
) -> None:
    for target in (["-b", it.master.address], ["-n", it.nameserver.address]):
        assert ha("status", *target) == ExitCode.FAILURE
        out, err = capsys.readouterr()
        assert not out
        # A broker that refuses is up: no slave is to be promoted because of that.
        assert "promote" not in err
        assert err.count("rmq: error:") == 1
        assert "refused to tell its status" in err
        assert "hint: the request was not signed" in err
        assert "--credentials" in err


@pytest.mark.parametrize(
    ("credentials", "hint"),
    [
        (Credentials(access_key="stranger", secret_key="x"), "has no such account"),
        (Credentials(access_key="operator", secret_key="x"), "is not the one that the server has"),
    ],
)
def test_wrong_credentials_are_told_apart(
    it: Guarded,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    credentials: Credentials,
    hint: str,
) -> None:
    file = file_of(tmp_path, credentials)
    code = ha("promote", "-b", it.slave.address, "--yes", "--credentials", str(file))
    assert code == ExitCode.FAILURE
    assert hint in capsys.readouterr().err
    assert it.slave.orders == []


def test_every_action_is_signed(it: Guarded, tmp_path: Path) -> None:
    account = ["--credentials", str(file_of(tmp_path))]
    ha("status", "-n", it.nameserver.address, *account)
    ha("switch", "async", "-b", it.master.address, *account)
    ha("demote", "-b", it.master.address, "--yes", "--force", *account)
    ha("promote", "-b", it.slave.address, "--yes", *account)
    ha("resync", "-b", it.slave.address, "--dry-run", *account)
    ha("verify", "-n", it.nameserver.address, *account)
    assert it.guard.refused == []
    assert it.guard.admitted[ADMIN.access_key] >= {
        RequestCode.HA_STATUS,
        RequestCode.HA_DEMOTE,
        RequestCode.HA_PROMOTE,
        RequestCode.HA_RESYNC,
        RequestCode.UPDATE_BROKER_CONFIG,
    }


def test_credentials_may_come_from_the_environment_or_the_home(
    it: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = ["status", "-b", it.slave.address]
    file_of(tmp_path / "conf")
    with monkeypatch.context() as patch:
        patch.setenv("ROCKETMQ_HOME", str(tmp_path))
        ha(*status)
    with monkeypatch.context() as patch:
        patch.setenv("RMQ_CREDENTIALS", str(tmp_path / "conf" / "tools.yml"))
        ha(*status)
    with monkeypatch.context() as patch:
        patch.setenv("RMQ_ACCESS_KEY", ADMIN.access_key)
        patch.setenv("RMQ_SECRET_KEY", ADMIN.secret_key)
        ha(*status)
    assert it.guard.refused == []
    ha(*status)
    assert it.guard.refused == [RequestCode.HA_STATUS]
