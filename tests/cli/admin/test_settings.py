"""`rmq config`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq.cli.common.exit_codes import ExitCode

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.admin_kit import Rmq, RmqJson


def test_settings_are_read_changed_and_compared(
    rmq: Rmq, rmq_json: RmqJson, tmp_path: Path
) -> None:
    (told,) = rmq_json("config", "get", "deleteWhen")["brokers"]
    assert (told["broker"], told["settings"]) == ("broker-a", {"deleteWhen": "04"})
    change = ("config", "set", "deleteWhen=05", "-b", "broker-a")
    code, output, _ = rmq(*change, "--dry-run")
    assert code == ExitCode.OK
    assert output.splitlines()[1].split() == ["broker-a:0", "deleteWhen", "04", "05"]
    assert rmq_json("config", "get", "deleteWhen")["brokers"][0]["settings"]["deleteWhen"] == "04"
    assert rmq(*change, "--yes")[0] == ExitCode.OK

    file = tmp_path / "broker.conf"
    file.write_text("brokerName=other\ndeleteWhen=05\n")
    against = ("config", "diff", "-b", "broker-a", "--file", str(file))
    code, output, _ = rmq(*against)
    assert (code, output) == (ExitCode.OK, f"the same in {file}, broker-a:0\n")
    code, output, _ = rmq(*against, "--all")
    assert code == ExitCode.FAILURE
    assert output.splitlines()[1].split() == ["brokerName", "other", "broker-a"]

    code, _, errors = rmq("config", "set", "deleteWhen=05")
    assert code == ExitCode.USAGE
    assert "which brokers?" in errors
    code, _, errors = rmq("config", "get", "nosuch")
    assert code == ExitCode.USAGE
    code, _, errors = rmq("config", "set", "deleteWhen=soon", "-b", "broker-a", "--yes")
    assert code == ExitCode.FAILURE
    assert "deleteWhen" in errors


def test_files_are_checked_and_keys_explained_without_a_broker(
    rmq: Rmq, rmq_json: RmqJson, tmp_path: Path
) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("brokerNam=a\nlistenPort=1\n")
    code, _, errors = rmq("config", "check", str(file))
    assert code == ExitCode.CONFIG
    assert "did you mean brokerName?" in errors
    assert "listenPort: 1 is not between" in errors
    file.write_text("brokerName=a\nbrokerRole=SYNC_MASTER\n")
    assert rmq_json("config", "check", str(file))["role"] == "SYNC_MASTER"
    (told,) = rmq_json("config", "reference", "deleteWhen")["settings"]
    assert (told["default"], told["effect"]) == ("04", "now")
    code, output, _ = rmq("config", "reference", "haSecret")
    assert output.startswith("key               haSecret\n")
    code, _, errors = rmq("config", "reference", "deletewen")
    assert code == ExitCode.FAILURE
    assert "hint: did you mean deleteWhen?" in errors
