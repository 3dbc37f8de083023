"""A nameserver and a broker in this process, on loopback and a temporary store, to be fuzzed.

Both live under a clock that goes on by itself and can be moved on (`Rig.pass_time`), and that the
time of day follows: what waits for 15 s is waited for in no time. `Rig.dial` gives a `Peer`.
"""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, final

import trio
import trio.testing

from rmq.broker.broker import serve_broker
from rmq.broker.config import LiveConfig, load_broker_config
from rmq.model.offsets import QueueOffset
from rmq.nameserver.config import load_nameserver_config
from rmq.nameserver.server import serve_nameserver
from rmq.remoting.codes import RequestCode
from tests.e2e.servers import free_port
from tests.fuzz.servers.answers import Answers, describe
from tests.fuzz.servers.peer import Peer, Server
from tests.fuzz.servers.requests import Maker
from tests.fuzz.servers.watch import FUZZ_TASK

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

    from rmq.broker.broker import Broker
    from rmq.nameserver.server import Nameserver
    from tests.fuzz.servers.values import Values
    from tests.fuzz.servers.watch import Note, StepWatch

HOST: Final = "127.0.0.1"
DELAY_LEVELS: Final = "1s 2s 3s 1s"
SETTINGS: Final = {
    "brokerIP1": HOST,
    "brokerIP2": HOST,
    "bindAddress": HOST,
    "brokerName": "broker-under-fuzz",
    "messageDelayLevel": DELAY_LEVELS,
    "enablePropertyFilter": "true",
    "mappedFileSizeCommitLog": str(8 * 1024**2),
    "mappedFileSizeConsumeQueue": str(1000 * 20),
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
    "maxMessageSize": str(1024**2),
    # The state of the machine is not what is looked at.
    "osPageCacheBusyTimeOutMills": "10000",
    "waitTimeMillsInSendQueue": "10000",
    "diskMaxUsedSpaceRatio": "95",
    "rocketmq.broker.diskSpaceCleanForciblyRatio": "1.0",
    "rocketmq.broker.diskSpaceWarningLevelRatio": "1.0",
}
_OWN_CONNECTIONS: Final = {"broker": 1, "vip": 0, "nameserver": 2}
"""Those of the probe, and the broker's to the nameserver."""
_SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
_QUIET_S: Final = 0.3
_LEFTOVER_S: Final = 3.0
_CALL_S: Final = 12
_STOP_S: Final = 20.0


@final
class Rig:
    """The servers, and what is known of them."""

    def __init__(
        self,
        broker: Broker,
        nameserver: Nameserver,
        values: Values,
        nursery: trio.Nursery,
        note: Note,
    ) -> None:
        self.broker = broker
        self.nameserver = nameserver
        self.values = values
        self.chance = values.chance
        self.note = note
        self.nursery = nursery
        self.answers = Answers(values, note)
        self.frames = 0
        """How many frames were sent."""
        self.peers: list[Peer] = []
        self.waits_s = 40
        """How long an answer may have to wait for something, by the clock of the servers."""
        self.patience_s = 60.0
        """How long an answer may take for which much has to be worked out."""
        # As a stock broker, the second port does not serve pulls.
        vip_table = broker.table.without(RequestCode.PULL_MESSAGE)
        self.servers = {
            server.name: server
            for server in (
                Server("broker", broker.server.port, Maker(broker.table, values), True),
                Server("vip", broker.vip_server.port, Maker(vip_table, values), True),
                Server("nameserver", nameserver.port, Maker(nameserver.table, values), False),
            )
        }

    # --- connections -------------------------------------------------------------------------

    async def dial(self, server: str) -> Peer:
        """Connect to a server."""
        target = self.servers[server]
        sock = trio.socket.socket()
        await sock.connect((HOST, target.port))
        peer = Peer(trio.SocketStream(sock), target, self.answers.check, self.note)
        self.peers.append(peer)
        self.nursery.start_soon(peer.run, name=f"{FUZZ_TASK} peer")
        return peer

    async def settle(self, *, lets_time_pass: bool = True) -> None:
        """Wait until everything that is owed to peers has come, as long as that may take."""
        await self.wait(lambda: not self._debtors(), _QUIET_S)
        waited_s = 0
        while lets_time_pass and self._debtors() and waited_s < self.waits_s:
            await self.pass_time(1)
            waited_s += 1
        if self._debtors():
            await self.wait(lambda: not self._debtors(), self.patience_s)
        for peer in self._debtors():
            for request in peer.unanswered():
                self.note(
                    f"no answer to {request.code} from {peer.server.name}",
                    f"after {waited_s} s: {describe(request)}",
                )
            peer.forgive()

    def _debtors(self) -> list[Peer]:
        return [peer for peer in self.peers if peer.is_owed]

    async def hang_up(self) -> None:
        """Close all connections, and wait for the servers to forget them."""
        for peer in list(self.peers):
            await self.close(peer)
        await self.check_nothing_left()

    async def close(self, peer: Peer) -> None:
        """Close a connection."""
        await peer.close(self.chance)
        self.frames += peer.sent
        self.peers.remove(peer)

    async def wait(self, is_so: Callable[[], bool], seconds: float) -> bool:
        """Wait for something, not longer than so many true seconds; did it come?"""
        end = time.monotonic() + seconds
        while not is_so():
            if time.monotonic() > end:
                return False
            await trio.sleep(0.0005)
        return True

    async def pass_time(self, seconds: int, *, step_s: int = 1) -> None:
        """Let both clocks go on, in steps after each of which everything settles."""
        clock = trio.lowlevel.current_clock()
        assert isinstance(clock, trio.testing.MockClock)
        for _ in range(0, seconds, step_s):
            clock.jump(step_s)
            # Threads are not waited for by `wait_all_tasks_blocked`.
            await trio.sleep(0.001)
            await trio.testing.wait_all_tasks_blocked()

    # --- the servers from inside -------------------------------------------------------------

    async def check_nothing_left(self) -> None:
        """Check that nothing is kept of connections that are closed."""
        seconds = min(_LEFTOVER_S, self.patience_s)
        if await self.wait(lambda: not self._leftovers(), seconds):
            return
        # Calls to clients that are gone have their time, and threads do.
        await self.pass_time(_CALL_S)
        await self.wait(lambda: not self._leftovers(), seconds)
        if left := self._leftovers():
            self.note(f"left after a scenario: {', '.join(left)}", f"{left}")

    def _leftovers(self) -> dict[str, object]:
        broker = self.broker
        left: dict[str, object] = {}
        for name, server in (
            ("broker", broker.server),
            ("vip", broker.vip_server),
            ("nameserver", self.nameserver.server),
        ):
            statistics = server.statistics()
            for group in statistics.groups:
                left[f"{name}: unanswered in {group.name}"] = group.unanswered
                left[f"{name}: running in {group.name}"] = group.running
            endpoint = statistics.endpoint
            left[f"{name}: connections"] = max(0, endpoint.connections - _OWN_CONNECTIONS[name])
            left[f"{name}: held bytes"] = endpoint.held_bytes
            left[f"{name}: calls"] = endpoint.calls_under_way
        clients = broker.clients.statistics()
        left["clients"] = max(
            clients.connections,
            clients.consumers,
            clients.producers,
            clients.consumer_groups,
            clients.producer_groups,
        )
        left["held pulls"] = len(broker.pulls.holds)
        left["queues waited for"] = broker.pulls.holds.queues
        left["watched queues"] = [
            (queue.topic, queue.queue_id)
            for queue in broker.store.queues
            if queue.is_watched and queue.topic != _SCHEDULE_TOPIC
        ]
        return {name: value for name, value in left.items() if value}


def entries_of(broker: Broker) -> dict[tuple[str, int], list[tuple[int, int, int] | None]]:
    """Return the entries of all queues of a broker."""
    return {
        (queue.topic, queue.queue_id): [
            queue.entry(QueueOffset(offset))
            for offset in range(queue.min_offset, queue.next_offset)
        ]
        for queue in broker.store.queues
        if queue.next_offset > queue.min_offset
    }


@asynccontextmanager
async def running(
    folder: Path,
    values: Values,
    note: Note,
    watch: StepWatch,
    settings: Mapping[str, str] | None = None,
) -> AsyncIterator[Rig]:
    """Run both servers for the length of the block; stop them in good order at its end."""
    clock = trio.lowlevel.current_clock()
    assert isinstance(clock, trio.testing.MockClock)
    base_ms = time.time_ns() // 1_000_000 - int(clock.current_time() * 1000)

    def now_ms() -> int:
        return base_ms + int(clock.current_time() * 1000)

    names_file = folder / "namesrv.conf"
    names_file.touch()
    names_config = load_nameserver_config(
        names_file,
        {"bindAddress": HOST, "listenPort": "0", "kvConfigPath": str(folder / "kvConfig.json")},
        environ={},
    ).config
    async with trio.open_nursery() as peers, trio.open_nursery() as nursery:
        nameserver: Nameserver = await nursery.start(serve_nameserver, names_config)
        live = broker_config(folder, nameserver.port, settings, now_ms())
        broker: Broker = await nursery.start(lambda **kw: serve_broker(live, now_ms=now_ms, **kw))
        for server in (broker.server, broker.vip_server, nameserver.server):
            watch.measure(server._dispatcher)
        rig = Rig(broker, nameserver, values, peers, note)
        yield rig
        for peer in rig.peers:
            peer.expect_end()
        broker.stop()
        nameserver.stop()
        end = time.monotonic() + _STOP_S
        while nursery.child_tasks and time.monotonic() < end:
            # What they wait for, because somebody did not answer, they wait for in no time.
            clock.jump(0.1)
            await trio.sleep(0.01)
        if nursery.child_tasks:
            note("the servers do not stop", f"{len(nursery.child_tasks)} of 2 still run")
            nursery.cancel_scope.cancel()
        await rig.wait(lambda: all(peer.is_ended for peer in rig.peers), _LEFTOVER_S)
        for peer in list(rig.peers):
            await rig.close(peer)
        peers.cancel_scope.cancel()


def broker_config(
    folder: Path, nameserver_port: int | None, settings: Mapping[str, str] | None, now_ms: int
) -> LiveConfig:
    """Return the settings of a broker in a folder, on ports that are free.

    They are in a file, which is taken as it is if there is one.
    """
    path = folder / "broker.conf"
    if not path.exists():
        wanted = {**SETTINGS, **(settings or {})}
        path.write_text("".join(f"{key}={value}\n" for key, value in wanted.items()))
    overrides = {
        "storePathRootDir": str(folder / "store"),
        "namesrvAddr": "" if nameserver_port is None else f"{HOST}:{nameserver_port}",
        "listenPort": str(free_port(-2, 1)),
    }
    return LiveConfig(load_broker_config(path, overrides, {}), now_ms=now_ms)
