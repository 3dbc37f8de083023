"""`rmq ha switch|promote|demote|resync` as operators meet them: what is shown, asked and done."""

from __future__ import annotations

import io
import json
import socket
from typing import TYPE_CHECKING

import pytest

from rmq.cli import main
from rmq.cli.common.exit_codes import ExitCode
from rmq.remoting.bodies import HaResyncBody
from tests.cli.ha.ha_kit import (
    StandInBroker,
    StandInNameserver,
    master_seen,
    master_status,
    serving,
    slave_seen,
    slave_status,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `rmq ha` and return exit code, output and errors."""
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)

    def run_ha(*arguments: str) -> tuple[int, str, str]:
        # The stand-ins log, too, and do so into the same standard error.
        code = main(["--log-level", "warning", "ha", *arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return run_ha


class Terminal(io.StringIO):
    """Somebody who types this."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def master() -> Iterator[StandInBroker]:
    broker = StandInBroker()
    with serving(broker):
        broker.now = master_status(broker.address, mode="ASYNC_MASTER")
        yield broker


@pytest.fixture
def slave() -> Iterator[StandInBroker]:
    broker = StandInBroker()
    with serving(broker):
        broker.now = slave_status(broker.address)
        yield broker


def unused_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        return f"127.0.0.1:{unused.getsockname()[1]}"


# --- switch -----------------------------------------------------------------------------------


def test_switch_waits_for_the_mode_and_tells_from_which_offset_on(
    run: Run, master: StandInBroker
) -> None:
    master.polls_until_switched = 2
    code, out, err = run("switch", "sync", "-b", master.address)
    assert (code, err) == (ExitCode.OK, "")
    assert out == (
        f"{master.address} is sync from offset 77 on: what is sent now is answered when the master"
        " and 1 slave in sync hold it\n"
    )
    assert master.orders == [("configure", {"brokerRole": "SYNC_MASTER"})]
    assert master.polls_until_switched == -1


def test_switch_to_async_says_what_is_given_up(run: Run, master: StandInBroker) -> None:
    master.now = master_status(master.address)
    code, out, _ = run("switch", "async", "-b", master.address)
    assert code == ExitCode.OK
    assert (
        "is async from offset 77 on: what is sent now is answered when the master holds it" in out
    )


def test_switch_to_the_mode_there_is_changes_nothing(run: Run, master: StandInBroker) -> None:
    code, out, _ = run("switch", "async", "-b", master.address)
    assert code == ExitCode.OK
    assert out == f"{master.address} is async already, from offset 1,024 on\n"
    assert master.orders == []


def test_switch_to_sync_without_a_slave_in_sync_is_refused(run: Run, master: StandInBroker) -> None:
    master.now = master_status(master.address, mode="ASYNC_MASTER", slaves=(), in_sync=())
    code, out, err = run("switch", "sync", "-b", master.address)
    assert (code, out, master.orders) == (ExitCode.FAILURE, "", [])
    assert "has no slave in sync and needs 1: every send would be answered SLAVE_NOT_AVAIL" in err
    assert "--force" in err
    assert run("switch", "sync", "-b", master.address, "--force")[0] == ExitCode.OK
    assert master.orders == [("configure", {"brokerRole": "SYNC_MASTER"})]


def test_switch_finds_the_master_through_a_nameserver(
    run: Run, master: StandInBroker, slave: StandInBroker
) -> None:
    nameserver = StandInNameserver({"broker-a": {0: master.address, 1: slave.address}})
    with serving(nameserver):
        code, _, _ = run("switch", "sync", "-n", nameserver.address, "--name", "broker-a")
    assert code == ExitCode.OK
    assert master.orders == [("configure", {"brokerRole": "SYNC_MASTER"})]
    assert slave.orders == []


def test_switch_of_a_slave_is_refused_with_the_address_of_its_master(
    run: Run, slave: StandInBroker
) -> None:
    code, _, err = run("switch", "sync", "-b", slave.address)
    assert code == ExitCode.FAILURE
    assert f"the broker at {slave.address} is a slave; this is for a master" in err
    assert "hint: its master: 127.0.0.1:1" in err


def test_a_refused_change_of_settings_says_why(run: Run, master: StandInBroker) -> None:
    master.refusal = "Can not update config in black list."
    code, _, err = run("switch", "sync", "-b", master.address)
    assert code == ExitCode.FAILURE
    assert f"{master.address} refused the change of its settings: Can not update config" in err


def test_switch_as_json_is_the_status_of_the_master(run: Run, master: StandInBroker) -> None:
    _, out, _ = run("switch", "sync", "-b", master.address, "--json")
    told = json.loads(out)
    assert (told["mode"], told["modeOffset"]) == ("SYNC_MASTER", 77)


# --- promote ----------------------------------------------------------------------------------


def test_promote_with_a_living_master_says_that_nothing_gets_lost(
    run: Run, master: StandInBroker, slave: StandInBroker
) -> None:
    slave.now = slave_status(slave.address, master.address, end=12_345_000)
    code, out, err = run("promote", "-b", slave.address, "--yes", "--mode", "sync")
    assert (code, err) == (ExitCode.OK, "")
    assert f"{slave.address} is to become the master of broker-a" in out
    assert f"its master {master.address} answers, 678 B ahead: it stops taking messages" in out
    assert f"{slave.address} is master now: sync, epoch 4, from offset 12,345,000 on" in out
    assert f"nothing is lost: {master.address} ended at 12,345,000" in out
    assert f"{master.address} is a slave now and will follow it" in out
    assert slave.orders == [("promote", False, "SYNC_MASTER")]
    assert master.orders == []


def test_promote_with_a_dead_master_says_what_may_be_lost(run: Run, slave: StandInBroker) -> None:
    gone = unused_address()
    slave.now = slave_status(
        slave.address, state="connecting", master=master_seen(gone, lag_bytes=4096)
    )
    code, out, _ = run("promote", "-b", slave.address, "--yes", "--accept-loss")
    assert code == ExitCode.OK
    assert f"its master {gone} does not answer and was heard 0.3 s ago" in out
    assert "at least 4.0 KiB are known to be missing" in out
    assert "make sure that the old master cannot come back by itself" in out
    assert f"LOST: 512 B that {gone} had" in out
    assert f"rmq ha demote -b {gone}" in out
    assert slave.orders == [("promote", True, None)]


def test_a_refused_promotion_says_why_and_how_to_insist(run: Run, slave: StandInBroker) -> None:
    slave.refusal = "messages that were acknowledged may be lost: it lacks 5 bytes"
    code, _, err = run("promote", "-b", slave.address, "--yes")
    assert code == ExitCode.FAILURE
    assert f"{slave.address} refused to become master: messages that were acknowledged may" in err
    assert "hint: --accept-loss" in err


def test_promote_of_a_slave_that_knows_no_master(run: Run, slave: StandInBroker) -> None:
    slave.now = slave_status(slave.address, state="idle", master=None)
    code, out, _ = run("promote", "-b", slave.address, "--yes")
    assert code == ExitCode.OK
    assert "it knows no master; what one may have had beyond that may be missing here" in out


def test_promote_when_the_last_master_is_a_slave_already(
    run: Run, master: StandInBroker, slave: StandInBroker
) -> None:
    master.now = slave_status(master.address, end=12_345_600)
    slave.now = slave_status(slave.address, master.address)
    _, out, _ = run("promote", "-b", slave.address, "--yes")
    assert f"{master.address}, its last master, is a slave now; its log ends at 12,345,600" in out


@pytest.mark.parametrize("answer", ["y\n", "YES\n"])
def test_promote_asks_and_goes_on_when_told_so(
    run: Run, slave: StandInBroker, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    code, _, err = run("promote", "-b", slave.address)
    assert code == ExitCode.OK
    assert err == "promote it? [y/N] "
    assert slave.orders == [("promote", False, None)]


@pytest.mark.parametrize("answer", ["\n", "n\n", "", "yesterday\n"])
def test_anything_but_yes_changes_nothing(
    run: Run, slave: StandInBroker, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    code, _, err = run("promote", "-b", slave.address)
    assert code == ExitCode.FAILURE
    assert err.endswith("nothing was changed\n")
    assert slave.orders == []


def test_without_a_terminal_to_ask_at_yes_must_be_given(
    run: Run, slave: StandInBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    code, _, err = run("promote", "-b", slave.address)
    assert code == ExitCode.USAGE
    assert "rmq ha promote: error: there is no terminal to ask at: --yes" in err
    assert slave.orders == []


def test_promote_of_a_master_names_its_slaves(run: Run, master: StandInBroker) -> None:
    master.now = master_status(master.address, slaves=(slave_seen("10.0.0.2:10911"),))
    code, _, err = run("promote", "-b", master.address, "--yes")
    assert code == ExitCode.FAILURE
    assert "is a master; this is for a slave" in err
    assert "hint: its slaves: 10.0.0.2:10911" in err


def test_of_several_slaves_one_must_be_named(
    run: Run, slave: StandInBroker, master: StandInBroker
) -> None:
    other = StandInBroker()
    nameserver = StandInNameserver({})
    with serving(nameserver, other):
        other.now = slave_status(other.address, broker_id=2)
        addresses = {0: master.address, 1: slave.address, 2: other.address}
        nameserver.groups["broker-a"] = addresses
        code, _, err = run("promote", "-n", nameserver.address, "--name", "broker-a", "--yes")
    assert code == ExitCode.FAILURE
    assert f"there is more than one slave: {slave.address}, {other.address}" in err
    assert "hint: name one with -b HOST:PORT" in err


def test_promote_as_json_is_the_answer_of_the_broker(run: Run, slave: StandInBroker) -> None:
    _, out, _ = run("promote", "-b", slave.address, "--yes", "--json")
    assert json.loads(out)["epoch"] == 4


# --- demote -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "follows", "told"),
    [
        pytest.param([], None, "it follows its master", id="nameserver"),
        pytest.param(
            ["--follow", "10.0.0.2:10912"],
            "10.0.0.2:10912",
            "it follows 10.0.0.2:10912",
            id="given",
        ),
    ],
)
def test_demote_tells_whom_it_follows(
    run: Run, master: StandInBroker, options: list[str], follows: str | None, told: str
) -> None:
    master.after = slave_status(master.address)
    code, out, _ = run("demote", "-b", master.address, "--yes", *options)
    assert code == ExitCode.OK
    assert out.splitlines()[-2:] == [
        f"{master.address} is a slave now; its log ends at 12,345,678",
        told,
    ]
    assert master.orders == [("demote", follows)]


def test_demote_asks_first_and_says_what_to_do_instead(run: Run, master: StandInBroker) -> None:
    code, out, err = run("demote", "-b", master.address)
    assert code == ExitCode.USAGE
    assert "promote that one instead (rmq ha promote)" in out
    assert "--yes does it without asking" in err
    assert master.orders == []


def test_demote_that_is_refused_names_the_way_to_force_it(run: Run, master: StandInBroker) -> None:
    master.refusal = "no other master of broker-a is known"
    code, _, err = run("demote", "-b", master.address, "--yes")
    assert code != ExitCode.OK
    assert "no other master of broker-a is known" in err
    assert "--force" in err


def test_demote_tells_at_once_when_the_logs_have_diverged(run: Run, master: StandInBroker) -> None:
    master.after = slave_status(master.address, state="diverged")
    code, out, _ = run("demote", "-b", master.address, "--yes")
    assert code == ExitCode.FAILURE
    assert out.splitlines()[-2:] == [
        "it has DIVERGED from its master and follows it no longer",
        f"  -> see what would be cut off: rmq ha resync -b {master.address} --dry-run",
    ]


def test_demote_without_another_master_says_so(
    run: Run, master: StandInBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmq.cli.ha.change.DEMOTED_S", 0.3)
    master.after = slave_status(master.address, state="idle", master=None)
    code, out, _ = run("demote", "-b", master.address, "--yes")
    assert code == ExitCode.FAILURE
    assert "it knows no master\n" in out


def test_an_address_to_follow_must_be_one(run: Run, master: StandInBroker) -> None:
    code, _, err = run("demote", "-b", master.address, "--follow", "somewhere")
    assert code == ExitCode.USAGE
    assert "'somewhere' is not host:port" in err


# --- resync -----------------------------------------------------------------------------------

DIVERGED = HaResyncBody(
    common_end=1_000_000,
    local_end=1_003_072,
    master_end=2_000_000,
    master_address="10.0.0.1:10911",
    cut_bytes=3072,
    cut_messages=3,
)


def test_a_dry_run_shows_what_would_be_cut_and_cuts_nothing(run: Run, slave: StandInBroker) -> None:
    slave.resync_body = DIVERGED
    code, out, _ = run("resync", "-b", slave.address, "--dry-run")
    assert code == ExitCode.OK
    assert out.splitlines() == [
        f"slave   {slave.address}  its log ends at 1,003,072",
        "master  10.0.0.1:10911  its log ends at 2,000,000",
        "common up to 1,000,000",
        "to be cut off the slave: 3 messages, 3.0 KiB, from 1,000,000 to 1,003,072",
    ]
    assert slave.orders == [("resync", True)]


def test_resync_shows_asks_cuts_and_waits_until_the_slave_follows_again(
    run: Run, slave: StandInBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    slave.now = slave_status(slave.address, state="diverged")
    slave.after = slave_status(slave.address, state="catching up")
    slave.resync_body = DIVERGED
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    code, out, err = run("resync", "-b", slave.address)
    assert (code, err) == (ExitCode.OK, "cut it off? it cannot be brought back [y/N] ")
    assert out.splitlines()[-2:] == [
        f"cut: 3 messages, 3.0 KiB; {slave.address} goes on from 1,000,000",
        "it follows its master again (catching up)",
    ]
    assert slave.orders == [("resync", True), ("resync", False)]


def test_a_slave_that_does_not_follow_after_the_cut_is_a_failure(
    run: Run, slave: StandInBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmq.cli.ha.change.FOLLOW_S", 0.3)
    slave.now = slave_status(slave.address, state="diverged")
    slave.resync_body = DIVERGED
    code, out, _ = run("resync", "-b", slave.address, "--yes")
    assert code == ExitCode.FAILURE
    assert (
        f"it does not follow its master yet, after 0.3 s: rmq ha status -b {slave.address}" in out
    )


def test_nothing_to_cut_is_said_and_nothing_is_asked(run: Run, slave: StandInBroker) -> None:
    slave.resync_body = HaResyncBody(common_end=9, local_end=9, master_end=12)
    code, out, _ = run("resync", "-b", slave.address)
    assert code == ExitCode.OK
    assert "nothing is to be cut" in out
    assert slave.orders == [("resync", True)]


def test_logs_with_nothing_in_common_are_named_as_that(run: Run, slave: StandInBroker) -> None:
    slave.resync_body = HaResyncBody(
        common_end=0, local_end=4096, master_end=12, cut_bytes=4096, cut_messages=9, is_reseed=True
    )
    code, out, _ = run("resync", "-b", slave.address, "--dry-run")
    assert code == ExitCode.OK
    assert (
        "nothing is common: all 4.0 KiB of the slave's log go, and it copies its master's log again"
        in out
    )


def test_a_dry_run_as_json_is_the_answer_of_the_broker(run: Run, slave: StandInBroker) -> None:
    slave.resync_body = DIVERGED
    _, out, _ = run("resync", "-b", slave.address, "--dry-run", "--json")
    told = json.loads(out)
    assert (told["commonEnd"], told["cutMessages"], told["dryRun"]) == (1_000_000, 3, True)
