"""Floods: what others notice of many connections that send, do not read, or only connect.

All of it is bounded: so many connections, so many seconds, loopback only. The flood comes from an
address of its own (127.0.0.2), as one host; the probe is another one. What is asked for: work that
is accepted is answered within 3 s (p99), memory is bounded, and it is over when the flood is.
"""

from __future__ import annotations

import select
import socket
import time
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from benchmarks.broker_load.answers import AnswerCutter, is_success
from benchmarks.broker_load.figures import percentile
from benchmarks.broker_load.frames import OPAQUE_FIRST, SendShape, UniqueKeys, send_frame
from benchmarks.broker_load.peer import READ_BYTES
from benchmarks.fairness.firing import probing
from benchmarks.fairness.scenario import Size, Target, frame
from rmq.remoting.codes import RequestCode
from rmq.remoting.headers import EmptyHeader

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.fairness.firing import Probe
    from benchmarks.fairness.site import RunningSite

GOAL_S: Final = 3.0
"""What an accepted send may take at the 99th percentile."""
SIZE: Final = Size(topics=10, queues=4, groups=10, connections=20)
SENDERS: Final = 1_000
SLOW_READERS: Final = 200
CONNECTIONS_MAX: Final = 5_000
_IN_FLIGHT: Final = 64
_FLOOD_HOST: Final = "127.0.0.2"
_AFTER_S: Final = 2.0
"""How long the probe is watched when the flood is over."""
_SLOW_REQUESTS_BYTES: Final = 1 << 20
"""What a slow reader sends at most: some 8,000 requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flooded:
    """What one flood came to."""

    name: str
    accepted: int
    refused: int
    flood_p99_s: float
    """Of the sends of the flood that were accepted."""
    probes: int
    probes_refused: int
    probe_p50_s: float
    probe_p99_s: float
    probe_worst_s: float
    after_p99_s: float
    """Of the probe, when the flood was over."""
    cpu_s: float
    """What the broker used meanwhile: on a busy machine much less than the time that passed."""
    memory_mb: tuple[float, float, float]
    """Resident memory of the broker before, at most, and afterwards."""

    @property
    def is_met(self) -> bool:
        """Whether accepted work was answered in time, during the flood and after it."""
        return max(self.flood_p99_s, self.probe_p99_s, self.after_p99_s) <= GOAL_S


class _Tally:
    """What the flood got back."""

    def __init__(self) -> None:
        self.took: list[float] = []
        self.codes: Counter[str] = Counter()


class _Sender:
    """A connection that keeps sends under way."""

    def __init__(self, port: int, frames: Sequence[bytes], tally: _Tally) -> None:
        self.sock = _dial(port)
        self._frames = frames
        self._tally = tally
        self._cutter = AnswerCutter()
        self._sent_at: dict[int, float] = {}
        self._unsent = b""

    def begin(self) -> None:
        now = time.perf_counter()
        self._sent_at = {OPAQUE_FIRST + number: now for number in range(len(self._frames))}
        self._send(b"".join(self._frames))

    def _send(self, data: bytes) -> None:
        self._unsent += data
        with suppress(BlockingIOError):
            sent = self.sock.send(self._unsent)
            self._unsent = self._unsent[sent:]

    def take(self, *, goes_on: bool) -> bool:
        """Take answers, and send again for each; return whether the connection is still there."""
        try:
            data = self.sock.recv(READ_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if not data:
            return False
        now = time.perf_counter()
        again: list[bytes] = []
        for opaque, header, _ in self._cutter.answers(data):
            took = now - self._sent_at[opaque]
            if is_success(header):
                self._tally.took.append(took)
            self._tally.codes["taken" if is_success(header) else "refused"] += 1
            self._sent_at[opaque] = now
            again.append(self._frames[opaque - OPAQUE_FIRST])
        if goes_on:
            self._send(b"".join(again))
        return True


def _dial(port: int) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port), 10, (_FLOOD_HOST, 0))
    sock.setblocking(False)
    return sock


# --- the floods ------------------------------------------------------------------------------


def _flood_sends(
    site: RunningSite, seconds: float, tally: _Tally, watch: Callable[[], None]
) -> None:
    """Send over many connections as fast as they are answered."""
    keys, shape = UniqueKeys(), SendShape(site.size.topic(0), b"x" * 128)
    frames = [send_frame(shape, n % 4, OPAQUE_FIRST + n, keys) for n in range(_IN_FLIGHT)]
    port = site.port(Target.BROKER)
    with ExitStack() as stack, select.epoll() as poller:
        senders: dict[int, _Sender] = {}
        for _ in range(SENDERS):
            sender = _Sender(port, frames, tally)
            stack.callback(sender.sock.close)
            senders[sender.sock.fileno()] = sender
            poller.register(sender.sock, select.EPOLLIN)
        for sender in senders.values():
            sender.begin()
        end_s = time.perf_counter() + seconds
        while time.perf_counter() < end_s:
            watch()
            for number, _ in poller.poll(0.1):
                if not senders[number].take(goes_on=True):
                    poller.unregister(number)


def _flood_unread(
    site: RunningSite, seconds: float, tally: _Tally, watch: Callable[[], None]
) -> None:
    """Ask for long answers over many connections, and read none of them."""
    request = frame(RequestCode.GET_BROKER_CONFIG, EmptyHeader())
    some = request * (_SLOW_REQUESTS_BYTES // len(request))
    port = site.port(Target.BROKER)
    with ExitStack() as stack:
        left = {_dial(port): some for _ in range(SLOW_READERS)}
        for sock in left:
            stack.callback(sock.close)
        end_s = time.perf_counter() + seconds
        while time.perf_counter() < end_s:
            watch()
            for sock, data in left.items():
                with suppress(BlockingIOError, ConnectionError):
                    left[sock] = data[sock.send(data) :]
            time.sleep(0.05)


def _flood_connections(
    site: RunningSite, seconds: float, tally: _Tally, watch: Callable[[], None]
) -> None:
    """Connect as often as possible; half of the connections say something."""
    request = frame(RequestCode.GET_MAX_OFFSET, EmptyHeader())
    port = site.port(Target.BROKER)
    with ExitStack() as stack:
        end_s = time.perf_counter() + seconds
        for number in range(CONNECTIONS_MAX):
            if time.perf_counter() > end_s:
                break
            sock = _dial(port)
            stack.callback(sock.close)
            tally.codes["taken"] += 1
            if number % 2:
                with suppress(OSError):
                    sock.send(request)
            if number % 100 == 0:
                watch()
        time.sleep(max(0.0, end_s - time.perf_counter()))


FLOODS: Final = {
    f"{SENDERS:,} connections send, {_IN_FLIGHT} in flight each": _flood_sends,
    f"{SLOW_READERS} connections ask and do not read": _flood_unread,
    f"up to {CONNECTIONS_MAX:,} new connections": _flood_connections,
}


def measure_floods(site: RunningSite, seconds: float) -> list[Flooded]:
    """Run every flood, one after the other, beside a probe."""
    found = []
    for name, flood in FLOODS.items():
        with probing(site, Target.BROKER) as probe:
            found.append(_measure(name, flood, site, probe, seconds))
    return found


def _measure(
    name: str,
    flood: Callable[[RunningSite, float, _Tally, Callable[[], None]], None],
    site: RunningSite,
    probe: Probe,
    seconds: float,
) -> Flooded:
    usage = site.broker.usage
    before_mb = most_mb = usage.memory_mb()[0]

    def watch() -> None:
        nonlocal most_mb
        most_mb = max(most_mb, usage.memory_mb()[0])

    tally = _Tally()
    cpu_s = usage.cpu_s()
    probe.report()
    flood(site, seconds, tally, watch)
    during = probe.report()
    cpu_s = usage.cpu_s() - cpu_s
    time.sleep(_AFTER_S)
    after = probe.report()
    took, took_after = sorted(during.took_s), sorted(after.took_s)
    return Flooded(
        name=name,
        accepted=tally.codes["taken"],
        refused=tally.codes["refused"],
        flood_p99_s=percentile(sorted(tally.took), 0.99),
        probes=len(took),
        probes_refused=during.refused,
        probe_p50_s=percentile(took, 0.5),
        probe_p99_s=percentile(took, 0.99),
        probe_worst_s=took[-1] if took else 0.0,
        after_p99_s=percentile(took_after, 0.99),
        cpu_s=cpu_s,
        memory_mb=(before_mb, most_mb, usage.memory_mb()[0]),
    )


def floods_text(found: Sequence[Flooded]) -> str:
    """Return a table as Markdown."""
    lines = [
        "| flood | accepted | refused | p99 s of its accepted sends | probes answered (refused)"
        " | probe p50 ms | p99 ms | worst ms | p99 ms afterwards | CPU s of the broker"
        " | memory MB before, most, after |",
        "|" + " --- |" * 11,
    ]
    for each in found:
        memory = ", ".join(f"{value:,.0f}" for value in each.memory_mb)
        lines.append(
            f"| {each.name} | {each.accepted:,} | {each.refused:,} | {each.flood_p99_s:.2f}"
            f" | {each.probes:,} ({each.probes_refused:,}) | {each.probe_p50_s * 1e3:,.1f}"
            f" | {each.probe_p99_s * 1e3:,.1f} | {each.probe_worst_s * 1e3:,.1f}"
            f" | {each.after_p99_s * 1e3:,.1f} | {each.cpu_s:.1f} | {memory} |"
        )
    return "\n".join(lines) + "\n"
