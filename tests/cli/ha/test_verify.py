"""`rmq ha verify`: logs of running brokers compared, and the first difference named closely."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

import pytest

from rmq.broker.replication.log_digests import log_digests
from rmq.cli import main
from rmq.cli.common.exit_codes import ExitCode
from rmq.cli.ha.verify import CLOSE_BYTES, STEP_BYTES, Pair, Range, VerifyError, first_difference
from rmq.model.offsets import PhysicalOffset
from tests.cli.ha.ha_kit import (
    LogOfBytes,
    StandInBroker,
    StandInNameserver,
    master_status,
    serving,
    slave_seen,
    slave_status,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rmq.remoting.bodies import HaDigestsBody

    Run = Callable[..., tuple[int, str, str]]

MIB = 1024**2
PAIR = Pair("m", "s")


def quiet(done: int, total: int) -> None:
    pass


# --- as a command -----------------------------------------------------------------------------


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)

    def run_verify(*arguments: str) -> tuple[int, str, str]:
        code = main(["ha", "verify", *arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return run_verify


@pytest.fixture
def pair() -> Iterator[tuple[StandInBroker, StandInBroker]]:
    """A master and a slave with the same 20 MiB, of which the slave has no more the first."""
    master, slave = StandInBroker(), StandInBroker()
    data = random.Random(6).randbytes(20 * MIB)
    with serving(master, slave):
        master.log, slave.log = LogOfBytes(data), LogOfBytes(data[MIB:], begin=MIB)
        master.now = master_status(
            master.address, end=master.log.end, slaves=(slave_seen(slave.address),)
        )
        slave.now = slave_status(slave.address, master.address, begin=MIB, end=slave.log.end)
        yield master, slave


def change(broker: StandInBroker, offset: int) -> None:
    """Change one byte of a log."""
    data = bytearray(broker.log.data)
    data[offset - broker.log.begin] ^= 1
    broker.log.data = bytes(data)


@pytest.mark.parametrize("asked", ["master", "slave", "nameserver"])
def test_logs_that_are_the_same_are_said_to_be(
    run: Run, pair: tuple[StandInBroker, StandInBroker], asked: str
) -> None:
    master, slave = pair
    nameserver = StandInNameserver({"broker-a": {0: master.address, 1: slave.address}})
    with serving(nameserver):
        which = {
            "master": ("-b", master.address),
            "slave": ("-b", slave.address),
            "nameserver": ("-n", nameserver.address, "--name", "broker-a"),
        }
        code, out, err = run(*which[asked])
    assert (code, err) == (ExitCode.OK, "")
    assert out == (
        f"the same: {master.address} and {slave.address}, from 1,048,576 to 20,971,520 (19.0 MiB)\n"
    )


def test_the_first_difference_is_named_to_64_kib(
    run: Run, pair: tuple[StandInBroker, StandInBroker]
) -> None:
    master, slave = pair
    change(slave, 18 * MIB + 5)
    change(slave, 19 * MIB)
    code, out, _ = run("-b", slave.address)
    assert code == ExitCode.FAILURE
    assert out.splitlines()[0] == (
        f"DIFFERENT: {master.address} and {slave.address}, first between 18,874,368 and 18,939,904"
        " (64.0 KiB); 17.0 MiB before that are the same"
    )
    assert "rmq store dump DIR --from-offset 18874368 --to-offset 18939904" in out
    assert f"rmq ha resync -b {slave.address} --dry-run" in out


def test_a_difference_as_json(run: Run, pair: tuple[StandInBroker, StandInBroker]) -> None:
    master, slave = pair
    change(slave, MIB)
    code, out, _ = run("-b", slave.address, "--json")
    assert code == ExitCode.FAILURE
    assert json.loads(out) == {
        "same": False,
        "comparisons": [
            {
                "master": master.address,
                "slave": slave.address,
                "start": MIB,
                "stop": MIB,
                "difference": {"start": MIB, "stop": MIB + CLOSE_BYTES},
            }
        ],
        "skipped": [],
    }


def test_who_cannot_be_compared_is_named_and_nobody_left_is_a_failure(run: Run) -> None:
    master = StandInBroker()
    stock = slave_seen("10.0.0.2:5", native=False)
    with serving(master):
        master.now = master_status(slaves=(stock,))
        code, out, err = run("-b", master.address)
    assert code == ExitCode.FAILURE
    assert out == "not compared: 10.0.0.2:5: it is not of rmq and knows no digests\n"
    assert "rmq: error: no slave could be compared with its master" in err


def test_a_slave_whose_master_is_gone_cannot_be_compared(run: Run) -> None:
    slave = StandInBroker()
    with serving(slave):
        slave.now = slave_status(slave.address)
        code, out, _ = run("-b", slave.address)
    assert code == ExitCode.FAILURE
    assert f"not compared: {slave.address}: its master cannot be asked" in out


def test_logs_without_a_common_range_are_explained(
    run: Run, pair: tuple[StandInBroker, StandInBroker]
) -> None:
    master, slave = pair
    slave.now = slave_status(slave.address, master.address, end=0)
    code, _, err = run("-b", slave.address)
    assert code == ExitCode.FAILURE
    assert "the logs have nothing in common to compare" in err


# --- the comparison itself --------------------------------------------------------------------


class Asked:
    """Two logs to ask for digests."""

    def __init__(self, master: LogOfBytes, slave: LogOfBytes) -> None:
        self.logs = {"m": master, "s": slave}
        self.count = 0

    async def __call__(self, address: str, start: int, stop: int, step: int) -> HaDigestsBody:
        self.count += 1
        return await log_digests(self.logs[address], start, stop, step)


@pytest.mark.parametrize("size", [1, 4095, 4096, 4097, 100_000, 1_000_000])
@pytest.mark.parametrize("place", ["first", "middle", "last"])
async def test_any_single_difference_is_found_in_its_range(size: int, place: str) -> None:
    data = random.Random(size).randbytes(size)
    at = {"first": 0, "middle": size // 2, "last": size - 1}[place]
    changed = bytearray(data)
    changed[at] ^= 0x80
    asked = Asked(LogOfBytes(data, 8192), LogOfBytes(bytes(changed), 8192))
    whole = Range(8192, 8192 + size)
    found = await first_difference(asked, PAIR, whole, 4096, quiet)
    assert found is not None
    assert found.start <= 8192 + at < found.stop
    assert found.size <= 4096
    same = Asked(asked.logs["m"], asked.logs["m"])
    assert await first_difference(same, PAIR, whole, 4096, quiet) is None


async def test_progress_comes_to_the_end_of_what_is_compared() -> None:
    told: list[tuple[int, int]] = []
    log = LogOfBytes(bytes(100_000))
    await first_difference(
        Asked(log, log), PAIR, Range(0, 100_000), 4096, lambda *each: told.append(each)
    )
    assert told[-1] == (100_000, 100_000)
    assert told == sorted(told)


async def test_a_question_is_bounded_however_long_the_log_is() -> None:
    log = LogOfBytes(bytes(1_000_000))
    asked = Asked(log, log)
    await first_difference(asked, PAIR, Range(0, 1_000_000), 4096, quiet)
    assert asked.count == 2 * 16  # 245 ranges, 16 to a question, both brokers


async def test_what_expires_while_it_is_compared_is_passed_over() -> None:
    data = random.Random(1).randbytes(300_000)
    master, slave = LogOfBytes(data), LogOfBytes(data)
    asked = Asked(master, slave)

    async def ask(address: str, start: int, stop: int, step: int) -> HaDigestsBody:
        if asked.count == 2 and slave.begin == 0:
            slave.begin, slave.data = PhysicalOffset(200_000), data[200_000:]
        return await asked(address, start, stop, step)

    assert await first_difference(ask, PAIR, Range(0, 300_000), 4096, quiet) is None


async def test_a_log_that_was_cut_meanwhile_is_an_error_and_no_endless_loop() -> None:
    asked = Asked(LogOfBytes(bytes(100_000)), LogOfBytes(bytes(50_000)))
    with pytest.raises(VerifyError, match="was a log cut meanwhile"):
        await first_difference(asked, PAIR, Range(0, 100_000), 4096, quiet)


def test_the_ranges_are_those_of_the_design() -> None:
    assert (STEP_BYTES, CLOSE_BYTES) == (16 * MIB, 64 * 1024)
