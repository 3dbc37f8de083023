"""A master and its slave on a bad network: cut, one-way, half-open, slow and lossy links.

    python -m tests.ha.processes.partitions [NAME...]
    python -m tests.ha.processes.partitions --asked

Every scenario checks what must hold (sends are answered truthfully and in time, the slave comes
back by itself, logs are equal, nothing that was acknowledged is missing) and tells its figures in a
line. The exit code is `NOT_ALLOWED` where no network can be made, with the reason.

Asked, it says that it is ready, takes names from standard input, one per line, and answers each
with a line of JSON: what it tells, and whether it failed.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import trio

from rmq.remoting.codes import ResponseCode
from tests.ha.processes.cluster import NOT_ALLOWED, forks
from tests.ha.processes.load import Producer, fill
from tests.ha.processes.network import HOSTS, Network, build_network
from tests.ha.processes.pair import MASTER, SLAVE, Pair, running_pair
from tests.ha.processes.surroundings import NotAllowedError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

OK: Final = ResponseCode.SUCCESS
NO_SLAVE: Final = ResponseCode.SLAVE_NOT_AVAILABLE
TIMED_OUT: Final = ResponseCode.FLUSH_SLAVE_TIMEOUT
MASTER_SIDE: Final = 0
SLAVE_SIDE: Final = 1

READY: Final = "ready"

WINDOW_BYTES: Final = 64 * 1024
"""What a link carries in a round trip whose window never grows."""
COPY_BYTES: Final = 32 * 1024**2
COPY_PORT: Final = 29_999

Scenario: TypeAlias = Callable[[Network, Path], Awaitable[str]]


async def cut(network: Network, folder: Path, *, only_from: int | None = None) -> str:
    """Nothing gets through for a while, in both directions or in one."""
    wire = network.wire
    async with running_pair(folder, network=network) as it:
        async with it.producer.sending(it.address(MASTER)):
            await it.until_codes(OK, count=200)
            wire.set(is_cut=True, only_from=only_from)
            cut_at = trio.current_time()
            await it.until_out_of_sync()
            out_s = trio.current_time() - cut_at
            it.producer.codes.clear()
            it.producer.slowest_s = 0.0
            await it.until_codes(NO_SLAVE, count=500)
            during = it.producer.codes.copy()
            assert set(during) <= {NO_SLAVE, TIMED_OUT}, during
            # Nobody who waited did so for longer than slaveTimeout and what a busy machine adds.
            assert it.producer.slowest_s < 1.5, it.producer.slowest_s
            wire.heal()
            healed_at = trio.current_time()
            await it.until_in_sync()
            back_s = trio.current_time() - healed_at
            await it.until_codes(OK)
        assert not it.producer.unanswered
        end = await it.check_equal()
        await it.check_none_lost()
    return (
        f"out of sync after {out_s:.2f} s, slowest answer {it.producer.slowest_s:.2f} s, in sync"
        f" {back_s:.2f} s after it was healed, {len(it.producer.acknowledged)} acknowledged, none"
        f" missing, {end} bytes equal"
    )


async def half_open(network: Network, folder: Path) -> str:
    """The slave dies unheard; its master still has the old connection when it comes back."""
    wire = network.wire
    # Without this the master would notice the silence first.
    settings = {"haHousekeepingInterval": "20000"}
    async with running_pair(folder, network=network, settings=settings) as it:
        async with it.producer.sending(it.address(MASTER)):
            await it.until_codes(OK, count=200)
            wire.set(is_cut=True)
            await it.kill(SLAVE)
            await it.until_out_of_sync()
            said = await it.status(MASTER)
            assert [slave.connected for slave in said.slaves] == [True], said.slaves
            wire.heal()
            await it.start(SLAVE)
            started_at = trio.current_time()
            said = await it.until_in_sync()
            back_s = trio.current_time() - started_at
            assert len(said.in_sync) == 1
            await it.until_codes(OK)
        assert set(it.producer.codes) <= {OK, NO_SLAVE, TIMED_OUT}
        assert not it.producer.unanswered
        end = await it.check_equal()
        await it.check_none_lost()
        await it.until(
            MASTER,
            lambda said: sum(slave.connected for slave in said.slaves) == 1,
            "the old connection is closed",
        )
    return f"in sync {back_s:.2f} s after the slave's start, {end} bytes equal"


async def take_over(network: Network, folder: Path) -> str:
    """The slave is promoted while its master, cut off from it, goes on serving producers."""
    wire = network.wire
    settings = {"registerNameServerPeriod": "10000"}
    async with running_pair(folder, network=network, settings=settings) as it:
        old, new = it.producer, Producer(it.client, senders=4)
        async with old.sending(it.address(MASTER)):
            await it.until_codes(OK, count=200)
            wire.set(is_cut=True)
            await it.until_out_of_sync()
            old.codes.clear()
            started_at = trio.current_time()
            promoted = await it.ha.promote(it.address(SLAVE), accept_loss=False, mode=None)
            promoted_s = trio.current_time() - started_at
            async with new.sending(it.address(SLAVE)):
                said = await it.until(
                    MASTER, lambda said: said.state != "writable", "the old master is fenced", 30.0
                )
            fenced_s = trio.current_time() - started_at
            assert f"epoch {promoted.epoch}" in (said.last_error or ""), said
        # It took messages until it heard of the new one, but promised none of them.
        meanwhile = old.codes[NO_SLAVE]
        assert not old.codes[OK], old.codes
        assert set(new.codes) == {NO_SLAVE}, new.codes
        await it.check_none_lost(SLAVE)
        wire.heal()
        await it.ha.demote(it.address(MASTER), None)
        await it.until(MASTER, lambda said: said.state == "diverged", "the logs have parted")
        resync = await it.ha.resync(it.address(MASTER), dry_run=False)
        end = await it.check_equal(SLAVE, MASTER)
        await it.check_none_lost(MASTER)
    return (
        f"promoted within {promoted_s:.2f} s, the old master refuses after {fenced_s:.2f} s; it"
        f" answered {meanwhile} sends meanwhile, none of them SEND_OK; resync cut"
        f" {resync.cut_messages} messages, {end} bytes equal"
    )


async def slow(
    network: Network,
    folder: Path,
    *,
    round_trip_s: float,
    loss: float = 0.0,
    size: int = COPY_BYTES,
) -> str:
    """Catch up and double-write over a link with a delay, and with losses."""
    wire = network.wire
    wire.set(delay_s=round_trip_s / 2, loss=loss)
    plain = await trio.to_thread.run_sync(plain_rate, network, size)
    try:
        async with running_pair(folder, network=network, settings=_PATIENT) as it:
            caught_up = await _catch_up_rate(it, size)
            took_s = sorted([await _time_one(it) for _ in range(15)])
            rate = await _rate(it, 1.0)
            assert set(it.producer.codes) <= {OK}, it.producer.codes
            assert len((await it.status(MASTER)).in_sync) == 1
            end = await it.check_equal()
            await it.check_none_lost()
    finally:
        wire.heal()
    window_rate = WINDOW_BYTES / round_trip_s
    median_s = statistics.median(took_s)
    if not loss:
        # One round trip and no more.
        assert median_s < round_trip_s * 1.5 + 0.02, median_s
        assert caught_up > min(4 * window_rate, plain / 3), (caught_up, plain)
    return (
        f"catch-up {caught_up / 1e6:.1f} MB/s beside {plain / 1e6:.1f} of a plain copy (64 KiB per"
        f" round trip would be {window_rate / 1e6:.1f}), one sync send {median_s * 1e3:.1f} ms"
        f" (p50), {rate:.0f}/s of 16 senders, {end} bytes equal"
    )


_PATIENT: Final = {
    "haMaxTimeSlaveNotCatchup": "15000",
    "slaveTimeout": "3000",
    "haHousekeepingInterval": "5000",
}

SCENARIOS: Final[dict[str, Scenario]] = {
    "cut": cut,
    "cut-from-master": partial(cut, only_from=MASTER_SIDE),
    "cut-from-slave": partial(cut, only_from=SLAVE_SIDE),
    "half-open": half_open,
    "take-over": take_over,
    "delay-2ms": partial(slow, round_trip_s=0.002),
    "delay-50ms": partial(slow, round_trip_s=0.05),
    "delay-50ms-short": partial(slow, round_trip_s=0.05, size=COPY_BYTES // 4),
    "loss-1%": partial(slow, round_trip_s=0.002, loss=0.01, size=COPY_BYTES // 4),
    "loss-5%": partial(slow, round_trip_s=0.002, loss=0.05, size=COPY_BYTES // 4),
}


async def _catch_up_rate(it: Pair, size: int) -> float:
    """Let the slave miss `size` bytes; return how many a second it gets when it is back."""
    await it.stop(SLAVE)
    await it.until_out_of_sync()
    begin = (await it.status(MASTER)).end
    await fill(it.client, it.address(MASTER), size)
    end = (await it.status(MASTER)).end
    started_at = time.monotonic()
    await it.start(SLAVE)
    said = await it.until(SLAVE, lambda said: said.end > begin, "it gets something")
    first, first_at = said.end, time.monotonic()
    if first == end:
        # Too quick to be seen in the middle of it: no slower than this.
        first, first_at = begin, started_at
    await it.until(SLAVE, lambda said: said.end >= end, "it has everything", 60.0)
    rate = (end - first) / (time.monotonic() - first_at)
    await it.until_in_sync()
    return rate


async def _time_one(it: Pair) -> float:
    started = time.monotonic()
    assert await it.producer.send_one(it.address(MASTER))
    return time.monotonic() - started


async def _rate(it: Pair, seconds: float) -> float:
    before = it.producer.codes.total()
    started = time.monotonic()
    async with it.producer.sending(it.address(MASTER)):
        await trio.sleep(seconds)
    return (it.producer.codes.total() - before) / (time.monotonic() - started)


# --- a plain copy ------------------------------------------------------------------------------


def plain_rate(network: Network, size: int) -> float:
    """Return how many bytes a second a bare socket gets over the wire, as it is."""
    here, there = forks.Pipe()
    receiver_here, receiver_there = forks.Pipe()
    sender = forks.Process(target=_send_plain, args=(network, there, size), daemon=True)
    sender.start()
    assert here.recv() == "listening"
    receiver = forks.Process(target=_receive_plain, args=(network, receiver_there), daemon=True)
    receiver.start()
    rate = float(receiver_here.recv())
    for process in (sender, receiver):
        process.join()
    return rate


def _send_plain(network: Network, control: Connection, size: int) -> None:
    network.surroundings(MASTER_SIDE).take_on()
    with socket.create_server((HOSTS[MASTER_SIDE], COPY_PORT)) as listener:
        control.send("listening")
        connection = listener.accept()[0]
    with connection:
        piece = bytes(1024**2)
        for _ in range(size // len(piece)):
            connection.sendall(piece)


def _receive_plain(network: Network, control: Connection) -> None:
    network.surroundings(SLAVE_SIDE).take_on()
    with socket.create_connection((HOSTS[MASTER_SIDE], COPY_PORT)) as connection:
        room = bytearray(1024**2)
        total, started = 0, time.monotonic()
        while got := connection.recv_into(room):
            total += got
        control.send(total / (time.monotonic() - started))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SCENARIOS))
    parser.add_argument("--asked", action="store_true", help="take names from standard input")
    args = parser.parse_args()
    try:
        network = build_network()
    except NotAllowedError as exc:
        sys.stdout.write(f"no network can be made here: {exc}\n")
        return NOT_ALLOWED
    if args.asked:
        _answer(READY)
        for line in sys.stdin:
            _answer(json.dumps(_attempt(network, line.strip())))
    else:
        for name in args.names or SCENARIOS:
            _answer(f"{name}: {_play(network, name)}")
    return 0


def _play(network: Network, name: str) -> str:
    with tempfile.TemporaryDirectory(prefix="rmq-net-") as folder:
        return trio.run(SCENARIOS[name], network, Path(folder))


def _attempt(network: Network, name: str) -> tuple[str, bool]:
    """Return what a scenario tells, and whether it failed; the next one may be asked for then."""
    try:
        return _play(network, name), False
    except Exception:  # noqa: BLE001 - whatever it is, the test that asked shows it
        network.wire.heal()
        return traceback.format_exc(), True


def _answer(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
