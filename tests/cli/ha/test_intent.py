"""What an operator has said of a name, and `rmq ha` makes of it: slaves that are meant, slaves that
are gone for good, a master that was replaced, messages that are saved before they are cut.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from rmq.cli import main
from rmq.cli.common.exit_codes import ExitCode
from rmq.cli.common.message_lines import decode_line
from rmq.cli.ha.health import findings, is_healthy
from rmq.cli.ha.members import Group, Member
from rmq.remoting.bodies import HaResyncBody
from rmq.store.core import Refusal
from rmq.testing.storage import MemoryStorage
from tests.cli.ha.ha_kit import (
    StandInBroker,
    StandInNameserver,
    master_status,
    serving,
    slave_seen,
    slave_status,
)
from tests.store.store_kit import open_core, put_numbered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from rmq.remoting.bodies import HaSlave, HaStatusBody

    Run = Callable[..., tuple[int, str, str]]

SLAVES = ("broker-a:1", "broker-a:2")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `rmq ha` and return exit code, output and errors."""
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)

    def run_ha(*arguments: str) -> tuple[int, str, str]:
        code = main(["--log-level", "warning", "ha", *arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return run_ha


@pytest.fixture
def brokers() -> Iterator[tuple[StandInBroker, StandInBroker, StandInNameserver]]:
    """A master and a slave that know of each other, and a nameserver that lists the master."""
    master, slave, nameserver = StandInBroker(), StandInBroker(), StandInNameserver({})
    with serving(master, slave, nameserver):
        master.now = master_status(master.address, slaves=(slave_seen(slave.address),))
        slave.now = slave_status(slave.address, master.address)
        nameserver.groups["broker-a"] = {0: master.address}
        yield master, slave, nameserver


def seen(name: str, *, connected: bool = True) -> HaSlave:
    return slave_seen(
        f"{name}-address", name=name, identity=name, connected=connected, in_sync=connected
    )


def alone(status: HaStatusBody) -> Group:
    return Group(
        name="broker-a", cluster="C", members=(Member(address="10.0.0.1:10911", status=status),)
    )


# --- how many slaves are meant ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("expected", "connected", "gone", "problem"),
    [
        pytest.param(-1, 1, 0, "", id="nothing told, one there"),
        pytest.param(-1, 0, 0, "no slave is connected", id="nothing told, none there"),
        pytest.param(-1, 1, 1, "is gone", id="nothing told, one left"),
        pytest.param(0, 0, 0, "", id="a lone master is meant"),
        pytest.param(0, 0, 1, "", id="a lone master is left"),
        pytest.param(1, 1, 1, "", id="one is meant and there, another one left"),
        pytest.param(1, 0, 0, "no slave is connected", id="one is meant, none there"),
        pytest.param(2, 1, 0, "1 slave connected, and is to have 2", id="two are meant, one there"),
        pytest.param(
            2, 0, 0, "no slave connected, and is to have 2", id="two are meant, none there"
        ),
        pytest.param(2, 1, 1, "is gone", id="two are meant, one left"),
        pytest.param(2, 2, 0, "", id="two are meant and there"),
        pytest.param(1, 2, 0, "", id="one is meant, two are there"),
    ],
)
def test_healthy_means_what_the_operator_meant(
    expected: int, connected: int, gone: int, problem: str
) -> None:
    slaves = [seen(name) for name in SLAVES[:connected]]
    slaves += [seen(f"gone:{number}", connected=False) for number in range(gone)]
    status = master_status(
        mode="ASYNC_MASTER", expected=expected, slaves=tuple(slaves), in_sync=SLAVES[:connected]
    )
    group = alone(status)
    problems = [each.what for each in findings(group) if each.is_problem]
    assert is_healthy(group) == (not problem)
    assert any(problem in what for what in problems) == bool(problem), problems


def test_a_sync_master_is_not_healthy_alone_whatever_is_meant() -> None:
    assert not is_healthy(alone(master_status(expected=0, slaves=(), in_sync=())))


def test_the_status_tells_what_is_expected(
    run: Run, brokers: tuple[StandInBroker, StandInBroker, StandInNameserver]
) -> None:
    master, slave, _ = brokers
    master.now = master_status(master.address, expected=2, slaves=(slave_seen(slave.address),))
    code, out, _ = run("status", "-b", master.address)
    assert code == ExitCode.FAILURE
    assert "1 of 1 slave, 2 expected, 1 needed: broker-a:1" in out
    assert "expectedSlaves=1" in out
    _, out, _ = run("status", "-b", master.address, "--json")
    assert json.loads(out)["brokers"][0]["members"][0]["status"]["expected"] == 2


# --- a slave that is gone for good ------------------------------------------------------------


def test_a_slave_is_forgotten_by_its_master(
    run: Run, brokers: tuple[StandInBroker, StandInBroker, StandInNameserver]
) -> None:
    master, _, nameserver = brokers
    code, out, err = run("forget", "-n", nameserver.address, "--slave", "broker-a:2")
    assert (code, err) == (ExitCode.OK, "")
    assert out == f"{master.address} has forgotten its slave broker-a:2\n"
    assert master.orders == [("forget", "broker-a:2")]
    master.refusal = "the slave broker-a:2 is connected, and no other store is remembered"
    code, _, err = run("forget", "-b", master.address, "--slave", "broker-a:2")
    assert code == ExitCode.FAILURE
    assert f"{master.address} refused to forget the slave: {master.refusal}" in err


# --- a master that was replaced ---------------------------------------------------------------


def test_a_fenced_master_that_no_nameserver_lists_is_shown(
    run: Run, brokers: tuple[StandInBroker, StandInBroker, StandInNameserver]
) -> None:
    master, slave, nameserver = brokers
    old, stranger = StandInBroker(), StandInBroker()
    with serving(old, stranger):
        old.now = master_status(
            old.address,
            state=Refusal.FENCED.value,
            epoch=2,
            last_error="epoch 3 is at another",
            slaves=(slave_seen(master.address, connected=False, identity="dd"),),
        )
        stranger.now = master_status(
            stranger.address, state=Refusal.FENCED.value, broker_name="broker-b"
        )
        master.now = master_status(
            master.address,
            slaves=(slave_seen(slave.address),),
            former_masters=("127.0.0.1:1", stranger.address, old.address),
        )
        for asked in (("-n", nameserver.address), ("-b", master.address)):
            code, out, _ = run("status", *asked)
            assert code == ExitCode.FAILURE
            assert f"problem: {old.address} takes no messages: {Refusal.FENCED.value}" in out
            assert "(epoch 3 is at another)" in out
            assert f"rmq ha demote -b {old.address}" in out
            assert stranger.address not in out
            assert "there are 2 masters" not in out
            # The new master was its slave.
            assert "gone" not in out
        # It was dealt with: it is a slave, and listed or not.
        old.now = slave_status(old.address, master.address)
        assert run("status", "-n", nameserver.address)[0] == ExitCode.OK


# --- hand-over --------------------------------------------------------------------------------


def test_the_slave_in_sync_that_has_most_takes_the_place_of_a_master(
    run: Run, brokers: tuple[StandInBroker, StandInBroker, StandInNameserver]
) -> None:
    master, slave, _ = brokers
    ahead = slave_seen("127.0.0.1:1", identity="cc", in_sync=False, appended=99_999_999)
    master.now = master_status(master.address, slaves=(ahead, slave_seen(slave.address)))
    code, out, _ = run("hand-over", "-b", master.address, "--yes")
    assert code == ExitCode.OK
    assert slave.orders == [("promote", False, None)]
    assert f"{slave.address} is master now" in out


@pytest.mark.parametrize("state", ["slave", "fenced"])
def test_a_broker_that_is_no_master_has_nothing_to_hand_over(
    run: Run, brokers: tuple[StandInBroker, StandInBroker, StandInNameserver], state: str
) -> None:
    master, slave, _ = brokers
    if state == "fenced":
        slave.now = master_status(slave.address, state=Refusal.FENCED.value)
    code, out, _ = run("hand-over", "-b", slave.address, "--yes")
    assert (code, out) == (
        ExitCode.OK,
        f"{slave.address} takes no messages as master: there is nothing to hand over\n",
    )
    assert (master.orders, slave.orders) == ([], [])


def test_a_master_without_a_slave_in_sync_cannot_hand_over(
    run: Run, brokers: tuple[StandInBroker, StandInBroker, StandInNameserver]
) -> None:
    master, slave, _ = brokers
    behind = slave_seen(slave.address, in_sync=False)
    master.now = master_status(master.address, slaves=(behind,))
    code, _, err = run("hand-over", "-b", master.address, "--yes")
    assert code == ExitCode.FAILURE
    assert "has no slave in sync that could take its place" in err
    assert slave.orders == []


# --- messages are saved before they are cut ---------------------------------------------------


@pytest.fixture
def diverged(
    brokers: tuple[StandInBroker, StandInBroker, StandInNameserver],
) -> StandInBroker:
    """A slave with three messages that its master does not have."""
    _, slave, _ = brokers
    core = open_core(MemoryStorage())
    results = put_numbered(core, range(5))
    begins = [result.physical_offset for result in results]
    stops = [*begins[1:], core.log.written]
    for begin, stop in list(zip(begins, stops, strict=True))[2:]:
        view = core.log.view(begin, stop - begin)
        assert view is not None
        slave.records_at[begin] = bytes(view)
    slave.resync_body = HaResyncBody(
        common_end=begins[2],
        local_end=stops[-1],
        master_end=begins[2],
        cut_bytes=stops[-1] - begins[2],
        cut_messages=3,
    )
    slave.now = slave_status(slave.address, state="diverged")
    slave.after = slave_status(slave.address)
    return slave


def test_what_is_cut_is_saved_first_as_lines_that_can_be_sent_again(
    run: Run, diverged: StandInBroker, tmp_path: Path
) -> None:
    file = tmp_path / "cut.jsonl"
    code, out, err = run("resync", "-b", diverged.address, "--yes", "--save", str(file))
    assert (code, err) == (ExitCode.OK, "")
    assert f"saved: 3 messages in {file}" in out
    kinds = [order[0] if isinstance(order, tuple) else order for order in diverged.orders]
    assert kinds == ["resync", "records", "records", "records", "resync"]
    assert diverged.orders[-1] == ("resync", False)
    lines = file.read_bytes().splitlines()
    messages = [decode_line(line, "T", tag=None, keys=(), delay_level=0) for line in lines]
    assert [message.body for message in messages] == [b"body 2", b"body 3", b"body 4"]
    offsets = [json.loads(line)["physical_offset"] for line in lines]
    assert offsets == sorted(diverged.records_at)
    assert list(tmp_path.iterdir()) == [file]
    assert file.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("fault", ["the file is there", "no such folder", "a damaged record"])
def test_nothing_is_cut_if_it_cannot_be_saved(
    run: Run, diverged: StandInBroker, tmp_path: Path, fault: str
) -> None:
    file = tmp_path / "cut.jsonl"
    if fault == "the file is there":
        file.write_text("mine")
    elif fault == "no such folder":
        file = tmp_path / "nowhere" / "cut.jsonl"
    else:
        last = max(diverged.records_at)
        diverged.records_at[last] = diverged.records_at[last][:-20] + bytes(20)
        start = diverged.resync_body.common_end
        assert len(diverged.records_at[start]) > 100
        whole = bytearray(diverged.records_at[start])
        whole[90] ^= 1
        diverged.records_at[start] = bytes(whole)
    code, _, err = run("resync", "-b", diverged.address, "--yes", "--save", str(file))
    assert code == ExitCode.FAILURE
    assert str(file) in err or "a record cannot be read" in err
    assert ("resync", False) not in diverged.orders
    left = [path for path in tmp_path.iterdir() if path.name != "cut.jsonl"]
    assert left == []
    assert file.exists() == (fault == "the file is there")
