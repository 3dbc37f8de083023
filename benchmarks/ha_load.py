"""Loads a master that has a slave, and prints one JSON line of figures.

    python -m benchmarks.ha_load send PORT --pid PID [--slave-pid PID] --topic T --inflight 64
    python -m benchmarks.ha_load pace PORT --pid PID [--slave-pid PID] --topic T --rate 20000
    python -m benchmarks.ha_load lag PORT --pid PID --slave-port PORT --topic T --rate 20000

`send` keeps so many under way. `pace` sends at an even pace, all that is due once a millisecond,
and leaves the rest of the time to others: all of them share the cores. `lag` does so, too, asks the
master ten times a second and more how far its slave is behind, and reads from the slave: the time
of a message there runs from when its SEND_OK was here until it was.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import select
import sys
import time
from typing import TYPE_CHECKING, Final

from benchmarks.broker_load.answers import AnswerCutter
from benchmarks.broker_load.figures import Outcome, Process, Watch, percentile
from benchmarks.broker_load.frames import OPAQUE_FIRST, SendShape
from benchmarks.broker_load.paced import LongPoller, PacedSender
from benchmarks.broker_load.peer import NoAnswerError, connect, read
from benchmarks.broker_load.produce import produce
from rmq.remoting.bodies import HaStatusBody
from rmq.remoting.codes import RequestCode
from rmq.remoting.command import encode_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WARM_UP_S: Final = 0.5
_DRAIN_S: Final = 5.0
_STEP_S: Final = 0.001
_ASK_S: Final = 0.02
_NUMBERS: Final = 4_096
"""`PacedSender` gives messages so many opaque numbers in turn."""


class MasterWithSlave(Process):
    """A master; whenever its time is taken, its slave's is, too."""

    def __init__(self, pid: int, slave_pid: int | None) -> None:
        super().__init__(pid)
        self._slave = None if slave_pid is None else Process(slave_pid)
        self._marks_s: list[tuple[float, float]] = []

    def cpu_s(self) -> float:
        own_s = super().cpu_s()
        if self._slave is not None:
            self._marks_s.append((own_s, self._slave.cpu_s()))
        return own_s

    def slave_figures(self, cpu_us: float) -> dict[str, float]:
        """Return what the slave used by message, given what the master did."""
        if self._slave is None:
            return {}
        (own_before_s, before_s), (own_after_s, after_s) = self._marks_s[-2:]
        own_s = own_after_s - own_before_s
        return {"slave_cpu_us": cpu_us * (after_s - before_s) / own_s if own_s else 0.0}


def send(
    port: int, pair: MasterWithSlave, shape: SendShape, *, inflight: int, seconds: float
) -> Outcome:
    """Keep so many sends under way on one connection."""
    outcome = produce(
        port, pair, shape, queues=4, inflight=inflight, connections=1, seconds=seconds
    )
    figures = outcome.figures
    # Shares the cores by design.
    del figures["load_cpu_share"]
    return Outcome(figures | pair.slave_figures(figures["cpu_us"]), outcome.failures)


class TimedSender(PacedSender):
    """Remembers when each message was answered."""

    def __init__(self, port: int, shape: SendShape, *, per_s: float) -> None:
        super().__init__(port, shape, queues=4, per_s=per_s)
        self.answered_ns: dict[int, int] = {}
        """By number of the message."""
        self._base = 0

    def take_answers(self) -> None:
        opaques = self.cutter.opaques(read(self.sock))
        now_ns = time.perf_counter_ns()
        base = self._base
        for opaque in opaques:
            self.answered_ns[base + (opaque - OPAQUE_FIRST - base) % _NUMBERS] = now_ns
        self._base = base + len(opaques)

    def number_of(self, due_ns: int) -> int:
        return round((due_ns - self._started_ns) / self._interval_ns)


class StatusSampler:
    """Asks a master again and again how far its slave is behind."""

    def __init__(self, port: int) -> None:
        self.sock = connect(port)
        self.lag_bytes: list[int] = []
        self.lag_ms: list[int] = []
        self._cutter = AnswerCutter()
        self._is_waiting = False
        self._due_s = 0.0

    def ask(self, now_s: float) -> None:
        if not self._is_waiting and now_s >= self._due_s:
            self._is_waiting = True
            self._due_s = now_s + _ASK_S
            self.sock.sendall(encode_frame(code=RequestCode.HA_STATUS, opaque=OPAQUE_FIRST))

    def take_answers(self) -> None:
        for _, _, body in self._cutter.answers(read(self.sock)):
            self._is_waiting = False
            slaves = [slave for slave in HaStatusBody.decode(body).slaves if slave.connected]
            if len(slaves) != 1:
                raise NoAnswerError(f"the master has {len(slaves)} slaves in place of one")
            self.lag_bytes.append(slaves[0].lag_bytes)
            self.lag_ms.append(slaves[0].lag_ms)


def _pace(
    sender: PacedSender,
    others: Sequence[LongPoller | StatusSampler],
    seconds: float,
    *,
    until: Callable[[], bool] | None = None,
) -> None:
    """Send what is due and take what comes, for a while; with `until` only take, until it is so."""
    end_s = time.perf_counter() + seconds
    by_number = {peer.sock.fileno(): peer.take_answers for peer in (sender, *others)}
    samplers = [peer for peer in others if isinstance(peer, StatusSampler)]
    with select.epoll() as ready:
        for number in by_number:
            ready.register(number, select.EPOLLIN)
        while (now_s := time.perf_counter()) < end_s:
            if until is None:
                sender.send_due(time.perf_counter_ns())
                for sampler in samplers:
                    sampler.ask(now_s)
            elif until():
                return
            next_s = now_s + _STEP_S
            while (left_s := next_s - time.perf_counter()) > 0:
                for number, _ in ready.poll(left_s):
                    by_number[number]()
    if until is not None and not until():
        raise NoAnswerError(f"something was still missing after {seconds:g} s")


def pace(
    port: int, pair: MasterWithSlave, shape: SendShape, *, per_s: float, seconds: float
) -> Outcome:
    """Send at an even pace."""
    sender = TimedSender(port, shape, per_s=per_s)
    _pace(sender, (), WARM_UP_S)
    before = len(sender.answered_ns)
    watch = Watch(pair)
    _pace(sender, (), seconds)
    figures = watch.read(len(sender.answered_ns) - before)
    del figures["load_cpu_share"]
    sender.sock.close()
    return Outcome(figures | pair.slave_figures(figures["cpu_us"]), dict(sender.cutter.failures))


def lag(
    port: int,
    pair: MasterWithSlave,
    shape: SendShape,
    *,
    slave_port: int,
    per_s: float,
    seconds: float,
) -> Outcome:
    """Send at an even pace, and see how far behind the slave is."""
    poller = LongPoller(slave_port, shape.topic, queues=4)
    sampler = StatusSampler(port)
    sender = TimedSender(port, shape, per_s=per_s)
    _pace(sender, (poller, sampler), WARM_UP_S)
    sampler.lag_bytes.clear()
    sampler.lag_ms.clear()
    first = sender.sent
    before = len(sender.answered_ns)
    watch = Watch(pair)
    _pace(sender, (poller, sampler), seconds)
    figures = watch.read(len(sender.answered_ns) - before)
    del figures["load_cpu_share"]
    _pace(
        sender,
        (poller,),
        _DRAIN_S,
        until=lambda: len(sender.answered_ns) == len(poller.arrived) == sender.sent,
    )
    late_ms = sorted(
        max(0.0, (here_ns - sender.answered_ns[number]) / 1e6)
        for number, here_ns in (
            (sender.number_of(due_ns), here_ns) for due_ns, here_ns in poller.arrived
        )
        if number >= first
    )
    lag_bytes, lag_ms = sorted(sampler.lag_bytes), sorted(sampler.lag_ms)
    figures |= {
        "readable_p50_ms": percentile(late_ms, 0.5),
        "readable_p99_ms": percentile(late_ms, 0.99),
        "readable_max_ms": late_ms[-1] if late_ms else 0.0,
        "lag_p50_bytes": percentile(lag_bytes, 0.5),
        "lag_max_bytes": lag_bytes[-1],
        "lag_p99_ms": percentile(lag_ms, 0.99),
        "lag_max_ms": lag_ms[-1],
        "samples": len(lag_ms),
    }
    for peer in (poller, sampler, sender):
        peer.sock.close()
    return Outcome(figures, dict(sender.cutter.failures))


def main() -> int:
    args = _parse()
    # Nothing here makes cycles, and a collection would be taken for a slow answer.
    gc.disable()
    shape = SendShape(args.topic, b"x" * args.body)
    pair = MasterWithSlave(args.pid, args.slave_pid)
    try:
        if args.command == "send":
            outcome = send(args.port, pair, shape, inflight=args.inflight, seconds=args.seconds)
        elif args.command == "pace":
            outcome = pace(args.port, pair, shape, per_s=args.rate, seconds=args.seconds)
        else:
            outcome = lag(
                args.port,
                pair,
                shape,
                slave_port=args.slave_port,
                per_s=args.rate,
                seconds=args.seconds,
            )
    except (NoAnswerError, OSError, ValueError) as exc:
        print(f"load: error: {exc}", file=sys.stderr)
        return 1
    print(json.dumps(dataclasses.asdict(outcome)))
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.ha_load",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=("send", "pace", "lag"))
    parser.add_argument("port", type=int)
    parser.add_argument("--pid", type=int, required=True, help="process id of the master")
    parser.add_argument("--slave-pid", type=int)
    parser.add_argument("--slave-port", type=int)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--inflight", type=int, default=64)
    parser.add_argument("--body", type=int, default=128, help="bytes of a body")
    parser.add_argument("--rate", type=float, default=20_000, help="messages a second")
    parser.add_argument("--seconds", type=float, default=2.0)
    args = parser.parse_args()
    if args.command == "lag" and args.slave_port is None:
        parser.error("lag needs --slave-port")
    return args


if __name__ == "__main__":
    sys.exit(main())
