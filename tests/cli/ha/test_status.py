"""`rmq ha status` as an operator meets it: one glance, and what to do."""

from __future__ import annotations

import json
import re
import socket
import sys
from typing import TYPE_CHECKING

import msgspec
import pytest

from rmq.cli import main
from rmq.cli.common.exit_codes import ExitCode
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

    from rmq.remoting.bodies import HaSlave, HaStatusBody

    Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `rmq ha status` and return exit code, output and errors."""
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)

    def run_status(*arguments: str) -> tuple[int, str, str]:
        code = main(["ha", "status", *arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return run_status


class Pair:
    """A master and a slave that know of each other, and a nameserver that knows both."""

    def __init__(self, master: StandInBroker, slave: StandInBroker, ns: StandInNameserver) -> None:
        self.master = master
        self.slave = slave
        self.nameserver = ns

    @property
    def named(self) -> tuple[str, ...]:
        return "-n", self.nameserver.address, "--name", "broker-a"


@pytest.fixture
def pair() -> Iterator[Pair]:
    master, slave, nameserver = StandInBroker(), StandInBroker(), StandInNameserver({})
    with serving(master, slave, nameserver):
        master.now = master_status(master.address, slaves=(slave_seen(slave.address),))
        slave.now = slave_status(slave.address, master.address)
        nameserver.groups["broker-a"] = {0: master.address, 1: slave.address}
        yield Pair(master, slave, nameserver)


def row_of(out: str, address: str) -> list[str]:
    """The cells of a broker's line in the table."""
    (line,) = [line for line in out.splitlines() if re.match(rf"(master|slave) .*{address}", line)]
    return re.split(r" {2,}", line)


@pytest.mark.parametrize("asked", ["nameserver", "master", "slave"])
def test_one_glance_shows_mode_in_sync_set_and_lag_whoever_is_asked(
    run: Run, pair: Pair, asked: str
) -> None:
    which = {
        "nameserver": pair.named,
        "master": ("-b", pair.master.address),
        "slave": ("-b", pair.slave.address),
    }
    code, out, err = run(*which[asked])
    assert (code, err) == (ExitCode.OK, "")
    assert out.startswith("broker-a of DefaultCluster: healthy\n")
    assert re.search(
        r"^mode +sync: a send is answered when the master and 1 slave in sync hold it,"
        r" from offset 1,024 on$",
        out,
        re.MULTILINE,
    )
    assert re.search(r"^in sync +1 of 1 slave, 1 needed: broker-a:1$", out, re.MULTILINE)
    assert re.search(r"^replicated +up to 12,345,678, the end of the log$", out, re.MULTILINE)
    assert re.search(r"^epoch +3$", out, re.MULTILINE)
    assert row_of(out, pair.master.address)[1:] == [
        "broker-a:0",
        pair.master.address,
        "writable",
        "12,345,678",
    ]
    assert row_of(out, pair.slave.address) == [
        "slave",
        "broker-a:1",
        pair.slave.address,
        "streaming",
        "yes",
        "12,345,678",
        "0 B",
        "0.0 s",
        "0.3 s ago",
    ]


def test_the_environment_names_the_nameserver_as_for_all_tools(
    run: Run, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", f"127.0.0.1:1;{pair.nameserver.address}")
    code, out, _ = run("--name", "broker-a")
    assert code == ExitCode.OK
    assert row_of(out, pair.slave.address)


def test_without_a_name_all_brokers_are_shown(run: Run, pair: Pair) -> None:
    other = StandInBroker()
    with serving(other):
        other.now = master_status(other.address, broker_name="broker-b")
        pair.nameserver.groups["broker-b"] = {0: other.address}
        code, out, _ = run("-n", pair.nameserver.address)
    assert code == ExitCode.OK
    assert [line.split()[0] for line in out.splitlines() if line.endswith(": healthy")] == [
        "broker-a",
        "broker-b",
    ]


def test_json_holds_everything_that_was_said(run: Run, pair: Pair) -> None:
    code, out, _ = run(*pair.named, "--json")
    assert code == ExitCode.OK
    told = json.loads(out)
    assert told["healthy"] is True
    (broker,) = told["brokers"]
    assert (broker["brokerName"], broker["clusterName"]) == ("broker-a", "DefaultCluster")
    assert (broker["healthy"], broker["findings"]) == (True, [])
    master, slave = broker["members"]
    assert (master["address"], slave["address"]) == (pair.master.address, pair.slave.address)
    assert (master["answers"], master["stock"], master["error"]) == (True, False, None)
    assert master["status"]["modeOffset"] == 1024
    assert master["status"]["slaves"][0]["lagMs"] == 0
    assert slave["status"]["master"]["inSync"] is True


def test_json_names_problems_and_what_to_do(run: Run, pair: Pair) -> None:
    pair.slave.now = slave_status(pair.slave.address, pair.master.address, state="diverged")
    code, out, _ = run(*pair.named, "--json")
    assert code == ExitCode.FAILURE
    told = json.loads(out)
    (finding,) = told["brokers"][0]["findings"]
    assert (told["healthy"], told["brokers"][0]["healthy"]) == (False, False)
    assert (finding["problem"], finding["address"]) == (True, pair.slave.address)
    assert finding["todo"] == (
        f"see what would be cut off: rmq ha resync -b {pair.slave.address} --dry-run"
    )


# --- what is wrong, and what to do ------------------------------------------------------------


def late(**changes: object) -> HaSlave:
    return slave_seen("S", in_sync=False, lag_bytes=3 * 1024**2, lag_ms=65_000, **changes)


MASTER_PROBLEMS = [
    pytest.param(
        master_status(in_sync=(), replicated=-1, slaves=()),
        "stores messages, but answers SLAVE_NOT_AVAILABLE: no slave in sync, 1 needed",
        "bring slaves back; or stop waiting for slaves: rmq ha switch async -b {master}",
        id="sync without slaves",
    ),
    pytest.param(
        master_status(
            state="too few slaves are in sync (minInSyncReplicas)", minimum=1, in_sync=(), slaves=()
        ),
        "refuses messages: no slave in sync, minInSyncReplicas is 1",
        "rmq ha switch async -b {master}",
        id="below the minimum",
    ),
    pytest.param(
        master_status(needed=2),
        "answers SLAVE_NOT_AVAILABLE: 1 slave in sync, 2 needed",
        "rmq ha switch async",
        id="fewer than needed",
    ),
    pytest.param(
        master_status(mode="ASYNC_MASTER", in_sync=(), slaves=()),
        "no slave is connected: what it stores is nowhere else",
        "start a slave",
        id="async and alone",
    ),
    pytest.param(
        master_status(mode="ASYNC_MASTER", slaves=(late(),)),
        "(slave broker-a:1) is not in sync: 3.0 MiB behind",
        "rmq ha status -b {master} --watch 2",
        id="slave behind",
    ),
    pytest.param(
        master_status(
            mode="ASYNC_MASTER", slaves=(late(connected=False, why="it was silent for 20.0 s"),)
        ),
        "(slave broker-a:1) is gone for 0.3 s: it was silent for 20.0 s",
        "rmq ha status -b S",
        id="slave gone",
    ),
    pytest.param(
        master_status(
            state="another broker has become master", last_error="epoch 4 is at 10.0.0.9:10911"
        ),
        "takes no messages: another broker has become master (epoch 4 is at 10.0.0.9:10911)",
        "rmq ha demote -b {master}",
        id="fenced",
    ),
    pytest.param(
        master_status(state="another broker has become master"),
        "takes no messages: another broker has become master",
        "if there is none, make this one master again: rmq ha promote -b {master}",
        id="fenced, and alone",
    ),
    pytest.param(
        master_status(waits_for="only 1 of 3 nameservers answer"),
        "has not recorded yet by what rule it answers sends, so they have to satisfy the old and"
        " the new one: only 1 of 3 nameservers answer",
        "see that its slaves and most of its nameservers run",
        id="not recorded",
    ),
    pytest.param(
        master_status(mode="ASYNC_MASTER", in_force="sync", in_sync=(), slaves=()),
        "stores messages, but answers SLAVE_NOT_AVAILABLE: no slave in sync, 1 needed",
        "bring slaves back",
        id="still sync without slaves",
    ),
    pytest.param(
        master_status(state="the disk is full"),
        "takes no messages: the disk is full",
        "make room on its disk",
        id="disk full",
    ),
]


@pytest.mark.parametrize(("status", "what", "todo"), MASTER_PROBLEMS)
def test_what_is_wrong_with_a_master_is_said_with_what_to_do(
    run: Run, status: HaStatusBody, what: str, todo: str
) -> None:
    master = StandInBroker()
    with serving(master):
        master.now = status
        code, out, _ = run("-b", master.address)
    assert code == ExitCode.FAILURE
    assert out.startswith("broker-a of DefaultCluster: NOT HEALTHY, ")
    assert what in out
    assert todo.format(master=master.address) in out


SLAVE_PROBLEMS = [
    pytest.param(
        {"state": "idle", "master": master_seen("", ha_address="")},
        "knows no master",
        "haMasterAddress",
        id="idle",
    ),
    pytest.param(
        {"state": "connecting", "last_error": "Connection refused"},
        "is not connected to its master: Connection refused",
        "listenPort + 1",
        id="connecting",
    ),
    pytest.param(
        {
            "state": "catching up",
            "master": master_seen("M", in_sync=False, lag_bytes=1536, lag_ms=-1),
        },
        "is catching up and not in sync yet, 1.5 KiB behind",
        "--watch 2",
        id="catching up",
    ),
    pytest.param(
        {"state": "diverged", "last_error": "the slave ends at 9, the master at 5"},
        "has DIVERGED from its master and follows it no longer: the slave ends at 9",
        "rmq ha resync -b {slave} --dry-run",
        id="diverged",
    ),
    pytest.param(
        {"state": "stale", "master": master_seen("127.0.0.1:1")},
        "was asked to follow a master of an older epoch",
        "rmq ha demote -b 127.0.0.1:1",
        id="stale",
    ),
    pytest.param({"state": "refused"}, "was turned away", "haSecret", id="refused"),
    pytest.param({"state": "failed"}, "cannot write its log", "repair its disk", id="failed"),
    pytest.param(
        {"state": "outrun"},
        "has stopped, because its master no longer has what it lacks",
        "rmq ha resync -b {slave}",
        id="outrun",
    ),
    pytest.param({"state": "reseeding"}, "copies the log again", "wait", id="reseeding"),
    pytest.param({"state": "changing role"}, "is changing role", "see its log", id="other"),
]


@pytest.mark.parametrize(("changes", "what", "todo"), SLAVE_PROBLEMS)
def test_what_is_wrong_with_a_slave_is_said_with_what_to_do(
    run: Run, changes: dict[str, object], what: str, todo: str
) -> None:
    slave = StandInBroker()
    with serving(slave):
        slave.now = msgspec.structs.replace(slave_status(slave.address), **changes)
        code, out, _ = run("-b", slave.address)
    assert code == ExitCode.FAILURE
    assert f"problem: {slave.address} {what}" in out
    assert todo.format(slave=slave.address) in out


def test_a_slave_that_is_behind_but_in_sync_is_healthy(run: Run, pair: Pair) -> None:
    pair.slave.now = slave_status(
        pair.slave.address,
        pair.master.address,
        state="catching up",
        master=master_seen(pair.master.address, lag_bytes=10, lag_ms=1500),
    )
    code, out, _ = run(*pair.named)
    assert code == ExitCode.OK, out


def test_what_a_slave_says_itself_is_not_told_twice(run: Run, pair: Pair) -> None:
    pair.master.now = master_status(
        pair.master.address,
        mode="ASYNC_MASTER",
        slaves=(slave_seen(pair.slave.address, connected=False, in_sync=False, why="diverged"),),
    )
    pair.slave.now = slave_status(pair.slave.address, pair.master.address, state="diverged")
    code, out, _ = run(*pair.named)
    assert code == ExitCode.FAILURE
    assert "is gone" not in out
    assert "has DIVERGED" in out
    assert row_of(out, pair.slave.address)[3:5] == ["diverged", "NO"]


def test_a_slave_that_came_back_with_another_store_is_not_missed(run: Run) -> None:
    master = StandInBroker()
    before = slave_seen("S", identity="old", connected=False, in_sync=False)
    with serving(master):
        master.now = master_status(slaves=(slave_seen("S"), before))
        code, out, _ = run("-b", master.address)
    assert code == ExitCode.OK, out


def test_two_masters_are_a_problem_and_the_older_one_is_to_go(run: Run, pair: Pair) -> None:
    pair.slave.now = master_status(pair.slave.address, epoch=2)
    code, out, _ = run(*pair.named)
    assert code == ExitCode.FAILURE
    assert f"there are 2 masters: {pair.master.address}, {pair.slave.address}" in out
    assert f"rmq ha demote -b {pair.slave.address}" in out


def test_a_dead_master_leads_to_the_promotion_of_its_slave(run: Run, pair: Pair) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        gone = f"127.0.0.1:{unused.getsockname()[1]}"
    pair.nameserver.groups["broker-a"] = {0: gone, 1: pair.slave.address}
    pair.slave.now = slave_status(pair.slave.address, gone, state="connecting")
    code, out, _ = run(*pair.named)
    assert code == ExitCode.FAILURE
    assert f"problem: {gone} does not answer: cannot connect to {gone}" in out
    assert f"rmq ha promote -b {pair.slave.address}" in out
    assert row_of(out, gone)[3] == "does not answer"
    assert re.search(r"^mode +sync: .*, when its slave last heard of it$", out, re.MULTILINE)


def test_a_slave_that_lost_its_master_is_not_in_sync_whatever_it_was_told_last(
    run: Run, pair: Pair
) -> None:
    pair.slave.now = slave_status(pair.slave.address, state="connecting")
    _, out, _ = run("-b", pair.slave.address)
    assert row_of(out, pair.slave.address)[3:5] == ["connecting", "NO"]
    assert row_of(out, "127.0.0.1:1")[3] == "as its slave knows"
    assert "has no master: nothing can be sent" in out


def test_slaves_without_a_master_lead_to_the_promotion_of_the_one_with_most(
    run: Run, pair: Pair
) -> None:
    pair.master.now = slave_status(pair.master.address, end=5, state="idle", master=None)
    pair.slave.now = slave_status(pair.slave.address, end=9, state="idle", master=None)
    code, out, _ = run(*pair.named)
    assert code == ExitCode.FAILURE
    assert "has no master: nothing can be sent" in out
    assert f"rmq ha promote -b {pair.slave.address}" in out
    assert re.search(r"^mode +not known: no master answers$", out, re.MULTILINE)


def test_notes_do_not_make_it_unhealthy(run: Run) -> None:
    master = StandInBroker()
    with serving(master):
        master.now = master_status(
            counters={"forged": 2, "refused": 1, "timeouts": 3, "unavailable": 1000},
            last_error="10.9.9.9:4711 says that it has 1000000000000, but the log ends at 12",
            waiting=2,
            visible=12_000_000,
        )
        code, out, _ = run("-b", master.address)
    assert code == ExitCode.OK
    for told in (
        "2 reports claimed bytes that were never sent, and counted for nothing",
        "haAllowedAddresses or haSecret",
        "1 connection to the port for slaves refused",
        "3 sends not confirmed by slaves in time (FLUSH_SLAVE_TIMEOUT)",
        "1,000 sends without enough slaves in sync (SLAVE_NOT_AVAILABLE)",
        "last error: 10.9.9.9:4711 says that it has 1000000000000",
        "2 sends for slaves",
        "337.6 KiB that consumers do not see yet",
    ):
        assert told in out


def test_brokers_of_another_make_are_told_apart(run: Run, pair: Pair) -> None:
    java = StandInBroker(is_stock=True, end=12_345_999)
    with serving(java):
        pair.nameserver.groups["broker-a"] = {0: java.address, 1: pair.slave.address}
        pair.slave.now = slave_status(
            pair.slave.address,
            java.address,
            master=master_seen(java.address, native=False, in_sync=False, lag_bytes=321),
        )
        code, out, _ = run(*pair.named)
    assert code == ExitCode.OK
    assert row_of(out, java.address)[3:] == ["not of rmq", "12,345,999"]
    assert "cannot be asked how its replication is going" in out
    assert re.search(r"^mode +not known: its master is not of rmq$", out, re.MULTILINE)


def test_a_stock_slave_is_shown_as_its_master_sees_it(run: Run) -> None:
    master = StandInBroker()
    stock = slave_seen("10.0.0.2:51000", name="10.0.0.2:51000", native=False, identity="stock x")
    with serving(master):
        master.now = master_status(in_sync=("10.0.0.2:51000",), slaves=(stock,))
        code, out, _ = run("-b", master.address)
    assert code == ExitCode.OK
    assert row_of(out, "10.0.0.2:51000")[3:5] == ["connected, stock", "yes"]


def test_what_a_peer_says_cannot_command_the_terminal(run: Run) -> None:
    master = StandInBroker()
    with serving(master):
        master.now = master_status(last_error="red \x1b[31m alert")
        _, out, _ = run("-b", master.address)
    assert "\x1b" not in out
    assert "red \\x1b[31m alert" in out


# --- the mode in force ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("configured", "in_force", "line"),
    [
        (
            "ASYNC_MASTER",
            "sync",
            "sync: a send is answered when the master and 1 slave in sync hold it, from offset"
            " 1,024 on; brokerRole=ASYNC_MASTER is not in force yet, async will be next",
        ),
        (
            "SYNC_MASTER",
            "async",
            "async: a send is answered when the master holds it, from offset 1,024 on;"
            " brokerRole=SYNC_MASTER is not in force yet, sync will be next",
        ),
        (
            "ASYNC_MASTER",
            "async",
            "async: a send is answered when the master holds it, from offset 1,024 on",
        ),
    ],
)
def test_the_mode_is_the_one_in_force(
    run: Run, pair: Pair, configured: str, in_force: str, line: str
) -> None:
    pair.master.now = msgspec.structs.replace(
        pair.master.now, mode=configured, in_force=in_force, waits_for=""
    )
    _, out, _ = run(*pair.named)
    assert re.search(rf"^mode +{re.escape(line)}$", out, re.MULTILINE)


# --- what nameservers say ---------------------------------------------------------------------


@pytest.fixture
def second(pair: Pair) -> Iterator[StandInNameserver]:
    """A second nameserver, which knows the same as the first."""
    nameserver = StandInNameserver({"broker-a": dict(pair.nameserver.groups["broker-a"])})
    with serving(nameserver):
        yield nameserver


def both(pair: Pair, second: StandInNameserver) -> tuple[str, ...]:
    return "-n", f"{pair.nameserver.address};{second.address}", "--name", "broker-a"


def test_nameservers_that_agree_are_not_worth_a_word(
    run: Run, pair: Pair, second: StandInNameserver
) -> None:
    code, out, _ = run(*both(pair, second))
    assert code == ExitCode.OK
    assert second.address not in out
    assert len([line for line in out.splitlines() if line.startswith("slave ")]) == 1


@pytest.mark.parametrize("can_be_asked", [True, False])
def test_a_master_that_no_nameserver_lists_is_a_problem(
    run: Run, pair: Pair, can_be_asked: bool
) -> None:
    # Its slave follows it, but clients do not find it.
    pair.nameserver.groups["broker-a"] = {1: pair.slave.address}
    master = pair.master.address
    if not can_be_asked:
        master = "127.0.0.1:1"
        pair.slave.now = slave_status(pair.slave.address, master)
    code, out, _ = run(*pair.named)
    assert code == ExitCode.FAILURE
    assert out.startswith("broker-a of DefaultCluster: NOT HEALTHY, 1 problem\n")
    assert (
        f"problem: broker-a has a master, {master}, that is listed by no nameserver"
        f" ({pair.nameserver.address}): clients do not find it and cannot send\n"
        f"  -> see why it does not register: rmq ha status -b {master}, and its log; its"
        " namesrvAddr has to name these nameservers\n"
    ) in out
    assert row_of(out, master)[3] == ("writable" if can_be_asked else "as its slave knows")


def test_no_master_at_all_is_said_once(run: Run, pair: Pair) -> None:
    pair.nameserver.groups["broker-a"] = {1: pair.slave.address}
    pair.slave.now = slave_status(pair.slave.address, "127.0.0.1:1", state="connecting")
    code, out, _ = run(*pair.named)
    assert code == ExitCode.FAILURE
    assert "has no master: nothing can be sent" in out
    assert "listed by no nameserver" not in out


def test_nameservers_that_disagree_about_the_master_are_named_with_theirs(
    run: Run, pair: Pair, second: StandInNameserver
) -> None:
    second.groups["broker-a"] = {0: pair.slave.address}
    code, out, _ = run(*both(pair, second))
    assert code == ExitCode.FAILURE
    assert (
        f"problem: broker-a has another master at each nameserver: {pair.nameserver.address} lists"
        f" {pair.master.address}, {second.address} lists {pair.slave.address}\n"
    ) in out
    assert "rmq ha demote -b MASTER" in out


@pytest.mark.parametrize("knows", ["the slave", "nothing"])
def test_a_nameserver_that_lists_no_master_is_named(
    run: Run, pair: Pair, second: StandInNameserver, knows: str
) -> None:
    if knows == "nothing":
        second.groups.clear()
    else:
        second.groups["broker-a"] = {1: pair.slave.address}
    code, out, _ = run(*both(pair, second))
    assert code == ExitCode.FAILURE
    assert (
        f"problem: broker-a has a master, {pair.master.address}, that is not listed by"
        f" {second.address}: clients that ask there cannot send\n"
    ) in out
    assert f"see in the log of {pair.master.address} whether it can register there" in out


def test_a_nameserver_that_does_not_answer_is_a_note(run: Run, pair: Pair) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        gone = f"127.0.0.1:{unused.getsockname()[1]}"
    code, out, _ = run("-n", f"{gone};{pair.nameserver.address}", "--name", "broker-a")
    assert code == ExitCode.OK
    assert f"note: {gone} (nameserver) does not answer: cannot connect to {gone}" in out


def test_json_says_whom_each_nameserver_lists(
    run: Run, pair: Pair, second: StandInNameserver
) -> None:
    second.groups.clear()
    _, out, _ = run(*both(pair, second), "--json")
    assert json.loads(out)["brokers"][0]["nameservers"] == [
        {"address": pair.nameserver.address, "master": pair.master.address, "error": None},
        {"address": second.address, "master": None, "error": None},
    ]


# --- when nobody answers ----------------------------------------------------------------------


def test_a_broker_that_is_not_there_is_unavailable_with_a_hint(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    code, out, err = run("-b", address)
    assert (code, out) == (ExitCode.UNAVAILABLE, "")
    assert f"rmq: error: cannot connect to {address}: " in err
    assert "hint: check that the broker runs and that this is its listenPort" in err


def test_a_broker_that_is_silent_is_unavailable_with_a_hint(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        code, _, err = run("-b", address, "--timeout", "0.2")
    assert code == ExitCode.UNAVAILABLE
    assert f"HA_STATUS to {address}: no answer within 0.2 s" in err
    assert "--timeout" in err


def test_a_broker_of_another_make_named_by_address_is_explained(run: Run) -> None:
    java = StandInBroker(is_stock=True)
    with serving(java):
        code, _, err = run("-b", java.address)
    assert code == ExitCode.FAILURE
    assert f"the broker at {java.address} does not know HA_STATUS: it is not of rmq" in err
    assert "hint: only brokers of rmq know this request" in err


def test_an_unknown_broker_name_is_answered_with_those_known(run: Run, pair: Pair) -> None:
    code, _, err = run("-n", pair.nameserver.address, "--name", "broker-z")
    assert code == ExitCode.FAILURE
    assert "knows no broker broker-z" in err
    assert "hint: it knows: broker-a" in err


def test_a_nameserver_without_brokers_is_explained(run: Run, pair: Pair) -> None:
    pair.nameserver.groups.clear()
    code, _, err = run("-n", pair.nameserver.address)
    assert code == ExitCode.FAILURE
    assert "knows no broker" in err
    assert "namesrvAddr" in err


def test_a_nameserver_that_is_not_there_is_unavailable_with_a_hint(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    code, _, err = run("-n", address)
    assert code == ExitCode.UNAVAILABLE
    assert "check that the nameserver runs" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param([], "which broker? give -b HOST:PORT", id="nobody"),
        pytest.param(["-b", "h:1", "-n", "n:1"], "leave out -n and --name", id="both"),
        pytest.param(["-b", "h:1", "--name", "x"], "leave out -n and --name", id="name"),
        pytest.param(["-b", "nowhere"], "'nowhere' is not host:port", id="address"),
        pytest.param(["-b", "h:1", "--watch", "0"], "not a number of seconds above 0", id="zero"),
        pytest.param(["-b", "h:1", "--timeout", "x"], "'x' is not a number of", id="no number"),
    ],
)
def test_a_wrong_command_line_is_a_usage_error(
    run: Run, arguments: list[str], message: str
) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (ExitCode.USAGE, "")
    assert message in err


def test_watching_shows_it_again_until_ctrl_c(
    run: Run, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("rmq.cli.ha.actions.time.sleep", pause)
    code, out, err = run(*pair.named, "--watch", "2")
    assert (code, err) == (ExitCode.INTERRUPTED, "rmq: interrupted\n")
    assert pauses == [2.0, 2.0, 2.0]
    assert out.count("broker-a of DefaultCluster: healthy") == 3
    assert "\x1b" not in out


def test_a_terminal_gets_colour_and_the_columns_that_it_has_room_for(
    run: Run, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.slave.now = slave_status(pair.slave.address, pair.master.address, state="diverged")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    for width, has_all in ((80, False), (120, True)):
        monkeypatch.setenv("COLUMNS", str(width))
        code, out, _ = run(*pair.named)
        assert code == ExitCode.FAILURE
        assert "\x1b[1;31mNOT HEALTHY" in out
        assert "\x1b[1;31mdiverged" in out
        assert "\x1b[32mwritable" in out
        lines = re.sub(r"\x1b\[[0-9;]*m", "", out).splitlines()
        assert max(map(len, lines)) <= width
        (head,) = (line for line in lines if line.startswith("ROLE "))
        assert ("HEARD FROM" in head) is has_all
        assert row_of("\n".join(lines), pair.slave.address)[2] == pair.slave.address
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in run(*pair.named)[1]


# --- without a secret -------------------------------------------------------------------------


def test_a_master_without_a_secret_says_what_that_means_and_is_healthy(
    run: Run, pair: Pair
) -> None:
    pair.master.now = msgspec.structs.replace(
        pair.master.now, has_secret=False, ha_address="127.0.0.1:10912"
    )
    code, out, _ = run(*pair.named)
    assert code == ExitCode.OK
    assert out.startswith("broker-a of DefaultCluster: healthy\n")
    (note,) = [line for line in out.splitlines() if "haSecret" in line and "note: " in line]
    assert note == (
        f"note: {pair.master.address} has no haSecret: any host that can connect to 127.0.0.1:10912"
        " gets all messages and can count as a slave without storing any"
    )
    assert "docs/ha.md" in out
    code, out, _ = run(*pair.named, "--json")
    told = json.loads(out)
    assert (code, told["healthy"]) == (ExitCode.OK, True)
    (broker,) = told["brokers"]
    (finding,) = broker["findings"]
    assert (finding["problem"], finding["address"]) == (False, pair.master.address)
    assert broker["members"][0]["status"]["hasSecret"] is False


@pytest.mark.parametrize("has_secret", [True, None], ids=["a secret", "an older version"])
def test_with_a_secret_or_when_it_is_not_known_nothing_is_said_of_it(
    run: Run, pair: Pair, has_secret: bool | None
) -> None:
    pair.master.now = msgspec.structs.replace(pair.master.now, has_secret=has_secret)
    code, out, _ = run(*pair.named)
    assert code == ExitCode.OK
    assert "haSecret" not in out


def test_a_slave_without_a_secret_has_no_port_that_anybody_could_connect_to(
    run: Run, pair: Pair
) -> None:
    pair.slave.now = msgspec.structs.replace(pair.slave.now, has_secret=False)
    _, out, _ = run(*pair.named)
    assert "haSecret" not in out
